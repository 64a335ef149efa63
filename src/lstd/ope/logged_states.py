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

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy import special
from sklearn.base import clone
from sklearn.model_selection import PredefinedSplit, cross_val_predict

from lstd.data.arguments import check_integer, shown
from lstd.data.convert import as_real
from lstd.data.feature_arrays import column_names, dense
from lstd.data.returns import run_backwards
from lstd.data.rows import Rows
from lstd.data.settings import Settings
from lstd.errors import InvalidInputError
from lstd.estimators.model import Model
from lstd.ope.logged_rows import LoggedRows, Places, check_successors_known, scattered, warn_of_support
from lstd.ope.pairs import values_in
from lstd.ope.tied_returns import largest_sum
from lstd.ope.value_by_blocks import ValueByBlocks, combined, dual_solution
from lstd.statistics.counts import check_weighted
from lstd.statistics.intervals import FEWEST_BLOCKS, degrees_of_freedom
from lstd.statistics.solve import check_range
from lstd.statistics.threads import one_openmp_thread
from lstd.types import Array, Flags

_LARGEST_COLUMN = 1e38  # which trees take
_LARGEST_REWARD = 1e30  # whose sums over rows trees can predict
SMALL = 1e-5  # of the mean diagonal of the Gram matrix: a ridge coefficient that does not decide
N_FOLDS = 3
N_VISITS = 5  # repeats of the regression of visits
N_VALUES = 4  # repeats of the regression of action values
CHANCE = 0.01  # of a warning with right features
AGREED = 0.05  # chance of a difference above which nothing speaks against the features
FAR = 0.5  # of the standard error of the value: larger differences matter
FEW_STEPS = 5  # steps of TD errors that are compared with zero
ROUNDING = 1e-9  # of the largest sum of rewards: differences below are those of rounding
NAMES = ("value less the weighted one", f"errors of the first {FEW_STEPS} steps", "doubly robust less the weighted one")
LEAF_OF_VISITS = 40  # least number of rows in a leaf of trees of visits
LEAF_OF_VALUES = 20  # and of action values


