"""Standard errors and intervals of predictions, from what each stretch of the data adds to the weights.

With M = (A + αI)⁻¹, θ the weights, and g_e = b_e − A_e θ the score of stretch e, an episode or a run of episodes or of
rows, which has the share w_e of the data, the weights differ from those that endless data would give by about
M Σ_e g_e. So with centred scores

    v_e = M (g_e − w_e Σ g),   u_e(s) = φ(s)ᵀ v_e,   se²(s) = Σ u_e² / (1 − Σ w_e²)

where the factor is that of a sample variance, E/(E − 1) for E equal shares. An interval takes the quantile of
Student's t with df(s) = max(2, (Σ u_e²)² / Σ u_e⁴ − 1) degrees of freedom where stretches are episodes: few episodes
may bear on a state. Stretches of one stream depend on their neighbours and have E − 1.

The interval is for the fixed point of LSTD(λ). With λ < 1 and features that cannot represent the values, the values
themselves may lie outside.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from lstd._rows import Features
from lstd.blocks import Blocks
from lstd.errors import InvalidInputError
from lstd.solve import solve

Array = NDArray[np.float64]

FEW = 5.0  # degrees of freedom below which a prediction is flagged
_FEWEST_EPISODES = 5
_FEWEST_STRETCHES = 8
_ENTRIES = 2**20  # of u at a time, 8 MiB


@dataclass(frozen=True, eq=False)
class Interval:
    """Predictions with intervals; arrays of shape (T,), or (T, m) for m rewards.

    Attributes
    ----------
    prediction, lower, upper : ndarray
    standard_error : ndarray
    degrees_of_freedom : ndarray
        Effective number of independent stretches of data that bear on the prediction, less one.
    flagged : ndarray of bool
        Fewer than 5 degrees of freedom: so little data bears on the prediction that the interval may be off.
    level : float
    """

    prediction: Array
    lower: Array
    upper: Array
    standard_error: Array
    degrees_of_freedom: Array
    flagged: NDArray[np.bool_]
    level: float


@dataclass(frozen=True, eq=False)
class Influence:
    """What each of E stretches of the data adds to the weights; n features, m rewards.

    Attributes
    ----------
    vectors : ndarray of shape (E, m, n)
        v_e of each reward, of the features without the column of ones.
    offsets : ndarray of shape (E, m)
        The same of the column of ones; zeros without one.
    shares : ndarray of shape (E,)
        w_e, which add up to one.
    by_episode : bool
        A stretch is an episode, or a run of episodes; else a run of rows.
    """

    vectors: Array
    offsets: Array
    shares: Array
    by_episode: bool

    @property
    def factor(self) -> float:
        """Factor of the sum of squares."""
        return float(1.0 / (1.0 - np.sum(self.shares**2)))

    def covariance(self) -> Array:
        """Covariance of the weights of the features, shape (m, n, n)."""
        return np.asarray(self.factor * np.einsum("emi,emj->mij", self.vectors, self.vectors, optimize=True))

    def spread(self, phi: Features) -> tuple[Array, Array]:
        """Standard error of the prediction and degrees of freedom for rows of features (T, n), each of shape (T, m)."""
        n_stretches, m, n = self.vectors.shape
        error, freedom = np.empty((2, phi.shape[0], m))
        across = self.vectors.reshape(-1, n).T
        size = max(1, _ENTRIES // max(1, across.shape[1]))
        for first in range(0, phi.shape[0], size):
            rows = slice(first, first + size)
            u = np.asarray(phi[rows] @ across).reshape(-1, n_stretches, m) + self.offsets
            squares = (u**2).sum(axis=1)
            error[rows] = np.sqrt(self.factor * squares)
            freedom[rows] = self._degrees(u, squares)
        return error, freedom

    def _degrees(self, u: Array, squares: Array) -> Array:
        if not self.by_episode:
            return np.full_like(squares, len(self.shares) - 1)
        fourth = (u**4).sum(axis=1)
        with np.errstate(invalid="ignore"):
            effective = np.where(fourth > 0.0, squares**2 / fourth, 0.0)
        return np.maximum(2.0, effective - 1.0)


def influence_of(blocks: Blocks, weights: Array, ridge: Array, variant: str, *, intercept: bool) -> Influence:
    """What each stretch of the data adds to weights θ of shape (n, m), solved for with these ridge coefficients.

    Raises
    ------
    InvalidInputError
        When no stretches, or too few, are told apart.
    """
    _check_stretches(blocks)
    at_marks = [np.zeros_like(weights)]
    at_marks += [stretch.b - stretch.matrix(variant) @ weights for stretch in (*blocks.marks, blocks.total)]
    shares = blocks.shares
    scores = np.diff(at_marks, axis=0) - shares[:, np.newaxis, np.newaxis] * at_marks[-1]  # (E, n, m)
    n_stretches, n, m = scores.shape
    right = np.ascontiguousarray(scores.transpose(1, 0, 2)).reshape(n, -1)
    vectors = solve(blocks.total.matrix(variant), right, ridge, warn=False).weights.reshape(n, n_stretches, m)
    vectors = np.ascontiguousarray(vectors.transpose(1, 2, 0))
    if not intercept:
        return Influence(vectors, np.zeros((n_stretches, m)), shares, blocks.by_episode)
    return Influence(vectors[..., :-1], vectors[..., -1], shares, blocks.by_episode)


def interval(prediction: Array, error: Array, freedom: Array, level: float) -> Interval:
    """Two-sided intervals of Student's t around predictions."""
    half = error * stats.t.ppf(0.5 + 0.5 * level, freedom)
    return Interval(prediction, prediction - half, prediction + half, error, freedom, freedom < FEW, level)


def _check_stretches(blocks: Blocks) -> None:
    fewest = _FEWEST_EPISODES if blocks.by_episode else _FEWEST_STRETCHES
    if len(blocks.marks) + 1 >= fewest:
        return
    if blocks.limit < 2 * fewest:
        raise InvalidInputError(
            f"Intervals need `n_blocks` of at least {2 * fewest}; this model has {blocks.limit}: it was given so, or "
            'the model was fitted to merged statistics, or "auto" found that its features are too many for 256 MB. '
            "Fit to data with more of them."
        )
    what, count = ("episodes", blocks.total.n_episodes) if blocks.by_episode else ("rows", blocks.total.n_rows)
    raise InvalidInputError(
        f"Intervals need at least {fewest} {what}, and mean little with as few; the model was fitted to {count}. Fit "
        "it to more."
    )
