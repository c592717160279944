"""A warning is a code in a row, and the list says once what it means."""

import ast
from functools import cache
from pathlib import Path

import pandas as pd
import pytest

import hcilib as hci
from hcilib.read.run.run import samples

LIST = pd.read_csv(Path(hci.__file__).parent / "model/caveats.csv", keep_default_na=False)


@cache
def texts() -> set[str]:
    """Return every text constant of the rooms that find caveats."""
    home = Path(hci.__file__).parent
    files = [file for room in ("analyse", "read", "model") for file in (home / room).rglob("*.py")]
    files.append(home / "explanation.py")
    nodes = [node for file in files for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))]
    return {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def test_each_code_has_one_row_with_a_meaning_and_no_code_is_unused():
    assert LIST["code"].is_unique
    assert LIST["code"].str.fullmatch("[a-z]+(-[a-z]+)*").all()
    assert LIST["severity"].isin(["failed", "missing", "doubt", "note"]).all()
    assert LIST["meaning"].str.endswith(".").all()
    assert set(LIST["code"]) <= texts()


@pytest.mark.parametrize("name", ["lab-single", "lab-mirror"])
def test_every_code_of_a_campaign_and_of_what_is_made_of_it_is_in_the_glossary(name):
    results = hci.read_results(samples()[name])
    tables = results, hci.summarize(results), hci.peak(results), hci.rank(results)
    found = {code for table in tables for codes in table["warnings"] for code in codes.split()}
    assert set(hci.glossary(*tables)["code"]) == found
    assert found


def test_a_table_without_warnings_has_an_empty_glossary_and_an_unknown_code_is_refused():
    assert hci.glossary(pd.DataFrame({"iops": [1.0]})).empty
    with pytest.raises(KeyError, match="no-such-code"):
        hci.glossary(pd.DataFrame({"warnings": ["busy no-such-code"]}))
