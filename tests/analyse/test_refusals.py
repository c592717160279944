"""Tables that cannot be analysed: the error's class, and the column or name that it names.

Who pools rows refuses those that differ in a factor, all by one rule (METHODS section 1).
"""

from functools import partial

import numpy as np
import pandas as pd
import pytest

import hcilib as hci
from hcilib.analyse.latency import percentiles
from hcilib.analyse.series import mean_interval
from hcilib.model.system import System
from hcilib.read.run.run import samples
from tests.refused import refusals

NAN = float("nan")
RUNS = pd.DataFrame({
    "source": "s", "system": np.repeat(["a", "b"], 12), "run_id": "r", "pattern": "4k-randread", "bs_bytes": 4096,
    "iodepth": np.tile(np.repeat([1, 8], 6), 2), "vms": 4, "block": np.tile(np.arange(6), 4),
    "rep": np.tile(np.arange(6), 4), "iops": 1000.0 + np.arange(24), "p99_ns": 1e6 + np.arange(24), "rwmixread": 100,
})  # fmt: skip
A = RUNS[RUNS["system"] == "a"]
BINS = pd.DataFrame({"run_id": "r", "lat_ns": [1000, 2000], "count": [5, 6]})
OFFERED = RUNS[RUNS["iodepth"] == 1].assign(rate_iops="0.5", offered_iops=1000.0, open_loop=True)
CUT = "cut-link@30"
SERIES = pd.DataFrame({"run_id": "r", "events": CUT, "rep": 1, "t_s": range(130), "iops": 1000.0})
EVENTS = pd.DataFrame({"run_id": "r", "events": CUT, "rep": 1, "seen": False, "what": "cut-link", "t_s": [30.2]})
COSTS = pd.concat([hci.failures(SERIES, EVENTS).assign(system="a", pattern="p", iodepth=8)] * 2, ignore_index=True)
HISTORY = pd.DataFrame({
    "campaign": ["c1", "c2"], "start": pd.to_datetime(["2026-01-01", "2026-01-02"], utc=True), "testbed": "lab",
    "system": "a", "pattern": "4k-randread", "iodepth": 8, "metric": "iops", "value": 1000.0, "log_se": 0.001, "n": 3,
    "accepted": False, "valid": True, "warnings": "",
})  # fmt: skip
TENANTS = A.query("iodepth == 1").assign(tenant="db", beside="backup")
POOLS = {
    "summarize": lambda own: hci.summarize(RUNS.assign(**own(24))),
    "compare": lambda own: hci.compare(RUNS.assign(**own(24)), "a"),
    "rank": lambda own: hci.rank(RUNS.assign(**own(24))),
    "peak": lambda own: hci.peak(RUNS.assign(**own(24))),
    "saturation": lambda own: hci.saturation(RUNS.query("iodepth == 1").assign(**own(12))),
    "load_curve": lambda own: hci.load_curve(OFFERED.assign(**own(12))),
}
SYSTEM = {"scheme": "Mirror(2)", "nodes": 2, "drives_per_node": 1, "drive": {"model": "x", "bytes": 2**40}}


def system(name: str, **declared) -> System:
    return System.model_validate({"name": name, "label": name, **SYSTEM, **declared})


