"""The daemons of a Ceph cluster on loopback: its configuration, what is started in which order until it can be written
to, and how they are asked.

One monitor and one manager on the first node, one BlueStore OSD on each node over a sparse file, no authentication
(nothing but loopback is ever listened on). Options that are not Ceph's own defaults stand in `OPTIONS` with their
reason. The monitor is asked over Ceph's own C library, and on its own socket until it leads.
"""

from __future__ import annotations

import configparser
import contextlib
import ctypes
import json
import os
import subprocess
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from hcilab.ceph_daemons import MON_PORT, admin, read_config
from hcilab.lab_hosts import Keeper, LabError, Waiting

PATIENCE_S = 60.0
DATA, META, GROUPS = "box", "box-meta", 32
LIBRARY, LIMIT_S = "librados.so.2", 20

OPTIONS = {
    "mon_initial_members": "a",
    "ms_bind_msgr1": "false",  # one copy of the protocol: the old one would listen on as many ports again
    **dict.fromkeys(("auth_cluster_required", "auth_service_required", "auth_client_required"), "none"),
    "osd_pool_default_size": "2",
    # One copy is enough to go on: otherwise a killed OSD would stop the cluster instead of degrading it.
    "osd_pool_default_min_size": "1",
    "osd_pool_default_pg_autoscale_mode": "off",
    "mon_allow_pool_delete": "true",
    "mon_allow_pool_size_one": "true",  # for the reference: a pool without a second copy
    "auth_allow_insecure_global_id_reclaim": "false",
    # A shared disk is not to be judged as the monitor's own.
    "mon_data_avail_warn": "2",
    "mon_data_avail_crit": "1",
    # One-second ticks: a new state is seen within a second, in place of five.
    **dict.fromkeys(("mgr_tick_period", "mgr_stats_period", "mon_tick_interval", "osd_mon_report_interval"), "1"),
    "paxos_propose_interval": "0.1",
    # A silent OSD is called down after six seconds, by any one witness: there are two or three of them.
    "osd_heartbeat_interval": "1",
    "osd_heartbeat_grace": "6",
    "mon_osd_adjust_heartbeat_grace": "false",
    "mon_osd_min_down_reporters": "1",
    # Resync as fast as it goes: it is measured, not waited for.
    "osd_recovery_sleep": "0",
    "osd_recovery_max_active": "16",
    "osd_max_backfills": "8",
    # A client that was killed holds its image no longer than this: the next step would wait for it.
    "osd_client_watch_timeout": "15",
    "osd_memory_target": "939524096",
    # The manager's own work needs none of its thirty Python modules, whose loading takes longer than all else together.
    "mgr_initial_modules": "",
}
"""Of the whole cluster, that are not Ceph's own defaults."""
# The socket is relative to the folder they run in: its full path may not exceed 107 bytes.
DAEMON = {"admin_socket": "$name.asok", "log_file": "", "log_to_stderr": "true", "err_to_stderr": "true"}


@dataclass(frozen=True)
class Pool:
    """How a system keeps its data: on how many nodes, and what ``ceph`` is told. `survivors`: OSDs that are enough to
    go on."""

    nodes: int
    create: Mapping[str, str | int]
    survivors: int
    profile: tuple[str, ...] = ()


POOLS = {
    "box-osd": Pool(1, {"pool_type": "replicated", "size": 1}, survivors=1),
    "box-ceph": Pool(2, {"pool_type": "replicated", "size": 2}, survivors=1),
    # Two data strips and one parity strip need three hosts: on two, one host would hold two strips of a stripe.
    "box-ceph-ec": Pool(3, {"pool_type": "erasure", "erasure_code_profile": "box"}, survivors=2,
                        profile=("k=2", "m=1", "crush-failure-domain=host")),
}  # fmt: skip


def environment(config: Path) -> dict[str, str]:
    """What makes every Ceph program use this cluster and no other, whatever its caller's own environment says."""
    return {"CEPH_CONF": str(config), "CEPH_ARGS": "", "CEPH_KEYRING": str(config.parent / "keyring")}


def write_config(config: Path, addresses: Sequence[str], osd_bytes: int, cache: bool) -> None:
    """The cluster's only configuration file, and the folders of its daemons. `addresses`: of the nodes, in order."""
    folder, parsed = config.parent, configparser.ConfigParser(interpolation=None)
    parsed["global"] = OPTIONS | {
        "fsid": str(uuid.uuid4()),
        "mon_host": f"v2:{addresses[0]}:{MON_PORT}",
        "keyring": f"{folder}/keyring",
        "bluestore_block_size": str(osd_bytes),
        "mgr_module_path": f"{folder}/modules",
    }
    # librbd acknowledges a write from the client's memory by default: twenty times faster, and not the cluster's speed.
    parsed["client"] = {"rbd_cache": str(cache).lower()}
    for kind in ("mon", "mgr", "osd"):
        parsed["global"][f"{kind}_data"] = f"{folder}/{kind}.$id"
        parsed[kind] = DAEMON | {"pid_file": f"{folder}/$name.pid"}
    placed = {"mon.a": addresses[0], "mgr.x": addresses[0], **{f"osd.{i}": a for i, a in enumerate(addresses)}}
    hosts = {f"osd.{i}": f"node{i + 1}" for i in range(len(addresses))}
    for name, address in placed.items():
        crush = {"crush_location": f"root=default host={hosts[name]}"} if name in hosts else {}
        parsed[name] = crush | {"public_addr": address, "cluster_addr": address}
    with open(config, "w") as file:
        parsed.write(file)
    (folder / "keyring").touch()
    for name in ("modules", *placed):
        (folder / name).mkdir()


