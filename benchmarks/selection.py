"""Compare settings chosen by LSTDCV with fixed settings and with the best pair in hindsight.

    python benchmarks/selection.py [--seeds 8] [--runs 1] [--only NAME …] [--docs]

The data are the nine problems of the paper at its length T and at 10 T, eight episodic problems with 20 and 80
episodes, 100 rows of 30 and of 150 features, six other kinds of problems, and first-passage times at γ = 1 seen
through episodes of 20 steps, of which most are cut off; on random processes whose seeds were not used to make the
rule. All but the first four have an intercept. The earlier constants of LSTDCV are 2⁻⁸ to 2⁸ mean squared rows for α,
equal penalties, λ* = 0.98 in the first two stages, and a caution of 1/2 for folds of rows. Of data in episodes, λ is
also chosen by leave-one-trajectory-out cross-validation (Mann, Penedones, Mannor and Hester 2016) on observed returns,
at α = 1/64, and λ and α so. The error of a pair (λ, α)
is that of its weights at the end of the data, (Φθ − Φθ*)ᵀ D (Φθ − Φθ*). The excess of a way to choose is the mean of
its errors, divided by that of the one pair that is best for the problem in hindsight. There are three means: of
errors in units of the values, (Φθ*)ᵀ D (Φθ*), as in the paper, which a few processes with values near zero dominate;
of errors as they are; and of the first with none counted as more than 2. `python benchmarks/claims.py --only
selection` measures what a choice costs.

    python benchmarks/selection.py --coverage [--seeds 8] [--write docs/guide/settings.md]

measures, on other seeds, how often 95 % intervals of a model with chosen settings contain the fixed point of the λ that
was chosen, and the best linear fit of the values, over states as often as they are visited; beside intervals of λ = 0.9
and α = 1. The first includes what the choice adds to the error of the weights, the second its bias too.

    python benchmarks/selection.py --folds [--seeds 6] [--write docs/guide/settings.md]

measures a remedy on further seeds: to the variance of each prediction is added the jackknife variance of the choice,
(K − 1)/K Σ (v_k − v̄)², where v_k is the prediction with the pair of the best mean score without fold k.

    python benchmarks/selection.py --held-out [--seeds 8] [--docs]

measures seven kinds of problems that made no rule, those of `held_out.py`, on seeds of their own: for `LSTDCV`, and for
`HorizonLSTD` with λ and α chosen. Pairs have the penalties of `LSTDCV`. The error is that of predictions of rows beside
the best linear fit of their values, divided by the variance of that fit; with horizons, its mean over a quarter of the
horizon, half of it and all of it.
"""

from __future__ import annotations

import argparse
import datetime
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from held_out import KINDS, Problem
from lstd import LSTD, LSTDCV, HorizonLSTD, LSTDStatistics
from lstd.estimators import pair_search
from lstd.experiments.protocol import ALPHAS, LMBDAS, PROBLEMS
from lstd.metrics import observed_returns
from lstd.statistics.system import System
from pages import RESULTS, measure_or_write, newest, show, store, write_between
from problems import OTHER_DRAWS, Case, Data, cut_cases, episodic_cases, other_cases, paper_cases, wide_cases
from provenance import describe_machine, printed_by
from ratios import Ratio, in_turn, timed

Array = NDArray[np.float64]

HOW = """\
`LSTDCV.fit` with a grid of 20 λ and 17 α and 10 folds, on one stream of independent normal features and
rewards. Fits, sums and solves beside it are **timed one at a time and multiplied** by how many there would be; scoring
the folds, which it does too, is left out of them. On one thread, except for the first row."""
N_FEATURES = 100
N_FOLDS = 10

FIRST_SEED = 40_000
COVERAGE_SEED = 60_000
FOLDS_SEED = 70_000
HELD_OUT_SEED = 97_000
MOST_EXCESS = 1.16  # the goal of a kind
WAYS = (
    "LSTDCV",
    "LSTDCV, earlier constants",
    "λ = 0.9, α = 1",
    "λ = 0.9, α = 1/64",
    "trajectories, λ",
    "trajectories, λ, α",
)
MEANS = ("in units of the values", "as they are", "at most 2")
GOALS = {"T": (1.45, 2.0), "10 T": (1.15, np.inf), "20 episodes": (1.2, np.inf), "80 episodes": (1.2, np.inf)}
PLAIN = frozenset(GOALS)  # settings without an intercept, as in the paper
N_RESAMPLES = 400


