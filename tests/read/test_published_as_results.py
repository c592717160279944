"""`read_results` on one of the articles' tables."""

import shutil

import pandas as pd

from hcilib import published
from hcilib.read.published import PUBLISHED
from hcilib.read.run.results import read_results


def test_results_file_and_folder_are_the_same_table():
    pd.testing.assert_frame_equal(read_results(PUBLISHED / "results.csv"), published())
    pd.testing.assert_frame_equal(read_results(PUBLISHED), published())


def test_a_copy_is_read_from_where_it_lies(tmp_path):
    copy = shutil.copy(PUBLISHED / "scaling.csv", tmp_path / "scaling.csv")
    text = copy.read_text()
    copy.write_text(text.replace(",1700000,", ",1717000,"))
    assert read_results(copy)["iops"].max() == 1_717_000
    assert read_results(PUBLISHED / "scaling.csv")["iops"].max() == 1_700_000
