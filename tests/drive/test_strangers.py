"""Nobody else's orders: what another account of this machine reaches while fio runs for us, and after its controller
died."""

import signal
import subprocess
import tempfile
from pathlib import Path

import pytest
from intrusions import CONTROL, by
from probes import python, until
from strangers import sockets_below, stranger
from test_launch import fios

pytestmark = [pytest.mark.lab, pytest.mark.needs("root", "setpriv")]


@pytest.fixture
def open_to_all():
    """A folder that anybody may look into; pytest's own are closed, and not this test's to open."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def test_the_attack_works_where_a_server_listens(programs, open_to_all):
    """Or the other tests would show nothing: on loopback's TCP, and on a socket in a folder that is open to all."""
    servers = [
        subprocess.Popen(["fio", f"--server={where}"], cwd=open_to_all, stdout=subprocess.DEVNULL)
        for where in ("ip:127.99.98.97,8765", "sock:s")
    ]
    try:
        with stranger() as nobody:
            assert until(lambda: (open_to_all / "s").exists())
            seen = nobody.tries([open_to_all / "s"])
    finally:
        for server in servers:
            server.kill()
            server.wait()
    assert "ip:127.99.98.97,8765" in seen["tried"]
    assert seen["opened"] == [str(open_to_all / "s")]
    assert seen["ran"] == [0, 0], "as root, by both"


@pytest.mark.parametrize("launcher", ["client-server", pytest.param("per-host", marks=pytest.mark.deep)])
def test_another_account_reaches_no_fio_during_a_step_nor_after_the_controllers_death(bed, open_to_all, launcher):
    work = open_to_all / "work"
    work.mkdir(mode=0o755)  # the run directory is anybody's to read
    places = (Path(bed.lab_root), work)
    control = python(CONTROL, by(bed, launcher).model_dump_json(), str(work))
    try:
        assert until(lambda: len(fios(bed)) >= (6 if launcher == "per-host" else 10), 60), control.poll()
        told = sockets_below(*places)
        assert len(told) == (0 if launcher == "per-host" else 4), "of two VMs one there and one here each"
        with stranger() as nobody:
            during = nobody.tries(told)
            assert control.poll() is None, "and our step goes on"
            assert fios(bed)
            control.send_signal(signal.SIGKILL)
            after = nobody.tries(told)
    finally:
        control.kill()
        control.communicate()
    for seen in (during, after):
        assert [one for one in seen["tried"] if one.startswith("ip:")], "the lab's NBD servers at the least"
        assert (seen["opened"], seen["ran"]) == ([], [])
    assert until(lambda: not fios(bed), 5)
