"""Data with known values for the benchmarks of selection and coverage: streams and episodes of `lstd.mrp` processes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lstd.experiments.protocol import FEATURES, GAMMA, PROBLEMS
from lstd.mrp import MRP, BoyanChain, RandomMRP, RandomWalk, make_features

Array = NDArray[np.float64]


class Data(NamedTuple):
    """Rows of the data contract, and the state that each was drawn from."""

    X: Array
    y: Array
    columns: dict[str, Any]
    states: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Case:
    """A process and its features, one row per state."""

    name: str
    model: MRP
    features: Array

    def stream(self, n_steps: int, seed: int) -> Data:
        """Draw one continuing stream of `n_steps` transitions."""
        run = self.model.simulate(n_steps, seed)
        return Data(self.features[run.states], np.append(run.rewards, 0.0), {}, run.states)

    def cut(self, n_episodes: int, length: int, seed: int) -> Data:
        """Draw one stream of episodes and cut it after each `length` transitions of an episode, with a horizon row."""
        run = self.model.simulate(n_episodes * length, seed)
        states = run.states
        rows: list[int] = []
        episode: list[int] = []
        ends: list[bool] = []
        for i in range(n_episodes):
            first = rows[-1] + bool(ends[-1]) if rows else 0
            last = first + int(np.argmax(np.append(run.terminated[first : first + length], True)))
            ended = last - first < length
            rows += range(first, last + 1)
            episode += [i] * (last + 1 - first)
            ends += [False] * (last - first) + [ended]
        places = np.array(rows)
        columns = {"episode": np.array(episode), "terminated": np.array(ends)}
        return Data(self.features[states[places]], np.append(run.rewards, 0.0)[places], columns, states[places])

    def episodes(self, n_episodes: int, seed: int) -> Data:
        """Draw episodes until so many have ended."""
        n_steps = 64 * n_episodes
        ends = np.empty(0, dtype=np.intp)
        while len(ends) < n_episodes:
            n_steps *= 2
            run = self.model.simulate(n_steps, seed)
            ends = np.flatnonzero(run.terminated)
        stop = ends[n_episodes - 1] + 1
        terminated = run.terminated[:stop]
        episode: NDArray[np.intp] = np.cumsum(terminated) - terminated
        columns = {"episode": episode, "terminated": terminated}
        return Data(self.features[run.states[:stop]], run.rewards[:stop], columns, run.states[:stop])


@dataclass(frozen=True, eq=False)
class Windows(Case):
    """Windows from every visit of a subject to the last one: each is an episode, and those of a subject overlap.

    A subject is an episode of `subjects`. `model` is the process of a window, which begins in a state as often as that
    is visited.
    """

    subjects: Case

    @classmethod
    def of(cls, case: Case) -> Windows:
        """Return the windows of the episodes of a case."""
        m = case.model
        visits = np.linalg.solve((np.eye(m.n_states) - m.transition).T, m.start)
        model = MRP(m.transition, m.reward, reward_std=m.reward_std, gamma=m.gamma, start=visits / visits.sum())
        return cls(case.name, model, case.features, case)

    def windows(self, n_subjects: int, seed: int, *, groups: bool, shuffled: bool = False) -> Data:
        """Draw windows by visit, all first visits, all second visits and so on, or shuffled; with `groups` or not."""
        X, y, columns, states = self.subjects.episodes(n_subjects, seed)
        subject = columns["episode"]
        ended = columns["terminated"]
        place = np.arange(len(y))
        order = np.lexsort((subject, place - np.searchsorted(subject, subject)))
        if shuffled:
            order = np.random.default_rng(seed).permutation(len(y))
        lengths = np.searchsorted(subject, subject[order], side="right") - order
        rows = np.repeat(order - np.cumsum(lengths) + lengths, lengths) + np.arange(lengths.sum())
        columns = {"episode": np.repeat(place, lengths), "terminated": ended[rows]}
        return Data(X[rows], y[rows], columns | ({"groups": subject[rows]} if groups else {}), states[rows])


@cache
def normal_rows(n_features: int, n_rows: int) -> tuple[Array, Array]:
    """Make independent normal features and rewards, once in each process."""
    random = np.random.default_rng(0)
    return random.standard_normal((n_rows, n_features)), random.standard_normal(n_rows)


def paper_cases(seed: int) -> list[Case]:
    """The nine problems of the paper, on the random processes of one seed."""
    cases = []
    for name, problem in PROBLEMS.items():
        model = RandomMRP(problem.n_states, problem.branching, problem.reward_std, seed, gamma=GAMMA)
        cases += [Case(f"{name}, {kind}", model, make_features(model, kind)) for kind in FEATURES]
    return cases


def episodic_cases(seed: int) -> list[Case]:
    """Classic processes, the same for every seed, and random ones that terminate."""
    chain = BoyanChain()
    walk = RandomWalk(19)
    cases = [
        Case("Boyan chain, tabular", chain, np.eye(13)),
        Case("Boyan chain, interpolating", chain, chain.interpolating_features),
        Case("random walk, tabular", walk, np.eye(19)),
        Case("random walk, aggregated by 4", walk, np.eye(5)[np.arange(19) // 4]),
    ]
    for k, branching, ending, kinds in ((10, 3, 0.05, ("tabular",)), (30, 5, 0.1, FEATURES)):
        lasting = RandomMRP(k, branching, 0.1, seed, gamma=GAMMA)
        model = MRP(
            (1 - ending) * lasting.transition, lasting.reward, reward_std=0.1, gamma=GAMMA, start=np.full(k, 1 / k)
        )
        cases += [Case(f"{k} random states, {kind}", model, make_features(lasting, kind)) for kind in kinds]
    return cases


def cut_cases(seed: int) -> list[Case]:
    """First-passage times at γ = 1 of a walk on 20 states, about 290 steps; the same for every seed."""
    P = 0.5 * (np.eye(20, k=1) + np.eye(20, k=-1))
    P[-1, -1] = 0.5
    model = MRP(P, np.ones((20, 20)), gamma=1.0, start=np.full(20, 0.05))
    x = np.arange(1, 21)[:, np.newaxis] / 20
    cubic = x ** np.arange(1, 4)
    bumps = np.exp(-0.5 * ((x - np.linspace(0, 1, 7)) / 0.12) ** 2)
    return [
        Case("first passage, " + name, model, phi)
        for name, phi in (("tabular", np.eye(20)), ("cubic", cubic), ("bumps", bumps))
    ]


def other_cases(seed: int) -> list[Case]:
    """Kinds of problems that the paper does not have; `OTHER_DRAWS` draws their data."""
    random = np.random.default_rng(seed)
    bumps = cut_cases(seed)[-1]
    walk = RandomWalk(51)
    place = np.linspace(-1.0, 1.0, 51)[:, np.newaxis]
    types = random.normal(size=(60, 3))
    customers = MRP(
        0.9 * np.eye(60),
        np.exp(types @ random.normal(size=3) / 2)[:, np.newaxis] * np.ones(60),
        reward_std=1.0,
        gamma=0.95,
        start=np.full(60, 1 / 60),
    )
    states = [RandomMRP(30, 5, std, seed, gamma=0.95) for std in (0.1, 0.0)]
    correlated = random.normal(size=(30, 12)) @ np.linalg.cholesky(0.95 ** np.abs(np.subtract.outer(*2 * [range(12)])))
    return [
        Case("30 random states, one-hot", states[0], np.eye(30)),
        Case("random walk, powers of the place", walk, place ** np.arange(1, 6)),
        Case("first passage to the end", bumps.model, bumps.features),
        Case("customers", customers, types),
        Case("correlated features", states[0], correlated),
        Case("heavy-tailed rewards", states[1], random.normal(size=(30, 6))),
    ]


def _heavy_tailed(case: Case, seed: int) -> Data:
    data = case.stream(1000, seed)
    return data._replace(y=data.y + 0.3 * np.random.default_rng(seed).standard_t(2.2, len(data.y)))


OTHER_DRAWS: dict[str, Callable[[Case, int], Data]] = {
    "30 random states, one-hot": lambda case, seed: case.stream(400, seed),
    "random walk, powers of the place": lambda case, seed: case.episodes(30, seed),
    "first passage to the end": lambda case, seed: case.episodes(30, seed),
    "customers": lambda case, seed: case.cut(200, 12, seed),
    "correlated features": lambda case, seed: case.stream(1000, seed),
    "heavy-tailed rewards": _heavy_tailed,
}


def wide_cases(seed: int) -> list[Case]:
    """Many features for 100 rows: 30 and 150 normal features of 300 random states."""
    model = RandomMRP(300, 10, 0.1, seed, gamma=0.9)
    features = np.random.default_rng(seed).normal(size=(300, 150))
    return [Case(f"300 random states, {n} features", model, features[:, :n]) for n in (150, 30)]
