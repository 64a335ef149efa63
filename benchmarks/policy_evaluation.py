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
from pages import write_between
from provenance import describe_machine, source_digest

Array = NDArray[np.float64]
Estimate = tuple[float, float, float]  # value and interval; NaN for none

SIZES = (100, 300, 1000, 3000)
FEATURES, LMBDAS, ALPHA = ("fine", "coarse"), (0.0, 0.3, 0.9), 1.0
N_BLOCKS = 20  # of LSTDQ: intervals solve 500 equations for each
SEED, DEVELOPMENT = 8000, 5000
NONE = float("nan")
RULE = "lstd: chosen by the rule"
HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "docs" / "results" / "policy-evaluation.md"


class Data:
    """Episodes of a log as arguments, for each kind of features."""

    def __init__(self, one: Task, log: Log) -> None:
        self.task, self.log = one, log
        self.policy, self.behavior = one.target[log.state], one.behavior[log.state, log.action]
        self.ratio = self.policy[np.arange(len(log.state)), log.action] / self.behavior
        self.common: dict[str, Any] = {"y": log.reward, "episode": log.episode, "terminated": log.terminated}
        self.actions: dict[str, Any] = {
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
    RULE: chosen,
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


def measure(one: Task, size: int, repeats: int, names: list[str], first_seed: int) -> dict[str, list[Estimate]]:
    """Return the estimates of each method, and print what they amount to."""
    seconds = dict.fromkeys(names, 0.0)
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
    parser.add_argument("--far", action="store_true", help="a target policy far from the one that logged")
    parser.add_argument("--results", type=Path, metavar="FILE", help="add the estimates to this file")
    parser.add_argument("--docs", action="store_true", help="write the tables of the page from the newest results")
    a = parser.parse_args()
    if a.docs:
        newest = max((HERE / "results").glob("policies-*.json"))
        write_between(PAGE, "benchmarks/policy_evaluation.py", "\n".join(tables(json.loads(newest.read_text()))))
        return
    names = [name for name in METHODS if not a.only or any(word in name for word in a.only)]
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")
        for size in a.sizes:
            found = measure(task(a.far), size, a.repeats, names, DEVELOPMENT if a.develop else SEED)
            if a.results:
                store(a.results, size, found, a.far)


def store(path: Path, size: int, found: dict[str, list[Estimate]], far: bool) -> None:
    """Add estimates to a file of results."""
    results = json.loads(path.read_text()) if path.exists() else {}
    results |= {"date": str(datetime.date.today()), "source": source_digest(), "machine": describe_machine()}
    values = {"truth": task(far).truth, "bound": task(far).bound}
    results |= {"far": results.get("far", {}) | values} if far else values | {"seed": SEED}
    rounded = {name: [[round(x, 4) if x == x else None for x in one] for one in of] for name, of in found.items()}
    place = results["far"] if far else results
    place.setdefault("estimates", {}).setdefault(str(size), {}).update(rounded)
    path.write_text(json.dumps(results, ensure_ascii=False) + "\n")


def tables(results: dict[str, Any]) -> list[str]:
    """Return the errors, the intervals and the goals as Markdown."""
    sizes, truth = sorted(results["estimates"], key=int), results["truth"]
    found = {
        (name, size): summary(of, truth) for size in sizes for name, of in results["estimates"][size].items() if of
    }
    names = [name for name in METHODS if any((name, size) in found for size in sizes)]
    bound = {size: results["bound"] / np.sqrt(int(size)) for size in sizes}
    machine = results["machine"]
    repeats = max(len(of) for of in results["estimates"][sizes[0]].values())
    fewer = ", ".join(f"{few} of {name}" for name, few in SLOW.items())
    head = [f"| episodes | {' | '.join(sizes)} |", "|---|" + "---|" * len(sizes)]
    lines = [
        f"Printed by `python benchmarks/policy_evaluation.py` on {results['date']}, {machine['cores']} cores, Python "
        f"{machine['python']}; source {results['source']}; seeds from {results['seed']}, {repeats} repeats ({fewer}).",
        "", "Root mean squared error × 1000, with the bias × 1000 in brackets:", "", *head,
        f"| on policy | {' | '.join(f'{1e3 * bound[size]:.1f}' for size in sizes)} |",
    ]  # fmt: skip
    for name in names:
        cells = [found.get((name, size)) for size in sizes]
        lines.append(f"| {name} | {' | '.join(f'{1e3 * c[0]:.1f} ({1e3 * c[1]:+.1f})' if c else '—' for c in cells)} |")
    lines += ["", "Share of 95 % intervals that hold the truth:", "", *head]
    for name in names:
        cells = [found.get((name, size)) for size in sizes]
        if any(c and np.isfinite(c[2]) for c in cells):
            lines.append(f"| {name} | {' | '.join(f'{c[2]:.2f}' if c else '—' for c in cells)} |")
    return [*lines, "", *goals(found, sizes, bound), *far_away(results)]


def far_away(results: dict[str, Any]) -> list[str]:
    """Return a table of the target far from the doctors."""
    if "far" not in results:
        return []
    far = results["far"]
    lines = ["", "The target far from the doctors; errors as multiples of that on policy:", ""]
    lines += ["| episodes | method | error | intervals that hold the truth | repeats |", "|---|---|---|---|---|"]
    for size, table in far["estimates"].items():
        for name, of in table.items():
            error, _, cover = summary(of, far["truth"])
            times = error / far["bound"] * np.sqrt(int(size))
            lines.append(
                f"| {size} | {name} | {times:.1f} | {'—' if np.isnan(cover) else f'{cover:.2f}'} | {len(of)} |"
            )
    return lines


def goals(found: dict[tuple[str, str], Any], sizes: list[str], bound: dict[str, float]) -> list[str]:
    """Return whether the goals of the rule are met."""
    rule = {size: found[RULE, size] for size in sizes}
    others = [name for name in METHODS if not name.startswith(("lstd", "LSTD"))]
    ratio = max(rule[size][0] / bound[size] for size in sizes if int(size) >= 300)
    ahead = {size: min(found[name, size][0] for name in others if (name, size) in found) for size in sizes}
    lead = min(ahead[size] / rule[size][0] for size in sizes)
    cover = min(one[2] for one in rule.values())
    return [
        "| goal of the rule | measured | |", "|---|---|---|",
        f"| error from 300 episodes on ≤ 1.25 × on policy | {ratio:.2f} | {'met' if ratio <= 1.25 else 'missed'} |",
        f"| error of the best baseline above that of the rule at every size | {lead:.2f} × "
        f"| {'met' if lead > 1.0 else 'missed'} |",
        f"| intervals hold the truth ≥ 90 % | {cover:.2f} | {'met' if cover >= 0.9 else 'missed'} |",
    ]  # fmt: skip


if __name__ == "__main__":
    main()
