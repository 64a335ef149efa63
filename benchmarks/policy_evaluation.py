"""Estimate the value of a policy from logged actions of another, on the hospital model of `icu-sepsis`.

    python benchmarks/policy_evaluation.py [--repeats 200] [--sizes 100 300 …] [--only NAME …] [--results FILE]
    python benchmarks/policy_evaluation.py --docs

Estimates and intervals of each repeat go to a file of results, from which `--docs` writes the tables of the page. A run
that was stopped goes on where the file ends, if neither `lstd` nor this file has changed. Seeds from 8000 judge;
`--develop` takes those from 5000, on which the rule of `chosen` was found. `hospital.task` says which policies and
features.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
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
from pages import newest, write_between, write_whole
from provenance import describe_machine, revision, source_digest

Array = NDArray[np.float64]
Estimate = tuple[float, float, float]  # value and interval; NaN for none

SIZES = (100, 300, 1000, 3000)
FEATURES, LMBDAS, ALPHA = ("fine", "coarse"), (0.0, 0.3, 0.9), 1.0
N_BLOCKS = 20  # of LSTDQ: intervals keep a matrix of 500 columns, or up to 2300, for each
SEED, DEVELOPMENT = 8000, 5000
REPEATS_AT_ONCE = 10  # of a size, before they are stored
NONE = float("nan")
RULE = "lstd: chosen by the rule"
CODE = ("hospital.py", "policy_evaluation.py")
PAGE = Path(__file__).resolve().parent.parent / "docs" / "results" / "policy-evaluation.md"


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


class LoggedPairs:
    """φ(s, a) with a column for each logged pair of a group of states and an action.

    Pairs that were never logged have rows of zeros: with α > 0, their weights in columns of their own would be zero.
    """

    def __init__(self, group: Any, action: Any) -> None:
        logged = np.unique(group * N_ACTIONS + action)
        self.n, self.column = len(logged), np.full((group.max() + 1) * N_ACTIONS, -1)
        self.column[logged] = np.arange(self.n)

    def __call__(self, X: Any, actions: Any) -> Any:
        pair = X.indices * N_ACTIONS + actions
        column = np.where(pair < len(self.column), self.column[np.minimum(pair, len(self.column) - 1)], -1)
        row = np.flatnonzero(column >= 0)
        return sparse.csr_array((np.ones(len(row)), (row, column[row])), shape=(len(pair), self.n))


def fitted(features: str, lmbda: float, trace: str, data: Data) -> LSTDQ:
    X = sparse.csr_array(data.rows(features))
    pairs = StateActionFeatures(N_ACTIONS, LoggedPairs(X.indices, data.log.action))
    model = LSTDQ(GAMMA, lmbda, trace, ALPHA, features=pairs, n_blocks=N_BLOCKS)
    return model.fit(X, **data.common, **data.actions)


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


def action_values(features: str, lmbda: float, trace: str, data: Data) -> PolicyValue:
    """LSTD(λ) of action values."""
    return policy_value(data.fitted(features, lmbda, trace))


def sampling(estimator: str, data: Data) -> PolicyValue:
    """The family of importance sampling; "dr" and "wdr" with the action values of LSTDQ(1), Retrace."""
    X = sparse.csr_array(data.rows("coarse"))
    q = None
    if estimator.endswith("dr"):
        values = data.fitted("coarse", 1.0, "retrace").action_values(sparse.eye_array(X.shape[1], format="csr"))
        q = lambda states: values[states.indices]  # noqa: E731
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


def fitted_q(data: Data, iterations: int = 10) -> float:
    """Fitted Q evaluation with scikit-learn's gradient boosting on the measurements and the two levels of a dose.

    It begins with a fit of the logged returns, from which it converges in few iterations.
    """
    from sklearn.ensemble import HistGradientBoostingRegressor

    log, model, T = data.log, data.task.model, len(data.log.state)
    states, at = np.unique(log.state, return_inverse=True)  # what was never reached has no part in it
    measured = np.column_stack([model.measurements, model.sofa])[states]
    dose = np.column_stack(np.divmod(np.arange(N_ACTIONS), 5)).astype(float)
    pairs = np.hstack([np.repeat(measured, N_ACTIONS, axis=0), np.tile(dose, (len(states), 1))])
    inner = np.where(log.terminated, 0, np.append(at[1:], 0))
    moves = sparse.csr_array((GAMMA * ~log.terminated, (np.arange(T), inner)), shape=(T, len(states)))
    X = pairs[at * N_ACTIONS + log.action]
    booster = HistGradientBoostingRegressor(
        learning_rate=0.3, max_iter=12, max_leaf_nodes=15, max_bins=32, early_stopping=False, random_state=0
    )
    last = np.flatnonzero(log.terminated)[log.episode]
    target = log.reward[last] * GAMMA ** (last - np.arange(T))
    for _ in range(iterations + 1):
        q = booster.fit(X, target).predict(pairs)
        v = np.einsum("sa,sa->s", data.task.target[states], q.reshape(-1, N_ACTIONS))
        target = log.reward + moves @ v
    return float(v[at[log.first]].mean())


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
    "LSTDQ(0), coarse features": partial(action_values, "coarse", 0.0, "none"),
    "LSTDQ(1), Retrace, coarse features": partial(action_values, "coarse", 1.0, "retrace"),
    "LSTDQ(1), Retrace, fine features": partial(action_values, "fine", 1.0, "retrace"),
    "LSTDQ(1), tree backup, coarse features": partial(action_values, "coarse", 1.0, "tree_backup"),
    **{name.upper(): partial(sampling, name) for name in ("is", "pdis", "wis", "wpdis", "dr", "wdr")},
    "tabular model": tabular_model,
    "fitted Q, gradient boosting": fitted_q,
}  # fmt: skip
Table = dict[str, list[Estimate]]


def measure(one: Task, size: int, repeats: range, names: list[str], first_seed: int, table: Table) -> None:
    """Add the estimates of each method to those in a table, unless they are there."""
    for repeat in repeats:
        missing = [name for name in names if len(table.setdefault(name, [])) == repeat]
        if missing:
            data = Data(one, one.model.episodes(one.behavior, size, first_seed + repeat))
            for name in missing:
                table[name].append(of(METHODS[name](data)))


def show(size: int, table: Table, names: list[str], truth: float, seconds: float) -> None:
    print(f"{size} episodes, {seconds:.0f} s of processor time", flush=True)
    for name in names:
        error, bias, cover = summary(table[name], truth)
        print(f"  {name:46} {1e3 * error:8.1f} {1e3 * bias:8.1f} {cover:6.2f} {len(table[name])}", flush=True)


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
        write_between(PAGE, "benchmarks/policy_evaluation.py", "\n".join(tables(newest("policies"))))
        return
    names = [name for name in METHODS if not a.only or any(word in name for word in a.only)]
    results = begun(a.results)
    one, place = task(a.far), results.setdefault("far", {}) if a.far else results
    place |= {"truth": one.truth, "bound": one.bound, "seed": DEVELOPMENT if a.develop else SEED}
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")
        for size in a.sizes:
            table, began = place.setdefault("estimates", {}).setdefault(str(size), {}), time.process_time()
            for first in range(0, a.repeats, REPEATS_AT_ONCE):
                repeats = range(first, min(first + REPEATS_AT_ONCE, a.repeats))
                measure(one, size, repeats, names, place["seed"], table)
                if a.results:
                    write_whole(a.results, json.dumps(rounded(results), ensure_ascii=False) + "\n")
            show(size, table, names, one.truth, time.process_time() - began)


def begun(path: Path | None) -> dict[str, Any]:
    """Return the results in a file, which must come from the same source."""
    code = hashlib.sha256(b"".join((Path(__file__).parent / name).read_bytes() for name in CODE))
    source = {"source": source_digest(), "benchmark": code.hexdigest()[:12], "revision": revision()}
    results = json.loads(path.read_text(encoding="utf-8")) if path and path.exists() else source
    if found := [name for name in source if results[name] != source[name]]:
        raise SystemExit(
            f"{path} was measured with {found[0]} {results[found[0]]}, not {source[found[0]]}: name another file."
        )
    return results | {"date": str(datetime.date.today()), "machine": describe_machine()}


def rounded(results: Any) -> Any:
    """Return results with four digits of each estimate."""
    if isinstance(results, dict):
        return {name: one if name in ("truth", "bound") else rounded(one) for name, one in results.items()}
    if isinstance(results, (list, tuple)):
        return [rounded(one) for one in results]
    return (round(results, 4) if results == results else None) if isinstance(results, float) else results


def tables(results: dict[str, Any]) -> list[str]:
    """Return the errors, the intervals and the goals as Markdown."""
    sizes, truth = sorted(results["estimates"], key=int), results["truth"]
    found = {
        (name, size): summary(of, truth) for size in sizes for name, of in results["estimates"][size].items() if of
    }
    names = [name for name in METHODS if any((name, size) in found for size in sizes)]
    bound = {size: results["bound"] / np.sqrt(int(size)) for size in sizes}
    machine = results["machine"]
    head = [f"| episodes | {' | '.join(sizes)} |", "|---|" + "---|" * len(sizes)]
    lines = [
        f"Printed by `python benchmarks/policy_evaluation.py` on {results['date']}, {machine['cores']} cores, Python "
        f"{machine['python']}; revision {results['revision']}; "
        f"seeds from {results['seed']}, {repeats(results['estimates'])}.",
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


def repeats(estimates: dict[str, Table]) -> str:
    """Say how many repeats there are, and of which methods there are fewer."""
    counts = {size: [len(of) for of in table.values()] for size, table in estimates.items()}
    most = {size: max(of) for size, of in sorted(counts.items(), key=lambda one: int(one[0]))}
    fewer = [
        f"{len(table[name])} of {name} with {size}"
        for size, table in estimates.items() for name in METHODS if 0 < len(table.get(name, [])) < most[size]
    ]  # fmt: skip
    said = f"{min(most.values())} repeats of each size"
    if len({*most.values()}) > 1:
        said = "repeats: " + ", ".join(f"{n} with {size} episodes" for size, n in most.items())
    return said + (f", but {', '.join(fewer)}" if fewer else "")


def far_away(results: dict[str, Any]) -> list[str]:
    """Return a table of the target far from the doctors."""
    if "far" not in results:
        return []
    far = results["far"]
    lines = ["", "The target far from the doctors; errors as multiples of that on policy:", ""]
    lines += ["| episodes | method | error | intervals that hold the truth | repeats |", "|---|---|---|---|---|"]
    for size, table in sorted(far["estimates"].items(), key=lambda one: int(one[0])):
        for name in (name for name in METHODS if name in table):
            error, _, cover = summary(of := table[name], far["truth"])
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
    lead, name, size = min(
        (found[name, size][0] / rule[size][0], name, size) for name in others for size in sizes if (name, size) in found
    )
    cover = min(one[2] for one in rule.values())
    return [
        "| goal of the rule | measured | |", "|---|---|---|",
        f"| error from 300 episodes on ≤ 1.25 × on policy | {ratio:.2f} | {'met' if ratio <= 1.25 else 'missed'} |",
        f"| error of the best baseline above that of the rule at every size | {lead:.2f} × ({name}, {size} episodes) "
        f"| {'met' if lead > 1.0 else 'missed'} |",
        f"| intervals hold the truth ≥ 90 % | {cover:.2f} | {'met' if cover >= 0.9 else 'missed'} |",
    ]  # fmt: skip


if __name__ == "__main__":
    main()
