"""Purchases and spending that followed in two logs of `lifetimes`: LSTD beside BG/NBD and Gamma-Gamma models.

Run by `real_logs.py`. Both logs are read from the installed package. Nobody says goodbye: no row terminates. LSTD
predicts in two ways: `LSTDCV` with γ = 0.98 per week, on the set of features that a backtest of the last weeks prefers;
and windows, whose weeks to go are part of the state, with the λ and α that predict the last weeks best.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from lifetimes import BetaGeoFitter, GammaGammaFitter
from lifetimes.datasets import load_dataset, load_transaction_data
from lifetimes.utils import ConvergenceError

from customer_value import Histories
from lstd import LSTDCV, LSTDStatistics
from lstd.metrics import backtest

GAMMA = 0.98
SIZES = ((200, 4), (1000, 4), (None, 1))  # customers and samples
LMBDAS = (0.0, 0.5, 0.9, 1.0)
ALPHAS = tuple(10.0 ** np.arange(-1.0, 5.5, 0.5))


class Purchases(Histories):
    """Days with a repeat purchase, and what was spent on them, by customer and week."""

    def __init__(self, table: pd.DataFrame, known: int, ahead: int, last: int) -> None:
        days = table.groupby(["id", "day"], as_index=False)["spend"].sum()
        days = days[days.groupby("id")["day"].transform("min") < 7 * known]
        days = days[days["day"] < 7 * (known + ahead)]
        who = np.unique(days["id"], return_inverse=True)[1]
        day = days["day"].to_numpy()
        self.known = known
        self.ahead = ahead
        self.check = last
        self.n = int(who.max()) + 1
        self.first = day[np.searchsorted(who, np.arange(self.n))]
        self.start = self.first // 7
        self.counts, last_day = np.zeros((2, self.n, known + ahead), dtype=np.int64)
        self.spent = np.zeros((self.n, known + ahead))
        repeat = day > self.first[who]
        np.add.at(self.counts, (who[repeat], day[repeat] // 7), 1)
        np.add.at(self.spent, (who[repeat], day[repeat] // 7), days["spend"].to_numpy()[repeat])
        np.maximum.at(last_day, (who, day // 7), day)
        self.last = np.maximum.accumulate(last_day, axis=1)
        self.frequency, self.total = self.counts.cumsum(axis=1), self.spent.cumsum(axis=1)

    def sample(self, size: int | None, seed: int) -> Any:
        """Draw customers; all of them without a size."""
        return np.arange(self.n) if size is None else np.random.default_rng(seed).choice(self.n, size, replace=False)

    def functions(self, customer: Any, week: Any, size: Any) -> dict[str, list[Any]]:
        """Functions of frequency, recency and age after a week; rates are multiplied by the size of a purchase."""
        x, t_x, age = self.summary(customer, week)
        since = age - t_x
        lately = np.exp(-since / 4)
        recently = np.exp(-since / 13)
        rate = size * (x + 0.25) / (age + 4)
        often = size * np.log1p(x)
        few = [rate, np.minimum(since, 13), rate * recently]
        more = [rate, lately, recently, rate * lately]
        mixed = [f * g for f in (often, rate) for g in (1.0, lately, recently)]
        every = [np.log1p(age) / 3, lately, recently, *mixed]
        return {"few": few, "products": [*more, rate * recently], "all": every}


def logs() -> Iterator[tuple[str, Purchases, tuple[str, ...]]]:
    """Yield names, purchases and measures."""
    names = ["all", "id", "date", "discs", "spend"]
    table = load_dataset("CDNOW_sample.txt", header=None, sep=r"\s+", names=names)
    table["day"] = (pd.to_datetime(table["date"].astype(str)) - pd.Timestamp("1997-01-01")).dt.days
    yield "CDNOW", Purchases(table, 39, 39, 13), ("purchases", "spending")
    table = load_transaction_data().assign(spend=1.0)
    table["day"] = (pd.to_datetime(table["date"]) - pd.Timestamp("2014-01-01")).dt.days
    yield "transactions of lifetimes", Purchases(table, 26, 26, 8), ("purchases",)


def size_of(log: Purchases, who: Any, customer: Any, week: Any, measure: str) -> Any:
    """Mean size of a customer's purchases so far, shrunken by three purchases of the mean; 1 for purchases."""
    if measure == "purchases":
        return np.ones(len(week))
    mean = log.total[who, log.known - 1].sum() / log.frequency[who, log.known - 1].sum()
    return (log.total[customer, week] + 3 * mean) / (log.frequency[customer, week] + 3) / mean


