"""A run directory, or the articles' tables, as data frames."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pandas as pd

from hcilib.model.archives import ARCHIVE, unpacked
from hcilib.model.compressed import read_bytes
from hcilib.model.metrics import in_order
from hcilib.model.places import (
    BLOCKS,
    CHAINS,
    COUNTERS,
    DRIVES,
    INTEGRITY,
    JOB,
    LAYERS,
    LOGS,
    OSDS,
    OUTPUT,
    PLAN,
    ROOT,
    STEPS,
    WRITERS,
    WRITES,
    Paths,
    Sources,
    at_home,
    several,
)
from hcilib.read.fio.table import read_fio, read_fio_bins, reading_order
from hcilib.read.logs.rollup import FioLogError, rollup_of_logs
from hcilib.read.logs.series import io_gaps, series
from hcilib.read.nodes import counters as node_counters
from hcilib.read.nodes import facts, layers, perfmon
from hcilib.read.run.accepted import counted, folders_of, found_step
from hcilib.read.run.step import RunReadError, Step, campaigns_of, plan_of, run_names
from hcilib.read.run.steps import FILES, counters_of, logs_of, sampled


def read_hosts(path: Paths) -> pd.DataFrame:
    """Read every row of fio's in a run directory.

    Parameters
    ----------
    path : run directory, or several of them

    Returns
    -------
    DataFrame
        step, kind, block, rep, pattern, numjobs, iodepth, vms, vm, then the columns of `read_fio`.
        Texts are categories. Counts are int64 where every row has one.

    Raises
    ------
    RunReadError : no run directory; FioOutputError : a file that is not fio's, by its name

    Examples
    --------
    >>> hosts = hci.read_hosts(hci.samples()["lab-single"])
    >>> hosts.groupby("kind", observed=True)["vm"].nunique().to_dict()
    {'measure': 4, 'prefill': 4}
    """
    table = _each(path, lambda step: _named(step, read_fio(_output(step)), "hostname"), FILES)
    return in_order(_categories(table[reading_order(table)]))


def read_bins(path: Paths) -> pd.DataFrame:
    """Read every latency bin in a run directory.

    Parameters
    ----------
    path : run directory, or several of them

    Returns
    -------
    DataFrame
        step, kind, block, rep, pattern, numjobs, iodepth, vms, vm, hostname, port, job, groupid,
        ddir, lat_ns, count. Texts are categories.

    Examples
    --------
    >>> bins = hci.read_bins(hci.samples()["lab-single"])
    >>> bins["count"].gt(0).all()
    np.True_
    """
    table = _each(path, lambda step: _named(step, read_fio_bins(_output(step)), "hostname"), FILES)
    return in_order(_categories(table))


def _output(step: Step) -> Path:
    return Path(step.folder) / OUTPUT


def _categories(table: pd.DataFrame) -> pd.DataFrame:
    """Return texts as categories, in their order, so that grouping by them gives what the texts give."""
    texts = [name for name in table if not pd.api.types.is_numeric_dtype(table[name])]
    return table.astype(dict.fromkeys(texts, "category"))


def read_series(path: Paths) -> pd.DataFrame:
    """Read the per-second series of every step that was long enough to be logged.

    Parameters
    ----------
    path : run directory, or several of them

    Returns
    -------
    DataFrame
        step ... vms, vm, job, ddir, t_s (since the step began), iops, bw_bytes, lat_ns

    Raises
    ------
    FioLogError : a log of which lines are no log's, by its name

    Examples
    --------
    >>> series = hci.read_series(hci.ROOT / "data/samples/box/failure-drbd")
    >>> series["t_s"].max() > 40
    np.True_
    """
    return _each(path, lambda step: _named(step, _series(step)[0]))


def read_io_gaps(path: Paths) -> pd.DataFrame:
    """Find when no VM did I/O, in every accepted step whose logs tell.

    A silence is known to last at least that long, and less than two resolutions longer. Steps without any have a row of
    length 0.

    Parameters
    ----------
    path : run directory, or several of them

    Returns
    -------
    DataFrame
        step ... vms, from_s, to_s (on the axis of `read_series`), resolution_s

    Examples
    --------
    >>> silent = hci.read_io_gaps(hci.ROOT / "data/samples/box/failure-drbd").query("events.str.startswith('cut-link') and block == 1")
    >>> silent[["from_s", "to_s", "resolution_s"]].round(1)
       from_s  to_s  resolution_s
    5    11.1  12.6           0.5
    """  # noqa: E501
    return _each(path, lambda step: io_gaps(_logs(step), _stated_ms(step)))


def read_counters(path: Paths) -> pd.DataFrame:
    """Read what the nodes' CPUs and network cards did in each step's window.

    Those of Windows nodes are in files of Performance Monitor (`read_perfmon`).

    Parameters
    ----------
    path : run directory, or several of them

    Returns
    -------
    DataFrame
        step ... vms, node, t_s (0 where the window begins), interval_s, cpu_pct, core_max_pct, nic,
        rx_bytes_per_s, tx_bytes_per_s

    Examples
    --------
    >>> counters = hci.read_counters(hci.samples()["lab-mirror"])
    >>> counters["cpu_pct"].between(0, 100).all()
    np.True_
    """
    return _each(path, _counters, (COUNTERS,))


def read_perfmon(path: Sources) -> pd.DataFrame:
    """Return what Windows nodes counted in each step, from files of Performance Monitor.

    The files are in `windows/*.csv` of the run directory (docs/GUIDE.md). A file that does not
    cover a step gives no row of it. Then the step's row in `read_results` has a warning that names
    file, node and step.

    Parameters
    ----------
    path : run directory, several of them, or a notebook's `sources`

    Returns
    -------
    DataFrame
        step ... vms, node, counter (such as ``PhysicalDisk(*)\\Disk Bytes/sec``), instance, value
        (mean over the window in the counter's unit, weighted by time; NaN where it was never
        known), seconds (of the known samples)

    Raises
    ------
    ValueError : names the file and the field: no such CSV, no known counter, a host that is no
        node, no time zone

    Examples
    --------
    >>> hci.read_perfmon(hci.samples()["lab-mirror"]).empty  # its nodes run Linux
    True
    """
    return _each(_campaigns(path), _perfmon, ())


def read_drives(path: Sources) -> pd.DataFrame:
    """Read what the nodes' drives did in each step's window.

    A drive is a whole disk of a Linux node with nothing below it (hcilib.read.nodes.counters); of nodes that share one
    kernel those of the first; a node whose drives could not be told has a row without a device, whose counts are NaN.
    No row of a step whose drives were not sampled, as in run directories of earlier versions, nor of a notebook's
    `sources` that are other tools' files: `read_results` says what is wrong with those.

    Parameters
    ----------
    path : run directory, several of them, or a notebook's `sources`

    Returns
    -------
    DataFrame
        step ... vms, node, device, carries (what is built on it, and where it is mounted), seconds (of the window that
        were sampled), reads, writes, read_bytes, write_bytes, merged, flushes (NaN before Linux 5.5)

    Examples
    --------
    >>> drives = hci.read_drives(hci.ROOT / "data/samples/box/drives-raid5")
    >>> drives.groupby(["node", "carries"])["device"].nunique()
    node   carries
    node1  md0        5
    node2  md0        5
    Name: device, dtype: int64
    """
    return _each(_campaigns(path), _drives, (DRIVES,))


def _campaigns(path: Sources) -> Paths:
    """Of a notebook's `sources` those that are run directories."""
    if isinstance(path, (str, Path)):
        return path
    named = [entry for entry in path if not isinstance(entry, Mapping)]
    return [entry for entry in named if any((at_home(entry) / part).exists() for part in (PLAN, STEPS))]


