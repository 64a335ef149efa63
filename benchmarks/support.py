"""How often does a fit with importance ratios warn of missing support or of wrong probabilities, and how often wrongly?

    python benchmarks/support.py [--docs] [--faulty 12] [--right 200]

Logs are of the hospital model of `icu-sepsis`, see `hospital.py`, and of a random process. `LSTD`, λ = 0, is fitted to
each with the ratios of a target policy. The results say how many fits gave a `SupportWarning`, and in how many right
logs no ratio can be as large as it says one would have to be.
"""

from __future__ import annotations

import argparse
import datetime
import re
import warnings
from collections.abc import Callable, Iterable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hospital import GAMMA, Log
from logging_policies import WORLDS, World, at, normal
from lstd import LSTD
from lstd.errors import SupportWarning
from lstd.ope import policy_value
from pages import measure_or_write
from provenance import describe_machine

Array = NDArray[Any]
PAGE = Path(__file__).resolve().parents[1] / "docs" / "results" / "support.md"
FIRST_SEED = 80_000  # the rule was made with other seeds
SIZES = ("40", "400", "4000")  # episodes of a log


class Kind(NamedTuple):
    """A kind of logs: policies that log one after another, and probabilities that are given for them."""

    target: str = "near the log"
    behaviors: Callable[[World], tuple[Array, ...]] = lambda world: (world.behavior,)
    given: Callable[[World, Log, Array, Any], Array] = lambda world, log, p, random: p  # (T,) for those of the log


def half(world: World) -> tuple[Array, ...]:
    """Return a policy that takes the more probable half of the actions in each state."""
    return (normal(world.behavior * (world.behavior >= np.median(world.behavior, axis=1, keepdims=True))),)


def no_fourth(world: World) -> tuple[Array, ...]:
    """Return a policy that never takes every fourth action."""
    return (normal(world.behavior * (np.arange(world.behavior.shape[1]) % 4 < 3)),)


def changing(world: World) -> tuple[Array, ...]:
    """Return two policies: half of the earlier one is that of other states."""
    return 0.5 * (world.behavior + np.roll(world.behavior, 1, axis=0)), world.behavior


def uneven(world: World) -> tuple[Array, ...]:
    """Return a policy that takes one action of each state with a probability of 0.97."""
    n = world.behavior.shape[1]
    most = world.behavior.argmax(1)
    return (np.where(np.arange(n) == most[:, np.newaxis], 0.97, 0.03 / (n - 1)),)


def estimated(log: Log, n: int, shape: tuple[int, ...]) -> Array:
    """Estimate probabilities by frequencies in the first n rows, for each state, plus one each."""
    count = np.ones(shape)
    np.add.at(count, (log.state[:n], log.action[:n]), 1.0)
    return at(normal(count), log)


NO_SUPPORT = {
    f"{never}; target {name}": Kind(name, policy)
    for never, policy in {"the less probable half": half, "every fourth": no_fourth}.items()
    for name in ("near the log", "far from it", "the best action", "at random")
}
WRONG = {
    "μ^0.7": Kind(given=lambda w, log, p, r: at(normal(w.behavior**0.7), log)),
    "μ^0.9": Kind(given=lambda w, log, p, r: at(normal(w.behavior**0.9), log)),
    "of an earlier policy": Kind(given=lambda w, log, p, r: at(changing(w)[0], log)),
    "of the later policy, after a change": Kind("near the log", changing, lambda w, log, p, r: at(w.behavior, log)),
    "30 % noise": Kind(given=lambda w, log, p, r: np.minimum(p * np.exp(0.3 * r.normal(size=len(p))), 1.0)),
    "frequencies in 300 rows": Kind(given=lambda w, log, p, r: estimated(log, 300, w.behavior.shape)),
    "frequencies in all rows": Kind(given=lambda w, log, p, r: estimated(log, len(p), w.behavior.shape)),
    "the same in all states": Kind(given=lambda w, log, p, r: np.bincount(log.action)[log.action] / len(p)),
    "of the row before": Kind(given=lambda w, log, p, r: np.roll(p, 1)),
    "rounded to tenths, at least 0.05": Kind(given=lambda w, log, p, r: np.maximum(np.round(p, 1), 0.05)),
}
RIGHT = {
    "target near the log": Kind(),
    "target far from it": Kind("far from it"),
    "target takes the best action": Kind("the best action"),
    "policy changed half way": Kind(behaviors=changing),
    "very uneven log, target at random": Kind("at random", uneven),
    "very uneven log, target takes the best action": Kind("the best action", uneven),
}
GROUPS = {"wrong": WRONG, "right": RIGHT, "no support": NO_SUPPORT}


def fitted(world: World, log: Log, ratio: Array) -> tuple[str, Any]:
    """Return what a fit says in a SupportWarning, and its value of the target policy."""
    X = world.features[log.state]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ends = {"episode": log.episode, "terminated": log.terminated}
        value = policy_value(LSTD(GAMMA, 0.0).fit(X, log.reward, importance_ratio=ratio, **ends), X[log.first])
    said = [str(one.message) for one in caught if issubclass(one.category, SupportWarning)]
    return "".join(said), value