def weeks(log: Purchases, who: Any, end: int) -> tuple[Any, Any]:
    """Return customer and week of every row, from each customer's first week to week `end`."""
    who = who[log.start[who] < end]
    return np.repeat(who, end - log.start[who]), np.concatenate([np.arange(s, end) for s in log.start[who]])


def by_backtest(log: Purchases, who: Any, measure: str) -> tuple[Any, float]:
    """Predict the discounted sum with `LSTDCV`, by the features with the best R² in a backtest of the last weeks."""
    rewards = log.counts if measure == "purchases" else log.spent
    customer, week = weeks(log, who, log.known)
    reward = np.where(week == log.known - 1, np.nan, rewards[customer, np.minimum(week + 1, log.known - 1)])
    fit = {"episode": customer, "terminated": np.zeros(len(week), dtype=bool)}
    sets = log.functions(customer, week, size_of(log, who, customer, week, measure))
    when = {"cut": log.known - 1 - log.check, "steps": log.check, "time": week}
    model = LSTDCV(GAMMA, LMBDAS, n_blocks=0)
    scores = {}
    for name, columns in sets.items():
        scores[name] = float(backtest(model, np.column_stack(columns), reward, **fit, **when).r2)
    best = max(scores, key=scores.__getitem__)
    model.fit(np.column_stack(sets[best]), reward, **fit)
    now = np.full(len(who), log.known - 1)
    features = log.functions(who, now, size_of(log, who, who, now, measure))[best]
    return (1 - GAMMA**log.ahead) * model.predict(np.column_stack(features)), scores[best]


def windowed(log: Purchases, who: Any, customer: Any, week: Any, to_go: Any, measure: str) -> Any:
    """Multiply functions of the customer by functions of the weeks to go, which vanish with them; shape (rows, 30)."""
    state = log.functions(customer, week, size_of(log, who, customer, week, measure))["all"]
    left = to_go / log.ahead
    horizon = np.column_stack([left, left**2, 1 - np.exp(-6 * left)])
    return np.einsum("ri,rj->rij", np.column_stack([np.ones(len(week)), *state]), horizon).reshape(len(week), -1)


