"""What tables there are, and which of their columns a reader wants, in which order.

A table is known by columns that no other has, so it stays known when it was filtered, joined or read back from a file;
who knows better says so in ``attrs["kind"]`` or with ``hci.table(..., kind=...)``. A column with ``?`` is shown only
where it says something: where its values differ, or where a note is there at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd


@dataclass(frozen=True)
class Kind:
    """The columns that give a table away, and those that are shown of it."""

    marks: frozenset[str]
    shown: tuple[str, ...]


def _kind(marks: str, shown: str) -> Kind:
    return Kind(frozenset(marks.split()), tuple(shown.split()))


KINDS = {
    # the plan and what stands behind a comparison
    "plan": _kind(
        "step duration_s bytes_written", "step kind block rep pattern numjobs iodepth vms duration_s bytes_written"
    ),
    "prepared": _kind("host command executed", "host command executed"),
    "pooled": _kind("runs invalid campaigns", "system runs invalid? campaigns source"),
    # the drive, its datasheet and its ceilings
    "baseline": _kind(
        "measured datasheet pct_of_datasheet", "pattern numjobs iodepth n measured datasheet pct_of_datasheet verdict"
    ),
    "drive rates": _kind("access bs_bytes read_iops write_iops", "access bs_bytes read_iops write_iops"),
    "ceilings": _kind("scheme harmonic_iops arithmetic_iops", ""),
    "mix": _kind(
        "write_cost harmonic_iops arithmetic_iops overstated",
        ("rwmixread write_cost harmonic_iops arithmetic_iops overstated"),
    ),
    "share of ceiling": _kind(
        "iops ceiling_iops pct_of_ceiling",
        ("system? pattern curve vms? iodepth? iops ceiling_iops pct_of_ceiling arithmetic_iops? pct_of_arithmetic?"),
    ),
    "against the dial": _kind("what expected measured off_pct", "what system pattern expected measured lo hi off_pct"),
    "calibration": _kind(
        "difference_pct different held_pct wrong",
        "difference_pct n different equivalent inconclusive wrong held_pct lo hi half_width_pct load_lo load_hi",
    ),
    # files of other tools
    "files": _kind("file in_file in_name skipped", "file tool version what in_file in_name missing? run? skipped?"),
    "kinds of files": _kind("files first what skipped", "files tool version what missing? skipped? first"),
    # who shares a storage
    "neighbours": _kind(
        "beside alone given_back_pct", "system? tenant pattern beside metric ratio lo hi n verdict given_back_pct?"
    ),
    "fairness": _kind("together jain tenants", "system? together tenants n jain lo hi"),
    # what was compared
    "comparison": _kind(
        "ratio p_adjusted tost_p center_baseline", "system pattern iodepth ratio lo hi p_adjusted n n_baseline verdict"
    ),
    "cost": _kind(
        "added_ns center center_baseline ratio", "system pattern? center center_baseline added_ns ratio lo hi n verdict"
    ),
    "everywhere": _kind("lowest highest sentence", "system pattern n lowest highest verdict sentence"),
    "crossover": _kind(
        "ratio_below ratio_above below above", "pattern iodepth below above ratio_below ratio_above verdict sentence"
    ),
    "rank": _kind("rank tied_with center", "pattern iodepth rank system tied_with center lo hi verdict"),
    "peak": _kind(
        "best smallest_tied tied center",
        "system? pattern best center lo hi n tied smallest_tied leave_one_out bias_pct verdict",
    ),
    "regimes": _kind(
        "best_iops best_at kind", "system? pattern vms? iodepth iops best_iops best_at ratio n kind verdict note?"
    ),
    "winners": _kind(
        "pct_of_best state tied_with", "system pattern iodepth n center pct_of_best state iops_per_cpu_pct?"
    ),
    "per usable TiB": _kind("iops_per_usable_tib usable_tib best tied center", "system pattern iops_per_usable_tib"),
    "front": _kind(
        "front usable_tib iops_per_usable_tib best tied center",
        "pattern system best center lo hi usable_tib iops_per_usable_tib front",
    ),
    # checks
    "audit": _kind(
        "check measured expected ratio ok",
        "system? pattern vms? numjobs? iodepth? check? measured expected ratio ok note?",
    ),
    "rounding": _kind("half_unit_pct coarse", "system pattern iodepth metric value unit half_unit_pct"),
    "working sets": _kind("alike span_bytes ratio", "system vms span_bytes ratio alike note"),
    "claims": _kind("claimed recomputed finding what", "id what finding verdict"),
    "worked out": _kind("claimed recomputed finding formula what", "what claimed recomputed unit verdict formula"),
    "facts": _kind("key kind value unit", "key kind? value unit note?"),
    # the network and the fleet
    "expected traffic": _kind("placement ddir redirected expected", "placement ddir expected"),
    "traffic": _kind(
        "net_bytes_per_s owner_node",
        "pattern placement ddir owner_node n observed observed_lo observed_hi net_bytes_per_s vdisk_bytes_per_s note?",
    ),
    "traffic checked": _kind("ddir observed expected ratio ok", "placement ddir expected observed ratio ok note?"),
    "amplification": _kind(
        "measure seen expected explained",
        "system? pattern iodepth? placement? measure n seen seen_lo seen_hi expected ratio ok explained?",
    ),
    "drives' own counters": _kind(
        "wear_before_pct wear_after_pct unit_bytes",
        "run_id? node device carries? model bytes_written unit_bytes? wear_before_pct wear_after_pct",
    ),
    "gains": _kind("gain per_vm center", "curve vms n center gain per_vm"),
    "knees": _kind(
        "knee slope_before slope_after",
        "system? pattern curve points knee lo hi slope_before slope_after smallest_vms peak peak_vms model",
    ),
    "loads": _kind(
        "pct_of_best within chosen outstanding",
        "system? pattern? vms? numjobs iodepth outstanding n iops lat_ns? p99_ns? pct_of_best within chosen",
    ),
    "stop rules": _kind("rule pct_of_peak why", "system? pattern curve? rule vms iops pct_of_peak node_cpu_pct why"),
    "mixed latency": _kind("latency center numjobs vms", "system vms? numjobs? iodepth latency n center lo hi"),
    "one I/O": _kind("", "system pattern vms numjobs iodepth block? iops bw_bytes lat_ns lat_unweighted_ns?"),
    "links": _kind(
        "source target transport latency_ns label_bytes_per_s",
        "source target transport tool streams bytes_per_s latency_ns label_bytes_per_s? card? note",
    ),
    "binding": _kind(
        "drives_iops network_iops cpu_iops binds",
        (
            "system? pattern curve? placement? vms? iodepth? iops drives_iops network_iops cpu_iops binds "
            "pct_of_binding said"
        ),
    ),
    # resiliency and capacity
    "grid": _kind(
        "cpu_bound missing iops", "system resiliency dedup write_pct iops lat_ns node_cpu_pct cpu_bound note?"
    ),
    "effects": _kind("effect level contexts possible", "effect level baseline ratio lo hi contexts possible used"),
    "capacity": _kind(
        "efficiency usable_tib write_cost survives",
        "system scheme drives? efficiency usable_tib usable_tb reserve_tib? reserve_tb? stated_pct? agrees?",
    ),
    "survival": _kind("", "system survives_drives survives_servers survives write_cost stripe_cost"),
    # the method
    "noise": _kind(
        "within_cv_pct between_cv_pct basis",
        "system pattern iodepth n runtime_s cv_pct lo hi within_cv_pct between_cv_pct basis",
    ),
    "pooled noise": _kind(
        "cells within_cv_pct between_cv_pct", "cells n cv_pct lo hi within_cv_pct between_cv_pct second_cv_pct"
    ),
    "drift": _kind("blocks block_cv_pct rest_cv_pct", "system blocks cells block_cv_pct rest_cv_pct f p"),
    "precision": _kind(
        "protocol half_width_pct assured_pct",
        "protocol order cells runs read_s write_s hours cv_pct half_width_pct assured_pct",
    ),
    "coverage": _kind("situation method coverage", "situation runs method n coverage lo hi half_width_pct"),
    "protocols": _kind(
        "protocol rmse_pct coverage",
        "protocol order runs run_s hours time_ratio rmse_pct coverage lo hi half_width_pct",
    ),
    "protocols measured": _kind(
        "protocol time_ratio load_before", "pattern protocol runs run_s hours half_width_pct time_ratio ratio lo hi"
    ),
    # campaigns and failures
    "regression": _kind(
        "k center_baseline ratio sentence", "system? pattern iodepth k n ratio lo hi p_adjusted verdict"
    ),
    "campaign noise": _kind("from_runs_pct campaigns", "system campaigns cells n cv_pct lo hi from_runs_pct"),
    "visible change": _kind("k lower_pct higher_pct", "k lower_pct higher_pct"),
    "events": _kind("seen what took_s", "system block t_s seen what took_s"),
    "failures": _kind(
        "healthy_iops degraded_iops gap_s",
        "system failure block healthy_iops gap_s degraded_iops ratio heal_gap_s dip_pct back_s whole_s max_lat_ns",
    ),
    "levels": _kind(
        "", "system? failure block healthy_iops healthy_lo healthy_hi degraded_iops degraded_lo degraded_hi"
    ),
    "failure summary": _kind("quantity failure center", "system failure quantity n center lo hi"),
    "acknowledged writes": _kind(
        "replica checked verdict at_most_pct",
        "run_id? vm replica acknowledged checked in_flight lost torn foreign unreadable at_most_pct? verdict",
    ),
    "unseen runs": _kind("attempts why events", "system pattern block events attempts why"),
    # views of any table
    "stamped writes": _kind("", "system block events acknowledged in_flight lost torn foreign unreadable integrity"),
    "sentences": _kind("", "sentence"),
    "runs": _kind("valid rep", "system pattern iodepth block? events? iops bw_bytes lat_ns lat_unweighted_ns?"),
}


def kind_of(frame: pd.DataFrame) -> str | None:
    """The kind that a frame says it is, else the one with the most marks of those that all are there."""
    if said := frame.attrs.get("kind"):
        return said if said in KINDS else None
    there = set(map(str, frame.columns))
    fitting = [name for name, kind in KINDS.items() if kind.marks and kind.marks <= there]
    return max(fitting, key=lambda name: len(KINDS[name].marks), default=None)


def shown_columns(frame: pd.DataFrame, kind: str | None) -> Sequence[str] | None:
    """The columns to show of a frame of that kind, with what it was asked by; None where its kind prescribes none.

    Raises
    ------
    KeyError : no such kind
    """
    if kind is not None and kind not in KINDS:
        raise KeyError(f"there is no table of kind {kind!r}; there are {', '.join(KINDS)}")
    wanted = KINDS[kind].shown if kind else ()
    columns = [c.removesuffix("?") for c in wanted if c.removesuffix("?") in frame]
    optional = {c.removesuffix("?") for c in wanted if c.endswith("?")}
    shown = [c for c in columns if c not in optional or _says_something(frame[c])]
    by = [c for c in frame.attrs.get("by", ()) if c in frame]
    told = [c for c in by if c not in columns and _says_something(frame[c])]  # rows that else nothing tells apart
    at = max((n for n, c in enumerate(shown, 1) if c in by), default=0)
    return [*shown[:at], *told, *shown[at:]] or None


def _says_something(values: pd.Series) -> bool:
    """Whether a column differs from row to row, or holds a remark."""
    given = values[values.notna() & values.astype(str).ne("")]
    return bool(given.nunique() > 1 or (len(given) and given.dtype.kind not in "biuf" and len(given) < len(values)))