def read_layers(path: Sources) -> pd.DataFrame:
    """Read what every block layer of nodes and VMs did in each step's window, and what is built on what.

    No row of a step whose layers were not sampled, as in run directories of earlier versions.

    Parameters
    ----------
    path : run directory, several of them, or a notebook's `sources`

    Returns
    -------
    DataFrame
        step ... vms, then the columns of `hcilib.read.nodes.layers.layers_of`

    Examples
    --------
    >>> hci.read_layers(hci.samples()["lab-mirror"]).empty  # measured before layers were sampled
    True
    """
    return _each(_campaigns(path), _layers, (LAYERS, CHAINS))


def read_osds(path: Sources) -> pd.DataFrame:
    """Read what the OSDs of a Ceph system counted of their work between the readings before and after each step.

    Parameters
    ----------
    path : run directory, several of them, or a notebook's `sources`

    Returns
    -------
    DataFrame
        step ... vms, osd, counter (a name of Ceph's `perf dump`), count, seconds (altogether)

    Examples
    --------
    >>> hci.read_osds(hci.samples()["lab-mirror"]).empty  # not Ceph
    True
    """
    return _each(_campaigns(path), _osds, (OSDS,))


def read_pool_fill(path: Paths) -> pd.DataFrame:
    """Read how full each system's pool was when a campaign measured it.

    It is asked before the first run, once the disks were filled, and after the last, at both ends of every session.

    Parameters
    ----------
    path : run directory, or several of them

    Returns
    -------
    DataFrame
        One row a reading, system and host: run_id, system, when (start, end), at_s (epoch second of the controller),
        host, pool_fill_pct (of several pools of a host the fullest; NaN where it did not tell), line (that says so),
        warnings. No row of a system whose file has no check `pool-fill`, nor of run directories of earlier versions.
        The results' column `pool_fill_pct` is the level in tens.

    Raises
    ------
    RunReadError : no run directory; facts/pools/fill.json holds something else

    Examples
    --------
    >>> full = hci.read_pool_fill(hci.ROOT / "tests/data/pool_fill/box-ceph")
    >>> full[["system", "when", "host", "pool_fill_pct"]]
         system   when   host  pool_fill_pct
    0  box-ceph  start  node1           8.65
    1  box-ceph    end  node1           8.65
    """
    found = []
    for folder, name in run_names(path).items():
        plan_of(folder)
        try:
            found += [{"run_id": name, **row} for row in facts.rows_of_pools(folder)]
        except ValueError as error:
            raise RunReadError(str(error)) from None
    return pd.DataFrame(found, columns=["run_id", *facts.POOL_COLUMNS])


