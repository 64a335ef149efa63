"""Time what people do with data in memory: small chunks, sparse rows, float32, many episodes, predictions.

python benchmarks/in_memory.py [--quick]
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from scipy import sparse
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped,unused-ignore]

from lstd import LSTD, LSTDStatistics
from ratios import Ratio, in_turn, run_alone

HOW = """\
Independent normal features and rewards, one BLAS thread. Chunks: `LSTD.partial_fit` with intervals, after 9000 rows,
beside `Xᵀ X` of the chunk; the sums are read after every hundred chunks, or after each where said. Sparse rows:
`LSTDStatistics.from_arrays`, 10 of 1000 entries, beside `X.T @ X` of SciPy; features of actions are 50 of 500 entries,
with the mean of the successors over all actions, beside dense rows of the 50. Peaks of memory are those of NumPy's
arrays, by `tracemalloc`, without the data."""
GAMMA = 0.99
LMBDA = 0.9
CHUNKS = ((10, 1), (10, 10), (10, 100), (100, 1), (100, 10), (100, 100), (1000, 100))
Task = Callable[[], Any]
PREDICTED = "`LSTD.predict` of"


def ratios(quick: bool = False) -> Iterator[Ratio]:
    """Measure all parts on one thread."""
    with threadpool_limits(limits=1, user_api="blas"):
        for part in (_chunks, _blocks, _sparse, _single, _episodes, _predictions):
            yield from part(quick)


def _normal(n_rows: int, n: int) -> tuple[Any, Any]:
    random = np.random.default_rng(0)
    return random.standard_normal((n_rows, n)), random.standard_normal(n_rows)


def _summed(X: Any, y: Any, lmbda: float, **columns: Any) -> LSTDStatistics:
    return LSTDStatistics.from_arrays(X, y, gamma=GAMMA, lmbda=lmbda, **columns)


def _often(
    task: Task, beside: Task, count: int, pairs: int, last: Task = lambda: None
) -> tuple[list[float], list[float]]:
    """Measure the seconds of one call of each, from `count` calls at a time, with `last` after those of `task`."""

    def repeat(one: Task, last: Task) -> Callable[[], None]:
        def run() -> None:
            for _ in range(count):
                one()
            last()

        return run

    ours, other = in_turn(repeat(task, last), repeat(beside, lambda: None), pairs)
    return [seconds / count for seconds in ours], [seconds / count for seconds in other]


def _chunks(quick: bool) -> Iterator[Ratio]:
    count, pairs, n_before = (2, 3, 3000) if quick else (100, 15, 9000)
    for n, n_rows in CHUNKS[::3] if quick else CHUNKS:
        model, (X, y) = LSTD(GAMMA, LMBDA).fit(*_normal(n_before, n)), _normal(n_rows, n)
        fit = partial(model.partial_fit, X, y)
        product = partial(np.matmul, X.T, X)
        goal = 5e-3 if n == 1000 else 120e-6
        seconds = _often(fit, product, count, pairs, partial(getattr, model, "statistics_"))
        claim = f"`LSTD.partial_fit` of {n_rows} rows, n = {n}"
        yield Ratio(claim, *seconds, cost=True, seconds_goal=goal)
        if (n, n_rows) == CHUNKS[0]:
            seconds = _often(partial(_fit_and_read, model, X, y), product, count, pairs)
            yield Ratio(f"{claim}, and its sums read", *seconds, cost=True)


def _fit_and_read(model: LSTD, X: Any, y: Any) -> LSTDStatistics:
    return model.partial_fit(X, y).statistics_


def _blocks(quick: bool) -> Iterator[Ratio]:
    X, y = _normal(1000 if quick else 10_000, 100)
    seconds = in_turn(lambda: LSTD().fit(X, y), lambda: LSTD(n_blocks=0).fit(X, y), 3 if quick else 25)
    claim = f"`LSTD.fit` of {len(X)} rows, n = 100, with the blocks of intervals beside none"
    yield Ratio(claim, *seconds, cost=True, goal=1.1)


def _sparse(quick: bool) -> Iterator[Ratio]:
    n_rows, n, pairs = (2000, 1000, 2) if quick else (100_000, 1000, 7)
    random = np.random.default_rng(0)
    y = _normal(n_rows, 1)[1]
    columns = 100 * np.arange(10) + random.integers(100, size=(n_rows, 10))
    ends = np.arange(0, 10 * n_rows + 1, 10)
    X = sparse.csr_array((random.standard_normal(10 * n_rows), columns.ravel(), ends), shape=(n_rows, n))
    for lmbda, goal in ((0.0, 0.18), (LMBDA, 0.45)):
        seconds = in_turn(partial(_summed, X, y, lmbda), lambda: X.T @ X, pairs)
        claim = f"sums of {n_rows} sparse rows, λ = {lmbda:g}, beside `X.T @ X`"
        yield Ratio(claim, *seconds, cost=True, seconds_goal=goal)
    yield from _actions(500 if quick else 100_000, 2 if quick else 5)


def _actions(n_rows: int, pairs: int, n: int = 50, n_actions: int = 10) -> Iterator[Ratio]:
    random, (phi, y) = np.random.default_rng(1), _normal(n_rows + 1, n)
    columns = n * random.integers(n_actions, size=n_rows)[:, np.newaxis] + np.arange(n)
    shape = (n_rows, n * n_actions)
    X = sparse.csr_array((phi[:-1].ravel(), columns.ravel(), np.arange(0, n * n_rows + 1, n)), shape=shape)
    policy = random.dirichlet(np.ones(n_actions), size=n_rows)
    X_next = sparse.csr_array((policy[:, :, np.newaxis] * phi[1:, np.newaxis]).reshape(shape))
    given = {"X_next": X_next, "trace_coefficient": policy.max(axis=1)}
    for lmbda, goal in ((0.0, 30.0), (LMBDA, None)):
        seconds = in_turn(partial(_summed, X, y[:-1], lmbda, **given), partial(_summed, phi, y, lmbda), pairs)
        claim = f"sums of {n_rows} rows of {n} features × {n_actions} actions, λ = {lmbda:g}, beside the features alone"
        yield Ratio(claim, *seconds, cost=True, goal=goal)


def _single(quick: bool) -> Iterator[Ratio]:
    X, y = _normal(1000 if quick else 100_000, 100)
    single = X.astype(np.float32)
    seconds = in_turn(lambda: LSTD().fit(single, y), lambda: LSTD().fit(X, y), 3 if quick else 11)
    yield Ratio(f"`LSTD.fit` of {len(X)} rows of float32, n = 100, beside float64", *seconds, cost=True, goal=1.0)
    yield _peak(
        f"peak of memory of `LSTD.fit` of {len(X)} rows of float32, beside the data", single, y, single.nbytes, {}
    )


def _episodes(quick: bool) -> Iterator[Ratio]:
    n_rows, n = (2000, 10) if quick else (1_000_000, 10)
    X, y = _normal(n_rows, n)
    length = n_rows // (200 if quick else 20_000)
    last = np.arange(n_rows) % length == length - 1
    y_cut = np.where(last, 0.0, y)
    columns = {"episode": np.arange(n_rows) // length, "terminated": last}
    cut = columns | {"terminated": np.zeros(n_rows, np.bool_)}
    fits = {"": partial(LSTD().fit, X, y, **columns), " that were cut off": partial(LSTD().fit, X, y_cut, **cut)}
    for what, given in fits.items():
        seconds = in_turn(given, partial(LSTD().fit, X, y), 3 if quick else 11)
        claim = f"`LSTD.fit` of {n_rows // length} episodes of {length} rows{what}, n = {n}, beside one stream"
        yield Ratio(claim, *seconds, cost=True, goal=1.2)
    yield _peak(f"peak of memory of that fit of {n_rows} rows, beside 16 bytes a row", X, y, 16 * n_rows, columns)


def _peak(claim: str, X: Any, y: Any, beside: int, columns: dict[str, Any]) -> Ratio:
    """Measure the peak of the memory of a fit beside a number of bytes."""
    LSTD().fit(X[:100], y[:100])
    tracemalloc.start()
    try:
        LSTD().fit(X, y, **columns)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    return Ratio(claim, [peak], [beside], cost=True, goal=1.0, unit="bytes")


def _predictions(quick: bool) -> Iterator[Ratio]:
    model, (X, y) = LSTD(), _normal(2000 if quick else 1_000_000, 10)
    weights = model.fit(X[:1000], y[:1000]).coef_
    row = X[:1]
    count = 3 if quick else 200
    seconds = _often(lambda: model.predict(row), lambda: row @ weights, count, 3 if quick else 15)
    yield Ratio(f"{PREDICTED} 1 row, n = 10, beside `X @ w`", *seconds, cost=True, seconds_goal=25e-6)
    for name, rows in (("float64", X), ("float32", X.astype(np.float32))):
        seconds = in_turn(partial(model.predict, rows), partial(np.matmul, rows, weights), 3 if quick else 15)
        claim = f"{PREDICTED} {len(X)} rows of {name}, n = 10, beside `X @ w`"
        yield Ratio(claim, *seconds, cost=True, goal=1.15)


if __name__ == "__main__":
    run_alone(__doc__, ratios)
