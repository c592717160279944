"""Sentences about failures have the numbers of their rows, in every branch in plain English."""

import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hcilib as hci
from hcilib.say.runs.failure import action_words, events_words, report_words
from tests.needs import examples
from tests.style import faults, length, sentences

SECONDS = st.one_of(st.just(np.nan), st.floats(0.02, 90))
COUNTS = st.sampled_from(["kept", "lost", "not checkable: no block could be read"])


def costs(n: int, **columns) -> pd.DataFrame:
    """Runs of one failure as ``failures`` returns them."""
    run = {
        "system": "box-drbd", "pattern": "4k-randwrite", "iodepth": 8, "failure": "cut-link", "heal": "heal-link",
        "fail_s": 30.0, "heal_s": 60.0, "runtime_s": 120.0, "healthy_iops": 1000.0, "ratio": 0.5, "gap_s": 1.5,
        "gaps": 1, "gap_sum_s": 1.5, "resolution_s": 0.1, "dip_pct": 60.0, "back_s": 9.0, "whole_s": np.nan,
        "max_lat_ns": np.nan, "warnings": "",
    }  # fmt: skip
    return pd.DataFrame([run] * n).assign(**columns)


def texts(runs: pd.DataFrame, integrity: list[str] | None = None) -> tuple[str, str]:
    """Return the answer and the only sentence of one failure's runs."""
    results = None
    if integrity is not None:
        results = pd.DataFrame({"system": "box-drbd", "pattern": "4k-randwrite", "iodepth": 8,
                                "events": "cut-link@30", "integrity": integrity})  # fmt: skip
    summary = hci.failure_summary(runs)
    verdicts = hci.failure_verdicts(summary, results)
    [text] = hci.failure_sentences(verdicts, summary, 0.2, {"box-drbd": "DRBD"})
    return hci.failure_answer(verdicts, summary, None, {"box-drbd": "DRBD"}), text


def facts(runs: pd.DataFrame, integrity: list[str] | None) -> list[str]:
    """Return what a decider reads of one failure's runs."""
    stamped = pd.DataFrame({"system": "box-drbd", "pattern": "4k-randwrite", "iodepth": 8, "events": "cut-link@30",
                            "integrity": integrity or []})  # fmt: skip
    summary = hci.failure_summary(runs)
    verdicts = hci.failure_verdicts(summary, stamped if integrity else None)
    return hci.failure_facts(verdicts, summary, {"box-drbd": "DRBD"})


@settings(max_examples=examples(150))
@given(st.data())
def test_every_kind_of_failure_reads_well(data):
    n = data.draw(st.integers(1, 4))
    column = lambda values: data.draw(st.lists(values, min_size=n, max_size=n))  # noqa: E731
    gaps = column(SECONDS)
    runs = costs(
        n, gap_s=gaps, gap_sum_s=[2 * gap for gap in gaps], gaps=[2 * (gap == gap) for gap in gaps],
        dip_pct=column(st.floats(0, 100)), back_s=column(st.one_of(SECONDS, st.just(0.0))), whole_s=column(SECONDS),
        max_lat_ns=[1e9 * value for value in column(SECONDS)], ratio=column(st.floats(0.01, 6)),
        resolution_s=data.draw(st.sampled_from([0.1, 0.5, 1.0])),
    )  # fmt: skip
    answer, text = texts(runs, data.draw(st.none() | st.lists(COUNTS, min_size=1, max_size=4)))
    assert faults(answer) == faults(text) == []
    assert "nan" not in answer + text
    assert "inf" not in answer + text
    assert len(sentences(answer)[0].removesuffix(".")) <= 90


def numbers(pattern: str, text: str) -> list[float]:
    return [float(number) for number in re.search(pattern, text).groups()]


def test_an_answer_has_the_worst_and_the_median_of_three_quantities():
    answer, text = texts(costs(3, gap_s=[1.0, 2.0, 6.0], dip_pct=[50.0, 60.0, 90.0], back_s=[20.0, 30.0, 10.0]))
    line, longer = answer.splitlines()
    for each in (line, text):
        assert numbers(r"for up to (\S+) s \((\d) runs, median (\S+) s\)", each) == [6, 3, 2]
        assert numbers(r"IOPS dipped to (\S+) % of normal \(median run (\S+) %\)", each) == [10, 40]
        assert numbers(r"took (\S+) s at worst \(median (\S+) s\)", each) == [30, 20]
    assert numbers(r"up to (\S+) s longer", longer) == [0.2]
    assert length(line) <= 45
    assert line.startswith("Cutting the link ")
    assert "DRBD" in line


@pytest.mark.parametrize(
    ("back_s", "words"),
    [
        ([20.0, 10.0, np.nan], "Recovery took 20 s (median). 1 run did not recover."),
        ([20.0, np.nan, np.nan], "1 of 3 runs recovered before its end."),
        ([np.nan] * 3, "No run recovered before its end."),
        ([np.nan], "The run did not recover before its end."),
        ([0.0] * 3, "All runs stayed "),
        ([7.0], "Recovery took 7 s."),
    ],
)
def test_a_recovery_that_no_run_lived_to_see_is_not_called_one(back_s, words):
    for text in texts(costs(len(back_s), back_s=back_s)):
        assert words in text.replace(" to 80 % of normal IOPS", "")
        assert length(text.splitlines()[0]) <= 45 or "iodepth" in text


