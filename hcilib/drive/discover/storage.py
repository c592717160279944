"""Which storage the nodes run, by what its own tools print: a system to review, its scheme as a formula with the
lines it was read from.

Ceph, DRBD (with LINSTOR), md and Storage Spaces Direct are read from real output or its documented form, ZFS from
its documented form (tests/data/storage says which). StarWind has no command that tells its replication: that it runs
is seen, what lies under it is read."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hcilib.drive.hosts.hosts import sections

QUESTIONS = r"""
ask() { command -v "$2" >/dev/null 2>&1 || return 0; echo "==== $1"; shift; timeout 15 "$@" 2>&1; echo; }
[ -e /proc/mdstat ] && { echo '==== md'; cat /proc/mdstat; }
[ -e /proc/drbd ] && { echo '==== drbd'; cat /proc/drbd; }
ask drbdstatus drbdsetup status --json
ask drbdshow drbdsetup show
ask linstor linstor --machine-readable --output-version v1 resource-group list
ask zpool zpool status
ask thin lvs --noheadings --separator / -o vg_name,lv_name,lv_attr
[ -e /proc/spl/kstat/zfs/arcstats ] && { echo '==== arc'; cat /proc/spl/kstat/zfs/arcstats; }
if v=$(timeout 15 ceph versions 2>&1); then
  echo '==== cephversions'; echo "$v"; ask cephpools ceph osd pool ls detail
  ask cephrules ceph osd crush rule dump -f json
  ask cephosds ceph osd metadata -f json
  ask cephmemory ceph config get osd osd_memory_target
  for p in $(timeout 15 ceph osd erasure-code-profile ls 2>/dev/null); do
    timeout 15 ceph osd erasure-code-profile get "$p" 2>/dev/null | sed "s/^/$p /"
  done | { echo '==== cephprofiles'; cat; }
