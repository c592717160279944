"""A warning is a value: it has a code, travels with its row, and becomes text at the end."""

import ast
import pickle
from functools import cache
from pathlib import Path
from string import Formatter

import pandas as pd
import pytest

import hcilib as hci
from hcilib import caveats
from hcilib.model.caveats import (
    CODE,
    LEFT_OUT,
    NONE,
    PERCENTILES,
    THIN_TAIL,
    THINKTIME,
    Caveat,
    Caveats,
    column,
    warnings_of,
)
from hcilib.say.caveats import TEXTS, caveat, text_of
from hcilib.show.report.export import as_csv, as_parquet

FEW, LATE = Caveat("two-runs", "n = 2"), Caveat("not-steady", "not steady", detail=": 4k-randwrite; after 6 h")


def test_each_is_said_once_in_the_order_found():
    said = Caveats([FEW, LATE, FEW])
    said += [LATE, Caveat("zero", "no I/O")]
    assert said.words == "n = 2; not steady: 4k-randwrite; after 6 h; no I/O"
    assert said == "two-runs: n = 2 | not-steady: not steady ·: 4k-randwrite; after 6 h | zero: no I/O"
    assert (said.codes, LATE.brief) == ({"two-runs", "not-steady", "zero"}, "not steady")
    assert str(next(iter(said.of("a").of("b")))) == "b: a: n = 2"


def test_they_neither_change_nor_lose_their_kind():
    with pytest.raises(AttributeError):
        FEW.code = "other"  # type: ignore[misc]
    assert pickle.loads(pickle.dumps(Caveats([FEW]))) == Caveats([FEW])
    assert isinstance(pickle.loads(pickle.dumps(Caveats([FEW]))), Caveats)


@pytest.mark.parametrize("rows", [[], [NONE, NONE], [Caveats([FEW]), Caveats([LATE])], [NONE, Caveats([FEW, LATE])]])
def test_a_column_has_a_row_each_whatever_their_lengths(rows):
    assert column(rows).tolist() == rows


def test_a_table_that_was_written_down_has_the_same_codes_and_words():
    assert [caveats(v).codes for v in ("", float("nan"), None, pd.NA)] == [frozenset()] * 4
    assert caveats("n = 2; not steady").found == (Caveat("text", "n = 2; not steady"),)
    assert caveats(str(Caveats([FEW, LATE]))).found == (FEW, LATE), "as after a trip through a file"
    assert warnings_of(pd.DataFrame({"iops": [1.0, 2.0]})).tolist() == [NONE, NONE]


def test_downloads_hold_the_text(tmp_path):
    frame = pd.DataFrame({"n": [2, 3], "warnings": column([Caveats([FEW, LATE]), NONE])})
    text = "two-runs: n = 2 | not-steady: not steady ·: 4k-randwrite; after 6 h"
    assert as_csv(frame) == f"n,warnings\n2,{text}\n3,\n"
    assert as_parquet(frame)
    assert frame.to_csv(index=False) == as_csv(frame)


def test_every_row_of_the_analyses_carries_values():
    results = hci.published().query("source == 'proxmox-2node-hci' and pattern == '1m-read' and vms > 1")
    found = hci.compare(results, "starwind-rdma-pve")
    for table in (
        results,
        found,
        hci.summarize(results),
        hci.overall(found),
        hci.rank(results),
        hci.peak(results),
    ):
        assert all(isinstance(row, str) for row in table["warnings"])
    assert hci.summarize(results)["warnings"].map(lambda said: "single-run" in caveats(said).codes).all()


# ---- The list of their texts

ADDED = {"caveat": set(), "text_of": set(), "runs_that": {"runs"}, "_ask": {"notes", "campaign"}}
"""Function that takes a key -> the fields that it adds itself."""


@cache
def trees() -> dict[Path, ast.AST]:
    """Every file of hcilib but the two that define and list caveats, by its path in there."""
    home = Path(hci.__file__).parent
    files = (file for file in home.rglob("*.py") if file.name != "caveats.py")
    return {file.relative_to(home): ast.parse(file.read_text(encoding="utf-8")) for file in files}


def calls(*names: str) -> list[tuple[Path, ast.Call]]:
    """Every call of functions of these names."""
    nodes = ((file, node) for file, tree in trees().items() for node in ast.walk(tree))
    return [(file, node) for file, node in nodes if isinstance(node, ast.Call) and name_of(node) in names]


def name_of(call: ast.Call) -> str:
    return getattr(call.func, "id", getattr(call.func, "attr", ""))


def texts_in(tree: ast.AST) -> set[str]:
    return {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def fields_of(text: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(text) if name}


def test_every_text_is_used():
    """A dictionary may have the key, in the rooms that find caveats; other rooms match on codes."""
    users = [tree for file, tree in trees().items() if file.parts[0] in ("analyse", "read")]
    assert not TEXTS.keys() - set().union(*map(texts_in, users))


def test_every_call_has_a_text_and_fills_its_fields():
    checked = 0
    for file, call in calls(*ADDED):
        given = {keyword.arg for keyword in call.keywords}
        for key in texts_in(call.args[0]) if None not in given else ():
            assert (given - {"about"}) | ADDED[name_of(call)] == fields_of(TEXTS[key]), f"{file}:{call.lineno} {key}"
            checked += 1
    assert checked > 100


def test_no_caveat_is_written_outside_the_list():
    """A cache may build again what it has kept."""
    found = [(file, call) for file, call in calls("Caveat") if [k.arg for k in call.keywords] != [None] or call.args]
    assert not [f"{file}:{call.lineno}" for file, call in found]


def test_a_key_is_the_code_and_says_which_text():
    codes = {key.partition("/")[0] for key in TEXTS}
    assert {THIN_TAIL, LEFT_OUT, PERCENTILES, THINKTIME} <= codes
    assert not [code for code in codes if not CODE.fullmatch(f"{code}: ")]
    several = {key.partition("/")[0] for key in TEXTS if "/" in key}
    assert not several & TEXTS.keys(), "of several texts of a code each has a word behind the slash"


def test_a_caveat_has_its_fields_and_its_detail_filled():
    seen = caveat("not-seen/value", about="ceph", unseen=1, runs=3)
    assert (seen.code, seen.detail.split()[1:4], seen.about) == ("not-seen", ["1", "of", "3"], "ceph")
    assert text_of("not-seen/value", unseen="{runs}|", runs=3) == seen.text + seen.detail.replace("1", "{runs}|")
    with pytest.raises(KeyError):
        caveat("no-such-code")
    with pytest.raises(KeyError):
        caveat("not-seen/value", unseen=1)
