"""Simulated arms of an experiment with known long-run values, for the coverage of differences.

A customer is new, then regular, and leaves at random; rows are weeks. Customers begin in a random week of twenty, and
those who are still active at the end are cut off. Revenue and cost of a week share noise.
"""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special
from threadpoolctl import threadpool_limits

from lstd import LSTD
from lstd.inference import difference

Array = NDArray[np.float64]

SEED = 32_000
WEEKS = 20
GAMMA = 0.97
STAYS = 0.7  # chances per week of a new customer to stay
BECOMES = 0.5  # and then to become a regular one
LEVELS = (0.95, 0.9)
NEW = [[1.0, 0.0]]


class Arm(NamedTuple):
    """One arm: customers, the chance of a regular one to stay, and mean revenue and cost of a week."""

    customers: int
    keeps: float = 0.90
    spends: float = 10.0
    costs: float = 4.0

    def rows(self, seed: int) -> dict[str, Any]:
        """Draw the arguments of `LSTD.fit`, with revenue and cost as rewards."""
        random = np.random.default_rng(seed)
        n = self.customers
        start = random.integers(WEEKS, size=n)
        alive = np.ones(n, bool)
        regular = np.zeros(n, bool)
        there, ends, state = np.zeros((3, n, WEEKS + 1), bool)
        for k in range(WEEKS + 1):
            week = start + k
            there[:, k], state[:, k] = alive & (week <= WEEKS), regular
            ends[:, k] = (week < WEEKS) & (random.uniform(size=n) > np.where(regular, self.keeps, STAYS))
            alive = alive & ~ends[:, k]
            regular = regular | (random.uniform(size=n) < BECOMES)
        shared, own = random.exponential(size=(2, n, WEEKS + 1))
        y = np.stack([self.spends * shared, self.costs * (shared + own) / 2.0], axis=-1)
        episode = np.broadcast_to(np.arange(n)[:, np.newaxis], there.shape)
        X = np.stack([~state, state], axis=-1).astype(float)
        return {"X": X[there], "y": y[there], "episode": episode[there], "terminated": ends[there]}

    def value(self, mean: float) -> float:
        """Compute the exact value of a new customer for a mean reward."""
        regular = mean / (1.0 - GAMMA * self.keeps)
        return float((mean + GAMMA * STAYS * BECOMES * regular) / (1.0 - GAMMA * STAYS * (1.0 - BECOMES)))


def covered(a: Arm, b: Arm | None, lmbda: float, repeats: int) -> Array:
    """Measure the coverage at each level, and the half width over 1.96 standard deviations of the difference.

    Without `b`, the difference is that of revenue and cost of the same customers, whose models are paired.
    """
    truth = a.value(a.spends) - (a.value(a.costs) if b is None else b.value(b.spends))
    hits = np.zeros(len(LEVELS))
    found = []
    half = []
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")
        for repeat in range(repeats):
            first = a.rows(SEED + 2 * repeat)
            second = first if b is None else b.rows(SEED + 2 * repeat + 1)
            one, two = (
                LSTD(GAMMA, lmbda, 0.01, fit_intercept=False).fit(**data | {"y": data["y"][:, column]})
                for data, column in ((first, 0), (second, int(b is None)))
            )
            interval = difference(one, two, NEW, [1.0], LEVELS[0])
            found.append(interval.prediction)
            half.append((interval.upper - interval.lower) / 2.0)
            quantiles = special.stdtrit(interval.degrees_of_freedom, 0.5 + 0.5 * np.array(LEVELS))
            hits += np.abs(interval.prediction - truth) <= half[-1] * quantiles / quantiles[0]
            assert interval.paired == (b is None)
    return np.append(hits / repeats, np.mean(half) / (1.96 * np.std(found)))


B = {"keeps": 0.93, "spends": 9.0}
ALL_LMBDAS = "300 customers in each arm"  # the case that is measured with several λ, not with 0.9 alone
CASES: dict[str, tuple[Arm, Arm | None]] = {
    **{f"{n} customers in each arm": (Arm(n), Arm(n, **B)) for n in (100, 300, 1000)},
    "100 and 1000 customers": (Arm(100), Arm(1000, **B)),
    **{f"revenue less cost of {n} customers": (Arm(n), None) for n in (100, 300)},
}
