"""Problems on which estimates of values of policies are judged: what logs, what is asked, what is true.

The tables, the hospital among them, have exact values; those of processes with continuous states come from 20 000
episodes of each target policy, and their error is given. `features` has two kinds: "fine", which for the tables but the
hospital and the inventory are unit vectors of states, and "coarse". `columns` are what is known of a state, such as its
coordinates.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hospital import GAMMA, Log, cumulative_keys, task

Array = NDArray[Any]
Policy = Any  # probabilities (states, actions), or a function of states (T, d) that returns them
MC_EPISODES = 20_000
MC_STEPS = 1000


class Truth(NamedTuple):
    """Value of a policy, the standard deviation of its return, and the standard error of the value, 0 if exact."""

    value: float
    deviation: float
    error: float


@dataclass(frozen=True, eq=False)
class Problem:
    """What logs and what is asked; tables of states are arrays with a row for each, others are functions of states."""

    gamma: float
    draw: Callable[[Policy, int, int], Log]  # of a policy, a number of episodes and a seed
    truth: Callable[[Policy], Truth]
    columns: Any
    features: dict[str, Any]
    logs: dict[str, Policy]
    targets: dict[str, Policy]
    sizes: tuple[int, int] = (200, 1000)


def at(table: Any, states: Array) -> Array:
    """Return the rows of a table, or the values of a function, for states."""
    return np.asarray(table(states) if callable(table) else table[states])


def mixed(policy: Array, share: float) -> Array:
    """Return a policy that acts at random with a probability of 1 - share."""
    return np.asarray(share * policy + (1.0 - share) / policy.shape[1])


# ---------------------------------------------------------------- tables


class Table(NamedTuple):
    """Transitions (states, actions, states), rewards that broadcast to these, and states that end an episode."""

    P: Array
    reward: Array
    ends: Array
    start: Array
    gamma: float
    steps: int  # after which an episode is cut off
    noise: float = 0.0

    def moves(self, policy: Array) -> Array:
        return np.asarray(np.einsum("sa,sat->st", policy, self.P) * ~self.ends)

    def truth(self, policy: Array) -> Truth:
        """Solve for the first two moments of the return; the states that end have values 0."""
        live = ~self.ends[:, np.newaxis]
        r = np.broadcast_to(self.reward, self.P.shape)
        M = self.moves(policy) * live
        eye = np.eye(len(self.P))
        v = np.linalg.solve(eye - self.gamma * M, np.einsum("sa,sat,sat->s", policy * live, self.P, r))
        after = self.gamma * np.where(self.ends, 0.0, v)
        square = np.einsum("sa,sat,sat->s", policy * live, self.P, r**2 + 2.0 * r * after) + self.noise**2
        m = np.linalg.solve(eye - self.gamma**2 * M, np.where(self.ends, 0.0, square))
        value = float(self.start @ v)
        return Truth(value, float(np.sqrt(self.start @ m - value**2)), 0.0)

    def action_values(self, policy: Array) -> Array:
        v = np.linalg.solve(
            np.eye(len(self.P)) - self.gamma * self.moves(policy) * ~self.ends[:, np.newaxis],
            np.einsum("sa,sat,sat->s", policy, self.P, np.broadcast_to(self.reward, self.P.shape)) * ~self.ends,
        )
        return np.asarray(np.einsum("sat,sat->sa", self.P, self.reward + self.gamma * np.where(self.ends, 0.0, v)))

    def best(self) -> Array:
        """Return the best policy, by iteration from the uniform one."""
        n = self.P.shape[1]
        policy = np.full(self.P.shape[:2], 1.0 / n)
        for _ in range(100):
            q = self.action_values(policy)
            better = np.eye(n)[np.round(q, 9).argmax(axis=1)]
            if (better == policy).all():
                break
            policy = better
        return policy

    def draw(self, policy: Array, n_episodes: int, seed: int) -> Log:
        """Draw episodes, all of them a step at a time; those that are cut off have a horizon row."""
        random = np.random.default_rng(seed)
        n_actions = self.P.shape[1]
        flat = self.P.reshape(-1, self.P.shape[2])
        (row, to), (state_of, action_of) = np.nonzero(flat), np.nonzero(policy)
        keys = cumulative_keys(flat, row, to)
        of_actions = cumulative_keys(policy, state_of, action_of)
        alive = np.arange(n_episodes)
        steps = list[Any]()
        state = np.searchsorted(np.cumsum(self.start), random.uniform(size=n_episodes), "right")
        for _ in range(self.steps):
            action = action_of[np.searchsorted(of_actions, state + random.uniform(size=len(state)), "right")]
            pair = state * n_actions + action
            reached = to[np.searchsorted(keys, pair + random.uniform(size=len(state)), "right")]
            paid = np.broadcast_to(self.reward, self.P.shape)[state, action, reached]
            paid = paid + self.noise * random.normal(size=len(state))
            steps.append((alive, state, action, paid, reached, self.ends[reached]))
            alive = alive[~self.ends[reached]]
            state = reached[~self.ends[reached]]
            if not len(alive):
                break
        return joined(steps, alive, state)


def joined(steps: list[Any], alive: Array, state: Array) -> Log:
    """Return the log of steps, with a horizon row for each episode that is still alive."""
    none = np.zeros(len(alive), dtype=int)
    steps = [*steps, (alive, state, none, np.zeros(len(alive)), none if state.ndim == 1 else state, none.astype(bool))]
    episode, states, action, reward, reached, ended = (np.concatenate(one) for one in zip(*steps, strict=True))
    order = np.argsort(episode, kind="stable")
    return Log(states[order], action[order], reward[order], reached[order], episode[order], ended[order])


def of_table(table: Table, columns: Array, fine: Array, coarse: Array, logs: Any, targets: Any, **more: Any) -> Problem:
    features = {"fine": np.asarray(fine, float), "coarse": np.asarray(coarse, float)}
    return Problem(table.gamma, table.draw, table.truth, np.asarray(columns, float), features, logs, targets, **more)


def toy(name: str, gamma: float, steps: int, coarse: Callable[[Array], Array]) -> Problem:
    """Return a table of Gymnasium; the target policies are closer to the best one than the log, and further from it."""
    import gymnasium

    table = gymnasium.make(name).unwrapped.P  # type: ignore[attr-defined]
    n = len(table)
    n_actions = len(table[0])
    P = np.zeros((n, n_actions, n))
    R = np.zeros((n, n_actions, n))
    ends = np.zeros(n, dtype=bool)
    for s, a in ((s, a) for s in range(n) for a in range(n_actions)):
        for p, to, reward, done in table[s][a]:
            P[s, a, to] += p
            R[s, a, to] = reward
            ends[to] |= done
    start = np.asarray(gymnasium.make(name).unwrapped.initial_state_distrib)  # type: ignore[attr-defined]
    one = Table(P, R, ends, start / start.sum(), gamma, steps)
    best = one.best()
    states = np.arange(n)
    taxi = states // 100, states // 20 % 5, states // 4 % 5, states % 4
    columns = np.column_stack({16: (states // 4, states % 4), 48: (states // 12, states % 12)}.get(n, taxi))
    logs = {"half best": mixed(best, 0.6)}
    targets = {"better": mixed(best, 0.85), "worse": mixed(best, 0.4)}
    return of_table(one, columns, np.eye(n), coarse(columns), logs, targets)


def one_hot(values: Array) -> Array:
    return np.eye(int(values.max()) + 1)[values]


def random_process(seed: int, n: int = 30, n_actions: int = 4) -> Problem:
    """Return random transitions of 30 states that end with a probability of 0.1; coarse are 5 groups of states."""
    random = np.random.default_rng([57_000, seed])
    P = np.zeros((n + 1, n_actions, n + 1))
    P[:n, :, :n] = 0.9 * random.dirichlet(np.full(n, 0.1), size=(n, n_actions))
    P[:n, :, n] = 0.1
    P[n, :, n] = 1.0
    places = random.normal(size=(n + 1, 3))
    reward = (random.normal(size=(n + 1, n_actions)) + places[:, :1])[:, :, np.newaxis]
    ends = np.arange(n + 1) == n
    start = np.append(np.full(n, 1.0 / n), 0.0)
    table = Table(P, reward, ends, start, 1.0, 1000, 0.5)
    behavior = mixed(random.dirichlet(np.ones(n_actions), size=n + 1), 0.8)
    q = table.action_values(behavior)
    better = behavior * np.exp(q)
    targets = {"better": better / better.sum(axis=1, keepdims=True), "best action": mixed(table.best(), 0.9)}
    group = np.argsort(np.argsort(places[:, 0])) * 5 // (n + 1)
    return of_table(table, places, np.eye(n + 1), one_hot(group), {"random": behavior}, targets)


def queue(most: int = 24) -> Problem:
    """Return a queue that is served at one of three speeds, which cost; coarse features know a third of its length."""
    P = np.zeros((most + 1, 3, most + 1))
    n = np.arange(most + 1)
    arrivals = np.array([0.3, 0.35, 0.2, 0.1, 0.05])
    for speed, length, served, came in np.ndindex(3, most + 1, 4, 5):
        chance = [0.7, 0.3, 0.0, 0.0] if speed == 0 else [0.2, 0.5, 0.3, 0.0] if speed == 1 else [0.1, 0.2, 0.4, 0.3]
        P[length, speed, min(max(length - served, 0) + came, most)] += chance[served] * arrivals[came]
    reward = -(0.1 * n[:, np.newaxis] + np.array([0.0, 0.5, 1.2]))[:, :, np.newaxis]
    table = Table(P, reward, np.zeros(most + 1, dtype=bool), np.eye(most + 1)[2], 0.95, 60, 0.1)
    often = np.clip(n / 12.0, 0.1, 0.8)
    behavior = np.column_stack([0.6 * (1.0 - often), 0.4 * (1.0 - often), often])
    fast = np.eye(3)[np.where(n >= 6, 2, 1)]
    slow = np.eye(3)[np.where(n >= 15, 1, 0)]
    targets = {"fast from 6": mixed(fast, 0.8), "slow": mixed(slow, 0.5)}
    logs = {"by length": behavior}
    return of_table(table, n[:, np.newaxis], np.eye(most + 1), one_hot(n // 9), logs, targets, sizes=(50, 250))


def wind() -> Problem:
    """Return a grid of 7 by 10 fields with wind in the middle, half as strong as it blows; coarse are its columns."""
    rows = 7
    columns = 10
    strength = np.array([0, 0, 0, 1, 1, 1, 2, 2, 1, 0])
    P = np.zeros((rows * columns, 4, rows * columns))
    for i, j, action, gust in np.ndindex(rows, columns, 4, 2):
        down, right = [(-1, 0), (0, 1), (1, 0), (0, -1)][action]
        row = i + down - gust * strength[j]
        column = min(max(j + right, 0), columns - 1)
        P[i * columns + j, action, min(max(row, 0), rows - 1) * columns + column] += 0.5
    goal = 3 * columns + 7
    ends = np.arange(rows * columns) == goal
    start = np.eye(rows * columns)[3 * columns]
    table = Table(P, np.full((1, 1, 1), -1.0), ends, start, 0.95, 200)
    best = table.best()
    fields = np.arange(rows * columns)
    where = np.column_stack([fields // columns, fields % columns])
    logs = {"half best": mixed(best, 0.5)}
    targets = {"better": mixed(best, 0.75), "worse": mixed(best, 0.3)}
    return of_table(table, where, np.eye(len(fields)), one_hot(where[:, 1] // 2), logs, targets, sizes=(100, 500))


def inventory(most: int = 20, steps: int = 30) -> Problem:
    """Return a shop that orders 0, 3, 6, 9 or 12 for each of 30 days; coarse features do not know the day."""
    stock = np.arange(most + 1)
    orders = np.arange(5) * 3
    held = np.minimum(stock[:, np.newaxis] + orders, most)
    left = held[:, :, np.newaxis] - np.arange(40)
    demand = np.exp(-6.0) * 6.0 ** np.arange(40) / np.cumprod(np.maximum(np.arange(40.0), 1.0))
    one_day = np.zeros((most + 1, 5, most + 1))
    for pair in np.ndindex(most + 1, 5):
        np.add.at(one_day[pair], np.maximum(left[pair], 0), demand / demand.sum())
    sold = held[:, :, np.newaxis] - stock
    paid = 2.0 * sold - 1.0 * (held - stock[:, np.newaxis])[:, :, np.newaxis] - 0.1 * stock
    n = (most + 1) * steps
    P = np.zeros((n + 1, 5, n + 1))
    R = np.zeros((n + 1, 5, n + 1))
    for day in range(steps):
        here = slice(day * (most + 1), (day + 1) * (most + 1))
        if day < steps - 1:
            after = slice((day + 1) * (most + 1), (day + 2) * (most + 1))
            P[here, :, after], R[here, :, after] = one_day, paid
        else:
            P[here, :, n], R[here, :, n] = 1.0, (one_day * paid).sum(axis=2)
    P[n, :, n] = 1.0
    start = np.zeros(n + 1)
    start[10] = 1.0
    table = Table(P, R, np.arange(n + 1) == n, start, 1.0, steps + 1)
    s = np.append(np.tile(stock, steps), 0)
    days = np.append(np.repeat(np.arange(steps), most + 1), steps)
    coarse = np.column_stack([s / most, (s / most) ** 2])
    fine = one_hot(s // 3 * 6 + np.minimum(days, steps - 1) // 5)
    full = np.array([0.1, 0.1, 0.2, 0.3, 0.3])
    want = np.eye(5)[np.clip((12 - s) // 3, 0, 4)]
    behavior = 0.5 * want + 0.5 * full
    targets = {"up to 12": mixed(want, 0.9), "orders much": mixed(np.eye(5)[np.full(n + 1, 4)], 0.6)}
    return of_table(table, np.column_stack([s, days]), fine, coarse, {"half to a rule": behavior}, targets)


def long_horizon(n: int = 20) -> Problem:
    """Return a machine that wears, logged for 500 steps; it runs, or is repaired at a cost."""
    P = np.zeros((n, 2, n))
    R = np.zeros((n, 2, n))
    for s in range(n):
        for step, p in ((0, 0.5), (1, 0.3), (3, 0.2)):
            P[s, 0, min(s + step, n - 1)] += p
        P[s, 1, :3] = 0.6, 0.3, 0.1
        R[s] = np.array([[1.0 - 1.5 * (s / (n - 1)) ** 2], [-3.0]])
    table = Table(P, R, np.zeros(n, dtype=bool), np.eye(n)[0], 0.99, 500, 0.2)
    wear = np.arange(n)
    repair = np.clip((wear - 5.0) / 15.0, 0.05, 0.6)
    behavior = np.column_stack([1.0 - repair, repair])
    early = np.where(wear >= 12, 0.8, 0.05)
    targets = {
        "early": np.column_stack([1.0 - early, early]),
        "seldom": np.column_stack([1.0 - repair / 3, repair / 3]),
    }
    columns = wear[:, np.newaxis]
    coarse = (wear[:, np.newaxis] >= 10) * 1.0
    return of_table(table, columns, np.eye(n), coarse, {"by wear": behavior}, targets, sizes=(20, 100))


def hospital() -> Problem:
    """Return four ways to log in the hospital and five target policies; fine are 169 groups of patients, coarse 20."""
    one = task()
    far = task(far=True)
    model = one.model
    n = one.target.shape[1]
    expert = one.model.expert
    best = np.eye(n)[model.optimal_action_values(GAMMA).argmax(axis=1)]
    spread = np.sqrt(expert)
    logs = {
        "doctors": one.behavior,
        "half at random": mixed(expert, 0.5),
        "sharp doctors": mixed(expert, 0.97),
        "undecided doctors": mixed(spread / spread.sum(axis=1, keepdims=True), 0.9),
    }
    ill = np.where(model.sofa > np.median(model.sofa), 12, 0)
    targets = {
        "near": one.target,
        "far": far.target,
        "best action": best,
        "threshold": mixed(np.eye(n)[ill], 0.9),
        "never": mixed(np.eye(n)[0 * ill], 0.9),
    }

    def truth(policy: Array) -> Truth:
        return Truth(model.value(policy, GAMMA), model.deviation(policy, GAMMA), 0.0)

    columns = np.column_stack([model.measurements, model.sofa])
    return Problem(GAMMA, model.episodes, truth, columns, {"fine": one.fine, "coarse": one.coarse}, logs, targets)


# ---------------------------------------------------------------- continuous states


class Motion(NamedTuple):
    """A step of states (n, d) and actions (n,) to states, rewards and ends; and a draw of first states."""

    step: Callable[[Array, Array, Any], tuple[Array, Array, Array]]
    first: Callable[[Any, int], Array]
    gamma: float
    steps: int

    def draw(self, policy: Policy, n_episodes: int, seed: int, steps: int = 0) -> Log:
        random = np.random.default_rng(seed)
        taken = list[Any]()
        alive = np.arange(n_episodes)
        state = self.first(random, n_episodes)
        for _ in range(steps or self.steps):
            p = policy(state)
            action = (random.uniform(size=(len(p), 1)) > np.cumsum(p, axis=1)[:, :-1]).sum(axis=1)
            reached, reward, done = self.step(state, action, random)
            taken.append((alive, state, action, reward, reached, done))
            alive = alive[~done]
            state = reached[~done]
            if not len(alive):
                break
        return joined(taken, alive, state)

    def truth(self, policy: Policy) -> Truth:
        log = self.draw(policy, MC_EPISODES, 56_000, MC_STEPS)
        age = np.arange(len(log.episode)) - np.flatnonzero(log.first)[log.episode]
        returns = np.bincount(log.episode, log.reward * self.gamma**age)
        return Truth(float(returns.mean()), float(returns.std()), float(returns.std() / np.sqrt(MC_EPISODES)))


def pole(x: Array, action: Array, _: Any = None) -> tuple[Array, Array, Array]:
    """Move the cart of CartPole-v1, after Barto, Sutton and Anderson (1983); a reward of 1 for each step."""
    place, speed, angle, spin = x.T
    push = 20.0 * action - 10.0
    common = (push + 0.05 * spin**2 * np.sin(angle)) / 1.1
    turn = (9.8 * np.sin(angle) - np.cos(angle) * common) / (0.5 * (4.0 / 3.0 - 0.1 * np.cos(angle) ** 2 / 1.1))
    drive = common - 0.05 * turn * np.cos(angle) / 1.1
    after = np.column_stack([place + 0.02 * speed, speed + 0.02 * drive, angle + 0.02 * spin, spin + 0.02 * turn])
    return after, np.ones(len(x)), (np.abs(after[:, 0]) > 2.4) | (np.abs(after[:, 2]) > np.pi / 15.0)


def valley(x: Array, action: Array, _: Any = None) -> tuple[Array, Array, Array]:
    """Move the car of MountainCar-v0, after Moore (1990); a reward of -1 for each step."""
    speed = np.clip(x[:, 1] + 0.001 * (action - 1) - 0.0025 * np.cos(3.0 * x[:, 0]), -0.07, 0.07)
    place = np.clip(x[:, 0] + speed, -1.2, 0.6)
    speed = np.where((place <= -1.2) & (speed < 0.0), 0.0, speed)
    return np.column_stack([place, speed]), np.full(len(x), -1.0), place >= 0.5


def drift(x: Array, action: Array, random: Any) -> tuple[Array, Array, Array]:
    """Move a linear system with noise, which a push in either direction keeps near 0 at a cost."""
    place = 0.95 * x[:, 0] + 0.3 * x[:, 1] + 0.1 * random.normal(size=len(x))
    speed = 0.8 * x[:, 1] + 0.3 * (action - 1) + 0.2 * random.normal(size=len(x))
    after = np.column_stack([place, speed])
    reward = -(place**2) - 0.1 * speed**2 - 0.1 * (action != 1)
    return after, reward, random.uniform(size=len(x)) < 0.02


def beyond(limit: float, at_random: float) -> Callable[[Array], Array]:
    """Return a policy that pushes back beyond a limit."""
    return lambda x: mixed(
        np.eye(3)[np.where(x.sum(axis=1) > limit, 0, np.where(x.sum(axis=1) < -limit, 2, 1))], 1.0 - at_random
    )


def leaning(gain: float, at_random: float) -> Callable[[Array], Array]:
    """Return a policy that pushes to where the pole falls, the surer the larger the gain."""

    def policy(x: Array) -> Array:
        p = 1.0 / (1.0 + np.exp(-gain * (x @ [0.2, 0.5, 8.0, 1.5])))
        return mixed(np.column_stack([1.0 - p, p]), 1.0 - at_random)

    return policy


def with_the_speed(at_random: float) -> Callable[[Array], Array]:
    """Return a policy that pushes as the car moves."""
    return lambda x: mixed(np.eye(3)[np.where(x[:, 1] >= 0.0, 2, 0)], 1.0 - at_random)


def radial(scale: tuple[float, ...], centre: tuple[float, ...], points: int, columns: list[int]) -> Any:
    """Return features of a grid of bumps over the scaled columns."""
    grid = np.stack(np.meshgrid(*[np.linspace(-1, 1, points)] * len(columns)), axis=-1).reshape(-1, len(columns))
    width = 2.0 / (points - 1)

    def phi(x: Array) -> Array:
        u = (x[:, columns] - np.array(centre)[columns]) / np.array(scale)[columns]
        return np.asarray(np.exp(-0.5 * ((u[:, np.newaxis] - grid) ** 2).sum(axis=2) / width**2))

    return phi


def cart_pole() -> Problem:
    scale = (1.5, 1.5, 0.15, 1.5)
    one = Motion(pole, lambda random, n: random.uniform(-0.05, 0.05, size=(n, 4)), 0.97, 200)
    features = {"fine": radial(scale, (0,) * 4, 4, [2, 3]), "coarse": lambda x: np.abs(x[:, [0, 2]])}
    logs = {"gentle": leaning(0.5, 0.3)}
    targets = {"surer": leaning(1.0, 0.15), "at random": leaning(0.2, 0.6)}
    return Problem(one.gamma, one.draw, one.truth, lambda x: x, features, logs, targets, (50, 200))


def mountain_car() -> Problem:
    def first(random: Any, n: int) -> Array:
        return np.column_stack([random.uniform(-0.6, -0.4, size=n), np.zeros(n)])

    one = Motion(valley, first, 0.99, 200)
    scale = (0.9, 0.07)
    centre = (-0.3, 0.0)
    features = {"fine": radial(scale, centre, 7, [0, 1]), "coarse": lambda x: x / np.array(scale)}
    logs = {"mostly right": with_the_speed(0.4)}
    targets = {"surer": with_the_speed(0.2), "less sure": with_the_speed(0.6)}
    return Problem(one.gamma, one.draw, one.truth, lambda x: x, features, logs, targets, (50, 200))


def linear_system() -> Problem:
    def first(random: Any, n: int) -> Array:
        return np.column_stack([random.normal(size=n), np.zeros(n)])

    one = Motion(drift, first, 0.95, 100)
    features = {"fine": radial((3.0, 2.0), (0.0, 0.0), 6, [0, 1]), "coarse": np.abs}
    targets = {"narrow": beyond(0.3, 0.2), "wide": beyond(1.5, 0.4)}
    return Problem(
        one.gamma, one.draw, one.truth, lambda x: x, features, {"half": beyond(0.7, 0.6)}, targets, (50, 250)
    )


PROBLEMS: dict[str, Callable[[], Problem]] = {
    "hospital": hospital,
    "lake": lambda: toy("FrozenLake-v1", 0.99, 200, lambda c: one_hot(c[:, 0])),
    "cliff": lambda: toy("CliffWalking-v1", 0.95, 500, lambda c: one_hot(c[:, 1] // 4)),
    "taxi": lambda: toy("Taxi-v4", 0.97, 500, lambda c: one_hot(c[:, 2])),
    **{f"random process {seed}": (lambda seed=seed: random_process(seed)) for seed in (1, 2, 3)},  # type: ignore[misc]
    "random process 4": lambda: random_process(14, 12, 6),
    "random process 5": lambda: random_process(15, 60, 3),
    "queue": queue,
    "wind": wind,
    "drift": linear_system,
    "inventory": inventory,
    "long": long_horizon,
    "cart and pole": cart_pole,
    "car in a valley": mountain_car,
}


@cache
def problem(name: str) -> Problem:
    return PROBLEMS[name]()
