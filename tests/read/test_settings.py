"""Runs that differ in one setting are no repeats of each other: their tests are apart, or the answer's first sentence
names the setting.

The files are a real one of fio (data/samples/loose-files) with one option changed, or captures of tests/data/foreign.
"""

from __future__ import annotations

import copy
import json
import shutil
from pathlib import Path

import pandas as pd
import pytest

import hcilib as hci
from hcilib.cli import main

ROOT = Path(__file__).resolve().parents[2]
FILES = ROOT / "tests/data/foreign"
DOCUMENT = json.loads((ROOT / "data/samples/loose-files/birch_4k-randread_qd8_r1.json").read_text())
CHANGES = {
    "ioengine": "libaio", "direct": "1", "sync": "1", "runtime": "300", "ramp_time": "30", "size": "500g",
    "filename": "/dev/sdb", "iodepth": "16", "iodepth_batch": "4", "iodepth_batch_complete_max": "4",
    "buffer_compress_percentage": "50", "dedupe_percentage": "50", "bs": "8k", "numjobs": "2", "rate_iops": "1000",
    "thinktime": "100", "norandommap": "1", "io_size": "1g", "fdatasync": "1", "refill_buffers": "1",
}  # fmt: skip
SHOWN = {"direct": "1", "size": "500 GiB", "runtime": "300 s"}


def six_runs(folder: Path, changed: dict[str, str], of) -> Path:
    """Three runs of elm and three of oak, 10 % apart; the options are changed in the runs that `of` names."""
    for system, faster in (("elm", 1.0), ("oak", 1.1)):
        for rep in (1, 2, 3):
            document = copy.deepcopy(DOCUMENT)
            read, bytes_each = document["jobs"][0]["read"], 8192 if "bs" in changed and of(system, rep) else 4096
            for name in ("iops", "total_ios"):
                read[name] *= faster + rep / 1000
            read["bw_bytes"] = read["iops"] * bytes_each
            document["global options"] |= changed if of(system, rep) else {}
            (folder / f"{system}_r{rep}.json").write_text(json.dumps(document, indent=2))
    return folder


def compared(folder: Path) -> tuple[pd.DataFrame, set[tuple]]:
    """The comparison, and how many runs each test of each system has."""
    rows = hci.read_results(folder, names="{system}_r{rep}.json")
    by = hci.load_factors(rows)
    comparison = hci.compare(rows, "elm", by=by)
    sizes = rows.groupby(["system", *by], dropna=False).size()
    return comparison, set(sizes)


@pytest.mark.parametrize("option", CHANGES)
def test_a_setting_that_differs_between_systems_is_named_first_or_keeps_their_tests_apart(tmp_path, option):
    comparison, _ = compared(six_runs(tmp_path, {option: CHANGES[option]}, lambda system, _: system == "oak"))
    unlike = {name: both for text in comparison["unlike_settings"] if text for name, both in json.loads(text).items()}
    assert unlike or set(comparison["verdict"]) == {"missing"} or option == "filename"  # two paths are normal
    assert set(unlike) <= set(" ".join(comparison["differs_in"]).split()), "which the answer names"


@pytest.mark.parametrize(
    "option", [pytest.param(name, marks=[pytest.mark.deep] * (i % 4 > 0)) for i, name in enumerate(CHANGES)]
)
def test_a_setting_that_differs_within_a_system_makes_tests_of_their_own(tmp_path, option):
    _, sizes = compared(six_runs(tmp_path, {option: CHANGES[option]}, lambda _, rep: rep == 1))
    assert sizes == {1, 2}


def test_one_setting_of_several_can_be_chosen_and_the_answer_says_how(tmp_path):
    folder = six_runs(tmp_path, {"direct": "1"}, lambda _, rep: rep > 1)
    rows = hci.read_results(folder, names="{system}_r{rep}.json")
    by = hci.load_factors(rows)
    assert "direct" in by
    assert "{direct: " in hci.comparability(rows)
    kept = hci.select(rows, where={"direct": 1})
    assert set(kept["rep"]) == {2, 3}
    assert "direct" not in hci.load_factors(kept)


