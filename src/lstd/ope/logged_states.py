"""Logged transitions with raw columns of their states: visits and action values, fitted out of fold.

The ratio of discounted visits of states, of the target policy over the log,

    û(s) = E[1{t = 0} + κ γ_t ρ_{t−1} û(s_{t−1}) | s_t = s],

is the fixed point of a regression on raw columns. κ ≥ 1 is the number of transitions that do not terminate over that of
transitions that a logged one follows: what would follow a cut counts as what follows elsewhere. Action values are

    q_0(s, a) = E[discounted logged return | s, a],   q_{k+1}(s, a) = E[r + γ Σ_a' π(a'|s') q_k(s', a') | s, a].

Groups are in folds. Each regression predicts for groups that it was not fitted to.

L. van der Laan and N. Kallus, arXiv 2512.23805.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy import special
from sklearn.base import clone
from sklearn.model_selection import PredefinedSplit, cross_val_predict
from threadpoolctl import threadpool_limits

from lstd.data.arguments import as_real, check_integer, shown
from lstd.data.feature_arrays import column_names, dense
from lstd.data.returns import run_backwards
from lstd.data.rows import Rows
from lstd.data.settings import Settings
from lstd.errors import InvalidInputError
from lstd.estimators.model import Model
from lstd.ope.logged_rows import LoggedRows, Places, scattered, warn_of_support
from lstd.ope.pairs import values_in
from lstd.ope.tied_returns import largest_sum
from lstd.ope.value_by_blocks import ValueByBlocks, combined, dual_solution
from lstd.statistics.counts import check_weighted
from lstd.statistics.intervals import FEWEST_BLOCKS, degrees_of_freedom
from lstd.statistics.solve import check_range
from lstd.types import Array, Flags

SMALL = 1e-5  # of the mean diagonal of the Gram matrix: a ridge coefficient that does not decide
N_FOLDS, N_VISITS, N_VALUES = 3, 5, 4  # folds, and repeats of the two regressions
CHANCE, FAR, FEW_STEPS = 0.01, 0.5, 5  # of a warning with right features; differences that matter; steps of TD errors
ROUNDING = 1e-9  # of the largest sum of rewards: differences below are those of rounding
NAMES = ("value less the weighted one", f"errors of the first {FEW_STEPS} steps", "doubly robust less the weighted one")
LEAF_OF_VISITS, LEAF_OF_VALUES = 40, 20  # least numbers of rows in a leaf of trees


def boosting(least: int = LEAF_OF_VALUES) -> Any:
    """Return gradient boosting of trees with at least so many rows in a leaf."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    return HistGradientBoostingRegressor(
        learning_rate=0.35, max_iter=15, max_leaf_nodes=15, max_bins=63, min_samples_leaf=least, early_stopping=False,
        random_state=0,
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class FeatureCheck:
    """What was compared to notice features that are too coarse for the target policy.

    Under right features all differences are zero but for chance: the value by LSTD with ratios less that with rows
    weighted by visits; Σ γ^t ρ_0 ⋯ ρ_t δ_t over the first five steps of the episodes, with the TD errors δ; and the
    doubly robust value, if there is one, less the weighted one.

    Attributes
    ----------
    names : tuple of str
    difference, standard_error, p_value : ndarray of shape (2,) or (3,)
        Standard errors are those of the block jackknife, on the same blocks.
    limit : float
        Half of the standard error of the value, or what rounding may leave: smaller differences do not matter.

    Examples
    --------
    >>> import numpy as np
    >>> from lstd.ope import evaluate_policy
    >>> random = np.random.default_rng(0)
    >>> X, actions, rewards = np.ones((400, 1)), random.integers(2, size=400), random.normal(size=400)
    >>> rows = {"episode": np.arange(400) // 4, "terminated": np.arange(400) % 4 == 3}
    >>> policies = {"target_policy": np.full((400, 2), [0.2, 0.8]), "behavior_probability": np.full(400, 0.5)}
    >>> found = evaluate_policy(X, rewards, gamma=0.9, actions=actions, **policies, **rows)
    >>> found.features.names[:2], found.features.coarse
    (('value less the weighted one', 'errors of the first 5 steps'), False)
    """

    names: tuple[str, ...]
    difference: Array
    standard_error: Array
    p_value: Array
    limit: float

    @property
    def coarse(self) -> bool:
        """Whether a difference is more than chance (1 %, all together) and than the limit."""
        return bool(((self.p_value < CHANCE / len(self.names)) & (np.abs(self.difference) > self.limit)).any())

    @property
    def text(self) -> str:
        """Text of the warning."""
        return (
            f"The features are too coarse for the target policy; compared were: {self}. Values may be far off, and "
            "their intervals too short; doubly robust ones least, unless they alone differ. Use finer features, such "
            "as the time left."
        )

    def __str__(self) -> str:
        return "; ".join(
            f"{name} {d:.3g} ± {e:.2g} (p = {p:.2g})"
            for name, d, e, p in zip(self.names, self.difference, self.standard_error, self.p_value, strict=True)
        )


