"""Is the mean importance ratio one, as it is if the log takes all actions of the target policy?

Given the past, E[ρ_t] = Σ π(a|s) over the actions a that the log takes in s: 1 with support, less without. If the
probabilities behind the ratios are wrong, it is anything. So for any choice of rows by what was known before their
actions, products of the factors

    1 + κ(1 − ρ_t),  0 ≤ κ ≤ 1/M,  of which ρ_t ≤ M makes none negative,      1 + κ(ρ_t − 1),  0 ≤ κ ≤ 1,

have the expectation 1: they exceed 1/p with a probability of at most p, however the ratios are distributed (Ville;
Waudby-Smith and Ramdas 2024). A product grows if the mean of ρ is below 1, or above. The mean of several products is as
safe. A standard error is not: where a few large ratios hold the mean up, a log without one of them has a small mean and
a small standard error. M is a multiple of the largest ratio in the log: a log says nothing about larger ones. On the
other hand, the probabilities may hold on average only, and differ among episodes. So the difference must also exceed a
quantile of Student's t times the standard error over episodes.

I. Waudby-Smith and A. Ramdas, "Estimating means of bounded random variables by betting", JRSS B 86, 2024.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from lstd.data.check_features import Features
from lstd.data.feature_products import dense
from lstd.data.rows import Rows, spread
from lstd.types import Array

_CHANCE = 1e-2  # of a warning about right probabilities with support, over all choices of rows
_SMALL = 0.05  # differences from 1 below which there is no warning, however certain they are
_TOLD = 0.7  # of the largest difference: the first choice of rows with so much is named
_LARGER = 3.0  # M over the largest ratio
_SHARES = 0.25 ** np.arange(5)  # values of κ, in units of the largest
_PARTS, _MOST, _FOR_MEANS = 8, 2**15, 2**12  # parts of the log, rows, and rows for means of features, at most
_AT_ONCE = 2**17  # entries of dense features
_FEW = 10  # groups or episodes, or rows if the log has fewer than twice as many, that a mean needs


@np.errstate(over="ignore", invalid="ignore")
def support_doubt(rows: Rows, ratio: Array) -> str:
    """Say where the mean of `ratio`, (T,), is not one, and what to do; empty if it is.

    It is tested over full transitions, or a part of them from all over the log, by features (rows above and not above
    their mean) and by time.
    """
    chosen = np.flatnonzero(rows.full)
    chosen = chosen[spread(len(chosen), _MOST)]
    ratio = ratio[chosen]
    if not (ratio != 1.0).any():
        return ""
    low = _SHARES / (_LARGER * max(1.0, float(ratio.max())))
    factors = np.log1p(np.append(-low, 0.5 * _SHARES) * (ratio - 1.0)[:, np.newaxis])
    block = np.searchsorted(np.flatnonzero(rows.begins), chosen, side="right")
    block = block if block[-1] - block[0] >= 2 * _FEW else np.arange(len(chosen))
    choices = Choices(rows, chosen, min(_PARTS, 1 + (block[-1] - block[0]) // _FEW))
    sums = choices.sums(np.column_stack([np.ones_like(ratio), ratio, factors]))
    mean = sums[:, 1] / np.maximum(sums[:, 0], 1.0)
    evidence = np.logaddexp.reduce(sums[:, 2:], axis=1) - np.log(factors.shape[1])
    chance = _CHANCE / np.count_nonzero(sums[:, 0])
    off = np.where(evidence > -np.log(chance), np.abs(mean - 1.0), 0.0)
    for choice in np.argsort(-np.where(off > _TOLD * off.max(), np.inf, off), kind="stable")[: np.count_nonzero(off)]:
        mask = choices.mask(int(choice))
        error, most = _standard_error(ratio[mask], block[mask], chance)
        if off[choice] > max(_SMALL, most):
            return _text(mean[choice], error, mean[0], choices.words(int(choice)))
    return ""


class Choices:
    """Choices of N rows: all, above the mean of each feature, not above it, parts of the log, steps of episodes."""

    def __init__(self, rows: Rows, chosen: NDArray[np.intp], parts: int) -> None:
        self.X, self.names, self.rows = rows.X, rows.names, chosen
        n_features = rows.X.shape[1]
        self.means, at_once = np.zeros(n_features), len(chosen)
        if not sparse.issparse(rows.X):
            self.means = rows.X[chosen[spread(len(chosen), _FOR_MEANS)]].mean(axis=0)
            at_once = max(1, _AT_ONCE // n_features)
        self.batches = [slice(begin, begin + at_once) for begin in range(0, len(chosen), at_once)]
        first = np.flatnonzero(np.concatenate([[True], rows.last[:-1]]))
        self.step = chosen - first[np.searchsorted(first, chosen, side="right") - 1]
        edges = np.unique(np.quantile(self.step, (0.0, 0.25, 0.5, 0.75), method="lower")) + 1
        self.labels = np.arange(len(chosen)) * parts // len(chosen), np.searchsorted(edges, self.step, side="right")
        self.ends = np.cumsum([1, n_features, n_features, self.labels[0][-1] + 1])

    def above(self, part: slice, features: slice = slice(None)) -> Features:
        """Return whether features of some rows are above their means, as an array or sparse."""
        contiguous = isinstance(self.X, np.ndarray) and self.X.flags.c_contiguous and features == slice(None)
        rows = self.rows[part]
        found: Features = self.X.take(rows, axis=0) if contiguous else self.X[rows, features]  # `take` is faster
        return found > (0.0 if sparse.issparse(found) else self.means[features])

    def sums(self, values: Array) -> Array:
        """Return sums of values (N, J) over each choice, (K, J)."""
        above = sum(self.above(batch).astype(np.float64).T @ values[batch] for batch in self.batches)
        times = [(label == np.arange(label.max() + 1)[:, np.newaxis]) * 1.0 @ values for label in self.labels]
        whole = values.sum(axis=0)
        return np.vstack([whole, above, whole - above, *times])

    def mask(self, choice: int) -> NDArray[np.bool_]:
        """Return whether each row is in a choice, (N,)."""
        kind, j = self._place(choice)
        if kind == 0:
            return np.ones(len(self.rows), np.bool_)
        if kind >= 3:
            return np.asarray(self.labels[kind - 3] == j)
        return np.asarray(dense(self.above(slice(None), slice(j, j + 1)))[:, 0] == (kind == 1))

    def words(self, choice: int) -> str:
        """Say which rows are in a choice."""
        kind, j = self._place(choice)
        if kind == 0:
            return "of all rows"
        if kind < 3:
            name = f"x{j}" if self.names is None else self.names[j]
            return f"of rows with {name} {'above' if kind == 1 else 'not above'} {self.means[j]:.3g}"
        mask = self.mask(choice)
        kind_of_rows, numbers = ("rows", self.rows[mask]) if kind == 3 else ("steps", self.step[mask])
        return f"of {kind_of_rows} {numbers.min()} to {numbers.max()}{' of episodes' if kind == 4 else ''}"

    def _place(self, choice: int) -> tuple[int, int]:
        """Return the kind of a choice, and its number among those of the kind."""
        kind = int(np.searchsorted(self.ends, choice, side="right"))
        return kind, int(choice - (self.ends[kind - 1] if kind else 0))


def _standard_error(ratio: Array, block: NDArray[np.intp], chance: float) -> tuple[float, float]:
    """Compute the standard error of a mean of independent blocks, and the difference from it that chance explains."""
    from scipy import special  # takes 0.1 s to import

    n, error = len(np.unique(block)), float(np.linalg.norm(np.bincount(block, ratio - ratio.mean())) / len(ratio))
    return error, np.inf if n < _FEW else error * float(special.stdtrit(n - 1, 1.0 - 0.5 * chance))


def _text(mean: float, error: float, whole: float, rows: str) -> str:
    below = "the log does not take all actions of the target policy, or the probabilities behind the ratios are wrong"
    above = "the probabilities behind the ratios are wrong; those of logged actions are too small"
    return (
        f"The mean importance ratio {rows} is {mean:.3g}, with a standard error of {error:.2g}, and not 1"
        f"{'' if mean == whole else f' (of all rows {whole:.3g})'}: {below if mean < 1.0 else above}. "
        "Values of the target policy are then wrong. Check the probabilities with "
        "`lstd.ope.action_calibration`, or choose a target policy whose actions the log takes."
    )
