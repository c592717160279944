"""Ask every public reader about every capture, whole and damaged, and about every campaign.

A net is a file of tests/data/nets with a line for each case: `function: column` has the digest of
the column, `function` the number of rows, or class and place of a refusal. The line of a damaged
capture has only what differs from the whole one. `python -m tests.snapshot.readers` writes the nets
again, and prints what moved.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import chdir
from functools import partial
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import hcilib as hci
import numpy as np
import pandas as pd
from hcilib.model.archives import ARCHIVE, extract, unpacked
from hcilib.model.compressed import read_bytes
from hcilib.read.foreign.results import log_series
from hcilib.read.run.accepted import RunDirWarning
from hcilib.read.run.run import read_rollup
from pandas.util import hash_pandas_object

from .content import columns_of, moved

DATA = Path(__file__).parents[1] / "data"
NETS = DATA / "nets"
Row = dict[str, str]
Net = dict[str, Row]
Ask = Callable[[Path], Row]
"""Asks some readers about a file or folder."""

STEP = re.compile(r"(?<=steps/)[^/]+|\d+")
PLACE = re.compile(r"line \d+|\$\.[\w.\[\]]+|[\w-]+\.(?:json|log|csv|txt|xml)[\w.]*")
SENTENCES = ("skipped", "problem", "note", "why")
"""Columns of sentences: only whether there is one counts."""
OF_FILES = {
    "left_out": lambda pairs: [file for file, _ in pairs],
    "torn": lambda files: [Path(file).name for file in files],
    "unmeasured": sorted,
    "warnings": lambda said: sorted(said.split()),
}
"""Entries of attrs that hold sentences, and what is taken of them."""
SPOILT = 3
LARGE = 20_000
"""Rows of a table from which on a digest is of each column alone, whatever the order of rows."""

RESULTS = (partial(hci.read_results, system="s"),)
LOGS = (read_rollup, log_series)
FILES = (
    ((hci.read_fio, *RESULTS), "fio/*.json fio/sync/*.json sections/*.json"),
    (RESULTS, "sections/*.normal diskspd/*.txt diskspd/*.xml foreign/elbencho/*.csv"),
    (LOGS, "fio/logs/*/cell_*.1.log.*.1 fio/served/* fio/logs/*"),
    ((*RESULTS, hci.recognise, *LOGS), "cases/*_* foreign/bench-fio foreign/cbt"),
    ((*RESULTS, hci.recognise), "foreign/cbt-newer foreign/hcibench foreign/vmfleet.*"),
    ((hci.recognise,), "network/*.* windows/*.csv"),
)
"""Readers, and the captures of tests/data that each is asked about."""
CAMPAIGN = (
    hci.read_results, hci.read_hosts, hci.read_bins, hci.read_series, hci.read_io_gaps,
    hci.read_counters, hci.read_drives, hci.read_layers, hci.read_osds, hci.read_pool_fill,
    hci.read_events, read_rollup, hci.read_histograms, hci.read_network,
    hci.read_set_speeds, hci.read_failed_events, hci.verify,
)  # fmt: skip
"""Readers of a run directory."""
OF_LOGS = {hci.read_series, hci.read_io_gaps, read_rollup}
DAMAGED_CAMPAIGN = "1c-placement"
"""The newest of the earlier formats whose steps hold no digests: its files are read as they are."""
PUBLISHED = {
    "results": hci.published,
    "facts": hci.published_facts,
    "claims": hci.published_claims,
    "readings": hci.published_claims,
    "datasheets": partial(hci.published_datasheet, "nvme-p3700-raw"),
    "scaling": hci.read_results,
    "datapath": hci.read_results,
    "resiliency": hci.read_results,
}
"""A file of data/published, and who reads it: of the folder, or as a table of results."""


def name_of(reader: Callable) -> str:
    """Return what a reader is called."""
    return getattr(reader, "func", reader).__name__


def ask(readers: Iterable[Callable[..., Any]], place: Path) -> Row:
    """Return what each reader makes of a place: digests, or its refusal."""
    row = {}
    for reader in readers:
        name = name_of(reader)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            try:
                table = reader(path=place) if isinstance(reader, partial) else reader(place)
            except Exception as error:
                row[name] = refusal(error)
            else:
                row[name] = f"{len(table)} rows"
                row |= {f"{name}: {key}": value for key, value in digests(table).items()}
        own = [str(one.message) for one in warned if one.category is RunDirWarning]
        if own:
            row[f"{name}: warned"] = " ".join(str(len(said.split())) for said in own)
    return row


def refusal(error: Exception) -> str:
    """Return the class of an error, and the files, lines and fields that it names."""
    return " ".join([type(error).__name__, *sorted(set(PLACE.findall(str(error))))])


def digests(table: pd.DataFrame) -> Row:
    """Return a digest of each column, of sentences and caveats without their words."""
    columns = {name: content(str(name), values) for name, values in table.items()}
    told = pd.DataFrame(columns, index=table.index)
    attrs = table.attrs.items()
    told.attrs = {name: OF_FILES.get(name, lambda own: own)(value) for name, value in attrs}
    if len(told) <= LARGE:
        return {name: digest[:8] for name, digest in columns_of(told).items()}
    sums = ((name, hash_pandas_object(values, index=False).sum()) for name, values in told.items())
    return {str(name): f"{total:016x}"[:8] for name, total in sums}


def content(name: str, values: pd.Series) -> pd.Series:
    """Return a column with floats to nine digits: processors differ in the last ones."""
    if name == "warnings":
        return values.map(lambda said: " ".join(sorted(said.split())))
    if name in SENTENCES:
        return values.fillna("").ne("")
    if values.dtype != np.float64:
        return values
    mantissa, exponent = np.frexp(values.to_numpy())
    return pd.Series(np.ldexp(np.rint(mantissa * 2**30), exponent - 30), values.index)


# --- damage


def damages(raw: bytes, name: str) -> Iterator[tuple[str, bytes]]:
    """Yield a capture cut short, twice in one file, and with one digit spoilt here and there."""
    yield "cut", raw[: len(raw) // 2]
    digits = [found.start() for found in re.finditer(rb"\d", raw)]
    for n in range(SPOILT if digits else 0):
        at = Random(f"{name} {n}").choice(digits)
        digit = b"%d" % ((raw[at] - 43) % 10) if n else b"x"
        yield f"spoilt {n}", raw[:at] + digit + raw[at + 1 :]
    yield "twice", raw * 2


def damaged(
    case: str, file: Path, whole: Row, again: Callable[[], Row], most: int = 2 + SPOILT
) -> Iterator[tuple[str, Row]]:
    """Yield what differs from the whole capture, for each of at most so many damages to a file."""
    kept = file.read_bytes()
    for how, raw in islice(damages(read_bytes(file), case), most):
        file.write_bytes(raw)
        found = again()
        read = {name for name, value in found.items() if value.endswith(" rows")}
        left = (key for key in whole if key not in found)
        gone = {key: "gone" for key in left if key.partition(": ")[0] in read}
        yield f"{case} {how}", gone | {k: v for k, v in found.items() if whole.get(k) != v}
    file.write_bytes(kept)


# --- the nets


def captures(folder: Path) -> Iterator[tuple[str, Row]]:
    """Yield the cases of every capture in tests/data, read in a folder of its own."""
    for readers, patterns in FILES:
        for top, _, inside in (pattern.partition("/") for pattern in patterns.split()):
            captured = unpacked(DATA / top)
            for place in sorted(captured.glob(inside)):
                case = f"{top}/{place.relative_to(captured)}"
                yield from of_capture(case, place, folder / "capture", partial(ask, readers))


def of_capture(case: str, place: Path, folder: Path, asked: Ask) -> Iterator[tuple[str, Row]]:
    """Yield a capture whole, and with its largest file damaged."""
    shutil.rmtree(folder, ignore_errors=True)
    if place.name.endswith(ARCHIVE):
        extract(place, folder)
        case = case.removesuffix(ARCHIVE)
    elif place.is_dir():
        shutil.copytree(place, folder)
    else:
        folder.mkdir()
        shutil.copy(place, folder)
    alone = (folder / place.name).is_file()
    given = Path(folder.name, place.name) if alone else Path(folder.name)
    files = [f for f in sorted(folder.rglob("*")) if f.is_file() and f.name[:7] != "output."]
    whole = asked(given)
    yield case, whole
    largest = max(files, key=lambda file: file.stat().st_size)
    yield from damaged(case, largest, whole, partial(asked, given))


def published(folder: Path) -> Iterator[tuple[str, Row]]:
    """Yield the published tables, and each with its file damaged."""
    shutil.copytree(hci.ROOT / "data" / "published", folder / "published")
    for name, reader in PUBLISHED.items():
        file = Path("published", f"{name}.csv")
        again = partial(ask, (reader,), file if reader is hci.read_results else file.parent)
        whole = again()
        yield f"published {name}", whole
        yield from damaged(f"published {name}", file, whole, again)


def damaged_campaign(folder: Path) -> Iterator[tuple[str, Row]]:
    """Yield a campaign with one file of each kind damaged."""
    place = folder / "campaign"
    extract(DATA / "rundirs" / f"{DAMAGED_CAMPAIGN}{ARCHIVE}", place)
    whole = ask(CAMPAIGN, Path(place.name))
    told = {one for one in CAMPAIGN if whole[one.__name__] != "0 rows"}
    kinds: dict[str, Path] = {}
    for file in sorted(file for file in place.rglob("*") if file.is_file()):
        of = file.parent.relative_to(place) / file.name.rpartition("_")[2]
        kinds.setdefault(STEP.sub("N", of.as_posix()), file)
    for kind, file in kinds.items():
        own = OF_LOGS if "/logs/" in kind else told - OF_LOGS
        again = partial(ask, sorted(own, key=CAMPAIGN.index), Path(place.name))
        yield from damaged(f"{DAMAGED_CAMPAIGN} {kind}", file, again(), again, 3)


def samples(_: Path) -> Iterator[tuple[str, Row]]:
    """Yield every campaign of data/samples."""
    yield from of_archives(hci.ROOT / "data" / "samples")


def of_archives(folder: Path) -> Iterator[tuple[str, Row]]:
    """Yield every campaign whose archive is in a folder or below it."""
    for file in sorted(folder.glob(f"**/*{ARCHIVE}")):
        place = file.with_name(file.name.removesuffix(ARCHIVE))
        yield place.relative_to(hci.ROOT).as_posix(), ask(CAMPAIGN, place)


def earlier(_: Path) -> Iterator[tuple[str, Row]]:
    """Yield a campaign of every format there was, its history, and files of another tool."""
    samples, rundirs = hci.ROOT / "data" / "samples", DATA / "rundirs"
    yield from of_archives(rundirs)
    yield "pool_fill/box-ceph", ask(CAMPAIGN, DATA / "pool_fill/box-ceph")
    yield "loose-files", ask((*RESULTS, hci.recognise), samples / "loose-files")
    yield "history.csv", ask((hci.history,), samples / "history.csv")
    yield "history of rundirs", ask((hci.history,), rundirs)


KINDS = {
    "captures": captures,
    "published": published,
    "damaged_campaign": damaged_campaign,
    "earlier": earlier,
    "samples": samples,
}


def made(kind: str, folder: Path) -> Net:
    """Return a net as the readers make it now, in an empty folder."""
    with chdir(folder):
        return dict(KINDS[kind](folder))


def committed(kind: str) -> Net:
    """Return a net as it is committed; without lines where it is not yet."""
    file = NETS / f"{kind}.json"
    return json.loads(file.read_text()) if file.exists() else {}


def write(kind: str, net: Net) -> None:
    """Write a net, a line a case."""
    lines = [f"{json.dumps(case)}: {json.dumps(net[case], sort_keys=True)}" for case in sorted(net)]
    NETS.mkdir(exist_ok=True)
    (NETS / f"{kind}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


differences = moved


def main() -> None:
    """Write every net again and print what moved."""
    for kind in KINDS:
        with tempfile.TemporaryDirectory() as folder:
            net = made(kind, Path(folder))
        print(*moved(committed(kind), net), sep="\n")
        write(kind, net)


if __name__ == "__main__":
    main()