def boosting(least: int = LEAF_OF_VALUES) -> Any:
    """Return gradient boosting of trees with at least so many rows in a leaf."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    return HistGradientBoostingRegressor(
        learning_rate=0.35,
        max_iter=15,
        max_leaf_nodes=15,
        max_bins=63,
        min_samples_leaf=least,
        early_stopping=False,
        random_state=0,
    )


class PredictedValues(NamedTuple):
    """Action values at each transition, and values of the target policy in first states."""

    q: Array  # (N,) of logged pairs
    after: Array  # (N,) v of successors; of terminal ones, anything
    start: Array  # (m,) v of first states of episodes

    def shrunk(self, target: Array) -> PredictedValues:
        """Return the values with their distances from the mean times the slope of `target`, (N,), on them."""
        mean, slope = shrinkage(target, self.q)
        return PredictedValues(*(mean + slope * (values - mean) for values in self))


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
    def agrees(self) -> bool:
        """Whether neither of the first two differences is more than chance (5 %): nothing speaks against features."""
        return bool((self.p_value[:2] > AGREED).all())

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
        cls,
        logged: LoggedRows,
        gamma: float,
        state: Any = None,
        seed: int = 0,
        given: Model | None = None,
        state_next: Any = None,
    ) -> LoggedStates:
        """Return the transitions with raw columns `state` (T, p) of the rows as given; by default the features."""
        rows = logged.rows
        _check_given_together(rows, state, state_next)
        names: tuple[str, ...] = ()
        after = None
        if state is None:
            columns = dense(rows.X)
            if rows.X_next is not None:
                after = dense(rows.X_next)
        else:
            columns = _raw_columns("state", state, rows)
            names = column_names("state", state) or tuple(f"state[{j}]" for j in range(columns.shape[1]))
            if state_next is not None:
                after = _raw_columns("state_next", state_next, rows, columns.shape[1])
                check_successors_known(state, state_next, rows)
        for place in (columns, after):
            if place is not None and (np.abs(place) > _LARGEST_COLUMN).any():  # false for NaN
                raise InvalidInputError(
                    f"`{'X' if state is None else 'state'}` must be at most {_LARGEST_COLUMN:g} in absolute value, as "
                    f"trees compare float32; got {np.nanmax(np.abs(place)):g}. Give such columns in a larger unit."
                )
        group = np.cumsum(rows.begins) - 1
        folds = _folds(int(group[-1]) + 1, np.unique(group[logged.full]), check_integer("random_state", seed, 0))
        return cls(replace(logged, factor=None), gamma, columns, names, folds[group], given, after)

    def check_rewards(self) -> None:
        """Refuse rewards that trees cannot predict, as they compute with float32."""
        largest = float(np.abs(self.logged.rewards).max(initial=0.0))
        if largest > _LARGEST_REWARD:
            raise InvalidInputError(
                f"`y` must be at most {_LARGEST_REWARD:g} in absolute value, as trees that predict it compute with "
                f"float32; got {largest:g}. Give rewards in a larger unit."
            )

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
        return np.flatnonzero(self.logged.rows.begins_episode)

    def visits(self, start: Array) -> Array:
        """Return û of each transition, (N,), from values to start with."""
        logged = self.logged
        begins = logged.begins
        later = np.flatnonzero(~begins)
        if not len(later):
            return np.ones(len(start))
        goes_on = np.count_nonzero(~logged.rows.terminated[logged.full])
        kappa = goes_on / len(later)
        decay = (logged.discount * self.ratio)[later - 1] * kappa  # κ γ_t ρ_{t−1}
        u = start
        for _ in range(N_VISITS):
            target = np.where(begins, 1.0, 0.0)
            target[later] += decay * u[later - 1]
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

    def regressed(self, regressor: Any) -> PredictedValues:
        """Return action values of the target policy by a regression, out of fold."""
        logged = self.logged
        rewards = logged.rewards
        discount = logged.discount
        pairs = self.pairs(self.at, logged.codes)

        def fitted(rest: Flags) -> Any:
            model = clone(regressor).fit(pairs[rest], logged.returns[rest])
            for _ in range(N_VALUES):
                v = self.mixture(model, self.after[rest], logged.successors[rest])
                model = clone(regressor).fit(pairs[rest], rewards[rest] + discount[rest] * v)
            return model

        values = self._by_fold(pairs, fitted)
        return values.shrunk(rewards + discount * values.after)

    @cached_property
    def log_values(self) -> PredictedValues:
        """Action values of the log's own policy: regressions of logged returns, which need no Markov state."""
        returns = self.logged.returns
        pairs = self.pairs(self.at, self.logged.codes)

        def fitted(rest: Flags) -> Any:
            return boosting().fit(pairs[rest], returns[rest])

        with one_openmp_thread():
            values = self._by_fold(pairs, fitted)
        return values.shrunk(returns)

    def _by_fold(self, pairs: Array, fitted: Callable[[Flags], Any]) -> PredictedValues:
        """Return values by regressors of pairs that `fitted` gives of all transitions but those of a fold."""
        logged = self.logged
        of_first = self.folds[self.first]
        q = np.empty(len(self.fold))
        after = np.empty(len(self.fold))
        start = np.empty(len(of_first))
        for k in np.unique(self.fold):
            own = self.fold == k
            begun = self.first[of_first == k]
            model = fitted(~own)
            q[own] = model.predict(pairs[own])
            after[own] = self.mixture(model, self.after[own], logged.successors[own])
            start[of_first == k] = self.mixture(model, self.columns[begun], logged.policy_of(begun))
        return PredictedValues(q, after, start)

    @cached_property
    def per_decision(self) -> ValueByBlocks:
        """Per-decision doubly robust value (Jiang and Li 2016), with action values of the log's own policy.

        The mean over episodes of v(s_0) + Σ_t D_t ρ_0 ⋯ ρ_t δ_t, with the product D_t of the discounts before t.
        """
        q, after, start = self.log_values
        logged = self.logged
        m = len(start)
        delta = logged.rewards + logged.discount * after - q
        with np.errstate(over="ignore", invalid="ignore"):
            products = self._products()
            values = start + np.bincount(logged.episode, products * delta, m)
        check_range(values)
        no_features = np.zeros_like(self.plain.phi)  # the value does not depend on weights of features
        share = np.full(m, 1.0 / m)
        return combined(self.plain.fitted, no_features, values, share, ones=0.0, log=logged, dual=products / m)

    def _products(self) -> Array:
        """Return D_t ρ_0 ⋯ ρ_t of each transition, (N,), by a pass backwards over the rows in reverse order."""
        begins = self.logged.begins
        ratio = self.ratio
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
        start = np.ones(len(self.fold))
        if self.plain.fitted.settings.lmbda == 0.0:
            start = np.maximum(self._dual(self.plain), 0.0) * len(self.first)
        with one_openmp_thread():
            u = self.visits(start)
        return np.asarray(u / u.mean())

    @cached_property
    def weighted(self) -> ValueByBlocks:
        """Value by LSTD with ratios, with rows weighted by visits."""
        return self.estimate(self.u)

    def robust(self, q: Any = None) -> tuple[ValueByBlocks, ValueByBlocks]:
        """Return the value by action values alone, and with LSTD of their errors with ratios and visits."""
        taken, after, start = self.action_values(q)
        td_errors = self.logged.rewards + self.logged.discount * after - taken
        found = self.estimate(self.u, td_errors, start)
        share = np.full(len(start), 1.0 / len(start))
        direct = combined(found.fitted, np.zeros_like(found.phi), start, share, ones=0.0, log=self.logged)
        return direct, found

    def estimate(
        self, weight: Array | float = 1.0, rewards: Array | None = None, plus: Array | float = 0.0
    ) -> ValueByBlocks:
        """Fit LSTD with ratios, with `weight` and `rewards` (N,); return the mean of v(s_0) + `plus` over episodes."""
        full = self.logged.full
        rows = self.logged.rows
        weights = rows.weight * scattered(weight, full, len(rows))
        changed: dict[str, Any] = {"importance_ratio": scattered(self.ratio, full, len(rows)), "weight": weights}
        if rewards is not None:
            changed["y"] = scattered(rewards, full, len(rows), 0.0)[:, np.newaxis]
        rows = rows.changed(**changed, given=rows.given | {"importance_ratio", "weight"})
        if self.given is None:
            settings = Settings(self.gamma, 0.0, SMALL * self._mean_square(rows))
            options = {"n_blocks": "auto"}
        else:
            settings = self.given.settings
            options = {"n_blocks": self.given.options["n_blocks"]}
        model = Model.of_rows(rows, settings, options, warned=frozenset({"breaks"}))
        check_weighted(model.statistics.total_weight, model.statistics.n_transitions)
        starts = rows.X[self.first]
        n_starts = starts.shape[0]
        share = np.full(n_starts, 1.0 / n_starts)
        found = combined(model, dense(starts.T @ share), model.predict(starts) + plus, share, log=self.logged)
        if settings.lmbda > 0.0:  # traces have other dual weights
            return found
        dual = self._dual(found) * weights[full] * self.ratio  # w_t ωᵀz_t: z_t = ρ_t φ_t at λ = 0
        return replace(found, dual=dual)

    def _mean_square(self, rows: Rows) -> float:
        """Mean diagonal of Σ wρφφᵀ."""
        full = self.logged.full
        X = rows.X[full]
        with np.errstate(over="ignore", invalid="ignore"):
            squares = X**2 if isinstance(X, np.ndarray) else X.multiply(X)
            mean = np.mean(squares.T @ (rows.weight * rows.importance_ratio)[full])
        check_range(np.asarray(mean))
        return float(mean)

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

    def action_values(self, q: Any) -> PredictedValues:
        """Return action values by a regressor, a model or a function."""
        if isinstance(q, type) or not (q is None or hasattr(q, "get_params") or callable(q)):
            raise InvalidInputError(
                f"`q` must be a regressor of scikit-learn, a fitted LSTDQ or callable; got {shown(q)}."
            )
        if not hasattr(q, "action_values") and (q is None or hasattr(q, "get_params")):
            with one_openmp_thread():
                return self.regressed(boosting() if q is None else q)
        self._check_names(q)
        logged = self.logged
        X = logged.rows.X
        full = logged.full
        n_actions = logged.features.n_actions
        taken = np.empty(len(full))
        after = np.empty(len(full))
        start = np.empty(len(self.first))
        for own, model in self._out_of_fold(q):
            part = own[full]
            values = values_in(model, X[full[part]], n_actions=n_actions)
            taken[part] = values[np.arange(len(values)), logged.codes[part]]
            values_next = values_in(model, logged.next_states()[part], n_actions=n_actions)
            after[part] = (values_next * logged.successors[part]).sum(axis=1)
            begun = self.first[own[self.first]]
            first_values = values_in(model, X[begun], n_actions=n_actions)
            start[own[self.first]] = (first_values * logged.policy_of(begun)).sum(axis=1)
        return PredictedValues(taken, after, start)

    def _check_names(self, q: Any) -> None:
        """Refuse a model that was fitted to other columns."""
        names = getattr(q, "feature_names_in_", None)
        own_names = self.logged.rows.names
        if names is not None and own_names is not None and (*names,) != (*own_names,):
            raise InvalidInputError(
                f"`q` must be fitted to the columns of `X` in their order, {shown([*own_names])}; got "
                f"{shown([*names])}. Fit it to the same columns."
            )

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


