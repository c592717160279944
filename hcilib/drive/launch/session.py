"""One VM's fio: prepared, started and ended by the process that holds the VM's disks (hcilib.drive.keeper).

Its folder is removed when the block ends; whatever becomes of the controller or the connection, the keeper ends fio and
removes the folder.
"""

from __future__ import annotations

import contextlib
import queue
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from hcilib.drive.hosts.hosts import CONNECT_S, Clock, explain, need
from hcilib.drive.hosts.lease import Keeper, Lease
from hcilib.drive.launch.job import FioError, Launch
from hcilib.model.testbed import Vm

PLACE = "/tmp"
"""Where a run makes its folder on a VM that is no lab's."""
ENDING_S = 10.0  # beyond the deadline: fio's own time to write its result, and the keeper's to kill it
REMOVED_S = 5.0
SIGNALS = {6, 7, 9, 11}
"""That fio does not end by in good order: abort, bus error, kill, segmentation."""


@dataclass
class Session:
    """One VM's fio, prepared or at work. Not a table: what has been heard of it."""

    vm: Vm
    keeper: Keeper
    number: int
    folder: str = ""
    clock: Clock = (0.0, 0.0)
    ready: bool = False
    rates: list[tuple[float, float]] = field(default_factory=list)
    returncode: int | None = None
    hurt: str = ""
    late: bool = False

    def ask(self, do: str, limit_s: float = CONNECT_S):
        return self.keeper.ask(do, limit_s, run=self.number)

    def look(self, wait_s: float = 0.0) -> None:
        """Take what has been said of it since; OSError if nothing more can be known."""
        deadline = time.monotonic() + wait_s
        with contextlib.suppress(queue.Empty):
            while self.returncode is None:
                said = self.keeper.heard(self.number).get(timeout=max(0.0, deadline - time.monotonic()))
                if said is None:
                    raise OSError(self.keeper.why_lost())
                self.take(said)
                if self.ready and wait_s:
                    return

    def take(self, said: Mapping) -> None:
        """Take one event."""
        if said["event"] == "ready":
            self.ready = True
        elif said["event"] == "rates":
            self.rates.append((said["ms"], said["ios"]))
        else:
            code, self.late = said["code"], bool(said["stopped"])
            self.returncode, by = (code, 0) if code >= 0 else (128 - code, -code)
            where = f"{said['full']} is full" if said["full"] else ""
            self.hurt = where or (f"fio was killed (signal {by})" if by in SIGNALS else "")


@contextlib.contextmanager
def sessions(
    of: Launch, argv: Sequence[str], limit_s: float, files: Mapping[str, Mapping[str, str]], rates_ms: int = 0
) -> Iterator[dict[str, Session]]:
    """VM -> its fio, prepared; it is ended and its folder removed when the block ends.

    Parameters
    ----------
    argv : of fio, in whose words FOLDER stands for its folder
    limit_s : after which fio is ended there, should nobody here do it
    files : VM -> name -> text of what it finds in its folder
    """
    with contextlib.ExitStack() as own:
        lease = of.lease or own.enter_context(_alone(of))
        by_name = {vm.name: vm for vm in of.vms}
        opened: dict[str, Session] = {}
        root = of.testbed.lab_root or ""
        words = [of.testbed.fio.binary, *(["--readonly"] if of.readonly else []), *argv]

        def prepare(name: str) -> Session:
            vm, keeper = by_name[name], lease.keeper(name)
            given = {"name": vm.target, "parent": root or PLACE, "files": files.get(name, {}), "argv": words,
                     "limit_s": limit_s, "links": root, "rates_ms": rates_ms}  # fmt: skip
            number = keeper.send("fio", given=given)
            session = opened[name] = Session(vm, keeper, number)
            session.folder = keeper.answer(number, CONNECT_S)
            session.clock = keeper.clock()
            return session

        try:
            prepared = need("preparing fio", of.fleet.each(by_name, prepare, limit_s=4 * CONNECT_S))
            of.judged()
            yield prepared
        finally:
            of.fleet.each(opened, lambda name: opened[name].ask("remove"), limit_s=REMOVED_S)


@contextlib.contextmanager
def _alone(of: Launch) -> Iterator[Lease]:
    """A lease of the VMs for this launch; FleetError where one cannot be had."""
    with Lease(of.fleet, of.testbed.model_copy(update={"nodes": ()}), of.vms, of.work) as lease:
        lease.renew()
        yield lease


@contextlib.contextmanager
def naming(session: Session) -> Iterator[None]:
    """An error in the block becomes a FioError that names the VM."""
    try:
        yield
    except Exception as error:
        raise FioError(f"{session.vm.name}: while fio ran: {explain(error)}") from error
