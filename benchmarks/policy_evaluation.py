"""Estimate the value of a policy from logged actions of another, on the hospital model of `icu-sepsis`.

    python benchmarks/policy_evaluation.py [--repeats 200] [--sizes 100 300 …] [--only NAME …] [--results FILE]
    python benchmarks/policy_evaluation.py --docs

Estimates and intervals of each repeat go to a file of results, from which `--docs` writes the tables of the page. Seeds
from 8000 judge; `--develop` takes those from 5000, on which the rule of `chosen` was found. `hospital.task` says which
policies and features.
"""

from __future__ import annotations

import argparse
import datetime
import json
import time
import warnings
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from threadpoolctl import threadpool_limits

from hospital import GAMMA, N_ACTIONS, N_STATES, Log, Task, task
from lstd import LSTD
from lstd.ope import LSTDQ, PolicyValue, StateActionFeatures, importance_sampling, policy_value
from provenance import describe_machine, source_digest

Array = NDArray[np.float64]
Estimate = tuple[float, float, float]  # value and interval; NaN for none

SIZES = (100, 300, 1000, 3000)
FEATURES, LMBDAS, ALPHA = ("fine", "coarse"), (0.0, 0.3, 0.9), 1.0
N_BLOCKS = 20  # of LSTDQ: intervals solve 500 equations for each
SEED, DEVELOPMENT = 8000, 5000
NONE = float("nan")


class Data:
    """Episodes of a log as arguments, for each kind of features."""

    def __init__(self, one: Task, log: Log) -> None:
        self.task, self.log = one, log
        self.policy, self.behavior = one.target[log.state], one.behavior[log.state, log.action]
        self.ratio = self.policy[np.arange(len(log.state)), log.action] / self.behavior
        self.common = {"y": log.reward, "episode": log.episode, "terminated": log.terminated}
        self.actions = {
            "actions": log.action, "target_policy": self.policy, "behavior_probability": self.behavior
        }  # fmt: skip

        self.state_values = cache(partial(state_values, data=self))  # several methods share models
        self.fitted = cache(partial(fitted, data=self))

    def rows(self, features: str) -> Array:
        return np.asarray(getattr(self.task, features)[self.log.state])


def fitted(lmbda: float, trace: str, data: Data) -> LSTDQ:
    model = LSTDQ(GAMMA, lmbda, trace, ALPHA, features=StateActionFeatures(N_ACTIONS), n_blocks=N_BLOCKS)
    return model.fit(sparse.csr_array(data.rows("coarse")), **data.common, **data.actions)


def state_values(features: str, lmbda: float, alpha: float, data: Data) -> PolicyValue:
    """LSTD(λ) of state values, with importance ratios."""
    X = data.rows(features)
    model = LSTD(GAMMA, lmbda, alpha).fit(X, **data.common, importance_ratio=data.ratio)
    return policy_value(model, X[data.log.first])


def chosen(data: Data) -> PolicyValue:
    """Apply the rule of the page, which never sees the truth.

    Of LSTD(λ) with ratios, for each kind of features and λ, take the smallest standard error among those whose values
    are within one standard error of the reference: the finest features, λ = 0.
    """
    reference = data.state_values("fine", 0.0, ALPHA)
    found = [data.state_values(features, lmbda, ALPHA) for features in FEATURES for lmbda in LMBDAS]
    near = [one for one in found if abs(one.value - reference.value) <= reference.standard_error]
    return min(near, key=lambda one: one.standard_error)


def action_values(lmbda: float, trace: str, data: Data) -> PolicyValue:
    """LSTD(λ) of action values."""
    return policy_value(data.fitted(lmbda, trace))


def sampling(estimator: str, data: Data) -> PolicyValue:
    """The family of importance sampling; "dr" and "wdr" with the action values of LSTDQ(0)."""
    q = data.fitted(0.0, "none") if estimator.endswith("dr") else None
    X = sparse.csr_array(data.rows("coarse"))
    return importance_sampling(X, **data.common, **data.actions, gamma=GAMMA, estimator=estimator, q=q)


def of(found: PolicyValue | float) -> Estimate:
    return (found, NONE, NONE) if isinstance(found, float) else (found.value, found.lower, found.upper)


def tabular_model(data: Data) -> float:
    """Value in the model of the observed frequencies: of pairs; for pairs not seen, of states; else the mean."""
    log, T = data.log, len(data.log.state)
    inner = np.where(log.terminated, 0, log.next_state)
    moves = sparse.csr_array((GAMMA * ~log.terminated, (np.arange(T), inner)), shape=(T, N_STATES))
    pair = log.state * N_ACTIONS + log.action
    by_pair, by_state = averages(pair, N_STATES * N_ACTIONS), averages(log.state, N_STATES)
    seen, visited = (
        np.bincount(pair, minlength=N_STATES * N_ACTIONS) > 0,
        np.bincount(log.state, minlength=N_STATES) > 0,
    )
    mean = float(np.bincount(log.episode, log.reward).mean())
    v = np.full(N_STATES, mean)
    for _ in range(300):
        targets = log.reward + moves @ v
        of_states = np.where(visited, by_state @ targets, mean)
        q = np.where(seen, by_pair @ targets, np.repeat(of_states, N_ACTIONS)).reshape(N_STATES, N_ACTIONS)
        v = np.einsum("sa,sa->s", data.task.target, q)
    return float(v[log.state[log.first]].mean())