def main() -> None:
    """Print the tables, and write them with --write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--seeds", type=int, default=8, help="random processes per problem (default: %(default)s)")
    parser.add_argument("--runs", type=int, default=1, help="data sets per process (default: %(default)s)")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="also write the table of --coverage into this page")
    parser.add_argument("--docs", action="store_true", help="write the tables of stored results into their page")
    parser.add_argument("--only", nargs="+", choices=SETTINGS, default=[*SETTINGS], help="some of the data")
    parser.add_argument("--coverage", action="store_true", help="measure intervals of models with chosen settings")
    parser.add_argument("--folds", action="store_true", help="measure intervals that add the choices of the folds")
    parser.add_argument("--held-out", action="store_true", help="measure kinds of problems that made no rule")
    arguments = parser.parse_args()
    results = Path(__file__).resolve().parents[1] / "docs" / "results" / "selection.md"
    if arguments.held_out:
        measure_or_write(
            "held-out",
            "benchmarks/selection.py --held-out",
            results,
            partial(on_held_out, arguments.seeds),
            held_out_table,
            docs=arguments.docs,
        )
        return
    if arguments.folds:
        page = "\n".join(folds_table(arguments))
        print(page)
        if arguments.write:
            write_between(arguments.write, "benchmarks/selection.py --folds", page)
        return
    if arguments.coverage:
        page = "\n".join(coverage_table(arguments))
        print(page)
        if arguments.write:
            write_between(arguments.write, "benchmarks/selection.py --coverage", page)
        return
    if not arguments.docs:
        for name in arguments.only:
            add_to_store(name, measured(name, arguments.seeds, arguments.runs), arguments)
    show("\n".join(tables(newest("selection"))), "benchmarks/selection.py", results if arguments.docs else None)


# ---------------------------------------------------------------- measuring


def paper_length(case: Case) -> int:
    return PROBLEMS[case.name.split(",")[0]].n_steps


SETTINGS: dict[str, tuple[Callable[[int], list[Case]], Callable[[Case, int], Data]]] = {
    "T": (paper_cases, lambda case, seed: case.stream(paper_length(case), seed)),
    "10 T": (paper_cases, lambda case, seed: case.stream(10 * paper_length(case), seed)),
    "20 episodes": (episodic_cases, lambda case, seed: case.episodes(20, seed)),
    "80 episodes": (episodic_cases, lambda case, seed: case.episodes(80, seed)),
    "100 rows": (wide_cases, lambda case, seed: case.stream(100, seed)),
    "other kinds": (other_cases, lambda case, seed: OTHER_DRAWS[case.name](case, seed)),
    "300 cut episodes": (cut_cases, lambda case, seed: case.cut(300, 20, seed)),
    "2000 cut episodes": (cut_cases, lambda case, seed: case.cut(2000, 20, seed)),
}


def measured(name: str, n_seeds: int, n_runs: int) -> dict[str, dict[str, Array]]:
    """Measure, for each problem, errors of ways and of pairs (seeds, runs, …), and the sizes of values (seeds, 1)."""
    count = len(SETTINGS[name][0](FIRST_SEED))
    tasks = [(seed, i) for seed in range(FIRST_SEED, FIRST_SEED + n_seeds) for i in range(count)]
    results: dict[str, dict[str, list[Any]]] = {}
    for done, (problem, ways, pairs, size) in enumerate(
        Parallel(n_jobs=-1, return_as="generator")(delayed(one_seed)(name, seed, i, n_runs) for seed, i in tasks),
        1,
    ):
        entry = results.setdefault(problem, {"ways": [], "pairs": [], "size": []})
        for key, value in (("ways", ways), ("pairs", pairs), ("size", size)):
            entry[key].append(value)
        print(f"\r{name}: {done} of {len(tasks)}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return {problem: {key: np.array(values) for key, values in entry.items()} for problem, entry in results.items()}


def one_seed(setting: str, seed: int, index: int, n_runs: int) -> tuple[str, Array, Array, Array]:
    """Measure the errors on the data sets of one process."""
    cases, draw = SETTINGS[setting]
    case = cases(seed)[index]
    intercept = setting not in PLAIN
    case = replace(case, features=np.column_stack([case.features, np.ones(len(case.features))])) if intercept else case
    best = case.model.best_fit(case.features)
    D = case.model.stationary
    ways = []
    pairs = []
    for run in range(n_runs):
        data = draw(case, 1000 * (seed - FIRST_SEED) + run)

        def error(weights: Array, features: Array = case.features) -> float:
            return float(D @ (features @ (weights - best)) ** 2)

        chosen = [weights_chosen(data, case.model.gamma, intercept, earlier) for earlier in (False, True)]
        grid = all_weights(data, case.model.gamma, intercept)
        fixed = [grid[0.9][alpha] for alpha in (1.0, 1 / 64)]
        left = [left_out(data, case.model.gamma, grid, alphas) for alphas in ([1 / 64], ALPHAS.tolist())]
        ways.append([*map(error, chosen + fixed + left)])
        pairs.append([error(weights) for row in grid.values() for weights in row.values()])
    return case.name, np.array(ways), np.array(pairs), np.array([D @ (case.features @ best) ** 2])


def weights_chosen(data: Data, gamma: float, intercept: bool, earlier: bool) -> Array:
    """Compute the weights of the pair that LSTDCV chooses, with its earlier constants or those it has."""
    X = data.X[:, :-1] if intercept else data.X
    alphas, penalty = (ALPHAS * np.mean(np.sum(X**2, axis=1)), np.ones(X.shape[1])) if earlier else (None, None)
    with earlier_constants() if earlier else nullcontext():
        model = LSTDCV(gamma, alphas=alphas, penalty=penalty, fit_intercept=intercept, n_blocks=0)
        model.fit(X, data.y, **data.columns)
    return np.append(model.coef_, model.intercept_) if intercept else model.coef_


# ---------------------------------------------------------------- coverage of intervals


def coverage_table(arguments: argparse.Namespace) -> list[str]:
    """Coverage of 95 % intervals of chosen and of fixed settings, by kind of data, with standard errors over seeds."""
    command = f"python benchmarks/selection.py --coverage --seeds {arguments.seeds}"
    lines = [
        f"{printed_by(command)} One data set of each problem and process; seeds from {COVERAGE_SEED}.",
        "",
        "| data | chosen settings: fixed point | best linear fit | λ = 0.9, α = 1: fixed point | width ÷ that |",
        "|---|---|---|---|---|",
    ]
    for name in arguments.only:
        count = len(SETTINGS[name][0](COVERAGE_SEED))
        tasks = [(name, COVERAGE_SEED + seed, i) for seed in range(arguments.seeds) for i in range(count)]
        found = np.array(Parallel(n_jobs=1)(delayed(covered)(*task) for task in tasks)).reshape(
            arguments.seeds, count, 4
        )
        mean = found.mean(axis=(0, 1))
        error = found.mean(axis=1).std(axis=0, ddof=1) / np.sqrt(arguments.seeds)
        worst = found.mean(axis=0).min(axis=0)
        cells = [f"{mean[j]:.3f} ± {error[j]:.3f}, worst {worst[j]:.2f}" for j in range(3)]
        lines.append(f"| {name} | {' | '.join(cells)} | {mean[3]:.2f} |")
        print(lines[-1], file=sys.stderr, flush=True)
    return lines


def covered(setting: str, seed: int, index: int) -> Array:
    """Shares of states, as often as they are visited, whose intervals hold the fixed points and the best fit."""
    cases, draw = SETTINGS[setting]
    case = cases(seed)[index]
    intercept = setting not in PLAIN
    features = np.column_stack([case.features, np.ones(len(case.features))]) if intercept else case.features
    data = draw(replace(case, features=features), 1000 * (seed - COVERAGE_SEED))
    D = case.model.stationary
    model = case.model
    X = data.X[:, :-1] if intercept else data.X
    chosen = LSTDCV(model.gamma, fit_intercept=intercept).fit(X, data.y, **data.columns)
    fixed = LSTD(model.gamma, fit_intercept=intercept).fit(X, data.y, **data.columns)
    best = features @ model.best_fit(features)
    intervals = [one.predict_interval(case.features) for one in (chosen, fixed)]
    points = [features @ model.fixed_point(features, lmbda) for lmbda in (chosen.lmbda_, 0.9)]
    pairs = [(intervals[0], points[0]), (intervals[0], best), (intervals[1], points[1])]
    shares = [float(D @ ((one.lower <= point) & (point <= one.upper))) for one, point in pairs]
    widths = [np.median((one.upper - one.lower)[D > 0]) for one in intervals]
    return np.array([*shares, widths[0] / widths[1]])


def folds_table(arguments: argparse.Namespace) -> list[str]:
    """Coverage of the fixed point and the best linear fit without and with the choices of the folds."""
    command = f"python benchmarks/selection.py --folds --seeds {arguments.seeds}"
    lines = [
        f"{printed_by(command)} One data set of each problem and process; seeds from {FOLDS_SEED}.",
        "",
        "| data | fixed point | with the choices of the folds | best linear fit | with them | width ÷ that without |",
        "|---|---|---|---|---|---|",
    ]
    for name in arguments.only:
        tasks = [(seed, i) for seed in range(arguments.seeds) for i in range(len(SETTINGS[name][0](FOLDS_SEED)))]
        found = np.array([with_folds(name, FOLDS_SEED + seed, i) for seed, i in tasks])
        found = found.reshape(arguments.seeds, -1, 5)
        mean = found.mean(axis=(0, 1))
        error = found.mean(axis=1).std(axis=0, ddof=1) / np.sqrt(arguments.seeds)
        cells = [f"{mean[j]:.3f} ± {error[j]:.3f}" for j in range(4)]
        lines.append(f"| {name} | {' | '.join(cells)} | {np.nanmedian(found[..., 4]):.2f} |")
        print(lines[-1], file=sys.stderr, flush=True)
    return lines


def with_folds(setting: str, seed: int, index: int) -> Array:
    """Shares of states whose intervals hold the fixed point and the best fit, without and with the folds' choices."""
    cases, draw = SETTINGS[setting]
    case = cases(seed)[index]
    intercept = setting not in PLAIN
    features = np.column_stack([case.features, np.ones(len(case.features))]) if intercept else case.features
    data = draw(replace(case, features=features), 1000 * (seed - FOLDS_SEED))
    D = case.model.stationary
    X = data.X[:, :-1] if intercept else data.X
    gamma = case.model.gamma
    model = LSTDCV(gamma, fit_intercept=intercept).fit(X, data.y, **data.columns)
    grid = model.cv_results_
    made = []
    scores = np.array([grid[name] for name in grid if name.startswith("split")])
    for k in range(len(scores)):
        j = int(np.nanargmax(np.nanmean(np.delete(scores, k, axis=0), axis=0)))
        ridge = grid["alpha"][j] * model.ridge_ / model.alpha_
        pair = LSTD(gamma, lmbda=grid["lmbda"][j], alpha=ridge, fit_intercept=intercept, n_blocks=0)
        made.append(pair.fit(X, data.y, **data.columns).predict(case.features))
    interval = model.predict_interval(case.features)
    half = (interval.upper - interval.lower) / 2
    quantile = half / np.maximum(interval.standard_error, np.finfo(float).tiny)
    wide = np.sqrt(half**2 + quantile**2 * (len(made) - 1) * np.var(made, axis=0))
    points = features @ case.model.fixed_point(features, model.lmbda_), features @ case.model.best_fit(features)
    shares = [float(D @ (np.abs(interval.prediction - point) <= h)) for point in points for h in (half, wide)]
    return np.array([*shares, np.median((wide / half)[D > 0])])