def read_events(path: Paths) -> pd.DataFrame:
    """Read what was done and seen during the steps with events.

    Parameters
    ----------
    path : run directory, or several of them

    Returns
    -------
    DataFrame
        step ... vms, events, seen (True: noticed, False: done), what, t_s (on the axis of `read_series`), at_s (since
        1970 by the VMs' clocks, as `second` of `read_rollup`), took_s, planned_s

    Examples
    --------
    >>> events = hci.read_events(hci.ROOT / "data/samples/box/failure-drbd")
    >>> sorted(events.loc[~events["seen"], "what"].unique())[:2]
    ['cut-link', 'fail-drive']
    """
    return _each(path, lambda step: events_in(step, _series(step)[1] if step.events else None), (JOB, LOGS))


def _each(path: Paths, read: Callable[[Step], pd.DataFrame], uses: Sequence[str] = (JOB, LOGS)) -> pd.DataFrame:
    """What `read` finds in these files of every accepted step, of one run directory or of several; published tables
    hold no steps."""
    frames = []
    for folder, name in run_names(path).items():
        steps = [found_step(step, uses) for step in folders_of(folder)]
        for step in counted(folder, plan_of(folder), steps):
            frame = read(step)
            keys = {"run_id": name} | step.keys
            frames.append(pd.concat([pd.DataFrame(keys, index=frame.index), frame], axis=1))
    frames = [frame for frame in frames if len(frame)] or frames[:1]
    return in_order(pd.concat(frames, ignore_index=True)) if frames else pd.DataFrame()


