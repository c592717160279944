"""Months of campaigns below a folder: run directories and results of fio, and what goes wrong."""

import json
import shutil
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest

import hcilib as hci
from hcilib.cli import main
from hcilib.model.archives import pack, unpacked
from hcilib.read.run.run import samples
from tests.read.made import LOOSE, result, written

SAMPLES = hci.ROOT / "data/samples"
DAY_S, BEGIN_S = 86_400, 1_767_225_600  # 2026-01-01


def night(folder: Path, name: str, day: float, faster: float = 1.0, **more) -> Path:
    """Write a result of fio of another time, its rates scaled."""
    document = result()
    read = document["jobs"][0]["read"]
    for counted in ("iops", "bw_bytes", "io_bytes", "total_ios"):
        read[counted] = type(read[counted])(faster * read[counted])
    when = {"timestamp": int(BEGIN_S + DAY_S * day), "timestamp_ms": None, "time": None}
    document |= when | more
    written_fields = {key: value for key, value in document.items() if value is not None}
    return written(folder / f"{name}.json", written_fields)


def campaign(folder: Path, name: str, day: int = 0, late_s=lambda n: 0) -> Path:
    """Copy a real run directory, its journal some days later; the clock is `late_s` at an event."""
    place = shutil.copytree(samples()["lab-single"], folder / name)
    journal = place / "journal.jsonl"
    events = [json.loads(line) for line in journal.read_text().splitlines()]
    moved = [one | {"t": one["t"] + DAY_S * day + late_s(n)} for n, one in enumerate(events)]
    journal.write_text("".join(f"{json.dumps(event)}\n" for event in moved))
    return place


def codes(table: pd.DataFrame) -> dict[str, set[str]]:
    """Return campaign -> codes of its caveats, where it has some."""
    found = {row.campaign: set(row.warnings.split()) for row in hci.campaigns(table).itertuples()}
    return {name: own for name, own in found.items() if own}


def test_run_directories_other_tools_and_published_tables_are_campaigns(tmp_path):
    night(tmp_path, "n01", 0)
    campaign(tmp_path, "lab/one")
    shutil.copytree(LOOSE, tmp_path / "loose")
    shutil.copytree(hci.ROOT / "data/published", tmp_path / "articles")
    shutil.copytree(hci.ROOT / "tests/data/foreign/elbencho", tmp_path / "elbencho")
    table = hci.history(tmp_path)
    names = {"n01.json", "lab/one", "loose", "articles/starwind-s2d-rdma-hyperv"}
    assert names <= set(table["campaign"])
    [start] = table.query("campaign == 'elbencho'")["start"].unique()
    assert str(start) == "2026-01-02 03:00:00+00:00"
    asked = "pattern == '4k-randread' and iodepth == 8"
    logs = np.log(hci.read_results(tmp_path / "lab/one").query(asked)["iops"])
    row = table.query(f"campaign == 'lab/one' and metric == 'iops' and {asked}").iloc[0]
    assert row["value"] == pytest.approx(np.exp(logs.mean()))
    assert row["log_se"] == pytest.approx(logs.std(ddof=1) / np.sqrt(len(logs)))
    facts = ["n", "testbed", "system", "fact_fio"]
    assert row[facts].tolist() == [len(logs), "lab", "lab-single", "fio-3.33"]
    assert "runtime_s=3" in row["setup"]


def test_a_saved_history_is_read_back(tmp_path):
    for day in range(8):
        night(tmp_path / "all", f"n{day}", day)
    table = hci.history(tmp_path / "all")
    table.to_csv(tmp_path / "h.csv", index=False)
    table.to_parquet(tmp_path / "h.parquet")
    for file in (tmp_path / "h.csv", tmp_path / "h.parquet"):
        again = hci.history(file)
        assert again["start"].equals(table["start"])
        pd.testing.assert_frame_equal(hci.levels(again), hci.levels(table))


# --- what goes wrong over months: each is named, none silently joined


def test_results_that_do_not_count_are_named(tmp_path):
    for day in (1, 2, 3):
        night(tmp_path, f"n0{day}", day)
    night(tmp_path, "again", 2, faster=0.9)
    night(tmp_path, "zero", 4, faster=0.0)
    night(tmp_path, "spring", 0, timestamp=None)
    night(tmp_path, "2026-02-03", 0, timestamp=None, note="another")
    night(tmp_path, "ahead", (pd.Timestamp.now().timestamp() - BEGIN_S) / DAY_S + 900)
    shutil.copy(tmp_path / "n03.json", tmp_path / "n03-copy.json")
    written(tmp_path / "cut.json", (tmp_path / "n01.json").read_bytes()[:500])
    cut = shutil.copytree(LOOSE, tmp_path / "loose") / "cedar_4k-randread_qd8_r1.json"
    cut.write_bytes(cut.read_bytes()[:500])
    written(tmp_path / "month.tar.zst", b"no archive")
    written(tmp_path / "notes.txt", "nothing of fio")
    written(tmp_path / ".hidden.json", (tmp_path / "n01.json").read_bytes())
    (tmp_path / "gone.json").symlink_to("nowhere.json")
    table = hci.history(tmp_path)
    found = codes(table)
    [copy] = (name for name in found if "copy" in found[name])
    assert copy in ("n03.json", "n03-copy.json")
    assert {name: own for name, own in found.items() if name != copy} == {
        "again.json": {"same-start"},
        "n02.json": {"same-start"},
        "spring.json": {"no-start"},
        "ahead.json": {"clock"},
        "cut.json": {"unread"},
        "zero.json": {"unread"},
        "loose": {"left-out"},
        "month": {"unread"},
    }
    valid = table[table["valid"] & table["metric"].eq("iops")]
    counted = {"n01.json", "n03.json", "n03-copy.json", "2026-02-03.json", "loose"} - {copy}
    assert set(valid["campaign"]) == counted
    starts = valid.set_index("campaign")["start"]
    assert str(starts["2026-02-03.json"].date()) == "2026-02-03"
    assert hci.campaigns(table).set_index("campaign").loc["spring.json", "newest"]