@pytest.mark.parametrize(
    ("back_s", "integrity", "words"),
    [
        (
            [20.0, 10.0, np.nan],
            None,
            "a test for data loss, DRBD recovered in 20 s (median), but not in 1 of 3",
        ),
        (
            [np.nan] * 3,
            None,
            "In runs without a test for data loss, DRBD recovered in none of 3 runs.",
        ),
        (
            [0.0] * 3,
            ["kept"] * 3,
            "In runs with a test for data loss, DRBD had normal IOPS from the repair on",
        ),
        (
            [20.0, 10.0, 30.0],
            ["kept"] * 3,
            "with a test for data loss, DRBD recovered in 30 s at worst (median 20 s).",
        ),
    ],
)
def test_a_decider_reads_the_outage_the_loss_and_the_recovery(back_s, integrity, words):
    outage, recovery = facts(costs(3, gap_s=[1.0, 2.0, 6.0], back_s=back_s), integrity)
    assert re.search(r"DRBD for up to (\S+) s \((\d) runs\)", outage).groups() == ("6", "3")
    assert ("lost" in outage) == (integrity is not None)
    assert words in recovery
    assert length(f"{outage} {recovery}") <= 45


def test_a_failure_without_a_repair_has_no_recovery():
    never = costs(2, heal="", heal_s=np.nan, dip_pct=np.nan, back_s=np.nan)
    for text in texts(never):
        assert "There was no repair." in text
        assert "Recovery" not in text


def test_an_outage_that_was_not_seen_is_never_zero():
    unseen = costs(3, gap_s=np.nan, gap_sum_s=np.nan, gaps=0, resolution_s=0.5)
    answer, text = texts(unseen)
    assert "for less than 1 s (3 runs)" in answer
    assert "for less than 1 s (3 runs)" in text
    assert len(answer.splitlines()) == 1, "there is no outage that may have been longer"
    some, _ = texts(costs(3, gap_s=[np.nan, np.nan, 2.0], resolution_s=0.5))
    assert "for up to 2 s (3 runs, median < 1 s)" in some


@pytest.mark.parametrize(
    ("ratios", "words"),
    [
        ([4.4, 4.5, 4.6], r"4\.5 times as many IOPS as healthy .*high IOPS does not mean"),
        ([0.5, 0.51, 0.49], "50 % fewer IOPS than healthy"),
        ([0.5, 1.0, 2.0], "is not significant"),
        ([4.4], "in this one run"),
        ([np.nan] * 2, "could not be measured"),
    ],
)
def test_the_degraded_level_is_said_as_far_as_it_is_known(ratios, words):
    _, text = texts(costs(len(ratios), ratio=ratios))
    assert re.search(words, text)


def test_a_lost_write_is_the_title():
    for text in texts(costs(3), ["kept", "lost", "kept"]):
        assert sentences(text)[0] == "After cutting the link on DRBD, acknowledged writes were lost in 1 of 3 runs."
    fine, _ = texts(costs(3), ["kept"] * 3)
    assert "No lost write was found." in fine
    untested, _ = texts(costs(3))
    assert untested.splitlines()[0].endswith("Data loss was not tested.")


def test_conditions_of_one_failure_have_their_own_sentences():
    runs = pd.concat([costs(2, vms=2), costs(2, vms=4)])
    summary = hci.failure_summary(runs, ["system", "pattern", "iodepth", "failure", "vms"])
    found = hci.failure_sentences(hci.failure_verdicts(summary), summary)
    assert len(set(found)) == 2
    assert "2 VMs" in found[0] + found[1]


def test_runs_that_cannot_be_used_are_said_and_never_fine():
    unseen = pd.DataFrame(
        [{"events": "kill-node2@30", "system": "box-drbd", "block": 2, "why": "fio had ended before"}]
    )
    summary = hci.failure_summary(costs(2))
    answer = hci.failure_answer(hci.failure_verdicts(summary), summary, unseen, {"box-drbd": "DRBD"})
    last = answer.splitlines()[-1]
    assert "round 2 on DRBD" in last
    assert events_words("kill-node2@30") in last
    assert "fio had ended before" in last
    assert faults(last) == []


@pytest.mark.parametrize(("failure", "repair"), [("kill-node2", "revive-node2"), ("kill-osd1", "start-osd1")])
def test_an_action_is_called_what_it_does_and_other_text_stays(failure, repair):
    assert action_words(failure) != failure
    assert action_words(failure).endswith(failure[-1])
    assert action_words(repair) not in (repair, action_words(failure))
    assert report_words(repair) == action_words(repair)
    assert report_words("whole") != "whole"
    for text in ("node1: cs:WFConnection ro:Primary/Unknown", "full", "kill", ""):
        assert action_words(text) == report_words(text) == events_words(text) == text


def test_a_title_has_room_for_the_longest_name_of_a_failure():
    for system in ("box-drbd", "a mirror with a long name"):
        summary = hci.failure_summary(costs(3, failure="kill-node2", system=system))
        title = sentences(hci.failure_answer(hci.failure_verdicts(summary), summary))[0]
        assert len(title.removesuffix(".")) <= 90
        assert f"{system} for up to 1.5 s (3 runs" in title


def test_two_sets_of_runs_of_one_failure_name_themselves():
    with_loss = facts(costs(3, healthy_iops=180.0, back_s=0.0), ["kept"] * 3)[1]
    without = facts(costs(3, healthy_iops=410.0, back_s=np.nan), None)[1]
    assert "with a test" in with_loss
    assert "without a test" in without
