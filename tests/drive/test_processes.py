"""Which fio takes orders from anybody."""

import pytest

from hcilib.drive.hosts import processes as own_processes


@pytest.mark.parametrize(
    ("command", "where"),
    [
        ("fio --server", "all addresses, port 8765"),
        ("fio --server --daemonize=/run/fio.pid", "all addresses, port 8765"),
        ("/opt/fio-3.36/fio --server=192.0.2.11", "192.0.2.11"),
        ("fio --server=ip:192.0.2.11,8766", "ip:192.0.2.11,8766"),
        ("fio --server=ip6:fe80::1,9000 --bandwidth-log", "ip6:fe80::1,9000"),
        ("fio --server=,8001", ",8001"),
        ("fio --server=sock:/run/fio.sock", ""),
        ("fio --client=192.0.2.11,8765", ""),
    ],
)
def test_where_a_server_takes_orders_from_anybody(command, where):
    assert own_processes.Process(1, 1, 1, command).listens == where
