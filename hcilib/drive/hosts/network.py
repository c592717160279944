"""The network first: what every link between two nodes gives to TCP, by iperf3, before storage is measured on it.

Each node has one server for one test, on its storage address, which ends after it. What is missing is a row that says
so.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from itertools import permutations
from pathlib import Path

import numpy as np
import pandas as pd

from hcilib.drive.hosts.hosts import Fleet, sections
from hcilib.model.testbed import Node, Testbed
from hcilib.read.nodes.facts import LINK_COLUMNS, NetworkOutputError, parse_iperf3, parse_ping

PORT = 5201
STREAMS = 4
"""Of TCP at once: one connection seldom fills a fast link."""
SLOW = 0.8
"""A link that gives less than this share of what its card says of itself is said to be slow."""
_PATH = "PATH=$PATH:/usr/sbin:/sbin\n"
_TOOLS = f"""{_PATH}echo '==== tools'
for tool in iperf3 ping; do command -v $tool >/dev/null && echo $tool; done; true
"""
_CARD = (
    _PATH
    + """card=$(ip -o route get {address} | sed -n 's/.* dev \\([^ ]*\\) .*/\\1/p')
echo '==== card'; echo "$card"
echo '==== label'; cat "/sys/class/net/$card/speed" 2>/dev/null
echo '==== ping'; {ping}
"""
)
# A busy node needs seconds to start the server; one that cannot start it costs these ten. iperf3 that is asked for JSON
# ends with 0 when it was refused, too, and says so only there.
_CLIENT = """{path}for again in $(seq 30); do
sleep 0.3
said=$({command} 2>&1) && ! printf '%s' "$said" | grep -q '"error":' && break
done
printf '%s\\n' "$said"
"""


def measure(fleet: Fleet, testbed: Testbed, seconds: float) -> pd.DataFrame:
    """What the links between the nodes of a testbed give, and at which latency: every node to every other, one at a
    time.

    Parameters
    ----------
    seconds : how long each test sends, in whole seconds: the tools count no other

    Returns
    -------
    As ``read_network``. A node that runs Windows, a tool that is not installed and a link below 80 % of its card's own
    speed are named in `note`.

    Raises
    ------
    ValueError : the testbed has one node
    """
    if len(testbed.nodes) < 2:
        raise ValueError(f"testbed {testbed.name}: it has one node, so there is no link between nodes to measure")
    linux = [node for node in testbed.nodes if node.name not in testbed.windows]
    told = fleet.run(_TOOLS, [node.name for node in linux])
    tools = {name: sections(o.value)["tools"].split() if o.ok else [] for name, o in told.items()}
    rows: list[dict] = []
    for source, target in permutations(testbed.nodes, 2):
        pair: dict = {"source": source.name, "target": target.name}
        if windows := [n.name for n in (source, target) if n.name in testbed.windows]:
            rows.append({**pair, "note": f"{windows[0]} runs Windows: measure it there with iperf3"})
            continue
        card = _card(fleet, source, target, tools)
        rows.append({**pair, **card, **_tcp(fleet, source, target, tools, seconds)})
    table = pd.DataFrame(rows).reindex(columns=list(LINK_COLUMNS))
    table["note"] = [_noted(row) for row in table.to_dict("records")]
    return table.assign(one_kernel=bool(testbed.lab_root))


def write(table: pd.DataFrame, file: Path) -> None:
    """Keep the table beside the hosts' facts."""
    file.parent.mkdir(parents=True, exist_ok=True)
    head = "# one kernel: the nodes share one loopback\n" if table["one_kernel"].any() else ""
    file.write_text(head + table.drop(columns="one_kernel").to_csv(index=False), encoding="utf-8")


def _card(fleet: Fleet, source: Node, target: Node, tools: Mapping[str, Sequence[str]]) -> dict:
    """The card by which one node reaches the other, its own speed, and how long a packet takes."""
    address = shlex.quote(_address(target))
    ping = f"ping -n -q -c 20 -i 0.05 {address} 2>&1; true" if "ping" in tools[source.name] else "true"
    outcome = fleet.run({source.name: _CARD.format(address=address, ping=ping)})[source.name]
    parts = sections(outcome.value) if outcome.ok else {}
    label = parts.get("label", "").strip()
    found: dict[str, str | float] = {"card": parts.get("card", "").strip()}
    if label.lstrip("-").isdigit() and int(label) > 0:  # a card that is down, or virtual, says -1
        found["label_bytes_per_s"] = int(label) * 1e6 / 8
    if "ping" in tools[source.name]:
        try:
            found["latency_ns"] = parse_ping(parts.get("ping", ""))
        except NetworkOutputError as error:
            found["note"] = str(error)
    return found


def _tcp(fleet: Fleet, source: Node, target: Node, tools: Mapping[str, Sequence[str]], seconds: float) -> dict:
    row = {"transport": "TCP", "tool": "iperf3", "streams": STREAMS}
    if without := [n.name for n in (source, target) if "iperf3" not in tools[n.name]]:
        return {**row, "note": f"no iperf3 on {' and '.join(without)}: apt-get install iperf3"}
    own, address = (shlex.quote(_address(node)) for node in (source, target))
    # Its one test may be a connection that was given up, after which it ends as after any other: it is started again.
    once = f"iperf3 -s -1 -B {address} -p {PORT} 2>&1 | grep receiver && break"
    server = f"{_PATH}for again in $(seq 30); do {once}; sleep 0.3; done"
    client = f"iperf3 -c {address} -B {own} -p {PORT} -t {max(1, round(seconds))} -P {STREAMS} -J"
    return {**row, **_between(fleet, source, target, server, client, seconds, parse_iperf3)}


def _between(fleet: Fleet, source: Node, target: Node, server: str, client: str, seconds: float, parse) -> dict:
    """Both ends at once: the server ends after one test, or by its time limit."""
    limit_s = 3 * seconds + 20
    commands = {
        target.name: f"{{ {server}\n}} >/dev/null 2>&1; true",
        source.name: _CLIENT.format(path=_PATH, command=client),
    }
    done = fleet.run(commands, limit_s=limit_s)[source.name]
    if not done.ok:
        return {"note": done.error[-300:]}
    try:
        return parse(done.value)
    except NetworkOutputError as error:
        return {"note": str(error)}


def _address(node: Node) -> str:
    return node.storage or node.target


def _noted(row: Mapping) -> str:
    """What was missing, and a link that is slower than its card says of itself."""
    said = [row["note"]] if isinstance(row["note"], str) and row["note"] else []
    share = row["bytes_per_s"] / row["label_bytes_per_s"] if row["label_bytes_per_s"] else np.nan
    if share < SLOW:
        gives, label = (8e-9 * row[name] for name in ("bytes_per_s", "label_bytes_per_s"))
        said.append(f"slower than its label: {gives:.3g} of {label:.3g} Gbit/s, {100 * share:.0f} %")
    return "; ".join(said)
