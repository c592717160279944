"""What `hci explain` says of one result: its numbers, and first what is wrong with it."""

import io
import json
import sys
from pathlib import Path

import pytest

import hcilib as hci
from hcilib.cli import main

CASES = Path(__file__).parent / "data" / "cases"
FIRST = {  # case -> first of its codes, exit status
    "c03_iops_0": ("iodepth", 1),
    "c05_dbench_log": ("percentiles", 0),
    "c17_dup_percentile_keys": ("sections", 1),
    "c19_global_numjobs": ("short", 1),
    "c20_interrupted": ("invalid", 1),
    "c21_padded": ("submission", 1),
    "c23_diskspd": ("percentiles", 0),
    "c35_top_bucket_json": ("last-bucket", 1),
    "n11_latency_target": ("latency-target", 1),
    "c09_per_job_logs_0": (None, 0),
    "c16_avg_25s": (None, 0),
}
VALUES = {  # case -> values of its runs that are said
    "c03_iops_0": {"read_iops": [0.3088], "write_iops": [0.1544], "outstanding": [1]},
    "c23_diskspd": {"iops": [309.18, 773.4], "outstanding": [40, 64], "lat_ns": [82.74e6]},
    "c35_top_bucket_json": {"p50_ns": [0.878e9], "p99_ns": []},
    "c16_avg_25s": {"iops": [358734]},
}


@pytest.mark.parametrize("case", FIRST)
def test_the_values_are_said_and_the_worst_first(case, capsys):
    code, status = FIRST[case]
    assert main(["explain", str(CASES / case), "--json"]) == status
    said = json.loads(capsys.readouterr().out)
    known = [row["name"] for row in said if row["about"] == "know"]
    assert known[:1] == [code] * (code is not None)
    for name, wanted in VALUES.get(case, {}).items():
        found = [row["value"] for row in said if row["about"] == "measured" and row["name"] == name]
        assert found == pytest.approx(wanted, rel=1e-3), name


def test_what_cannot_be_read_says_why(capsys):
    for case, why in (("c08_terse", "--output-format=json"), ("c13_same_time", "per_job_logs=1")):
        assert main(["explain", str(CASES / case)]) == 2
        assert why in capsys.readouterr().err


def test_a_screen_has_80_columns_and_a_pipe_is_read(capsys, monkeypatch):
    raw = (CASES / "n11_latency_target" / "t.json").read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(raw)))
    assert main(["explain", "-", "--drive", "460000"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "stdin"
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 24
    assert "Share of the drive 12.9 % of 460,000 IOPS" in lines
    assert not any("\033" in line for line in lines)


@pytest.mark.parametrize("content", [CASES / "n11_latency_target" / "t.json", None])
def test_the_name_of_a_file_cannot_command_the_terminal(content, tmp_path, capsys):
    file = tmp_path / "\033[2J.json"
    file.write_bytes(content.read_bytes() if content else b"{")
    assert main(["explain", str(file)]) == (1 if content else 2)
    said = capsys.readouterr()
    assert "[2J.json" in said.out + said.err
    assert "\033" not in said.out + said.err


def test_two_results_differ_in_settings_and_then_in_numbers(capsys):
    old, new = (f"data/samples/loose-files/{name}_4k-randread*" for name in ("birch", "cedar"))
    said = hci.explain([old, new]).query("about == 'differs'").set_index("name")
    assert said.loc["iops", "value"] == pytest.approx(1999 / 1499, rel=1e-3)
    assert said.loc["iops", "text"].endswith("higher")
    one = hci.explain([CASES / "n12_cmdprio/c.json", CASES / "n11_latency_target"]).query("about == 'differs'")
    assert one["name"].tolist()[:2] == ["iodepth", "rate_iops"]
    assert one["text"].iloc[-1].endswith("untested")


def test_what_is_pasted_is_read(tmp_path):
    text = (CASES / "c21_padded/z.txt").read_text()
    (tmp_path / "twice.txt").write_text("".join(f"pod-1 | {line}\n" for line in f"{text}\n{text}".splitlines()))
    said = hci.explain(tmp_path / "twice.txt").query("name == 'iops'")
    assert said["value"].tolist() == pytest.approx([202.31, 202.31], rel=1e-3)


def test_logs_that_drift_or_stop_say_so(tmp_path):
    for name, rates in {
        "drift": [100] * 6 + [50] * 6,
        "stop": [100] * 6 + [0] * 2 + [100] * 6,
        "held": [100] * 12,
    }.items():
        lines = "".join(f"{1000 * t}, {rate}, 0, 0\n" for t, rate in enumerate(rates, 1))
        (tmp_path / f"{name}_iops.1.log").write_text(lines)
    said = hci.explain(tmp_path).query("about == 'know'")
    assert {*zip(said["run"].str.split().str[0], said["name"], strict=True)} == {
        ("drift", "not-steady"),
        ("stop", "silent"),
    }
