"""A cluster of two processes; sockets that Dask leaves behind are closed before pytest counts what nobody closed."""

import gc
import warnings

import pytest

from dask_commands import local_client


@pytest.fixture(scope="module", autouse=True)
def sockets_of_dask():
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(scope="module")
def cluster():
    pytest.importorskip("distributed")
    with local_client() as found:
        yield found


@pytest.fixture
def client(cluster):
    """A client of two processes, also after a test that killed some."""
    cluster.wait_for_workers(2, timeout=240)
    return cluster
