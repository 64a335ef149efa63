"""Time the choice of settings beside cross-validated ridge regression, and the first use of each estimator.

python benchmarks/choice.py [--quick]
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import RidgeCV
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped,unused-ignore]

from lstd import LSTDCV, HorizonLSTD
from lstd.datasets import load_shop
from lstd.metrics import observed_returns
from lstd.types import Array
from ratios import Ratio, in_turn, run_alone

HOW = """\
Processor time, on one thread. `LSTDCV.fit` with its default grid, whose checks are included, beside `RidgeCV` with the
same α and the same ten folds on the observed returns: customers of the shop, whose features are `recent` and
`since_last`, or consecutive rows of independent normal features and rewards. `RidgeCV` has no λ to choose: it fits a
twentieth of the pairs, or an eighth with 64 features or more. `HorizonLSTD` of 52 weeks chooses λ and α of the same
shop, beside its fit with given ones. First use is what a fresh process that has to compile its kernels takes longer
than the next such process, beside that one: 1000 rows of 10 features, or 20 updates of `RecursiveLSTD` and a
prediction."""
N_FOLDS, GAMMA = 10, 0.98
SIZES = {(20_000, 20): 0.35, (5000, 128): 0.8, (5000, 512): 9.0}  # rows and features: goal in seconds
FIRST = """
import numpy as np
from numpy.typing import NDArray
from lstd import {name}
random = np.random.default_rng(0)
X, y = random.normal(size=(1000, 10)), random.normal(size=1000)
"""
FIT = "{call}.fit(X, y)"
UPDATES = """
model = {call}
for t in range(20):
    model.update(X[t], y[t], X[t + 1])
model.predict(X[0])
"""
STARTS = {  # name: the call, what it does, and the goal in seconds
    "LSTD": ("LSTD()", FIT, 1.5),
    "LSTDCV": ("LSTDCV()", FIT, 2.4),
    "HorizonLSTD": ("HorizonLSTD(10, check=False)", FIT, 1.0),
    "RecursiveLSTD": ("RecursiveLSTD(10)", UPDATES, 3.0),
}


class Case(NamedTuple):
    """Data to choose settings from."""

    name: str
    X: Array
    y: Array
    columns: dict[str, Any]
    starts: NDArray[np.intp]  # first rows of what folds never divide
    goal: float


def ratios(quick: bool = False) -> Iterator[Ratio]:
    """Time choices, then first uses."""
    pairs = 1 if quick else 3
    with threadpool_limits(1), warnings.catch_warnings(action="ignore"):
        for case in cases(quick):
            fit = partial(_choose, case)
            alphas = np.unique(np.asarray(fit().cv_results_["alpha"], dtype=np.float64))
            seconds = in_turn(fit, partial(_ridge, case, alphas), pairs, clock=time.process_time)
            yield Ratio(f"`LSTDCV.fit`, {case.name}, beside `RidgeCV`", *seconds, cost=True, seconds_goal=case.goal)
        given = partial(_horizon, check=False)
        for check, goal in ((False, 0.6), (True, 0.9)):
            chosen = partial(_horizon, lmbda="auto", alpha="auto", check=check)
            seconds = in_turn(chosen, given, pairs, clock=time.process_time)
            name = 'lmbda="auto", alpha="auto"' + ("" if check else ", check=False")
            claim = f"`HorizonLSTD(52, {name})` beside given settings without checks"
            yield Ratio(claim, *seconds, cost=True, seconds_goal=goal)
    for name, (call, code, goal) in STARTS.items():
        seconds = _starts(FIRST.format(name=name) + code.format(call=call), pairs)
        yield Ratio(f"first use of `{call}`, beside the next", *seconds, cost=True, seconds_goal=goal)


def cases(quick: bool) -> Iterator[Case]:
    """Yield the shop, and normal features of each size."""
    table = load_shop()
    customer = table["customer"].to_numpy()
    columns = {"episode": customer, "terminated": table["closed"].to_numpy()}
    starts = np.flatnonzero(np.append(True, customer[1:] != customer[:-1]))
    X = table[["recent", "since_last"]].to_numpy(float)
    yield Case(f"{len(X)} rows of the shop", X, table["spend"].to_numpy(), columns, starts, 0.25)
    random = np.random.default_rng(0)
    for (n_rows, n), goal in SIZES.items():
        if quick:
            n_rows = 20 * n_rows // 1000
        X = random.normal(size=(n_rows, n))
        yield Case(f"{n_rows} rows of {n} features", X, random.normal(size=n_rows), {}, np.arange(n_rows), goal)


def _choose(case: Case) -> LSTDCV:
    return LSTDCV(GAMMA).fit(case.X, case.y, **case.columns)


def _ridge(case: Case, alphas: Array) -> None:
    """Fit ridge regression with the same folds to the returns that were observed."""
    n_rows = len(case.y)
    terminated = case.columns.get("terminated")
    episode = case.columns.get("episode")
    nothing = np.zeros(n_rows)
    found = observed_returns(case.y, gamma=GAMMA, prediction=nothing, episode=episode, terminated=terminated)
    returns = np.nan_to_num(found.returns)
    edges = case.starts[np.arange(N_FOLDS) * len(case.starts) // N_FOLDS]
    fold = np.searchsorted(edges, np.arange(n_rows), side="right") - 1
    splits = [(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in range(N_FOLDS)]
    RidgeCV(alphas, cv=splits).fit(case.X, returns)


def _horizon(**settings: Any) -> None:
    table = load_shop()
    X = table[["recent", "since_last"]]
    HorizonLSTD(52, **settings).fit(X, table["spend"], episode=table["customer"], terminated=table["closed"])


def _starts(code: str, pairs: int) -> tuple[list[float], list[float]]:
    """Return processor seconds that compilation adds to processes, and those of processes after them."""
    added = []
    beside = []
    for _ in range(pairs):
        with TemporaryDirectory() as cache:
            first = processor_seconds(code, cache)
            next_one = processor_seconds(code, cache)
        added.append(first - next_one)
        beside.append(next_one)
    return added, beside


def processor_seconds(code: str, cache: str) -> float:
    """Measure the processor time of a fresh process, of the user and of the system."""
    before = _of_children()
    environment = os.environ | {"LSTD_CACHE_DIR": cache, "OPENBLAS_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, env=environment, stderr=subprocess.DEVNULL)
    return _of_children() - before


def _of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    run_alone(__doc__, ratios)
