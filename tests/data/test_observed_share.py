"""The observed share of returns from sums, whose definition `laws/test_sums.py` holds at any split of the data."""

from __future__ import annotations

import numpy as np

import lstd
from lstd import LSTDStatistics
from lstd._kernels.traces import behind_cuts
from tolerances import assert_close


def test_forgetting_scales_what_was_seen(tmp_path):
    X, y = np.ones((10, 1)), np.zeros(10)
    one, two = (LSTDStatistics.from_arrays(X, y, gamma=0.5, lmbda=0.9) for _ in range(2))
    (0.25 * one).then(two).save(tmp_path / "sums")
    weight = np.repeat([0.25, 1.0], [10, 9])
    expected = weight @ (1 - 0.5 ** np.arange(19, 0, -1)) / weight.sum()
    assert_close(lstd.load(tmp_path / "sums").observed_share, expected, "sums")


def test_the_python_body_gives_the_sums_of_the_compiled_kernel():
    random = np.random.default_rng(1)
    columns = (
        random.uniform(size=12),
        random.uniform(size=12) < 0.8,
        random.uniform(0.0, 1.5, 12),
        random.uniform(size=12),
    )
    none = np.empty(0)
    for given_columns in (columns, (*columns[:2], none, none)):
        assert_close(behind_cuts(*given_columns), getattr(behind_cuts, "py_func", behind_cuts)(*given_columns), "sums")


def test_successors_leave_it_unknown():
    X, y = np.ones((10, 1)), np.zeros(10)
    known = LSTDStatistics.from_arrays(X, y, gamma=0.5, lmbda=0.9)
    unknown = LSTDStatistics.from_arrays(X, y, X_next=X, gamma=0.5, lmbda=0.9)
    assert unknown.observed_share is (known + unknown).observed_share is None