def test_a_clock_that_went_back_while_a_campaign_ran(tmp_path):
    campaign(tmp_path, "a", late_s=lambda n: -3600 * (n > 5))
    table = hci.history(tmp_path)
    assert codes(table) == {"a": {"clock"}}
    assert not table["valid"].any()
    written(tmp_path / "history.yaml", "starts: {a: 2026-03-14 22:00}\n")
    table = hci.history(tmp_path)
    assert table["valid"].all()
    assert str(table["start"].iloc[0]) == "2026-03-14 22:00:00+00:00"


def test_a_plan_that_changed_begins_a_history_of_its_own(tmp_path):
    campaign(tmp_path, "c0")
    plan = campaign(tmp_path, "c1", day=1) / "plan.json"
    plan.write_text(plan.read_text().replace('"runtime_s": 3.0', '"runtime_s": 5.0'))
    found = hci.check(hci.history(tmp_path))
    assert set(found["campaigns"]) == {1}
    assert found["setup"].nunique() == 2


def test_campaigns_of_another_testbed_file_are_another_series(tmp_path):
    """Both are of a testbed that is called lab."""
    for name in ("lab-mirror", "lab-flushed"):
        shutil.copytree(samples()[name], tmp_path / name)
    table = hci.history(tmp_path)
    first, later = table["campaign"].unique()
    digest = json.loads((tmp_path / later / "plan.json").read_text())["identity"]["testbed"]
    testbeds = table.drop_duplicates("campaign").set_index("campaign")["testbed"].to_dict()
    assert testbeds == {first: "lab", later: f"lab {digest[:8]}"}
    assert [name for name, own in codes(table).items() if "another-testbed" in own] == [later]


def test_a_search_is_one_campaign_in_its_archive_too(tmp_path):
    search = shutil.copytree(unpacked(SAMPLES / "lab-load"), tmp_path / "search")
    loads = hci.read_results(search)
    pack(search)
    shutil.rmtree(search)
    table = hci.history(tmp_path).query("metric == 'iops'")
    assert set(table["campaign"]) == {"search"}
    assert table["n"].sum() == len(loads)
    assert (table["setup"] != "").all()


def test_a_campaign_began_when_its_first_file_did(tmp_path):
    for name, day in (("a", 3), ("b", 1)):
        night(tmp_path / "both", name, day)
    [start] = hci.history(tmp_path)["start"].unique()
    assert start.timestamp() == pytest.approx(BEGIN_S + DAY_S, abs=60)


# --- hci check


@pytest.fixture
def months(tmp_path):
    folder = tmp_path / "months"
    noise = 1 + 0.004 * np.random.default_rng(1).standard_normal(24)
    for n in range(24):
        night(folder, f"n{n + 1:02}", n, noise[n] * (0.8 if n >= 16 else 1))
    return folder


def test_the_exit_status_of_a_loss_of_none_and_of_what_is_undecided(months, tmp_path, capsys):
    found, junit = tmp_path / "found.json", tmp_path / "junit.xml"

    def check(*more: str) -> int:
        return main(["check", str(months), "--json", str(found), *more])

    assert check("--junit", str(junit)) == 1
    told = json.loads(found.read_text())
    [finding] = told["findings"]
    assert (told["exit"], finding["verdict"], finding["campaign"]) == (1, "regression", "n17.json")
    assert finding["ratio"] == pytest.approx(0.8, rel=0.01)
    suite = ElementTree.parse(junit).getroot()
    assert [suite.get(name) for name in ("tests", "failures", "errors")] == ["1", "1", "0"]
    assert "n17.json" in capsys.readouterr().out
    assert [check("--against", name) for name in ("n02.json", "n20.json", "nosuch")] == [1, 0, 2]
    assert check("--size", "30%") == 0, "a loss of 20 % is proven, and smaller"
    assert json.loads(found.read_text())["findings"][0]["verdict"] == "regression"
    assert check("--metric", "nosuch") == 2
    notes = written(months / "history.yaml", "accept: [n17.json]\n")
    assert check() == 0
    notes.unlink()
    places = sorted(months.glob("*.json"))
    for place in places[16:]:
        place.unlink()
    assert check() == 0
    written(months / "n17.json", places[0].read_bytes()[:500])
    assert check() == 2, "the newest cannot be read"
    for place in places[6:17]:
        place.unlink(missing_ok=True)
    assert check() == 2, "too few to decide"
