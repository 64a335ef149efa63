"""The error of settings, judged by their distance from a reference rather than by returns that predictions complete.

A return that was cut off is completed by a prediction. Its squared errors are least near the settings that completed
it. Where much of the returns was not observed, settings are judged by predictions alone, beside those of a reference
with weights r. With means over rows, the weights θ and r from all rows, and θ_k and r_k those without fold k of K,

    D = mean((φᵀθ − φᵀr)²),   C = (K − 1)/K Σ_k mean(φᵀ(θ_k − θ̄) φᵀ(r_k − r̄)).

If the reference has no bias, the expectation of D + 2 C is the squared error of θ, plus the variance of the reference,
which is the same for all settings. So 2 C is a covariance penalty (Efron 2004); in regression, D + 2 C is Mallows' Cp.
C is the covariance by the jackknife, and so is the standard error of a difference of two D. A covariance below zero
counts as zero: it comes from weights that change their sign without a fold, since their system is nearly singular.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from lstd.types import Array

Products = Callable[[Array, Array], Array]  # of weights (…, n, m), to (…, m)
Pair = tuple[int, int]  # places of a trace decay and a ridge coefficient in the grid


class BesideReference(NamedTuple):
    """All pairs of λ and α beside a reference, in units of the variance of the returns; means over the rewards."""

    distance: Array  # D, (λ, α)
    covariance: Array  # C, (λ, α)
    outside: Array  # D without each fold, (K, λ, α)

    @classmethod
    @np.errstate(over="ignore", invalid="ignore")  # the caller checks the range
    def of(
        cls, weights: Array, outside: Array, reference: Pair, products: Products, variance: Array
    ) -> BesideReference:
        """Compare weights (λ, α, n, m), and those without each fold (K, λ, α, n, m), with those of a reference.

        `products` computes the mean product of the predictions of two stacks of weights, and `variance` (m,) is that of
        the returns.
        """
        i, j = reference
        n_folds = len(outside)

        def in_units(one: Array, two: Array) -> Array:
            return np.asarray(np.mean(products(one, two) / variance, axis=-1))

        difference = weights - weights[i, j]
        difference_outside = outside - outside[:, i, j][:, np.newaxis, np.newaxis]
        change = outside - outside.mean(axis=0)
        change_of_reference = change[:, i, j][:, np.newaxis, np.newaxis]
        covariance = (n_folds - 1) / n_folds * in_units(change, change_of_reference).sum(axis=0)
        return cls(
            distance=in_units(difference, difference),
            covariance=np.maximum(covariance, 0.0),
            outside=in_units(difference_outside, difference_outside),
        )

    def error(self, share: float) -> Array:
        """Return D + 2 C, (λ, α), or with a share of 2 C that is added: all of it for an estimate without bias."""
        return np.asarray(self.distance + 2.0 * share * self.covariance)

    def standard_error(self, pair: Pair) -> Array:
        """Compute the standard error of each D less that of a pair, by the jackknife, (λ, α)."""
        i, j = pair
        n_folds = len(self.outside)
        difference = self.outside - self.outside[:, i, j][:, np.newaxis, np.newaxis]
        return np.asarray(np.sqrt(n_folds - 1) * difference.std(axis=0))
