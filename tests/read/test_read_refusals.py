"""Files and folders that cannot be read: the error's class, and the file or field that it names."""

import json
import shutil
from functools import partial

import zstandard

import hcilib as hci
from hcilib.model.archives import unpacked
from hcilib.read.foreign.results import log_series
from hcilib.read.run.journal import progress
from hcilib.read.run.run import samples
from tests.read.made import result
from tests.refused import refusals, written

PUBLISHED = hci.ROOT / "data/published"
FIO = unpacked(hci.ROOT / "tests/data/fio")
LOOSE = "data/samples/loose-files"
NAMES = "{system}_{pattern}_qd{iodepth}_r{rep}.json"
NO_DOCUMENTS = {
    # what fio's output is instead, and a word of it
    "nothing": (b"", "empty"),
    "sums of clients": (
        b'{"fio version": "fio-3.33", "client_stats": [{"jobname": "All clients", "groupid": 0}]}',
        "All clients",
    ),
    "no job": (b'{"fio version": "fio-3.33", "jobs": []}', "no report"),
    "jobs of nobody": (b'{"jobs": []}', "what.json"),
    "a port of 400 digits": (
        json.dumps(result(port=7)).replace('"port": 7', f'"port": {"9" * 400}').encode(),
        "port",
    ),
    "a message": (b"fio: connect: Connection refused\n", "Connection refused"),
    "another document": (b'{"some": "json"}', "what.json"),
    "a list": (b"[1, 2]", "what.json"),
    "no text": (b"\x00\x01\x02\xff" * 20, "what.json"),
    "a text for a number": (
        b'{"fio version": "fio-3.33", "client_stats": [{"jobname": "a", "error": "x"}]}',
        "client_stats[0].error",
    ),
    "no stream": (b"\x28\xb5\x2f\xfd broken", "what.json"),
    "depth": (b'{"a":' * 100_000, "what.json"),
    "open texts": (b'{"\n' * 100_000, "what.json"),
}
PLACES = {
    # what a user gives to read_results, and what is named
    "a folder that is not there": ("data/nosuch", "nosuch: no such"),
    "a glob of nothing": ("data/samples/loose*.nothing", "loose*.nothing"),
    "a job file": (f"{LOOSE}/job.fio", "job.fio"),
    "a misspelt field of a source": ({"path": LOOSE, "sytem": "x"}, "'sytem'"),
    "a source without a path": ({"names": "x"}, "path"),
    "a system of a run directory": (
        {"path": "data/samples/lab-single", "system": "x"},
        "lab-single",
    ),
    "a file twice": (
        [{"path": str(hci.ROOT / LOOSE / name), "names": NAMES} for name in ("", "birch_*")],
        "5 more",
    ),
}
WRONG_NAMES = [
    "{sytem}_{pattern}.json",
    "{system}_{system}.json",
    "plain.json",
    "(?P<systm>.*)",
    "(?P<system>.*",
]
WRONG_FUNCTIONS = {
    "a folder for a file": (hci.read_fio, LOOSE, "loose-files"),
    "two files for one": (hci.read_fio, ["a.json", "b.json"], "read_results"),
}
CAMPAIGN_READERS = (hci.read_hosts, hci.read_bins, hci.read_series, hci.read_counters)
RESULTS = [
    # a text of results.csv, what is written instead, and the place that is named
    ("missing column", ",iops,", ",", "line 2"),
    ("missing quantity", ",lat_ms,", ",", "line 2"),
    ("unknown unit", "lat_ms", "lat_jiffies", "line 1, column lat_jiffies"),
    ("unknown column", "iodepth", "queue", "line 1, column queue"),
    ("column twice", "bw_mib_per_s", "lat_us", "line 1, column lat_ms"),
    ("thousands separator", "997000", '"997,000"', "line 2, column iops"),
    ("no number", "997000", "nan", "line 2, column iops"),
    ("empty", "997000", "", "line 2, column iops"),
    ("CPU above 100 %", ",44,10148", ",440,10148", "line 9, column node_cpu_pct"),
    ("half a job", ",,6,32,", ",,6.5,32,", "line 2, column numjobs"),
    ("unknown pattern", "4k-randread", "4k-rr", "line 2, column pattern"),
    ("short row", ",997000,", ",", "line 2"),
]
OTHER_TABLES = [
    # a reader, a table, a text of it, what is written instead, and the place that is named
    (
        hci.published_facts,
        "facts",
        "setting,3.2,TB",
        "setting,3.2,TBs",
        "facts.csv, line 16, column unit",
    ),
    (
        hci.published_facts,
        "facts",
        "setting,3.2,TB",
        "setting,three,TB",
        "facts.csv, line 16, column value",
    ),
    (hci.published_claims, "claims", ",278,%,", ",278,percent,", "column unit"),
    (
        partial(hci.published_datasheet, "nvme-p3700-raw"),
        "datasheets",
        ",6800,MB/s",
        ",6800,MB",
        "column unit",
    ),
    (
        partial(hci.published_datasheet, "nvme-p3700-raw"),
        "datasheets",
        "4k-randrw70,,IOPS",
        "4k-randrw70,5,IOPS",
        "column figure",
    ),
]
HISTORIES = [
    ("rename: {a: b}", "rename"),
    ("systems: [a]", "systems"),
    ("starts: {n01.json: soon}", "starts"),
    ("accept: n01", "accept"),
]


