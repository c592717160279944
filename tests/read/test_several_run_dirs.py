"""The tables of several run directories, one under the other; published tables hold no runs to look into."""

import shutil

import pandas as pd

import hcilib as hci
from hcilib import read_hosts, read_series


def test_several_run_directories_are_read_in_order():
    paths = list(hci.samples().values())[:2]
    both = read_hosts(paths)
    one_by_one = pd.concat([read_hosts(p) for p in paths], ignore_index=True)
    pd.testing.assert_frame_equal(
        both, one_by_one, check_dtype=False, check_categorical=False, check_like=True
    )  # categories: each has its own
    assert both["run_id"].drop_duplicates().tolist() == [p.name for p in paths]


def test_published_tables_hold_no_series():
    published = hci.ROOT / "data" / "published"
    assert read_series(published).empty
    assert read_series([published, published / "scaling.csv"]).empty


def test_two_campaigns_in_folders_of_one_name_are_told_apart(tmp_path):
    samples = hci.samples()
    first = shutil.copytree(samples["lab-single"], tmp_path / "monday" / "single")
    second = shutil.copytree(samples["lab-single-2"], tmp_path / "tuesday" / "single")
    third = samples["lab-mirror"]
    results = hci.read_results([first, second, third])
    names = ["monday/single", "tuesday/single", "lab-mirror"]
    assert results["run_id"].drop_duplicates().tolist() == names
    assert hci.read_hosts([first, second, third])["run_id"].drop_duplicates().tolist() == names
    assert hci.summarize(results.query("system == 'lab-single'"), "iops")["n"].min() == 8