def test_what_cannot_be_compared_is_said_with_a_remedy(tmp_path):
    folder = six_runs(tmp_path, {"rate_iops": "1000"}, lambda system, _: system == "oak")
    said = hci.comparability(hci.read_results(folder, names="{system}_r{rep}.json"))
    assert "no test in common" in said
    assert "rate_iops" in said
    assert hci.comparability(hci.read_results(folder, system="x")).startswith("No second system")


@pytest.mark.parametrize("option", SHOWN)
def test_a_setting_that_differs_between_systems_is_said_with_its_value(tmp_path, option):
    folder = six_runs(tmp_path, {option: CHANGES[option]}, lambda system, _: system == "oak")
    said = hci.comparability(hci.read_results(folder, names="{system}_r{rep}.json"))
    assert f"oak {SHOWN[option]}" in said
    assert said.count("\n") == 0


def test_eight_drives_are_eight_targets(tmp_path):
    for n in range(8):
        document = copy.deepcopy(DOCUMENT)
        document["global options"]["filename"] = f"/dev/sd{'abcdefgh'[n]}"
        document["timestamp_ms"] += n
        (tmp_path / f"{n}.json").write_text(json.dumps(document))
    rows = hci.read_results(tmp_path, system="x")
    assert rows["target"].nunique() == 8
    assert set(hci.summarize(rows, by=["system", *hci.load_factors(rows)])["n"]) == {1}
    with pytest.raises(ValueError, match="target"):
        hci.summarize(rows)


def test_without_engine_and_direct_it_is_psync_through_the_page_cache_one_at_a_time(tmp_path):
    document = copy.deepcopy(DOCUMENT)
    for name in ("ioengine", "uri"):
        del document["global options"][name]
    note = "note: both iodepth >= 1 and synchronous I/O engine are selected, queue depth will be capped at 1\n"
    (tmp_path / "one.json").write_text(note + json.dumps(document, indent=2))
    row = hci.read_results(tmp_path, system="x").loc[0]
    assert (row["ioengine"], row["direct"], row["iodepth"], row["outstanding"]) == ("psync", 0, 1, 1)
    assert row["iodepth_options"] == "iodepth=8"
    assert {"direct", "short", "small-file", "fio"} <= set(row["warnings"].split())


def both_trees(folder: Path) -> Path:
    """What CBT leaves of one run: the gathered results, and a volume a file below the class of its benchmark."""
    shutil.copytree(FILES / "cbt-newer/results", folder / "results")
    raw = folder / "00000000/LibrbdFio/osd_ra-00004096/rw4k/numjobs-001/total_iodepth-5"
    for n, file in enumerate(sorted((folder / "results").rglob("json_output.*"))):
        (raw / f"iodepth-{2 + n % 2}").mkdir(parents=True, exist_ok=True)
        shutil.copy(file, raw / f"iodepth-{2 + n % 2}/output.{n}")
    return folder


def test_both_trees_of_cbt_give_each_run_once(tmp_path):
    whole = hci.read_results(FILES / "cbt-newer", system="ceph")
    both = hci.read_results(both_trees(tmp_path), system="ceph")
    assert both["iops"].tolist() == whole["iops"].tolist()
    assert both["vms"].tolist() == [2]
    skipped = hci.recognise(tmp_path).set_index("file")["skipped"]
    assert skipped[skipped.index.str.startswith("00000000")].str.contains("of results/").all()
    shutil.rmtree(tmp_path / "results")
    raw = hci.read_results(tmp_path, system="ceph")
    assert raw["iops"].tolist() == pytest.approx(whole["iops"].tolist(), rel=1e-12)
    assert raw["numjobs"].tolist() == [4]


