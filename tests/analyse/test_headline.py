import re

import numpy as np
import pandas as pd
import pytest

from hcilib.analyse.compare.chosen import load_factors
from hcilib.analyse.compare.compare import compare
from hcilib.analyse.compare.overall import headline
from hcilib.analyse.curves.winners import winners
from hcilib.model.caveats import NONE, Caveat, Caveats
from hcilib.read.published import published

NOISE = np.array([-0.01, 0.0, 0.01])
SHAKY = np.array([-0.2, 0.0, 0.2])


def grid(noise=NOISE, pattern="4k-randread", **ratios):
    """Systems against a, one cell an iodepth: b=[0.5, 0.6] is half of a at iodepth 1 and 60 % of it at 2."""
    cells = [(name, 2**i, 100.0 * r) for name, each in ratios.items() for i, r in enumerate(each) if r]
    cells += [("a", 2**i, 100.0) for i in range(max(map(len, ratios.values())))]
    return pd.concat(
        pd.DataFrame({"system": s, "pattern": pattern, "iodepth": q, "iops": level * (1 + noise)})
        for s, q, level in cells
    )


def said(results, challenger="b", **options):
    return headline(compare(results, "a", **options), challenger, {"b": "Beta", "a": "Alpha"})


def test_the_system_first_then_how_much_how_sure_and_how_often():
    text = said(grid(b=[0.5, 0.5, 0.5]))
    assert re.fullmatch(r"Beta against Alpha: reads 50\.0 % slower \(4\d\.\d to 5\d\.\d %, 3 of 3 tests\)\.", text)
    far = said(grid(b=[0.5, 0.6, 0.55]))
    assert far == "Beta against Alpha: reads 40.0 to 50.0 % slower (3 of 3 tests, each at 95 %)."
    same = said(grid(noise=NOISE / 10, b=[1.0, 1.001]))
    assert same == "Beta against Alpha: reads as fast within 1 % (2 of 2 tests)."


def test_other_metrics_in_their_own_words():
    slow = grid(b=[2.0, 2.0]).rename(columns={"iops": "lat_ns"})
    assert said(slow, metric="lat_ns").startswith("Beta against Alpha: mean latency of reads 100.0 % higher (9")
    same = grid(noise=NOISE / 10, b=[1.0, 1.0]).rename(columns={"iops": "lat_ns"})
    assert "mean latency of reads the same within 1 % (2 of 2 tests)" in said(same, metric="lat_ns")


def test_an_undecided_cell_hides_no_decided_one_and_says_what_would_decide_it():
    both = pd.concat([grid(b=[0.5, 0.5]), grid(noise=SHAKY, pattern="4k-randwrite", b=[0.8])])
    text = said(both)
    assert text.startswith("Beta against Alpha: reads 50.0 % slower (")
    assert "Not decided: writes (1 of 1 test, ratio 0.800); about " in text
    assert re.search(r"about \d+ runs a cell would decide it, 3 were made\.", text)
    alone = said(grid(noise=SHAKY, b=[0.8]))
    assert alone.startswith("Beta against Alpha: not decided: reads (1 of 1 test, ratio 0.800); about ")


def test_some_tests_of_a_kind_are_counted_against_all_of_it():
    rows = pd.concat([grid(b=[0.5, 0.5]), grid(noise=SHAKY, pattern="1m-read", b=[0.9])])
    text = said(rows)
    assert "reads 50.0 % slower in 4k random read (" in text
    assert "2 of 3 tests)" in text
    assert "Not decided: reads in 1M read (1 of 3 tests" in text


def test_each_challenger_has_a_line_of_its_own():
    lines = headline(compare(grid(b=[0.5, 0.5], c=[2.0, 2.0]), "a")).splitlines()
    assert [line.partition(":")[0] for line in lines] == ["b against a", "c against a"]
    assert "100.0 % faster" in lines[1]
    assert headline(compare(grid(b=[0.5]), "a").iloc[:0]).startswith("No system was measured beside the baseline")