PRICED = {
    "a": system("a", price=50, currency="EUR", years=5),
    "b": system("b", price=100, currency="USD", years=5),
}
PRICES = {
    "a number": ({"a": 42000}, "'a'"),
    "a text": (PRICED | {"b": "42000 EUR"}, "'b'"),
    "a system that nobody measured": ({"elsewhere": system("c", price=1, currency="EUR")}, "'elsewhere'"),
    "a system under another name": ({"renamed": PRICED["a"]}, "'renamed'"),
    "a name with another dash": (PRICED | {"box_drbd": system("box", price=1, currency="EUR")}, "'box_drbd'"),
}
COMPARED = {
    "rank": lambda costs: hci.rank(costs, "iops_per_price"),
    "winners": lambda costs: hci.best_points(costs, "iops_per_price"),
    "compare": lambda costs: hci.compare(costs, "a", "iops_per_yearly_price"),
    "crossover": lambda costs: hci.crossover(costs, "a", "b", "gb_per_s_per_price"),
    "pareto": lambda costs: hci.pareto(costs, "usable_tib_per_price", "iops"),
}
SCHEMES = {
    "Mirror(2) * Foo(3)": "'Foo(3)'",
    "__import__('os').system('true')": ': "__import__',
    "Mirror(2) + Mirror(2)": ": 'Mirror(2) + Mirror(2)'",
    "Raid5(2)": ": 'Raid5(2)'",
    "Raid5(2.5)": "got 2.5",
    "Mirror(True)": "'True'",
    "Mirror()": ": 'Mirror()'",
    "Tiers((0.2, Mirror(2)), (0.7, Raid5(5)))": "add up to 1",
    "Tiers(0.2, Mirror(2))": "pairs",
    "Mirror(2).dedup(70)": "0.7",
    "Mirror(2).dedup(0.5) * Raid5(5)": "last",
    "Mirror(2).reserve(2, 5).reserve(2, 5)": "once",
    "Mirror(2).reserve(2, 1)": "every drive",
    "nested_parity(3, 0.2)": "at least 4",
    "Raid5(5).spare(1.5)": "spares must",
    "Raidz(2, 2, 8192, 4096)": "drives must",
    "Raidz(6, 4, 8192, 4096)": "parity is",
    "Raidz(6, 2, 2048, 4096)": "volblocksize_bytes must",
    "Raidz(6, 2, 8192, 520)": "sector_bytes must",
    "Mirror(2).spare(1)": "Raid5(5).spare(1)",
    "Mirror(2": "'Mirror(2'",
    "5": "'5'",
}
CHOSEN = [
    ("'aa'", {"baseline": "aa"}),
    ("'bb'", {"challenger": "bb"}),
    ("'a'", {"challenger": "a"}),
    ("'c'", {"challenger": "c", "patterns": ["4k-randread"]}),
    ("'4k-randred'", {"patterns": ["4k-randread", "4k-randred"]}),
    ("patterns", {"patterns": []}),
    ("'some-article'", {"article": "some-article"}),
    ("no row has 3", {"where": {"iodepth": 3}}),
    ("'threads'", {"where": {"threads": 3}}),
]
CLAIM = {
    "id": 1, "source": "s", "statistic": "value", "metric": "iops", "pattern": "4k-randread", "vms": 4, "reduce": "at",
    "iodepth": "8", "subject": "a", "comparator": "", "claimed": 0, "unit": "IOPS", "resolution": 1,
}  # fmt: skip
FACTS = pd.DataFrame(
    {"source": "s", "key": ["n.drives"], "kind": "setting", "value": "2", "unit": "count", "number": 2.0}
)
FORMULA = {"statistic": "formula", "unit": "count"}
CLAIMS = [
    ("'median'", {"statistic": "median"}),
    ("'p99'", {"metric": "p99"}),
    ("'KIOPS'", {"unit": "KIOPS"}),
    ("'best'", {"reduce": "best"}),
    ("reduce", {"statistic": "pct_of", "unit": "%", "comparator": "b c", "reduce": "max"}),
    ("resolution", {"resolution": 0}),
    ("claimed", {"claimed": NAN}),
    ("comparator", {"statistic": "pct_higher", "unit": "%"}),
    ("'roughly'", {"word": "roughly"}),
    ("bounds", {"low": 3}),
    ("note", {"statistic": "unmeasured", "claimed": NAN}),
    ("'n.drives *'", FORMULA | {"formula": "n.drives *"}),
    ("__import__", FORMULA | {"formula": "__import__('os').getcwd()"}),
    ("** 9", FORMULA | {"formula": "n.drives ** 9"}),
    ("if 1 else", FORMULA | {"formula": "n.drives if 1 else 2"}),
    ("abs(", FORMULA | {"formula": "abs(n.drives)"}),
]
COMPARISONS = [
    ("adjust", {"adjust": "bonferroni"}),
    ("margin", {"margin": 5}),
    ("'iop'", {"metric": "iop"}),
    ("'queue'", {"by": ["pattern", "queue"]}),
]
DRIVE = {"read_iops": 460_000, "write_iops": 175_000}
CEILINGS = [
    ("write_iops", ({"read_iops": 1}, 2, [50])),
    ("read_iops", ({"read_iops": 0, "write_iops": 1}, 2, [50])),
    ("drives", (DRIVE, 0, [50])),
    ("rwmixread", (DRIVE, 2, [150])),
    ("rwmixread", (DRIVE, 2, [50, NAN])),
]
PROTOCOL = {"runs": 3, "read_s": 600, "write_s": 1800, "order": "back-to-back"}
PROTOCOLS = [
    ("runtime", PROTOCOL | {"runtime": 3}),
    ("write_s", {"runs": 3, "read_s": 600}),
    ("order", PROTOCOL | {"order": "random"}),
    ("2 runs", PROTOCOL | {"runs": 1}),
    ("write_s", PROTOCOL | {"write_s": 0}),
]
NOISE = {"second_cv_pct": 6.7, "between_cv_pct": 1.0, "tau_s": 5.0}


