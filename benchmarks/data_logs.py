"""Logs of the kinds that the guide has, simulated, with features that suit them: no warning from the data is due."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from lstd.mrp import BoyanChain, RandomMRP, RandomWalk, make_features


class Log(NamedTuple):
    """Arguments of `fit`, and the discount."""

    X: Any
    y: Any
    columns: dict[str, Any]
    gamma: float


def shop(random: Any) -> Log:
    """Customers of the first page: a recent mean of what they spent, and weeks since they joined."""
    rows = []
    for customer in range(150):
        interest = random.gamma(4.0, 2.5)
        recent = 10.0
        start = random.integers(52)
        for week in range(start, 53):
            spend = random.exponential(2.0 * interest) * (random.random() < 0.5)
            closed = week < 52 and random.random() < (0.12 if recent < 4.0 else 0.02)
            rows.append((recent, week - start, spend if week < 52 else np.nan, customer, closed))
            recent += 0.3 * (spend - recent)
            if closed:
                break
    return _log(rows, 0.98)


def purchases(random: Any) -> Log:
    """Customers who never say goodbye: a shrunken rate, limited recency and their product."""
    rows = []
    for customer in range(200):
        for week, features, buys in buyer(random, 53):
            rows.append((*features, buys if week < 52 else np.nan, customer, 0))
    return _log(rows, 0.98)


def buyer(random: Any, weeks: int) -> Iterator[tuple[int, tuple[float, ...], int]]:
    """Yield the week, features and purchases of a customer who never says goodbye."""
    rate = random.gamma(0.8, 0.25)
    bought = 0
    since = 0
    first = random.integers(13)
    stays = random.geometric(0.04)
    for week in range(first, weeks):
        age = week - first
        buys = random.poisson(rate) if age < stays else 0
        seen = (bought + 0.25) / (age + 4)
        yield week, (seen, min(since, 13), seen * np.exp(-since / 13)), buys
        bought = bought + buys
        since = 0 if buys else since + 1


def arms(random: Any) -> Log:
    """Customers of a test: new or regular."""
    rows = []
    for customer in range(300):
        regular = False
        for week in range(random.integers(20), 21):
            leaves = week < 20 and random.random() > (0.9 if regular else 0.7)
            spent = random.exponential(10.0) if week < 20 else np.nan
            rows.append((float(not regular), float(regular), spent, customer, leaves))
            if leaves:
                break
            regular = regular or random.random() < 0.5
    return _log(rows, 0.97)


def stays(random: Any) -> Log:
    """Patients in hospital: days that are left, of two grades that change; some are still there."""
    rows = []
    for patient in range(150):
        grade = random.integers(3)
        age = random.normal(60.0, 12.0)
        for _ in range(int(random.integers(5, 40)) + 1):
            leaves = random.random() < (0.05, 0.1, 0.25)[grade]
            rows.append((*np.eye(3)[grade], age, 1.0, patient, leaves))
            if leaves:
                break
            grade = min(2, max(0, grade + random.integers(-1, 2)))
        else:
            rows[-1] = (*rows[-1][:-3], np.nan, *rows[-1][-2:])
    return _log(rows, 1.0)


def wear(random: Any) -> Log:
    """Machines that wear out: a cost when they fail, and vibration that grows with wear."""
    rows = []
    for machine in range(120):
        worn = random.random()
        for _ in range(60):
            fails = random.random() < 0.02 + 0.1 * worn
            vibration = worn + 0.1 * random.normal()
            rows.append((worn, vibration, worn**2, 10.0 * fails + 0.1 * random.random(), machine, fails))
            if fails:
                break
            worn = min(1.0, worn + 0.05 * random.random())
        else:
            rows[-1] = (*rows[-1][:-3], np.nan, *rows[-1][-2:])
    return _log(rows, 0.95)


def sensor(random: Any) -> Log:
    """One stream: three persistent signals, and a sum of them as the reward."""
    x = random.normal(size=3)
    rates = np.array([0.5, 0.8, 0.95])
    rows = []
    for _ in range(600):
        rows.append((*x, x.sum() + random.normal(), 0, False))
        x = rates * x + np.sqrt(1.0 - rates**2) * random.normal(size=3)
    log = _log(rows, 0.95)
    return log._replace(columns={})


def heavy(random: Any) -> Log:
    """Subjects with an income, a Pareto number of index 2, and claims that follow it."""
    rows = []
    for subject in range(200):
        income = random.pareto(2.0) + 1.0
        for _ in range(30):
            ends = random.random() < 0.1
            claim = random.pareto(2.5) * income * (random.random() < 0.3)
            rows.append((income, np.log(income), claim, subject, ends))
            if ends:
                break
        else:
            rows[-1] = (*rows[-1][:-3], np.nan, *rows[-1][-2:])
    return _log(rows, 0.95)


def traffic(random: Any) -> Log:
    """One stream of counts in bursts: lognormal loads with memory, and costs above a level."""
    load = 0.0
    rows = []
    for _ in range(1000):
        load = 0.9 * load + 0.5 * random.normal()
        size = np.exp(load + 0.7 * random.normal())
        rows.append((np.exp(load), size, max(0.0, size - 3.0), 0, False))
    return _log(rows, 0.9)._replace(columns={})


def chain(random: Any) -> Log:
    """Boyan's chain, by interpolating features."""
    return _process(BoyanChain(), BoyanChain().interpolating_features, 400, random)


def walk(random: Any) -> Log:
    """A random walk on 19 states, one-hot."""
    return _process(RandomWalk(19), np.eye(19), 1000, random)


def states(random: Any) -> Log:
    """One stream of a random process of thirty states, one-hot, from rewards with noise."""
    model = RandomMRP(30, 5, 0.1, int(random.integers(10**6)), gamma=0.95)
    run = model.simulate(1000, int(random.integers(10**6)))
    return Log(make_features(model, "tabular")[run.states[:-1]], run.rewards, {}, 0.95)


def codes(random: Any) -> Log:
    """One short stream of a random process of ten states, as binary codes."""
    model = RandomMRP(10, 3, 0.1, int(random.integers(10**6)), gamma=0.99)
    run = model.simulate(200, int(random.integers(10**6)))
    return Log(make_features(model, "binary")[run.states[:-1]], run.rewards, {}, 0.99)


KINDS: dict[str, Callable[[Any], Log]] = {
    "shop": shop,
    "purchases": purchases,
    "arms of a test": arms,
    "stays in hospital": stays,
    "worn machines": wear,
    "sensor": sensor,
    "claims, heavy tails": heavy,
    "traffic in bursts": traffic,
    "Boyan's chain": chain,
    "random walk": walk,
    "thirty states": states,
    "binary codes": codes,
}


def _log(rows: list[Any], gamma: float) -> Log:
    """Return the log of rows of features, reward, subject and end."""
    table = np.array(rows, dtype=float)
    columns = {"episode": table[:, -2].astype(int), "terminated": table[:, -1] > 0.0}
    return Log(table[:, :-3], table[:, -3], columns, gamma)


def _process(model: Any, features: Any, n_steps: int, random: Any) -> Log:
    run = model.simulate(n_steps, int(random.integers(10**6)))
    gamma = 1.0
    return Log(features[run.states[:-1]], run.rewards, {"terminated": run.terminated}, gamma)
