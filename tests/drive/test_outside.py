"""`make lab` from outside: what it says, how it ends, and that it writes nothing outside its folder (20 s each)."""

import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest
from probes import REPOSITORY, processes, until

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.needs("make")]
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


@pytest.fixture
def make_lab(programs, tmp_path):
    """`make lab` of one small campaign of two systems, started: the set-up apart, which keeps packages where uv and apt
    keep them."""
    for name in ("home", "temporaries", "inside"):
        (tmp_path / name).mkdir()
    inside = tmp_path / "inside"
    (inside / "lab.yaml").write_text(BED)
    (inside / "04_compare.lab.yaml").write_text("# small" + SMALL.format(bed=inside / "lab.yaml", run=inside / "run"))
    apart = ("XDG_", "JUPYTER", "IPYTHON", "MPL", "MAKE", "MFLAGS")  # make test's own make speaks of folders and levels
    kept = {key: value for key, value in os.environ.items() if not key.startswith(apart)}
    with subprocess.Popen(
        ["make", "-o", "setup", "lab", f"LAB={inside / '04_compare.lab.yaml'}", f"OUT={inside / 'site'}"],
        cwd=REPOSITORY,
        env={**kept, "HOME": str(tmp_path / "home"), "TMPDIR": str(tmp_path / "temporaries")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as made:
        try:
            yield made
        finally:
            if made.poll() is None:
                os.killpg(made.pid, signal.SIGKILL)


@pytest.mark.deep  # the next looks at the home folder after Ctrl-C
def test_make_lab_leaves_nothing_at_home_nor_among_the_temporaries(make_lab, tmp_path):
    """Measured: a campaign of two systems, and its page. Meanwhile it says how far it is."""
    out, err = make_lab.communicate(timeout=240)
    assert make_lab.returncode == 0, out + err
    assert out.splitlines()[0].startswith("make lab: one copy of the data against two")
    assert re.search(r"04_compare\.lab, \d+ of 6 steps", err), err
    assert (tmp_path / "inside" / "site" / "index.html").exists()
    assert everything(tmp_path / "home") == []
    assert everything(tmp_path / "temporaries") == []


def test_ctrl_c_ends_make_lab_in_one_sentence_and_leaves_nothing(make_lab, tmp_path):
    journal = tmp_path / "inside" / "run" / "journal.jsonl"
    assert until(lambda: journal.exists() and '"kind": "measure"' in journal.read_text(), 120), make_lab.poll()
    os.killpg(make_lab.pid, signal.SIGINT)
    _, err = make_lab.communicate(timeout=60)
    assert make_lab.returncode != 0
    said = [line for line in err.splitlines() if line and not line.startswith("notebooks:")]  # which is the bar
    assert re.fullmatch(
        r"Interrupted\. 0 of 1 notebooks .*04_compare\.lab has [1-5] of 6 steps in .*/inside/run\. .*start again.*",
        said[0],
    ), err
    assert [line for line in said[1:] if not line.startswith("make: ***")] == []
    assert until(lambda: not processes(str(tmp_path / "inside")), 10)
    assert everything(tmp_path / "home") == []
    ended = json.loads(journal.read_text().splitlines()[-1])
    assert (ended["event"], ended["problems"][0].split(":")[0]) == ("end", "KeyboardInterrupt"), "it ended in order"


def everything(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