def placed(rows: int) -> dict:
    return {"placement": np.resize(["owner", "spread"], rows)}


def chosen(**wish) -> pd.DataFrame:
    other = A.assign(system="c", pattern="1m-write")
    return hci.select(pd.concat([RUNS, other]), **{"baseline": "a", "challenger": "b"} | wish)


def claimed(**given) -> pd.DataFrame:
    return hci.check_claims(RUNS, pd.DataFrame([CLAIM | given]), FACTS)


def precision(protocol: dict, **noise) -> pd.DataFrame:
    return hci.precision(hci.noise(RUNS.query("block == 0"), None, **noise), {"p": protocol})


def ceilings(drive: dict, drives: int, mixes: list) -> pd.DataFrame:
    return hci.ceilings(hci.datasheet_rates(drive), drives, {"a": hci.Mirror(2)}, mixes)


def priced(systems: dict) -> pd.DataFrame:
    rows = hci.peak(pd.concat([RUNS, A.assign(system="box-drbd")]) if "box_drbd" in systems else RUNS)
    return hci.cost(rows, systems)


test_a_table_that_cannot_be_answered_is_refused = refusals(
    ValueError=[
        *((f"{name} of two placements", "placement: owner, spread", partial(pool, placed))
          for name, pool in POOLS.items()),
        ("loads of histograms", "iodepth: 1, 8", lambda: percentiles(BINS.assign(iodepth=[1, 8]), ["run_id"])),
        ("block sizes", "bs_bytes: 4096, 65536",
         lambda: hci.summarize(RUNS.assign(bs_bytes=np.resize([4096, 65536], 24)))),
        ("systems", "system: a, b", lambda: hci.summarize(RUNS, by=["pattern", "iodepth"])),
        ("jobs of two systems", "numjobs: 1, 4",
         lambda: hci.compare(RUNS.assign(numjobs=np.repeat([1, 4], 12)), "a")),
        ("a cap of one system", "rate_bytes", 
         lambda: hci.compare(RUNS.assign(rate_bytes=np.repeat([NAN, 9], 12)), "a")),
        ("disturbed runs", "events", lambda: hci.summarize(RUNS.assign(events=np.resize([None, CUT], 24)))),
        ("a disturbed system", "events", lambda: hci.compare(RUNS.assign(events=np.repeat([None, CUT], 12)), "a")),
        ("curves of two fleets", "vms: 1, 4",
         lambda: hci.crossover(RUNS.assign(vms=np.tile([1, 4], 12)), "a", "b")),
        ("failures of two fleets", "vms: 2, 4", lambda: hci.failure_summary(COSTS.assign(vms=[2, 4]))),
        ("a healed failure and one that is not", "heal: ",
         lambda: hci.failure_summary(COSTS.assign(heal=["", "heal"]))),
        ("amounts of data that do not follow the VMs", "span_bytes",
         lambda: hci.saturation(RUNS.query("iodepth == 1").assign(span_bytes=np.resize([1, 2], 12)))),
        ("a run twice", "run_id r, block 0, rep 0", lambda: hci.compare(pd.concat([RUNS, RUNS.iloc[:1]]), "a")),
        ("a text for IOPS", "'iops'", lambda: hci.compare(RUNS.assign(iops="fast"), "a")),
        ("a baseline that nobody measured", "'aa'", lambda: hci.compare(RUNS, "aa")),
        *((str(given), named, partial(hci.compare, RUNS, "a", **given)) for named, given in COMPARISONS),
        *((str(wish), named, partial(chosen, **wish)) for named, wish in CHOSEN),
        ("one system alone", "add a source", lambda: hci.select(A, "a", "a")),
        ("no result", "nothing to compare", lambda: hci.select(RUNS.iloc[:0], "a", "b")),
        ("a metric without a better way", "'runtime_s'",
         lambda: hci.rank(RUNS.rename(columns={"iops": "runtime_s"}), "runtime_s")),
        ("a depth of 0", "iodepth", lambda: hci.crossover(RUNS.assign(iodepth=RUNS["iodepth"] - 1), "a", "b")),
        ("a pattern that nobody measured", "8k-read", lambda: hci.select(RUNS, patterns=["8k-read"])),
        ("a share of 95", "saturated", lambda: hci.loads(RUNS, saturated=95)),
        ("a limit of 0", "within_ns", lambda: hci.loads(RUNS, within_ns=0)),
        ("a fleet without IOPS", "'iops'", lambda: hci.fleet_curves(pd.DataFrame({"vms": [1]}))),
        ("a fleet that saturates without IOPS", "'iops'", lambda: hci.saturation(RUNS.drop(columns="iops"))),
        ("a closed loop", "sweep(offered=", lambda: hci.load_within(OFFERED.assign(offered_iops=NAN), p99_ns=1e6)),
        ("a limit of IOPS", "iops", lambda: hci.load_within(OFFERED, iops=5)),
        ("no limit", "p99_ns", lambda: hci.load_within(OFFERED)),
        ("no tenants", "tenants", lambda: hci.neighbours(RUNS)),
        ("a tenant that was never alone", "tenant db", lambda: hci.neighbours(TENANTS)),
        *((f"scheme {text!r}", named, partial(hci.parse_scheme, text)) for text, named in SCHEMES.items()),
        ("no scheme", "scheme", lambda: hci.parse_scheme(None)),
        *((f"{wrong} raw bytes", "raw", partial(hci.Mirror(2).usable_bytes, wrong)) for wrong in (0, NAN)),
        ("no raw bytes", "raw_bytes", lambda: hci.system_capacity({}, {"a": hci.Mirror(2)})),
        ("a system without drives", "raw_bytes",
         lambda: hci.system_capacity({"bare": System(name="bare", label="b", scheme="Mirror(2)")})),
        ("a system without a scheme", "bare", lambda: hci.system_capacity({"bare": system("bare", scheme=None)})),
        *((f"filled to {pct} %", "fill_pct", partial(hci.system_capacity, PRICED, fill_pct=pct))
          for pct in (0, 101)),
        ("costs of no system", "'system'", lambda: hci.cost(pd.DataFrame({"iops": [1.0]}), PRICED)),
        *((f"for a price {name}", named, partial(priced, systems)) for name, (systems, named) in PRICES.items()),
        ("a price among the results", "price", lambda: hci.cost(hci.peak(RUNS).assign(price=42000), PRICED)),
        *((f"{name} of two currencies", "EUR and USD", lambda compared=compared: compared(hci.cost(RUNS, PRICED)))
          for name, compared in COMPARED.items()),
        *((str(given), named, partial(claimed, **given)) for named, given in CLAIMS),
        ("claims without columns", "unit, resolution",
         lambda: hci.check_claims(RUNS, pd.DataFrame([CLAIM]).drop(columns=["unit", "resolution"]))),
        ("results without a block size", "bs_bytes",
         lambda: hci.check_claims(RUNS.drop(columns="bs_bytes"), pd.DataFrame([CLAIM | {"metric": "bw_bytes"}]))),
        ("rows of one label", "repeats 0", lambda: hci.audit(pd.concat([RUNS, RUNS]))),
        ("an audit without IOPS", "'iops'", lambda: hci.audit(RUNS.drop(columns="iops"))),
        ("two drives", "a, b", lambda: hci.against_datasheet(RUNS.assign(numjobs=1))),
        ("a datasheet without a number", "1m-read", lambda: hci.against_datasheet(A, {"1m-read": NAN})),
        ("a pattern without its base", "4k-write",
         lambda: hci.pattern_cost(RUNS.assign(lat_ns=1e6), "4k-randread", "4k-write")),
        *((str(given), named, partial(ceilings, *given)) for named, given in CEILINGS),
        ("copies that do not fit", "3 copies", lambda: hci.expected_traffic(hci.Mirror(3))),
        ("twice redirected", "redirected", lambda: hci.expected_traffic(hci.Mirror(2), redirected=2)),
        ("a card that no node has", "'eno1'", lambda: hci.traffic(A, pd.DataFrame({"nic": ["eth0"]}), "eno1")),
        ("a mix on a card", "4k-randread",
         lambda: hci.traffic(A.assign(rwmixread=70), pd.DataFrame({"nic": ["eth0"]}), "eth0")),
        *((str(wrong), named, partial(precision, wrong, **NOISE)) for named, wrong in PROTOCOLS),
        ("no noise within a run", "second_cv_pct", lambda: precision(PROTOCOL, between_cv_pct=1)),
        ("no noise between runs", "between_cv_pct", lambda: precision(PROTOCOL, second_cv_pct=3)),
        ("a noise without a direction", "rwmixread",
         lambda: hci.precision(hci.noise(RUNS, None, **NOISE).drop(columns="rwmixread"), {"p": PROTOCOL})),
        ("an event of no run", "'rep': 2", lambda: hci.failures(SERIES, EVENTS.assign(rep=2))),
        ("three events", "3 events", lambda: hci.failures(SERIES, pd.concat([EVENTS] * 3))),
        ("a history without times", "start", lambda: hci.changes(HISTORY.drop(columns="start"))),
        ("a campaign without a time", "c1", lambda: hci.changes(HISTORY.assign(start=pd.NaT))),
        ("a campaign twice", "c1", lambda: hci.changes(pd.concat([HISTORY, HISTORY.head(1)]))),
        ("no valid campaign", "iops", lambda: hci.changes(HISTORY.assign(valid=False))),
        ("no value above 0", "iops", lambda: hci.changes(HISTORY.assign(value=0.0))),
        ("a change of 500 %", "size", lambda: hci.check(HISTORY, size=5)),
        ("against a campaign that is not there", "nosuch", lambda: hci.check(HISTORY, against="nosuch")),
        ("a regression of no campaign", "'c9'", lambda: hci.regression(HISTORY, "c9")),
        ("a regression since no campaign", "'c0'", lambda: hci.regression(HISTORY, "c2", "c0")),
        ("a regression of one campaign", "c1", lambda: hci.regression(HISTORY.head(1), "c1")),
        ("bins without counts", "count", lambda: percentiles(BINS.drop(columns="count"), ["run_id"])),
        ("a bin without a count", "row 1", lambda: percentiles(BINS.assign(count=[5, NAN]), ["run_id"])),
        ("a percentile of 0", "q", lambda: percentiles(BINS, [], (0, 50))),
        ("two percentiles of one name", "q", lambda: percentiles(BINS, [], (99.9, 9.99))),
        ("half a bucket", "bucket", lambda: percentiles(BINS.drop(columns="lat_ns").assign(bucket=0.5), [])),
        ("histograms of averages", "log_avg_msec",
         lambda: hci.latency_over_time(BINS.assign(averaged=True, bucket=1, t_s=0))),
        ("two runs without a key", "twice", lambda: mean_interval(pd.concat([SERIES, SERIES]))),
        ("a series without IOPS", "iops", lambda: mean_interval(SERIES.drop(columns="iops"))),
        ("a series without times", "t_s is missing", lambda: mean_interval(SERIES.assign(t_s=NAN))),
    ],
)  # fmt: skip


