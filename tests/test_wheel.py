"""The wheel is whole: in an empty folder it does what the repository does, and names the extra of what is missing."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from hcilib.model.extras import EXTRAS

ROOT = Path(__file__).resolve().parents[1]
BLOCKER = """
import os, sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in os.environ["BLOCKED"].split():
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocker())
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """The installed files of the wheel, without the repository around them."""
    built = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(built)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    site = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(next(built.glob("*.whl"))) as content:
        content.extractall(site)
    (site / "sitecustomize.py").write_text(BLOCKER)
    return site


@pytest.fixture
def run(wheel, tmp_path):
    """Run Python with the wheel's files in an empty folder, without some extras; return the finished process."""

    def call(*arguments: str, without: str = "") -> subprocess.CompletedProcess:
        blocked = " ".join(EXTRAS[extra] for extra in without.split())
        environment = os.environ | {
            "PYTHONPATH": str(wheel),
            "BLOCKED": blocked,
            "XDG_CACHE_HOME": str(tmp_path / "cache"),
        }
        command = [sys.executable, *arguments]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600)

    return call


def test_tables_systems_and_campaigns_are_there_without_any_extra(run, capsys):
    code = (
        "import hcilib as hci\n"
        "print(len(hci.published()), len(hci.load_systems('params/systems')))\n"
        "rows = hci.read_results('data/samples/lab-mirror')\n"
        "print(len(rows), len(hci.summarize(rows, 'iops')))"
    )
    done = run("-c", code, without="drive desk")
    exec(code, {})
    assert done.stdout == capsys.readouterr().out, done.stderr


@pytest.mark.deep
def test_a_copy_to_edit_and_its_report(run, tmp_path):
    assert run("-m", "hcilib.cli", "init").returncode == 0
    ours = [path for name in ("notebooks", "params") for path in (ROOT / name).rglob("*.[iy]*")]
    names = {path.relative_to(ROOT) for path in ours if ".ipynb_checkpoints" not in path.parts}  # JupyterLab's
    assert names == {path.relative_to(tmp_path) for path in tmp_path.rglob("*.[iy]*")}
    own = tmp_path / "notebooks" / "09_capacity.ipynb"
    own.write_text(text := own.read_text().replace("How much of the raw capacity", "How much of all capacity"))
    assert run("-m", "hcilib.cli", "init").returncode == 0
    assert own.read_text() == text
    done = run("-m", "hcilib.cli", "report", "params/09_capacity.proxmox.yaml", without="drive")
    assert done.returncode == 0, done.stderr
    assert (
        "How much of all capacity" in (tmp_path / "out/report/09_capacity.proxmox/09_capacity.proxmox.html").read_text()
    )


@pytest.mark.deep
@pytest.mark.parametrize(
    ("command", "without"),
    [(["report"], "desk"), (["discover", "127.0.0.1"], "drive"), (["lab"], "desk"), (["watch", "."], "desk")],
)
def test_a_missing_extra_is_named(run, command, without):
    done = run("-m", "hcilib.cli", *command, without=without)
    assert done.returncode == 1
    assert f"hcilib[{without}]" in done.stderr
    assert "Traceback" not in done.stderr
