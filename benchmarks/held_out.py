"""Seven kinds of problems that made no rule of the choice of settings, for `selection.py --held-out`.

Each problem draws data of the data contract, and has rows to judge predictions on, with their true values. Where what
drives the rewards is hidden, or features do not determine the value, the goal is the best linear fit of the values.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lstd.mrp import MRP, RandomMRP, make_features
from problems import Data

Array = NDArray[np.float64]
N_TEST = 4000  # rows to judge on, where they are drawn
N_CUSTOMERS = 500


class Test(NamedTuple):
    """Rows to judge predictions on."""

    X: Array
    weight: Array  # how often each is met; of sum 1
    value: Array  # discounted sum of all rewards to come
    steps: Array  # sum of the rewards of the next h steps, (horizon + 1, rows)


class Problem(NamedTuple):
    """A process, seen through features."""

    name: str
    gamma: float
    horizon: int
    draw: Callable[[int], Data]
    test: Callable[[], Test]


def of_process(name: str, model: MRP, features: Array, draw: Callable[[int], Data], horizon: int = 12) -> Problem:
    """Return the problem of a finite process, which is judged on its states."""

    def test() -> Test:
        return Test(features, model.stationary, model.values, sums_of_steps(model, horizon))

    return Problem(name, model.gamma, horizon, draw, test)


def sums_of_steps(model: MRP, horizon: int) -> Array:
    """Return the expected sums of the rewards of the next h steps, (horizon + 1, states)."""
    steps = [np.zeros(model.n_states)]
    for _ in range(horizon):
        steps.append(model.expected_reward + model.transition @ steps[-1])
    return np.array(steps)


def stream(model: MRP, features: Array, n_steps: int, seed: int) -> Data:
    """Draw one stream."""
    run = model.simulate(n_steps, seed)
    return Data(features[run.states], np.append(run.rewards, np.nan), {}, run.states)


def episodes(model: MRP, features: Array, cuts: NDArray[np.int64], seed: int) -> Data:
    """Draw episodes, each until it ends or is cut off after its number of steps."""
    random = np.random.default_rng(seed)
    bounds = np.cumsum(model.transition, axis=1)
    states: list[int] = []
    rewards: list[float] = []
    episode: list[int] = []
    ended: list[bool] = []
    for i, cut in enumerate(cuts.tolist()):
        state = int(random.choice(model.n_states, p=model.start))
        for step in range(cut + 1):
            states.append(state)
            episode.append(i)
            following = int(np.searchsorted(bounds[state], random.random(), side="right"))
            ends = following == model.n_states
            mean = model.termination_reward[state] if ends else model.reward[state, following]
            rewards.append(mean + model.reward_std * random.normal())
            ended.append(ends and step < cut)
            if step == cut:
                rewards[-1] = np.nan
            if ends:
                break
            state = following
    places = np.array(states)
    columns = {"episode": np.array(episode), "terminated": np.array(ended)}
    return Data(features[places], np.array(rewards), columns, places)


def never(n: int) -> NDArray[np.int64]:
    """Return the lengths of episodes that are not cut off."""
    return np.full(n, 10_000)


# ---------------------------------------------------------------- the kinds


def random_processes(seed: int) -> list[Problem]:
    """Processes of other sizes than the paper's, in one stream."""
    problems = []
    for k, branches, gamma, kind, n_steps in (
        (15, 3, 0.9, "tabular", 600),
        (40, 6, 0.95, "normal", 2000),
        (80, 4, 0.98, "binary", 4000),
        (25, 8, 0.8, "tabular", 300),
    ):
        model = RandomMRP(k, branches, 0.5, seed, gamma=gamma)
        features = make_features(model, kind)
        name = f"{k} states, {kind}, {n_steps} steps"
        problems.append(of_process(name, model, features, partial(stream, model, features, n_steps)))
    return problems