def _folds(n_groups: int, used: Places, seed: int) -> Places:
    """Return a random fold of each group, (n_groups,); groups with transitions, `used`, are dealt out evenly."""
    n = len(used)
    if n < FEWEST_BLOCKS:
        raise InvalidInputError(
            f"`episode` must have at least {FEWEST_BLOCKS} episodes, or `groups` as many groups; got {n}. Action "
            "values and visits are fitted to some of them and predicted for the others."
        )
    folds = np.zeros(n_groups, np.intp)
    folds[used] = np.random.default_rng(seed).permutation(n) % N_FOLDS
    return folds


def _raw_columns(name: str, given: Any, rows: Rows, width: int | None = None) -> Array:
    """Return raw columns, (T, p), in the order of the rows; those after an end may hold anything."""
    columns = as_real(name, given)
    if columns.ndim == 1:
        columns = columns[:, np.newaxis]
    if columns.ndim != 2 or len(columns) != len(rows) or columns.shape[1] != (width or columns.shape[1]):
        raise InvalidInputError(
            f"`{name}` must have one row per row of `X`, ({len(rows)}, {width or 'p'}); got {columns.shape}."
        )
    if rows.order is not None:
        columns = columns[rows.order]
    used = columns
    if width is not None:  # successors
        used = columns[~rows.terminated]
    if np.isinf(used).any() or (len(used) and np.isnan(used).all(axis=0).any()):
        raise InvalidInputError(
            f"`{name}` must have no infinite number and no column of nan alone. Leave out the column, or write nan "
            "where a number is not known."
        )
    return np.asarray(columns)