def spoilt(read, table: str, old: str, new: str) -> object:
    """Read published tables of which one has another text at its first place."""
    text = (PUBLISHED / f"{table}.csv").read_text()
    assert old in text
    shutil.copytree(PUBLISHED, "tables")
    written(f"tables/{table}.csv", text.replace(old, new, 1))
    return read("tables")


def repeated(line: int) -> object:
    text = (PUBLISHED / "results.csv").read_text()
    return hci.published(written("results.csv", text + text.splitlines()[line - 1] + "1\n"))


def history_of(text: str) -> object:
    shutil.copytree(samples()["lab-single"], "all/n01")
    written("all/history.yaml", f"{text}\n")
    return hci.history("all")


def two_readings() -> object:
    file = written(
        "loose/a_b_c.json", (hci.ROOT / LOOSE / "cedar_4k-randread_qd8_r1.json").read_bytes()
    )
    return hci.read_results(file.parent, names="{system}_{vm}.json")


def two_campaigns() -> object:
    """Read the folder above two run directories."""
    for name in ("lab-dedup", "lab-mirror"):
        shutil.copytree(samples()[name], f"two/{name}")
    return hci.read_results(["two"])


def cut_stream() -> object:
    raw = zstandard.compress((FIO / "healthy.json").read_bytes())
    return hci.read_fio(written("cut.json.zst", raw[:-40]))


def interim_alone() -> object:
    """Read fio's output that was cut off after its first status reports."""
    return hci.read_fio(written("cut.json", (FIO / "local_status.json").read_text()[:-5000]))


def copied(read) -> object:
    """Read a campaign and its copy, which was gone on with since."""
    copy = shutil.copytree(run := samples()["lab-single"], "copy")
    with open(f"{copy}/journal.jsonl", "a") as journal:
        journal.write('{"t": 1, "event": "start"}\n')
    return read([run, copy])


