"""What a file says of a test, against what it counted: a label comes only from what its numbers do not contradict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import nan, sqrt
from typing import Any, NamedTuple

from hcilib.read.fio.fio import RATE, disagreement

UNTOLD_DEPTH = 1024
"""I/Os in flight at the end, of which fio counts the bytes and not the I/Os, where the depth is not stated."""
MORE, MORE_MS = 0.1, 50.0
"""Jobs that ended together ran for no more than this beyond jobs x runtime: 33 ms was seen on a busy machine."""
EVEN = 0.05
FULL, OVERFULL = 0.9, 1.05
"""A full queue, as a share of outstanding by Little's law."""


class Row(NamedTuple):
    """One direction of one job: ``read`` or ``write``, `NUMBERS` (hcilib.read.foreign.row), and its I/Os where the
    file counts them."""

    ddir: str
    numbers: tuple[float, ...]
    ios: float = nan


def contradictions(asked: Mapping[str, Any], rows: Sequence[Row]) -> tuple[list[str], list[str]]:
    """Return what the rows of one test contradict.

    Parameters
    ----------
    asked : of the test, what is known of rw, bs_bytes, ramp_time_s and outstanding

    Returns
    -------
    What is asked and was not done; numbers of the file that contradict each other.
    """
    labels, damage = [], []
    rw, bs, in_flight = asked.get("rw", ""), asked.get("bs_bytes", nan), asked.get("outstanding", nan)
    for ddir, (iops, bw_bytes, lat_ns, runtime_ms, longest_ns), counted in rows:
        runtime_s = runtime_ms / 1000
        ios = iops * runtime_s
        slack = RATE * ios + (in_flight if in_flight == in_flight else UNTOLD_DEPTH)
        if iops.is_integer():  # printed without decimals, as by old releases, whose bandwidth is in whole KiB/s
            slack += runtime_s * (1 + 1024 / bs)
        if rw.endswith(("read", "write")) and not rw.endswith(ddir):
            labels.append(f"{ios:,.0f} {ddir}s were counted, and rw is {rw}")
        elif abs(bw_bytes * runtime_s / bs - ios) > slack:
            labels.append(f"a {ddir} has {bw_bytes / max(iops, 1e-9):,.0f} bytes on average, and bs is {bs:,.0f}")
        longest_s = max(lat_ns, longest_ns if longest_ns == longest_ns else 0) / 1e9
        ramp_s = asked.get("ramp_time_s", 0)
        if wrong := disagreement(iops, counted, runtime_s, longest_s, ramp_s):
            damage.append(f"{ddir}: {wrong}")
    return labels, damage


def jobs_by_time(asked: Mapping[str, Any], rows: Sequence[Row], jobs: int, ran: float, runtime_ms: float) -> float:
    """Return how many jobs one entry holds, by the time that they ran.

    Parameters
    ----------
    asked : of one section its outstanding; and where it says so direct, rwmixread, rate_bytes and offered (IOPS)
    rows : of the whole entry
    jobs : of one section
    ran : jobs, as the sum of their times by that of the longest, which is `runtime_ms`

    Returns
    -------
    `jobs` where the time does not contradict it. NaN where there are more that the numbers do not show to be alike.
    """
    if not ran > (1 + MORE) * jobs + MORE_MS / runtime_ms:
        return jobs
    sections = round(ran) / jobs
    iops, bw_bytes = (sum(row.numbers[n] for row in rows) for n in (0, 1))
    reads = sum(row.numbers[0] for row in rows if row.ddir == "read")
    off_pct = abs(100 * reads / iops - asked.get("rwmixread", nan)) if iops else nan
    rate_iops, rate_bytes = asked.get("offered", nan), asked.get("rate_bytes") or nan
    full = sections * asked["outstanding"]
    flying = sum(row.numbers[0] * row.numbers[2] for row in rows) / 1e9
    if rate_iops == rate_iops or rate_bytes == rate_bytes:
        held = iops / (sections * rate_iops) if rate_iops == rate_iops else bw_bytes / (sections * jobs * rate_bytes)
        first = 1000 * sections * jobs / (iops * runtime_ms)  # the I/O of each job that nothing holds back
        alike = FULL <= held <= 1 + 2 * RATE + first
    else:
        waits = asked.get("direct") == 0 and asked["outstanding"] == jobs  # on the processor: no latency of an I/O
        alike = flying <= OVERFULL * full and (waits or flying >= FULL * full)
    even = abs(ran - round(ran)) <= min(EVEN * ran, 0.25)
    mixed = off_pct > 1 + 200 / sqrt(iops * runtime_ms / 1000)
    return round(ran) if even and alike and not mixed else nan