elif [ -e /etc/ceph/ceph.conf ]; then echo '==== cephpools'; echo "$v"
fi
echo '==== starwind'; ps -eo comm= 2>/dev/null | grep -i starwind | sort -u
"""
"""Read-only, and nothing is printed by what is not installed."""

_CEPH = ("versions", "osd pool ls detail", "osd df", "osd tree", "config dump", "-s")
_DRBD = ("cat /proc/drbd", "drbdsetup status --verbose")
_MD = ("cat /proc/mdstat", "mdadm --detail --scan --verbose")
_ZFS = ("zpool status", "zfs version", "zfs get -H recordsize,volblocksize,compression,sync,primarycache")
_S2D = (
    "Get-ComputerInfo OsName,OsVersion,OsBuildNumber | Format-List",
    "Get-StorageTier | Format-List "
    "FriendlyName,ResiliencySettingName,NumberOfDataCopies,PhysicalDiskRedundancy,NumberOfGroups,Size",
    "Get-VirtualDisk | Format-List FriendlyName,ResiliencySettingName,NumberOfDataCopies,Size,OperationalStatus",
    "Get-PhysicalDisk | Format-List Model,SerialNumber,FirmwareVersion,MediaType,Size",
)
FINGERPRINTS = {
    "ceph": tuple(("node", f"ceph {what}") for what in _CEPH),
    "drbd": (*(("nodes", what) for what in _DRBD), ("node", "drbdsetup show"), ("nodes", "cat /proc/mdstat")),
    "md": tuple(("nodes", what) for what in _MD),
    "zfs": tuple(("nodes", what) for what in _ZFS),
    "starwind": tuple(("nodes", what) for what in _MD),
    "s2d": tuple(("node", f'powershell -NoProfile -Command "{what}"') for what in _S2D),
}
"""Kind of storage -> where and by which command its state is taken down with every campaign."""


_CSV = "Get-Volume | Where-Object FileSystemType -like 'CSVFS*' | ForEach-Object { '{0} {1:N1} %' -f "
_CSV += "$_.FileSystemLabel, (100 - 100 * $_.SizeRemaining / $_.Size) }"
POOL_FILLS = {
    "ceph": ("node", "ceph osd df", r"^ *\d+ +(?:{name}).* ([0-9.]+) +[0-9.]+ +\d+ +up"),
    "zfs": ("nodes", "zpool list -H -o name,capacity", r"^(?:{name})\t(\d+)%"),
    "thin": ("nodes", "lvs --noheadings --separator / -o vg_name,lv_name,data_percent", r"^ *(?:{name})/([0-9.]+)"),
    "s2d": ("node", f'powershell -NoProfile -Command "{_CSV}"', r" ([0-9.,]+) %"),
}
"""What holds the data -> where and by which command it says how full it is, and where the percentage stands: of Ceph
its OSDs (of the device class `name`), of which the fullest ends all writes; of ZFS and LVM's thin pools those of this
`name`; of S2D the volumes, as their pool counts all of a volume that is provisioned in full."""

_ARRAYS = r"\[[U_]*_[U_]*\]|(?:recovery|resync|reshape) *="
_IN_SYNC = r"\A(?![\s\S]*(?:{wrong}))[\s\S]*{right}"
_AND_ARRAYS = "if [ -e /proc/mdstat ]; then cat /proc/mdstat; fi"
_PEERS = r"connection:(?!Connected)|disk:(?!UpToDate|Diskless (?:peer-)?client:yes)"
_DEGRADED = r"OSD_\w*DOWN|PG_DEGRADED|PG_AVAILABILITY|PG_DAMAGED|OBJECT_UNFOUND"
_VOLUMES = "Get-VirtualDisk | ForEach-Object { '{0} {1}' -f $_.HealthStatus, $_.FriendlyName }"


def _in_sync(wrong: Sequence[str], right: str) -> str:
    return _IN_SYNC.replace("{wrong}", "|".join(wrong)).replace("{right}", right)


HEALTHS = {
    "ceph": (
        "node",
        "ceph osd stat; ceph health detail",
        rf"\A\s*(\d+) osds: \1 up\b.* \1 in\b[\s\S]*^HEALTH_(?:OK|WARN(?![\s\S]*\b(?:{_DEGRADED})\b))",
    ),
    "drbd": ("nodes", f"drbdsetup events2 --now && {_AND_ARRAYS}", _in_sync((_PEERS, _ARRAYS), "disk:UpToDate")),
    "drbd8": (
        "nodes",
        f"cat /proc/drbd && {_AND_ARRAYS}",
        _in_sync((r" cs:(?!Connected ro:\S+ ds:UpToDate/UpToDate)", _ARRAYS), " ds:UpToDate/"),
    ),
    "md": ("nodes", "cat /proc/mdstat", _in_sync((_ARRAYS,), r"\[U+\]")),
    "zfs": ("nodes", "zpool status -x", r"\A\s*all pools are healthy"),
    "s2d": ("node", f'powershell -NoProfile -Command "{_VOLUMES}"', r"\A(?![\s\S]*^(?!Healthy )\S)\s*Healthy "),
}
"""Kind of storage -> on which hosts and by which command it says whether it is healthy, and what it then says. Of Ceph
every OSD is up and in and no warning is of copies that are missing: one of a clock or of a pool's setting is none.
DRBD is asked with the arrays below it, `drbd8` by the kernel's own words, as DRBD 8.4 has them."""


@dataclass(frozen=True)
class Storage:
    """One system that was seen, or of which no node told (then `kind` is ""). `scheme` is "" where its lines do not
    tell one; `said` are (node, line) that it was read from. `cache`: bytes of its data that a node may keep in memory,
    and what says so. `pool_fill`: on which hosts, by which command and by which expression it tells how full it is;
    `health`: the same of its health."""

    kind: str
    name: str
    scheme: str
    said: tuple[tuple[str, str], ...]
    doubts: tuple[str, ...] = ()
    nodes: int | None = None
    drives_per_node: int | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    transport: str = ""
    cache: tuple[int, str] | None = None
    pool_fill: tuple[str, str, str] | None = None
    health: tuple[str, str, str] | None = None


@dataclass(frozen=True)
class _Local:
    """What one node's own drives are joined to: a scheme inside a server, "" for none that repeats anything; `pool`
    is its name where it tells how full it is."""

    scheme: str
    drives: int
    line: str
    pool: str = ""


