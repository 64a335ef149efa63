"""Random Markov reward processes (k, b, σ) of van Seijen et al. (2016), drawn bit for bit as their library does."""

from __future__ import annotations

import numpy as np

from lstd.data.arguments import check_integer
from lstd.mrp.process import MRP

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
        generator.random_sample((k, k))
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
