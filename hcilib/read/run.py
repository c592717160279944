"""A run directory, or the articles' tables, as the tables of DESIGN section 3."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from hcilib.plan import Cell
from hcilib.read import counters as node_counters
from hcilib.read.fio_bins import read_fio_bins
from hcilib.read.fio_json import read_fio
from hcilib.read.fio_log import series_from_logs

RESULTS = (
    "source", "system", "run_id", "block", "rep",
    "pattern", "rw", "rwmixread", "bs_bytes", "numjobs", "iodepth", "sync", "rate_bytes", "vms", "nodes", "placement",
    "span_bytes", "iops", "read_iops", "write_iops", "bw_bytes", "lat_ns", "lat_unweighted_ns", "read_lat_ns",
    "write_lat_ns", "p50_ns", "p99_ns", "p999_ns", "node_cpu_pct", "iops_per_cpu_pct", "net_bytes_per_s",
    "outstanding", "runtime_s", "warmup_ratio", "valid", "warnings",
)  # fmt: skip
QUANTILES = {"p50_ns": 0.5, "p99_ns": 0.99, "p999_ns": 0.999}
REPORTING_S = 0.15  # between the end of the jobs and the end of fio's client, as seen on the lab


class RunReadError(ValueError):
    """A folder that is no run directory, or a step of it that cannot be read; the message names the file."""


def read_results(path: str | Path | Sequence[str | Path], article: str | None = None) -> pd.DataFrame:
    """The results table: one row per accepted run of a cell, whole fleet.

    Parameters
    ----------
    path : a run directory, ``data/published``, one of its tables (``data/published/scaling.csv``), or several of them
        (their rows are put one under the other)
    article : of published tables keep only the rows whose `source` this is; a run directory is always read whole

    Returns
    -------
    DataFrame : the columns of DESIGN section 3, after them a published table's own. ``lat_ns`` is IOPS-weighted; percentiles come from the merged bins of all
        hosts; ``warmup_ratio`` is the bytes written in this campaign before the run over its span. Only accepted steps of
        kind ``measure`` are rows. ``warnings`` says ``not steady: ...`` of runs after a warm-up by volume that its cap ended.
    """
    if not isinstance(path, (str, Path)):
        tables = [read_results(p, article) for p in path]
        together = pd.concat(tables, ignore_index=True)
        together.attrs["caveat"] = next((t.attrs["caveat"] for t in tables if t.attrs.get("caveat")), "")
        return together
    folder = Path(path)
    if folder.suffix == ".csv" or (folder / "results.csv").exists():
        from hcilib.read.published import published, published_table

        table = (
            published(folder) if folder.stem == "results" or folder.is_dir() else published_table(folder.stem, folder)
        )
        return _of_article(table, article, folder)
    plan = _plan(folder)
    steps = _steps(folder)
    written = _written_before(steps)
    unsteady = _unsteady_before(steps)
    rows = [
        _result(s, plan, written[s["id"]]) | {"warnings": unsteady[s["id"]]} for s in steps if s["kind"] == "measure"
    ]
    results = pd.DataFrame(rows, columns=list(RESULTS)).assign(run_id=folder.resolve().name)
    results.attrs["caveat"] = plan.get("caveat", "")
    return results


def _of_article(table: pd.DataFrame, article: str | None, folder: Path) -> pd.DataFrame:
    if article is None:
        return table
    own = table[table["source"] == article].reset_index(drop=True)
    if own.empty:
        known = ", ".join(sorted(table["source"].unique()))
        raise RunReadError(f"{folder}: no rows of article {article!r}; it holds {known}")
    return own


def read_hosts(path: str | Path) -> pd.DataFrame:
    """Every fio row of a run directory: step, kind, block, rep, pattern, numjobs, iodepth, vms, vm, then ``read_fio``'s columns."""
    return _each(path, lambda step: _hosts(step))


def read_bins(path: str | Path) -> pd.DataFrame:
    """Every latency bin: step, kind, block, rep, pattern, numjobs, iodepth, vms, vm, job, ddir, lat_ns, count."""
    return _each(path, lambda step: _named(step, read_fio_bins(step["folder"] / "fio.json.zst")))


def read_series(path: str | Path) -> pd.DataFrame:
    """The per-second series of every step long enough to be logged: step ... vms, vm, job, ddir, t_s, iops, bw_bytes, lat_ns."""
    return _each(path, lambda step: _named(step, series_from_logs(step["folder"] / "logs")))


def read_counters(path: str | Path) -> pd.DataFrame:
    """The nodes' counters, trimmed to each step's window: step ... vms, node, t_s (0 at its start), cpu_pct, core_max_pct, nic, rx, tx."""
    return _each(path, _counters)


def _each(path: str | Path | Sequence[str | Path], read: Callable[[dict], pd.DataFrame]) -> pd.DataFrame:
    """What `read` finds in every accepted step, of one run directory or of several; published tables hold no steps."""
    if not isinstance(path, (str, Path)):
        frames = [frame for p in path if len(frame := _each(p, read))]
        return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()
    folder = Path(path)
    if folder.suffix == ".csv" or (folder / "results.csv").exists():
        return pd.DataFrame()
    _plan(folder)
    frames = []
    for step in _steps(folder):
        keys = {"run_id": folder.resolve().name, "step": step["id"], **{k: step[k] for k in ("kind", "block", "rep")}}
        keys |= {k: v for k, v in _factors(step).items() if k in ("pattern", "numjobs", "iodepth", "vms")}
        frame = read(step)
        frames.append(pd.concat([pd.DataFrame(keys, index=frame.index), frame], axis=1))
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()