def storages(
    answers: Mapping[str, str], windows: Mapping[str, Sequence[Mapping]]
) -> tuple[list[Storage], dict[str, str]]:
    """What the nodes run, and node -> what could not be read; `windows`: the tiers of each Windows node."""
    parts = {node: sections(text) for node, text in answers.items()}
    failed: dict[str, str] = {}
    found: list[Storage] = []
    for node, its in parts.items():  # every node says the same of a Ceph cluster
        if "cephpools" in its and (ceph := _told(failed, node, "ceph", _ceph, node, its)):
            found += ceph
            break
    arrays = {node: _told(failed, node, "md", _md, its.get("md", "")) or [] for node, its in parts.items()}
    pools = {node: _told(failed, node, "zpool", _zfs, its.get("zpool", "")) or [] for node, its in parts.items()}
    sizes = [int(n) for its in parts.values() for n in re.findall(r"(?m)^c_max +4 +(\d+)", its.get("arc", ""))]
    arc = (max(sizes), "the ARC's c_max") if sizes else None
    local = {node: [*arrays[node], *pools[node]] for node in parts}
    over = [replace(one, cache=arc) for one in _replicated(parts, local, failed)]
    under = {line for one in over for _, line in one.said}
    found += over
    for kind, every in (("md", arrays), ("zfs", pools)):
        alone = [one for one in _alone(kind, every) if not under & {line for _, line in one.said}]
        found += [replace(one, cache=arc if kind == "zfs" else None) for one in alone]
    for node, tiers in windows.items():  # every node says the same of the pool
        found += _s2d(node, tiers, len(windows))
        break
    return found, failed


def _told(failed: dict[str, str], node: str, tool: str, read: Callable[..., Any], *answer: Any) -> Any:
    """What a reader makes of a tool's answer; None where it is odd, in whatever way, and then `failed` says why."""
    try:
        return read(*answer)
    except Exception as error:
        kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
        failed[node] = f"{tool} printed something else than is known ({kind}{str(error)[:160]})"
        return None


def _ceph(node: str, parts: Mapping[str, str]) -> list[Storage]:
    """A system for each pool that holds images; all of them where none says so."""
    lines = re.findall(r"(?m)^pool \d+ '.*$", parts["cephpools"])
    if not lines:
        raise ValueError(" ".join(parts["cephpools"].split())[:120] or "no pool")
    used = [line for line in lines if re.search(r"application \S*rbd", line)] or lines
    rules = {rule["rule_id"]: rule["steps"] for rule in json.loads(parts["cephrules"])}
    metadata = json.loads(parts["cephosds"])
    osds = Counter(osd.get("hostname", "?") for osd in metadata)
    held = {(osd.get("hostname", "?"), osd.get("devices") or osd["id"]) for osd in metadata}
    drives = Counter(host for host, _ in held)
    each = next(iter(drives.values())) if len(set(drives.values())) == 1 else None
    versions = sorted(set(re.findall(r"ceph version (\S+)", parts.get("cephversions", ""))))
    kept = {"ceph": "; ".join(versions)} if versions else {}
    memory, most = re.fullmatch(r"\s*(\d+)\s*", parts.get("cephmemory", "")), max(osds.values(), default=0)
    cache = (most * int(memory[1]), f"{most} OSDs x osd_memory_target, at most") if memory else None
    whole = Storage("ceph", "", "", (), (), len(osds), each, kept, cache=cache, health=HEALTHS["ceph"])
    found = []
    for line in used:
        name, kind = re.match(r"pool \d+ '([^']*)' (\w+)", line).groups()  # type: ignore[union-attr]
        doubts = [f"{len(metadata)} OSDs on {', '.join(f'{host} ({n})' for host, n in sorted(osds.items()))}."]
        said = [(node, line)]
        if kind == "replicated":
            scheme = f"Mirror({_number(' size', line)})"
        else:
            profile = re.search(r" profile (\S+)", line)[1]  # type: ignore[index]
            given = dict(re.findall(rf"(?m)^{re.escape(profile)} (\w+)=(\d+)$", parts["cephprofiles"]))
            scheme = f"ErasureCode({given['k']}, {given['m']})"
            said.append((node, f"erasure-code-profile {profile}: k={given['k']} m={given['m']}"))
        steps = rules.get(_number("crush_rule", line), ())
        chosen = (step.get("type") for step in steps if step["op"].startswith(("chooseleaf", "choose_")))
        if (domain := next(filter(None, chosen), "host")) != "host":
            spread = f"Its CRUSH rule spreads copies over {domain}s, not hosts"
            doubts.append(f"{spread}: a server may hold all copies, which the formula does not say.")
        roots = (step.get("item_name", "") for step in steps if step["op"] == "take")
        full = _pool_fill("ceph", (root.partition("~")[2] for root in roots))  # the class of default~ssd
        name = "ceph-" + re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")
        found.append(replace(whole, name=name, scheme=scheme, said=tuple(said), doubts=tuple(doubts), pool_fill=full))
    return found


