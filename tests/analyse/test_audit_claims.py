"""What an audit comes to."""

import pandas as pd
import pytest

from hcilib import audit, check_claims, claim_checks, published, published_claims, published_facts
from hcilib.analyse.claim_values import CURVES, UNMEASURED
from hcilib.analyse.claim_values import STATISTICS as CLAIM_STATISTICS
from hcilib.analyse.claims import IN_WORDS


@pytest.fixture(scope="module")
def article():
    results = published()
    return results[results["source"] == "proxmox-2node-hci"]


def test_an_audit_names_the_broken_row(article):
    found = audit(article)
    broken = found[found["ok"].eq(False).fillna(False) & found["check"].eq("little")]
    row = broken.iloc[0]
    assert len(broken) == 1
    assert (row["system"], row["pattern"], row["iodepth"]) == ("ceph-pve", "4k-randread", 128)
    assert row["ratio"] == pytest.approx(406_000 * 0.012238 / 6144, rel=1e-6)


def test_claims_as_checks_keep_the_verdicts():
    claims = published_claims()
    judged = check_claims(published(), claims, published_facts())
    checks = claim_checks(judged, claims)
    assert len(checks) == len(judged)
    assert checks["check"].notna().all()
    assert (checks["ok"].eq(False).fillna(False)).sum() == judged["verdict"].isin(["off", "opposite"]).sum()
    assert checks["ok"].isna().sum() == (judged["verdict"] == "not checkable").sum()
    famous = checks.set_index("id").loc[155]
    assert famous["ratio"] == pytest.approx(278 / (100 * (16.976 / 6.114 - 1)), rel=1e-3)


def test_every_statistic_of_a_claim_has_words():
    assert set(IN_WORDS) == {*CLAIM_STATISTICS, *CURVES, UNMEASURED, "formula"}


def test_no_claim_is_no_check():
    claims = published_claims().head(0)
    judged = check_claims(published(), claims, None)
    assert isinstance(claim_checks(judged, claims), pd.DataFrame)
    assert claim_checks(judged, claims).empty
