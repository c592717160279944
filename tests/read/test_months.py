"""Months of campaigns below a folder: real run directories and results of fio, with what goes wrong over months."""

import json
import re
import shutil
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest

import hcilib as hci
from hcilib.cli import main
from hcilib.model.archives import pack

SAMPLES = hci.ROOT / "data" / "samples"
FILE = sorted((SAMPLES / "loose-files").glob("*.json"))[0]
DAY_S, BEGIN_S = 86_400, 1_767_225_600  # 2026-01-01


def night(folder: Path, name: str, start_s: float, iops: float = 1.0) -> Path:
    """A real result of fio under another time, its rates scaled."""
    text = FILE.read_text()
    text = re.sub(r'"timestamp" ?: ?\d+', f'"timestamp" : {int(start_s)}', text)
    counted = r'"(iops|bw|bw_bytes|io_bytes|io_kbytes|total_ios)" ?: ?([\d.]+)'
    scaled = lambda found: f'"{found[1]}" : {type(json.loads(found[2]))(iops * float(found[2]))}'  # noqa: E731
    text = re.sub(counted, scaled, text)
    place = folder / f"{name}.json"
    place.write_text(text)
    return place


def nights(folder: Path, campaigns: int = 8) -> Path:
    folder.mkdir(exist_ok=True)
    for n in range(campaigns):
        night(folder, f"n{n + 1:02}", BEGIN_S + DAY_S * n)
    return folder


def campaign(folder: Path, name: str, change=lambda events: events, later_s: float = 0.0) -> Path:
    """A real run directory; `change` may edit its journal."""
    place = folder / name
    shutil.copytree(hci.samples()["lab-single"], place)
    journal = place / "journal.jsonl"
    events = [json.loads(line) for line in journal.read_text().splitlines()]
    events = change([event | {"t": event["t"] + later_s} for event in events])
    journal.write_text("".join(f"{json.dumps(event)}\n" for event in events))
    return place


def codes(table: pd.DataFrame) -> dict[str, set[str]]:
    """Campaign -> codes of its caveats."""
    return {row.campaign: set(row.warnings.split()) for row in hci.campaigns(table).itertuples()}


def test_run_directories_other_tools_and_published_tables_are_campaigns(tmp_path):
    folder = nights(tmp_path / "all", 1)
    campaign(folder, "lab/one")
    shutil.copytree(SAMPLES / "loose-files", folder / "loose")
    shutil.copytree(hci.ROOT / "data" / "published", folder / "articles")
    table = hci.history(folder)
    names = set(table["campaign"])
    assert {"n01.json", "lab/one", "loose", "articles/starwind-s2d-rdma-hyperv"} <= names
    runs = hci.read_results(folder / "lab/one").query("pattern == '4k-randread' and iodepth == 8")["iops"]
    row = table.query("campaign == 'lab/one' and pattern == '4k-randread' and iodepth == 8 and metric == 'iops'").iloc[
        0
    ]
    logs = np.log(runs)
    assert row["value"] == pytest.approx(np.exp(logs.mean()))
    assert row["log_se"] == pytest.approx(logs.std(ddof=1) / np.sqrt(len(logs)))
    assert (row["n"], row["testbed"], row["system"]) == (len(runs), "lab", "lab-single")
    assert row["fact_fio"] == "fio-3.33"
    assert "runtime_s=3" in row["setup"]


def test_nothing_is_written_into_the_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = nights(tmp_path / "all", 2)
    there = sorted(folder.iterdir())
    hci.history(folder)
    assert sorted(folder.iterdir()) == there


def test_a_saved_history_is_read_back(tmp_path):
    table = hci.history(nights(tmp_path / "all", 8))
    for file in (tmp_path / "h.csv", tmp_path / "h.parquet"):
        table.to_csv(file, index=False) if file.suffix == ".csv" else table.to_parquet(file)
        again = hci.history(file)
        assert again["start"].equals(table["start"])
        pd.testing.assert_frame_equal(hci.levels(again), hci.levels(table))


