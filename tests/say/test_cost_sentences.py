"""The sentences on cost: whose they are about and with which numbers, however they are worded."""

import itertools
import re

import pandas as pd
import pytest

import hcilib as hci

RESULTS = hci.published().query("source == 'proxmox-2node-hci' and vms > 1")
NAMES = ("ceph-pve", "drbd-tcp-pve", "starwind-rdma-pve", "starwind-tcp-pve")


def said(results: pd.DataFrame, prices: dict[str, tuple[float, str]]) -> list[str]:
    """The sentences as 09_capacity makes them, of systems with these prices."""
    files = hci.load_systems()
    systems = {name: files[name] for name in results["system"].unique()}
    for name, (price, currency) in prices.items():
        systems[name] = systems[name].model_copy(update={"price": price, "currency": currency})
    runs = hci.cost(results, systems).dropna(subset=["price"])
    cheap = runs.groupby("currency").apply(hci.best_points, "iops_per_price").reset_index()
    return hci.cost_sentences(hci.cost(hci.peak(results), systems), hci.best_points(results), cheap)


def test_without_a_price_there_is_one_sentence_and_a_missing_one_is_named():
    [only] = said(RESULTS, {})
    assert not any(name in only for name in NAMES)
    first, *unpriced = NAMES
    last = said(RESULTS, {first: (100.0, "EUR")})[-1]
    assert all(name in last for name in unpriced)
    assert first not in last


def test_faster_and_cheaper_are_two_sentences():
    """At one price for all the faster is the cheaper; at 100 times the price it is not."""
    same = said(RESULTS, dict.fromkeys(NAMES, (100.0, "EUR")))
    fast, cheap = (re.findall(r"([\w-]+-pve)\b.*? in (\d) of 7", line)[0] for line in same[1:])
    assert fast == cheap
    dear = said(RESULTS, dict.fromkeys(NAMES, (100.0, "EUR")) | {fast[0]: (10_000.0, "EUR")})
    assert re.findall(rf"{fast[0]} .* in {fast[1]} of 7", dear[1])
    assert fast[0] not in dear[2]
    assert "10,000 EUR" in dear[0]


def test_who_has_no_price_is_named_beside_those_that_have_one():
    *_, last = said(RESULTS, {"ceph-pve": (1.5, "EUR"), "drbd-tcp-pve": (2.0, "EUR")})
    assert "ceph-pve" not in last
    assert "starwind-rdma-pve" in last


def test_currencies_are_ranked_apart_and_one_price_alone_is_not_ranked():
    prices = {"ceph-pve": (1.0, "EUR"), "drbd-tcp-pve": (2.0, "EUR"), "starwind-rdma-pve": (3.0, "USD")}
    lines = said(RESULTS, prices)
    assert any("EUR and USD" in line for line in lines)
    [euro] = [line for line in lines if re.search(r"of 7 patterns", line) and "EUR" in line]
    assert "starwind" not in euro
    assert not [line for line in lines if "of 7 patterns" in line and "USD" in line]
    assert [line for line in lines if "starwind-rdma-pve" in line and "USD" in line]


@pytest.mark.parametrize("runs", [1, 4])
def test_a_lead_is_shown_or_untested_as_it_was_measured(runs):
    rows = [
        {"system": name, "pattern": "4k-randread", "iodepth": 1, "block": n, "iops": level + n}
        for n, (name, level) in itertools.product(range(runs), {"ceph-pve": 1000, "drbd-tcp-pve": 9000}.items())
    ]
    cheap = said(pd.DataFrame(rows), dict.fromkeys(NAMES[:2], (10.0, "EUR")))[-1]
    assert "drbd-tcp-pve" in cheap
    assert ("single runs" in cheap) == (runs == 1)
    assert ("proven" in cheap) == (runs > 1)