def drawn(world: World, kind: Kind, episodes: int, random: Any) -> tuple[bool, bool, float, float]:
    """Draw a log; return whether there is a warning, whether a right log disproves it, the mean ratio, and a distance.

    It is disproved if no ratio can be so large as it says. The distance is what wrong probabilities do to the value, in
    standard errors of the value by right ratios.
    """
    behaviors = kind.behaviors(world)
    logs = [world.episodes(policy, episodes // len(behaviors), int(random.integers(2**31))) for policy in behaviors]
    log = Log(*(np.concatenate(column) for column in zip(*logs, strict=True)))
    log = log._replace(episode=np.cumsum(np.diff(log.episode, prepend=0) != 0))
    p = np.concatenate([at(policy, one) for policy, one in zip(behaviors, logs, strict=True)])
    target = at(world.targets[kind.target], log)
    given = kind.given(world, log, p, random)
    said, value = fitted(world, log, target / given)
    right = value if given is p else fitted(world, log, target / p)[1]
    larger = re.search(r"takes some more than (\S+) times less", said)
    with np.errstate(divide="ignore", invalid="ignore"):
        most = max(np.nanmax(world.targets[kind.target] / policy) for policy in behaviors)
    disproved = bool(said) and not (larger and most > float(larger[1]))
    shift = float(abs(value.value - right.value) / right.standard_error)
    return bool(said), disproved, float((target / given).mean()), shift


def measured(n_logs: dict[str, int]) -> dict[str, Any]:
    """Return results of all kinds in both processes: warnings by number of episodes, mean ratios, shifts of values."""
    rows = []
    for group, kinds in GROUPS.items():
        for number, (name, process) in enumerate(product(kinds, WORLDS)):
            row: dict[str, Any] = {"group": group, "kind": name, "process": process, "logs": n_logs[group]}
            for size in SIZES:
                seeds = [(FIRST_SEED + seed, number, len(group), int(size)) for seed in range(n_logs[group])]
                one = partial(drawn, WORLDS[process](), kinds[name], int(size))
                found = np.array([one(np.random.default_rng(seed)) for seed in seeds])
                row[size] = dict(zip(("mean_ratio", "shift"), found[:, 2:].mean(axis=0).tolist(), strict=True))
                row[size] |= {"warned": int(found[:, 0].sum()), "disproved": int(found[:, 1].sum())}
            rows.append(row)
            print(row, flush=True)
    return {"date": str(datetime.date.today()), "machine": describe_machine(), "rows": rows}


def table(found: dict[str, Any]) -> Iterable[str]:
    """Return the lines of the tables, with the failures first."""
    yield f"Measured by `python benchmarks/support.py` on {found['date']}; columns by the number of episodes of a log."
    heads = {"wrong": "probabilities", "right": "right log", "no support": "actions that the log never takes"}
    for group, head in heads.items():
        rows = [row for row in found["rows"] if row["group"] == group]
        rows.sort(key=lambda row: sum(row[size]["warned"] for size in SIZES), reverse=group == "right")
        logs = rows[0]["logs"]
        full = [sum(row[size]["warned"] == logs for row in rows) for size in SIZES]
        wrongly = [sum(row[size]["warned"] for row in rows) for size in SIZES]
        lies = [sum(row[size]["disproved"] for row in rows) for size in SIZES]
        all_logs = [f"{n} ({no}) of {logs * len(rows)} logs" for n, no in zip(wrongly, lies, strict=True)]
        counts = all_logs if group == "right" else full
        yield from ("", f"Warnings of {logs} logs of each row:", "")
        yield f"| {head} | process | mean ratio | {' | '.join(SIZES)} |"
        yield "|---|---|---|" + "---|" * len(SIZES)
        for row in rows:
            cells = [f"{row[size]['warned']}" for size in SIZES]
            if group == "right":
                cells = [f"{cell} ({row[size]['disproved']})" for cell, size in zip(cells, SIZES, strict=True)]
            if group == "wrong":
                cells = [f"{cell} ({row[size]['shift']:.1f})" for cell, size in zip(cells, SIZES, strict=True)]
            mean = row[SIZES[-1]]["mean_ratio"]
            yield f"| {row['kind']} | {row['process']} | {mean:.3g} | {' | '.join(cells)} |"
        last = "all rows" if group == "right" else f"rows with {logs} warnings, of {len(rows)}"
        yield f"| **{last}** | | | {' | '.join(map(str, counts))} |"


def main() -> None:
    """Measure and print the tables, or write the newest ones into the page with --docs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--docs", action="store_true", help="write the newest tables into the page")
    parser.add_argument("--faulty", type=int, default=12, help="logs of each faulty kind (default: %(default)s)")
    parser.add_argument("--right", type=int, default=200, help="logs of each right kind (default: %(default)s)")
    arguments = parser.parse_args()
    n_logs = {group: arguments.right if group == "right" else arguments.faulty for group in GROUPS}
    measure_or_write("support", "benchmarks/support.py", PAGE, lambda: measured(n_logs), table, docs=arguments.docs)


if __name__ == "__main__":
    main()