def _logs(step: Step) -> list[Path]:
    return list((Path(step.folder) / LOGS).glob("*"))


def _series(step: Step) -> tuple[pd.DataFrame, float | None]:
    """Averaged as its job file says: the samples of a device that stalls again and again no longer tell."""
    table, epoch_s, left_out = series(_logs(step), _stated_ms(step))
    if left_out:
        raise FioLogError(left_out[0])
    return table, epoch_s


def _stated_ms(step: Step) -> float | None:
    job = Path(step.folder) / JOB
    stated = re.search(rb"^log_avg_msec=(\d+)$", read_bytes(job), re.M) if job.exists() else None
    return float(stated[1]) if stated else None


def _named(step: Step, frame: pd.DataFrame, host: str = "host") -> pd.DataFrame:
    """Return fio's rows with the VM's name in front: fio knows hosts by address only."""
    names = {h["hostname"]: h["vm"] for h in step.hosts}
    frame.insert(0, "vm", frame[host].map(names) if len(frame) else pd.Series(dtype=object))
    return frame


def _counters(step: Step) -> pd.DataFrame:
    table, _ = counters_of(step)
    return table.assign(t_s=table["t_s"] - step.window[0])


def _perfmon(step: Step) -> pd.DataFrame:
    samples, _ = perfmon.of_step(logs_of(Path(step.folder).parents[1]), step.id, *step.window)
    return perfmon.means(samples)


def _drives(step: Step) -> pd.DataFrame:
    table = sampled(step, DRIVES, node_counters.read_drives_csv)
    return node_counters.totals(node_counters.within(table, *step.window))


def _layers(step: Step) -> pd.DataFrame:
    chains = sampled(step, CHAINS, layers.read_chains)
    samples = sampled(step, LAYERS, layers.read_layers_csv)
    return layers.layers_of(samples, chains, *step.window, step.ramp_s)


def _osds(step: Step) -> pd.DataFrame:
    return sampled(step, OSDS, layers.osds_of)


def samples() -> dict[str, Path]:
    """Find the small real runs that come with the repository, to start from.

    The first call unpacks them from their archives.

    Returns
    -------
    dict : name -> run directory

    Examples
    --------
    >>> sorted(hci.samples())[:2]
    ['lab-dedup', 'lab-demand']
    """
    root = ROOT / "data" / "samples"
    folders = [unpacked(root / file.name.removesuffix(ARCHIVE)) for file in sorted(root.glob(f"*{ARCHIVE}"))]
    return {folder.name: folder for folder in folders if (folder / PLAN).is_file()}  # a search has one a round


TYPES = {"seen": bool, "what": object, "t_s": float, "at_s": float, "took_s": float, "planned_s": float}


def events_in(step: Step, epoch_s: float | None) -> pd.DataFrame:
    """Rows of one step, by its step.json: the actions, and of what was `seen` (bool) what was missing from then on, or
    ``whole``; none for a step in which nothing was to be done.

    t_s is counted as in the series, whose zero is `epoch_s` by the VMs' clocks; what was done stands by the
    controller's. NaN where the logs hold no date or no VM told its clock.
    """
    if not step.events:
        return pd.DataFrame(columns=list(TYPES)).astype(TYPES)
    ahead = [ahead for ahead, _ in step.clocks.values()]
    zero = epoch_s - sum(ahead) / len(ahead) if ahead and epoch_s is not None else float("nan")
    rows = [(False, e["action"], e["began_s"] - zero, e["ended_s"] - e["began_s"], e["planned_s"]) for e in step.events]
    rows += [(True, s["missing"] or "whole", s["at_s"] - zero, float("nan"), float("nan")) for s in step.states]
    table = pd.DataFrame(rows, columns=[name for name in TYPES if name != "at_s"])
    table["at_s"] = table["t_s"] + (float("nan") if epoch_s is None else epoch_s)
    return table[list(TYPES)].astype(TYPES).sort_values("t_s", ignore_index=True)