def test_every_tool_that_is_read_is_compared_or_has_its_peak():
    """Also a folder of one system."""
    for folder, names, system in (
        ("bench-fio", "{system}-{rep}/**", None), ("cbt", None, "ceph"), ("hcibench", None, "vsan"),
        ("vmfleet", "{system}/result-*-r{rep}-{vm}.xml", None), ("elbencho", None, None),
    ):  # fmt: skip
        rows = hci.read_results(FILES / folder, names=names, system=system)
        by = hci.load_factors(rows)
        assert "missing" not in set(hci.compare(rows, rows["system"].iat[0], by=by)["verdict"])
        assert hci.summarize(rows, "iops", by=["system", *by])["iops"].gt(0).all()


def test_direct_io_of_elbencho_counts(tmp_path):
    text = next((FILES / "elbencho").rglob("*.csv")).read_text()
    head, *lines = text.splitlines()
    place = head.split(",").index("direct IO")
    fields = [line.split(",") for line in lines if ",READ," in line and line.split(",")[1] == "ash"]
    cached = [[*own[:place], "0", *own[place + 1 :]] for own in fields]
    rows = [[f"{n}{own[0]}", *own[1:]] for n, own in enumerate(fields + cached)]
    (tmp_path / "both.csv").write_text("\n".join([head, *(",".join(row) for row in rows)]))
    results = hci.read_results(tmp_path)
    assert sorted(set(results["direct"])) == [0, 1]
    assert "direct" in hci.load_factors(results)


def test_byte_copies_are_one_line_and_every_reason_is_printed(tmp_path, capsys):
    for n in range(6):
        (tmp_path / f"{n}.json").write_text(json.dumps(DOCUMENT))
    kinds = hci.kinds_of_files(hci.recognise(tmp_path, system="x"))
    assert kinds["files"].tolist() == [1, 5]
    for file in tmp_path.iterdir():
        file.write_text('{"fio version": "fio-3.33", "jobs": ')
    assert main(["recognise", str(tmp_path)]) == 0
    assert "broken off" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("campaign", "unasked"),
    [
        ("box/box-ceph", {"box-ceph"}),
        ("box/box-drbd", set()),
        ("lab-single", set()),
        ("lab-dedup", {"lab-mirror-store", "lab-mirror-store [dedup]"}),
    ],
)
def test_a_system_with_copies_that_was_not_asked_for_its_health_is_marked(campaign, unasked):
    """box-drbd's file had `health` when it was measured; lab-single has one copy, which cannot be degraded."""
    results = hci.read_results(f"{ROOT}/data/samples/{campaign}")
    marked = results["warnings"].map(lambda said: "health-not-asked" in said.split())
    assert set(results.loc[marked, "system"]) == unasked
    assert set(results.loc[~marked, "system"]).isdisjoint(unasked)


def test_a_campaign_of_our_own_is_held_to_the_standard_of_a_stranger_s_files():
    """Its rows warn of short runs and small working sets, as the raw files of its steps do."""
    asked = {"short", "small-file", "direct"}
    short, long = ROOT / "tests/data/box-short/box-drbd", ROOT / "data/samples/box/box-drbd"
    samples = {"short": short, "long": long} | hci.samples()
    for name in ("lab-single", "short", "long"):
        results = hci.read_results(samples[name])
        for said, ran_s, span_bytes in zip(
            results["warnings"], results["runtime_s"], results["span_bytes"], strict=True
        ):
            own = {code for code, holds in (("short", ran_s < 10), ("small-file", span_bytes < 2**34)) if holds}
            assert set(said.split()) & asked == own
    step = next(Path(samples["lab-single"]).glob("steps/measure-b1-*/fio.json*"))
    stranger = hci.read_results(step, system="x").iloc[0]
    assert set(stranger["warnings"].split()) & asked == {"short", "small-file"}