def _plan(folder: Path) -> dict:
    try:
        return json.loads((folder / "plan.json").read_text())
    except FileNotFoundError:
        raise RunReadError(
            f"{folder}: neither plan.json (a run directory) nor results.csv (published tables) is there"
        ) from None
    except ValueError as error:
        raise RunReadError(f"{folder / 'plan.json'}: not JSON: {error}") from None


def _steps(folder: Path) -> list[dict]:
    """The accepted steps in the order in which they were run; what a step is stands in its step.json, not in its name."""
    steps = []
    for file in folder.glob("steps/*/step.json"):
        try:
            steps.append({**json.loads(file.read_text()), "folder": file.parent})
        except ValueError as error:
            raise RunReadError(f"{file}: not JSON: {error}") from None
    return sorted((s for s in steps if s["valid"]), key=lambda s: s["started_s"])


def _factors(step: dict) -> dict:
    return Cell.from_dict(step["cell"]).factors()


def _hosts(step: dict) -> pd.DataFrame:
    return _named(step, read_fio(step["folder"] / "fio.json.zst"))


def _named(step: dict, frame: pd.DataFrame) -> pd.DataFrame:
    """fio's rows with the VM's name in front: fio knows hosts by address only."""
    names = {h["hostname"]: h["vm"] for h in step["hosts"]}
    key = "hostname" if "hostname" in frame else "host"
    frame.insert(0, "vm", frame[key].map(names) if len(frame) else pd.Series(dtype=object))
    return frame


def _window(step: dict) -> tuple[float, float]:
    """Epoch seconds in which fio measured: its client returns just after the jobs end."""
    end = step["ended_s"] - REPORTING_S
    return end - min(step["runtime_s"] or math.inf, end - step["started_s"]), end  # its policy may have ended it early


def _counters(step: dict) -> pd.DataFrame:
    table = node_counters.read_counters_csv(step["folder"] / "counters.csv")
    start, end = _window(step)
    table = node_counters.within(table, start, end)
    return table.assign(t_s=table["t_s"] - start)


def _written_before(steps: list[dict]) -> dict[str, float]:
    written, total = {}, 0.0
    for step in steps:
        written[step["id"]] = total / step["span_bytes"]
        hosts = _hosts(step)
        step["table"] = hosts
        total += hosts.loc[hosts["ddir"] == "write", "io_bytes"].sum()
    return written


def _unsteady_before(steps: list[dict]) -> dict[str, str]:
    """Step id -> what the warm-ups before it left to be said: of each pattern the last one's warnings."""
    said, before = {}, {}
    for step in steps:
        before[step["id"]] = "; ".join(sentence for sentences in said.values() for sentence in sentences)
        if step["kind"] == "warmup":
            said[step["cell"]["pattern"]] = step.get("warnings", [])
    return before


def _result(step: dict, plan: dict, warmup_ratio: float) -> dict:
    hosts = step["table"]
    start, end = _window(step)
    samples = node_counters.read_counters_csv(step["folder"] / "counters.csv")
    cpu = node_counters.node_means(node_counters.within(samples, start, end), plan["one_kernel"])
    fleet = _aggregate(hosts)
    percentiles = _percentiles(read_fio_bins(step["folder"] / "fio.json.zst"))
    efficiency = fleet["iops"] / step["nodes"] / cpu["node_cpu_pct"] if cpu["node_cpu_pct"] else np.nan
    return {"source": plan["testbed"]["name"], "system": step["system"], "block": step["block"], "rep": step["rep"], **_factors(step),
            "nodes": step["nodes"], "span_bytes": step["span_bytes"], **fleet, **percentiles, **cpu,
            "iops_per_cpu_pct": efficiency, "warmup_ratio": warmup_ratio, "valid": True, "warnings": ""}  # fmt: skip


def _aggregate(hosts: pd.DataFrame) -> dict:
    """The fleet from its rows: rates add up, latencies are weighted by their I/Os. fio's own "All clients" row is not used."""
    per = {d: hosts[hosts["ddir"] == d] for d in ("read", "write")}
    lat = {d: _weighted(rows["lat_ns_mean"], rows["total_ios"]) for d, rows in per.items()}
    busy = hosts[hosts["ddir"].isin(per)]
    return {"iops": busy["iops"].sum(), "read_iops": per["read"]["iops"].sum(), "write_iops": per["write"]["iops"].sum(),
            "bw_bytes": busy["bw_bytes"].sum(), "lat_ns": _weighted(busy["lat_ns_mean"], busy["total_ios"]),
            "lat_unweighted_ns": float(pd.Series(lat).mean()), "read_lat_ns": lat["read"], "write_lat_ns": lat["write"],
            "runtime_s": busy["runtime"].max() / 1000}  # fmt: skip


def _weighted(values: pd.Series, weights: pd.Series) -> float:
    """NaN where a host did I/O without saying how long it took: a mean over the others would not be the fleet's."""
    if values[weights > 0].isna().any():
        return np.nan
    return float((values * weights).sum() / weights.sum()) if weights.sum() else np.nan


def _percentiles(bins: pd.DataFrame) -> dict[str, float]:
    """Of all hosts' I/Os together: first merged bin whose cumulative count reaches the share (METHODS section 3)."""
    if bins.empty:
        return dict.fromkeys(QUANTILES, np.nan)
    merged = bins.groupby("lat_ns")["count"].sum().sort_index()
    reached = merged.cumsum().to_numpy() / merged.sum()
    return {name: float(merged.index[np.searchsorted(reached, q - 1e-12)]) for name, q in QUANTILES.items()}


def samples() -> dict[str, Path]:
    """Name -> run directory of the small real runs that come with the repository, to start from."""
    root = Path(__file__).resolve().parents[2] / "data" / "samples"
    return {f.parent.name: f.parent for f in sorted(root.glob("*/plan.json"))}
