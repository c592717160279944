"""Claims in words name their systems by their labels."""

import pandas as pd
import pytest

import hcilib as hci

LABELS = {"s2d-nmap-mirror": "S2D mirror", "s2d-nmap-mirror-parity": "S2D both", "starwind-rdma-hyperv": "StarWind"}


@pytest.fixture(scope="module")
def claims() -> pd.DataFrame:
    return hci.published_claims()


def test_systems_have_their_labels(claims):
    [words] = hci.claim_words(claims[claims["id"] == 156], LABELS)
    assert words.startswith("StarWind: Mean latency")
    assert words.endswith("against S2D both")


def test_no_claims_have_no_texts(claims):
    none = claims.head(0)
    assert hci.claim_words(none, {"a": "b"}) == []