def start(keeper: Keeper, programs: Mapping[str, str], config: Path, pool: Pool, images: Mapping[str, int]) -> None:
    """From the written configuration to placement groups that are active and clean, and `images` (name -> bytes) in
    them.

    Raises LabError where a daemon exits or does not get there in time, with the end of its log.
    """
    stores = {f"osd.{i}": str(uuid.uuid4()) for i in range(pool.nodes)}
    osds = [
        [programs["ceph-osd"], "-f", "--mkfs", "--no-mon-config", "-i", name.removeprefix("osd."), "--osd-uuid", store]
        for name, store in stores.items()
    ]
    _run_all([[programs["ceph-mon"], "-f", "--mkfs", "-i", "a"], *osds], config)
    mon = daemon(keeper, programs, config, "mon.a", lambda: mon_leads(config.parent))
    keeper.wait_ready([mon], PATIENCE_S)
    with Monitor(config) as monitor:
        waiting = [mon, daemon(keeper, programs, config, "mgr.x", lambda: monitor.ask("mgr stat")["available"])]
        for name, store in stores.items():
            monitor.ask("osd new", uuid=store)  # the monitor counts them up from 0
            waiting.append(daemon(keeper, programs, config, name, partial(is_up, monitor, name)))
        keeper.wait_ready(waiting, PATIENCE_S)
        create_pool(monitor, pool)
        settled = [replace(w, what=f"{w.what}, its placement groups", ready=lambda: is_clean(monitor)) for w in waiting]
        keeper.wait_ready(settled, PATIENCE_S)
        monitor.ask("health mute", code="MGR_MODULE_ERROR", sticky=True)  # of the modules left out: see mgr_module_path
    # Shared: stamped writes go to an image beside fio's, between which an exclusive lock would be handed over for every
    # write.
    how = ["--image-shared", *(["--data-pool", DATA] if pool.profile else [])]
    for image, size in images.items():
        _run_all([[programs["rbd"], "create", f"{image_pool(pool)}/{image}", "--size", f"{size}B", *how]], config)


def daemon(keeper: Keeper, programs: Mapping[str, str], config: Path, name: str, ready: Callable[[], bool]) -> Waiting:
    """A daemon in the foreground, in the lab's folder. While the monitor that `ready` asks is silent, it is not."""

    def arrived() -> bool:
        with contextlib.suppress(CephError):
            return ready()
        return False

    what = f"ceph-{name.partition('.')[0]} {name}"
    return keeper.spawn(what, argv(programs, name), name, arrived, environment(config))


def argv(programs: Mapping[str, str], name: str) -> list[str]:
    """What starts the daemon: ``osd.1`` is ``ceph-osd -f -i 1``, in the lab's folder and environment."""
    kind, _, which = name.partition(".")
    return [programs[f"ceph-{kind}"], "-f", "-i", which]


def create_pool(monitor: Monitor, pool: Pool) -> None:
    """The system's pool; an erasure-coded one holds the images' data alone, their names need a replicated one beside
    it."""
    if pool.profile:
        monitor.ask("osd erasure-code-profile set", name="box", profile=list(pool.profile))
        _create(monitor, META, {"pool_type": "replicated", "size": 2}, 8)
    _create(monitor, DATA, pool.create, GROUPS)
    if pool.profile:
        monitor.ask("osd pool set", pool=DATA, var="allow_ec_overwrites", val="true")
        monitor.ask("osd pool set", pool=DATA, var="min_size", val=str(pool.survivors))


def _create(monitor: Monitor, name: str, options: Mapping[str, str | int], groups: int) -> None:
    monitor.ask("osd pool create", pool=name, pg_num=groups, pgp_num=groups, **options)
    monitor.ask("osd pool application enable", pool=name, app="rbd")


def image_pool(pool: Pool) -> str:
    """The pool by which an image is named."""
    return META if pool.profile else DATA