@dataclass(frozen=True, eq=False)
class LoggedStates:
    """N logged transitions of m episodes, with p raw columns of states and ratios."""

    logged: LoggedRows
    gamma: float
    columns: Array  # (T, p) raw columns of rows
    names: tuple[str, ...]  # of raw columns that the features do not have; none, if the features are the raw columns
    folds: Places  # (T,)
    given: Model | None = None  # LSTD with ratios; by default, one with a ridge coefficient that does not decide
    columns_next: Array | None = None  # (T, p) raw columns of successors that were given

    @classmethod
    def of(
        cls, logged: LoggedRows, gamma: float, state: Any = None, seed: Any = 0, given: Model | None = None,
        state_next: Any = None,
    ) -> LoggedStates:  # fmt: skip
        """Return the transitions with raw columns `state` (T, p) of the rows as given; by default the features."""
        rows, names = logged.rows, tuple[str, ...]()
        columns, after = dense(rows.X), None if rows.X_next is None else dense(rows.X_next)
        _check_given_together(rows, state, state_next)
        if state is not None:
            columns = _raw_columns("state", state, rows)
            names = column_names("state", state) or tuple(f"state[{j}]" for j in range(columns.shape[1]))
            after = None if state_next is None else _raw_columns("state_next", state_next, rows, columns.shape[1])
        group = np.cumsum(rows.begins) - 1
        says = np.unique(group[logged.full])
        if (n := len(says)) < FEWEST_BLOCKS:
            raise InvalidInputError(
                f"`episode` must have at least {FEWEST_BLOCKS} episodes, or `groups` as many groups; got {n}. Action "
                "values and visits are fitted to some of them and predicted for the others."
            )
        folds = np.zeros(group[-1] + 1, np.intp)
        folds[says] = np.random.default_rng(check_integer("random_state", seed, 0)).permutation(n) % N_FOLDS
        return cls(replace(logged, factor=None), gamma, columns, names, folds[group], given, after)

    @property
    def ratio(self) -> Array:
        """Importance ratio of each transition, (N,)."""
        if self.logged.ratio is None:
            raise InvalidInputError(
                "`behavior_probability` must be given, for importance ratios: the probability with which each action "
                "was taken. Estimate it if it was not logged, such as by a classifier of actions."
            )
        if not self.logged.ratio.any():
            raise InvalidInputError(
                "`target_policy` must be able to take some of the logged actions; it takes none of them. Choose a "
                "policy closer to that of the log."
            )
        return self.logged.ratio

    @cached_property
    def at(self) -> Array:
        """Raw columns of the states of transitions, (N, p)."""
        return np.asarray(self.columns[self.logged.full])

    @cached_property
    def after(self) -> Array:
        """Raw columns of successors, (N, p); of terminal ones, anything."""
        full = self.logged.full
        if self.columns_next is not None:
            return np.asarray(self.columns_next[full])
        return np.asarray(self.columns[np.minimum(full + 1, len(self.columns) - 1)])

    @cached_property
    def fold(self) -> Places:
        """Fold of each transition, (N,)."""
        return np.asarray(self.folds[self.logged.full])

    @property
    def first(self) -> Places:
        """First row of each episode, (m,); one that was cut off at once has no transition."""
        return np.flatnonzero(np.append(True, self.logged.rows.last[:-1]))

    def visits(self, start: Array) -> Array:
        """Return û of each transition, (N,), from values to start with."""
        begins, u = self.logged.begins, start
        follows = ~begins
        if not follows.any():
            return np.ones(len(u))
        goes_on = np.count_nonzero(~self.logged.rows.terminated[self.logged.full])
        decay = (self.logged.discount * self.ratio)[np.flatnonzero(follows) - 1] * (goes_on / np.count_nonzero(follows))
        for _ in range(N_VISITS):
            target = np.where(begins, 1.0, 0.0)
            target[follows] += decay * u[np.flatnonzero(follows) - 1]
            u = cross_val_predict(boosting(LEAF_OF_VISITS), self.at, target, cv=PredefinedSplit(self.fold))
            mean, slope = shrinkage(target, u)
            u = np.maximum(mean + slope * (u - mean), 0.0)
        return np.asarray(u)

    def pairs(self, states: Array, codes: Places) -> Array:
        """Return what a regressor of action values sees: raw columns, one column per action, and its number."""
        one_hot = np.zeros((len(states), self.logged.features.n_actions))
        one_hot[np.arange(len(states)), codes] = 1.0
        return np.column_stack([states, one_hot, codes])

    def mixture(self, model: Any, states: Array, policy: Array) -> Array:
        """Return Σ_a π(a|s) q(s, a), (N,)."""
        rows, codes = np.nonzero(policy)
        if not len(rows):
            return np.zeros(len(states))
        weighted = policy[rows, codes] * model.predict(self.pairs(states[rows], codes))
        return np.asarray(np.bincount(rows, weighted, len(states)), np.float64)

    def regressed(self, regressor: Any) -> tuple[Array, Array, Array]:
        """Return q of logged pairs, (N,), and v of successors, (N,), and of first states, (m,), out of fold."""
        logged, fold, of_first = self.logged, self.fold, self.folds[self.first]
        rewards, discount, pairs = logged.rewards, logged.discount, self.pairs(self.at, logged.codes)
        (q, after), start = np.empty((2, len(rewards))), np.empty(len(of_first))
        for k in np.unique(fold):
            own, rest, begun = fold == k, fold != k, self.first[of_first == k]
            model = clone(regressor).fit(pairs[rest], logged.returns[rest])
            for _ in range(N_VALUES):
                v = self.mixture(model, self.after[rest], logged.successors[rest])
                model = clone(regressor).fit(pairs[rest], rewards[rest] + discount[rest] * v)
            q[own], after[own] = model.predict(pairs[own]), self.mixture(model, self.after[own], logged.successors[own])
            start[of_first == k] = self.mixture(model, self.columns[begun], logged.policy_of(begun))
        mean, slope = shrinkage(rewards + discount * after, q)
        return mean + slope * (q - mean), mean + slope * (after - mean), mean + slope * (start - mean)

    @cached_property
    def log_values(self) -> tuple[Array, Array, Array]:
        """Action values of the log's own policy: q of pairs, (N,), v of successors, (N,), and of first states, (m,).

        They are regressions of logged returns, out of fold, and need no Markov state.
        """
        logged, fold, of_first = self.logged, self.fold, self.folds[self.first]
        pairs = self.pairs(self.at, logged.codes)
        q, after, start = np.empty(len(fold)), np.empty(len(fold)), np.empty(len(of_first))
        with threadpool_limits(1, "openmp"):
            for k in np.unique(fold):
                own, begun = fold == k, self.first[of_first == k]
                model = boosting().fit(pairs[fold != k], logged.returns[fold != k])
                q[own] = model.predict(pairs[own])
                after[own] = self.mixture(model, self.after[own], logged.successors[own])
                start[of_first == k] = self.mixture(model, self.columns[begun], logged.policy_of(begun))
        mean, slope = shrinkage(logged.returns, q)
        return mean + slope * (q - mean), mean + slope * (after - mean), mean + slope * (start - mean)

    @cached_property
    def per_decision(self) -> ValueByBlocks:
        """Per-decision doubly robust value (Jiang and Li 2016), with action values of the log's own policy.

        The mean over episodes of v(s_0) + Σ_t D_t ρ_0 ⋯ ρ_t δ_t, with the product D_t of the discounts before t.
        """
        q, after, start = self.log_values
        logged, m = self.logged, len(start)
        delta = logged.rewards + logged.discount * after - q
        with np.errstate(over="ignore", invalid="ignore"):
            products = self._products()
            values = start + np.bincount(logged.episode, products * delta, m)
        check_range(values)
        plain = self.plain
        share = np.full(m, 1.0 / m)
        return combined(
            plain.fitted, np.zeros_like(plain.phi), values, share, ones=0.0, log=logged, dual=products / m
        )  # fmt: skip

    def _products(self) -> Array:
        """Return D_t ρ_0 ⋯ ρ_t of each transition, (N,), by a pass backwards over the rows in reverse order."""
        begins, ratio = self.logged.begins, self.ratio
        from_before = ratio * np.append(0.0, self.logged.discount[:-1])
        entering = np.where(begins, ratio, 0.0)
        products = run_backwards(entering[::-1, np.newaxis], from_before[::-1], begins[::-1])
        return np.asarray(products[::-1, 0])

    @cached_property
    def plain(self) -> ValueByBlocks:
        """Value by LSTD with ratios."""
        return self.estimate()

    @cached_property
    def u(self) -> Array:
        """Ratio of discounted visits of each transition's state, (N,); its mean is one."""
        plain = self.plain
        known = plain.fitted.settings.lmbda == 0.0
        start = np.maximum(self._dual(plain), 0.0) * len(self.first) if known else np.ones(len(self.fold))
        with threadpool_limits(1, "openmp"):  # threads of small fits wait longer than they compute
            u = self.visits(start)
        return np.asarray(u / u.mean())

    @cached_property
    def weighted(self) -> ValueByBlocks:
        """Value by LSTD with ratios, with rows weighted by visits."""
        return self.estimate(self.u)

    def robust(self, q: Any = None) -> tuple[ValueByBlocks, ValueByBlocks]:
        """Return the value by action values alone, and with LSTD of their errors with ratios and visits."""
        taken, after, start = self.action_values(q)
        rewards = self.logged.rewards + self.logged.discount * after - taken
        found, share = self.estimate(self.u, rewards, start), np.full(len(start), 1.0 / len(start))
        return combined(found.fitted, np.zeros_like(found.phi), start, share, ones=0.0, log=self.logged), found

    def estimate(
        self, weight: Array | float = 1.0, rewards: Array | None = None, more: Array | float = 0.0
    ) -> ValueByBlocks:
        """Fit LSTD with ratios, with `weight` and `rewards` (N,); return the mean of v(s_0) + `more` over episodes."""
        rows, full = self.logged.rows, self.logged.full
        columns = {
            "importance_ratio": scattered(self.ratio, full, len(rows)),
            "weight": rows.weight * scattered(weight, full, len(rows)),
        }
        columns |= {} if rewards is None else {"y": scattered(rewards, full, len(rows), 0.0)[:, np.newaxis]}
        rows = rows.changed(**columns, given=rows.given | {"importance_ratio", "weight"})
        given = self.given
        settings = given.settings if given else Settings(self.gamma, 0.0, SMALL * self._mean_square(rows))
        options = {"n_blocks": given.options["n_blocks"] if given else "auto"}
        model = Model.of_rows(rows, settings, options, warned=frozenset({"breaks"}))
        check_weighted(model.statistics.total_weight, model.statistics.n_transitions)
        X = rows.X[self.first]
        share = np.full(X.shape[0], 1.0 / X.shape[0])
        found = combined(model, dense(X.T @ share), model.predict(X) + more, share, log=self.logged)
        traced = settings.lmbda > 0.0
        return found if traced else replace(found, dual=self._dual(found) * columns["weight"][full] * self.ratio)

    def _mean_square(self, rows: Rows) -> float:
        """Mean diagonal of Σ wρφφᵀ."""
        squares = rows.X[self.logged.full]
        squares = squares**2 if isinstance(squares, np.ndarray) else squares.multiply(squares)
        return float(np.mean(squares.T @ (rows.weight * rows.importance_ratio)[self.logged.full]))

    def _dual(self, found: ValueByBlocks) -> Array:
        """Return ωᵀφ of each transition at λ = 0, (N,)."""
        omega, ones = dual_solution(found.fitted, found.phi)
        return np.asarray(self.logged.rows.X[self.logged.full] @ omega + ones)

    def support_said(self) -> tuple[str, ...]:
        """Warn if the mean importance ratio is not one, also by raw columns; return the text, if there is one."""
        raw = None
        if self.names:
            known = np.where(np.isnan(self.columns), np.nanmean(self.columns, axis=0), self.columns)
            raw = self.logged.rows.changed(X=known, names=self.names)
        text = warn_of_support(self.logged, self.plain.fitted.predict(self.logged.rows.X), raw)
        return (text,) if text else ()

    def action_values(self, q: Any) -> tuple[Array, Array, Array]:
        """Return q of logged pairs, (N,), and v of successors, (N,), and of first states, (m,)."""
        if isinstance(q, type) or not (q is None or hasattr(q, "get_params") or callable(q)):
            raise InvalidInputError(
                f"`q` must be a regressor of scikit-learn, a fitted LSTDQ or callable; got {shown(q)}."
            )
        if not hasattr(q, "action_values") and (q is None or hasattr(q, "get_params")):
            with threadpool_limits(1, "openmp"):
                return self.regressed(boosting() if q is None else q)
        names, own_names = getattr(q, "feature_names_in_", None), self.logged.rows.names
        if names is not None and own_names is not None and (*names,) != (*own_names,):
            raise InvalidInputError(
                f"`q` must be fitted to the columns of `X` in their order, {shown([*own_names])}; got "
                f"{shown([*names])}. Fit it to the same columns."
            )
        logged, X, full = self.logged, self.logged.rows.X, self.logged.full
        (taken, after), start = np.empty((2, len(full))), np.empty(len(self.first))
        for own, model in self._out_of_fold(q):
            part, begun = own[full], self.first[own[self.first]]
            values = [values_in(model, states, n_actions=logged.features.n_actions) for states in (
                X[full[part]], logged.next_states()[part], X[begun]
            )]  # fmt: skip
            taken[part] = values[0][np.arange(len(values[0])), logged.codes[part]]
            after[part] = (values[1] * logged.successors[part]).sum(axis=1)
            start[own[self.first]] = (values[2] * logged.policy_of(begun)).sum(axis=1)
        return taken, after, start

    def _out_of_fold(self, q: Any) -> Iterator[tuple[Flags, Any]]:
        """Yield rows, and action values that were not fitted to them; a function serves for all."""
        if getattr(q, "logged_", None) is None:
            yield np.ones(len(self.folds), np.bool_), q
            return
        if len(q.logged_.full) != len(self.fold):
            raise InvalidInputError(
                f"`q` must be fitted to the rows of the log, {len(self.fold)} transitions; got {len(q.logged_.full)}. "
                "Fit it to these rows, or give its `action_values` as a function."
            )
        for k in np.unique(self.fold):
            yield self.folds == k, q.reweighted((self.fold != k) * 1.0)