def test_of_more_than_two_systems_the_first_line_counts_the_patterns_of_each():
    patterns = {"4k-randread": {"b": [2.0], "c": [0.7]}, "4k-randwrite": {"b": [0.5], "c": [0.4]}}
    for noise, sure in ((np.zeros(1), "untested"), (NOISE, "2 of 2 shown by a test")):
        three = pd.concat(grid(noise, pattern, **ratios) for pattern, ratios in patterns.items())
        table = compare(three, "a")
        first, *rest = headline(table, labels={"a": "Alpha"}, winners=winners(three)).splitlines()
        assert first == f"Alpha has the highest IOPS in 1 of 2 patterns, b in 1, c in none, {sure}."
        assert rest == headline(table, labels={"a": "Alpha"}).splitlines()
    two = three[three["system"] != "c"]
    assert headline(compare(two, "a"), winners=winners(two)) == headline(compare(two, "a"))


def test_printed_means_are_counted_and_never_proven():
    point = said(grid(noise=np.zeros(1), b=[0.5, 3.0, 2.0]))
    assert point == (
        "Beta leads Alpha in 2 of 3 tests of IOPS (2.00 to 3.00 times), trails in 1 (0.50 times); each is one printed "
        "number or run, so none is proven."
    )
    one = said(grid(noise=np.zeros(1), b=[0.5]))
    assert one == (  # whoever leads is the subject
        "Alpha leads Beta in 1 of 1 test of IOPS (2.00 times); it is one printed number or run, so it is not proven."
    )


@pytest.mark.parametrize("metric", ["iops", "lat_ns"])
@pytest.mark.parametrize(
    ("article", "baseline"),
    [("proxmox-2node-hci", "starwind-rdma-pve"), ("starwind-s2d-rdma-hyperv", "starwind-rdma-hyperv")],
)
def test_each_side_of_single_numbers_has_its_own_range_worked_out_again_from_the_table(article, baseline, metric):
    table = compare(published().query("source == @article and vms > 1"), baseline, metric)
    for challenger, rows in table.dropna(subset=["ratio"]).groupby("system"):
        text = headline(table, challenger)
        better = rows["ratio"] if metric == "iops" else 1 / rows["ratio"]
        challenger_leads = text.startswith(challenger)
        ratios = rows["ratio"] if challenger_leads else 1 / rows["ratio"]
        ahead = (better > 1) == challenger_leads
        for word, side in (("leads", ratios[ahead & (better != 1)]), ("trails", ratios[~ahead & (better != 1)])):
            counted = re.search(rf"{word} (?:\S+ )?in (\d+)[^(,]* \(([\d.]+)(?: to ([\d.]+))? times\)", text)
            assert (counted is None) == side.empty, text
            if counted:
                count, low, high = counted.groups()
                assert int(count) == len(side)
                assert float(low) == pytest.approx(side.min(), abs=0.0051)
                assert float(high or low) == pytest.approx(side.max(), abs=0.0051)
                assert (float(low) - 1) * (side.iloc[0] - 1) > 0, "a side is not printed as 1.00"


def test_what_is_nearly_level_is_not_printed_as_level():
    assert "(1.002 to 2.000 times)" in said(grid(noise=np.zeros(1), b=[1.002, 2.0]))


def test_a_printed_mean_that_trails_beside_runs_is_not_said_to_lead_in_none():
    both = pd.concat([grid(b=[0.5]), grid(np.zeros(1), "4k-randwrite", b=[0.7])])
    assert "It trails in 1 of 1 test of IOPS (0.70 times); it is one printed number or run" in said(both)