test_what_cannot_be_read_is_refused = refusals(
    FioOutputError=[
        *(
            (name, named, partial(lambda text: hci.read_fio(written("what.json", text)), content))
            for name, (content, named) in NO_DOCUMENTS.items()
        ),
        *(
            (name, named, partial(read, path))
            for name, (read, path, named) in WRONG_FUNCTIONS.items()
        ),
        ("a stream that is cut off", "cut.json.zst", cut_stream),
        ("status reports of a run that did not end", "interim", interim_alone),
    ],
    FileNotFoundError=[
        ("a file that is not there", "none.json", lambda: hci.read_fio("none.json"))
    ],
    ForeignError=[
        *((name, named, partial(hci.read_results, path)) for name, (path, named) in PLACES.items()),
        (
            "logs in a folder that is not there",
            "nowhere: no such",
            lambda: log_series("nowhere"),
        ),
        ("one name, two readings", "vm b_c", two_readings),
    ],
    NamesError=[
        *((names, names, partial(hci.read_results, LOOSE, names=names)) for names in WRONG_NAMES),
        (
            "a table of names that is not there",
            "No such file",
            lambda: hci.read_results(LOOSE, names="nowhere.csv"),
        ),
        ("a number for names", "int", lambda: hci.read_results(LOOSE, names=7)),
    ],
    ValueError=[("accept: [n99]", "n99", partial(history_of, "accept: [n99]"))],
    TestbedError=[
        *((text, field, partial(history_of, text)) for text, field in HISTORIES),
    ],
    RunReadError=[
        *(
            (f"{read.__name__} of nowhere", "nowhere", partial(read, "nowhere"))
            for read in CAMPAIGN_READERS
        ),
        *(
            (
                f"{read.__name__} of an empty folder",
                "plan.json",
                partial(lambda read: read(written("empty/note.md", "").parent), read),
            )
            for read in CAMPAIGN_READERS
        ),
        *(
            (f"{read.__name__} of a copy", "copy", partial(copied, read))
            for read in (hci.read_results, *CAMPAIGN_READERS[:-1])
        ),
        ("nothing", "samples", lambda: hci.read_results([])),
        ("loose files for a campaign", "loose-files", lambda: hci.read_hosts(LOOSE)),
        (
            "a campaign twice",
            "lab-single",
            lambda: hci.read_results([samples()["lab-single"]] * 2),
        ),
        ("a folder of campaigns", "lab-dedup, lab-mirror", two_campaigns),
        (
            "a plan that is no JSON",
            "plan.json",
            lambda: hci.read_results(written("run/plan.json", "{").parent),
        ),
        (
            "a plan without its parts",
            "field plan",
            lambda: hci.read_results(written("run/plan.json", '{"format_version": "1.0"}').parent),
        ),
        (
            "progress without a plan",
            "plan.json",
            lambda: progress(written("empty/note.md", "").parent),
        ),
        (
            "an article that nobody wrote",
            "holds proxmox-2node-hci",
            lambda: hci.read_results("data/published", "proxmox"),
        ),
        (
            "an article of a campaign",
            "'proxmox'",
            lambda: hci.read_results("data/samples/lab-single", "proxmox"),
        ),
        (
            "an article of two campaigns",
            "lab (",
            lambda: hci.read_results(
                ["data/samples/lab-single", "data/samples/lab-mirror"], "proxmox"
            ),
        ),
        ("months that are not there", "nosuch", lambda: hci.history("nosuch")),
        ("months of nothing", "empty", lambda: hci.history(written("empty/note.md", "").parent)),
        ("months of one campaign", "lab-single", lambda: hci.history(samples()["lab-single"])),
    ],
    PublishedDataError=[
        *(
            (name, f"results.csv, {named}", partial(spoilt, hci.published, "results", old, new))
            for name, old, new, named in RESULTS
        ),
        *(
            (f"{table}: {new}", named, partial(spoilt, read, table, old, new))
            for read, table, old, new, named in OTHER_TABLES
        ),
        ("a key twice", "line 256", lambda: repeated(10)),
        ("a drive's key twice", "line 2", lambda: repeated(2)),
        ("an empty table", "results.csv", lambda: hci.published(written("results.csv", ""))),
        (
            "no text",
            "results.csv",
            lambda: hci.published(written("results.csv", "a,b\n".encode("utf-16"))),
        ),
        (
            "a table that is not there",
            "results.csv",
            lambda: hci.published(written("empty/note.md", "").parent),
        ),
        (
            "a file that is no table",
            "'mine'",
            lambda: hci.read_results(written("mine.csv", "source\n")),
        ),
    ],
)
