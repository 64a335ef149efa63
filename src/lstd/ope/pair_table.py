"""The value of a policy in the process that a log of few states and actions shows: a table of pairs.

With n_p transitions of each logged pair p of a state and an action, the action values solve

    q(p) = 1/n_p Σ_{t: (s_t, a_t) = p} (r_{t+1} + γ_t Σ_a π(a|s_{t+1}) q(s_{t+1}, a)),

which is LSTD(0) of action values with a column for each pair, and what dynamic programming says of observed
frequencies. An action that was never logged in a state has the mean of the pairs of that state, and a state in which no
action was logged that of all pairs; in these means, a pair counts n_p times. With B = I − P the matrix of the system,
r̄ the mean rewards of pairs, and φ̄₀ the policy in first states, averaged over episodes, the value is

    φ̄₀ᵀ q = dᵀ r̄ = Σ_t g_t r_{t+1},   d = B⁻ᵀ φ̄₀,   g_t = d_p / n_p,

with the discounted visits d of the policy to pairs. The errors δ_t of q sum to zero in each pair, so weights that
depend on the pair alone, such as ratios and visits, correct nothing: the value is its own doubly robust one. Episode e
of m contributes v(s_0) / m + Σ_{t∈e} g_t δ_t.

A process with many pairs that were seldom logged, or never, is not the one that frequencies show. If more than 0.05 of
the discounted visits are to pairs that were never logged, there is no value. The same sum with
action values of the other folds, Σ_e (v₋(s_0) / m + Σ_{t∈e} g_t δ₋_t), then has another value, by more than chance.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import linalg, sparse

from lstd.data.feature_arrays import Features
from lstd.ope.logged_rows import Places
from lstd.ope.logged_states import CHANCE, LoggedStates, chance_of, least_difference
from lstd.ope.policy_value import FEW_OF_ROWS
from lstd.ope.value_by_blocks import ValueByBlocks, combined
from lstd.types import Array, Flags

RECURS = 5  # transitions of a logged pair, on average, from which on pairs recur
_MOST = 2000  # states, and logged pairs, of which the system is solved as a dense one
_SMALLEST_PIVOT = 1e-10  # of B, with entries of about one; below, the process that the log shows never ends
_SAME = 1e-9  # of features and probabilities that rounding tells apart


@dataclass(frozen=True, eq=False)
class LoggedPairs:
    """Transitions by their place among all pairs of the S states of a log and its actions, s · n_actions + a."""

    log: LoggedStates
    n_states: int
    pair: Places  # (N,) of transitions
    after: Places  # (N,) states of successors; of terminal ones, any
    first: Places  # (m,) first states of episodes

    @classmethod
    def of(cls, log: LoggedStates) -> LoggedPairs | None:
        """Return the pairs of a log; None if states are many, or decide neither the features nor the policy."""
        logged = log.logged
        rows = logged.rows
        assert logged.policy is not None  # where actions have probabilities
        columns = log.columns
        features = rows.X
        policy = logged.policy
        after = np.minimum(logged.full + 1, len(rows) - 1)
        if log.columns_next is not None:
            assert rows.X_next is not None
            goes_on = ~rows.terminated[logged.full]
            given = logged.full[goes_on]
            columns = np.vstack([columns, log.columns_next[given]])
            features = stacked(features, rows.X_next[given])
            policy = np.vstack([policy, logged.successors[goes_on]])
            after = np.zeros(len(logged.full), np.intp)
            after[goes_on] = len(rows) + np.arange(len(given))
        state = places_of_rows(columns, _MOST)
        if state is None or not (_decided_by(state, features) and _decided_by(state, policy)):
            return None
        pair = state[logged.full] * logged.features.n_actions + logged.codes
        return cls(log, int(state.max()) + 1, pair, state[after], state[log.first])

    @property
    def recur(self) -> bool:
        """Whether pairs were logged often enough to take their frequencies for those of the process."""
        n_logged = len(np.unique(self.pair))
        return n_logged <= _MOST and RECURS * n_logged <= len(self.pair)

    @property
    def n_actions(self) -> int:
        """Number of actions."""
        return self.log.logged.features.n_actions

    def values_of(self, q: Array, own: Any = slice(None)) -> tuple[Array, Array]:
        """Return the errors δ of some transitions, and v of all first states, by action values (S, n_actions)."""
        logged = self.log.logged
        v_after = (logged.successors[own] * q[self.after[own]]).sum(axis=1)
        delta = logged.rewards[own] + logged.discount[own] * v_after - q.ravel()[self.pair[own]]
        v_first = (logged.policy_of(self.log.first) * q[self.first]).sum(axis=1)
        return delta, v_first


@dataclass(frozen=True, eq=False)
class ObservedProcess:
    """The process with the frequencies of some transitions, and action values of the target policy in it."""

    count: Array  # (S · n_actions,) numbers of transitions n_p
    stand_ins: Any  # sparse (S · n_actions, K), see `stand_ins_of`
    factors: tuple[Array, Array]  # LU decomposition of B
    q: Array  # (S, n_actions)

    @classmethod
    def of(cls, pairs: LoggedPairs, taught: Flags) -> ObservedProcess | None:
        """Return the process that the transitions `taught` (N,) show; None if it never ends."""
        logged = pairs.log.logged
        n_pairs = pairs.n_states * pairs.n_actions
        pair = pairs.pair[taught]
        count = np.bincount(pair, minlength=n_pairs).astype(np.float64)
        own = np.flatnonzero(count)  # K logged pairs
        stand_ins = stand_ins_of(count.reshape(pairs.n_states, pairs.n_actions))
        mean_rewards = np.bincount(pair, logged.rewards[taught], n_pairs)[own] / count[own]

        share = logged.discount[taught] / count[pair]
        rows, codes = np.nonzero(logged.successors[taught])
        mass = share[rows] * logged.successors[taught][rows, codes]
        places = pairs.after[taught][rows] * pairs.n_actions + codes
        moves = sparse.csr_array((mass, (np.searchsorted(own, pair)[rows], places)), shape=(len(own), n_pairs))
        B = np.eye(len(own)) - expected(moves, stand_ins, count)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", linalg.LinAlgWarning)  # of a singular matrix, which pivots show
            factors = linalg.lu_factor(B, check_finite=False)
        if np.abs(np.diagonal(factors[0])).min() < _SMALLEST_PIVOT:
            return None
        q_logged = linalg.lu_solve(factors, mean_rewards)
        q = stand_ins @ q_logged
        q[unlogged_states(count, stand_ins)] = count[own] @ q_logged / count.sum()
        return cls(count, stand_ins, factors, q.reshape(pairs.n_states, pairs.n_actions))

    def visits(self, start: Array) -> Array:
        """Return discounted visits to logged pairs, (S · n_actions,), from shares of pairs to start with."""
        mean = expected(sparse.csr_array(start[np.newaxis]), self.stand_ins, self.count)[0]  # φ̄₀
        found = np.zeros(len(self.count))
        found[self.count > 0.0] = linalg.lu_solve(self.factors, mean, trans=1)
        return found


def stand_ins_of(count: Array) -> Any:
    """Return the matrix that takes values of all pairs from those of the K logged ones, sparse (S · n_actions, K).

    `count` (S, n_actions) are numbers of transitions. States without any have rows of zeros.
    """
    n_states, n_actions = count.shape
    own = np.flatnonzero(count)
    K = len(own)
    state_of_pair = np.repeat(np.arange(n_states), n_actions)
    state_of_own = state_of_pair[own]
    share = count.ravel()[own] / count.sum(axis=1)[state_of_own]
    of_states = sparse.csr_array((share, (state_of_own, np.arange(K))), shape=(n_states, K))
    unlogged = sparse.diags_array((count.ravel() == 0.0) * 1.0)
    itself = sparse.csr_array((np.ones(K), (own, np.arange(K))), shape=(count.size, K))
    return itself + unlogged @ of_states[state_of_pair]


def unlogged_states(count: Array, stand_ins: Any) -> Flags:
    """Return which pairs are of a state in which no action was logged, (S · n_actions,)."""
    return np.asarray((count == 0.0) & (np.diff(stand_ins.indptr) == 0))


def expected(mass: Any, stand_ins: Any, count: Array) -> Array:
    """Return shares of logged pairs, (n, K), from sparse shares of all pairs, (n, S · n_actions)."""
    without = mass @ (unlogged_states(count, stand_ins) * 1.0)
    of_all = count[count > 0.0] / count.sum()
    return np.asarray((mass @ stand_ins).toarray() + np.outer(without, of_all))


def value_by_table(log: LoggedStates) -> ValueByBlocks | None:
    """Return the value in the process that the log shows; None if pairs recur too seldom to know it."""
    pairs = LoggedPairs.of(log)
    if pairs is None or not pairs.recur:
        return None
    logged = log.logged
    process = ObservedProcess.of(pairs, np.ones(len(pairs.pair), np.bool_))
    if process is None:
        return None
    m = len(log.first)
    start = np.zeros((pairs.n_states, pairs.n_actions))
    np.add.at(start, pairs.first, logged.policy_of(log.first) / m)
    g = process.visits(start.ravel())[pairs.pair] / process.count[pairs.pair]
    if unlogged_visits(pairs, process, g, start) > FEW_OF_ROWS * g.sum():
        return None
    delta, v_first = pairs.values_of(process.q)
    found = summed(log, g, delta, v_first)
    if _is_contradicted(pairs, g, found):
        return None
    return found


def unlogged_visits(pairs: LoggedPairs, process: ObservedProcess, g: Array, start: Array) -> float:
    """Return discounted visits of the policy to pairs that were never logged, from `start` (S, n_actions)."""
    logged = pairs.log.logged
    never = (process.count == 0.0).reshape(start.shape)
    chosen_next = (logged.successors * never[pairs.after]).sum(axis=1)
    return float(g @ (logged.discount * chosen_next)) + float(start[never].sum())


def _is_contradicted(pairs: LoggedPairs, g: Array, found: ValueByBlocks) -> bool:
    """Say whether the sum with action values of other folds is another one, or these show a process without end."""
    log = pairs.log
    delta = np.empty(len(g))
    v_first = np.empty(len(log.first))
    for k in np.unique(log.fold):
        own = log.fold == k
        others = ObservedProcess.of(pairs, ~own)
        if others is None:
            return True
        delta[own], of_others = pairs.values_of(others.q, own)
        begun = log.folds[log.first] == k
        v_first[begun] = of_others[begun]
    by_others = summed(log, g, delta, v_first)
    difference = found.value - by_others.value
    chance = chance_of(difference, found.blocks - by_others.blocks, log.plain.fitted.influence.shares)
    return chance < CHANCE and abs(difference) > least_difference(log)


def summed(log: LoggedStates, g: Array, delta: Array, v_first: Array) -> ValueByBlocks:
    """Return the mean of v(s_0) over episodes plus Σ g_t δ_t, with what episodes contribute."""
    m = len(v_first)
    values = v_first + m * np.bincount(log.logged.episode, g * delta, m)
    no_features = np.zeros_like(log.plain.phi)  # the value does not depend on weights of features
    share = np.full(m, 1.0 / m)
    return combined(log.plain.fitted, no_features, values, share, ones=0.0, log=log.logged, dual=g)


def places_of_rows(columns: Array, most: int) -> Places | None:
    """Return the place of each row among the distinct ones, in order of appearance; None if these are more than `most`.

    Numbers that are not known, NaN, are equal.
    """
    canonical = np.where(np.isnan(columns), np.nan, columns + 0.0)  # one NaN, one zero
    known: dict[bytes, int] = {}
    places = np.empty(len(columns), np.intp)
    for i, row in enumerate(canonical):
        places[i] = known.setdefault(row.tobytes(), len(known))
        if len(known) > most:
            return None
    return places


def stacked(one: Features, two: Features) -> Features:
    """Return rows of features above others."""
    if sparse.issparse(one):
        return sparse.vstack([one, two], format="csr")
    return np.vstack([one, two])


def _decided_by(state: Places, columns: Features) -> bool:
    """Say whether rows of the same state agree in these columns, but for rounding."""
    _, example = np.unique(state, return_index=True)
    apart = abs(columns - columns[example[state]])
    return float(apart.max()) <= _SAME * max(1.0, float(abs(columns).max()))
