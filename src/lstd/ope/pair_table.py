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
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import linalg, sparse

from lstd.data.feature_arrays import Features
from lstd.ope.logged_rows import Places
from lstd.ope.logged_states import LoggedStates
from lstd.ope.value_by_blocks import ValueByBlocks, combined
from lstd.types import Array

RECURS = 5  # transitions of a logged pair, on average, from which on pairs recur
_MOST = 2000  # states, and logged pairs, of which the system is solved as a dense one
_SMALLEST_PIVOT = 1e-10  # of B, with entries of about one; below, the process that the log shows never ends
_SAME = 1e-9  # of features and probabilities that rounding tells apart


@dataclass(frozen=True, eq=False)
class LoggedPairs:
    """Transitions by their place among all pairs of the S states of a log and its actions, s · n_actions + a."""

    pair: Places  # (N,) of transitions
    after: Places  # (N,) states of successors; of terminal ones, any
    first: Places  # (m,) first states of episodes
    count: Array  # (S, n_actions) numbers of transitions n_p

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
        n_actions = logged.features.n_actions
        n_states = int(state.max()) + 1
        pair = state[logged.full] * n_actions + logged.codes
        count = np.bincount(pair, minlength=n_states * n_actions).reshape(n_states, n_actions)
        return cls(pair, state[after], state[log.first], count.astype(np.float64))

    @property
    def recur(self) -> bool:
        """Whether pairs were logged often enough to take their frequencies for those of the process."""
        n_logged = np.count_nonzero(self.count)
        return n_logged <= _MOST and RECURS * n_logged <= len(self.pair)

    @cached_property
    def logged(self) -> Places:
        """Places of the K pairs that were logged, in order, (K,)."""
        return np.flatnonzero(self.count)

    @property
    def at(self) -> Places:
        """Number of each transition's pair among the logged ones, (N,)."""
        return np.searchsorted(self.logged, self.pair)

    def means(self) -> Any:
        """Return the matrix that takes the mean over the transitions of each logged pair, (K, N)."""
        N = len(self.pair)
        share = 1.0 / self.count.ravel()[self.pair]
        return sparse.csr_array((share, (self.at, np.arange(N))), shape=(len(self.logged), N))

    def mixtures(self, states: Places, policy: Array) -> Any:
        """Return the matrix that takes Σ_a π(a|s) q(s, a) of some states, (n, K), from values of logged pairs."""
        rows, codes = np.nonzero(policy)
        n_actions = self.count.shape[1]
        places = states[rows] * n_actions + codes
        by_pair = sparse.csr_array((policy[rows, codes], (rows, places)), shape=(len(states), self.count.size))
        never = self.count.sum(axis=1) == 0.0  # states in which no action was logged
        without = sparse.csr_array((never[states] * policy.sum(axis=1))[:, np.newaxis])
        of_all = self.count.ravel()[self.logged] / self.count.sum()
        return by_pair @ self._stand_ins + without @ sparse.csr_array(of_all[np.newaxis])

    @cached_property
    def _stand_ins(self) -> Any:
        """The matrix that takes values of all pairs of states with a logged action, (S · n_actions, K)."""
        n_states, n_actions = self.count.shape
        K = len(self.logged)
        state_of_pair = np.repeat(np.arange(n_states), n_actions)
        state_of_logged = state_of_pair[self.logged]
        share = self.count.ravel()[self.logged] / self.count.sum(axis=1)[state_of_logged]
        of_states = sparse.csr_array((share, (state_of_logged, np.arange(K))), shape=(n_states, K))
        unlogged = sparse.diags_array((self.count.ravel() == 0.0) * 1.0)
        own = sparse.csr_array((np.ones(K), (self.logged, np.arange(K))), shape=(self.count.size, K))
        return own + unlogged @ of_states[state_of_pair]


def value_by_table(log: LoggedStates) -> ValueByBlocks | None:
    """Return the value in the process that the log shows; None if pairs recur too seldom, or it never ends."""
    pairs = LoggedPairs.of(log)
    if pairs is None or not pairs.recur:
        return None
    logged = log.logged
    means = pairs.means()
    after = pairs.mixtures(pairs.after, logged.successors)
    start = pairs.mixtures(pairs.first, logged.policy_of(log.first))
    P = (means @ (sparse.diags_array(logged.discount) @ after)).toarray()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", linalg.LinAlgWarning)  # of a singular matrix, which pivots show
        factors = linalg.lu_factor(np.eye(len(P)) - P, check_finite=False)
    if np.abs(np.diagonal(factors[0])).min() < _SMALLEST_PIVOT:
        return None
    q = linalg.lu_solve(factors, means @ logged.rewards)
    m = len(log.first)
    mean = np.asarray(start.sum(axis=0)) / m  # φ̄₀
    visits = linalg.lu_solve(factors, mean, trans=1)  # d

    at = pairs.at
    g = visits[at] / pairs.count.ravel()[pairs.pair]
    delta = logged.rewards + logged.discount * (after @ q) - q[at]
    values = start @ q + m * np.bincount(logged.episode, g * delta, m)
    no_features = np.zeros_like(log.plain.phi)  # the value does not depend on weights of features
    share = np.full(m, 1.0 / m)
    return combined(log.plain.fitted, no_features, values, share, ones=0.0, log=logged, dual=g)


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
