"""`make quick` finds tests of what was touched."""

import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_make_quick_tries_a_test_of_every_module():
    quick = runpy.run_path(str(ROOT / ".ci/quick"))
    files = [str(file.relative_to(ROOT)) for file in (ROOT / "hcilib").rglob("*.py")]
    assert [file for file in files if len(quick["tests_of"]({file})) == len(quick["ALWAYS"])] == []
