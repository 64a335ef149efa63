"""Judge values of policies on environments and estimators that others designed, losses included.

    python benchmarks/outside_judges.py [--repeats 10] [--problems NAME …] [--develop] [--stored FILE]
    python benchmarks/outside_judges.py --docs

Environments, each from its published description: the graph, the graph whose states are observed in groups, the grid
and the chain of COBS (Voloshin et al. 2021), with unit vectors as features; patients with a hidden disease, after
EpiCare (Hargrave et al. 2024); Gymnasium's Blackjack; and the patients of ICU-Sepsis (Choudhary et al. 2024). Episodes
that reach their limit of steps are cut off, but those of patients and of the graph end.

Estimators, each from its formula: weighted importance sampling and its per-decision form; fitted Q evaluation, as a
table where states are few (as in COBS) and with boosted trees; per-decision doubly robust with these (as in SCOPE-RL);
weighted doubly robust and MAGIC (Thomas and Brunskill 2016). Errors are root mean squares in units of the standard
error of as many episodes of the target policy; below half a unit they count as half in means. Seeds from 80 000 judge;
`--develop` takes those from 60 000, which may serve to make a rule. `--stored` takes truths and methods from elsewhere
from a file of results of the same seeds, and computes the first choice alone anew.
"""

from __future__ import annotations

import argparse
import datetime
import json
import time
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from hospital import Log
from lstd.ope import evaluate_policy, importance_sampling
from pages import RESULTS, newest, show, write_whole
from policy_baselines import boosted_q, magic, tabular
from policy_evaluation import Case, estimate
from policy_problems import Problem, Table, Truth, hospital, joined, mixed, of_table, one_hot
from provenance import describe_machine, printed_by, revision

Array = NDArray[Any]
SEED = 80_000
DEVELOPMENT = 60_000
PAGE = Path(__file__).resolve().parents[1] / "docs" / "results" / "policy-evaluation.md"
SOURCE = "benchmarks/outside_judges.py"
CHOICE = "first choice"
OURS = (
    CHOICE,
    "state values",
    "weighted state values",
    "doubly robust",
    "table of pairs",
    "least-variance mean",
    "per-decision doubly robust",
)


# ---------------------------------------------------------------- COBS


def graph(length: int = 16) -> Table:
    """Return two lanes of states; an action reaches its lane with a probability of 0.75, and the lane pays 1 or −1."""
    n = 2 * length
    last = n - 1
    P = np.zeros((n, 2, n))
    for s in range(n - 3):
        lanes = (s + 1 + (s % 2), s + 2 + (s % 2))
        for action in (0, 1):
            P[s, action, lanes[action]] += 0.75
            P[s, action, lanes[1 - action]] += 0.25
    P[n - 3 :, :, last] = 1.0
    reward = np.zeros((n, 2, n))
    reward[:] = np.where(np.arange(n) % 2 == 1, 1.0, -1.0)
    reward[:, :, last] = 0.0
    reward[n - 3, :, last] = 1.0
    reward[n - 2, :, last] = -1.0
    return Table(P, reward, np.arange(n) == last, np.eye(n)[0], 0.98, length + 1, 1.0)


def constant(first: float, n: int) -> Array:
    """Return a policy that takes the first of two actions with the same probability in all states."""
    return np.full((n, 2), [first, 1.0 - first])


