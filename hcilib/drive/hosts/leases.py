"""Who has leased a machine? Asked of the machine itself, by its processes: a lease is a shell that holds it there
(hcilib.drive.hosts.lease)."""

from __future__ import annotations

from collections.abc import Iterable

from hcilib.drive.hosts.hosts import Fleet, Outcome, need

ASK_S = 30.0

# The holder's arguments are ..., hci-lease, who, token. An argument may hold line ends, so that these become blanks
# before each argument becomes a line. Where other accounts' processes are hidden, none is no answer.
QUESTION = r"""
cat /proc/1/cmdline >/dev/null || { echo 'its processes are hidden from this account (hidepid of /proc)' >&2; exit 1; }
for f in $(grep -ls hci-lease /proc/[0-9]*/cmdline); do
  tr '\n\000' ' \n' 2>/dev/null <"$f" | {
    while read -r word; do
      [ "$word" = hci-lease ] && read -r who && read -r token && printf 'hci leased %s\n' "$who" && break
    done
  }
done
echo 'hci asked'
"""


def ask(fleet: Fleet, vms: Iterable[str]) -> dict[str, Outcome]:
    """VM -> who has leased it, "" for nobody; not ok where it cannot be known."""
    asked = fleet.run(QUESTION, list(vms), limit_s=ASK_S)
    return {vm: _read(outcome) for vm, outcome in asked.items()}


def leases(fleet: Fleet, vms: Iterable[str]) -> dict[str, str]:
    """VM -> who has leased it, of those that are leased; FleetError where one of them cannot be asked."""
    return {vm: who for vm, who in need("asking for leases", ask(fleet, vms)).items() if who}


def _read(outcome: Outcome) -> Outcome:
    if not outcome.ok:
        why = outcome.error.rpartition("` ")[2]
        return Outcome(outcome.host, False, error=why, seconds=outcome.seconds)
    own = "hci leased "
    lines = outcome.value.split("\n")  # a login shell may greet before
    if lines[-2:] != ["hci asked", ""]:
        return Outcome(outcome.host, False, error="its answer ends early", seconds=outcome.seconds)
    who = sorted({_visible(line.removeprefix(own)) for line in lines if line.startswith(own)})
    return Outcome(outcome.host, True, "; ".join(who), seconds=outcome.seconds)


def _visible(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text)[:500] or "somebody who left no name"