@contextmanager
def earlier_constants() -> Iterator[None]:
    """Give the choice the constants that it had before."""
    kept = pair_search.STAGES, pair_search.CAUTION_OF_ROWS
    pair_search.STAGES, pair_search.CAUTION_OF_ROWS = (0.98, 0.98, 1.0), 0.5
    try:
        yield
    finally:
        pair_search.STAGES, pair_search.CAUTION_OF_ROWS = kept


def all_weights(data: Data, gamma: float, intercept: bool) -> dict[float, dict[float, Array]]:
    """Compute the weights of every pair, α in units of the mean squared length of a row."""
    X, y, columns = data[:3]
    penalty = np.arange(X.shape[1]) < X.shape[1] - intercept
    unit = float(np.mean(np.sum(X[:, penalty] ** 2, axis=1)))
    weights: dict[float, dict[float, Array]] = {}
    for lmbda in LMBDAS.tolist():
        sums = LSTDStatistics.from_arrays(X, y, gamma=gamma, lmbda=lmbda, **columns)
        system = System.of(sums, "boyan", np.zeros(len(penalty)), intercept=False)
        weights[lmbda] = {
            alpha: system.with_ridge(alpha * unit * penalty).solve().weights[:, 0] for alpha in ALPHAS.tolist()
        }
    return weights


