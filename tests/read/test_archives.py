"""A committed campaign is one archive: it has the rows of its folder, and is unpacked once for each archive."""

import os
import shutil
import tarfile
from pathlib import Path

import pandas as pd
import pytest
import zstandard

import hcilib as hci
from hcilib.model.archives import pack, unpacked

SAMPLE = hci.ROOT / "data" / "samples" / "lab-mirror"


@pytest.fixture
def campaign(tmp_path) -> Path:
    folder = tmp_path / "lab-mirror"
    return Path(shutil.copytree(unpacked(SAMPLE), folder, ignore=shutil.ignore_patterns("tables", ".lock")))


def alone(campaign: Path) -> Path:
    """Leave the archive alone there."""
    archive = pack(campaign)
    shutil.rmtree(campaign)
    campaign.with_name(f".{campaign.name}.unpacked").unlink()
    return archive


def test_an_archive_gives_the_rows_of_its_folder(campaign):
    expected = hci.read_results(campaign)
    alone(campaign)
    pd.testing.assert_frame_equal(hci.read_results(campaign), expected)
    assert hci.verify(campaign).empty


def test_the_same_files_give_the_same_bytes(campaign):
    first = alone(campaign).read_bytes()
    os.utime(unpacked(campaign) / "plan.json", (1, 1))
    (campaign / "tables").mkdir(exist_ok=True)
    (campaign / "tables" / "cache").write_text("made")
    assert pack(campaign).read_bytes() == first


def test_it_is_unpacked_once_and_again_when_the_archive_is_new(campaign):
    archive = alone(campaign)
    (unpacked(campaign) / "note").write_text("mine")
    assert (unpacked(campaign / "plan.json").parent / "note").exists()
    other = pack(campaign)
    assert other == archive
    shutil.copyfile(archive, replacement := archive.with_name("new"))
    os.replace(replacement, archive)
    os.utime(archive, (1, 1))
    assert unpacked(campaign).joinpath("note").read_text() == "mine"
    (campaign / "note").write_text("changed since")
    os.utime(archive, (2, 2))
    assert unpacked(campaign).joinpath("note").read_text() == "mine"


@pytest.mark.needs("no root")
def test_where_its_folder_cannot_be_written_the_cache_has_it(campaign, monkeypatch, tmp_path_factory):
    expected = hci.read_results(campaign)
    alone(campaign)
    cache = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    campaign.parent.chmod(0o555)
    try:
        pd.testing.assert_frame_equal(hci.read_results(campaign), expected)
    finally:
        campaign.parent.chmod(0o755)
    assert (cache / "hcilib").is_dir()


def test_nothing_is_written_outside_the_campaign(tmp_path):
    with zstandard.open(tmp_path / "c.tar.zst", "wb") as stream, tarfile.open(fileobj=stream, mode="w|") as tar:
        tar.addfile(tarfile.TarInfo("../outside"))
    with pytest.raises(OSError, match="outside"):
        unpacked(tmp_path / "c")
    assert not (tmp_path / "outside").exists()
    assert not (tmp_path / "c").exists()