# ---- What goes wrong over months: each is named, none silently joined


def test_a_clock_that_went_back_while_a_campaign_ran(tmp_path):
    folder = tmp_path / "all"

    def set_back(events):
        return [event | {"t": event["t"] - 3600 * (n > 5)} for n, event in enumerate(events)]

    campaign(folder, "a", set_back)
    table = hci.history(folder)
    assert codes(table)["a"] == {"clock"}
    assert not table["valid"].any()
    (folder / "history.yaml").write_text("starts: {a: 2026-03-14 22:00}\n")
    table = hci.history(folder)
    assert table["valid"].all()
    assert str(table["start"].iloc[0]) == "2026-03-14 22:00:00+00:00"


def test_a_clock_that_is_years_ahead(tmp_path):
    folder = nights(tmp_path / "all", 3)
    night(folder, "n04", pd.Timestamp.now().timestamp() + 900 * DAY_S)
    table = hci.history(folder)
    assert codes(table)["n04.json"] == {"clock"}
    assert set(table.loc[~table["valid"], "campaign"]) == {"n04.json"}


def test_two_campaigns_of_one_start(tmp_path):
    folder = nights(tmp_path / "all", 3)
    night(folder, "again", BEGIN_S + DAY_S, iops=0.9)
    shutil.copy(folder / "n03.json", folder / "n03-copy.json")
    table = hci.history(folder)
    assert codes(table)["again.json"] == codes(table)["n02.json"] == {"same-start"}
    copies = {name for name, said in codes(table).items() if "copy" in said}
    assert len(copies & {"n03.json", "n03-copy.json"}) == 1
    assert set(table.loc[table["valid"], "campaign"]) == {"n01.json", "n03.json", "n03-copy.json"} - copies


def test_a_plan_that_changed_begins_a_history_of_its_own(tmp_path):
    folder = tmp_path / "all"
    for n in range(2):
        place = campaign(folder, f"c{n}", later_s=n * DAY_S)
        if n:
            text = (place / "plan.json").read_text()
            (place / "plan.json").write_text(text.replace('"runtime_s": 3.0', '"runtime_s": 5.0'))
    table = hci.history(folder)
    found = hci.check(table)
    assert set(found["campaigns"]) == {1}
    assert found["setup"].nunique() == 2


def test_a_time_that_nobody_wrote_down(tmp_path):
    folder = nights(tmp_path / "all", 2)
    for name in ("spring", "2026-02-03"):
        text = re.sub(r'"timestamp(_ms)?" ?: ?\d+,|"time" ?: ?"[^"]*",', "", FILE.read_text())
        (folder / f"{name}.json").write_text(text.replace("iops_stddev", f"iops_stddev_{name}"))
    table = hci.history(folder)
    assert codes(table)["spring.json"] == {"no-start"}
    starts = table.drop_duplicates("campaign").set_index("campaign")["start"]
    assert str(starts["2026-02-03.json"].date()) == "2026-02-03"
    assert hci.campaigns(table).set_index("campaign").loc["spring.json", "newest"]


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    folder = nights(tmp_path / "all", 2)
    (folder / "n03.json").write_text(FILE.read_text()[:500])
    (folder / "notes.txt").write_text("nothing of fio")
    table = hci.history(folder)
    assert codes(table)["n03.json"] == {"unread"}
    assert "notes.txt" not in set(table["campaign"])
    assert not table.loc[table["campaign"].eq("n03.json"), "valid"].any()


def test_a_rate_of_zero_has_no_logarithm(tmp_path):
    folder = nights(tmp_path / "all", 2)
    night(folder, "n03", BEGIN_S + 2 * DAY_S, iops=0.0)
    rows = hci.history(folder).query("campaign == 'n03.json' and metric == 'iops'")
    assert not rows["valid"].any()