def _pool_fill(kind: str, names: Iterable[str]) -> tuple[str, str, str]:
    on, run, expect = POOL_FILLS[kind]
    return on, run, expect.replace("{name}", "|".join(map(re.escape, sorted(set(names)))))


def _number(word: str, line: str) -> int:
    if not (match := re.search(rf"{word} (\d+)", line)):
        raise ValueError(f"no{word.rjust(len(word) + 1)} in {line[:80]!r}")
    return int(match[1])


def _replicated(
    parts: Mapping[str, Mapping[str, str]], local: Mapping[str, Sequence[_Local]], failed: dict[str, str]
) -> list[Storage]:
    """DRBD, and StarWind where it runs, each over what joins the nodes' own drives, if all have the same."""
    copies: dict[str, tuple[int, str, str]] = {}
    for node, its in parts.items():
        if found := _told(failed, node, "drbdsetup", _drbd, its):
            copies[node] = found
    each = {node: its[0] for node, its in local.items() if len(its) == 1}
    alike = len(each) == len(parts) and len({(one.scheme, one.drives) for one in each.values()}) == 1
    below = next(iter(each.values())) if alike else None
    lines = [(node, one.line) for node, one in each.items() if below]
    inner = f" * {below.scheme}" if below and below.scheme else ""
    thin = {name for its in parts.values() for name in re.findall(r"(?m)^ *([^/\s]+/[^/\s]+)/t", its.get("thin", ""))}
    pools_below = {one.pool for one in each.values() if below and one.pool}
    full = _pool_fill("thin", thin) if thin else _pool_fill("zfs", pools_below) if pools_below else None
    unseen = "What joins the drives below it differs between the nodes, or was not seen"
    assumed = "Assumed: it lies on what is read here of the nodes' own drives."
    doubts = [assumed if below else f"{unseen}: add it, as in Mirror(2) * Raid5(5)."]
    if len(thin) > 1:
        doubts.append(f"Its pool_fill asks for {', '.join(sorted(thin))}: leave those that hold its data.")
    runs = [(node, f"process {name}") for node, its in parts.items() for name in its.get("starwind", "").split()]
    versions: set[str] = set()
    if copies:
        kind, copied, transport = "drbd", max(n for n, _, _ in copies.values()), "DRBD/TCP"
        said = [(node, line) for node, (_, _, line) in copies.items()]
        versions = {v for its in parts.values() for v in re.findall(r"^version: (\S+)", its.get("drbd", ""))}
        doubts += _drbd_doubts(parts, copies)
    elif runs:
        kind, copied, transport, said = "starwind", 2, "", runs
        mirrored = "Assumed: each HA device is mirrored between two servers"
        doubts.append(f"{mirrored}, which StarWind prints in its console alone.")
    else:
        return []
    drives, kept = below.drives if below else None, {kind: ", ".join(sorted(versions))} if versions else {}
    scheme, read = f"Mirror({copied}){inner}", (*said, *lines)
    # no version after 8 tells of its resources in /proc/drbd
    is_8 = kind == "drbd" and all(re.search(r"(?m)^ *\d+: cs:", its.get("drbd", "")) for its in parts.values())
    how = HEALTHS.get("drbd8" if is_8 else kind)
    one = Storage(kind, kind, scheme, read, tuple(doubts), len(parts), drives, kept, transport)
    return [replace(one, pool_fill=full, health=how)]


