"""Tools whose results are recognised by their first lines and not read: what each measures, in one sentence."""

from __future__ import annotations

import re

_NOT_READ = "Its files are not read"
_TOOLS = {
    "vdbench": (
        rb"(?i)\bvdbench\b|\btod\s+timestamp\s+Run\s",
        "block and file I/O by workload files, a line an interval",
    ),
    "IOR": (rb"^\s*IOR-\d", "parallel file I/O of MPI ranks, a whole run a line, in MiB/s"),
    "mdtest": (rb"\bmdtest-\d", "how many files and folders a second MPI ranks create, stat and remove"),
    "Iozone": (rb"Iozone: Performance Test of File I/O", "file I/O by record size through the page cache, in kB/s"),
    "COSBench": (rb"Op-Type,\s?Op-Count|\bCOSBench\b", "object stores by requests a second"),
    "sysbench": (rb"^sysbench \d", "files, CPU or databases, with one latency percentile"),
    "Bonnie++": (
        rb"-+Sequential Output-+|^\d\.\d\d\w?,\d\.\d\d\w?,|(?i:bonnie\+\+)",
        "one file system by one process through the page cache, in kB/s and seeks a second",
    ),
    "kubestr": (rb"^FIO test results:|\bkubestr\b", "a storage class by fio, of which it prints means and extremes"),
}
"""Name -> what its files begin with, and what it measures."""
_MARKS = {name: re.compile(mark, re.MULTILINE) for name, (mark, _) in _TOOLS.items()}
HEAD = 4096


def other_tool(head: bytes) -> tuple[str, str]:
    """Return the tool that wrote a file and why it is not read; two empty texts where it is none of these."""
    name = next((name for name, mark in _MARKS.items() if mark.search(head[:HEAD])), "")
    if not name:
        return "", ""
    advice = " Run fio with --output-format=json+ and read its output" if name == "kubestr" else ""
    return name, f"{name} measures {_TOOLS[name][1]}. {_NOT_READ}.{advice}"
