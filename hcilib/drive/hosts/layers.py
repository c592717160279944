"""Every block layer of Linux nodes and VMs while a step runs: the kernel's counts as they are, and once a step what is
built on what. Nothing here stops a step: of a host that does not answer the rows are missing, and a remark says so."""

from __future__ import annotations

import contextlib
import csv
import json
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from hcilib.drive.hosts.hosts import Fleet, Outcome, explain, sections
from hcilib.read.nodes import layers as read

DISKSTATS, BOOT = "/proc/diskstats", "/proc/sys/kernel/random/boot_id"
LIMIT_S, CHAIN_S = 10.0, 60.0
# Plain sh; the shell's own `read`, as each process takes long on a busy node.
CHAIN = r"""
LC_ALL=C; export LC_ALL; PATH=$PATH:/usr/sbin:/sbin; export PATH
echo '==== links'; ls -l /sys/class/block
echo '==== devices'
for d in /sys/class/block/*; do
  printf 'name=%s' "${d##*/}"
  for f in md/level dm/name wwid device/wwid device/subsysnqn nsid; do
    v=; [ -r "$d/$f" ] && read -r v 2>/dev/null <"$d/$f"
    printf '\t%s=%s' "$f" "$v"
  done
  printf '\tslaves='; for s in "$d"/slaves/*; do [ -e "$s" ] && printf '%s ' "${s##*/}"; done
  printf '\tpartitions='
  for p in "$d"/*/partition; do [ -e "$p" ] && p=${p%/partition} && printf '%s ' "${p##*/}"; done
  echo
done
echo '==== drbd'; drbdsetup events2 --now 2>/dev/null
echo '==== exports'
for f in /sys/kernel/config/nvmet/subsystems/*/namespaces/*/device_path /sys/kernel/config/target/core/*/*/udev_path; do
  p=; [ -r "$f" ] && read -r p 2>/dev/null <"$f"
  s=; [ -r "${f%/*}/wwn/vpd_unit_serial" ] && read -r s 2>/dev/null <"${f%/*}/wwn/vpd_unit_serial"
  [ -n "$p" ] && echo "$(readlink -f "$p") $p ${f#/sys/kernel/config/} $s"
done
echo '==== end'
"""


class LayerLog:
    """Rows of layers.csv. A row stands for all samples until the device's next one; a device that counted nothing has
    none. Of hosts on one kernel the first is kept."""

    def __init__(self, fleet: Fleet, file: IO[str]):
        self._fleet, self._rows = fleet, csv.writer(file)
        self._rows.writerow(read.LAYER_COLUMNS)
        self._lock = threading.Lock()
        self._boots: dict[str, bytes] = {}
        self._kernels: dict[bytes, str] = {}
        self._last: dict[tuple[str, str], tuple[float, read.Counts]] = {}
        self._written: dict[tuple[str, str], float] = {}

    def add(self, host: str, t_s: float, diskstats: str) -> None:
        """Take one sample; `t_s` is the epoch second by the controller's clock."""
        if host not in self._boots:
            self._boots[host] = host.encode()
            with contextlib.suppress(Exception):
                self._boots[host] = self._fleet.read_now(host, BOOT)
        with self._lock:
            if self._kernels.setdefault(self._boots[host], host) != host:
                return
            for device, counts in read.parse_layers(diskstats).items():
                self._add((host, device), t_s, counts)

    def _add(self, place: tuple[str, str], t_s: float, counts: read.Counts) -> None:
        before = self._last.setdefault(place, (t_s, counts))
        if before[1] != counts:
            if place not in self._written:
                self._write(place, *before)
            self._write(place, t_s, counts)
        if place in self._written:
            self._last[place] = (t_s, counts)

    def close(self) -> dict[str, list[str]]:
        """Write the last sample of every device that counted something; host -> these devices."""
        moved: dict[str, list[str]] = {}
        for place, written_s in list(self._written.items()):
            moved.setdefault(place[0], []).append(place[1])
            if self._last[place][0] > written_s:
                self._write(place, *self._last[place])
        return moved

    def _write(self, place: tuple[str, str], t_s: float, counts: read.Counts) -> None:
        self._rows.writerow([place[0], t_s, place[1], *counts])
        self._written[place] = t_s


def sample_once(fleet: Fleet, hosts: Sequence[str], log: LayerLog) -> dict[str, str]:
    """Read /proc/diskstats of these hosts, each on its own connection; host -> why it did not answer."""

    def each(host: str) -> tuple[float, str]:
        text = fleet.read_now(host, DISKSTATS).decode()
        return time.time(), text

    outcomes = fleet.each(hosts, each, limit_s=LIMIT_S)
    for host, outcome in outcomes.items():
        if outcome.ok:
            log.add(host, *outcome.value)
    return {host: outcome.error for host, outcome in outcomes.items() if not outcome.ok}


def sample_vms(fleet: Fleet, vms: Sequence[str], log: LayerLog, every_s: float, stop: threading.Event) -> list[str]:
    """Read /proc/diskstats of these VMs, each on its own connection, until told to stop; a remark for each that did
    not always answer."""
    silent: dict[str, list[str]] = {}
    is_over = not vms
    while not is_over:
        started = time.monotonic()
        for vm, error in sample_once(fleet, vms, log).items():
            silent.setdefault(vm, []).append(error)
        is_over = stop.wait(max(0.0, every_s - (time.monotonic() - started)))
    return [f"{vm}: {len(why)} samples of its block layers are missing: {why[-1]}" for vm, why in silent.items()]


def note_chains(
    fleet: Fleet,
    tested: Mapping[str, Sequence[str]],
    moved: Mapping[str, Sequence[str]],
    remarks: Sequence[str],
    file: Path,
) -> None:
    """Ask every host that counted something what is built on what, after the run, and write it down (layers.json)."""
    try:
        answers = fleet.run(CHAIN, list(moved), limit_s=CHAIN_S)
    except Exception as error:  # the step is measured: its layers are not worth losing it
        answers = {host: Outcome(host, False, error=explain(error)) for host in moved}
    hosts = {host: _chain(answer, tested.get(host, ()), moved[host]) for host, answer in answers.items()}
    content = {"tested": {host: list(devices) for host, devices in tested.items()}, "hosts": hosts}
    file.write_text(json.dumps(content | {"remarks": list(remarks)}, indent=1))


def _chain(answer: Outcome, tested: Sequence[str], moved: Sequence[str]) -> dict:
    try:
        if not answer.ok:
            raise ValueError(answer.error)
        parts = sections(answer.value)
        if "end" not in parts:
            raise ValueError("its answer ends early")
        return read.kept(read.parse_chain(parts), tested, moved)
    except (ValueError, KeyError) as error:
        return {"error": str(error) or repr(error)}