def windows(log: Purchases, who: Any, end: int, measure: str) -> dict[str, Any]:
    """Return rows of windows of a third, two thirds and the whole of the weeks to predict, up to week `end`."""
    rewards = log.counts if measure == "purchases" else log.spent
    parts = []
    customer, week = weeks(log, who, end)
    cut = week == end - 1
    passed = week - log.start[customer]
    reward = np.where(cut, np.nan, rewards[customer, np.minimum(week + 1, end - 1)])
    for number, length in enumerate(log.ahead * k // 3 for k in (1, 2, 3)):
        to_go = length - passed % length
        episode = (number * log.n + customer) * 100 + passed // length
        parts.append((windowed(log, who, customer, week, to_go, measure), reward, episode, (to_go == 1) & ~cut))
    columns = (np.concatenate(column) for column in zip(*parts, strict=True))
    return dict(zip(("X", "y", "episode", "terminated"), columns, strict=True))


def by_windows(log: Purchases, who: Any, measure: str) -> tuple[Any, float]:
    """Predict the sum without discount, by the λ and α with the best R² in the last weeks, given the weeks before."""
    rewards = log.counts if measure == "purchases" else log.spent
    cut = log.known - log.check
    then = who[log.start[who] < cut]
    past = np.full(len(then), cut - 1)
    seen = rewards[then, cut : log.known].sum(axis=1)
    X = windowed(log, who, then, past, np.full(len(then), log.check), measure)
    errors = {}
    arrays = windows(log, who, cut, measure)
    spread = np.mean(arrays["X"] ** 2, axis=0)
    for lmbda in LMBDAS:
        sums = LSTDStatistics.from_arrays(**arrays, gamma=1.0, lmbda=lmbda)
        for alpha in ALPHAS:
            errors[lmbda, alpha] = np.mean((X @ sums.solve(alpha * spread, "boyan").weights - seen) ** 2)
    lmbda, alpha = min(errors, key=errors.__getitem__)
    sums = LSTDStatistics.from_arrays(**windows(log, who, log.known, measure), gamma=1.0, lmbda=lmbda)
    now = np.full(len(who), log.known - 1)
    X = windowed(log, who, who, now, np.full(len(who), log.ahead), measure)
    score = 1 - errors[lmbda, alpha] / seen.var()
    return X @ sums.solve(alpha * spread, "boyan").weights, float(score)


def fitted_bg_nbd(x: Any, t_x: Any, age: Any) -> Any:
    """Fit a BG/NBD model, with the smallest penalty with which it converges."""
    for penalty in (0.0, 0.001, 0.01):
        with contextlib.suppress(ConvergenceError), contextlib.redirect_stdout(None):
            return BetaGeoFitter(penalizer_coef=penalty).fit(x, t_x, age)
    return BetaGeoFitter(penalizer_coef=0.1).fit(x, t_x, age)


def by_bg_nbd(log: Purchases, who: Any, measure: str, gamma: float) -> Any:
    """Predict the sum with a BG/NBD model of purchases and a Gamma-Gamma model of their sizes."""
    x, t_x, age = log.summary(who, log.known - 1)
    model = fitted_bg_nbd(x, t_x, age)
    later = [model.conditional_expected_number_of_purchases_up_to_time(k, x, t_x, age) for k in range(1, log.ahead + 1)]
    predicted = np.diff(np.array(later).T, axis=1, prepend=0.0) @ gamma ** np.arange(log.ahead)
    if measure == "purchases":
        return predicted
    mean = log.total[who, log.known - 1] / np.maximum(1, x)
    bought = mean > 0.0
    sizes = GammaGammaFitter().fit(x[bought], mean[bought], q_constraint=True)
    return predicted * np.asarray(sizes.conditional_expected_average_profit(x, mean))


WAYS: dict[str, tuple[float, Callable[[Purchases, Any, str], tuple[Any, float]]]] = {
    f"LSTDCV, γ = {GAMMA}": (GAMMA, by_backtest),
    "windows": (1.0, by_windows),
}


def measured() -> list[dict[str, Any]]:
    """Root mean square errors of both sides, and R² in the last weeks, by log, measure, way and size."""
    found = []
    for name, log, measures in logs():
        for measure, (way, (gamma, method)), (size, samples) in product(measures, WAYS.items(), SIZES):
            rewards = log.counts if measure == "purchases" else log.spent
            errors = []
            scores = []
            for seed in range(samples):
                who = log.sample(size, seed)
                followed = rewards[who, log.known :] @ gamma ** np.arange(log.ahead)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    predicted, score = method(log, who, measure)
                    other = by_bg_nbd(log, who, measure, gamma)
                errors.append([float(np.sqrt(np.mean((one - followed) ** 2))) for one in (predicted, other)])
                scores.append(score)
            about = {"log": name, "measure": f"{measure} of {log.ahead} weeks", "way": way, "size": size or log.n}
            ours, theirs = np.array(errors).T.tolist()
            found.append(about | {"lstd": ours, "theirs": theirs, "score": scores})
            print(found[-1]["log"], measure, way, size, np.median(np.divide(ours, theirs)), flush=True)
    return found
