"""The guard: decides what may be overwritten. What it does not know to be safe it refuses."""

from __future__ import annotations

from dataclasses import dataclass

from hcilib.drive.guard.embedded import judge_export, judge_image
from hcilib.testbed import Disk, Testbed

CONSENT = "consent"
"""What stands for the device where the whole testbed is refused."""


@dataclass(frozen=True)
class Refusal:
    """A device that may not be written, and why."""

    host: str
    device: str
    reason: str

    def __str__(self) -> str:
        return f"{self.host}: {self.device}: {self.reason}"


class GuardError(RuntimeError):
    """Nothing was touched: some device may not be overwritten. `refusals` lists them all."""

    def __init__(self, refusals: list[Refusal]):
        self.refusals = refusals
        devices = len({(refused.host, refused.device) for refused in refusals if refused.device != CONSENT})
        what = f"{devices} device(s)" if devices else "any device"
        super().__init__(f"refused to overwrite {what}: " + "; ".join(map(str, refusals)))


def refusals(testbed: Testbed, vms: int, numjobs: int, consent: str | None = None) -> list[Refusal]:
    """Every refusal that needs no host to be asked (DESIGN section 6): all of them for a lab, for real hosts consent
    and form.

    What a real host's devices are is judged on the host, by :func:`hcilib.drive.guard.guard_devices.identify`.
    """
    targets = testbed.targets(vms, numjobs)
    if testbed.lab_root:
        judge = judge_image if testbed.fio.ioengine == "rbd" else judge_export
        return [Refusal(vm, disk.serial, reason) for vm, disk in targets for reason in judge(testbed, disk)]
    devices = [
        Refusal(vm, disk.serial, reason) for vm, disk in targets for reason in _judge_form(disk, vm in testbed.windows)
    ]
    return _judge_consent(testbed, consent) + devices


def require(testbed: Testbed, vms: int, numjobs: int, consent: str | None = None) -> None:
    """GuardError if any device may not be overwritten. Looks at this machine's files alone: no host is touched."""
    refused = refusals(testbed, min(vms, len(testbed.vms)), numjobs, consent)
    if refused:
        raise GuardError(refused)


def _judge_consent(testbed: Testbed, consent: str | None) -> list[Refusal]:
    if not testbed.consent:
        reason = "the testbed's field consent is empty: give it a token there and repeat it in the campaign's consent"
    elif not consent:
        reason = "no consent was given: repeat the token of the testbed's field consent in the campaign's consent"
    elif consent != testbed.consent:
        reason = "the campaign's consent is not the testbed's field consent: is this the testbed you mean?"
    else:
        return []
    return [Refusal(f"testbed {testbed.name}", CONSENT, reason)]


def _judge_form(disk: Disk, windows: bool) -> list[str]:
    if windows:
        return [
            (
                "the VM runs Windows, whose disks this version cannot judge, so none is written: use a Linux VM as "
                "load "
                "generator"
            )
        ]
    if disk.uri:
        return [
            (
                f"its uri {disk.uri} is no block device of the VM; outside the lab only whole disks named by serial "
                "are "
                "written"
            )
        ]
    return []
