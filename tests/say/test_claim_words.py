"""Texts about claims name the claimed and the recomputed number, the place and the systems by their labels."""

import pandas as pd
import pytest

import hcilib as hci
from tests.style import faults, sentences

LABELS = {"s2d-nmap-mirror": "S2D mirror", "s2d-nmap-mirror-parity": "S2D both", "starwind-rdma-hyperv": "StarWind"}


@pytest.fixture(scope="module")
def claims() -> pd.DataFrame:
    return hci.published_claims()


@pytest.fixture(scope="module")
def judged(claims) -> pd.DataFrame:
    return hci.check_claims(hci.published(), claims, hci.published_facts())


def test_a_claim_that_matches_has_no_finding_and_every_other_one_has(claims, judged):
    findings = pd.Series(hci.claim_findings(judged, claims, hci.short_labels()))
    assert (findings.eq("") == judged["verdict"].eq("holds")).all()
    assert not findings.str.contains("nan|None").any()
    written = judged["reason"].str.startswith("no table judges it")  # by the author of the claims
    assert [fault for text in findings[~written] for fault in faults(text)] == []


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (155, ["278 % higher", "177.7 %"]),
        (100, ["5,156 IOPS", "4,667 IOPS"]),
        (188, ["139 % lower", "58.2 %"]),
        (4, ["5.82 TB", "6.40 TB"]),
        (137, ["881 MiB/s", "856 MiB/s", "minimum is at iodepth 2, not 1"]),
        (214, ["no IOPS in 4k-randread"]),
    ],
)
def test_a_finding_has_the_numbers_of_its_row(claims, judged, number, words):
    [finding] = hci.claim_findings(judged[judged["id"] == number], claims, LABELS)
    assert all(word in finding for word in words), finding
    assert len(sentences(finding)) <= 4


def test_systems_have_their_labels(claims):
    [words] = hci.claim_words(claims[claims["id"] == 156], LABELS)
    assert words.startswith("StarWind: Mean latency")
    assert words.endswith("against S2D both")


def test_no_claims_have_no_texts(claims):
    none = claims.head(0)
    assert hci.claim_words(none, {"a": "b"}) == []
    assert hci.claim_findings(hci.check_claims(hci.published(), none), none) == []