_WRITES = {"run_id": str, "vm": str, "serial": str, "block": "int64", "sequence": "int64", "t_s": float}
_BLOCKS = {
    "run_id": str,
    "vm": str,
    "serial": str,
    "replica": str,
    "block": "int64",
    "low": float,
    "high": float,
    "foreign": float,
}


def read_integrity(run_dir: Paths) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The acknowledgements and the blocks read back of run directories with stamped blocks; of a campaign's, each run
    is its step.

    Returns
    -------
    acknowledged : run_id, vm, serial, block, sequence, t_s (epoch second of the VM's clock)
    blocks : run_id, vm, serial, replica, block, low, high, foreign, as `integrity_verdicts` takes them.
        `attrs["warnings"]` of both: a sentence for each writer that did not end by itself, and for a line that was cut
        short; `attrs["died"]`: (run_id, vm, serial) -> why its writer had ended when the first event was done

    Raises
    ------
    RunReadError : there is none, or a file holds something else; the message names it
    """
    paths = [at_home(path) for path in several(run_dir)]
    folders = [at for path in paths for at in sorted(path.glob(f"{STEPS}/*/{INTEGRITY}")) or [path / INTEGRITY]]
    said: list[str] = []
    died: dict[tuple[str, str, str], str] = {}
    writes = pd.concat([_table(folder / WRITES, _WRITES, said) for folder in folders], ignore_index=True)
    blocks = pd.concat([_table(folder / BLOCKS, _BLOCKS, said) for folder in folders], ignore_index=True)
    for folder in folders:
        said += _ends(folder, died)
    writes.attrs["warnings"] = blocks.attrs["warnings"] = "; ".join(said)
    blocks.attrs["died"] = died
    return writes, blocks


def _table(file: Path, columns: dict, said: list[str]) -> pd.DataFrame:
    """A file of whole lines; the last may have been cut by the end of the controller, and promises nothing then."""
    try:
        head, _, cut = file.read_text().rpartition("\n")
    except FileNotFoundError:
        raise RunReadError(
            f"{file}: no stamped blocks were {'written' if file.name == WRITES else 'read back'} there"
        ) from None
    except UnicodeDecodeError as error:
        raise RunReadError(f"{file}: not a table of text: {error}") from None
    names, *lines = [line.split(",") for line in head.split("\n")]
    if names != list(columns):
        raise RunReadError(f"{file}: line 1: expected the columns {','.join(columns)}")
    if wrong := next((n for n, line in enumerate(lines, 2) if len(line) != len(columns)), None):
        raise RunReadError(f"{file}: line {wrong}: expected {len(columns)} fields")
    said += [f"{file}: its last line is cut short"] if cut else []
    table = pd.DataFrame(lines, columns=names)
    try:
        return table.replace({"": None}).astype(columns) if len(table) else table.astype(columns)
    except (ValueError, TypeError) as error:
        raise RunReadError(f"{file}: a field that is no number: {error}") from None


def _ends(folder: Path, died: dict[tuple[str, str, str], str]) -> list[str]:
    try:
        ends = json.loads((folder / WRITERS).read_text())
        early = [writer for writer in ends["writers"] if writer["error"]]
        for writer in early:
            if ends.get("event_s") and writer["ended_s"] < ends["event_s"]:
                before_s = ends["event_s"] - writer["ended_s"]
                died[ends["run_id"], writer["vm"], writer["serial"]] = (
                    f"{before_s:.0f} s before the event: {writer['error']}"
                )
        return [f"{w['vm']} {w['serial']}: its writer ended early: {w['error']}" for w in early]
    except FileNotFoundError:
        return [f"{folder / WRITERS}: how the writers ended is not known: the controller ended before them"]
    except (ValueError, KeyError, TypeError) as error:
        raise RunReadError(f"{folder / WRITERS}: not the ends of writers: {error}") from None


def read_rollup(path: Paths, log: str | Sequence[str] | None = None) -> pd.DataFrame:
    """Count fio's logs per second, direction and latency bucket.

    Parameters
    ----------
    path : a folder with logs, a log (plain, .zst, .gz), or several of them in any order; or a run
        directory, whose steps' columns then stand in front as in `read_series`
    log : only logs of these kinds: iops, bw, lat, clat, slat, clat_hist

    Returns
    -------
    DataFrame
        host, job (the logs' prefix), log (its kind), averaged (bool), ddir, second (as logged:
        since the job's start, or since 1970), t_s (since the start of the run), bucket (of fio's
        1856; -1 in a log of rates), lat_ns (its middle, as in `read_bins`), count (I/Os), bytes,
        sum (of the values: ns, bytes/s of `bw`, IOPS of `iops`), stalled. One row per second,
        direction and bucket, and one with count 0 and `stalled` per second in which a job of the
        run logged nothing in a direction (its last, incomplete second aside).
        Of averages (log_avg_msec) count is of samples, and `percentiles` refuses them. The bytes
        of clat_hist are those of the one block size it names; its sum is of middles, within
        1/128. fio does not log the histogram of the last interval: totals come from JSON.
        `.attrs`: epoch_s (of t_s 0; None where hosts are aligned by their own starts: no
        log_unix_epoch, or clocks that have nothing in common), torn (files whose last line has no
        end: it is not counted), every_ms. Of a run directory: epoch_s where its steps share it,
        else None; torn of all; the largest every_ms.

    Raises
    ------
    FioLogError
        A line is not one of fio's (file and line are named), a file is no log or is cut off, or
        there is none.

    Examples
    --------
    >>> folder = hci.ROOT / "data/samples/box/failure-drbd"
    >>> hci.read_rollup(folder)["ddir"].unique().tolist()
    ['write']
    """
    if any((at_home(one) / PLAN).exists() for one in several(path)):
        return _of_steps(path, log)
    return rollup_of_logs(path, log)


def read_histograms(sources: Sources) -> pd.DataFrame:
    """The histograms of latency that run directories kept, second by second: `read_rollup`'s rows of ``clat_hist``.

    A testbed asks for them (``fio: {log_hist_msec: 500}``); of a search, all its rounds. Empty where none were kept, as
    of published tables and of results of other tools. Their latency is fio's clat, without the submission; the last
    interval of a run is not in them.

    Examples
    --------
    >>> hci.read_histograms(["data/samples/lab-single", "data/published"]).empty
    True
    >>> hci.read_histograms("data/samples/box/stamped-drbd")["events"].nunique()
    3
    """
    runs = [str(campaign) for campaign in campaigns_of(sources)]
    return read_rollup(runs, log="clat_hist") if runs else pd.DataFrame()


def _of_steps(path: Paths, log: str | Sequence[str] | None) -> pd.DataFrame:
    """Return the rollups of every step of run directories, with the VMs' names."""
    attrs: list[dict] = []

    def of(step: Step) -> pd.DataFrame:
        if not _logs(step):
            return pd.DataFrame()
        table = rollup_of_logs(Path(step.folder) / LOGS, log)
        attrs.append(table.attrs)
        return _named(step, table)

    together = _each(path, of)
    starts = {one["epoch_s"] for one in attrs}
    together.attrs = {
        "epoch_s": starts.pop() if len(starts) == 1 else None,
        "torn": sorted(file for one in attrs for file in one["torn"]),
        "every_ms": max((one["every_ms"] for one in attrs), default=0),
    }
    return together