class Sensors(NamedTuple):
    """Channels that forget slowly, and a season of 24 steps; the reward is a linear function with noise."""

    moves: Array  # of the channels, (d, d)
    of_channel: Array
    of_season: float
    noise: float
    gamma: float
    knows_season: bool

    @classmethod
    def of(cls, seed: int, d: int, noise: float, gamma: float, *, knows_season: bool) -> Sensors:
        """Draw the constants."""
        random = np.random.default_rng(seed)
        turned, _ = np.linalg.qr(random.normal(size=(d, d)))
        moves = turned @ np.diag(random.uniform(0.5, 0.97, d)) @ turned.T
        return cls(moves, random.normal(size=d), 1.0, noise, gamma, knows_season)

    def run(self, n_steps: int, seed: int) -> tuple[Array, Array]:
        """Draw channels and places in the season."""
        random = np.random.default_rng(seed)
        d = len(self.moves)
        x = np.zeros((n_steps + 1, d))
        shocks = random.normal(size=(n_steps + 1, d))
        for t in range(1, n_steps + 1):
            x[t] = self.moves @ x[t - 1] + 0.4 * shocks[t]
        angle = 2.0 * np.pi * (np.arange(n_steps + 1) + random.integers(24)) / 24.0
        return x, np.asarray(angle)

    def features(self, x: Array, angle: Array) -> Array:
        """Columns of the rows: the channels, and the season if it is known."""
        if self.knows_season:
            return np.column_stack([x, np.sin(angle), np.cos(angle)])
        return x

    def draw(self, n_steps: int, seed: int) -> Data:
        """Draw one stream."""
        x, angle = self.run(n_steps, seed)
        noise = self.noise * np.random.default_rng(seed + 1).normal(size=n_steps + 1)
        y = x @ self.of_channel + self.of_season * np.sin(angle) + noise
        y[-1] = np.nan
        return Data(self.features(x, angle), y, {}, np.arange(n_steps + 1))

    def test(self, horizon: int) -> Test:
        """Draw rows; their values are exact."""
        x, angle = self.run(N_TEST - 1, 5)

        def after(k: int) -> Array:
            at_k = x @ np.linalg.matrix_power(self.moves.T, k)
            return np.asarray(at_k @ self.of_channel + self.of_season * np.sin(angle + 2.0 * np.pi * k / 24.0))

        steps = np.cumsum([np.zeros(len(x)), *(after(k) for k in range(horizon))], axis=0)
        turn = np.exp(2j * np.pi / 24.0)
        season = np.imag(np.exp(1j * angle) / (1.0 - self.gamma * turn))
        limit = np.linalg.solve(np.eye(len(self.moves)) - self.gamma * self.moves.T, self.of_channel)
        value = x @ limit + self.of_season * season
        return Test(self.features(x, angle), np.full(N_TEST, 1.0 / N_TEST), value, steps)


def sensors(seed: int) -> list[Problem]:
    """Streams of sensors with a season, which is known or not."""
    problems = []
    for d, noise, gamma, knows, n_steps in (
        (4, 1.0, 0.95, True, 3000),
        (8, 3.0, 0.98, True, 1500),
        (4, 1.0, 0.9, False, 3000),
        (20, 2.0, 0.95, True, 5000),
    ):
        made = Sensors.of(seed, d, noise, gamma, knows_season=knows)
        season = "season known" if knows else "season hidden"
        name = f"{d} channels, {season}, {n_steps} steps"
        problems.append(Problem(name, gamma, 12, partial(made.draw, n_steps), partial(made.test, 12)))
    return problems


def survival(seed: int) -> list[Problem]:
    """Time to live of subjects with covariates and stages, followed for some steps."""
    random = np.random.default_rng(seed)
    n_types = 60
    covariates = random.normal(size=(n_types, 4))
    risk = covariates @ random.normal(size=4) / 2.0
    stages = 3
    k = n_types * stages
    hazard = np.minimum(0.06 * np.exp(risk[:, np.newaxis] + 0.5 * np.arange(stages)), 0.5)  # (types, stages)
    moves = np.zeros((k, k))
    for i in range(n_types):
        for stage in range(stages):
            here = stages * i + stage
            lives = 1.0 - hazard[i, stage]
            worse = 0.1 if stage < stages - 1 else 0.0
            moves[here, here] = lives * (1.0 - worse)
            if worse:
                moves[here, here + 1] = lives * worse
    start = np.zeros(k)
    start[::stages] = 1.0 / n_types
    features = np.column_stack([np.repeat(covariates, stages, axis=0), np.tile(np.eye(stages)[:, 1:], (n_types, 1))])
    model = MRP(moves, np.ones(k), gamma=1.0, start=start)
    problems = []
    for n_subjects, least, most in ((150, 20, 40), (400, 10, 30), (1000, 15, 60)):

        def draw(seed: int, n_subjects: int = n_subjects, least: int = least, most: int = most) -> Data:
            cuts = np.random.default_rng(seed).integers(least, most, n_subjects)
            return episodes(model, features, cuts, seed)

        problems.append(of_process(f"{n_subjects} subjects, {least} to {most} steps", model, features, draw))
    return problems