def seen_in_groups(table: Table, n_groups: int) -> Problem:
    """Return the graph where only groups of states are recorded."""
    n = len(table.P)
    group = np.minimum(np.maximum(np.arange(n) - 1, 0) * (n_groups - 1) // (n - 2), n_groups - 1)

    def draw(policy: Array, n_episodes: int, seed: int) -> Log:
        log = table.draw(policy, n_episodes, seed)
        return log._replace(state=group[log.state], next_state=group[log.next_state])

    logs = {"0.6": constant(0.6, n)}
    targets = {"0.8": constant(0.8, n)}
    codes = np.arange(n)[:, np.newaxis] * 1.0
    unit = np.eye(n)[:, :n_groups]
    return Problem(table.gamma, draw, table.truth, codes, {"fine": unit, "coarse": unit}, logs, targets)


def observed_graph(far: bool) -> Problem:
    """Return the graph where states are recorded, with a log far from the target policy, or near it."""
    table = graph()
    n = len(table.P)
    first = 0.2 if far else 0.6
    logs = {f"{first:g}": constant(first, n)}
    codes = np.arange(n)[:, np.newaxis]
    return of_table(table, codes, np.eye(n), np.eye(n), logs, {"0.8": constant(0.8, n)})


def grid(at_random: float) -> Problem:
    """Return a grid of 8 by 8 fields with holes and a goal, entered from its upper and left edges."""
    paid = np.full((8, 8), -0.01)
    paid[[1, 2, 3, 3, 4, 5, 7], [2, 6, 1, 7, 6, 4, 5]] = -0.005
    paid[[1, 2, 3, 4, 5, 5, 5, 6, 6, 6, 7], [4, 3, 5, 3, 1, 2, 6, 1, 4, 6, 3]] = -0.5
    paid[7, 7] = 1.0
    P = np.zeros((64, 4, 64))
    for row, column, action in np.ndindex(8, 8, 4):
        down, right = ((0, -1), (0, 1), (-1, 0), (1, 0))[action]
        to = row + down, column + right
        if min(to) < 0 or max(to) > 7:  # at an edge
            to = row, column
        P[row * 8 + column, action, to[0] * 8 + to[1]] = 1.0
    start = np.zeros(64)
    start[[*range(8), *range(8, 64, 8)]] = 1.0 / 15.0
    table = Table(P, paid.reshape(1, 1, 64), np.arange(64) == 63, start, 0.96, 25)
    best = table.best()
    logs = {f"{at_random:g}": mixed(best, 1.0 - at_random)}
    targets = {"0.1": mixed(best, 0.9)}
    fields = np.arange(64)
    where = np.column_stack([fields // 8, fields % 8])
    return of_table(table, where, np.eye(64), np.eye(64), logs, targets)


def chain(logged: float, target: float, steps: int = 250) -> Problem:
    """Return 22 states in a row, of which the last one ends; each step costs 1."""
    n = 22
    P = np.zeros((n, 2, n))
    for s in range(n):
        P[s, 0, max(s - 1, 0)] = 1.0
        P[s, 1, min(s + 1, n - 1)] = 1.0
    table = Table(P, np.full((1, 1, 1), -1.0), np.arange(n) == n - 1, np.eye(n)[10], 0.97, steps)
    logs = {f"{logged:g}": constant(1.0 - logged, n)}
    targets = {f"{target:g}": constant(1.0 - target, n)}
    return of_table(table, np.arange(n)[:, np.newaxis], np.eye(n), np.eye(n), logs, targets)


# ---------------------------------------------------------------- a hidden disease


class Clinic(NamedTuple):
    """Diseases with symptoms, treatments that cure some of them, and patients of at most 8 visits."""

    moves: Array  # (D, D) from disease to disease
    means: Array  # (D, 8) of symptoms
    roots: Array  # (D, 8, 8) of their covariances
    cures: Array  # (D, A) chance of remission
    cost: Array  # (A,)
    effects: Array  # (A, 8) on symptoms
    start: Array  # (D,)
    visits: int = 8
    gamma: float = 1.0

    @classmethod
    def of(cls, seed: int, n: int = 16, symptoms: int = 8) -> Clinic:
        """Return a clinic of n diseases and treatments, drawn by a seed."""
        random = np.random.default_rng([81_000, seed])
        linked = (random.uniform(size=(n, n)) < 1.0 / n) & ~np.eye(n, dtype=bool)
        moves = np.where(linked | linked.T, random.uniform(0.01, 0.2, size=(n, n)), 0.0)
        moves += np.diag(1.0 - moves.sum(axis=1))
        axes = np.linalg.qr(random.normal(size=(n, symptoms, symptoms)))[0]
        roots = axes * random.uniform(0.5, 1.0, size=(n, 1, symptoms))
        cures = np.zeros((n, n))
        for treatment in range(n):
            cures[random.integers(n), treatment] = random.uniform(0.8, 1.0)
        for disease in np.flatnonzero(~cures.any(axis=1)):
            cures[disease, random.integers(n)] = random.uniform(0.8, 1.0)
        start = np.linalg.matrix_power(moves, 4096).mean(axis=0)
        cost = random.uniform(1.0, 4.0, size=n)
        effects = random.uniform(-1.0, 0.5, size=(n, symptoms))
        means = random.uniform(size=(n, symptoms))
        return cls(moves, means, roots, cures, cost, effects, start / start.sum())

    @property
    def trial(self) -> Array:
        """Probabilities of treatments by how often they cure; from the least to the likeliest, times eight."""
        cured = self.start @ self.cures * 64.0 - self.cost
        score = (cured - cured.max()) / (cured.max() - cured.min()) * np.log(8.0)
        return np.asarray(np.exp(score) / np.exp(score).sum())

    def symptoms(self, disease: Array, shift: Array | float, random: Any) -> Array:
        """Draw what is seen of patients with these diseases, in (0, 1)."""
        noise = np.einsum("nij,nj->ni", self.roots[disease], random.normal(size=(len(disease), self.means.shape[1])))
        return np.asarray((np.tanh(self.means[disease] + noise + shift) + 1.0) / 2.0)

    def draw(self, policy: Callable[[Array], Array], n_episodes: int, seed: int) -> Log:
        """Draw patients and their visits; the log has no diseases."""
        random = np.random.default_rng(seed)
        steps: list[Any] = []
        alive = np.arange(n_episodes)
        disease = random.choice(len(self.start), n_episodes, p=self.start)
        seen = self.symptoms(disease, 0.0, random)
        for visit in range(self.visits):
            p = policy(seen)
            action = (random.uniform(size=(len(p), 1)) > np.cumsum(p, axis=1)[:, :-1]).sum(axis=1)
            cured = random.uniform(size=len(action)) < self.cures[disease, action]
            passed = random.uniform(size=(len(disease), 1)) > np.cumsum(self.moves[disease], axis=1)[:, :-1]
            disease = passed.sum(axis=1)
            after = self.symptoms(disease, self.effects[action], random)
            reward = -self.cost[action] + np.where(cured, 64.0, -4.0 * after.mean(axis=1))
            done = cured | (visit == self.visits - 1)
            steps.append((alive, seen, action, reward, after, done))
            alive = alive[~done]
            seen = after[~done]
            disease = disease[~done]
        return joined(steps, alive, seen)


def clinic(seed: int) -> Problem:
    """Return a clinic; the target policy prefers the treatments of the log, more clearly."""
    one = Clinic.of(seed)

    def sharper(power: float) -> Callable[[Array], Array]:
        p = one.trial**power / (one.trial**power).sum()
        return lambda x: np.tile(p, (len(x), 1))

    def features(x: Array) -> Array:
        return np.column_stack([np.ones(len(x)), x, x**2])

    truth = partial(by_episodes, one.draw, one.gamma)
    both = {"fine": features, "coarse": features}
    logs = {"trial": sharper(1.0)}
    targets = {"sharper": sharper(2.0)}
    return Problem(one.gamma, one.draw, truth, lambda x: x, both, logs, targets)


def by_episodes(draw: Any, gamma: float, policy: Any, n: int = 200_000) -> Truth:
    """Return the mean return of many episodes of the policy itself."""
    log = draw(policy, n, 82_000)
    age = np.arange(len(log.episode)) - np.flatnonzero(log.first)[log.episode]
    returns = np.bincount(log.episode, log.reward * gamma**age)
    return Truth(float(returns.mean()), float(returns.std()), float(returns.std() / np.sqrt(n)))


# ---------------------------------------------------------------- Blackjack


def blackjack() -> Problem:
    """Return Gymnasium's Blackjack; the log sticks at random, the targets from 17 and from 20 on."""
    import gymnasium

    def draw(policy: Array, n_episodes: int, seed: int) -> Log:
        random = np.random.default_rng(seed)
        rows: list[Any] = []
        env = gymnasium.make("Blackjack-v1").unwrapped
        env.reset(seed=seed)
        for episode in range(n_episodes):
            total, shown, ace = env.reset()[0]
            done = False
            while not done:
                state = (total * 11 + shown) * 2 + ace
                action = int(random.uniform() < policy[state, 1])
                (total, shown, ace), reward, done, _, _ = env.step(action)
                rows.append((state, action, reward, min((total * 11 + shown) * 2 + ace, 703), episode, done))
        return Log(*(np.array(column) for column in zip(*rows, strict=True)))

    codes = np.arange(704)
    total = codes // 22
    shown = codes // 2 % 11
    ace = codes % 2
    hits = {limit: np.where(total < limit, 0.9, 0.1) for limit in (17, 20)}
    policies = {f"from {limit}": np.column_stack([1.0 - p, p]) for limit, p in hits.items()}
    columns = np.column_stack([total, shown, ace])
    unit = np.hstack([one_hot(total), one_hot(shown), ace[:, np.newaxis]])
    truth = partial(by_episodes, draw, 1.0, n=40_000)
    features = {"fine": unit, "coarse": unit}
    logs = {"half": np.full((704, 2), 0.5)}
    return Problem(1.0, draw, truth, columns * 1.0, features, logs, policies)


# ---------------------------------------------------------------- judging

# Name: the problem, and the number of episodes; those of one group count together.
PROBLEMS: dict[str, tuple[str, Callable[[], Problem], int]] = {
    "graph, near": ("COBS", lambda: observed_graph(False), 128),
    "graph, far": ("COBS", lambda: observed_graph(True), 128),
    "graph in 2 groups": ("COBS", lambda: seen_in_groups(graph(), 2), 128),
    "graph in 6 groups": ("COBS", lambda: seen_in_groups(graph(), 6), 128),
    "grid from 0.4": ("COBS", lambda: grid(0.4), 64),
    "grid from 0.8": ("COBS", lambda: grid(0.8), 64),
    "chain, 0.6 to 0.8": ("COBS", lambda: chain(0.6, 0.8), 64),
    "chain, 0.45 to 0.6": ("COBS", lambda: chain(0.45, 0.6), 64),
    "chain, 0.6 to 0.45": ("COBS", lambda: chain(0.6, 0.45), 64),
    "hidden disease 1": ("hidden disease", lambda: clinic(1), 300),
    "hidden disease 2": ("hidden disease", lambda: clinic(2), 300),
    "hidden disease 3": ("hidden disease", lambda: clinic(31), 300),
    "hidden disease 4": ("hidden disease", lambda: clinic(32), 300),
    "Blackjack": ("Blackjack", blackjack, 500),
    "ICU-Sepsis": ("ICU-Sepsis", hospital, 200),
}
FINE = (
    "graph, near",
    "graph, far",
    "grid from 0.4",
    "grid from 0.8",
    "chain, 0.6 to 0.8",
    "chain, 0.45 to 0.6",
    "chain, 0.6 to 0.45",
)


@cache
def problem(name: str) -> Problem:
    """Return the problem of a name, made once."""
    return PROBLEMS[name][1]()


def methods(name: str, case: Case) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield the names of the methods and what computes each."""
    X = case.features["coarse" if name == "ICU-Sepsis" else "fine"]
    given = {**case.rows, **case.policies, "gamma": case.gamma}
    yield CHOICE, lambda: evaluate_policy(X, state=case.columns, **given)
    for estimator in ("wis", "wpdis"):
        yield estimator.upper(), partial(importance_sampling, case.columns, **given, estimator=estimator)
    if case.log.state.ndim == 1:
        yield "fitted Q, table", lambda: tabular(case, int(case.log.state.max()) + 1)
    yield "fitted Q, boosting", lambda: case.start((case.target * case.q).sum(axis=1))
    for estimator in ("dr", "wdr"):
        yield (
            estimator.upper(),
            partial(importance_sampling, case.columns, **given, estimator=estimator, q=lambda X: case.q),
        )
    yield "MAGIC", lambda: magic(case, boosted_q(case))


def judge(name: str, repeats: int, seed: int, stored: dict[str, Any]) -> dict[str, Any]:
    """Return the truth, and the estimates of all methods in each repeat, by target; `stored` are cells that are known.

    Of these, the truth stays, and the methods from elsewhere if there are as many repeats of them.
    """
    one = problem(name)
    size = PROBLEMS[name][2]
    log_name = next(iter(one.logs))
    behavior = one.logs[log_name]
    found = {}
    for target_name, target in [*one.targets.items()][:2]:
        key = f"{name} | {log_name} | {target_name}"
        known = stored.get(key, {})
        truth = known.get("truth") or [float(x) for x in one.truth(target)]
        foreign = {
            method: estimates[:repeats]
            for method, estimates in known.get("methods", {}).items()
            if method not in (*OURS, "action values") and len(estimates) >= repeats
        }
        estimates: dict[str, list[Any]] = {}
        for repeat in range(repeats):
            case = Case.of(one, one.draw(behavior, size, seed + repeat), behavior, target)
            for method, call in methods(name, case):
                if method in foreign:
                    continue
                own, others = estimate(call)
                for each, numbers in {method: own, **others}.items():
                    estimates.setdefault(each, []).append(numbers)
        found[key] = {"size": size, "truth": truth, "methods": estimates | foreign}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--problems", nargs="+", default=[*PROBLEMS], choices=[*PROBLEMS], metavar="NAME")
    parser.add_argument("--develop", dest="seed", action="store_const", const=DEVELOPMENT, default=SEED)
    parser.add_argument("--results", type=Path, metavar="FILE")
    parser.add_argument("--stored", type=Path, metavar="FILE", help="results of the same seeds")
    parser.add_argument("--docs", action="store_true", help="write the table of the newest results into the page")
    chosen = parser.parse_args()
    if chosen.docs:
        show(text(newest("outside-judges")), SOURCE, PAGE)
        return
    results: dict[str, Any] = {"seed": chosen.seed, "cells": {}}
    stored: dict[str, Any] = {}
    if chosen.stored:
        known = json.loads(chosen.stored.read_text(encoding="utf-8"))
        if known["seed"] != chosen.seed:
            raise SystemExit(f"{chosen.stored} has seeds from {known['seed']}, not {chosen.seed}.")
        stored = known["cells"]
    with threadpool_limits(1):
        for name in chosen.problems:
            began = time.process_time()
            results["cells"] |= judge(name, chosen.repeats, chosen.seed, stored)
            print(f"{name}: {time.process_time() - began:.0f} s", flush=True)
    results |= {"revision": revision(), "date": str(datetime.date.today()), "machine": describe_machine()}
    path = chosen.results or RESULTS / f"outside-judges-{results['date']}.json"
    write_whole(path, json.dumps(results, ensure_ascii=False) + "\n")
    print(text(results))


# ---------------------------------------------------------------- tables


class Row(NamedTuple):
    """The estimates of all methods in one cell."""

    name: str
    group: str
    truth: float
    bound: float
    methods: dict[str, list[list[Any]]]

    def error(self, method: str) -> float:
        """Root mean squared error in units of the bound; NaN if the method is not there."""
        if method not in self.methods:
            return float("nan")
        values = np.array([one[0] for one in self.methods[method]], dtype=float)
        return float(np.sqrt(np.mean((values - self.truth) ** 2))) / self.bound

    def held(self, method: str = CHOICE) -> NDArray[np.bool_]:
        """Whether the interval of each log holds the truth; differences of rounding do not matter."""
        low, high = np.array([one[1:3] for one in self.methods[method]], dtype=float).T
        return np.asarray((low - 1e-9 <= self.truth) & (self.truth <= high + 1e-9))

    @property
    def warned(self) -> NDArray[np.bool_]:
        """Whether the first choice gave a warning for each log."""
        return np.array([bool(one[3]) for one in self.methods[CHOICE]])

    @property
    def foreign(self) -> tuple[float, str]:
        """The least error of a method from elsewhere."""
        return min((self.error(name), name) for name in self.methods if name not in (*OURS, "action values"))


def rows(results: dict[str, Any]) -> list[Row]:
    """Return the cells of results as rows of the table."""
    found = []
    for name, cell in results["cells"].items():
        value, deviation = cell["truth"][:2]
        group = PROBLEMS[name.split(" | ")[0]][0]
        found.append(Row(name, group, value, deviation / np.sqrt(cell["size"]), cell["methods"]))
    return found


def mean_of(errors: Any) -> float:
    """Return the geometric mean of errors, those below half a unit as half."""
    return float(np.exp(np.nanmean(np.log(np.maximum(list(errors), 0.5)))))


def text(results: dict[str, Any]) -> str:
    """Return the tables as Markdown."""
    every = rows(results)
    n = len(every[0].methods[CHOICE])
    lines = [
        f"{printed_by('python ' + SOURCE)} {n} logs of each row, seeds from {results['seed']}.",
        "",
        "| environment, target | first choice | held | or warned | weighted states | best from elsewhere | which |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in every:
        environment, _, target = row.name.split(" | ")
        held = row.held()
        safe = (held | row.warned).mean()
        best, which = row.foreign
        errors = f"{row.error('weighted state values'):.2f} | {best:.2f} | {which}"
        lines.append(
            f"| {environment}, {target} | {row.error(CHOICE):.2f} | {held.mean():.2f} | {safe:.2f} | {errors} |"
        )
    lines += [
        "",
        "| group | first choice | held | held or warned | warned where held | best from elsewhere | which | ratio |",
        "|---|---|---|---|---|---|---|---|",
    ]
    groups = {
        group: [row for row in every if row.group == group] for group in dict.fromkeys(row.group for row in every)
    }
    groups["COBS, unit vectors of states"] = [row for row in every if row.name.split(" | ")[0] in FINE]
    groups["all"] = every
    for group, own in groups.items():
        if own:
            lines.append(_of_group(group, own))
    return "\n".join(lines)


def _of_group(group: str, own: list[Row]) -> str:
    """Return the line of a group: geometric means of errors, and the best single method from elsewhere."""
    choice = mean_of(row.error(CHOICE) for row in own)
    held = np.concatenate([row.held() for row in own])
    warned = np.concatenate([row.warned for row in own])
    names = [name for name in own[0].methods if name not in (*OURS, "action values")]
    means = {name: mean_of(row.error(name) for row in own) for name in names if all(name in row.methods for row in own)}
    which = min(means, key=means.get)  # type: ignore[arg-type]
    silent = warned[held].mean() if held.any() else float("nan")
    return (
        f"| {group} | {choice:.2f} | {held.mean():.2f} | {(held | warned).mean():.2f} | {silent:.2f} | "
        f"{means[which]:.2f} | {which} | {choice / means[which]:.2f} |"
    )


if __name__ == "__main__":
    main()