def averages(group: Any, n: int) -> Any:
    """Return the matrix that averages rows by group."""
    count = np.maximum(np.bincount(group, minlength=n), 1)
    return sparse.csr_array((1.0 / count[group], (group, np.arange(len(group)))), shape=(n, len(group)))


def fitted_q(data: Data, iterations: int = 20) -> float:
    """Fitted Q evaluation with scikit-learn's gradient boosting on the measurements and the two levels of a dose."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    log, model = data.log, data.task.model
    state = np.column_stack([model.measurements, model.sofa])
    levels = np.column_stack(np.divmod(np.arange(N_ACTIONS), 5)).astype(float)
    X = np.hstack([state[log.state], levels[log.action]])
    pairs = np.hstack([np.repeat(state, N_ACTIONS, axis=0), np.tile(levels, (N_STATES, 1))])
    v, inner = np.zeros(N_STATES), np.where(log.terminated, 0, log.next_state)
    for _ in range(iterations):
        target = log.reward + GAMMA * np.where(log.terminated, 0.0, v[inner])
        booster = HistGradientBoostingRegressor(max_iter=50, max_leaf_nodes=15, random_state=0).fit(X, target)
        q = booster.predict(pairs).reshape(N_STATES, N_ACTIONS)
        v = np.einsum("sa,sa->s", data.task.target, q)
    return float(v[log.state[log.first]].mean())


def of_states(features: str, lmbda: float, alpha: float, data: Data) -> PolicyValue:
    return data.state_values(features, lmbda, alpha)


Method = Callable[[Data], Any]
METHODS: dict[str, Method] = {
    "lstd: chosen by the rule": chosen,
    **{
        f"LSTD({lmbda:g}), ratios, {features} features, α = {alpha:g}": partial(of_states, features, lmbda, alpha)
        for features, lmbda, alpha in (
            *((features, lmbda, ALPHA) for features in FEATURES for lmbda in LMBDAS),
            ("fine", 0.0, 0.01), ("fine", 0.0, 10.0),
        )
    },
    "LSTDQ(0), coarse features": partial(action_values, 0.0, "none"),
    "LSTDQ(1), Retrace, coarse features": partial(action_values, 1.0, "retrace"),
    "LSTDQ(1), tree backup, coarse features": partial(action_values, 1.0, "tree_backup"),
    **{name.upper(): partial(sampling, name) for name in ("is", "pdis", "wis", "wpdis", "dr", "wdr")},
    "tabular model": tabular_model,
    "fitted Q, gradient boosting": fitted_q,
}  # fmt: skip
SLOW = {"LSTDQ": 60, "DR": 60, "WDR": 60, "fitted Q": 20}  # repeats of slow methods


def measure(size: int, repeats: int, names: list[str], first_seed: int) -> dict[str, list[Estimate]]:
    """Return the estimates of each method, and print what they amount to."""
    one, seconds = task(), dict.fromkeys(names, 0.0)
    table: dict[str, list[Estimate]] = {name: [] for name in names}
    for repeat in range(repeats):
        if repeat >= max(repeats_of(name, repeats) for name in names):
            break
        data = Data(one, one.model.episodes(one.behavior, size, first_seed + repeat))
        for name in names:
            if repeat < repeats_of(name, repeats):
                begun = time.process_time()
                table[name].append(of(METHODS[name](data)))
                seconds[name] += time.process_time() - begun
        data.state_values.cache_clear()
        data.fitted.cache_clear()
    print(f"{size} episodes", flush=True)
    for name in names:
        error, bias, cover = summary(table[name], one.truth)
        print(f"  {name:46} {1e3 * error:8.1f} {1e3 * bias:8.1f} {cover:6.2f} {seconds[name]:8.1f} s", flush=True)
    return table


def repeats_of(name: str, repeats: int) -> int:
    return min([repeats, *(few for start, few in SLOW.items() if name.startswith(start))])


def summary(estimates: list[Estimate], truth: float) -> tuple[float, float, float]:
    """Return the root mean squared error, the bias, and the share of intervals that hold the truth."""
    value, lower, upper = np.array(estimates, dtype=float).T
    held = (lower <= truth) & (truth <= upper)
    cover = float(held.mean()) if np.isfinite(lower).all() else NONE
    return float(np.sqrt(np.mean((value - truth) ** 2))), float(np.mean(value) - truth), cover


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--only", nargs="+", help="methods whose names contain one of these words")
    parser.add_argument("--develop", action="store_true", help="seeds on which the rule was found")
    parser.add_argument("--results", type=Path, metavar="FILE")
    a = parser.parse_args()
    names = [name for name in METHODS if not a.only or any(word in name for word in a.only)]
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")
        for size in a.sizes:
            found = measure(size, a.repeats, names, DEVELOPMENT if a.develop else SEED)
            if a.results:
                store(a.results, size, found)


def store(path: Path, size: int, found: dict[str, list[Estimate]]) -> None:
    """Add estimates to a file of results."""
    results = json.loads(path.read_text()) if path.exists() else {"estimates": {}}
    results |= {"date": str(datetime.date.today()), "source": source_digest(), "machine": describe_machine()}
    results |= {"truth": task().truth, "bound": task().bound, "seed": SEED}
    rounded = {name: [[round(x, 6) if x == x else None for x in one] for one in of] for name, of in found.items()}
    results["estimates"].setdefault(str(size), {}).update(rounded)
    path.write_text(json.dumps(results, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
