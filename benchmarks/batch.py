"""Time LSTD(λ) of a whole batch beside one product of matrices of the same shape, and beside a loop over the rows.

python benchmarks/batch.py [--quick]
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped,unused-ignore]

from lstd import LSTD, LSTDStatistics
from ratios import Ratio, in_turn, run_alone

HOW = """\
Independent normal features and rewards, one stream. Sums: `LSTDStatistics.from_arrays` with every check of its input,
beside Zᵀ X for two different matrices of that shape, which A = Σ (z_t − γ z_{t−1}) φ_tᵀ needs at least. Fit: `LSTD.fit`
as it is by default, beside one step of NumPy per row for z, A and b and a solve, which checks nothing; both have the
same weights, on one thread."""
PAGE = "performance-estimators.md"
GAMMA, LMBDA, ALPHA = 0.99, 0.9, 1.0
N_FEATURES = 100
GOAL = 0.85


def ratios(quick: bool = False) -> Iterator[Ratio]:
    """Time the sums with one thread of the BLAS and with all, and a fit beside a loop."""
    n_rows, pairs = (20_000, 3) if quick else (1_000_000, 11)
    random = np.random.default_rng(0)
    X, Z = random.standard_normal((2, n_rows, N_FEATURES))
    y = random.standard_normal(n_rows)
    for threads in (1, None):
        with threadpool_limits(limits=threads, user_api="blas"):
            seconds = in_turn(
                lambda: LSTDStatistics.from_arrays(X, y, gamma=GAMMA, lmbda=LMBDA), lambda: Z.T @ X, pairs
            )
        threading = "one BLAS thread" if threads else "all BLAS threads"
        claim = f"sums of {n_rows} rows of {N_FEATURES} features beside one matrix product, {threading}"
        yield Ratio(claim, *seconds, goal=GOAL, page=PAGE)
    X, y = X[:20_000], y[:20_000]
    with threadpool_limits(limits=1, user_api="blas"):
        model = LSTD(GAMMA, LMBDA, ALPHA, fit_intercept=False)
        weights = model.fit(X, y).coef_
        np.testing.assert_allclose(loop(X, y), weights, rtol=0, atol=1e-9 * np.abs(weights).max())
        seconds = in_turn(lambda: model.fit(X, y), lambda: loop(X, y), 3 if quick else 7)
    yield Ratio(f"`LSTD.fit` of {len(X)} rows of {N_FEATURES} features beside a NumPy loop", *seconds)


def loop(X: Any, y: Any) -> Any:
    """Compute the weights of Boyan's estimator with a step per row."""
    n = X.shape[1]
    A, b, z = ALPHA * np.eye(n), np.zeros(n), np.zeros(n)
    for t in range(len(X) - 1):
        z = LMBDA * GAMMA * z + X[t]
        A += np.outer(z, X[t] - GAMMA * X[t + 1])
        b += z * y[t]
    return np.linalg.solve(A, b)


if __name__ == "__main__":
    run_alone(__doc__, ratios)
