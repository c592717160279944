"""Sentences about an audit count what its tables hold."""

import re

import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

import hcilib as hci
from tests.style import faults, sentences

CHECKS = ("little", "bandwidth", "cpu_efficiency", "ceiling", "drives")
VERDICTS = ("holds", "rounding", "off", "opposite", "not checkable")
ROWS = pd.DataFrame({"system": "a", "pattern": "4k-randread", "iodepth": [8, 16], "iops": [1.0, 2.0], "vms": 4})


def counted(word: str, text: str) -> int:
    found = re.search(rf"([\d,]+) (?:of [\d,]+ )?{word}", text)
    return int(found[1]) if found else 0


@given(
    st.lists(st.tuples(st.sampled_from(CHECKS), st.sampled_from(("", "outside", "missing", "truncated"))), max_size=30),
    st.lists(st.sampled_from(VERDICTS), max_size=30),
)
def test_claims_and_checks_are_counted_as_they_are(checks, verdicts):
    audit = pd.DataFrame(checks, columns=["check", "code"])
    audit["ok"] = audit["code"].map({"": True, "truncated": True, "outside": False}).astype("boolean")
    judged = pd.DataFrame({"verdict": verdicts}, dtype=object)
    answer, facts = hci.audit_answer(audit, hci.load_losses(ROWS), judged, ROWS), hci.audit_facts(audit, judged)
    whole = " ".join(facts)
    assert [fault for text in (sentences(answer)[:-1], facts) for part in text for fault in faults(part)] == []
    assert len(sentences(answer)[0]) <= 90
    for verdict, words in (("holds", "holds?"), ("rounding", "differs? only by rounding"),
                           ("off", "differs? from"), ("opposite", "says? the opposite"),
                           ("not checkable", "cannot be checked")):  # fmt: skip
        assert counted(words, whole) == verdicts.count(verdict)
    failed = int(audit["ok"].eq(False).sum())
    assert counted("plausibility checks? of 2 results fails?", answer) == failed
    assert sum(map(int, re.findall(r"(\d+) checks? of", whole))) == failed
    assert counted("printed numbers? (?:was|were) truncated", whole) == (audit["code"] == "truncated").sum()
    wrong = verdicts.count("off") + verdicts.count("opposite")
    assert counted("claims? in the article differs? from", answer) == wrong
    assert ("The 2 results lack" in answer) == audit["ok"].isna().all()


def test_claims_that_cannot_be_checked_are_not_called_true():
    open_ = pd.DataFrame({"verdict": ["not checkable"] * 3})
    audit = pd.DataFrame({"check": [], "code": [], "ok": pd.array([], dtype="boolean")})
    answer = hci.audit_answer(audit, hci.load_losses(ROWS), open_, ROWS)
    assert answer.startswith("The article has 3 claims")
    assert hci.audit_facts(audit, open_.head(0)) == []