def _run_all(commands: Sequence[Sequence[str]], config: Path) -> None:
    """Programs that end by themselves, all at once; LabError with what the first of them that failed has said."""
    running = [
        subprocess.Popen(command, cwd=config.parent, env={**os.environ, **environment(config)}, text=True,
                         stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        for command in commands
    ]  # fmt: skip
    try:
        for command, process in zip(commands, running, strict=True):
            said = process.communicate(timeout=PATIENCE_S)[1]
            if process.returncode:
                last = " / ".join(said.split("\n")[-6:])
                raise LabError(f"{' '.join(command)} exited with {process.returncode}: {last}")
    except subprocess.TimeoutExpired as error:
        raise LabError(f"{' '.join(error.cmd)} did not end within {PATIENCE_S:.0f} s") from None
    finally:
        for process in running:
            process.kill()
            process.wait()


class CephError(LabError):
    """A monitor does not answer, or refuses what was asked; the message names the command and its reason."""


class Monitor(contextlib.AbstractContextManager["Monitor"]):
    """A connection to the cluster of a configuration file, which is closed when the block ends.

    Debian has Python bindings for the system's interpreter alone and PyPI has none; one `ceph` command starts an
    interpreter, most of a second of a core, where this takes a millisecond on an open connection. So a cluster comes up
    in half the time, and its state can be read while something is measured.
    """

    def __init__(self, config: str | Path):
        self._lib, self._handle = _library(), ctypes.c_void_p()
        self._named("rados_create", ctypes.byref(self._handle), b"admin")
        try:
            self._named("rados_conf_read_file", self._handle, os.fsencode(config))
            options = dict.fromkeys(("client_mount_timeout", "rados_mon_op_timeout"), str(LIMIT_S))
            # A CEPH_ARGS in the environment would go before the file.
            if monitor := read_config(config).get("mon_host"):
                options["mon_host"] = monitor
            for option, value in options.items():
                self._named("rados_conf_set", self._handle, option.encode(), value.encode())
            self._named("rados_connect", self._handle)
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_) -> None:
        if self._handle:
            self._lib.rados_shutdown(self._handle)
            self._handle = ctypes.c_void_p()

    def ask(self, prefix: str, **arguments) -> Any:
        """What the command answers, its JSON read; None where it says nothing. CephError if it fails.

        `prefix` and `arguments` are those of the ``ceph`` command: ``ask("osd pool create", pool="box", pg_num=32)``.
        """
        command = json.dumps({"prefix": prefix, "format": "json", **arguments}).encode()
        commands, out, said = (ctypes.c_char_p * 1)(command), ctypes.c_void_p(), ctypes.c_void_p()
        out_length, said_length = ctypes.c_size_t(), ctypes.c_size_t()
        code = self._lib.rados_mon_command(
            self._handle, commands, 1, b"", 0, ctypes.byref(out), ctypes.byref(out_length), ctypes.byref(said),
            ctypes.byref(said_length),
        )  # fmt: skip
        answer, reason = self._taken(out, out_length), self._taken(said, said_length)
        if code < 0:
            raise CephError(f"ceph {prefix}: {os.strerror(-code)}: {reason or 'no reason given'}")
        return json.loads(answer) if answer.strip() else None

    def _taken(self, buffer: ctypes.c_void_p, length: ctypes.c_size_t) -> str:
        """A buffer's text; the buffer is librados' own and is given back."""
        if not buffer:
            return ""
        text = ctypes.string_at(buffer, length.value).decode(errors="replace")
        self._lib.rados_buffer_free(buffer)
        return text

    def _named(self, function: str, *arguments) -> None:
        code = getattr(self._lib, function)(*arguments)
        if code < 0:
            raise CephError(f"{LIBRARY}: {function}: {os.strerror(-code)}; does the cluster's monitor run?")


def _library() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError as error:
        raise CephError(f"{LIBRARY}: {error}; install with: apt-get install -y ceph-common") from None
    library.rados_shutdown.restype = library.rados_buffer_free.restype = None
    library.rados_shutdown.argtypes = library.rados_buffer_free.argtypes = [ctypes.c_void_p]
    return library


def mon_leads(folder: Path) -> bool:
    """Whether the monitor of that folder answers and leads; asked on its own socket, as clients wait while it does
    not."""
    return admin(folder / "mon.a.asok", "mon_status").get("state") == "leader"


def is_up(monitor: Monitor, osd: str) -> bool:
    return any(f"osd.{o['osd']}" == osd and o["up"] for o in monitor.ask("osd dump")["osds"])


def state(monitor: Monitor) -> dict:
    """The cluster now: osds, osds_up, osds_in, groups, groups_clean. The manager counts anew once a second. Raises
    CephError where the monitor is silent."""
    said = monitor.ask("status")
    osds, groups = said["osdmap"], said["pgmap"]
    return {
        "osds": osds["num_osds"],
        "osds_up": osds["num_up_osds"],
        "osds_in": osds["num_in_osds"],
        "groups": groups["num_pgs"],
        "groups_clean": sum(s["count"] for s in groups["pgs_by_state"] if s["state_name"] == "active+clean"),
    }


def is_whole(now: dict) -> bool:
    """Every OSD up and in, every placement group active and clean. IOPS do not tell: a degraded cluster writes fewer
    copies."""
    return now["osds"] == now["osds_up"] == now["osds_in"] and now["groups"] == now["groups_clean"]


def is_clean(monitor: Monitor) -> bool:
    """Every placement group active and clean; HEALTH_OK may be said before they have peered."""
    now = state(monitor)
    return now["groups_clean"] == now["groups"] >= GROUPS