def test_campaigns_of_another_testbed_file_are_another_series(tmp_path):
    """Both are of a testbed that is called lab."""
    for name in ("lab-mirror", "lab-flushed"):
        shutil.copytree(hci.samples()[name], tmp_path / name)
    table = hci.history(tmp_path)
    first, later = table["campaign"].unique()
    digest = json.loads((tmp_path / later / "plan.json").read_text())["identity"]["testbed"]
    testbeds = table.drop_duplicates("campaign").set_index("campaign")["testbed"].to_dict()
    assert testbeds == {first: "lab", later: f"lab {digest[:8]}"}
    assert {name for name, said in codes(table).items() if "another-testbed" in said} == {later}


# ---- hci check


@pytest.fixture
def months(tmp_path):
    folder = tmp_path / "months"
    folder.mkdir()
    noise = 1 + 0.004 * np.random.default_rng(1).standard_normal(24)
    for n in range(24):
        night(folder, f"n{n + 1:02}", BEGIN_S + DAY_S * n, noise[n] * (0.8 if n >= 16 else 1))
    return folder


def checked(folder: Path, *more: str) -> tuple[int, dict]:
    found = folder.with_suffix(".json")
    code = main(["check", str(folder), "--json", str(found), *more])
    return code, json.loads(found.read_text())


def test_the_exit_status_of_a_loss_of_none_and_of_what_is_undecided(months, capsys):
    junit = months.with_suffix(".xml")
    code, said = checked(months, "--junit", str(junit))
    assert (code, said["exit"]) == (1, 1)
    [finding] = said["findings"]
    assert (finding["verdict"], finding["campaign"]) == ("regression", "n17.json")
    assert finding["ratio"] == pytest.approx(0.8, rel=0.01)
    suite = ElementTree.parse(junit).getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("1", "1", "0")
    assert "n17.json" in capsys.readouterr().out
    assert checked(months, "--against", "n02.json")[0] == 1
    assert checked(months, "--against", "n20.json")[0] == 0
    (months / "history.yaml").write_text("accept: [n17.json]\n")
    assert checked(months)[0] == 0
    for place in sorted(months.glob("*.json"))[6:]:
        place.unlink()
    (months / "history.yaml").unlink()
    assert checked(months)[0] == 2


def test_a_newest_campaign_that_cannot_be_read_is_no_success(months):
    for place in sorted(months.glob("*.json"))[16:]:
        place.unlink()
    assert checked(months)[0] == 0
    (months / "n17.json").write_text(FILE.read_text()[:500])
    assert checked(months)[0] == 2


def test_what_cannot_be_asked_ends_with_2_and_never_with_1(months, tmp_path, capsys):
    assert main(["check", str(tmp_path / "nosuch")]) == 2
    assert main(["check", str(months), "--against", "nosuch"]) == 2
    assert main(["check", str(months), "--metric", "nosuch"]) == 2
    with pytest.raises(SystemExit) as ended:
        main(["check", str(months), "--size", "500%"])
    assert ended.value.code == 2
    capsys.readouterr()


def test_an_archive_is_a_campaign_and_nothing_is_unpacked_beside_it(tmp_path):
    folder = tmp_path / "months"
    folder.mkdir()
    for n, name in enumerate(("a", "b")):
        campaign(folder, name, later_s=DAY_S * n)
    expected = hci.history(folder)
    pack(folder / "a")
    pd.testing.assert_frame_equal(hci.history(folder), expected)  # the folder counts where both are there
    shutil.rmtree(folder / "a")
    pd.testing.assert_frame_equal(hci.history(folder), expected)
    assert sorted(entry.name for entry in folder.iterdir()) == ["a.tar.zst", "b"]


def test_a_damaged_archive_is_named_and_the_others_count(tmp_path):
    folder = tmp_path / "months"
    folder.mkdir()
    campaign(folder, "a")
    campaign(folder, "b", later_s=DAY_S)
    archive = pack(folder / "a")
    shutil.rmtree(folder / "a")
    archive.write_bytes(archive.read_bytes()[:1000])
    assert codes(hci.history(folder))["a"] == {"unread"}
    assert hci.history(folder).query("valid")["campaign"].unique().tolist() == ["b"]