def left_out(data: Data, gamma: float, grid: dict[float, dict[float, Array]], alphas: list[float]) -> Array:
    """Choose from a grid the pair whose weights without each episode predict its returns best; NaN unless all end."""
    X, y, columns = data[:3]
    last = np.append(np.diff(columns.get("episode", np.zeros(len(y)))) != 0, True)
    if not columns.get("terminated", np.zeros(len(y), bool))[last].all():
        return np.full(X.shape[1], np.nan)
    starts = np.flatnonzero(np.append(True, columns["terminated"][:-1]))
    unit = float(np.mean(np.sum(X**2, axis=1)))
    best = np.inf
    chosen = np.full(X.shape[1], np.nan)
    parts = [slice(start, stop) for start, stop in zip(starts, [*starts[1:], len(y)], strict=True)]
    returns = observed_returns(y, gamma=gamma, prediction=np.zeros(len(y)), terminated=columns["terminated"]).returns
    for lmbda in grid:
        sums = [
            LSTDStatistics.from_arrays(X[p], y[p], terminated=columns["terminated"][p], gamma=gamma, lmbda=lmbda)
            for p in parts
        ]
        A = np.array([one.matrix("boyan") for one in sums])
        b = np.array([one.b[:, 0] for one in sums])
        for alpha in alphas:
            ridge = alpha * unit * (1 - 1 / len(parts)) * np.eye(X.shape[1])
            weights = np.linalg.solve(A.sum(axis=0) - A + ridge, (b.sum(axis=0) - b)[..., np.newaxis])[..., 0]
            off = sum(np.sum((X[p] @ w - returns[p]) ** 2) for p, w in zip(parts, weights, strict=True))
            if off < best:
                best = off
                chosen = grid[lmbda][alpha]
    return chosen


