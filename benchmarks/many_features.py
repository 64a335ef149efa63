"""Measure the iterative solver: time, memory and products for many states, hashed features and a walk on a grid.

    python benchmarks/many_features.py [--docs docs/results/many-features.md] [--million]
    python benchmarks/many_features.py --picture docs/guide/many-features.png

Times are of one process with a single-threaded BLAS, in seconds of the processor, without intervals unless the table
says so. Memory is what `fit` allocates at most beyond X and y. Rows are independent draws of states in episodes of 50;
the walk on a grid moves to a neighbour that no obstacle blocks, and is where the solver is slowest. With --million, one
fit of 10⁶ states and 10⁷ rows is added. The picture shows the values of a walk on 300 × 300 cells and their errors.
"""

from __future__ import annotations

import argparse
import time
import tracemalloc
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import spsolve
from sklearn.linear_model import Ridge
from threadpoolctl import threadpool_limits

from lstd import LSTD, LSTDCV
from lstd.ope import LSTDQ
from lstd.report.style import BLUE, REFERENCE
from pages import measure_or_write, newest
from provenance import describe_machine, printed_by

PAGE = Path(__file__).parents[1] / "docs" / "results" / "many-features.md"
FIGURE = PAGE.parent / "figures" / "many_features.png"
LENGTH = 50  # of an episode
DISCOUNT = 0.99


def states(n: int, n_rows: int, entries: int = 1, seed: int = 0) -> tuple[Any, Any, dict[str, Any]]:
    """Draw states or, with several entries, hashed features; X, y and columns."""
    random = np.random.default_rng(seed)
    places = random.integers(0, n, n_rows * entries).astype(np.int32)
    values = np.ones(len(places)) if entries == 1 else random.choice([-1.0, 1.0], len(places))
    X = sparse.csr_array((values, places, np.arange(0, len(places) + 1, entries, dtype=np.int32)), shape=(n_rows, n))
    X.sum_duplicates()
    done = np.arange(n_rows) % LENGTH == LENGTH - 1
    return X, random.normal(size=n)[places[::entries]] + random.normal(size=n_rows), {"terminated": done}


def obstacles(side: int) -> Any:
    """Return which cells are blocked: walls around 36 rooms with a door in each, and a twentieth of the other cells."""
    random = np.random.default_rng(side)
    room = side // 6
    blocked = random.random((side, side)) < 0.05
    for walls in (blocked, blocked.T):
        for place in range(room, side - 1, room):
            walls[place] = True
            for start in range(0, side, room):
                door = start + random.integers(2, room - 10)
                walls[place, door : door + 8] = False
    return blocked


def rewards_of(side: int) -> Any:
    """Return the mean reward in each cell, (cells,): 1 in a fifth of the rooms."""
    room = np.arange(side) * 6 // side
    return (((7 * room[:, np.newaxis] + 3 * room) % 5 == 0) * 1.0).reshape(-1)


def moves(free: Any) -> Any:
    """Return the cell after each of four moves from each cell, (4, cells): a blocked move stays."""
    side = len(free)
    cells = np.arange(free.size).reshape(free.shape)
    after = []
    for axis, step in ((0, 1), (0, -1), (1, 1), (1, -1)):
        rolled = np.roll(cells, -step, axis)
        open_ = np.roll(free, -step, axis)
        edge = np.zeros_like(free)
        edge[(slice(None),) * axis + (side - 1 if step > 0 else 0,)] = True
        after.append(np.where(open_ & ~edge, rolled, cells).reshape(-1))
    return np.array(after)


def walk(side: int, n_rows: int, seed: int = 0) -> tuple[Any, Any, dict[str, Any]]:
    """Walk on the grid in cut episodes of 200 rows, side by side; rewards have a normal error of 0.1."""
    random = np.random.default_rng(seed)
    free = ~obstacles(side)
    length = 200
    after = moves(free)
    n_walks = n_rows // length
    path = np.empty((length, n_walks), np.int32)
    path[0] = random.choice(np.flatnonzero(free), n_walks)
    for t in range(1, length):
        path[t] = after[random.integers(0, 4, n_walks), path[t - 1]]
    visited = path.T.reshape(-1)
    X = sparse.csr_array((np.ones(len(visited)), visited, np.arange(len(visited) + 1)), shape=(len(visited), side**2))
    y = rewards_of(side)[visited] + random.normal(scale=0.1, size=len(visited))
    y[length - 1 :: length] = np.nan
    return X, y, {"episode": np.repeat(np.arange(n_walks), length), "terminated": np.zeros(len(visited), bool)}