class Customers(NamedTuple):
    """Customers who join within half the log, buy at rates of their own, and leave without a word."""

    n_customers: int
    weeks: int
    stay: float  # weeks
    amounts: bool  # whether a purchase counts what was spent, else 1
    gamma: float
    trend: float = 0.0  # of rates, per week

    def run(self, n: int, seed: int, horizon: int) -> tuple[Data, Test]:
        """Draw a log, and the values of its rows."""
        random = np.random.default_rng(seed)
        week = np.arange(self.weeks + 1)
        rate = random.gamma(1.0, 0.25, (n, 1))
        size = np.exp(0.7 * random.normal(size=(n, 1))) if self.amounts else np.ones((n, 1))
        first = random.integers(0, self.weeks // 2, (n, 1))
        leaves = first + random.exponential(self.stay, (n, 1))
        share = np.clip(leaves - week, 0.0, 1.0) * (week >= first)
        counts = random.poisson(rate * share * np.exp(self.trend * week))
        spent = counts * size
        if self.amounts:
            spent = spent * np.exp(0.5 * random.normal(size=spent.shape) - 0.125)

        before = np.pad(counts[:, :-1].cumsum(axis=1), ((0, 0), (1, 0)))
        spent_before = np.pad(spent[:, :-1].cumsum(axis=1), ((0, 0), (1, 0)))
        age = np.maximum(week - first, 0)
        bought = np.pad(counts[:, :-1] > 0, ((0, 0), (1, 0)))
        last = np.maximum.accumulate(np.where(bought, week, first), axis=1)
        away = np.maximum(week - last, 0).astype(float)
        each = (before + 0.5) / (age + 4.0)
        columns = [each, np.minimum(away, 13.0), each * np.exp(-away / 8.0), spent_before / (before + 1.0)]

        here = week >= first
        y = np.where(week < self.weeks, spent, np.nan)
        X = np.column_stack([column[here] for column in columns])
        episode = np.broadcast_to(np.arange(n)[:, np.newaxis], here.shape)[here]
        rows = {"episode": episode, "terminated": np.zeros(len(X), bool)}
        data = Data(X, y[here], rows, np.arange(len(X)))

        active = leaves > week
        level = (rate * size * active * np.exp(self.trend * week))[here]
        kept = np.exp(-1.0 / self.stay)
        of_week = self.stay * (1.0 - kept)  # expected share of the first week
        decay = kept * np.exp(self.trend)
        k = np.arange(horizon + 1)[:, np.newaxis]
        steps = level * of_week * (1.0 - decay**k) / (1.0 - decay)
        value = level * of_week / (1.0 - self.gamma * decay)
        return data, Test(X, np.full(len(X), 1.0 / len(X)), value, steps)

    def draw(self, seed: int) -> Data:
        """Draw a log."""
        data, _ = self.run(self.n_customers, seed, 1)
        return data

    def test(self, horizon: int) -> Test:
        """Draw the rows of another log."""
        _, found = self.run(N_CUSTOMERS, 5, horizon)
        return found

    def problem(self) -> Problem:
        """Return the problem, whose horizon is half the log, at most 26 weeks."""
        horizon = min(26, self.weeks // 2)
        what = "spending" if self.amounts else "purchases"
        trend = f", rates {100 * self.trend:+.0f} % a week" if self.trend else ""
        name = f"{self.n_customers} customers, {self.weeks} weeks, {what}{trend}"
        return Problem(name, self.gamma, horizon, self.draw, partial(self.test, horizon))


def purchases(seed: int) -> list[Problem]:
    """Logs of purchases; the process is the same for every seed."""
    return [
        Customers(200, 60, 40.0, amounts=False, gamma=0.98).problem(),
        Customers(800, 40, 30.0, amounts=False, gamma=0.95).problem(),
        Customers(500, 80, 50.0, amounts=True, gamma=0.98).problem(),
    ]


def many_features(seed: int) -> list[Problem]:
    """Many features for whole episodes."""
    problems = []
    for n, n_states, ending, n_episodes in ((70, 300, 0.1, 100), (100, 400, 0.05, 60), (160, 500, 0.1, 300)):
        lasting = RandomMRP(n_states, 5, 0.0, seed, gamma=0.99)
        rewards = lasting.expected_reward + 1.0
        start = np.full(n_states, 1.0 / n_states)
        transition = (1.0 - ending) * lasting.transition
        model = MRP(transition, rewards, reward_std=0.5, gamma=0.99, start=start)
        features = np.random.default_rng(seed).normal(size=(n_states, n))
        features[:, :10] += model.values[:, np.newaxis] / model.values.std()
        draw = partial(episodes, model, features, never(n_episodes))
        problems.append(of_process(f"{n} features, {n_episodes} episodes", model, features, draw))
    return problems


class WithNoise(NamedTuple):
    """A process with five features that matter, and others that are noise, new in each row or slow."""

    model: MRP
    own: Array
    n: int
    slow: float

    def run(self, n_steps: int, seed: int) -> tuple[NDArray[np.int64], Array, Array]:
        """Draw states, rewards and features."""
        run = self.model.simulate(n_steps, seed)
        noise = np.random.default_rng(seed).normal(size=(n_steps + 1, self.n))
        for t in range(1, n_steps + 1):
            noise[t] = self.slow * noise[t - 1] + np.sqrt(1.0 - self.slow**2) * noise[t]
        return run.states, np.append(run.rewards, np.nan), np.hstack([self.own[run.states], 0.4 * noise])

    def draw(self, n_steps: int, seed: int) -> Data:
        """Draw one stream."""
        states, rewards, X = self.run(n_steps, seed)
        return Data(X, rewards, {}, states)

    def test(self, horizon: int) -> Test:
        """Draw rows; their values are exact."""
        states, _, X = self.run(N_TEST - 1, 5)
        steps = sums_of_steps(self.model, horizon)[:, states]
        return Test(X, np.full(N_TEST, 1.0 / N_TEST), self.model.values[states], steps)


def noise_features(seed: int) -> list[Problem]:
    """A few features that matter among many that are noise."""
    problems = []
    for n, slow, n_steps in ((15, 0.0, 1000), (40, 0.0, 2000), (40, 0.9, 3000)):
        model = RandomMRP(30, 4, 0.5, seed, gamma=0.95)
        made = WithNoise(model, make_features(model, "normal"), n, slow)
        kind = "slow" if slow else "new in each row"
        name = f"5 features and {n} of noise, {kind}"
        problems.append(Problem(name, 0.95, 12, partial(made.draw, n_steps), partial(made.test, 12)))
    return problems


def changing(seed: int) -> list[Problem]:
    """Worlds that change: two regimes that features do not show, and rates of purchases that fall or rise."""
    problems = []
    for k, switch, n_steps in ((20, 1 / 200, 3000), (10, 1 / 50, 1500)):
        one = RandomMRP(k, 4, 0.5, seed, gamma=0.95)
        two = RandomMRP(k, 4, 0.5, seed + 500, gamma=0.95)
        stays = (1.0 - switch) * np.eye(2) + switch * np.eye(2)[::-1]
        moves = np.vstack(
            [
                np.hstack([stays[0, 0] * one.transition, stays[0, 1] * one.transition]),
                np.hstack([stays[1, 0] * two.transition, stays[1, 1] * two.transition]),
            ]
        )
        rewards = np.append(one.expected_reward + 0.3, two.expected_reward - 0.3)
        model = MRP(moves, rewards, reward_std=0.5, gamma=0.95)
        features = np.tile(make_features(one, "normal"), (2, 1))
        name = f"two regimes of {k} states, {n_steps} steps"
        problems.append(of_process(name, model, features, partial(stream, model, features, n_steps)))
    problems.append(Customers(500, 60, 40.0, amounts=False, gamma=0.98, trend=-0.01).problem())
    problems.append(Customers(500, 60, 40.0, amounts=True, gamma=0.95, trend=0.01).problem())
    return problems


KINDS: dict[str, Callable[[int], list[Problem]]] = {
    "random processes": random_processes,
    "sensors": sensors,
    "survival": survival,
    "purchases": purchases,
    "many features": many_features,
    "noise features": noise_features,
    "changing worlds": changing,
}