# ---------------------------------------------------------------- kinds that made no rule


def on_held_out(n_seeds: int) -> dict[str, Any]:
    """Measure the excess of choices and of the defaults over the best pair in hindsight, by problem."""
    rows = []
    for kind, problems in KINDS.items():
        found: dict[str, list[dict[str, Any]]] = {}
        for seed in range(HELD_OUT_SEED, HELD_OUT_SEED + n_seeds):
            for problem in problems(seed):
                found.setdefault(problem.name, []).append(on_problem(problem, seed))
        for name, draws in found.items():
            row: dict[str, Any] = {"kind": kind, "problem": name}
            for model in ("LSTDCV", "HorizonLSTD"):
                pairs = np.array([draw[f"{model} pairs"] for draw in draws])
                for what in ("chosen", "defaults"):
                    errors = np.array([draw[f"{model} {what}"] for draw in draws])
                    row |= excess_with_error(f"{model} {what}", errors, pairs)
            rows.append(row)
            print(f"{kind} | {name} | {row['LSTDCV chosen']:.2f} | {row['HorizonLSTD chosen']:.2f}", flush=True)
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    return {"date": date, "seeds": n_seeds, "machine": describe_machine(), "rows": rows}


def excess_with_error(name: str, errors: Array, pairs: Array) -> dict[str, float]:
    """Return the mean error of draws (S,) over that of the best pair (S, pairs), and the standard error of its log."""
    random = np.random.default_rng(0)
    every = np.arange(len(errors))
    resampled = random.integers(0, len(errors), (N_RESAMPLES, len(errors)))
    excesses = [errors[draws].mean() / pairs[draws].mean(axis=0).min() for draws in (every, *resampled)]
    return {name: float(excesses[0]), f"{name}, error": float(np.std(np.log(excesses[1:])))}