def true_values(side: int) -> Any:
    """Solve for the values of the walk, (cells,)."""
    after = moves(~obstacles(side))
    cells = np.arange(side**2)
    P = sparse.csr_array((np.full(after.size, 0.25), (np.tile(cells, 4), after.reshape(-1))))
    return spsolve((sparse.eye_array(side**2) - DISCOUNT * P).tocsc(), rewards_of(side))


def fitted(data: tuple[Any, Any, dict[str, Any]], *, memory: bool = False, **options: Any) -> dict[str, Any]:
    """Fit once for time and, if asked for, once for memory."""
    X, y, columns = data
    settings: dict[str, Any] = {"n_blocks": 0, "solver": "iterative"} | options
    model = LSTD(**settings)
    with timed() as took:
        model.fit(X, y, **columns)
    seconds = took[0]
    most = 0
    if memory:
        tracemalloc.start()
        model.fit(X, y, **columns)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    found = {"rows": len(y), "features": X.shape[1], "entries": X.nnz / len(y), "seconds": seconds, "bytes": most}
    return found | {name: getattr(model, name) for name in ("gamma", "lmbda", "alpha", "n_iter_", "residual_")}


@contextmanager
def timed() -> Iterator[list[float]]:
    """Append the seconds of the processor that the block takes."""
    took: list[float] = []
    begin = time.process_time()
    yield took
    took.append(time.process_time() - begin)


def all_fits(million: bool) -> Iterator[dict[str, Any]]:
    """Fit to all kinds of data."""
    for n in (10**3, 10**4, 10**5, 10**6):
        data = states(n, 10**6)
        for lmbda in (0.0, 0.9):
            yield {"kind": "states"} | fitted(data, lmbda=lmbda, memory=lmbda > 0.0)
    for n_rows in (10**5, 3 * 10**5, 10**6, 3 * 10**6):
        yield {"kind": "states, more rows"} | fitted(states(10**5, n_rows), lmbda=0.9)
    data = states(10**5, 10**6)
    for gamma, alpha, lmbda in product((0.9, 0.99, 0.999), (1.0, 1e-3), (0.0, 0.5, 0.9, 1.0)):
        yield {"kind": "states"} | fitted(data, gamma=gamma, alpha=alpha, lmbda=lmbda)
    yield {"kind": "states, with intervals"} | fitted(data, lmbda=0.9, n_blocks="auto", memory=True)
    for lmbda in (0.0, 0.5, 0.9, 1.0):
        yield {"kind": "hashed"} | fitted(states(10**5, 10**6, 10), lmbda=lmbda, memory=lmbda == 0.9)
    grid = walk(100, 10**6)
    for gamma, lmbda in product((0.9, 0.99, 0.999), (0.0, 0.5, 0.9, 1.0)):
        yield {"kind": "walk on a grid"} | fitted(grid, gamma=gamma, lmbda=lmbda, memory=gamma == 0.9 == lmbda)
    if million:
        yield {"kind": "states"} | fitted(states(10**6, 10**7), lmbda=0.9)


def crossover() -> Iterator[dict[str, Any]]:
    """Fit to 10⁵ rows by both solvers, the iterative one also with intervals."""
    for n in (100, 300, 1000, 2000, 3000, 5000):
        data = states(n, 10**5)
        direct = fitted(data, lmbda=0.9, solver="direct")["seconds"]
        plain, intervals = (fitted(data, lmbda=0.9, n_blocks=blocks)["seconds"] for blocks in (0, "auto"))
        yield {"features": n, "direct": direct, "iterative": plain, "with intervals": intervals}


def exponent(runs: list[dict[str, Any]]) -> float:
    """Return the slope of log seconds per product against log entries, for the same features and more rows."""
    some = [run for run in runs if run["kind"] == "states, more rows"]
    entries = [run["rows"] * run["entries"] for run in some]
    seconds = [run["seconds"] / run["n_iter_"] for run in some]
    return float(np.polyfit(np.log(entries), np.log(seconds), 1)[0])


def by_spsolve(data: tuple[Any, Any, dict[str, Any]]) -> Any:
    """Return the weights of λ = 0 by SciPy's sparse LU factors of the sparse A."""
    X, y, columns = data
    episode = columns.get("episode", np.zeros(len(y)))
    full = columns["terminated"] | np.append(episode[1:] == episode[:-1], False)
    following = sparse.csr_array(sparse.vstack([X[1:], X[:1]]))
    discount = np.where(columns["terminated"], 0.0, DISCOUNT)[full]
    A = X[full].T @ (X[full] - sparse.diags_array(discount) @ following[full])
    return spsolve((A + sparse.eye_array(X.shape[1])).tocsc(), X[full].T @ y[full])


