"""The texts of all caveats in one list, for an editor: their order is that of the rooms that find them.

This file is a leaf: it imports the model alone, and of all of `say` it is the only one that `analyse` and `read` import.
"""
# ruff: noqa: E501 (a text is one line)

from typing import Any

from hcilib.model.caveats import Caveat

TEXTS = {
    # ---- analyse/compare: runs of one cell
    "single-run": "one run (n = 1), so there is no interval",
    "two-runs": "only two usable runs (n = 2), so the interval is uncertain",
    "no-run/cell": "no usable run",
    "invalid/runs": "{runs} invalid and not used",
    "unusable": "{runs} left out, without a usable value (NaN, infinite or negative)",
    "thin-tail/runs": "{runs} left out, with fewer than 10 I/Os slower than the {percentile}",
    "pooled/sources": "runs of more than one source",
    "pooled/campaigns": "runs of {campaigns} campaigns pooled",
    "zero/every-run": "every run has the value 0, so there is no ratio",
    "zero/runs": "{runs} with the value 0, so there is no ratio",
    "zero-variance/runs": "all runs gave the same value, so a standard deviation of 0.1 % is assumed",
    "unstable/spread": "the runs vary strongly|: {runs} (standard deviation {spread_pct} % on a log scale)",
    "unstable/runs": "the runs vary strongly|: {runs}",
    "flush-included": "the latency is that of the write and of its flush, which fio reports separately",
    "flush-not-timed": "no latency, as fio did not time the flush after each write",
    # ---- analyse/compare: two systems
    "no-run/system": "{system} has no run in this test",
    "unpaired": "{runs} left out, without a run of the other system in the same pair",
    "missing": "{systems} missing in this test, so no system is marked as best",
    "unlike": "{factor} differs: {one} for {system}, {other} for {baseline}",
    "tools/diskspd-fio": "measured with {one} and {other}|: DiskSPD prints some percentiles where fio keeps a histogram, its -Sh makes writes wait for the medium as fio's sync=1 does, it writes one repeated pattern (unless -Z) where fio writes random data, which a system may compress or deduplicate, and its random I/Os may meet a block twice where fio's visit every block once",
    "tools/elbencho-fio": "measured with {one} and {other}|: elbencho's rates are those of the whole phase with its slowest thread, its latencies are kept in coarse buckets, and its random I/Os may meet a block twice where fio's visit every block once",
    "tools/diskspd-elbencho": "measured with {one} and {other}|: they count latency, choose random blocks and fill buffers each in its own way",
    "tools/others": "measured with {one} and {other}|: they measure differently",
    # ---- analyse/compare: many tests
    "no-ratio/left-out": "{missing} of {tests} tests left out, as they have no ratio",
    "mixed": "no verdict on the mean|, as {higher} of {tests} tests are higher and {lower} lower",
    "single-runs/mean": "single runs, so there is no interval",
    # ---- analyse/curves
    "one-point": "only one iodepth was measured, so there is no curve",
    "at-the-end/peak": "the best iodepth is the highest one measured, so the peak may be higher",
    "no-ratio/curve": "{missing} of {tests} tests have no ratio",
    "saturated/runs": "{count} of {runs} runs did not keep up with the request rate, so the latency is a lower bound",
    "above-maximum": "the request rate of {count} of {runs} runs was above the closed-loop maximum, so they could not keep up",
    "too-few/runs": "{count} of {runs} runs have too few I/Os to show whether they kept up with the request rate",
    "no-value": "{count} of {runs} runs have too few I/Os for this percentile",
    "closed-loop": "measured without a request rate, so the latency follows from the IOPS",
    "disagree": "rounds disagree: in {under} of {blocks} rounds the latency was above the limit at every rate, in {over} at no rate",
    "at-least": "only a lower bound: in {over} of {blocks} rounds the latency was below the limit even at the highest request rate that was sustained",
    "below": "only an upper bound: in {under} of {blocks} rounds the latency was above the limit even at the lowest request rate",
    "beyond-measured": "the upper end is unknown, as it lies above everything that was measured",
    "not-measured/outside": "no latency at {iops:,.0f} IOPS, as only {low:,.0f} to {high:,.0f} IOPS were measured",
    "not-measured/none": "no latency at {iops:,.0f} IOPS, as no request rate was sustained",
    "invalid/vms": "{runs} runs left out, as they are invalid or lack IOPS or a VM count",
    "follows": "{column} changes together with the VM count",
    "few-points/vms": "no knee, because finding one takes 5 VM counts (measured: {counts})",
    "single-runs/vms": "some VM counts have single runs, so there is no interval of the knee, nor of the smallest VM count close to the peak",
    "no-bound": "the smallest VM count close to the peak is unknown, as the runs are too few or too noisy",
    "no-knee/line": "no knee in the measured range, as a straight line fits as well",
    "no-knee/smooth": "no knee, as a smooth curve fits as well",
    "at-the-end/knee": "the knee is at the edge of the measured VM counts. Measure beyond it",
    "steepens": "the curve steepens at its bend, so there is no saturation",
    # ---- analyse/physics
    "counters/card": "{runs} without counters of card {card!r}",
    "drives": "{runs} without counters of drives",
    # ---- analyse/runs: failures
    "too-short/before": "only {seconds} s before the failure, so the healthy level is uncertain",
    "zero/before": "no I/O before the failure, so there is nothing to compare with",
    "no-level/degraded": "no degraded level, as I/O stopped again within {seconds} s",
    "not-back": "IOPS had not recovered to {level_pct:g} % of normal when the run ended, {seconds:.0f} s after the repair",
    "not-whole": "all copies were complete {seconds:.0f} s after the repair, when fio had already ended",
    "not-seen/back": "IOPS had not recovered at the end| in {unseen} of {runs} runs",
    "not-seen/whole": "the system did not report complete copies| in {unseen} of {runs} runs",
    "not-seen/level": "no steady IOPS between failure and repair| in {unseen} of {runs} runs",
    "not-seen/value": "not measured| in {unseen} of {runs} runs",
    # ---- analyse/runs: seconds of one run
    "too-short/samples": "run too short: {samples} samples, needs {needed}",
    "too-short/alike": "run too short: {samples} samples, worth {independent:.0f} independent ones, needs {needed}",
    "no-variation": "no variation between batches, as under a rate cap or with a copied value",
    "drift": "drift, as the mean of the second half differs by {drift_pct:+.1f} % from the first",
    "no-run/host": "a host has no samples, so nothing can be summed",
    "cut/ends": "only {common} of {seconds} seconds are common to all {writers} writers",
    "cut/seconds": "{seconds} seconds lack a writer and are left out",
    "silent/run": "{seconds} seconds without any I/O",
    # ---- analyse/campaigns
    "single-run-spread": "spread of runs not measured",
    "one-campaign": "only one earlier campaign, so differences above {margin_pct:g} % count as changes, without a test",
    "zero-variance/campaigns": "campaigns do not vary, so a spread of 0.1 % is assumed",
    "no-run/new": "no valid run in {campaign}",
    "no-run/earlier": "no valid run in an earlier campaign",
    "units": "a factor of {factor:,g}. Check whether a unit changed.",
    # ---- read: every run of a fleet or of another tool
    "thin-tail/beyond": "fewer than {least} I/Os beyond {percentiles}",
    "saturated/run": "the storage did not keep up with the request rate, so the latency is a lower bound",
    "too-few/run": "too few I/Os to show whether it kept up with the request rate (90,000 are needed)",
    "held-back/jobs": "too few fio jobs for this request rate: some I/Os started late, and latencies exclude that delay| (with numjobs {numjobs}, hardly any would start late)",
    "held-back/vms": "the request rate is too high for {vms} at this latency: some I/Os started late, and latencies exclude that delay| ({fleet} VMs with numjobs {numjobs} each would avoid it)",
    # ---- read/run
    "no-lease": "hosts were not leased (lease: none), so another campaign may have run there too",
    "health-not-asked": "the system was not asked whether it is healthy, so a degraded run may be among them",
    "ceiling-reached": "it ended when most_bytes_written was reached, so it is shown and counts in no mean",
    "cap-missed": "the rate limit was not reached, as the storage delivered only {delivered:,.4g} of {limit:,.4g} {unit}",
    "not-steady": "IOPS were still unsteady after the warm-up|, which ran {pattern} for {rounds} rounds",
    "busy": "a node's CPU was above {limit_pct:g} %",
    "unsynced": "fio's nbd engine ignores O_SYNC, so these were plain writes",
    "counters/nodes": "no counters of {nodes} in this run, so CPU and network of the nodes are unknown",
    "counters/doubt": "{reason}",
    "silent/vms": "no I/O completed for a while during the measurement: {vms}",
    "one-start": "{jobs} sequential jobs a VM on {disks}, all from its start|: the later ones may have read from a cache what the first had read, so measure it again",
    # ---- read/nodes
    "pool-fill/unknown": "how full the pool was is not known: {host}: {reason}",
    "pool-fill/damaged": "{reason}",
    "pool-fill/changed": "the pool was {least:.3g} to {most:.3g} % full while it was measured",
    # ---- read/fio, read/foreign: files of other tools
    "interim/ended": "an interim report, or of a run that was ended early: written after {ran_s:g} s of {runtime_s:g} s",
    "interim/last": "the last of {reports} reports of one run, which may not have been finished then",
    "left-out/files": "{files} of {folder} left out ({names}), for reasons that hci.recognise lists",
    "left-out/entries": "a part of {file} left out|: {reasons}",
    "system": "system {folder!r} is the name of the folder, as system= and names= were not given",
    "names": "its name says {factor} {named}, the file says {stated}: the file's is used",
    "iodepth/several": "no one iodepth: {depths} in one run",
    "iodepth/engine": "ioengine {engine} keeps one I/O in flight, whatever iodepth says",
    "sections": "{jobs} jobs of several sections in one entry (group_reporting), read as alike, as fio prints the options of the last alone",
    "ended-early": "jobs ended at different times: {ran:.3g} of {jobs} ran on average",
    "thinktime": "thinktime {thinktime}: jobs pause after I/Os, so it is no full load",
    "direct": "direct=0: the page cache of the host was measured too",
    "short": "ran for less than {least_s} s",
    "small-file": "the tested files are smaller than {least_gib} GiB and may fit in memory, so reads may not reach the drives",
    "invalid/file": "{reason}",
    "fio": "{line}",
    "text/fio": "by fio's text, which states neither direct nor size",
    "printed-digits": "some rates are known as printed|, with three digits",
    "percentiles/reason": "{reason}",
    "percentiles/completion": "percentiles are of completion latency: the file has none of total latency (lat_percentiles=1)",
    "percentiles/none": "the file holds no percentiles",
    "percentiles/jobs": "percentiles of {count} jobs or directions without histograms cannot be merged: json+ keeps them",
    "percentiles/files": "percentiles of {count} files without histograms cannot be merged, and an average of them is none",
    "percentiles/rebuilt": "percentiles are rebuilt from those that DiskSPD prints: in between they are upper bounds",
    "percentiles/no-latency": "DiskSPD measured no latency (-L): no percentiles, no mean latency",
    "percentiles/coarse": "elbencho's histogram has buckets 19 % wide: no percentiles are taken from it",
    # ---- read/foreign: a history of campaigns
    "unread/error": "cannot be read: {error}",
    "unread/no-run": "no run of it counts",
    "no-result": "no result of a known tool",
    "unfinished": "the campaign did not finish",
    "left-out/campaign": "{count} of its files left out, the first: {first}",
    "zero/campaign": "a run of 0 has no ratio: look for what failed in it",
    "clock/back": "the controller's clock went back by {seconds:,.0f} s while it ran",
    "clock/ahead": "it began in the future, {start:%Y-%m-%d}. State its start in {notes}: starts: {{{campaign}: 2025-03-14 22:00}}",
    "no-start": "when it was measured is not known. State its start in {notes}: starts: {{{campaign}: 2025-03-14 22:00}}",
    "same-start": "{others} began at the same time. Remove one of them, or correct it. State its start in {notes}: starts: {{{campaign}: 2025-03-14 22:00}}",
    "copy": "a copy of {original}. Remove one of them.",
    "another-testbed": "its testbed file is another one of the name {testbed}. Its cells begin a history of their own.",
}
"""Key -> text. The key is the caveat's code, with a slash and a word behind it where a code has several texts. Fields are
numbers, names and units. What follows `|` is the caveat's detail."""


FACTOR_WORDS = {
    "nodes": "the number of nodes",
    "vms": "the number of VMs",
    "placement": "the placement of the VMs",
    "span_bytes": "the amount of data under test",
    "pool_fill_pct": "the fill level of the pools",
    "source": "the source",
}
"""Factors in which systems may differ, where their name says too little."""


def caveat(key: str, /, about: str = "", **values: Any) -> Caveat:
    """Return the caveat of this key of `TEXTS`, its text filled with the values. KeyError for an unknown key, or for a
    field without a value.

    Examples
    --------
    >>> caveat("no-run/system", system="ceph")
    Caveat(code='no-run', text='ceph has no run in this test', detail='', about='')
    """
    text, _, detail = (part.format_map(values) for part in TEXTS[key].partition("|"))
    return Caveat(key.partition("/")[0], text, detail, about)


def text_of(key: str, /, **values: Any) -> str:
    """Return the text alone, where several of them become one caveat."""
    return str(caveat(key, **values))
