"""One real dask cluster for all tests that only use it; those that hurt one start their own."""

import pytest


@pytest.fixture(scope="session")
def dask(tmp_path_factory):
    """address, scheduler, workers of a scheduler with two worker processes on loopback."""
    pytest.importorskip("distributed", reason="the extra `scale` is not installed")
    from tests.clusters import cluster

    with cluster(tmp_path_factory.mktemp("dask")) as running:
        yield running
