"""A committed campaign is one archive: it has the rows of its folder, and is unpacked once, in the
user's cache."""

import os
import shutil
import tarfile
from pathlib import Path

import pandas as pd
import pytest
import zstandard

import hcilib as hci
from hcilib.drive.campaign.stopping import StopError, stop
from hcilib.model import archives
from hcilib.model.archives import pack, unpacked
from hcilib.model.places import at_home
from hcilib.read.run.journal import progress
from hcilib.read.run.run import samples

SAMPLE = samples()["lab-mirror"]


@pytest.fixture
def campaign(tmp_path) -> Path:
    return shutil.copytree(SAMPLE, tmp_path / "own" / "lab-mirror")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "hcilib" / "samples"


def alone(campaign: Path) -> Path:
    """Leave the archive alone there."""
    archive = pack(campaign)
    shutil.rmtree(campaign)
    return archive


def test_an_archive_gives_the_rows_of_its_folder_and_nothing_is_written_beside_it(campaign):
    expected = hci.read_results(campaign)
    archive = alone(campaign)
    pd.testing.assert_frame_equal(hci.read_results(campaign), expected)
    assert hci.verify(campaign).empty
    assert list(campaign.parent.iterdir()) == [archive]
    assert progress(campaign)["running"] is False
    with pytest.raises(StopError):
        stop(campaign)
    assert list(campaign.parent.iterdir()) == [archive]


def test_it_is_unpacked_once_for_each_content(campaign):
    archive = alone(campaign)
    first = unpacked(campaign)
    (first / "note").write_text("mine")
    os.utime(archive, (1, 1))
    assert unpacked(campaign / "note").read_text() == "mine"
    elsewhere = campaign.parents[1] / "other" / "lab-mirror"
    elsewhere.parent.mkdir()
    shutil.copy(archive, f"{elsewhere}.tar.zst")
    assert unpacked(elsewhere) == first, "the same bytes"
    changed = shutil.copytree(first, elsewhere)
    alone(changed)
    assert unpacked(elsewhere) != first, "a sample of the same name with another content"


def test_what_is_measured_goes_beside_an_archive_and_not_into_the_cache(campaign):
    alone(campaign)
    assert at_home(campaign, read=False) == campaign


class Zeros:
    def read(self, size: int) -> bytes:
        return bytes(size)


def entry(name: str, size: int = 0, **fields) -> tarfile.TarInfo:
    """Return an entry of any size: what it holds are zeros."""
    made = tarfile.TarInfo(name)
    made.size = size
    for field, value in fields.items():
        setattr(made, field, value)
    return made


HOSTILE = {
    "large": [entry("plan.json", 3 * 2**30)],
    "many large": [entry(f"steps/{n}", 2**28) for n in range(3)],
    "many": [entry(f"steps/{n}") for n in range(101)],
    "a large header": [entry("plan.json", pax_headers={"comment": "0" * 2**30})],
    "outside": [entry("../outside", 1)],
    "a link": [entry("plan.json", type=tarfile.SYMTYPE, linkname="/etc/passwd")],
    "a name that is none": [entry("a\0b", pax_headers={"path": "a\0b"})],
}


@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=[pytest.mark.deep] * (k == "a large header")) for k in HOSTILE]
)
def test_an_archive_that_is_no_campaign_is_refused_by_name_and_leaves_nothing(
    kind, tmp_path, cache, monkeypatch
):
    monkeypatch.setattr(archives, "MOST_FILES", 100)
    archive = tmp_path / "c.tar.zst"
    with zstandard.open(archive, "wb") as stream, tarfile.open(fileobj=stream, mode="w|") as tar:
        for one in HOSTILE[kind]:
            tar.addfile(one, Zeros())
    before = {file for file in tmp_path.rglob("*") if file.is_file()}
    with pytest.raises(OSError, match=str(archive)):
        hci.read_results(tmp_path / "c")
    assert {file for file in tmp_path.rglob("*") if file.is_file()} == before
    assert not list(cache.iterdir())
