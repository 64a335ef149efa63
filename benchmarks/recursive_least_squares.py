"""Compare `RecursiveLSTD` at γ = 0 with recursive least squares: `RecursiveLS` of statsmodels, step by step.

    python benchmarks/recursive_least_squares.py

statsmodels starts from a diffuse prior, which is a ridge coefficient α → 0. Printed is the largest difference of the
weights after each step, from twice as many steps as features on, relative to the largest weight. Needs lstd[bench].
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lstd import RecursiveLSTD


def weights_by_step(X: Any, y: Any, alpha: float) -> Any:
    """Return the weights after each of the T steps, (T, n)."""
    model = RecursiveLSTD(X.shape[1], gamma=0.0, alpha=alpha)
    found = []
    for row, reward in zip(X, y, strict=True):
        model.update(row, reward, row)  # with γ = 0, the next row makes no difference
        found.append(model.weights.copy())
    return np.array(found)


def weights_by_statsmodels(X: Any, y: Any) -> Any:
    """Return the same, from the Kalman filter."""
    from statsmodels.regression.recursive_ls import RecursiveLS

    return RecursiveLS(y, X).fit().recursive_coefficients.filtered.T


def main() -> dict[float, float]:
    """Print the differences; return them by ridge coefficient."""
    random = np.random.default_rng(0)
    X = np.column_stack([np.ones(500), random.normal(size=(500, 4))])
    y = X @ [2.0, 1.0, -1.0, 0.5, 0.0] + random.normal(size=500)
    expected = weights_by_statsmodels(X, y)
    differences = {}
    for alpha in (1.0, 1e-4, 1e-8, 1e-10):
        late = slice(2 * X.shape[1], None)
        off = np.abs(weights_by_step(X, y, alpha) - expected)[late].max() / np.abs(expected[late]).max()
        differences[alpha] = float(off)
        print(f"α = {alpha:g}: {off:.0e}")
    return differences


if __name__ == "__main__":
    main()
