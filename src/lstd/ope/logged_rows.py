"""Logged rows with actions, as transitions from pair to expected pair: the rows that LSTD is fitted to.

Transition t has the features φ_t = φ(s_t, a_t), the expected successor φ̄_t = Σ_a π(a|s_{t+1}) φ(s_{t+1}, a), and a
trace coefficient. With π_t = π(a_t|s_t) of the target policy and μ_t = μ(a_t|s_t) of the policy that chose a_t, it is

    Retrace  min(1, π_t/μ_t)       none  0

(Retrace: Munos et al. 2016).

With a block of columns per action, pairs are summed without arrays of their width. In the sums Σ_t z_t x_tᵀ of
:class:`lstd.LSTDStatistics`, traces of pairs fill up although φ_t has the n features of one block. In the forward view
the same sums are products of these n columns, for each action over its own rows:

    Σ_t w_t z_t x_tᵀ = Σ_t φ_t f_tᵀ,   f_t = w_t x_t + c_{t+1} λγ_t f_{t+1},   x_t = φ_t − γ_t φ̄_t

and likewise for b, and for B with x_t = γ_t φ̄_t at cuts alone. That takes n·k products per row of k features, not k².
A trace u that enters the first row adds u c_0 λ f_0ᵀ.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator

from lstd._kernels.forward_view import dual_weights, forward_rows
from lstd.data.convert import as_real
from lstd.data.doubts import support_doubt, unused_rows, warn_of_breaks, warn_of_unused
from lstd.data.feature_arrays import Features, dense
from lstd.data.ids import first_true
from lstd.data.read_only import lock, read_only
from lstd.data.returns import run_backwards
from lstd.data.rows import Columns, Rows, repeated
from lstd.data.takes import GIVE_HORIZON_ROWS, Takes
from lstd.errors import InvalidInputError, SupportWarning, warn
from lstd.estimators.validate_data import checked_rows
from lstd.ope.pairs import Codes, StateActionFeatures, as_column, by_action, logged_probabilities, one_per_row
from lstd.ope.policies import NO_POLICY, PolicyArguments, is_function, probabilities_of
from lstd.statistics.adding import Added, SummingFeatures
from lstd.statistics.blocks import Blocks, no_blocks
from lstd.types import Array, FeaturesLike, Flags

Places = NDArray[np.intp]

TRACES = ("retrace", "none")
ENTRIES_AT_ONCE = 2**22  # of expected successors at a time, 32 MiB
UNWEIGHTED = {
    "weight": "Use `policy_value` of an LSTD or LSTDQ that was fitted with `weight`.",
    "sample_weight": "Use `policy_value` of an LSTD or LSTDQ that was fitted with `weight`.",
    "X_next": GIVE_HORIZON_ROWS,
    "importance_ratio": "`target_policy` and `behavior_probability` decide the ratios.",
    "trace_coefficient": "`target_policy` and `behavior_probability` decide the traces.",
}
PER_ROW = ("episode", "terminated", "X_next", "discount", "weight", "groups")
_STATES = Takes("rows of states", (*PER_ROW, "importance_ratio"))
_ENTRIES = 2**18  # of f in a batch, 2 MiB, which stay in the cache until they are multiplied,
_ROWS_PER_ACTION = 64  # but with so many rows for each action, on average
_SMALLEST = 1e-290  # entries of f that are far below the rounding of any sum; denormal ones are slow
_LEAST_SHARE = 2.0**-200  # of a row in a later trace: smaller ones are far below rounding at any scale of the features


@dataclass(frozen=True, eq=False)
class LoggedRows:
    """N full transitions among T checked rows of states; arrays of transitions cannot be written to."""

    rows: Rows  # of states, in order of their groups
    full: Places  # (N,) rows that are full transitions
    codes: Codes  # (N,) places of the logged actions
    features: StateActionFeatures
    policy: Array | None  # (T, n_actions) probabilities of the target policy in rows, if known
    successors: Array  # (N, n_actions) and in successors; zero where they are terminal
    coefficients: Array | None  # (N,) None without traces
    ratio: Array | None = None  # (N,) π/μ of the logged actions, if μ is known
    factor: Array | None = None  # (N,) of weights, by ratios and visits

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, np.ndarray):
                locked = value.view()  # an array of the caller stays as it was
                lock([locked])
                object.__setattr__(self, name, locked)

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.__post_init__()  # copies and pickles of arrays can be written to

    @cached_property
    def episode(self) -> Places:
        """Number of each transition's episode, (N,)."""
        return read_only(self.rows.episode_number[self.full])

    @cached_property
    def begins(self) -> Flags:
        """Whether each transition is the first one of its episode, (N,)."""
        return read_only(np.concatenate([[True], np.diff(self.episode) != 0]))

    @property
    def group(self) -> Places:
        """Number of each transition's group, or without groups its episode, (N,)."""
        return np.asarray((np.cumsum(self.rows.begins, dtype=np.intp) - 1)[self.full])

    @property
    def ended(self) -> Flags:
        """Whether each episode with a transition terminated, (m,)."""
        last = np.append(self.begins[1:], True)
        return np.asarray(self.rows.terminated[self.full[last]])

    @property
    def numbers(self) -> Places:
        """Number of each transition's row as it was given, (N,)."""
        if self.rows.order is None:
            return self.full
        return np.asarray(self.rows.order[self.full])

    @property
    def step(self) -> Places:
        """Number of each transition in its episode, (N,)."""
        first = np.flatnonzero(self.begins)
        return np.asarray(np.arange(len(self.full)) - first[np.cumsum(self.begins) - 1])

    @property
    def rewards(self) -> Array:
        """Reward of each transition, (N,)."""
        return np.asarray(self.rows.y[self.full, 0])

    @property
    def discount(self) -> Array:
        """Discount of each transition, (N,)."""
        return np.asarray(self.rows.discount[self.full])

    @property
    def returns(self) -> Array:
        """Discounted rewards from each transition to the end of its episode in the log, (N,)."""
        last = np.append(self.begins[1:], True)
        return run_backwards(self.rewards[:, np.newaxis], self.discount, last)[:, 0]

    def policy_of(self, rows: Places) -> Array:
        """Return the probabilities of the target policy in the states of some rows, where they are known."""
        assert self.policy is not None
        return np.asarray(self.policy[rows])

    @property
    def width(self) -> int:
        """Number of features of pairs in blocks of those of states."""
        return self.rows.n_features * self.features.n_actions

    @property
    def has_dense_blocks(self) -> bool:
        """Whether features of pairs are blocks of dense ones."""
        return isinstance(self.rows.X, np.ndarray) and self.features.phi is None

    @property
    def wide(self) -> bool:
        """Whether features of pairs are blocks of dense ones that would take much memory as an array."""
        return self.has_dense_blocks and len(self.full) * self.width > ENTRIES_AT_ONCE

    @property
    def weight(self) -> Array:
        """Weights of transitions, (N,)."""
        weight = np.asarray(self.rows.weight[self.full])
        if self.factor is None:
            return weight
        return weight * self.factor

    def weighted(self, factor: Array) -> LoggedRows:
        """Return the transitions with weights times `factor`, (N,)."""
        if self.factor is None:
            return replace(self, factor=factor)
        return replace(self, factor=factor * self.factor)

    def places_after(self, part: slice) -> tuple[Features, Places]:
        """Return features of states and the places in them of those after transitions; of terminal ones, any place."""
        full = self.full[part]
        if self.rows.X_next is not None:
            return self.rows.X_next, full
        return self.rows.X, np.minimum(full + 1, len(self.rows) - 1)

    def next_states(self, part: slice = slice(None)) -> Features:
        """Return the features of the states after transitions, (N, n); of terminal ones, anything."""
        states, places = self.places_after(part)
        return states[places]

    def pairs(self, part: slice) -> Features:
        """Return φ(s_t, a_t) of transitions."""
        return self.features.of_pairs(self.rows.X[self.full[part]], self.codes[part])

    def expected(self, part: slice) -> Features:
        """Return φ̄_t of transitions."""
        return self.features.of_mixtures(self.next_states(part), self.successors[part])

    def dual_weights(self, omega: Array, ones: float, lmbda: float) -> Array:
        """Compute w_t ωᵀz_t of each transition, (N,), with the weight of the column of ones, or zero, in `ones`."""
        n_actions = self.features.n_actions
        if self.has_dense_blocks:
            states = self.rows.X
            weights = omega.reshape(n_actions, -1)
        else:  # ωᵀφ(s, a) of each action in place of features
            states = self.features.action_values(self.rows.X, omega)
            weights = np.eye(n_actions)
        c = self.coefficients
        if c is None:
            c = np.empty(0)
        discount = np.ascontiguousarray(self.rows.discount)
        g = np.empty(len(self.full))
        dual_weights(states, self.full, self.codes, weights, ones, self.begins, discount, c, lmbda, g)
        return g * self.weight

    def unlogged(self, unseen: NDArray[np.bool_]) -> tuple[float, float]:
        """Count the pairs under the target policy, over successors, with a feature that is zero in all logged pairs.

        Return it and the number of all pairs. `unseen` (k,) are these features.
        """
        pairs = float(self.successors.sum())
        if not unseen.any():
            return 0.0, pairs
        entries_of_row = self.width
        if sparse.issparse(self.rows.X) and self.features.phi is None:
            entries_of_row = self.features.n_actions
        size = max(1, ENTRIES_AT_ONCE // entries_of_row)
        found = 0.0
        for first in range(0, len(self.full), size):
            part = slice(first, first + size)
            touching = self.features.touching(self.next_states(part), unseen)
            found += float((self.successors[part] * touching).sum())
        return found, pairs


def states_of(X: FeaturesLike, y: Any, columns: Columns, gamma: float, names: BaseEstimator | None = None) -> Rows:
    """Check rows of states; `names` gets the names of the features. A column (T, 1) of numbers is as good as (T,)."""
    options: Any = {"gamma": gamma, "reset": True, "warn": True, "finite": True, "sort": True}
    flat: Any = {name: as_column(values) for name, values in columns.items() if name != "X_next"}
    if "X_next" in columns:
        flat["X_next"] = columns["X_next"]
    return checked_rows(names or BaseEstimator(), X, as_column(y), flat, _STATES, **options)


def logged_rows(
    rows: Rows,
    actions: Any,
    target: PolicyArguments,
    behavior: Any,
    features: Any = None,
    trace: str = "none",
    lmbda: float = 0.0,
) -> LoggedRows:
    """Bring checked rows of states together with actions and probabilities."""
    if not rows.single:
        raise InvalidInputError(f"`y` must have one reward per row, shape ({len(rows)},); got {rows.y.shape}.")
    full = np.flatnonzero(rows.full)
    if not len(full):
        raise InvalidInputError(
            f"`X` must hold at least one full transition; got n_samples={len(rows)}, and no row is followed by a row "
            "of its episode, terminated, or given with `X_next`."
        )
    if not (features is None or callable(features) or isinstance(features, StateActionFeatures)):
        raise InvalidInputError(f"`features` must be StateActionFeatures or callable; got {features!r:.80}.")
    has_traces = lmbda > 0.0 and trace != "none"
    labels = features.labels if isinstance(features, StateActionFeatures) else None
    taken = _per_row("actions", as_column(one_per_row(actions)), rows)[full]
    P: Any = None
    if rows.X_next is None or has_traces or behavior is not None or not is_function(target.policy):
        P = _in_rows(rows, target, labels, taken)
    successors = _in_successors(rows, full, P, target, labels, taken)
    if P is not None:
        P, successors = _of_same_width(P, successors)
    if not isinstance(features, StateActionFeatures):
        features = StateActionFeatures(successors.shape[1], features)
    numbers = np.arange(len(rows))[_order(rows)][full]
    codes = features.codes(taken, numbers)

    ratio: Array | None = None
    if behavior is not None:
        by_row = by_action("behavior_probability", as_column(behavior), labels)
        given = _per_row("behavior_probability", by_row, rows)[full]
        ratio = P[full, codes] / logged_probabilities(given, P[full], codes, numbers)
    coefficients = None
    if has_traces:
        warn_of_breaks(rows, lmbda)
        if ratio is None:
            raise InvalidInputError(
                f"`behavior_probability` must be given for traces, lmbda={lmbda:g}: the probability with which each "
                "action was taken. Without it, use lmbda=0."
            )
        coefficients = np.minimum(1.0, ratio)
    elif lmbda > 0.0:
        coefficients = np.zeros(len(full))
    _warn_of_unused_rows(rows)
    return LoggedRows(rows, full, codes, features, P, successors, coefficients, ratio)


def _warn_of_unused_rows(rows: Rows) -> None:
    """Warn of rewards that count nowhere, for want of a successor."""
    lost = len(unused_rows(rows, len(rows) - 1))
    last_lost = not rows.full[-1] and rows.known[-1] and rows.y[-1].any()
    warn_of_unused(lost, lost + bool(last_lost))


def ratio_rows(rows: Rows) -> LoggedRows:
    """Return transitions with the importance ratios of the rows, or none, and without actions."""
    none = np.zeros(len(rows), np.intp)
    certain = np.ones((len(rows), 1))  # of the one action that stands for all
    target = PolicyArguments(certain)
    if rows.X_next is not None:
        target = PolicyArguments(certain, certain)
    logged = logged_rows(rows, none, target, None)
    if "importance_ratio" not in rows.given:
        return logged
    return replace(logged, ratio=rows.importance_ratio[logged.full])


def check_ratio_alone(**given: Any) -> None:
    """Refuse arguments of policies beside `importance_ratio`."""
    for name, value in given.items():
        if value is not None:
            raise InvalidInputError(
                f"`{name}` must not be given with `importance_ratio`, which stands for it. Leave out one."
            )


def warn_of_support(logged: LoggedRows, value: Array | None = None, raw: Rows | None = None) -> str:
    """Warn if the mean ratio is not one, and return the text.

    `value` (T,) are predicted values of states, and `raw` the rows with other columns to look at.
    """
    if logged.ratio is None:
        return ""
    ratio = scattered(logged.ratio, logged.full, len(logged.rows))
    text = support_doubt(logged.rows, ratio, value)
    if not text and raw:
        text = support_doubt(raw, ratio)
    warn(text, SupportWarning)
    return text


def scattered(values: Array | float, full: Places, n_rows: int, other: float = 1.0) -> Array:
    """Return the values of full transitions, (N,), as one per row, (T,), with `other` elsewhere."""
    column = np.full(n_rows, other)
    column[full] = values
    return column


def log_columns(data: Any, needed: tuple[str, ...], others: tuple[str, ...] = PER_ROW) -> dict[str, Any]:
    """Return a log, a mapping or Trajectories, as arguments of `LSTDQ.fit` by name."""
    if isinstance(data, Mapping):
        given = dict(data)
    else:
        given = getattr(data, "to_arrays", dict)()
        for name in ("actions", "behavior_probability"):
            given[name] = getattr(data, name, None)
    missing = [name for name in needed if given.get(name) is None]
    if missing:
        raise InvalidInputError(
            f"`data` must have {missing[0]!r}; it needs {', '.join(needed)}, and episode and terminated if known. Add "
            "it, such as `data.to_arrays() | {...}` of Trajectories."
        )
    Takes("data", (*needed, *others)).check(given)
    return given


def logged_data(data: Any, gamma: float, target: PolicyArguments = NO_POLICY) -> LoggedRows:
    """Return the transitions of a log with both policies, or ratios, given as arguments of `LSTDQ.fit` by name.

    `target` says what a function takes as `target_policy`.
    """
    by_ratio = isinstance(data, Mapping) and data.get("importance_ratio") is not None
    policies = ("actions", "target_policy", "behavior_probability")
    needed: tuple[str, ...] = ("X", "y", *policies)
    if by_ratio:
        needed = ("X", "y", "importance_ratio")
    given = log_columns(data, needed, (*PER_ROW, *policies, "features", "target_policy_next"))
    X = given.pop("X")
    y = given.pop("y")
    actions = given.pop("actions", None)
    policy = given.pop("target_policy", None)
    behavior = given.pop("behavior_probability", None)
    features = given.pop("features", None)
    after = given.pop("target_policy_next", None)
    columns: Columns = given  # type: ignore[assignment]
    rows = states_of(X, y, columns, gamma)
    if by_ratio:
        check_ratio_alone(
            actions=actions,
            target_policy=policy,
            behavior_probability=behavior,
            target_policy_next=after,
            policy_of=target.of,
        )
        return ratio_rows(rows)
    target = replace(target, policy=policy, after=after).checked()
    return logged_rows(rows, actions, target, behavior, features)


def _order(rows: Rows) -> Any:
    """Return an index that puts what was given per row in the order of `rows`."""
    return slice(None) if rows.order is None else rows.order


def _as_given(rows: Rows, values: Any) -> Any:
    """Return values of `rows` in the order in which the rows were given."""
    if rows.order is None:
        return values
    return values[np.argsort(rows.order)]


def _in_rows(rows: Rows, target: PolicyArguments, labels: NDArray[Any] | None, taken: NDArray[Any]) -> Array:
    """Return the probabilities of the target policy in rows, (T, n_actions), in the order of `rows`.

    A function gets the rows in the order in which they were given, since it may answer by it.
    """
    states: Any = rows.X
    if target.takes_state:
        states = target.state
        _check_length("state", states, rows)
    elif is_function(target.policy):
        states = _as_given(rows, rows.X)
    return np.asarray(probabilities_of(target.policy, states, labels, logged=taken)[_order(rows)])


def _in_successors(
    rows: Rows, full: Places, P: Array, target: PolicyArguments, labels: NDArray[Any] | None, taken: NDArray[Any]
) -> Array:
    """Return the probabilities of the target policy in successors, (N, n_actions), zero in terminal ones."""
    if target.after is not None and (rows.X_next is None or is_function(target.policy)):
        why = "without `X_next`" if rows.X_next is None else "with a function as `target_policy`"
        raise InvalidInputError(
            f"`target_policy_next` must not be given {why}, where it is not used. Leave it out"
            f"{', or give `X_next`' if rows.X_next is None else ''}."
        )
    if rows.X_next is None:
        after = P[np.minimum(full + 1, len(rows) - 1)]
    else:
        after = _in_given_successors(rows, target, labels, taken).copy()
    after[rows.terminated[full]] = 0.0
    return after


def _in_given_successors(
    rows: Rows, target: PolicyArguments, labels: NDArray[Any] | None, taken: NDArray[Any]
) -> Array:
    """Return the probabilities in the states of `X_next`, (T, n_actions); in terminal ones, those of any state."""
    policy = target.policy
    name = "target_policy"
    states: Any = rows.X_next
    of = "X_next"
    if not is_function(policy):
        policy = target.after
        name = "target_policy_next"
        if policy is None:
            raise InvalidInputError(
                "`target_policy_next` must be given with `X_next` and an array as `target_policy`: the probabilities "
                "of the actions in successors. Or pass a function of states as `target_policy`."
            )
    elif target.takes_state:
        states = target.state_next
        of = "state_next"
        if states is None:
            raise InvalidInputError('`state_next` must be given with `X_next` and policy_of="state".')
        _check_length("state_next", states, rows)
        check_successors_known(target.state, states, rows)
    else:
        states = _as_given(rows, states)
    if rows.terminated.all():  # no successor counts
        return _in_rows(rows, target, labels, taken)
    ended = _as_given(rows, rows.terminated)
    return np.asarray(probabilities_of(policy, states, labels, name, taken, of, ended)[_order(rows)])


def _check_length(name: str, states: Any, rows: Rows) -> None:
    """Refuse raw columns of other rows before a policy is asked about them."""
    shape = np.shape(states)
    if shape[:1] != (len(rows),):
        raise InvalidInputError(f"`{name}` must have one row per row of `X`, ({len(rows)}, p); got {shape}.")


def check_successors_known(state: Any, state_next: Any, rows: Rows) -> None:
    """Refuse a successor without a number that all rows of `state` have, unless it follows an end.

    Columns with NaN in `state` are such that a number may be unknown.
    """
    columns = as_real("state", state)
    after = as_real("state_next", state_next)
    if after.shape != columns.shape:
        return  # refused by another check
    columns = columns.reshape(len(rows), -1)
    always_known = ~np.isnan(columns).any(axis=0)
    lost = (np.isnan(after.reshape(len(rows), -1)) & always_known).any(axis=1)
    row = first_true(lost & ~_as_given(rows, rows.terminated))
    if row is not None:
        raise InvalidInputError(
            "`state_next` must be known where the episode goes on, in columns that all rows of `state` have; row "
            f"{row} has nan. Correct it, or set `terminated` where an episode ended."
        )


def _of_same_width(P: Array, after: Array) -> tuple[Array, Array]:
    """Add columns of zeros for actions of the largest numbers that one of both does not take."""
    width = max(P.shape[1], after.shape[1])
    return _padded(P, width), _padded(after, width)


def _padded(P: Array, width: int) -> Array:
    """Return probabilities with columns of zeros up to a width."""
    if P.shape[1] == width:
        return P
    return np.pad(P, ((0, 0), (0, width - P.shape[1])))


def _per_row(name: str, values: Any, rows: Rows) -> NDArray[Any]:
    """Return one entry per row, in the order of the rows."""
    array = np.asarray(values)
    if array.shape[:1] != (len(rows),):
        raise InvalidInputError(
            f"`{name}` must have one entry per row of `X`, shape ({len(rows)},); got {array.shape}."
        )
    return np.asarray(array[_order(rows)])


@dataclass(frozen=True, eq=False)
class PairRows(SummingFeatures):
    """Features φ(s_t, a_t) of N logged pairs, or their expected successors, as sums and rows need them."""

    logged: LoggedRows
    first: int
    end: int
    expected: bool

    @property
    def shape(self) -> tuple[int, int]:
        """Shape (N, k) of the features."""
        return self.end - self.first, self.logged.width

    @property
    def nnz(self) -> int:
        """Number of entries of an array of the features, as far as work is divided by it."""
        return self.shape[0] * self.shape[1]

    def rows(self, part: slice) -> PairRows:
        """Return consecutive rows."""
        return replace(self, first=self.first + part.start, end=self.first + part.stop)

    def __getitem__(self, rows: slice) -> Features:
        """Return the features of some rows."""
        part = slice(*rows.indices(self.shape[0]))
        part = slice(self.first + part.start, self.first + part.stop, part.step)
        return self.logged.expected(part) if self.expected else self.logged.pairs(part)

    def toarray(self) -> Array:
        """Return the features as an array."""
        return dense(self[:])

    def sums(self, rows: Rows, lmbda: float) -> Added:
        """Sum `rows`, of which these are the features; return `sums`, `cuts` and `trace` of statistics."""
        lmbdas = lmbda * rows.trace_coefficient
        kept = np.where(rows.last, 0.0, rows.discount * np.append(lmbdas[1:], 0.0))
        weights = np.ascontiguousarray(rows.weight)
        ahead = weights * rows.discount
        cut = rows.cut
        A, a = self._products(weights, np.where(cut, 0.0, ahead), rows.y[:, 0], kept, rows.appended)
        sums = _with_unit_traces(A, lmbdas[0] * a)
        cuts = None
        cut[-1] = False  # the boundary term of the last row is pending
        if cut.any():
            nothing = np.zeros(len(rows))
            B, h = self._products(nothing, np.where(cut, -ahead, 0.0), nothing, kept, rows.appended)
            cuts = _with_unit_traces(B, lmbdas[0] * h)[:-1].copy()
        u, decay = self._leaving(kept, rows.discount[-1], rows.appended)
        u = np.concatenate([u, [lmbdas[0] * decay, 0.0]])
        return Added(sums, cuts, np.stack([u, weights[-1] * u]))

    def _products(self, own: Array, ahead: Array, rewards: Array, kept: Array, ones: int) -> tuple[Array, Array]:
        """Return Σ φ_t f_tᵀ with the rewards as a last column, (k, k + 1), and f_0, of x_t = own φ_t − ahead φ̄_t."""
        logged = self.logged
        n = logged.rows.n_features
        n_actions = logged.features.n_actions
        k = logged.width + ones
        out = np.zeros((k, k + 1))
        running = np.zeros(k + 1)  # f of the row after a batch
        size = max(_ENTRIES // (k + 1), _ROWS_PER_ACTION * n_actions)
        left = np.empty((min(size, len(own)), n + ones))
        right = np.empty((min(size, len(own)), k + 1))
        for first in reversed(range(0, len(own), size)):
            part = slice(first, min(first + size, len(own)))
            whole = slice(self.first + part.start, self.first + part.stop)
            codes = logged.codes[whole]
            order = np.argsort(codes, kind="stable")  # rows of an action together
            places = np.empty_like(order)
            places[order] = np.arange(len(order))
            ends = np.cumsum(np.bincount(codes, minlength=n_actions))
            states = logged.rows.X, logged.full[whole], *logged.places_after(whole)
            columns = own[part], ahead[part], rewards[part], kept[part]
            running[np.abs(running) < _SMALLEST] = 0.0
            forward_rows(*states, codes, logged.successors[whole], *columns, places, running, left, right)
            for a, (start, end) in enumerate(pairwise([0, *ends])):
                if start < end:
                    product = left[start:end].T @ right[start:end]
                    out[a * n : (a + 1) * n] += product[:n]
                    out[k - ones :] += product[n:]
        return out, running

    def _leaving(self, kept: Array, discount: float, ones: int) -> tuple[Array, float]:
        """Return the trace that leaves the last row, (k,), and the share in it of the trace of the first row."""
        shares = discount * np.append(np.cumprod(kept[-2::-1])[::-1], 1.0)
        first = int(np.argmax(shares >= _LEAST_SHARE))
        rows = slice(self.first + first, self.end)
        P = np.zeros((self.end - rows.start, self.logged.features.n_actions))
        P[np.arange(len(P)), self.logged.codes[rows]] = shares[first:]
        z = self.logged.features.total(self.logged.rows.X[self.logged.full[rows]], P)
        return np.append(z, [P.sum()] * ones), float(shares[0])


def _with_unit_traces(S: Array, entering: Array) -> Array:
    """Return the transpose of sums (k, k + 1) with two columns: what unit traces change that enter the first row."""
    return np.column_stack([S.T, entering, np.zeros(len(entering))])


def pair_rows(logged: LoggedRows) -> Rows:
    """Return the transitions as rows whose features are not arrays."""
    rows = logged.rows
    N = len(logged.full)
    given = rows.given - {"importance_ratio", "trace_coefficient"}
    coefficients = repeated(1.0, N)
    if logged.coefficients is not None:
        coefficients = logged.coefficients
        given |= {"trace_coefficient"}
    if logged.factor is not None:
        given |= {"weight"}
    changed: dict[str, Any] = {
        "known": np.ones(N, np.bool_),
        "last": np.append(logged.begins[1:], True),
        "episode": logged.episode,
        "importance_ratio": repeated(1.0, N),
        "trace_coefficient": coefficients,
        "weight": logged.weight,
    }
    columns = rows.columns(logged.full) | changed
    return rows.changed(
        X=PairRows(logged, 0, N, False),
        X_next=PairRows(logged, 0, N, True),
        **columns,
        names=None,
        order=None,
        given=given,
    )


def summed_pairs(logged: LoggedRows, rows: Rows, lmbda: float, intercept: bool, n_blocks: int | str) -> Blocks:
    """Sum `rows`, those of `logged` but for weights and rewards.

    Blocks of columns that would take much memory have sums of their own; others are summed as arrays, in chunks.
    """
    size = len(rows)
    if not logged.wide:
        size = max(1, ENTRIES_AT_ONCE // logged.width)
    blocks = None
    for chunk in rows.split(range(0, len(rows), size)):
        part = chunk
        if not logged.wide:
            part = chunk.changed(X=chunk.X[:], X_next=chunk.X_next[:])  # type: ignore[index]
        if intercept:
            part = part.with_intercept()
        if blocks is None:
            blocks = no_blocks(part, lmbda, n_blocks)
        blocks = blocks.extended(part)
    assert blocks is not None
    return blocks
