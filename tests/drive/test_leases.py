"""Who has leased a machine, as the machine itself tells."""

import pytest

from hcilib.drive.hosts.hosts import Fleet, FleetError, Outcome
from hcilib.drive.hosts.lease import Lease
from hcilib.drive.hosts.leases import _read, ask, leases

pytestmark = pytest.mark.lab


def test_a_lease_is_seen_while_it_is_held(bed, tmp_path):
    """Hosts of a lab share their processes: each tells of this lease, and maybe of another test's."""
    with Fleet(bed) as fleet:
        names = [vm.name for vm in bed.vms]
        with Lease(fleet, bed, bed.vms, tmp_path / "my run"):
            told = leases(fleet, names)
            assert list(told) == names
            assert all(f"run directory {tmp_path}/my run, process " in who for who in told.values())
        assert not any(str(tmp_path) in who for who in leases(fleet, names).values())


def test_a_command_that_only_speaks_of_leases_is_none(bed):
    with Fleet(bed) as fleet:
        held = fleet.session("vm1", "sh -c 'echo ready; read -r word; : hci-lease nobody token' name")
        assert held.recv(16) == b"ready\n"
        assert "nobody" not in ask(fleet, ["vm1"])["vm1"].value
        held.close()


def test_who_cannot_be_asked_is_not_free(bed):
    dead = bed.vms[0].model_copy(update={"port": 2223})
    with Fleet(bed.model_copy(update={"vms": (dead,)})) as fleet, pytest.raises(FleetError, match=dead.name):
        leases(fleet, [dead.name])


@pytest.mark.parametrize(
    ("text", "ok", "who"),
    [
        ("hci asked\n", True, ""),
        ("Welcome\nhci leased ann\nhci leased ann\nhci leased bob \x1b[2J\nhci asked\n", True, "ann; bob ?[2J"),
        ("hci leased \nhci asked\n", True, "somebody who left no name"),
        ("hci leased ann\n", False, None),
        ("", False, None),
    ],
)
def test_an_answer(text, ok, who):
    told = _read(Outcome("vm1", True, text))
    assert (told.ok, told.value) == (ok, who)
