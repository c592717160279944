"""What `make lab` writes outside its folder: nothing, with a home and a folder for temporaries that are new (20 s)."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from probes import REPOSITORY

pytestmark = [pytest.mark.lab, pytest.mark.slow]
SMALL = """
testbed: {bed}
systems: [params/systems/lab-single.yaml, params/systems/lab-mirror.yaml]
run_dir: {run}
sweep: {{patterns: [4k-randread], iodepth: [4], vms: 2, repeats: 2, read_runtime_s: 0.5, span_bytes: 4194304, canary: false}}
sources: []
article: null
baseline: lab-single
challenger: lab-mirror
"""  # noqa: E501
BED = (
    "name: lab\nlab: {nodes: 2, vms: 2, disk_bytes: 4 MiB, dial: {read_bytes_per_s: 4 MiB, write_bytes_per_s: 4 MiB}}\n"
)


def test_make_lab_leaves_nothing_at_home_nor_among_the_temporaries(programs, tmp_path):
    """The set-up apart, which keeps packages where uv and apt keep them. Measured: a campaign of two systems, and its
    page."""
    if not shutil.which("make"):
        pytest.skip("no make on this machine")
    home, temporaries, inside = (tmp_path / name for name in ("home", "temporaries", "inside"))
    for folder in (home, temporaries, inside):
        folder.mkdir()
    (inside / "lab.yaml").write_text(BED)
    (inside / "04_compare.lab.yaml").write_text("# small" + SMALL.format(bed=inside / "lab.yaml", run=inside / "run"))
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith(("XDG_", "JUPYTER", "IPYTHON", "MPL"))
    }
    done = subprocess.run(
        ["make", "-o", "setup", "lab", f"LAB={inside / '04_compare.lab.yaml'}", f"OUT={inside / 'site'}"],
        cwd=REPOSITORY,
        env={**environment, "HOME": str(home), "TMPDIR": str(temporaries)},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (inside / "site" / "index.html").exists()
    assert everything(home) == []
    assert everything(temporaries) == []


def everything(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
