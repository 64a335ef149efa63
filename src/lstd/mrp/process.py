"""A Markov reward process with exact values.

States 0 … k−1, discount γ, transition matrix P, expected reward r(s). A row of P may sum to less than one: the rest is
the probability of termination, after which a new episode begins in a start state. Then

    values              V = (I − γP)⁻¹ r
    stationary          d = the long-run fraction of time in each state, when episodes follow one another
    best linear fit     Φθ*, the d-weighted least-squares fit of V
    limit of LSTD(λ)    A = Φᵀ D (I − γP)(I − λγP)⁻¹ Φ,  b = Φᵀ D (I − λγP)⁻¹ r     (Osogami 2020, Theorem 2)
"""

from __future__ import annotations

import numbers
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from lstd.data.arguments import check_array, check_integer, check_real
from lstd.data.convert import to_real_array
from lstd.errors import InvalidInputError
from lstd.mrp.simulate import Chain, Trajectory, simulate
from lstd.types import Array

_SUM_TOLERANCE = 1e-12  # rows of probabilities are sums of k rounded terms


class MRP:
    """Markov reward process with exact values.

    Parameters
    ----------
    transition : array-like of shape (k, k)
        Probability of each transition (s, s'). A row may sum to less than one: the rest is the probability of
        termination.
    reward : array-like of shape (k, k) or (k,)
        Expected reward of each transition (s, s'), or on leaving each state s, by termination too.
    reward_std : float, default 0.0
        Standard deviation of the normal noise added to each reward.
    gamma : float in [0, 1], default 0.99
        Discount. A discount of 1 requires that every state leads to termination.
    start : int or array-like of shape (k,), default 0
        State in which every episode starts, or the probability of each start state.
    termination_reward : array-like of shape (k,), optional
        Expected reward of termination from each state; by default that on leaving it, or zero if `reward` is (k, k).

    Raises
    ------
    InvalidInputError
        When a shape, a probability or the discount is not valid.

    Examples
    --------
    >>> from lstd.mrp import MRP
    >>> model = MRP([[0.5, 0.5], [0.0, 1.0]], [1.0, 0.0], gamma=0.9)
    >>> model.values.round(4)
    array([1.8182, 0.    ])
    >>> model.stationary
    array([0., 1.])
    """

    def __init__(
        self,
        transition: ArrayLike,
        reward: ArrayLike,
        *,
        reward_std: float = 0.0,
        gamma: float = 0.99,
        start: int | ArrayLike = 0,
        termination_reward: ArrayLike | None = None,
    ) -> None:
        self.transition = _frozen(_check_transition(transition))
        k = len(self.transition)
        rewards = to_real_array("reward", reward)
        if rewards.ndim == 1:
            of_states = check_array("reward", rewards, (k,))
            rewards = np.repeat(of_states[:, np.newaxis], k, axis=1)
            termination_reward = of_states if termination_reward is None else termination_reward
        self.reward = _frozen(check_array("reward", rewards, (k, k)))
        self.reward_std = check_real("reward_std", reward_std, 0.0, np.inf)
        self.gamma = check_real("gamma", gamma, 0.0, 1.0)
        self.start = _frozen(_check_start(start, k))
        final = np.zeros(k) if termination_reward is None else termination_reward
        self.termination_reward = _frozen(check_array("termination_reward", final, (k,)))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(n_states={self.n_states}, gamma={self.gamma:g})"

    @property
    def n_states(self) -> int:
        """Number of states, k."""
        return len(self.transition)

    @cached_property
    def termination(self) -> Array:
        """Probability of termination from each state, shape (k,)."""
        missing = 1.0 - self.transition.sum(axis=1)
        return np.where(missing > _SUM_TOLERANCE, missing, 0.0)

    @cached_property
    def expected_reward(self) -> Array:
        """Expected reward on leaving each state, shape (k,)."""
        return np.asarray((self.transition * self.reward).sum(axis=1) + self.termination * self.termination_reward)

    @cached_property
    def values(self) -> Array:
        """Expected discounted sum of future rewards from each state, shape (k,)."""
        self._check_convergence(self.gamma)
        matrix = np.eye(self.n_states) - self.gamma * self.transition
        return np.asarray(np.linalg.solve(matrix, self.expected_reward), dtype=np.float64)

    def _check_convergence(self, decay: float) -> None:
        """Raise InvalidInputError if sums over the future, discounted by `decay`, diverge."""
        if decay < 1.0:
            return
        terminates = self.termination > 0
        for _ in range(self.n_states):
            terminates = terminates | (self.transition[:, terminates] > 0).any(axis=1)
        if not terminates.all():
            raise InvalidInputError(
                "`gamma` must be below 1 for a process that may never terminate; got 1. Choose a discount below 1, or "
                "let every state lead to termination."
            )

    @cached_property
    def stationary(self) -> Array:
        """Long-run fraction of time in each state, shape (k,); zero for transient states."""
        return _stationary_distribution(self.transition + np.outer(self.termination, self.start), self.start)

    def best_fit(self, features: ArrayLike) -> Array:
        """Compute the least-squares fit of the values, weighted by the stationary distribution.

        Parameters
        ----------
        features : array-like of shape (k, n)
            One row of features per state.

        Returns
        -------
        ndarray of shape (n,)
            Weights; the smallest ones if several fit equally well because transient states do not count.
        """
        phi = check_array("features", features, (self.n_states, None))
        root = np.sqrt(self.stationary)
        return np.asarray(np.linalg.lstsq(root[:, None] * phi, root * self.values, rcond=None)[0])

    def lstd_limit(self, features: ArrayLike, lmbda: float) -> tuple[Array, Array]:
        """Compute the limits of A_T/T and b_T/T, common to all three estimators (Osogami 2020, Theorem 2).

        Parameters
        ----------
        features : array-like of shape (k, n)
        lmbda : float in [0, 1]
            Trace decay.

        Returns
        -------
        A : ndarray of shape (n, n)
        b : ndarray of shape (n,)
        """
        phi = check_array("features", features, (self.n_states, None))
        lmbda = check_real("lmbda", lmbda, 0.0, 1.0)
        self._check_convergence(lmbda * self.gamma)
        identity, P = np.eye(self.n_states), self.transition
        columns = np.column_stack([phi, self.expected_reward])
        discounted = np.linalg.solve(identity - lmbda * self.gamma * P, columns)
        weighted = phi.T * self.stationary
        return weighted @ (identity - self.gamma * P) @ discounted[:, :-1], weighted @ discounted[:, -1]

    def fixed_point(self, features: ArrayLike, lmbda: float) -> Array:
        """Compute the weights to which all three LSTD(λ) estimators converge, shape (n,).

        Takes the smallest solution if transient states leave weights undetermined.
        """
        self._check_convergence(self.gamma)
        return np.asarray(np.linalg.lstsq(*self.lstd_limit(features, lmbda), rcond=None)[0])

    def simulate(self, n_steps: int, seed: int) -> Trajectory:
        """Draw `n_steps` transitions from ``numpy.random.RandomState(seed)``.

        Each step draws a uniform for the successor, then a normal if `reward_std` is positive, then a uniform for the
        next start state if start states are random. The last one is used only if the step terminates.

        Returns
        -------
        Trajectory
            States (n_steps + 1,), rewards (n_steps,), discounts (n_steps + 1,) and terminated (n_steps,).
        """
        n_steps, seed = check_integer("n_steps", n_steps, 0), check_integer("seed", seed, 0, 2**32 - 1)
        return simulate(self._chain, self.reward_std, self.gamma, n_steps, seed)

    @cached_property
    def _chain(self) -> Chain:
        outcomes = np.column_stack([self.transition, self.termination])
        return Chain.of(outcomes, np.column_stack([self.reward, self.termination_reward]), self.start)


