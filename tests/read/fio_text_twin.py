"""A second reader of fio's normal text, for tests alone: every number of a report by its line, without any of
hcilib's rules. Each is ``(line's kind, name, number, digits behind the point, suffix)``.
"""

from __future__ import annotations

import re

BEGIN = re.compile(r"^(.*): \(groupid=(\d+), jobs=(\d+)\): err=")
NAME = re.compile(r"([A-Za-z>=\d.]+?)\s*=\s*\[?\s*(?:>=|>)?\s*(-?\d+(?:\.(\d+))?)\s*([A-Za-z]*)")


def reports(text: str) -> list[list[str]]:
    """The lines of each report, without fio's progress."""
    blocks: list[list[str]] = []
    inside = False
    for line in re.sub(r"(?:^|(?<=[\r\n]))Jobs: \d+ \(f=[^\r\n]*", "", text).replace("\r", "\n").split("\n"):
        if BEGIN.match(line):
            blocks.append([])
            inside = True
        elif line.startswith(("Run status", "Disk stats")) or ": (g=" in line:
            inside = False
        elif inside:
            blocks[-1].append(line)
    return blocks


def numbers(lines: list[str]) -> list[tuple[str, str, float, int]]:
    """Rates, latencies, percentiles and counts of one report: key, name, the printed number, its decimals."""
    found: list[tuple[str, str, float, int]] = []
    way = kind = ""
    for line in lines:
        words = line.split()
        if not words:
            continue
        if re.match(r"\s*(read|write|trim|mixed)\s*:\s*(IOPS|io)=", line):
            way = words[0].rstrip(":")
            kind = "rate"
        elif "percentiles (" in line:
            kind = f"{words[0]}%"
            continue
        elif line.lstrip().startswith("|"):
            found += [(f"{way} {kind}", n, float(v), len(d)) for n, v, d, _ in _thousandths(line)]
            continue
        elif re.match(r"\s*(slat|clat|lat)\s*\(\w+\)\s*:\s*min", line):
            kind = words[0].split("(")[0]
        elif words[0].startswith("issued"):
            counts = re.findall(r"\d+", line.split(":", 1)[1])
            found += [("issued", str(n), float(count), 0) for n, count in enumerate(counts)]
            continue
        else:
            continue
        found += [(f"{way} {kind}", n, float(v), len(d)) for n, v, d, _ in NAME.findall(line)]
    return found


def _thousandths(line: str) -> list[tuple[str, str, str, str]]:
    return re.findall(r"(\d+\.\d+th)=\[\s*(?:>=|>)?\s*(-?\d+(?:\.(\d+))?)([kKM]?)\]", line)
