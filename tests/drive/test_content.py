"""What is written: the share that repeats and the share that compresses, asked of fio and counted in the file."""

import hashlib
import subprocess
import zlib

import pytest
from plain import plain_bed

from hcilib.drive.launch.job import job_text
from hcilib.model.patterns import Pattern
from hcilib.model.plan import Content, Step
from hcilib.model.testbed import Fio, Testbed
from hcilib.model.workload import Cell

SIZE, BLOCK = 16 * 2**20, 64 * 2**10


@pytest.fixture
def one_vm() -> Testbed:
    return plain_bed({"vm1": {"d1": SIZE}}, fio=Fio(ioengine="psync", direct=0))


def prefill(pattern: str = "64k-write") -> Step:
    return Step("prefill", Cell(Pattern.parse(pattern), 1, 8, 1), 0, 0, 0.0)


@pytest.mark.lab
@pytest.mark.parametrize(
    ("content", "unique", "size"), [(Content(40, 0), 0.6, 1.0), (Content(0, 50), 1.0, 0.5), (Content(), 1.0, 1.0)]
)
def test_fio_writes_the_shares_that_were_asked_for(programs, one_vm, tmp_path, content, unique, size):
    text = job_text(prefill(), one_vm.vms[0], one_vm, SIZE, {"d1": str(tmp_path / "disk")}, content)
    (tmp_path / "disk").write_bytes(bytes(SIZE))
    (tmp_path / "job").write_text(text)
    subprocess.run(["fio", "job"], cwd=tmp_path, check=True, capture_output=True)
    data = (tmp_path / "disk").read_bytes()
    blocks = [data[i : i + 4096] for i in range(0, SIZE, 4096)]
    assert len({hashlib.md5(b).digest() for b in blocks}) / len(blocks) == pytest.approx(unique, abs=0.1)
    sample = data[:: SIZE // BLOCK][:1] and [data[i : i + BLOCK] for i in range(0, SIZE, 16 * BLOCK)]
    assert sum(len(zlib.compress(b, 1)) for b in sample) / (len(sample) * BLOCK) == pytest.approx(size, abs=0.08)


def test_reads_and_unasked_content_change_nothing(one_vm):
    def options(pattern, content):
        return job_text(prefill(pattern), one_vm.vms[0], one_vm, SIZE, {"d1": "/dev/x"}, content)

    assert options("64k-read", Content(50, 50)) == options("64k-read", None)
    assert "dedupe" not in options("64k-write", None)
    assert "dedupe_percentage=50\nbuffer_compress_percentage=20" in options("64k-randrw50", Content(50, 20))
