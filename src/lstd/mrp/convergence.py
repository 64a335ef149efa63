"""What long streams of a Markov reward process converge to: its stationary distribution, and the limit of LSTD(λ)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

Array = NDArray[np.float64]


def lstd_limit(
    phi: Array, P: Array, reward: Array, stationary: Array, gamma: float, lmbda: float
) -> tuple[Array, Array]:
    """Compute A = Φᵀ D (I − γP)(I − λγP)⁻¹ Φ and b = Φᵀ D (I − λγP)⁻¹ r (Osogami 2020, Theorem 2)."""
    identity = np.eye(len(P))
    discounted = np.linalg.solve(identity - lmbda * gamma * P, np.column_stack([phi, reward]))
    weighted = phi.T * stationary
    A = weighted @ (identity - gamma * P) @ discounted[:, :-1]
    return A, weighted @ discounted[:, -1]


def stationary_distribution(P: Array, start: Array) -> Array:
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
    d /= d.sum()
    return d
