"""Differences between the values of policies, from the same data.

Block e contributes c_e^j to the error of policy j (:mod:`lstd.ope.policy_value`), so the squared standard error of the
difference of two policies is Σ_e (c_e^i − c_e^j)². The intervals of all pairs hold together: their half width is q
times the standard error, with q the quantile of the largest |t| over the pairs, of a multivariate Student's t with the
covariance of the contributions, from random draws. q is between the quantiles of one pair and of Bonferroni. Tied
returns make intervals wider (:mod:`lstd.ope.tied_returns`), with 1 − level divided by the number of pairs. With bounds
[a, b] of the return, the differences and their intervals are within ±(b − a).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lstd.data.arguments import check_integer, shown
from lstd.errors import InvalidInputError
from lstd.ope.policy_value import PolicyValue, blocks_of, doubted, evaluated, value_by_blocks
from lstd.ope.tied_returns import Bounds
from lstd.ope.value_by_blocks import ValueByBlocks
from lstd.statistics.counts import marks_until
from lstd.statistics.intervals import check_level, degrees_of_freedom, half_width
from lstd.types import Array

Pairs = tuple[NDArray[np.intp], NDArray[np.intp]]  # of policies

_DRAWS = 20_000  # of which the quantile at 0.95 has a standard error of half a percent


@dataclass(frozen=True, eq=False)
class PolicyComparison:
    """Values of policies, their differences with simultaneous intervals, and a ranking; ``print`` shows a table.

    Attributes
    ----------
    names : tuple
    values : tuple of PolicyValue
        Value of each policy, with its own interval.
    difference, standard_error, lower, upper : ndarray of shape (n_policies, n_policies)
        Value of the row's policy minus that of the column's. With probability `level`, all intervals contain their
        differences at once.
    apart : ndarray of bool, (n_policies, n_policies)
        Whether the interval of a difference excludes zero.
    order : ndarray of shape (n_policies,)
        Policies from the largest value to the smallest.
    level : float

    Examples
    --------
    >>> import numpy as np
    >>> from lstd.ope import LSTDQ, compare_policies
    >>> data = {"actions": np.arange(400) % 2, "terminated": np.ones(400, dtype=bool)}
    >>> rewards = data["actions"] + np.random.default_rng(0).normal(size=400)
    >>> wait, treat = (
    ...     LSTDQ(alpha=0.0, fit_intercept=False).fit(np.ones((400, 1)), rewards, target_policy=policy, **data)
    ...     for policy in (np.eye(2)[[0] * 400], np.eye(2)[[1] * 400])
    ... )
    >>> comparison = compare_policies({"wait": wait, "treat": treat})
    >>> comparison.best, bool(comparison.apart[0, 1]), round(float(comparison.difference[1, 0]), 1)
    (('treat',), True, 1.1)
    """

    names: tuple[Any, ...]
    values: tuple[PolicyValue, ...] = field(repr=False)
    difference: Array
    standard_error: Array = field(repr=False)
    lower: Array = field(repr=False)
    upper: Array = field(repr=False)
    level: float

    @property
    def apart(self) -> NDArray[np.bool_]:
        """Whether the data tell two policies apart."""
        return np.asarray((self.lower > 0.0) | (self.upper < 0.0))

    @property
    def order(self) -> NDArray[np.intp]:
        """Policies from the largest value to the smallest."""
        return np.argsort([-one.value for one in self.values], kind="stable")

    @property
    def best(self) -> tuple[Any, ...]:
        """Names of the policies that the data cannot tell apart from the best one, which comes first."""
        first = self.order[0]
        return tuple(self.names[j] for j in self.order if j == first or not self.apart[first, j])

    def __str__(self) -> str:
        lines = [f"{'policy':<20} {'value':>10} {f'{100 * self.level:g} % interval':>23}  not told apart from"]
        for i in self.order:
            one = self.values[i]
            alike = ", ".join(str(self.names[j]) for j in self.order if j != i and not self.apart[i, j]) or "none"
            lines.append(f"{self.names[i]!s:<20} {one.value:>10.4g} {one.lower:>11.4g} {one.upper:>11.4g}  {alike}")
        return "\n".join(lines)


def compare_policies(
    models: Mapping[Any, Any] | Sequence[Any],
    initial_states: Any = None,
    level: float = 0.95,
    *,
    target_policies: Mapping[Any, Any] | Sequence[Any] | None = None,
    weights: ArrayLike | None = None,
    sample: str = "auto",
    seed: int = 0,
) -> PolicyComparison:
    """Compare the values of policies, each of a model that was fitted to the same data.

    Parameters
    ----------
    models : dict or sequence of fitted LSTDQ, or of fitted LSTD, or of PolicyValue
        At least two, fitted to the same rows, rewards and weights, in the same order. Target policies and settings may
        differ, and weights by ratios and visits. Or their values by :func:`evaluate_policy` or :func:`policy_value`,
        for which other arguments but `level` and `seed` do not count; all with the same `bounds`, or none. In a
        sequence, the names are 0, 1, …. Intervals of what :func:`evaluate_policy` shrinks are those of the estimates,
        as far as the values are inside.
    initial_states, weights, sample
        As in :func:`policy_value`.
    level : float in (0, 1), default 0.95
        Probability that all intervals contain their differences of fixed points at once.
    target_policies : dict or sequence, optional
        The `target_policy` of :func:`policy_value` for each model.
    seed : int, default 0
        Seed of the random draws that the half widths of more than two policies need.

    Returns
    -------
    PolicyComparison

    Raises
    ------
    InvalidInputError
        When an argument breaks a rule, the models were not fitted to the same data or have different bounds, or one
        has no intervals.

    Warns
    -----
    SupportWarning, EffectiveSampleWarning
        As :func:`policy_value` does of each model.

    Examples
    --------
    >>> import numpy as np
    >>> from lstd.ope import LSTDQ, compare_policies
    >>> X, actions, done = np.ones((400, 1)), np.arange(400) % 2, np.ones(400, dtype=bool)
    >>> rewards = 1.0 + 2.0 * actions + np.random.default_rng(0).normal(size=400)
    >>> found = compare_policies({
    ...     share: LSTDQ(alpha=0.0, fit_intercept=False).fit(
    ...         X, rewards, actions=actions, terminated=done, target_policy=np.full((400, 2), [1 - share, share]),
    ...     ) for share in (0.2, 0.21, 0.9)
    ... })
    >>> found.order.tolist(), found.best, found.difference[:, 0].round(1)
    ([2, 1, 0], (0.9,), array([0. , 0. , 1.5]))
    """
    level = check_level(level)
    seed = check_integer("seed", seed, 0)
    given = _by_name("models", models)
    names = [*given]
    if len(names) < 2:
        raise InvalidInputError(f"`models` must be at least two; got {len(names)}.")
    policies = _policies_of(names, target_policies)
    parts = []
    for name, one in given.items():
        if isinstance(one, PolicyValue):
            parts.append(_known(one))
        else:
            parts.append(value_by_blocks(one, initial_states, policies[name], weights, sample).with_ties())
    for name, part in zip(names[1:], parts[1:], strict=True):
        _check_same_data(parts[0], part, (names[0], name))
        _check_same_bounds(parts[0].bounds, part.bounds, (names[0], name))
    largest = np.inf  # of all differences
    if parts[0].bounds is not None:
        a, b = parts[0].bounds
        largest = b - a

    values = []
    for one, part in zip(given.values(), parts, strict=True):
        if isinstance(one, PolicyValue):
            values.append(_at_level(one, level))
        else:
            values.append(doubted(evaluated(part, level)))
    shares = np.mean([part.fitted.influence.shares for part in parts], axis=0)
    difference = _differences([one.value for one in values])
    lower = difference.copy()
    upper = difference.copy()
    errors = []
    for several in _all_parts(parts):
        half, error = _half_widths(several, shares, level, seed)
        middle = _differences([one.value for one in several])  # without shrinking
        middle = np.clip(middle, -largest, largest)
        lower = np.minimum(lower, np.maximum(middle - half, -largest))
        upper = np.maximum(upper, np.minimum(middle + half, largest))
        errors.append(error)
    return PolicyComparison(tuple(names), tuple(values), difference, errors[0], lower, upper, level)


def _policies_of(names: list[Any], target_policies: Any) -> dict[Any, Any]:
    """Return the target policy of each model by its name, or None."""
    if target_policies is None:
        return dict.fromkeys(names)
    policies = _by_name("target_policies", target_policies)
    if {*policies} != {*names}:
        raise InvalidInputError(
            f"`target_policies` must have one policy for each of the {len(names)} models, under the same names, "
            f"{names!r:.80}; got {[*policies]!r:.80}."
        )
    return policies


def _differences(values: list[float]) -> Array:
    """Return the value of each row's policy minus that of each column's."""
    array = np.array(values)
    return np.asarray(array[:, np.newaxis] - array)


def _all_parts(parts: list[ValueByBlocks]) -> list[list[ValueByBlocks]]:
    """Return the parts and, if intervals hold those of others too, the same with these in place."""
    if all(part.beside is None for part in parts):
        return [parts]
    return [parts, [part.beside or part for part in parts]]


def _at_level(value: PolicyValue, level: float) -> PolicyValue:
    """Return a value with its interval at another level; a shrunk value stays in it."""
    one = evaluated(blocks_of(value), level)
    return replace(value, lower=min(one.lower, value.value), upper=max(one.upper, value.value), level=level)


def _by_name(name: str, given: Any) -> dict[Any, Any]:
    """Return what was given as a dict; the names in a sequence are 0, 1, …."""
    if not isinstance(given, (Mapping, Sequence)) or isinstance(given, str):
        raise InvalidInputError(f"`{name}` must be a dict or a list; got {shown(given)}.")
    if isinstance(given, Mapping):
        return dict(given)
    return dict(enumerate(given))


def _known(value: PolicyValue) -> ValueByBlocks:
    """Return the contributions of blocks to a value, where they are known."""
    if value.by_blocks is None:
        raise InvalidInputError(
            "`models` must be fitted models, or values of `evaluate_policy` or `policy_value`; got one of "
            f"`importance_sampling` ({value.method}), of which no differences are known."
        )
    found: ValueByBlocks = value.by_blocks
    return found


def _check_same_data(first: ValueByBlocks, second: ValueByBlocks, names: tuple[Any, Any]) -> None:
    """Refuse two values that are not of the same rows, rewards and weights."""
    one = first.fitted.influence
    two = second.fitted.influence
    if not one.of_same_rows(two):
        raise InvalidInputError(
            f"`models` must be fitted to the same rows in the same order, with the same features; {names[0]!r} and "
            f"{names[1]!r} were not. Fit all of them to the same data, or use `lstd.inference.difference`."
        )
    if first.log is not None and second.log is not None:  # weights may differ by ratios and visits
        weight = first.log.rows.weight[first.log.full]
        same = np.array_equal(first.log.rewards, second.log.rewards)
        same = same and np.array_equal(weight, second.log.rows.weight[second.log.full])
    else:
        same = np.array_equal(one.marks, two.marks) and np.allclose(one.shares, two.shares, rtol=1e-6, atol=0.0)
        same = same or np.array_equal(_mark_of(first), _mark_of(second))
    if not same:
        raise InvalidInputError(
            f"`models` must be fitted to the same rewards and weights; those of {names[0]!r} and {names[1]!r} differ. "
            'Fit all of them to the same data; those from files with weighting="none".'
        )


def _check_same_bounds(first: Bounds | None, second: Bounds | None, names: tuple[Any, Any]) -> None:
    """Refuse two values with other bounds of the return of the same episodes."""
    if first != second:
        raise InvalidInputError(
            f"`models` must have the same bounds of the return; {names[0]!r} has {_shown_bounds(first)}, {names[1]!r} "
            f"has {_shown_bounds(second)}. Give the same `bounds=(a, b)` to `evaluate_policy` or `policy_value` for "
            "all of them, or for none."
        )


def _shown_bounds(bounds: Bounds | None) -> str:
    if bounds is None:
        return "none"
    return f"({bounds[0]:g}, {bounds[1]:g})"


def _mark_of(part: ValueByBlocks) -> NDArray[np.uint64]:
    """Return the mark of rewards and weights, as they were given, up to the end of each block, (E,)."""
    marks = part.fitted.influence.marks
    if part.log is None:
        return np.asarray(np.cumsum(marks[:, 3]))
    return marks_until(part.log.rows, np.cumsum(marks[:, 0]).astype(np.intp).tolist())[:, 1]


def _half_widths(parts: list[ValueByBlocks], shares: Array, level: float, seed: int) -> tuple[Array, Array]:
    """Return half widths and standard errors of all differences, (n_policies, n_policies)."""
    blocks = np.array([part.blocks for part in parts])
    states = np.array([part.states for part in parts])
    shift = np.array([part.shift for part in parts])
    i, j = np.triu_indices(len(parts), 1)
    squares = (blocks[i] - blocks[j]) ** 2
    error = np.sqrt(squares.sum(axis=1) + ((states[i] - states[j]) ** 2).sum(axis=1))
    freedom = float(degrees_of_freedom(squares[:, :, np.newaxis], shares).min())
    q = _quantile(np.hstack([blocks, states]), (i, j), error, freedom, level, seed)
    widths = q * np.hypot(error, shift[i] - shift[j])
    level_of_pair = 1.0 - (1.0 - level) / len(error)
    for pair, (one, two) in enumerate(zip(i.tolist(), j.tolist(), strict=True)):
        tied = parts[one].tied
        other = parts[two].tied
        if tied is not None and other is not None:
            widths[pair] = tied.widened_difference(other, float(widths[pair]), level_of_pair)
    return _symmetric(widths, (i, j)), _symmetric(error, (i, j))


def _symmetric(of_pairs: Array, pairs: Pairs) -> Array:
    """Return numbers of pairs of policies as a matrix, zero on its diagonal."""
    i, j = pairs
    n_policies = int(j[-1]) + 1
    matrix = np.zeros((n_policies, n_policies))
    matrix[i, j] = of_pairs
    matrix[j, i] = of_pairs
    return matrix


def _quantile(c: Array, pairs: Pairs, error: Array, freedom: float, level: float, seed: int) -> float:
    """Return the quantile of the largest |t| over pairs, from contributions (n_policies, E)."""
    one_pair = float(half_width(1.0, freedom, level))
    if len(error) == 1 or not error.any():
        return one_pair
    bonferroni = float(half_width(1.0, freedom, 1.0 - (1.0 - level) / len(error)))
    random = np.random.default_rng(seed)
    sizes, axes = np.linalg.eigh(c @ c.T)
    root = axes * np.sqrt(np.maximum(sizes, 0.0))
    draws = random.standard_normal((_DRAWS, len(c))) @ root.T
    i, j = pairs
    differ = error > 0.0
    z = np.abs(draws[:, i] - draws[:, j])[:, differ] / error[differ]
    largest = z.max(axis=1) / np.sqrt(random.chisquare(freedom, _DRAWS) / freedom)
    return float(np.clip(np.quantile(largest, level), one_pair, bonferroni))