def _check_given_together(rows: Rows, state: Any, state_next: Any) -> None:
    """Refuse raw columns of successors without those of states or without successors, and the reverse."""
    if state_next is not None and (state is None or rows.X_next is None):
        missing = "state" if state is None else "X_next"
        raise InvalidInputError(f"`state_next` must not be given without `{missing}`. Give both, or leave it out.")
    if state is not None and state_next is None and rows.X_next is not None:
        raise InvalidInputError("`state_next` must be given with `state` and `X_next`: the raw columns of successors.")


def _raw_columns(name: str, given: Any, rows: Rows, width: int | None = None) -> Array:
    """Return raw columns, (T, p), in the order of the rows; those after an end may hold anything."""
    columns = as_real(name, given)
    columns = columns[:, np.newaxis] if columns.ndim == 1 else columns
    p = columns.shape[1] if width is None else width
    if columns.shape != (len(rows), p):
        raise InvalidInputError(
            f"`{name}` must have one row per row of `X`, ({len(rows)}, {'p' if width is None else p}); got "
            f"{columns.shape}."
        )
    columns = columns if rows.order is None else columns[rows.order]
    used = columns if width is None else columns[~rows.terminated]
    if np.isinf(used).any() or (len(used) and np.isnan(used).all(axis=0).any()):
        raise InvalidInputError(
            f"`{name}` must have no infinite number and no column of nan alone. Leave out the column, or write nan "
            "where a number is not known."
        )
    return np.asarray(columns)


