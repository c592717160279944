"""What a study's page and the index say of its runs, once (H3), and of files that nobody described (S1)."""

import shutil
from pathlib import Path

import pandas as pd
import pytest

import hcilib as hci
from hcilib.show.site.build import build


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("params")
    shutil.copy(hci.ROOT / "params/04_compare.box.yaml", folder / "04_compare.own.yaml")
    return build(folder, tmp_path_factory.mktemp("site"), 1, hci.ROOT)[0].parent


def test_runtime_working_set_and_drives_are_on_the_index_and_the_page_of_a_study(site):
    runs = hci.read_results([f"{hci.ROOT}/data/samples/box/box-{name}" for name in ("raid5", "drbd", "nvme-tcp")])
    said = f"of at least {runs['runtime_s'].min():.3g} s", f"of at least {runs['span_bytes'].min() / 2**20:g} MiB"
    for page in ("index.html", "study.yours.html"):
        assert all(text in (site / page).read_text("utf-8") for text in said)


def test_a_caveat_of_every_row_is_stated_once(site):
    page = (site / "study.yours.html").read_text("utf-8")
    part = page[page.index('id="under-test"') : page.index("</section>", page.index('id="under-test"'))]
    rows = pd.read_csv(site / "04_compare.own/iops.csv", keep_default_na=False)["warnings"]
    every = set.intersection(*(set(codes.split()) for codes in rows))
    assert every
    assert all(part.count(f"<li>{code}") == 1 for code in every)
    assert part.count("<li>") - part.count("<li><b>") == len(every)


def test_an_index_of_files_that_nobody_described_claims_nothing(tmp_path):
    """Two systems by their names: they are compared, and nobody said on what they ran."""
    for file in (hci.ROOT / "data/samples/loose-files").glob("*.json"):
        shutil.copy(file, tmp_path)
    params = tmp_path / "00_files.mine.yaml"
    names = "{system}_{pattern}_qd{iodepth}_r{rep}.json"
    params.write_text(f"path: {{path: '{tmp_path}/*.json', names: '{names}'}}\n")
    out = build([params], tmp_path / "out", 1, hci.ROOT)[0].parent
    for page in ("index.html", "study.yours.html"):
        text = (out / page).read_text("utf-8")
        assert "not compared" not in text
        assert "Real hardware" not in text
        assert "Hardware not stated" in text