def test_what_no_run_can_is_said_last():
    gap = said(grid(b=[0.5, 0.5, None]))
    assert gap.endswith("1 test of 3 has no ratio: a system was not measured there.")
    apart = pd.concat([grid(b=[1.0]).query("system == 'a'"), grid(b=[1.0]).query("system == 'b'").assign(iodepth=8)])
    assert said(apart) == (
        "Beta against Alpha: no test in common with a ratio of IOPS, nothing to compare: "
        "of Alpha there is iodepth 1, of Beta 8."
    )
    demands = grid(b=[1.0]).assign(
        vms=1, numjobs=1, demand=lambda t: np.where(t["system"] == "b", "800iops", "1000iops")
    )
    asked = load_factors(demands)
    assert "demand" in asked
    assert said(demands, by=asked).endswith(": of Alpha there is demand 1000iops, of Beta 800iops.")
    unlike = grid(b=[0.5]).assign(nodes=lambda t: np.where(t["system"] == "b", 3, 2))
    assert said(unlike).endswith("No run can tell how much of it is due to nodes (3 v 2).")


def test_what_the_drives_rates_say_stands_beside_it():
    rows = pd.concat([grid(b=[0.5, 0.5], noise=NOISE / 10), grid(pattern="4k-randwrite", noise=NOISE / 10, b=[1.0])])
    found = compare(rows, "a")
    right = headline(found, "b", truth={"4k-randread": 0.5, "4k-randwrite": 1.0})
    assert right.endswith("writes as fast within 1 % (1 of 1 test); as the drives' rates say (50.0 %, 0.0 %).")
    wrong = headline(found, "b", truth={"4k-randread": 0.6})
    assert "; but the drives' rates say 40.0 % lower for reads, outside 0.49" in wrong
    table = pd.DataFrame({"system": ["b"], "pattern": ["4k-randread"], "iodepth": [1], "ratio": [0.5]})
    assert "; as the drives' rates say (50.0 %)." in headline(found, "b", truth=table)


def test_what_the_drives_rates_say_is_not_denied_by_what_nobody_calls_a_difference():
    """Measured in the lab, one copy against two: 50.0 % (50.0 to 50.1 %) where the rates say 50.0."""
    one, two = (1057.690407, 1057.409655, 1057.758695, 1057.760236), (528.651608, 528.473491, 528.383084, 528.451937)
    sides = [pd.DataFrame({"system": name, "iops": iops, "pair": range(4)}) for name, iops in (("a", one), ("b", two))]
    runs = pd.concat(sides).assign(pattern="4k-randwrite", iodepth=8, run_id="c", block=lambda t: t["pair"])
    found = compare(runs, "a")
    assert 0.4999 < found["ratio_hi"].iloc[0] < 0.5, "the interval leaves it out"
    assert headline(found, "b", truth={"4k-randwrite": 0.5}).endswith("; as the drives' rates say (50.0 %).")
    assert "; but the drives' rates say 49.9 % lower" in headline(found, "b", truth={"4k-randwrite": 0.501})


def test_a_challenger_that_was_not_compared_is_named():
    with pytest.raises(
        ValueError, match="challenger is 'bb', which was not compared; compared with the baseline are: b, c"
    ):
        said(grid(b=[0.5], c=[0.5]), "bb")


def test_a_lab_whose_processors_were_at_their_end_asks_for_a_quieter_or_a_slower_one():
    hot = Caveats([Caveat("busy", "a node's CPU was above 90 %")])
    rows = grid(b=[0.5, 0.5])
    rows["warnings"] = [
        hot if (s, q) == ("b", 2) else NONE for s, q in zip(rows["system"], rows["iodepth"], strict=True)
    ]
    text = said(rows)
    assert text.startswith("Beta against Alpha: reads 50.0 % slower ("), "what was decided stands, and first"
    assert text.endswith(
        "In 1 of 2 tests a node's CPU was above 90 %: measure it again on a quieter machine, or with the lab's drives "
        "dialled slower."
    )
    assert "above 90 %" not in said(grid(b=[0.5, 0.5]))
