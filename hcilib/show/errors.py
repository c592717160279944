"""An error of the library in a notebook: one readable paragraph first, the traceback below."""

from __future__ import annotations

import textwrap
from pathlib import Path
from traceback import walk_tb
from types import TracebackType

from IPython.core.interactiveshell import InteractiveShell

LIBRARY = Path(__file__).resolve().parents[1]
WIDTH = 100


def explain_errors(shell: InteractiveShell) -> None:
    """From now on this shell shows what, where and what to do before any line of traceback.

    Only for errors that the library raises itself: its messages are written for the analyst. Where another package
    fails below it, the traceback stands alone as ever.
    """

    def handler(shell, kind, error: BaseException, traceback: TracebackType, tb_offset=None) -> list[str]:
        lines = shell.InteractiveTB.structured_traceback(kind, error, traceback, tb_offset=tb_offset)
        if raised_by_library(traceback):
            lines = [paragraph(error), "", *lines]
        shell._showtraceback(kind, error, lines)
        return lines

    shell.set_custom_exc((Exception,), handler)


def paragraph(error: BaseException) -> str:
    """The message in bold, wrapped; a list keeps its lines. A KeyError's text would else be quoted."""
    text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    indents = ((line, " " * (len(line) - len(line.lstrip()))) for line in text.splitlines())
    lines = "\n".join(textwrap.fill(line, WIDTH, subsequent_indent=indent) for line, indent in indents)
    return f"\033[1m{lines}\033[0m"


def raised_by_library(traceback: TracebackType | None) -> bool:
    """Whether the innermost frame is the library's own."""
    frames = [frame for frame, _ in walk_tb(traceback)]
    return bool(frames) and Path(frames[-1].f_code.co_filename).is_relative_to(LIBRARY)