def _drbd_doubts(parts: Mapping[str, Mapping[str, str]], copies: Mapping[str, tuple[int, str, str]]) -> list[str]:
    many = {n for n, _, _ in copies.values()}
    places = {int(n) for its in parts.values() for n in re.findall(r'"place_count": ?(\d+)', its.get("linstor", ""))}
    protocols = {protocol for _, protocol, _ in copies.values()} - {"C"}
    late, several, placed = (", ".join(map(str, sorted(found))) for found in (protocols, many, places))
    every = (
        (protocols, f"Protocol {late}: a write is acknowledged before every copy has it."),
        (len(many) > 1, f"Resources have {several} copies: a file for each number of copies."),
        (places - many, f"LINSTOR's resource groups place {placed} copies."),
    )
    return [doubt for is_so, doubt in every if is_so]


def _drbd(its: Mapping[str, str]) -> tuple[int, str, str] | None:
    """(copies, protocol, a line) of a node's DRBD resources; None where it has none."""
    if old := re.search(r"(?m)^ *(\d+: cs:\S+ ro:\S+ ds:(\S+) (\w) .*)$", its.get("drbd", "")):
        return 1 + old[2].count("/"), old[3], old[1].strip()
    if not its.get("drbdstatus", "").lstrip().startswith("["):
        return None
    resources = json.loads(its["drbdstatus"])
    if not resources:
        return None
    counts: Counter[int] = Counter()
    for resource in resources:
        states = [device["disk-state"] for device in resource["devices"][:1]]
        states += [peer["peer_devices"][0]["peer-disk-state"] for peer in resource["connections"]]
        counts[sum(state not in ("Diskless", "DUnknown") for state in states)] += 1
    protocols = set(re.findall(r"protocol\s+([ABC]);", its.get("drbdshow", ""))) or {"C"}
    first = resources[0]
    peers = ", ".join(f"{peer['name']} {peer['peer_devices'][0]['peer-disk-state']}" for peer in first["connections"])
    line = f"{first['name']}: {first['devices'][0]['disk-state']} here, {peers}"
    return counts.most_common(1)[0][0], "".join(sorted(protocols)), line


def _inside(kind: str, n: int, spares: int, copies: int = 2) -> str:
    """The scheme of what md, or ZFS, calls so; "" where it repeats nothing."""
    schemes = {"raid5": f"Raid5({n})", "raid6": f"Raid6({n})", "raid1": f"Mirror({n})", "raid10": f"Mirror({copies})"}
    schemes |= {"raidz1": schemes["raid5"], "raidz2": schemes["raid6"], "mirror": schemes["raid1"]}
    scheme = f"ErasureCode({n - 3}, 3)" if kind == "raidz3" else schemes.get(kind, "")
    return f"{scheme}.spare({spares})" if spares and scheme.startswith("Raid") else scheme


def _md(text: str) -> list[_Local]:
    """Arrays of /proc/mdstat that are running."""
    found = []
    for line, level, members, below in re.findall(r"(?m)^(md\S+ : active (?:\([^)\n]*\) )?(\S+) (.*))\n(.*)$", text):
        spares = members.count("(S)")
        n = int(m[1]) if (m := re.search(r"\[(\d+)/\d+\]", below)) else len(members.split()) - spares
        copies = int(m[1]) if (m := re.search(r"(\d) (?:near|far|offset)-copies", below)) else 2
        found.append(
            _Local(_inside(level, n, spares, copies), n + spares, f"{line.strip()} / {' '.join(below.split())}")
        )
    return found


def _zfs(text: str) -> list[_Local]:
    """Pools of `zpool status`: vdevs that are alike make one scheme."""
    found = []
    _, *pools = re.split(r"(?m)^ *pool: (\S+)\n", text)
    for name, body in zip(pools[::2], pools[1::2], strict=True):
        rows = re.findall(r"(?m)^\t( *)(\S+)(?: +(\S+))?", body.partition("config:")[2])
        group, vdevs, spares = "", [], 0
        for indent, what, state in rows:
            if what in ("logs", "cache", "spares", "special", "dedup"):
                group = what
            elif len(indent) == 2 and not group and what != name:
                vdevs.append([what, 0])
            elif len(indent) == 4 and not group and vdevs:
                vdevs[-1][1] += 1
            elif group == "spares" and state in ("AVAIL", "INUSE"):
                spares += 1
        kinds = Counter((re.sub(r"-\d+$", "", what) if n else "disk", n) for what, n in vdevs)
        if len(kinds) != 1:
            continue
        [((kind, n), count)] = kinds.items()
        line = f"pool {name}: {count} x {kind}" + (f" of {n}" if n else "") + (f", {spares} spare" if spares else "")
        scheme = _inside(kind, n, spares if count == 1 else 0)
        found.append(_Local(scheme, sum(n or 1 for _, n in vdevs) + spares, line, name))
    return found


