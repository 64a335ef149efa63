"""Judge estimates of values of policies, and the first choice among them, on problems with known truth.

    python benchmarks/policy_evaluation.py [--repeats 50] [--problems NAME …] [--large] [--baselines | --pairs]
    python benchmarks/policy_evaluation.py --docs

`policy_problems.py` has the problems, `policy_baselines.py` the methods that `lstd` is compared with. Estimates,
intervals and warnings of each repeat go to a file of results, from which `--docs` writes the tables and the figure of
the page. A run that was stopped goes on where the file ends, if neither `lstd.ope` nor the problems have changed.
Methods of `lstd`, `--baselines` and `--pairs` have files of their own. Each log serves all target policies and
methods. Seeds from 9000 judge; `--develop` takes those from 5000.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import time
import warnings
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

import lstd.ope
from lstd import LSTD
from lstd.errors import LSTDWarning
from lstd.ope import LSTDQ, evaluate_policy, importance_sampling, policy_value
from pages import RESULTS, write_whole
from policy_baselines import Logged, boosted_q, linear_q, magic, tabular
from policy_problems import PROBLEMS, Problem, at, problem
from provenance import describe_machine, revision, source_digest

Array = NDArray[Any]
Estimate = list[Any]  # value, lower, upper, letters of the warnings, how it was chosen
SEED = 9000
DEVELOPMENT = 5000
CODE = ("hospital.py", "policy_problems.py", "policy_baselines.py")
OPE = Path(lstd.ope.__file__).parent
KINDS = ("fine", "coarse")
WEIGHTINGS = ("none", "ratio")
LETTERS = {"SupportWarning": "S", "EffectiveSampleWarning": "E", "MisfitWarning": "M"}


class Case(Logged):
    """A log with a target policy, features of states, and the action values that several methods share."""

    features: dict[str, Array]

    @classmethod
    def of(cls, one: Problem, log: Any, behavior: Any, target: Any) -> Case:
        found = cls(log, at(target, log.state), at(behavior, log.state), at(one.columns, log.state), one.gamma)
        found.__dict__["features"] = {kind: at(one.features[kind], log.state) for kind in KINDS}
        return found

    @cached_property
    def q(self) -> Array:
        return boosted_q(self)

    @cached_property
    def rows(self) -> dict[str, Any]:
        rewards = np.where(self.full, self.log.reward, np.nan)
        return {"y": rewards, "episode": self.log.episode, "terminated": self.log.terminated}

    @cached_property
    def policies(self) -> dict[str, Any]:
        return {"actions": self.log.action, "target_policy": self.target, "behavior_probability": self.mu}


def sampling(estimator: str, case: Case) -> Any:
    q = (lambda X: case.q) if estimator.endswith("dr") else None
    return importance_sampling(case.columns, **case.rows, **case.policies, gamma=case.gamma, estimator=estimator, q=q)


def baselines(case: Case, kinds: tuple[str, ...]) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield the names of the methods from elsewhere, and what computes each."""
    for name in ("is", "pdis", "wis", "wpdis", "dr", "wdr"):
        yield name.upper(), partial(sampling, name, case)
    yield "MAGIC", lambda: magic(case, case.q)
    yield "fitted Q, boosting", lambda: case.start((case.target * case.q).sum(axis=1))
    if case.log.state.ndim == 1:
        yield "tabular model", lambda: tabular(case, int(case.log.state.max()) + 1)
    for kind in kinds:
        X = case.features[kind]
        if (X.shape[1] + 1) * case.target.shape[1] <= 700:
            yield f"fitted Q, linear, {kind}", partial(linear_q, case, X)


def of_lstd(case: Case, kinds: tuple[str, ...]) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield the names of the methods of `lstd`, and what computes each."""
    for kind in kinds:
        X = case.features[kind]
        yield f"LSTD(0), ratios, α = 1, {kind}", partial(of_states, case, X)
        if X.shape[1] * case.target.shape[1] <= 200:
            yield f"LSTDQ(0), {kind}", partial(of_actions, case, X)
        yield (
            f"first choice, {kind}",
            partial(evaluate_policy, X, **case.rows, **case.policies, gamma=case.gamma, state=case.columns),
        )


def of_pairs(case: Case, kinds: tuple[str, ...]) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield action values with rows as they are, and weighted by the ratios of their actions."""
    for kind in kinds:
        X = case.features[kind]
        if X.shape[1] * case.target.shape[1] <= 200:
            for weighting in WEIGHTINGS:
                yield f"{weighting}, {kind}", partial(of_actions, case, X, weighting)


def of_states(case: Case, X: Array) -> Any:
    model = LSTD(case.gamma, 0.0, 1.0).fit(X, **case.rows, importance_ratio=case.ratio)
    return policy_value(model, X[case.log.first])


def of_actions(case: Case, X: Array, weighting: str = "none") -> Any:
    return policy_value(LSTDQ(case.gamma, weighting=weighting).fit(X, **case.rows, **case.policies))


METHODS = {"policies": of_lstd, "policy-baselines": baselines, "policy-pairs": of_pairs}


