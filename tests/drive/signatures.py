"""What marks a device as somebody's: the smallest bytes that the probes of util-linux recognise, written by hand."""

import os
import subprocess
import zlib
from pathlib import Path

from loops import MIB, SIZE


def write(device: Path | str, at: int, data: bytes) -> None:
    with open(device, "r+b") as file:
        file.seek(at)
        file.write(data)


def mbr(file: Path) -> None:
    """One partition of type Linux from sector 2048 on, in the classic table."""
    entry = bytes([0, 0, 0, 0, 0x83, 0, 0, 0]) + (2048).to_bytes(4, "little") + (8192).to_bytes(4, "little")
    write(file, 446, entry + bytes(48) + b"\x55\xaa")


def gpt(file: Path) -> None:
    entries = bytes(128 * 128)
    body = b"EFI PART" + bytes([0, 0, 1, 0]) + (92).to_bytes(4, "little") + bytes(8)
    last = SIZE // 512 - 1
    body += (
        b"".join(n.to_bytes(8, "little") for n in (1, last, 34, last - 33))
        + bytes(range(16))
        + (2).to_bytes(8, "little")
    )
    body += b"".join(n.to_bytes(4, "little") for n in (128, 128, zlib.crc32(entries)))
    header = body[:16] + zlib.crc32(body).to_bytes(4, "little") + body[20:]
    protective = bytes([0, 0, 2, 0, 0xEE, 0xFF, 0xFF, 0xFF]) + (1).to_bytes(4, "little") + last.to_bytes(4, "little")
    write(file, 446, protective + bytes(48) + b"\x55\xaa")
    write(file, 512, header)


def lvm(file: Path) -> None:
    """A physical volume's label in sector 1; its checksum is CRC-32 of another start, without the last inversion."""
    rest = (32).to_bytes(4, "little") + b"LVM2 001" + b"A" * 32 + bytes(512 - 64)
    checksum = zlib.crc32(rest + b"", 0xF597A6CF ^ 0xFFFFFFFF) ^ 0xFFFFFFFF
    write(file, 512, b"LABELONE" + (1).to_bytes(8, "little") + checksum.to_bytes(4, "little") + rest)


def md(file: Path) -> None:
    """A version 1.2 superblock, 4 KiB in; its checksum is the folded sum of its words."""
    block = bytearray(256)
    block[0:8] = (0xA92B4EFC).to_bytes(4, "little") + (1).to_bytes(4, "little")
    block[16:32] = bytes(range(16))
    block[144:152] = (8).to_bytes(8, "little")
    total = sum(int.from_bytes(block[i : i + 4], "little") for i in range(0, 256, 4))
    block[216:220] = ((total & 0xFFFFFFFF) + (total >> 32)).to_bytes(4, "little")
    write(file, 4096, bytes(block))


def zfs(file: Path) -> None:
    """Uberblocks in all four labels, on a disk as large as ZFS demands."""
    os.truncate(file, 64 * MIB)
    for label in (0, 256 * 1024, 64 * MIB - 512 * 1024, 64 * MIB - 256 * 1024):
        for i in range(16):
            write(
                file, label + 128 * 1024 + i * 1024, (0x00BAB10C).to_bytes(8, "little") + (5000).to_bytes(8, "little")
            )


def drbd(file: Path) -> None:
    """Internal metadata: DRBD keeps it at the end, where a look at the first bytes finds nothing."""
    write(file, SIZE - 4096 + 60, bytes.fromhex("8374026d"))


CONTENT = {
    "MBR": (mbr, "carries dos partition table"),
    "GPT": (gpt, "carries gpt partition table"),
    "LVM": (lvm, "carries LVM2_member"),
    "MD": (md, "carries linux_raid_member"),
    "ZFS": (zfs, "carries zfs_member"),
    "DRBD": (drbd, "carries drbd"),
    "OSD": (lambda file: write(file, 0, b"bluestore block device\n"), "carries ceph_bluestore"),
    "LUKS": (lambda file: write(file, 0, b"LUKS\xba\xbe\x00\x02" + bytes(4088)), "carries crypto_LUKS"),
    "EXT4": (lambda file: subprocess.run(["mkfs.ext4", "-qF", file], check=True), "carries ext4"),
    "SWAP": (lambda file: subprocess.run(["mkswap", "-q", file], check=True), "carries swap"),
}
"""Serial -> what is written on the medium, and what the guard says of it."""