def others() -> Iterator[dict[str, Any]]:
    """Time other ways to the same weights, and how far they are from those of the iterative solver."""
    data_of = {"10³ states, 10⁴ rows": states(10**3, 10**4), "3·10³ states, 3·10⁴ rows": states(3000, 30_000)}
    data_of |= {"walk, 10⁴ cells, 10⁶ rows": walk(100, 10**6), "walk, 9·10⁴ cells, 2·10⁶ rows": walk(300, 2 * 10**6)}
    for name, data in data_of.items():
        X, y, columns = data
        model = LSTD(lmbda=0.0, solver="iterative", fit_intercept=False, n_blocks=0)
        with timed() as ours:
            model.fit(X, y, **columns)
        with timed() as theirs:
            weights = by_spsolve(data)
        far = float(np.abs(weights - model.coef_).max() / np.abs(weights).max())
        yield {"way": "`spsolve`, λ = 0", "data": name, "ours": ours[0], "theirs": theirs[0], "difference": far}
    X, y, columns = states(10**5, 10**6)
    with timed() as ours:
        model = LSTD(lmbda=1.0, solver="iterative", n_blocks=0, tol=1e-8).fit(X, y, **columns)
    with timed() as theirs:
        returns = y.reshape(-1, LENGTH).copy()
        for t in range(LENGTH - 2, -1, -1):
            returns[:, t] += DISCOUNT * returns[:, t + 1]
        ridge = Ridge(solver="sparse_cg", tol=1e-8).fit(X, returns.reshape(-1))
    far = float(np.abs(ridge.predict(X) - model.predict(X)).max() / np.abs(model.predict(X)).max())
    yield {
        "way": '`Ridge(solver="sparse_cg")` of returns, λ = 1',
        "data": "10⁵ states, 10⁶ rows",
        "ours": ours[0],
        "theirs": theirs[0],
        "difference": far,
    }


def larger_uses() -> Iterator[dict[str, Any]]:
    """Time action values of 10⁵ pairs, and a choice of settings."""
    X, y, columns = states(20_000, 10**6)
    random = np.random.default_rng(1)
    actions = random.integers(0, 5, len(y))
    policy = random.dirichlet(np.ones(5), X.shape[1])[X.indices]
    for lmbda in (0.0, 0.9):
        model = LSTDQ(lmbda=lmbda, n_blocks=0, weighting="none")
        with timed() as took:
            model.fit(X, y, actions=actions, target_policy=policy, behavior_probability=np.full(len(y), 0.2), **columns)
        what = f"`LSTDQ(lmbda={lmbda:g}, n_blocks=0)`, 10⁵ pairs, 10⁶ rows, {model.lstd_.n_iter_} products"
        yield {"what": what, "seconds": took[0]}
    X, y, columns = states(10**4, 10**5)
    with timed() as took:
        chosen = LSTDCV(n_blocks=0).fit(X, y, **columns)
    n_pairs = len(chosen.cv_results_["lmbda"])
    what = f"`LSTDCV(n_blocks=0)`, 10⁴ states, 10⁵ rows, {n_pairs} pairs, {n_pairs * (chosen.n_folds_ + 1)} solves"
    yield {"what": what, "seconds": took[0]}


def measured(million: bool) -> dict[str, Any]:
    """Measure all tables."""
    warnings.simplefilter("ignore")
    fitted(states(100, 1000))  # compiles the kernels
    fitted(states(100, 1000), solver="direct")
    printed = printed_by("python benchmarks/many_features.py --million")
    date = datetime.now(UTC).date().isoformat()
    return {
        "date": date,
        "printed": printed,
        "machine": describe_machine(),
        "runs": [*all_fits(million)],
        "crossover": [*crossover()],
        "others": [*others()],
        "uses": [*larger_uses()],
    }