def estimate(method: Callable[[], Any]) -> tuple[Estimate, dict[str, Estimate]]:
    """Return the value, the interval, the warnings and the choice of a method, and those of its candidates."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found = method()
        except Exception as error:  # a method that fails is a loss, and is counted
            return [None, None, None, "!", f"{type(error).__name__}: {error}"[:100]], {}
    kinds = {one.category.__name__ for one in caught if issubclass(one.category, LSTDWarning)}
    letters = "".join(sorted({LETTERS.get(kind, "O") for kind in kinds}))
    if isinstance(found, float):
        return [number(found), None, None, "", ""], {}
    others = {name: numbers(one) for name, one in (getattr(found, "candidates", None) or {}).items()}
    return [*numbers(found), letters, getattr(found, "method", "")], others


def numbers(found: Any) -> Estimate:
    return [number(found.value), number(found.lower), number(found.upper)]


def number(value: Any) -> Any:
    return float(f"{value:.5g}") if np.isfinite(value) else None


# ---------------------------------------------------------------- measuring


def cells(name: str, large: bool) -> Iterator[tuple[str, Any, int]]:
    for log in problem(name).logs:
        yield log, problem(name).logs[log], problem(name).sizes[large]


def measure(results: dict[str, Any], name: str, large: bool, repeat: int, chosen: argparse.Namespace) -> None:
    """Add one repeat of all cells of a problem to the results, unless it is there."""
    one = problem(name)
    for log_name, behavior, size in cells(name, large):
        wanted = [t for t in one.targets if repeat not in done(results, name, log_name, t, size)]
        if not wanted:
            continue
        log = one.draw(behavior, size, chosen.seed + repeat)
        for target in wanted:
            cell = results["cells"].setdefault(key(name, log_name, target, size), {"repeats": [], "methods": {}})
            if "truth" not in cell:
                cell["truth"], cell["deviation"], cell["error"] = truth(results, name, target)
            case = Case.of(one, log, behavior, one.targets[target])
            began = time.process_time()
            kinds = ("coarse",) if name == "hospital" else KINDS
            for method, call in METHODS[chosen.kind](case, kinds):
                found, others = estimate(call)
                cell["methods"].setdefault(method, []).append(found)
                kind = method.rpartition(", ")[2]
                for other, one_of in others.items():
                    cell["methods"].setdefault(f"{other}, {kind}", []).append(one_of)
            cell["repeats"].append(repeat)
            cell["seconds"] = round(cell.get("seconds", 0.0) + time.process_time() - began, 2)


def key(*words: Any) -> str:
    return " | ".join(map(str, words))


def done(results: dict[str, Any], *words: Any) -> list[int]:
    found: list[int] = results["cells"].get(key(*words), {}).get("repeats", [])
    return found


def truth(results: dict[str, Any], name: str, target: str) -> list[float]:
    """Return the truth of a target policy, computed once for all logs and sizes."""
    known = results.setdefault("truth", {})
    if key(name, target) not in known:
        known[key(name, target)] = [float(x) for x in problem(name).truth(problem(name).targets[target])]
    found: list[float] = known[key(name, target)]
    return found


def begun(path: Path, chosen: argparse.Namespace) -> dict[str, Any]:
    """Return the results in a file, which must come from the same problems and, for methods of `lstd`, source."""
    code = hashlib.sha256(b"".join((Path(__file__).parent / name).read_bytes() for name in CODE)).hexdigest()[:12]
    source = {"problems": code, "seed": chosen.seed} | (
        {} if chosen.kind == "policy-baselines" else {"source": source_digest(OPE)}
    )
    results = json.loads(path.read_text(encoding="utf-8")) if path.exists() else source | {"cells": {}}
    if found := [name for name in source if results[name] != source[name]]:
        raise SystemExit(f"{path} was measured with {found[0]} {results[found[0]]}, not {source[found[0]]}.")
    return results | {"revision": revision(), "date": str(datetime.date.today()), "machine": describe_machine()}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--repeats", type=int, default=50)
    parser.add_argument("--problems", nargs="+", default=[*PROBLEMS], choices=[*PROBLEMS], metavar="NAME")
    parser.add_argument("--large", action="store_true", help="the larger size of each problem")
    for name, kind, what in (
        ("baselines", "policy-baselines", "methods from elsewhere"),
        ("pairs", "policy-pairs", "weights of action values"),
    ):
        parser.add_argument(
            f"--{name}",
            dest="kind",
            action="store_const",
            const=kind,
            default="policies",
            help=f"{what} instead of the first choice",
        )
    parser.add_argument("--develop", dest="seed", action="store_const", const=DEVELOPMENT, default=SEED)
    parser.add_argument("--results", type=Path, metavar="FILE")
    parser.add_argument("--docs", action="store_true", help="write tables and figure from the newest results")
    chosen = parser.parse_args()
    if chosen.docs:
        import policy_tables

        policy_tables.write()
        return
    path = chosen.results or RESULTS / f"{chosen.kind}-{datetime.date.today()}.json"
    results = begun(path, chosen)
    with threadpool_limits(1):
        for repeat in range(chosen.repeats):
            for name in chosen.problems:
                began = time.process_time()
                measure(results, name, chosen.large, repeat, chosen)
                write_whole(path, json.dumps(results, ensure_ascii=False) + "\n")
                print(f"{name}, repeat {repeat}: {time.process_time() - began:.1f} s", flush=True)


if __name__ == "__main__":
    main()
