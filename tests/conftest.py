"""One real dask cluster for all tests that only use it; those that hurt one start their own. And repeatable properties.

`make test` draws the same examples every time, so that a reviewer sees what CI saw; `make deep` and bench/fuzz look for
others.
"""

import signal

import pytest
from hypothesis import settings

# Tests send Ctrl-C to themselves and to children, which would ignore it where the shell started pytest in the
# background.
signal.signal(signal.SIGINT, signal.default_int_handler)

# no example is timed: a busy machine is no defect
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")


@pytest.fixture(scope="session")
def dask(tmp_path_factory):
    """address, scheduler, workers of a scheduler with two worker processes on loopback."""
    pytest.importorskip("distributed", reason="the extra `scale` is not installed")
    from tests.clusters import cluster

    with cluster(tmp_path_factory.mktemp("dask")) as running:
        yield running
