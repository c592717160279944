"""A study on paper: one PDF an article, its finding first, then each page's answer and first figure, its sources
last."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
LIMIT_S = 120


class PaperError(RuntimeError):
    """No browser to print with, or it printed nothing."""


def write_papers(blocks: Sequence[Mapping[str, Any]], out: Path, revision: str) -> list[Path]:
    """``<study>.pdf`` of every block of the index (hcilib.show.report.site.blocks_of), beside the site's index.

    Raises
    ------
    PaperError : there is no chromium, or it failed; the text says what to do
    """
    from hcilib.show.report.site import rendered, style

    browser = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if browser is None:
        raise PaperError(
            f"no browser to print with: looked for {', '.join(BROWSERS)}; on Debian: apt-get install chromium"
        )
    papers = []
    for block in blocks:
        sheet, paper = out / f"{block['study'].key}.print.html", out / f"{block['study'].key}.pdf"
        sheet.write_text(rendered("paper", css=style(), b=block, revision=revision), "utf-8")
        printed(browser, sheet, paper)
        sheet.unlink()
        papers.append(paper)
    return papers


def printed(browser: str, sheet: Path, paper: Path) -> None:
    """The page as PDF; page numbers come from its own style (@page)."""
    paper.unlink(missing_ok=True)
    root = ["--no-sandbox"] if os.geteuid() == 0 else []  # Chromium refuses to sandbox root
    command = [
        browser,
        "--headless",
        *root,
        "--disable-gpu",
        "--no-pdf-header-footer",
        f"--print-to-pdf={paper}",
        sheet.as_uri(),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    if done.returncode or not paper.is_file():
        said = done.stderr.strip().splitlines() or ["nothing said"]
        raise PaperError(f"{browser} could not print {sheet.name}: {said[-1]}")