def feature_check(log: LoggedStates, robust: ValueByBlocks | None = None) -> FeatureCheck:
    """Compare the value, and the doubly robust one, with the weighted one, and the first TD errors with zero."""
    plain = log.plain
    weighted = log.weighted
    errors = td_errors(log)
    compared = [(plain.value - weighted.value, plain.blocks - weighted.blocks), (errors.value, errors.blocks)]
    if robust is not None:
        compared.append((robust.value - weighted.value, robust.blocks - weighted.blocks))
    difference = np.array([value for value, _ in compared])
    error = np.array([np.sqrt((blocks**2).sum()) for _, blocks in compared])
    shares = plain.fitted.influence.shares
    chance = np.array([chance_of(value, blocks, shares) for value, blocks in compared])
    return FeatureCheck(NAMES[: len(compared)], difference, error, chance, least_difference(log))


def least_difference(log: LoggedStates) -> float:
    """Return the least difference that matters: half of the standard error of the value, but more than rounding."""
    rounding = ROUNDING * largest_sum(log.logged)
    return max(FAR * float(np.linalg.norm(log.plain.blocks)), rounding)


def chance_of(value: float, blocks: Array, shares: Array) -> float:
    """Return the chance of a larger difference from zero, from contributions of blocks, (E,)."""
    error = float(np.sqrt((blocks**2).sum()))
    if not error:
        return 1.0
    freedom = float(degrees_of_freedom((blocks**2)[np.newaxis, :, np.newaxis], shares)[0, 0])
    return 2.0 * float(special.stdtr(freedom, -abs(value) / error))


def td_errors(log: LoggedStates) -> ValueByBlocks:
    """Return the mean over episodes of Σ_{t<5} γ^t ρ_{0:t} δ_t."""
    model = log.plain.fitted
    logged = log.logged
    m = len(log.first)
    discount = logged.discount
    step = logged.step
    c = np.zeros(len(step))  # γ^t ρ_{0:t} of the first steps
    c[logged.begins] = log.ratio[logged.begins]
    for t in range(1, FEW_STEPS):
        at = np.flatnonzero(step == t)
        c[at] = c[at - 1] * discount[at - 1] * log.ratio[at]
    X = logged.rows.X[logged.full]
    after = logged.next_states()
    delta = logged.rewards + discount * model.predict(after) - model.predict(X)
    values = np.asarray(np.bincount(logged.episode, c * delta, m), np.float64)
    mean = (dense(after.T @ (c * discount)) - dense(X.T @ c)) / m
    ones = float(c @ (discount - 1.0)) / m
    return combined(model, mean, values, np.full(m, 1.0 / m), ones=ones)


def shrinkage(target: Array, predicted: Array) -> tuple[float, float]:
    """Return the mean of predictions out of fold, and the slope in [0, 1] of the target on them."""
    mean = float(predicted.mean())
    centred = predicted - predicted.mean()
    square = float(centred @ centred)
    if not square:
        return mean, 0.0
    return mean, float(np.clip(target @ centred / square, 0.0, 1.0))
