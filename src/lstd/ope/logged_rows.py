"""Logged rows with actions, as transitions from pair to expected pair: the rows that LSTD is fitted to.

Transition t has the features φ_t = φ(s_t, a_t), the expected successor φ̄_t = Σ_a π(a|s_{t+1}) φ(s_{t+1}, a), and a
trace coefficient. With π_t = π(a_t|s_t) of the target policy and μ_t = μ(a_t|s_t) of the policy that chose a_t, it is

    Retrace  min(1, π_t/μ_t)       tree backup  π_t       importance sampling  π_t/μ_t       none  0

(Retrace: Munos et al. 2016). The variance of importance sampling has no bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstd._kernels.forward_view import dual_weights
from lstd.data.broken_episodes import warn_of_breaks
from lstd.data.doubts import support_doubt
from lstd.data.feature_arrays import Features
from lstd.data.horizon_rows import count_unused, warn_of_unused
from lstd.data.rows import Rows
from lstd.errors import InvalidInputError, SupportWarning, warn
from lstd.ope.policies import by_action, logged_probabilities, probabilities_of
from lstd.ope.state_action_features import Codes, StateActionFeatures, one_per_row
from lstd.types import Array

Places = NDArray[np.intp]

TRACES = ("retrace", "tree_backup", "importance", "none")
ENTRIES_AT_ONCE = 2**22  # of expected successors at a time, 32 MiB


@dataclass(frozen=True, eq=False)
class LoggedRows:
    """N full transitions among T checked rows of states."""

    rows: Rows  # of states, in order of their groups
    full: Places  # (N,) rows that are full transitions
    codes: Codes  # (N,) places of the logged actions
    features: StateActionFeatures
    policy: Array | None  # (T, n_actions) probabilities of the target policy in rows, if known
    successors: Array  # (N, n_actions) and in successors; zero where they are terminal
    coefficients: Array | None  # (N,) None without traces

    @cached_property
    def episode(self) -> Places:
        """Number of each transition's episode, (N,)."""
        return np.concatenate([[0], np.cumsum(self.rows.last[:-1])])[self.full]

    @cached_property
    def begins(self) -> NDArray[np.bool_]:
        """Whether each transition is the first one of its episode, (N,)."""
        return np.concatenate([[True], np.diff(self.episode) != 0])

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
        states, weights = self.rows.X, omega
        if not self.has_dense_blocks:
            states, weights = self.features.action_values(states, omega), np.eye(self.features.n_actions)
        weights = weights.reshape(self.features.n_actions, -1)
        g, c = np.empty(len(self.full)), np.empty(0) if self.coefficients is None else self.coefficients
        discount = np.ascontiguousarray(self.rows.discount)
        dual_weights(states, self.full, self.codes, weights, ones, self.begins, discount, c, lmbda, g)
        return g * self.rows.weight[self.full]

    def unlogged(self, unseen: NDArray[np.bool_]) -> tuple[float, float]:
        """Count the pairs under the target policy, over successors, with a feature that is zero in all logged pairs.

        Return it and the number of all pairs. `unseen` (k,) are these features.
        """
        found, size = 0.0, max(1, ENTRIES_AT_ONCE // self.width)
        for first in range(0, len(self.full) if unseen.any() else 0, size):
            part = slice(first, first + size)
            found += float((self.successors[part] * self.features.touching(self.next_states(part), unseen)).sum())
        return found, float(self.successors.sum())


def logged_rows(
    rows: Rows, actions: Any, features: Any, policies: tuple[Any, Any], behavior: Any, trace: str, lmbda: float
) -> LoggedRows:
    """Bring checked rows of states together with actions and probabilities.

    `policies` are the target policy and, with `X_next` and an array, its probabilities in successors.
    """
    if not rows.single:
        raise InvalidInputError(f"`y` must have one reward per row, shape ({len(rows)},); got {rows.y.shape}.")
    full, policy = np.flatnonzero(rows.full), policies[0]
    if not len(full):
        raise InvalidInputError(
            f"`X` must hold at least one full transition; got n_samples={len(rows)}, and no row is followed by a row "
            "of its episode, terminated, or given with `X_next`."
        )
    has_traces, order = lmbda > 0.0 and trace != "none", _order(rows)
    known = features.labels if isinstance(features, StateActionFeatures) else None
    P: Any = None
    if rows.X_next is None or has_traces or behavior is not None or not callable(policy):
        P = probabilities_of(policy, rows.X, known)[slice(None) if callable(policy) else order]
    successors = _in_successors(rows, full, P, policies, known)
    features = _features(features, successors.shape[1])
    numbers = np.arange(len(rows))[order][full]
    codes = features.codes(_per_row("actions", one_per_row(actions), rows)[full], numbers)
    coefficients, logged = None if lmbda == 0.0 else np.zeros(len(full)), None
    if behavior is not None:
        given = _per_row("behavior_probability", by_action("behavior_probability", behavior, known), rows)[full]
        logged = logged_probabilities(given, P[full], codes, numbers)
        ratio = np.ones(len(rows))
        ratio[full] = P[full, codes] / logged
        warn(support_doubt(rows, ratio), SupportWarning)
    if has_traces:
        warn_of_breaks(rows, lmbda)
        coefficients = _trace_coefficients(trace, lmbda, P[full, codes], logged)
    lost = count_unused(rows, slice(len(rows) - 1))
    warn_of_unused(lost, lost + bool(not rows.full[-1] and rows.known[-1] and rows.y[-1].any()))
    return LoggedRows(rows, full, codes, features, P, successors, coefficients)


def _features(features: Any, n_actions: int) -> StateActionFeatures:
    if isinstance(features, StateActionFeatures):
        return features
    if features is not None and not callable(features):
        raise InvalidInputError(f"`features` must be StateActionFeatures or callable; got {features!r:.80}.")
    return StateActionFeatures(n_actions, features)


def _order(rows: Rows) -> Any:
    """Return an index that puts what was given per row in the order of `rows`."""
    return slice(None) if rows.order is None else rows.order


def _in_successors(rows: Rows, full: Places, P: Array, policies: tuple[Any, Any], labels: NDArray[Any] | None) -> Array:
    """Return the probabilities of the target policy in successors, (N, n_actions), zero in terminal ones."""
    policy, policy_next = policies
    if policy_next is not None and (rows.X_next is None or callable(policy)):
        why = "without `X_next`" if rows.X_next is None else "with a function as `target_policy`"
        raise InvalidInputError(
            f"`target_policy_next` must not be given {why}, where it is not used. Leave it out"
            f"{', or give `X_next`' if rows.X_next is None else ''}."
        )
    if rows.X_next is None:
        after = P[np.minimum(full + 1, len(rows) - 1)]
    elif callable(policy):
        after = probabilities_of(policy, rows.X_next, labels).copy()
    elif policy_next is not None:
        after = probabilities_of(policy_next, rows.X_next, labels, "target_policy_next")[_order(rows)].copy()
    else:
        raise InvalidInputError(
            "`target_policy_next` must be given with `X_next` and an array as `target_policy`: the probabilities of "
            "the actions in successors. Or pass a function of states as `target_policy`."
        )
    after[rows.terminated[full]] = 0.0
    return after


def _per_row(name: str, values: Any, rows: Rows) -> NDArray[Any]:
    """Return one entry per row, in the order of the rows."""
    array = np.asarray(values)
    if array.shape[:1] != (len(rows),):
        raise InvalidInputError(
            f"`{name}` must have one entry per row of `X`, shape ({len(rows)},); got {array.shape}."
        )
    return np.asarray(array[_order(rows)])


def _trace_coefficients(trace: str, lmbda: float, target: Array, logged: Array | None) -> Array:
    """Compute coefficients of transitions, (N,), from the probabilities of their actions, unless `trace` is none."""
    if trace == "tree_backup":
        return target
    if logged is None:
        raise InvalidInputError(
            f"`behavior_probability` must be given for trace={trace!r} with lmbda={lmbda:g}: the probability with "
            'which each action was taken. Without it, use trace="tree_backup" or lmbda=0.'
        )
    ratio = target / logged
    return np.minimum(1.0, ratio) if trace == "retrace" else ratio