def feature_check(log: LoggedStates, robust: ValueByBlocks | None = None) -> FeatureCheck:
    """Compare the value, and the doubly robust one, with the weighted one, and the first TD errors with zero."""
    plain, weighted, errors = log.plain, log.weighted, td_errors(log)
    rows = [(plain.value - weighted.value, plain.blocks - weighted.blocks), (errors.value, errors.blocks)]
    if robust is not None:
        rows.append((robust.value - weighted.value, robust.blocks - weighted.blocks))
    difference, error, chance = np.empty((3, len(rows)))
    for i, (value, blocks) in enumerate(rows):
        squares = (blocks**2)[np.newaxis, :, np.newaxis]
        freedom = float(degrees_of_freedom(squares, plain.fitted.influence.shares)[0, 0])
        difference[i], error[i] = value, np.sqrt(squares.sum())
        chance[i] = 2.0 * special.stdtr(freedom, -abs(value) / error[i]) if error[i] else 1.0
    rounding = ROUNDING * largest_sum(log.logged)
    limit = max(FAR * float(np.linalg.norm(plain.blocks)), rounding)
    return FeatureCheck(NAMES[: len(rows)], difference, error, chance, limit)


def td_errors(log: LoggedStates) -> ValueByBlocks:
    """Return the mean over episodes of Σ_{t<5} γ^t ρ_{0:t} δ_t."""
    model, logged, begins, m = log.plain.fitted, log.logged, log.logged.begins, len(log.first)
    number, step, discount = logged.episode, logged.step, logged.discount
    c = np.zeros(len(number))
    c[begins] = log.ratio[begins]
    for t in range(1, FEW_STEPS):
        at = np.flatnonzero(step == t)
        c[at] = c[at - 1] * discount[at - 1] * log.ratio[at]
    X, after = logged.rows.X[logged.full], logged.next_states()
    delta = logged.rewards + discount * model.predict(after) - model.predict(X)
    values = np.asarray(np.bincount(number, c * delta, m), np.float64)
    mean = (dense(after.T @ (c * discount)) - dense(X.T @ c)) / m
    return combined(model, mean, values, np.full(m, 1.0 / m), ones=float(c @ (discount - 1.0)) / m)


def shrinkage(target: Array, predicted: Array) -> tuple[float, float]:
    """Return the mean of predictions out of fold, and the slope in [0, 1] of the target on them."""
    mean, centred = float(predicted.mean()), predicted - predicted.mean()
    square = float(centred @ centred)
    return mean, float(np.clip(target @ centred / square, 0.0, 1.0)) if square else 0.0
