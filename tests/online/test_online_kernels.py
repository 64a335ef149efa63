"""Kernels of the online estimators: body run by Python = compiled code, and the loops over blocks."""

from __future__ import annotations

import numpy as np
import pytest

from online_streams import COMPILED, PYTHON
from tolerances import assert_close

BOTH = {"Python": PYTHON, "compiled": COMPILED}


@pytest.mark.parametrize("n", [16, 32, 112, 1008])
def test_dots_and_add(n):
    random = np.random.RandomState(n)
    phi, a, b, c = random.normal(size=(4, n))
    for modules in BOTH.values():
        found = modules.blocked.dots(phi, a, b, c, np.full(3 * modules.blocked.BLOCK, np.nan))
        assert_close(found, [phi @ a, phi @ b, phi @ c], "sums")
        goal = b.copy()
        modules.blocked.add(0.5, a, goal)
        assert_close(goal, b + 0.5 * a, "sums")


def test_what_is_too_large_or_not_finite_is_counted():
    for modules in BOTH.values():
        goal = np.zeros(16)
        values = np.array([1.0, np.nan, -np.inf, 1e308, np.inf])
        assert modules.blocked.load(values, goal, modules.blocked.LARGEST) == 3
        assert modules.blocked.load(values, goal, 1e300) == modules.blocked.beyond(values, 1e300) == 4
        assert modules.blocked.not_finite(values) == 3
        assert modules.blocked.sum_beyond(2.0, np.array([1.0, -3.0, np.nan]), np.array([1.0, 1.0, 1.0]), 4.0) == 2
        assert goal[0] == 1.0
        assert not goal[5:].any()


@pytest.mark.parametrize("waiting", [0, 3, 8])
@pytest.mark.parametrize("how", ["one", "two", "sparse"])
def test_project_multiplies_by_the_inverse_and_its_panel(waiting, how):
    random = np.random.RandomState(waiting)
    n, length = 27, 32
    M, Q, R = np.zeros((length, length)), np.zeros((8, length)), np.zeros((8, length))
    M[:n, :n], Q[:, :n], R[:, :n] = random.normal(size=(n, n)), random.normal(size=(8, n)), random.normal(size=(8, n))
    phi, following, indices = np.zeros(length), np.zeros(length), np.array([0, 5, 26])
    phi[indices], following[:n] = [1.0, -2.0, 0.5], random.normal(size=n)
    P = M - Q[:waiting].T @ R[:waiting]
    for modules in BOTH.values():
        k = modules.rank_one
        state = np.full((k.THETA + 1 + 16 + length, length), 7.0)
        state[[k.P_PHI, k.P_NEXT]] = 0.0  # of these only rows that may not be zero are written
        counts, first = np.zeros(k.N_COUNTS, np.int64), k.THETA + 1
        counts[[k.FEATURES, k.PANEL, k.WAITING]] = n, 8, waiting
        counts[[k.Q_AT, k.R_AT, k.M_AT]] = first, first + 8, first + 16
        state[first:] = np.concatenate([Q, R, M])
        state[k.PHI], state[k.NEXT] = phi, following
        if how == "sparse":
            k.project_sparse(indices, phi[indices], state, counts)
        else:
            k.project(state, counts, how == "two")
        assert counts[k.WAITING] == waiting % 8
        assert counts[k.AHEAD] == (how == "two")
        if waiting == 8:
            assert_close(state[first + 16 :], M - Q.T @ R, "sums")
        assert_close(state[k.P_PHI], P @ phi, "sums")
        assert_close(state[k.PHI_P], phi @ P, "sums")
        if how == "two":
            state[k.PHI] = following
            k.project(state, counts, True)
            assert counts[k.AHEAD] == 0
            assert_close(state[k.P_PHI], P @ following, "sums")
            assert_close(state[k.PHI_P], following @ P, "sums")
