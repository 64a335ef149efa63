"""Sockets that Dask leaves behind are closed before pytest counts what nobody closed."""

from __future__ import annotations

import gc
import warnings

import pytest


@pytest.fixture(scope="module", autouse=True)
def sockets_of_dask():
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
