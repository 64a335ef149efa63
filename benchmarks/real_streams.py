"""Predictions at every step of series of `statsmodels` and `pmdarima`: RecursiveLSTD beside ridge, TD and smoothing.

Run by `real_logs.py`. The series are read from the installed packages, and standardised by their first half. Predicted
is the discounted sum of all later values, with a smaller γ in shorter series, so that enough sums are observed.
Features are a one, the last values and, if the series has a season, the values a season before the next two and three
waves of the season. Every prediction is made before the values that it is for; the error is the root mean square in the
second half, in rows of whose sum at most 1 % was not observed.

`RecursiveLSTD` runs with its defaults, with forgetting="auto", as Uncorrected, with the λ and α that `LSTDCV` chooses
in the first half ("chosen"), and with every pair of that grid ("best pair": the least error). Ridge is `RidgeCV` on the
sums that are observed, fitted again and again; true online TD has the step size that was best in the first half.
Smoothing is exponential, additive with the season if there is one, and with a damped trend if AIC prefers that; it is
fitted ten times, and its forecasts are discounted. The mean of the series so far, as if it went on, is the base.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pmdarima.datasets as pmdarima
from numpy.typing import NDArray
from sklearn.linear_model import RidgeCV
from statsmodels import datasets as statsmodels
from statsmodels.tsa.holtwinters import ExponentialSmoothing

from lstd import LSTDCV, RecursiveLSTD, TrueOnlineTD
from lstd.data.returns import discounted_returns
from lstd.errors import InvalidInputError

Array = NDArray[np.float64]

LAGS = 4
WAVES = 3
NEGLIGIBLE = 0.01
LMBDAS = (0.0, 0.3, 0.6, 0.8, 0.9, 0.95, 1.0)
ALPHAS = tuple(2.0 ** np.arange(-8, 9, 2))
STEP_SIZES = 10.0 ** np.arange(-4.0, 0.25, 0.25)  # divided by the largest squared length of the features
RIDGES = 10.0 ** np.arange(-3, 4)
REFITS = 100
FORECASTS = 10


class Stream(NamedTuple):
    """Rows, rewards, the discount, sums that followed with the share not observed, the series and its season."""

    X: Array
    y: Array
    gamma: float
    returns: Array
    unobserved: Array
    series: Array
    season: int

    def error(self, predicted: Array, first: int, stop: int) -> float:
        """Root mean square error from a row on, with the sums that are observed before another."""
        rows = np.arange(first, stop)
        rows = rows[self.unobserved[rows] / self.unobserved[stop - 1] <= NEGLIGIBLE]
        return float(np.sqrt(np.mean((predicted - self.returns)[rows] ** 2)))


def logs() -> Iterator[tuple[str, Any, int]]:
    """Yield names, series and seasons."""
    macro = statsmodels.macrodata.load_pandas().data
    volume = pmdarima.load_msft()["Volume"]
    yield "sunspots, years", statsmodels.sunspots.load_pandas().data["SUNACTIVITY"], 0
    yield "nile", statsmodels.nile.load_pandas().data["volume"], 0
    yield "co2", statsmodels.co2.load_pandas().data["co2"].interpolate(), 52
    yield "elnino", statsmodels.elnino.load_pandas().data.drop(columns="YEAR").to_numpy().ravel(), 12
    yield "macrodata: inflation", macro["infl"], 0
    yield "macrodata: unemployment", macro["unemp"], 0
    yield "interest_inflation: interest", statsmodels.interest_inflation.load_pandas().data["R"], 0
    yield "msft: log of volume", np.log(volume[volume > 0]), 0
    yield "sunspots, months", pmdarima.load_sunspots(), 0
    for name, season in {"airpassengers": 12, "ausbeer": 4, "austres": 4, "heartrate": 0, "lynx": 0}.items():
        series = getattr(pmdarima, f"load_{name}")()
        yield name, series[~np.isnan(series)], season
    for name, season in {"taylor": 48, "wineind": 12, "woolyrnq": 4}.items():
        yield name, getattr(pmdarima, f"load_{name}")(), season


def stream(series: Any, season: int) -> Stream:
    """Make rows and rewards of a series; its last row has no reward yet."""
    x = np.asarray(series, dtype=float)
    x = (x - x[: len(x) // 2].mean()) / x[: len(x) // 2].std()
    gamma = 0.8 if len(x) <= 150 else 0.9 if len(x) <= 1000 else 0.97
    lags = list(range(LAGS)) + [season - 1, season - 2] * (season > LAGS)
    t = np.arange(max(lags), len(x))
    angles = [2 * np.pi * t * k / season for k in range(1, 1 + min(WAVES, season // 2))]
    waves = [wave(angle) for angle in angles for wave in (np.cos, np.sin)][: max(0, season - 1)]
    X = np.column_stack([np.ones(len(t)), *(x[t - lag] for lag in lags), *waves])
    y = np.append(x[t[1:]], np.nan)
    returns, unobserved = discounted_returns(y, gamma, t == t[-1], False)
    return Stream(X, y, gamma, returns, unobserved, x, season)


def ridge(log: Stream) -> Array:
    """Predict by ridge regression on the sums of which a negligible share was not observed."""
    predicted = np.zeros(len(log.X))
    steps = int(np.ceil(np.log(NEGLIGIBLE) / np.log(log.gamma)))
    every = max(1, len(log.X) // REFITS)
    for row in range(len(log.X) // 2, len(log.X), every):
        known = row - steps  # the sums up to this row miss γ^steps at most
        if known >= 2:
            finished = log.returns[:known] - log.gamma ** np.arange(row, row - known, -1) * log.returns[row]
            model = RidgeCV(RIDGES).fit(log.X[:known, 1:], finished)
            predicted[row : row + every] = model.predict(log.X[row : row + every, 1:])
    return predicted


def smoothing(log: Stream) -> Array:
    """Discount the forecasts of exponential smoothing; parameters are fitted to the series so far."""
    x = log.series
    behind = len(log.series) - len(log.X)
    predicted = np.zeros(len(x))
    steps = np.arange(int(np.log(1e-4) / np.log(log.gamma)))
    for first, stop in np.lib.stride_tricks.sliding_window_view(np.linspace(len(x) // 2, len(x), FORECASTS + 1), 2):
        begin = int(first) - 1
        end = int(stop)
        forms = [{"trend": trend, "damped_trend": trend is not None} for trend in (None, "add")]
        kind = {"seasonal": "add", "seasonal_periods": log.season} if log.season else {}
        kind["initialization_method"] = "heuristic"
        fits = [ExponentialSmoothing(x[: begin + 1], **form, **kind).fit() for form in forms]
        best = int(np.argmin([fit.aic for fit in fits]))
        names = ("smoothing_level", "smoothing_trend", "smoothing_seasonal", "damping_trend")
        fixed = {name: fits[best].params[name] for name in names if np.isfinite(fits[best].params.get(name, np.nan))}
        model = ExponentialSmoothing(x[:end], **forms[best], **kind).fit(**fixed, optimized=False)
        t = np.arange(begin, end)[:, np.newaxis]
        damped = np.zeros(len(steps))
        forecast = model.level[t] + 0.0 * steps
        if best:
            damped = np.cumsum(model.params["damping_trend"] ** (steps + 1))
            forecast = forecast + model.trend[t] * damped
        if log.season:
            forecast = forecast + model.season[t - log.season + 1 + steps % log.season]
        predicted[begin:end] = forecast @ log.gamma**steps
    return predicted[behind:]


def follow(model: RecursiveLSTD, log: Stream) -> Array:
    """Return predictions, each made before its transition is learned."""
    return np.asarray(model.partial_fit(log.X, log.y, return_predictions=True))


def true_online(log: Stream) -> Array:
    """Predict with the step size that is best in the first half."""
    found = {}
    half = len(log.X) // 2
    for step_size in STEP_SIZES / np.max((log.X**2).sum(axis=1)):
        model = TrueOnlineTD(log.X.shape[1], log.gamma, step_size=step_size)
        predicted = np.zeros(len(log.X))
        with contextlib.suppress(InvalidInputError):  # it diverged
            for row, x in enumerate(log.X):
                predicted[row] = model.predict(x)
                if row + 1 < len(log.X):
                    model.update(x, log.y[row], log.X[row + 1])
            found[log.error(predicted, 0, half)] = predicted
    return found[min(found)]


def errors_of(log: Stream) -> dict[str, float]:
    """Errors in the second half, by method."""
    n = log.X.shape[1]
    half = len(log.X) // 2
    first = LSTDCV(log.gamma, LMBDAS, ALPHAS, fit_intercept=False, n_blocks=0, penalty=np.ones(n))
    first.fit(log.X[:half], np.append(log.y[: half - 1], np.nan))
    found = {"default": RecursiveLSTD(n, log.gamma), "auto": RecursiveLSTD(n, log.gamma, forgetting="auto")}
    found |= {"uncorrected": RecursiveLSTD(n, log.gamma, variant="uncorrected")}
    found |= {"chosen": RecursiveLSTD(n, log.gamma, first.lmbda_, first.alpha_)}
    predictions = {name: follow(model, log) for name, model in found.items()}
    mean = np.cumsum(log.series) / np.arange(1, len(log.series) + 1) / (1.0 - log.gamma)
    predictions |= {"mean so far": mean[-len(log.X) :]}
    predictions |= {"ridge": ridge(log), "true online TD": true_online(log), "smoothing": smoothing(log)}
    errors = {name: log.error(predicted, half, len(log.X)) for name, predicted in predictions.items()}
    pairs = (RecursiveLSTD(n, log.gamma, *pair, n_blocks=0) for pair in product(LMBDAS, ALPHAS))
    return errors | {"best pair": min(log.error(follow(model, log), half, len(log.X)) for model in pairs)}


def measured() -> list[dict[str, Any]]:
    """Errors of all methods by series."""
    found = []
    for name, series, season in logs():
        log = stream(series, season)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            errors = errors_of(log)
        found.append({"log": name, "gamma": log.gamma, "size": len(series), "errors": errors})
        print(name, {key: round(value, 3) for key, value in errors.items()}, flush=True)
    return found
