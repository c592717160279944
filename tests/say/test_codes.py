"""Codes in words: actions on a system, and the rate of a tenant."""

import pandas as pd
import pytest

import hcilib as hci
from hcilib.read.run.run import samples
from hcilib.say.codes import action_words, events_words


@pytest.mark.parametrize(("failure", "repair"), [("kill-node2", "revive-node2"), ("kill-osd1", "start-osd1")])
def test_an_action_is_called_what_it_does_and_other_text_stays(failure, repair):
    assert action_words(failure) != failure
    assert action_words(failure).endswith(failure[-1])
    assert action_words(repair) not in (repair, action_words(failure))
    assert action_words("whole") != "whole"
    for text in ("node1: cs:WFConnection ro:Primary/Unknown", "full", "kill", ""):
        assert action_words(text) == events_words(text) == text


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ("0.572m; 500iops; unknown", "0.572 MiB/s per VM; 500 IOPS per VM; unknown"),
        ("", ""),
    ],
)
def test_a_table_prints_limits_in_words(limits, words):
    frame = pd.DataFrame({"tenant": ["db"], "limit": [limits]})
    assert hci.text(frame)["Limit"].tolist() == [words]


def test_a_glossary_has_the_most_severe_code_first_and_a_row_of_a_file_may_have_none():
    table = pd.DataFrame({"warnings": ["short two-runs", float("nan"), "no-run two-runs"]})
    assert hci.glossary(table)["code"].tolist() == ["no-run", "short", "two-runs"]


def test_a_code_is_a_whole_word_and_each_is_said_once():
    results = hci.published().query("source == 'proxmox-2node-hci' and pattern == '1m-read' and vms > 1")
    assert set(hci.best_points(results.assign(warnings="nothing-left-out"))["warnings"]) == {""}
    assert set(hci.best_points(results.assign(warnings="busy left-out"))["warnings"]) == {"left-out"}
    codes = hci.summarize(hci.read_results(samples()["lab-single"]))["warnings"].str.split()
    assert codes.map(len).equals(codes.map(set).map(len))
    assert codes.map(len).min() > 1