def _stationary_distribution(P: Array, start: Array) -> Array:
    """Compute the Cesàro limit of startᵀPᵗ: each closed class's distribution times the probability of entering it."""
    _, label = connected_components(csr_array(P > 0), directed=True, connection="strong")
    leaves = np.array([(P[i, label != label[i]] > 0).any() for i in range(len(P))])
    closed = [c for c in range(label.max() + 1) if not leaves[label == c].any()]
    recurrent = np.isin(label, closed)
    visits = np.zeros(len(P))
    if not recurrent.all():
        Q = P[np.ix_(~recurrent, ~recurrent)]
        visits[~recurrent] = np.linalg.solve((np.eye(len(Q)) - Q).T, start[~recurrent])
    d = np.zeros(len(P))
    for c in closed:
        members = np.flatnonzero(label == c)
        entered = start[members].sum() + (visits @ P[:, members]).sum()
        ones = np.ones((len(members), len(members)))
        # π(I − P + 11ᵀ) = 1ᵀ has the stationary distribution as its only solution for an irreducible class.
        pi = np.linalg.solve((np.eye(len(members)) - P[np.ix_(members, members)] + ones).T, ones[0])
        d[members] = entered * pi
    return np.asarray(d / d.sum())


def _frozen(array: Array) -> Array:
    """Make an array read-only: values and stationary distribution are computed from it once."""
    array.flags.writeable = False
    return array


def _check_transition(transition: ArrayLike) -> Array:
    P = check_array("transition", transition, (None, None))
    given = getattr(transition, "dtype", np.float64)
    if given in (np.float16, np.float32):
        raise InvalidInputError(
            f"`transition` must be in float64; got {given}, whose rounding errors look like termination. "
            "Convert it with astype(float), then divide each row by its sum."
        )
    if P.shape[0] != P.shape[1] or P.size == 0:
        raise InvalidInputError(f"`transition` must be square with at least one state; got shape {P.shape}.")
    sums = P.sum(axis=1)
    for bad, found in ((P.min(axis=1) < 0, P.min(axis=1)), (sums > 1 + _SUM_TOLERANCE, sums)):
        if bad.any():
            s = int(np.argmax(bad))
            raise InvalidInputError(
                f"`transition` must hold probabilities, each row summing to at most 1; row {s} has {found[s]:.15g}. "
                "Divide each row by its sum, in float64."
            )
    return P


def _check_start(start: int | ArrayLike, n_states: int) -> Array:
    if isinstance(start, (numbers.Number, np.generic)):
        point = np.zeros(n_states)
        point[check_integer("start", start, 0, n_states - 1)] = 1.0
        return point
    p = check_array("start", start, (n_states,))
    if p.min() < 0 or abs(p.sum() - 1.0) > _SUM_TOLERANCE:
        raise InvalidInputError(f"`start` must hold probabilities that sum to 1; got a sum of {p.sum():g}.")
    return p
