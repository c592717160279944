"""The tables of several run directories, one under the other; published tables hold no runs to look into."""

import pandas as pd

import hcilib as hci
from hcilib.read.run import read_hosts, read_series


def test_several_run_directories_are_read_in_order():
    paths = list(hci.samples().values())[:2]
    both = read_hosts(paths)
    one_by_one = pd.concat([read_hosts(p) for p in paths], ignore_index=True)
    pd.testing.assert_frame_equal(
        both, one_by_one, check_dtype=False, check_categorical=False
    )  # categories: each has its own
    assert both["run_id"].drop_duplicates().tolist() == [p.name for p in paths]


def test_published_tables_hold_no_series():
    published = hci.ROOT / "data" / "published"
    assert read_series(published).empty
    assert read_series([published, published / "scaling.csv"]).empty
