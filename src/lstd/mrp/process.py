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
from lstd.types import Array, Flags

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
        if termination_reward is None:
            termination_reward = np.zeros(k)
        self.termination_reward = _frozen(check_array("termination_reward", termination_reward, (k,)))

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
        by_transition = (self.transition * self.reward).sum(axis=1)
        return np.asarray(by_transition + self.termination * self.termination_reward)

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
        restarting = self.transition + np.outer(self.termination, self.start)  # a start state follows termination
        return _stationary_distribution(restarting, self.start)

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
        # Not by normal equations: these are singular where states are transient.
        weights, *_ = np.linalg.lstsq(root[:, np.newaxis] * phi, root * self.values, rcond=None)
        return np.asarray(weights)

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
        identity = np.eye(self.n_states)
        P = self.transition
        columns = np.column_stack([phi, self.expected_reward])
        discounted = np.linalg.solve(identity - lmbda * self.gamma * P, columns)  # (I − λγP)⁻¹ (Φ, r)
        weighted = phi.T * self.stationary  # ΦᵀD
        A = weighted @ (identity - self.gamma * P) @ discounted[:, :-1]
        b = weighted @ discounted[:, -1]
        return A, b

    def fixed_point(self, features: ArrayLike, lmbda: float) -> Array:
        """Compute the weights to which all three LSTD(λ) estimators converge, shape (n,).

        Takes the smallest solution if transient states leave weights undetermined.
        """
        self._check_convergence(self.gamma)
        A, b = self.lstd_limit(features, lmbda)
        weights, *_ = np.linalg.lstsq(A, b, rcond=None)
        return np.asarray(weights)

    def simulate(self, n_steps: int, seed: int) -> Trajectory:
        """Draw `n_steps` transitions from ``numpy.random.RandomState(seed)``.

        Each step draws a uniform for the successor, then a normal if `reward_std` is positive, then a uniform for the
        next start state if start states are random. The last one is used only if the step terminates.

        Returns
        -------
        Trajectory
            States (n_steps + 1,), rewards (n_steps,), discounts (n_steps + 1,) and terminated (n_steps,).
        """
        n_steps = check_integer("n_steps", n_steps, 0)
        seed = check_integer("seed", seed, 0, 2**32 - 1)
        return simulate(self._chain, self.reward_std, self.gamma, n_steps, seed)

    @cached_property
    def _chain(self) -> Chain:
        """Tables for the simulation, with termination as the last outcome."""
        outcomes = np.column_stack([self.transition, self.termination])
        rewards = np.column_stack([self.reward, self.termination_reward])
        return Chain.of(outcomes, rewards, self.start)


def _stationary_distribution(P: Array, start: Array) -> Array:
    """Compute the Cesàro limit of startᵀPᵗ: each closed class's distribution times the probability of entering it."""
    _, class_of = connected_components(csr_array(P > 0), directed=True, connection="strong")
    leaves_class = np.array([(P[i, class_of != class_of[i]] > 0).any() for i in range(len(P))])
    closed_classes = [c for c in range(class_of.max() + 1) if not leaves_class[class_of == c].any()]

    transient = ~np.isin(class_of, closed_classes)
    visits = np.zeros(len(P))  # expected number of visits to transient states
    if transient.any():
        Q = P[np.ix_(transient, transient)]
        visits[transient] = np.linalg.solve((np.eye(len(Q)) - Q).T, start[transient])

    d = np.zeros(len(P))
    for c in closed_classes:
        members = np.flatnonzero(class_of == c)
        entered = start[members].sum() + (visits @ P[:, members]).sum()
        own = P[np.ix_(members, members)]
        ones = np.ones_like(own)
        # π(I − P + 11ᵀ) = 1ᵀ has the stationary distribution as its only solution for an irreducible class.
        pi = np.linalg.solve((np.eye(len(members)) - own + ones).T, ones[0])
        d[members] = entered * pi
    return np.asarray(d / d.sum())


def _frozen(array: Array) -> Array:
    """Make an array read-only: values and stationary distribution are computed from it once."""
    array.flags.writeable = False
    return array


def _check_transition(transition: ArrayLike) -> Array:
    """Return a matrix of probabilities whose rows sum to one at most."""
    P = check_array("transition", transition, (None, None))
    given = getattr(transition, "dtype", np.float64)
    if given in (np.float16, np.float32):
        raise InvalidInputError(
            f"`transition` must be in float64; got {given}, whose rounding errors look like termination. "
            "Convert it with astype(float), then divide each row by its sum."
        )
    if P.shape[0] != P.shape[1] or P.size == 0:
        raise InvalidInputError(f"`transition` must be square with at least one state; got shape {P.shape}.")
    least = P.min(axis=1)
    _refuse_row(least < 0, least)
    sums = P.sum(axis=1)
    _refuse_row(sums > 1 + _SUM_TOLERANCE, sums)
    return P


def _refuse_row(bad: Flags, found: Array) -> None:
    """Raise InvalidInputError if a row is bad, with what was found in the first such row."""
    if bad.any():
        s = int(np.argmax(bad))
        raise InvalidInputError(
            f"`transition` must hold probabilities, each row summing to at most 1; row {s} has {found[s]:.15g}. "
            "Divide each row by its sum, in float64."
        )


def _check_start(start: int | ArrayLike, n_states: int) -> Array:
    """Return the probabilities of start states, given as such or as one state."""
    if isinstance(start, (numbers.Number, np.generic)):
        point = np.zeros(n_states)
        point[check_integer("start", start, 0, n_states - 1)] = 1.0
        return point
    p = check_array("start", start, (n_states,))
    if p.min() < 0 or abs(p.sum() - 1.0) > _SUM_TOLERANCE:
        raise InvalidInputError(f"`start` must hold probabilities that sum to 1; got a sum of {p.sum():g}.")
    return p
