"""A model's sums and settings, and what follows from them: weights, condition number, influence of the data."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from lstd.estimators.intervals import Influence, influence_of
from lstd.statistics.blocks import Blocks
from lstd.statistics.solve import Solution, solve
from lstd.statistics.statistics import LSTDStatistics

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Fitted:
    """What a model was fitted with; n features, m rewards. What follows is worked out when it is first asked for."""

    blocks: Blocks
    gamma: float
    alpha: float
    variant: str
    fit_intercept: bool  # the statistics' last feature is a column of ones, which the ridge term leaves alone
    threads: int | None = None  # that solve systems; as many as the BLAS may use

    @property
    def statistics(self) -> LSTDStatistics:
        """Sums over the data."""
        return self.blocks.total

    @property
    def ridge(self) -> Array:
        """Ridge coefficient of each weight."""
        alpha = np.full(self.statistics.n_features, self.alpha)
        if self.fit_intercept:
            alpha[-1] = 0.0
        return alpha

    @cached_property
    def solution(self) -> Solution:
        """Weights of shape (n, m), the last row that of the column of ones, if any."""
        return solve(self.statistics.matrix(self.variant), self.statistics.b, self.ridge)

    @cached_property
    def coef(self) -> Array:
        """Weights of shape (n,) or (m, n)."""
        weights = self.solution.weights[:-1] if self.fit_intercept else self.solution.weights
        return np.ascontiguousarray(weights[:, 0] if self.statistics.single else weights.T)

    @cached_property
    def intercept(self) -> float | Array:
        """Weight of the column of ones, a number or of shape (m,)."""
        weights = self.solution.weights[-1] if self.fit_intercept else np.zeros(self.statistics.b.shape[1])
        return float(weights[0]) if self.statistics.single else weights.copy()

    @cached_property
    def influence(self) -> Influence:
        """What each stretch of the data adds to the weights."""
        return influence_of(
            self.blocks, self.solution.weights, self.ridge, self.variant, intercept=self.fit_intercept,
            threads=self.threads,
        )  # fmt: skip