def on_problem(problem: Problem, seed: int) -> dict[str, Any]:
    """Compute the errors of both models, with settings chosen and with the defaults, and of all pairs, on one draw."""
    data = problem.draw(seed)
    test = problem.test()
    ones = np.column_stack([test.X, np.ones(len(test.X))])
    error = error_beside_best_fit(ones, test.weight, [test.value])
    chosen = LSTDCV(problem.gamma, n_blocks=0).fit(data.X, data.y, **data.columns)
    defaults = LSTD(problem.gamma, n_blocks=0).fit(data.X, data.y, **data.columns)
    found: dict[str, Any] = {
        "LSTDCV chosen": error([chosen.predict(test.X)]),
        "LSTDCV defaults": error([defaults.predict(test.X)]),
        "LSTDCV pairs": [error([ones @ weights]) for weights in pairs_of(chosen, data)],
    }

    h = problem.horizon
    some = [max(1, h // 4), h // 2, h]
    error = error_beside_best_fit(ones, test.weight, [test.steps[k] for k in some])
    model = HorizonLSTD(h, lmbda="auto", alpha="auto", check=False).fit(data.X, data.y, **data.columns)
    usual = HorizonLSTD(h, check=False).fit(data.X, data.y, **data.columns)
    found["HorizonLSTD chosen"] = error([model.predict(test.X, horizon=k) for k in some])
    found["HorizonLSTD defaults"] = error([usual.predict(test.X, horizon=k) for k in some])
    found["HorizonLSTD pairs"] = [error([ones @ theta[k - 1] for k in some]) for theta in all_horizons(model)]
    return found


def error_beside_best_fit(ones: Array, weight: Array, values: list[Array]) -> Callable[[list[Array]], float]:
    """Return what computes the mean squared distance of predictions from the best linear fits, by their variance."""
    root = np.sqrt(weight)[:, np.newaxis]
    fits = [ones @ np.linalg.lstsq(ones * root, value * root[:, 0], rcond=None)[0] for value in values]
    units = [weight @ (fit - weight @ fit) ** 2 for fit in fits]

    def error(predictions: list[Array]) -> float:
        off = [weight @ (one - fit) ** 2 for one, fit in zip(predictions, fits, strict=True)]
        return float(np.mean(np.array(off) / units))

    return error


def pairs_of(chosen: LSTDCV, data: Data) -> Iterator[Array]:
    """Yield the weights of all pairs with the penalties of a choice, the intercept last."""
    full = ~np.isnan(data.y)
    penalty = np.append(chosen.ridge_ / chosen.alpha_, 0.0)
    variance = np.var(data.X[full], axis=0)
    unit = float(np.sum(variance / penalty[:-1]))
    ones = np.column_stack([data.X, np.ones(len(data.X))])
    rewards = np.nan_to_num(data.y)
    for lmbda in LMBDAS.tolist():
        sums = LSTDStatistics.from_arrays(ones, rewards, gamma=chosen.gamma, lmbda=lmbda, **data.columns)
        system = System.of(sums, "boyan", np.zeros(len(penalty)), intercept=False)
        for alpha in ALPHAS.tolist():
            yield system.with_ridge(alpha * unit * penalty).solve().weights[:, 0]


def all_horizons(model: HorizonLSTD) -> Iterator[Array]:
    """Yield the weights of all horizons, (H, n + 1), for all pairs of the grid."""
    state = model.model_
    results = model.cv_results_
    for lmbda, alpha in zip(results["lmbda"], results["alpha"], strict=True):
        theta = state.recursion(state.total, float(lmbda), float(alpha)).run()
        yield state.uncentred(theta)[:, :, 0]


def held_out_table(found: dict[str, Any]) -> Iterator[str]:
    """Yield a row for each kind, and one for each problem."""
    columns = ("LSTDCV chosen", "LSTDCV defaults", "HorizonLSTD chosen", "HorizonLSTD defaults")
    kinds = list(dict.fromkeys(row["kind"] for row in found["rows"]))
    yield f"Measured by `python benchmarks/selection.py --held-out --seeds {found['seeds']}` on {found['date']}. Seeds"
    yield f"from {HELD_OUT_SEED}. Errors are divided by those of the best pair in hindsight; ± is over seeds."
    yield ""
    yield f"| kind | problem | `LSTDCV` | λ = 0.9, α = 1 | `HorizonLSTD` | its defaults | goal ≤ {MOST_EXCESS} |"
    yield "|---|---|---|---|---|---|---|"
    for kind in kinds:
        rows = [row for row in found["rows"] if row["kind"] == kind]
        means = [float(np.exp(np.mean(np.log([row[column] for row in rows])))) for column in columns]
        both = [means[0] <= MOST_EXCESS, means[2] <= MOST_EXCESS]
        met = " and ".join("met" if one else "missed" for one in both)
        errors = [float(np.linalg.norm([row[f"{column}, error"] for row in rows])) / len(rows) for column in columns]
        yield f"| **{kind}** | geometric mean | {excesses_with_errors(means, errors)} | {met} |"
        for row in rows:
            means = [row[column] for column in columns]
            errors = [row[f"{column}, error"] for column in columns]
            yield f"| | {row['problem']} | {excesses_with_errors(means, errors)} | |"


def excesses_with_errors(means: Sequence[float], errors: Sequence[float]) -> str:
    """Return cells of excesses and their standard errors, given those of their logarithms."""
    return " | ".join(f"{mean:.2f} ± {mean * error:.2f}" for mean, error in zip(means, errors, strict=True))


# ---------------------------------------------------------------- tables


def excess(entry: dict[str, Array], mean: str, seeds: NDArray[np.intp]) -> Array:
    """Excess of each way on one problem, over a selection of seeds, (ways,)."""
    ways = entry["ways"][seeds]
    pairs = entry["pairs"][seeds]
    if mean != "as they are":
        size = entry["size"][seeds][:, np.newaxis]
        ways = ways / size
        pairs = pairs / size
    if mean == "at most 2":
        ways = np.minimum(ways, 2.0)
        pairs = np.minimum(pairs, 2.0)
    return np.asarray(ways.mean(axis=(0, 1)) / pairs.mean(axis=(0, 1)).min())


def add_to_store(name: str, problems: dict[str, dict[str, Array]], arguments: argparse.Namespace) -> None:
    """Store the excesses of one kind of data, by problem and as geometric means, beside those of other kinds."""
    random = np.random.default_rng(0)
    rows = []
    n_seeds = len(next(iter(problems.values()))["ways"])
    for mean in MEANS:
        whole = {key: excess(entry, mean, np.arange(n_seeds)) for key, entry in problems.items()}
        again = []
        for _ in range(N_RESAMPLES):
            seeds = random.integers(0, n_seeds, n_seeds)
            again.append(np.mean(np.log([excess(entry, mean, seeds) for entry in problems.values()]), axis=0))
        centre = np.exp(np.mean(np.log([*whole.values()]), axis=0))
        error = np.std(again, axis=0)
        numbers = {"centre": centre, "error": centre * error, "worst": np.max([*whole.values()], axis=0)}
        rows.append({"mean": mean, **{key: value.tolist() for key, value in numbers.items()}})
        rows[-1]["problems"] = {key: value[0] for key, value in whole.items()}
    found = newest("selection") if [*RESULTS.glob("selection-*.json")] else {"data": {}}
    how = {"seeds": arguments.seeds, "runs": arguments.runs, "date": str(datetime.date.today())}
    found["data"][name] = how | {"machine": describe_machine(), "means": rows}
    order = {key: found["data"][key] for key in SETTINGS if key in found["data"]}
    store("selection", {"date": how["date"], "data": order})


def tables(found: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of both tables: means over the problems of each kind of data, and each problem."""
    data = found["data"]
    dates = sorted({f"{one['date']} ({one['seeds']} processes, {one['runs']} data set each)" for one in data.values()})
    yield f"Measured by `python benchmarks/selection.py` on {' and '.join(dates)}. Process seeds from {FIRST_SEED}."
    yield "Excess over the best pair in hindsight: geometric mean over the problems with its standard error over"
    yield "processes, and the worst problem."
    yield from ("", "| data | means of errors | " + " | ".join(WAYS) + " | goal for LSTDCV |")
    yield "|---|---|" + "---|" * (len(WAYS) + 1)
    for name, one in data.items():
        for row in one["means"]:
            cells = [
                f"{middle:.2f} ± {off:.2f}, worst {worst:.2f}" if np.isfinite(middle) else "–"
                for middle, off, worst in zip(row["centre"], row["error"], row["worst"], strict=True)
            ]
            met = verdict(name, row["mean"], row["centre"][0], row["worst"][0])
            yield f"| {name} | {row['mean']} | {' | '.join(cells)} | {met} |"
    yield from ("", "| data | problem | " + " | ".join(MEANS) + " |", "|---|---|" + "---|" * len(MEANS))
    for name, one in data.items():
        for problem in one["means"][0]["problems"]:
            cells = [f"{row['problems'][problem]:.2f}" for row in one["means"]]
            yield f"| {name} | {problem} | {' | '.join(cells)} |"


def verdict(name: str, mean: str, centre: float, worst: float) -> str:
    if mean != MEANS[0] or name not in GOALS:
        return ""
    most, most_worst = GOALS[name]
    met = centre <= most and worst <= most_worst
    goal = f"≤ {most}" + ("" if np.isinf(most_worst) else f", worst ≤ {most_worst}")
    return f"{goal}: {'met' if met else 'missed'}"


def ratios(quick: bool = False) -> Iterator[Ratio]:
    """Time `LSTDCV.fit` with the grid of the paper."""
    n_rows, pairs = (2000, 2) if quick else (100_000, 5)
    random = np.random.default_rng(0)
    X = random.normal(size=(n_rows, N_FEATURES))
    y = random.normal(size=n_rows)
    data = f"of {n_rows} rows of {N_FEATURES} features"
    seconds = in_turn(partial(_choose, X, y, 2), partial(_choose, X, y, 1), pairs)
    yield Ratio(f"`LSTDCV.fit` {data}, two jobs beside one", *seconds)
    with threadpool_limits(1):
        seconds = in_turn(partial(_choose, X, y, 1), partial(LSTD().fit, X, y), pairs)
        yield Ratio(f"`LSTDCV.fit` {data}, one job, beside one `LSTD.fit`", *seconds, cost=True)
        fold = slice(n_rows // N_FOLDS, None)
        sample = LSTD(n_blocks=0)
        choice, fits = in_turn(partial(_choose, X, y, 1), partial(sample.fit, X[fold], y[fold]), pairs)
        choice_again, sums = in_turn(partial(_choose, X, y, 1), partial(_sum, X[fold], y[fold]), pairs)
        solves = [timed(partial(_sum(X[fold], y[fold]).solve, 1.0)) for _ in range(pairs)]
    n_sums = N_FOLDS * len(LMBDAS)
    n_fits = n_sums * len(ALPHAS)
    yield Ratio(
        f"`LSTDCV.fit` {data}, one job, beside {n_fits} fits, one per fold, λ and α",
        choice,
        [n_fits * each for each in fits],
    )
    yield Ratio(
        f"`LSTDCV.fit` {data}, one job, beside sums per fold and λ, a solve for each α",
        choice_again,
        [n_sums * one + n_fits * each for one, each in zip(sums, solves, strict=True)],
    )


def _choose(X: Array, y: Array, n_jobs: int) -> None:
    LSTDCV(alphas=ALPHAS, n_jobs=n_jobs).fit(X, y)


def _sum(X: Array, y: Array) -> LSTDStatistics:
    return LSTDStatistics.from_arrays(X, y, gamma=0.99, lmbda=0.9)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