def table(found: dict[str, Any]) -> Iterable[str]:
    """Yield the lines of the page."""
    yield found["printed"]
    yield ""
    yield "| rows | features | entries a row | γ | λ | α | products | seconds | bytes a row (100 a feature) | kind |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for run in found["runs"]:
        blocks = 8 * 20 * ("intervals" in run["kind"])
        rest = max(0.0, run["bytes"] - (100 + blocks) * run["features"]) / run["rows"]
        yield (
            f"| {run['rows']:.0e} | {run['features']:.0e} | {run['entries']:.0f} | {run['gamma']:g} | {run['lmbda']:g} "
            f"| {run['alpha']:g} | {run['n_iter_']} | {run['seconds']:.2f} | {f'{rest:.0f}' if run['bytes'] else ''} "
            f"| {run['kind']} |"
        )
    yield ""
    yield (
        f"With more rows of the same 10⁵ states, seconds per product grow with the entries to the power of "
        f"{exponent(found['runs']):.2f}."
    )
    yield ""
    yield "| other way | data | its seconds | seconds of `LSTD` | largest difference |"
    yield "|---|---|---|---|---|"
    for one in found["others"]:
        yield (f"| {one['way']} | {one['data']} | {one['theirs']:.2f} | {one['ours']:.2f} | {one['difference']:.0e} |")
    yield ""
    yield "| use | seconds |"
    yield "|---|---|"
    for one in found["uses"]:
        yield f"| {one['what']} | {one['seconds']:.1f} |"


def draw_crossover(lines: list[dict[str, Any]], path: Path) -> None:
    """Draw the time of both solvers against the number of features."""
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots(figsize=(6.0, 3.6), layout="constrained")
    looks = {"direct": ("o-", REFERENCE), "iterative": ("s-", BLUE), "with intervals": ("s--", BLUE)}
    for name, (style, colour) in looks.items():
        label = {"with intervals": "iterative, with intervals"}.get(name, name)
        ax.loglog([line["features"] for line in lines], [line[name] for line in lines], style, c=colour, label=label)
    ax.axvline(3000, color="0.7", linewidth=1.0, zorder=0)
    ax.set(xlabel="features (one-hot states)", ylabel="seconds of a fit to 10⁵ rows")
    ax.legend(frameon=False)
    figure.savefig(path, dpi=110, metadata={"Software": None})


def picture(path: Path, side: int = 300, n_rows: int = 2_000_000) -> None:
    """Draw the fitted values of the walk and their standard errors, and print how far they are from the true ones."""
    import matplotlib.pyplot as plt

    data = walk(side, n_rows)
    free = ~obstacles(side).reshape(-1)
    truth = true_values(side)
    begin = time.process_time()
    model = LSTD(gamma=DISCOUNT, lmbda=0.9, alpha=0.1, solver="iterative").fit(data[0], data[1], **data[2])
    seconds = time.process_time() - begin
    found = model.predict_interval(sparse.eye_array(side**2, format="csr"))
    seen = free & (np.asarray(data[0].sum(axis=0)) > 0)
    error = (found.prediction - truth)[seen]
    inside = ((found.lower <= truth) & (truth <= found.upper))[seen]
    print(f"{seen.sum()} cells, {seconds:.0f} s, {model.n_iter_} products, {len(model.model_.influence.shares)} blocks")
    print(f"R² of the true values {1.0 - np.mean(error**2) / truth[seen].var():.4f}")
    print(f"root mean square error {np.sqrt(np.mean(error**2)):.3f}, of true values of {truth[seen].std():.3f}")
    print(f"standard error {np.median(found.standard_error[seen]):.3f} in the median, inside {inside.mean():.3f}")
    figure, axes = plt.subplots(1, 2, figsize=(9.0, 4.2), layout="constrained")
    for ax, title, values in ((axes[0], "value", found.prediction), (axes[1], "standard error", found.standard_error)):
        shown = np.where(seen, values, np.nan).reshape(side, side)
        most = np.quantile(values[seen], 0.995)
        image = ax.imshow(shown, cmap="viridis", interpolation="nearest", vmax=most)
        ax.set(title=title, xticks=[], yticks=[])
        figure.colorbar(image, ax=ax, shrink=0.8, extend="max")
    figure.savefig(path, dpi=110, metadata={"Software": None})


def main() -> None:
    """Measure and print, write the page, or draw the picture."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--docs", type=Path, metavar="PAGE", help="put the newest results into this page")
    parser.add_argument("--million", action="store_true", help="also fit 10⁶ states of 10⁷ rows")
    parser.add_argument("--picture", type=Path, metavar="PNG", help="only draw the walk on the grid")
    arguments = parser.parse_args()
    with threadpool_limits(1):
        if arguments.picture:
            picture(arguments.picture)
            return
        measure_or_write(
            "many_features",
            "benchmarks/many_features.py",
            arguments.docs or PAGE,
            lambda: measured(arguments.million),
            table,
            docs=arguments.docs is not None,
        )
        if arguments.docs is not None:
            draw_crossover(newest("many_features")["crossover"], FIGURE)


if __name__ == "__main__":
    main()
