"""Processes to learn from, and features of their states: classic ones with values in closed form, and random ones.

Random processes (k, b, σ) and features are those of van Seijen et al. (2016), drawn bit for bit as their library does.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lstd.data.arguments import check_choice, check_integer, check_real
from lstd.errors import InvalidInputError
from lstd.mrp.process import MRP


class BoyanChain(MRP):
    """Boyan's chain, whose positions s lead to s − 1 or s − 2 with equal probability and reward −3.

    Position 1 leads to position 0 with reward −2. Position 0 terminates with reward 0. State i is position
    ``n_states − 1 − i``; episodes start in state 0. With `gamma` = 1 the value of position s is −2s.

    Parameters
    ----------
    n_states : int, default 13
        Number of positions; :attr:`interpolating_features` needs one more than a multiple of four.
    gamma : float in [0, 1], default 1.0

    References
    ----------
    Boyan, "Technical update: Least-squares temporal difference learning", Machine Learning 49 (2002).

    Examples
    --------
    >>> from lstd.mrp import BoyanChain
    >>> chain = BoyanChain()
    >>> chain.best_fit(chain.interpolating_features).round(10) + 0.0
    array([-24., -16.,  -8.,   0.])
    """

    def __init__(self, n_states: int = 13, *, gamma: float = 1.0) -> None:
        k = check_integer("n_states", n_states, 3)
        transition = 0.5 * (np.eye(k, k=1) + np.eye(k, k=2))
        reward = np.where(transition > 0.0, -3.0, 0.0)
        transition[k - 2, k - 1] = 1.0
        reward[k - 2, k - 1] = -2.0
        super().__init__(transition, reward, gamma=gamma)

    @property
    def interpolating_features(self) -> NDArray[np.float64]:
        """Boyan's features, shape (k, (k − 1)/4 + 1): hat functions centred at every fourth position."""
        k = self.n_states
        if (k - 1) % 4:
            raise InvalidInputError(f"`n_states` must be 1 more than a multiple of 4 for these features; got {k}.")
        centres = np.arange(0, k, 4)
        distance = np.abs(np.arange(k)[:, np.newaxis] - centres)
        return np.asarray(np.maximum(0.0, 1.0 - distance / 4.0))


class RandomWalk(MRP):
    """Random walk that steps left or right with equal probability until it passes an end.

    Parameters
    ----------
    n_states : int, default 19
        Odd number of states; an episode starts in the middle.
    gamma : float in [0, 1], default 1.0
    left_reward, right_reward : float, default −1.0 and 1.0
        Rewards of passing the ends; all others are zero. With `gamma` = 1 the values are linear in the state.

    References
    ----------
    Sutton and Barto, "Reinforcement Learning: An Introduction", 2nd edition (2018), examples 6.2 and 7.1.

    Examples
    --------
    >>> from lstd.mrp import RandomWalk
    >>> RandomWalk(5, left_reward=0.0).values.round(4)
    array([0.1667, 0.3333, 0.5   , 0.6667, 0.8333])
    """

    def __init__(
        self, n_states: int = 19, *, gamma: float = 1.0, left_reward: float = -1.0, right_reward: float = 1.0
    ) -> None:
        k = check_integer("n_states", n_states, 1)
        if k % 2 == 0:
            raise InvalidInputError(f"`n_states` must be odd, so that there is a middle state; got {k}.")
        ends = np.zeros(k)
        ends[0] += check_real("left_reward", left_reward, -np.inf, np.inf)
        ends[-1] += check_real("right_reward", right_reward, -np.inf, np.inf)
        if k == 1:
            ends /= 2.0  # both exits leave the only state, each with probability 1/2
        steps = 0.5 * (np.eye(k, k=1) + np.eye(k, k=-1))
        super().__init__(steps, np.zeros((k, k)), gamma=gamma, start=k // 2, termination_reward=ends)


N_NORMAL_FEATURES = 5


class RandomMRP(MRP):
    """Random Markov reward process in which each state has `branching` random successors.

    ``numpy.random.RandomState(seed)`` draws k·k uniforms (not used); per state, its successors by
    ``choice(k, b, replace=False)`` and b − 1 uniforms that cut [0, 1] into their probabilities; k·k normals, the
    expected rewards; k uniforms (not used); and k×5 normals, the `normal_features`; in this order.

    Parameters
    ----------
    n_states : int
        Number of states, k.
    branching : int
        Number of successors of each state, b ≤ k.
    reward_std : float
        Standard deviation σ of the reward noise.
    seed : int
        Seed of the draws.
    gamma : float in [0, 1], default 0.99
        Discount.

    References
    ----------
    van Seijen, Mahmood, Pilarski, Machado and Sutton, "True online temporal-difference learning", JMLR 17 (2016).

    Examples
    --------
    >>> from lstd.mrp import RandomMRP
    >>> model = RandomMRP(10, 3, 0.1, seed=1000)
    >>> (model.transition > 0).sum(axis=1)
    array([3, 3, 3, 3, 3, 3, 3, 3, 3, 3])
    """

    def __init__(self, n_states: int, branching: int, reward_std: float, seed: int, *, gamma: float = 0.99) -> None:
        k = check_integer("n_states", n_states, 1)
        b = check_integer("branching", branching, 1, k)
        generator = np.random.RandomState(check_integer("seed", seed, 0, 2**32 - 1))
        generator.random_sample((k, k))  # not used, here and below, but drawn by the library of van Seijen et al.
        transition = np.zeros((k, k))
        for s in range(k):
            successors = generator.choice(k, b, replace=False)
            cuts = np.sort(generator.random_sample(b - 1))
            transition[s, successors] = np.diff(np.concatenate([[0.0], cuts, [1.0]]))
        reward = generator.standard_normal((k, k))
        generator.random_sample(k)
        #: Five standard normals per state, shape (k, 5), from the same stream of draws.
        self.normal_features = generator.standard_normal((k, N_NORMAL_FEATURES))
        super().__init__(transition, reward, reward_std=reward_std, gamma=gamma)


FEATURE_NAMES = ("tabular", "binary", "normal")


def make_features(model: MRP, name: str) -> NDArray[np.float64]:
    """Compute features of every state of `model`.

    Parameters
    ----------
    model : MRP
    name : {"tabular", "binary", "normal"}
        Unit vectors; the ⌈log2(k + 1)⌉ bits of s + 1, most significant first; or the five normals that a
        :class:`RandomMRP` draws per state. Binary and normal rows are scaled to length one.

    Returns
    -------
    ndarray of shape (k, n)

    Raises
    ------
    InvalidInputError
        When `name` is unknown, or is "normal" and the model is not a :class:`RandomMRP`.

    Examples
    --------
    >>> from lstd.mrp import RandomMRP, make_features
    >>> make_features(RandomMRP(3, 2, 0.0, seed=1), "binary").round(3)
    array([[0.   , 1.   ],
           [1.   , 0.   ],
           [0.707, 0.707]])
    """
    check_choice("features", name, FEATURE_NAMES)
    if name == "tabular":
        return np.eye(model.n_states)
    if name == "binary":
        numbers = np.arange(1, model.n_states + 1)[:, None]
        shifts = np.arange(model.n_states.bit_length())[::-1]  # k.bit_length() = ⌈log2(k + 1)⌉
        rows = ((numbers >> shifts) & 1).astype(np.float64)
    elif isinstance(model, RandomMRP):
        rows = model.normal_features
    else:
        raise InvalidInputError(
            f"`features` 'normal' exist only for a RandomMRP; got a {type(model).__name__}. "
            "Pass a matrix of features of shape (n_states, n_features) instead."
        )
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))
