"""Means of importance ratios, which are 1 where the log supports the target policy and the probabilities are right."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from lstd.data.doubts import TENTHS
from lstd.ope.logged_rows import LoggedRows, Places
from lstd.ope.value_by_blocks import effective_size
from lstd.types import Array

_LAST_STEP = 1000  # of those that have numbers of their own
_LEVELS = np.array([0.5, 0.9, 0.99, 0.999, 1.0])


@dataclass(frozen=True, eq=False)
class RatioTable:
    """Importance ratios of all rows, by tenths of the predicted value, and by time step; ``print`` shows a table.

    Attributes
    ----------
    label : tuple of str
        Which rows each line is of.
    count, mean, standard_error, effective_sample_size : ndarray of shape (n_lines,)
        Number of transitions, mean ratio, its standard error over groups or episodes, and (Σρ)² / Σρ².
    quantiles : ndarray of shape (2, 5)
        Shares .5, .9, .99, .999 and 1 of the transitions, and the ratios that so many do not exceed.
    step_mean, step_standard_error, step_sizes : ndarray of shape (n_steps,)
        Of each step of the episodes: mean ratio, its standard error, and the effective number of episodes by the
        product of the ratios up to it.

    Examples
    --------
    >>> import numpy as np
    >>> from lstd.ope import importance_sampling
    >>> X, done, ratio = np.ones((200, 1)), np.ones(200), np.tile([0.5, 1.5], 100)
    >>> found = importance_sampling(X, np.ones(200), gamma=1.0, importance_ratio=ratio, terminated=done)
    >>> print(str(found.ratios).splitlines()[1])
    all rows                      200       1.000    0.035             160
    """

    label: tuple[str, ...]
    count: Array
    mean: Array
    standard_error: Array
    effective_sample_size: Array
    quantiles: Array = field(repr=False)
    step_mean: Array = field(repr=False)
    step_standard_error: Array = field(repr=False)
    step_sizes: Array = field(repr=False)

    @classmethod
    def of(cls, logged: LoggedRows, value: Array | None = None) -> RatioTable | None:
        """Return the table of logged transitions, by predicted values (N,) of their states; None without ratios."""
        rho = logged.ratio
        if rho is None:
            return None
        group: Places = np.cumsum(logged.rows.begins, dtype=np.intp)[logged.full]
        lines: list[tuple[str, Places]] = [("all rows", np.arange(len(rho)))]
        step = logged.step
        lines += ([] if value is None else _tenths("value", value)) + _tenths("steps", step)
        numbers = np.array([(len(at), *_mean(rho[at], group[at]), effective_size(rho[at])) for _, at in lines])
        quantiles = np.stack([_LEVELS, np.quantile(rho, _LEVELS)])
        rows_of = _by_step(step)
        by_step = [_mean(rho[at], group[at]) for at in rows_of]
        sizes = _products(rho, np.cumsum(logged.begins) - 1, rows_of)
        count, mean, error, size = numbers.T
        step_mean, step_error = np.array(by_step).T
        names = tuple(name for name, _ in lines)
        return cls(names, count, mean, error, size, quantiles, step_mean, step_error, sizes)

    def __str__(self) -> str:
        lines = [f"{'':<24} {'rows':>8} {'mean ratio':>11} {'error':>8} {'effective rows':>15}"]
        columns = (self.label, self.count, self.mean, self.standard_error, self.effective_sample_size)
        for name, count, mean, error, size in zip(*columns, strict=True):
            lines.append(f"{name:<24} {count:>8.0f} {mean:>11.3f} {error:>8.2g} {size:>15.0f}")
        tail = ", ".join(f"{100 * level:g} % {ratio:.3g}" for level, ratio in self.quantiles.T)
        return "\n".join([*lines, f"largest ratios by share of rows: {tail}"])


def _tenths(name: str, of: Array | Places) -> list[tuple[str, Places]]:
    """Return which transitions are in each tenth by a number of theirs, with its range."""
    part = np.searchsorted(np.unique(np.quantile(of, TENTHS)), of)
    places = [np.flatnonzero(part == k) for k in np.unique(part)]
    return [(f"{name} {of[at].min():.3g} to {of[at].max():.3g}", at) for at in places]


def _by_step(step: Places) -> list[Places]:
    """Return which transitions are of each step, of the first steps."""
    order = np.argsort(step, kind="stable")
    ends = np.searchsorted(step[order], np.arange(min(int(step.max()) + 1, _LAST_STEP) + 1))
    return [order[first:end] for first, end in pairwise(ends.tolist())]


def _products(ratio: Array, episode: Places, rows_of: list[Places]) -> Array:
    """Return the effective number of episodes by the product of ratios up to each step, (n_steps,)."""
    R, sizes = np.ones(int(episode[-1]) + 1), []
    for at in rows_of:
        R[episode[at]] *= ratio[at]
        R /= R.max() or 1.0  # only shares count
        sizes.append(effective_size(R))
    return np.array(sizes)


def _mean(ratio: Array, group: Places) -> tuple[float, float]:
    """Return the mean ratio and its standard error over groups."""
    mean = float(ratio.mean())
    return mean, float(np.linalg.norm(np.bincount(group - group.min(), ratio - mean))) / len(ratio)
