"""The table of refusals on loop devices: as root, and as an account of group disk."""

import contextlib
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from loops import MIB, SIZE, Media, hosts_in
from refusals import TAKERS, USES, Stack, Use, refuse_a_program, refuse_at_a_step, refuse_at_the_start
from signatures import CONTENT, gpt, write

pytestmark = [pytest.mark.lab, pytest.mark.needs("setpriv", "blkdiscard")]
PYTHON = "/usr/bin/python3"
RESIZED = "truncate -s {} $(cat /sys/block/$(basename {{d}})/loop/backing_file) && losetup -c {{d}}"
ON_LOOPS = USES | {
    "not counted": Use("echo 0 >/sys/block/$(basename {d})/queue/iostats",
                       "echo 1 >/sys/block/$(basename {d})/queue/iostats", "uncounted", "uncounted"),
    "other size": Use(RESIZED.format(SIZE + MIB), RESIZED.format(SIZE), "size", "size"),
}  # fmt: skip


def rest(file: Path) -> None:
    """A partition table of which only the end is left, as by whoever wrote a disk's beginning by mistake."""
    gpt(file)
    header = file.read_bytes()[512:1024]
    write(file, 0, bytes(1024))
    write(file, SIZE - 512, header)


SIGNATURES = {name: make for name, (make, _) in CONTENT.items() if name != "ZFS"} | {"the end of a GPT": rest}
"""ZFS asks for a larger disk (test_keeper)."""


@pytest.fixture(scope="module", params=["root", "group disk"])
def stack(request, machine, tmp_path_factory):
    """A disk that every test leaves without a use, and the account whose process holds it."""
    folder = tmp_path_factory.mktemp("stack")
    hosts, python = hosts_in(machine, folder / "hosts"), folder / "python"
    python.write_text(f'#!/bin/sh\nexec setpriv --reuid=65534 --regid=disk --clear-groups {PYTHON} "$@"\n')
    python.chmod(0o755)
    with contextlib.closing(Media(folder)) as media:
        hosts.give("vm1", "B1", file := media.file("b1.img"))
        device = media.attach(file)
        shutil.chown(device, group="disk")
        os.chmod(device, 0o660)
        account = {"root": ("python3", ()), "group disk": (str(python), ("unflushed",))}
        of, always = account[request.param]
        testbed = hosts.testbed(("vm1", "B1"), python=of)
        with hosts.fleet(testbed) as fleet:
            yield Stack(fleet, testbed, always)


def test_an_account_that_fio_cannot_work_as_is_told(stack):
    """It may read and write the disk, and not drop the kernel's cache of it."""
    with stack.held() as lease:
        assert replace(stack, always=()).words(lease) == [*stack.always]


@pytest.mark.parametrize("use", ON_LOOPS)
def test_a_use_is_refused_at_the_start(use, stack):
    refuse_at_the_start(stack, ON_LOOPS[use])


@pytest.mark.parametrize("use", ON_LOOPS)
def test_a_use_is_refused_at_a_step(use, stack):
    refuse_at_a_step(stack, ON_LOOPS[use])


@pytest.mark.parametrize("taker", TAKERS)
def test_a_held_disk_is_given_to_no_program(taker, stack):
    before = Path(stack.device).read_bytes()
    refuse_a_program(stack, taker)
    assert Path(stack.device).read_bytes() == before


@pytest.mark.parametrize("signature", SIGNATURES)
def test_a_signature_is_refused_at_the_start_and_at_a_step(signature, stack, media):
    """What makes one asks for a held disk alone, and is refused; so it is planted by a plain write."""
    SIGNATURES[signature](marked := media.file("marked.img"))
    try:
        with stack.held() as lease:
            assert stack.words(lease) == []
            write(stack.device, 0, marked.read_bytes())
            assert stack.words(lease) == ["carries"]
        with stack.held() as lease:
            assert stack.words(lease) == ["carries"]
    finally:
        write(stack.device, 0, bytes(SIZE))
