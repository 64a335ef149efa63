"""Kernels of LSTD(λ): definition in `naive` = body run by Python = compiled code."""

import numpy as np
import pytest

import naive
from tolerances import TOLERANCES
from twins import BOTH, COMPILED, assert_within, long_stream

VARIANTS = naive.VARIANTS  # rows of the errors
PANEL = COMPILED.sweep_onehot.PANEL

# ---------------------------------------------------------------- least squares


def sensitivity(phi, discounts, lmbda, alpha):
    """Factors by which rounding errors can grow on the way to the weights, by variant.

    For the Uncorrected recursion the largest inverse of the run times its largest matrix; for a variant read
    out of it also the inverse of its denominator, which is det(A_variant)/det(A_Uncorrected), twice.
    """
    n = phi.shape[1]
    A, z = alpha * np.eye(n), np.zeros(n)
    inverse, matrix, grown = 1 / alpha, alpha, {"uncorrected": 1.0, "boyan": 1.0, "mixed": 1.0}
    for t in range(len(phi) - 1):
        z_last, z = z, lmbda * discounts[t] * z + phi[t]
        A = A + np.outer(z - discounts[t] * z_last, phi[t])
        y = np.linalg.solve(A, z)
        inverse = max(inverse, np.linalg.norm(np.linalg.inv(A)))
        matrix = max(matrix, np.linalg.norm(A))
        for variant, share in (("boyan", 1.0), ("mixed", 1 - lmbda)):
            end = share * discounts[t + 1] * phi[t + 1]
            growth = 1 + np.linalg.norm(y) * np.linalg.norm(end) / abs(1 - end @ y)
            grown[variant] = max(grown[variant], growth**2)
    return {variant: inverse * matrix * factor for variant, factor in grown.items()}


def least_squares(phi, rewards, discounts, weight, target, lmbdas, alphas):
    """Errors (3, pairs) by their definition, and how far rounding may move each."""
    errors, moves = np.zeros((2, 3, len(lmbdas)))
    for k, (lmbda, alpha) in enumerate(zip(lmbdas, alphas, strict=True)):
        factor = sensitivity(phi, discounts, lmbda, alpha)
        for row, variant in enumerate(VARIANTS):
            theta = naive.weights_every_step_grouped(variant, phi, rewards, lmbda, alpha, discounts)[1:]
            errors[row, k] = np.sum((theta - target) ** 2 @ weight)
            size = np.abs(theta).max(initial=0.0) + np.abs(target).max()
            moves[row, k] = factor[variant] * len(theta) * weight.sum() * size**2
    return errors, TOLERANCES["per_condition"].rtol * moves


def run_onehot(modules, states, rewards, discounts, weight, target, lmbdas, alphas):
    layout = modules.sweep_onehot.plan(states, len(weight))
    errors = np.full((3, len(lmbdas)), np.nan)
    with np.errstate(all="ignore"):
        modules.sweep_onehot.lstd_onehot(layout, rewards, discounts, weight, target, lmbdas, alphas, errors)
    return errors


# ---------------------------------------------------------------- the layout of one-hot features


@pytest.mark.parametrize("n_steps", [1, PANEL, PANEL + 1, 2 * PANEL + 3])
@pytest.mark.parametrize("k", [1, 8, 17])
def test_lstd_onehot_at_the_edges_of_panels_and_cache_lines(n_steps, k):
    random, rest = long_stream(n_steps, k, 3)
    states = np.minimum(np.arange(n_steps + 1) * k // n_steps, k - 1)  # up through all states
    for walk in (states, states[::-1].copy(), random.randint(k, size=n_steps + 1)):
        expected, moves = least_squares(np.eye(k)[walk], *rest)
        for modules in BOTH.values():
            assert_within(run_onehot(modules, walk, *rest), expected, moves)