def _alone(kind: str, every: Mapping[str, list[_Local]]) -> list[Storage]:
    """Each different scheme once, with the lines of all nodes that have it. Nothing of it leaves the server."""
    schemes: dict[tuple[str, int], list[tuple[str, _Local]]] = {}
    for node, arrays in every.items():
        for array in arrays:
            schemes.setdefault((array.scheme, array.drives), []).append((node, array))
    found: list[Storage] = []
    for (scheme, drives), own in schemes.items():
        said = tuple((node, array.line) for node, array in own)
        whole = scheme if scheme.startswith("Raid") else f"Mirror(1) * {scheme}" if scheme else "Mirror(1)"
        doubts = ["It stays inside one server: nothing replicates it that could be seen here."]
        name = f"{kind}-{(re.match(r'[A-Za-z]+[56]?', scheme) or ['striped'])[0].lower()}"
        name += f"-{len(found) + 1}" if name in {one.name for one in found} else ""
        full = _pool_fill(kind, (array.pool for _, array in own)) if kind in POOL_FILLS else None
        nodes = len({node for node, _ in said})
        one = Storage(kind, name, whole, said, tuple(doubts), nodes, drives, pool_fill=full)
        found.append(replace(one, health=HEALTHS[kind] if scheme else None))
    return found


def _s2d(node: str, tiers: Sequence[Mapping], servers: int) -> list[Storage]:
    """Tiers that hold something make the volume's scheme; on two servers four copies, and mirrored parity, are
    nested."""
    named = [(tier, _tier(tier, servers)) for tier in tiers if int(tier.get("bytes") or 0)]
    if not named:
        return []
    line = "{name}: {resiliency}, {copies} copies, redundancy {redundancy}, {columns} columns, {bytes} bytes"
    words = ("name", "resiliency", "copies", "redundancy", "columns", "bytes")
    said = tuple((node, line.format(**{word: tier.get(word) for word in words})) for tier, _ in named)
    by_scheme: Counter[str] = Counter()
    for tier, scheme in named:
        by_scheme[scheme] += int(tier["bytes"])
    formula, doubts = next(iter(by_scheme)), tuple[str, ...]()
    if "" in by_scheme:
        formula, doubts = "", ("A tier's layout is not known here: write the formula yourself.",)
    elif len(by_scheme) > 1:
        shares = [(round(size / by_scheme.total(), 4), scheme) for scheme, size in by_scheme.items()]
        shares[-1] = (round(1 - sum(share for share, _ in shares[:-1]), 4), shares[-1][1])
        formula = f"Tiers({', '.join(f'({share:g}, {scheme})' for share, scheme in shares)})"
        together = "Shares are those of all tiers of all volumes together"
        doubts = (f"{together}; a reserve is .reserve(servers, drives_per_server) behind it.",)
    full, how = _pool_fill("s2d", ()), HEALTHS["s2d"]
    return [Storage("s2d", "s2d", formula, said, doubts, nodes=servers, pool_fill=full, health=how)]


def _tier(tier: Mapping, servers: int) -> str:
    """A tier's scheme; "" where it is not known here."""
    copies, redundant, columns = (int(tier.get(key) or 0) for key in ("copies", "redundancy", "columns"))
    if tier.get("resiliency") == "Mirror" and copies:
        return "Mirror(2) * Mirror(2)" if copies == 4 and servers == 2 else f"Mirror({copies})"
    if tier.get("resiliency") == "Parity" and copies == 2 and redundant == 1 and servers == 2 and columns:
        return f"Mirror(2) * Raid5({columns})"
    return ""