def test_what_readers_add_to_histograms_is_no_factor():
    bins = hci.read_bins(samples()["lab-single"])
    assert len(percentiles(bins, by=["pattern", "iodepth"]))


@pytest.mark.parametrize("name", POOLS)
def test_rows_that_differ_in_nothing_are_pooled(name):
    assert len(POOLS[name](lambda rows: {"firmware": "f1"}))


@pytest.mark.parametrize("name", POOLS)
def test_what_became_of_stamped_writes_is_a_result_and_no_factor(name):
    assert len(POOLS[name](lambda rows: {"lost": np.arange(rows) % 2, "integrity": np.resize(["kept", "lost"], rows)}))


def test_a_percentile_that_a_run_of_its_cell_lacks_is_missing():
    """The runs that are too short for it are the slow ones."""
    runs = pd.DataFrame({"system": "a", "pattern": "4k-randread", "rep": [1, 2, 3], "iops": [90.0, 900, 910]})
    runs["p99_ns"], runs["p999_ns"] = [9e6, 1e6, 1e6], [np.nan, 2e6, 2e6]
    runs["warnings"] = ["thin-tail", "", ""]
    [tail] = hci.summarize(runs, "p999_ns", by=["system", "pattern"]).to_dict("records")
    assert np.isnan(tail["p999_ns"])
    assert (tail["n"], "thin-tail" in tail["warnings"].split()) == (0, True)
    [whole] = hci.summarize(runs, "p99_ns", by=["system", "pattern"]).to_dict("records")
    assert whole["n"] == 3
