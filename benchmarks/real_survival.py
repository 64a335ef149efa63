"""Time to the event within a window, in survival data of `scikit-survival` and `lifelines`: LSTD beside Cox models.

Run by `real_logs.py`. The data are read from the installed packages. Both methods see the same features at entry,
standardised: numbers, with the median where one is missing, and indicators of categories. The window ends at the upper
quartile of the times at which subjects leave the study. LSTD has a row per subject and tenth of the window, as in
docs/guide/remaining-time.md, and `LSTDCV` chooses λ and α. The Cox model has an elastic net, chosen in five folds by
the partial likelihood or by the error that is reported; of these two, the table has the one with less error on the
held-out subjects of all splits. That error is of the time within the window, for subjects who were followed to the
event or to the window's end, weighted by the inverse Kaplan-Meier probability of having been followed so far.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from lifelines import KaplanMeierFitter
from lifelines import datasets as lifelines
from lifelines.utils import restricted_mean_survival_time
from numpy.typing import NDArray
from sksurv import datasets as sksurv
from sksurv.linear_model import CoxnetSurvivalAnalysis
from sksurv.util import Surv

from lstd import LSTDCV, Trajectories

Array = NDArray[np.float64]

STEPS = 10  # of the window
SPLITS = 10  # random splits into two thirds and a third
FEW = 100  # subjects of a small fit
LMBDAS = (0.0, 0.5, 0.8, 0.9, 1.0)
MIXES = (0.01, 0.5, 1.0)  # shares of the lasso in the elastic net
PENALTIES = 20
FOLDS = 5


class Subjects(NamedTuple):
    """Features at entry, the time at which each subject left, and whether that was by the event."""

    X: Array
    time: Array
    event: NDArray[np.bool_]

    def of(self, rows: Any) -> Subjects:
        """Return some subjects."""
        return Subjects(self.X[rows], self.time[rows], self.event[rows])


def subjects(features: pd.DataFrame, time: Any, event: Any) -> Subjects:
    """Return subjects with standardised features; categories become indicators."""
    X = pd.get_dummies(features, drop_first=True).astype(float)
    X = X.fillna(X.median())
    X = X.loc[:, X.std() > 0.0]
    return Subjects(((X - X.mean()) / X.std()).to_numpy(), np.asarray(time, dtype=float), np.asarray(event, dtype=bool))


def logs() -> Iterator[tuple[str, str, Subjects]]:
    """Yield names, units of time and subjects."""
    loaders = {"whas500": sksurv.load_whas500, "gbsg2": sksurv.load_gbsg2, "flchain": sksurv.load_flchain}
    loaders |= {"veterans_lung_cancer": sksurv.load_veterans_lung_cancer, "aids": sksurv.load_aids}
    for name, load in (loaders | {"breast_cancer": sksurv.load_breast_cancer}).items():
        features, outcome = load()
        features = features.drop(columns="chapter", errors="ignore")  # of flchain: the cause of death
        event, time = outcome.dtype.names
        yield name, "days", subjects(features, outcome[time], outcome[event])
    table = lifelines.load_rossi()
    yield "rossi", "weeks", subjects(table.drop(columns=["week", "arrest"]), table["week"], table["arrest"])
    table = lifelines.load_lung()
    yield "lung", "days", subjects(table.drop(columns=["inst", "time", "status"]), table["time"], table["status"])
    table = lifelines.load_kidney_transplant()
    yield "kidney_transplant", "days", subjects(table.drop(columns=["time", "death"]), table["time"], table["death"])
    table = (
        lifelines.load_stanford_heart_transplants()
        .groupby("id")
        .agg({"age": "first", "year": "first", "surgery": "first", "stop": "last", "event": "last"})
    )
    yield "stanford_heart", "days", subjects(table[["age", "year", "surgery"]], table["stop"], table["event"])
    table = lifelines.load_dd()
    features = table[["un_continent_name", "democracy", "regime", "start_year"]]
    yield "dd (regimes)", "years", subjects(features, table["duration"], table["observed"])
    yield "actg175", "days", actg175()


def actg175() -> Subjects:
    """Return patients with HIV and four treatments; `lifelines` has the file, and no function that loads it."""
    table = pd.read_csv(Path(lifelines.__file__).parent / "ACTG175.csv", index_col=0)
    later = ["pidnum", "offtrt", "cd420", "cd496", "r", "cd820", "cens", "days"]  # or no features
    return subjects(table.drop(columns=later).astype({"arms": str}), table["days"], table["cens"])


def windowed(X: Array, to_go: Array) -> Array:
    """Multiply a one and the features by the square and the cube of the time to go, shape (rows, 2n + 2)."""
    state = np.column_stack([np.ones(len(X)), X])
    u = to_go[:, np.newaxis]
    return np.hstack([state * u**2, state * u**3])


def by_lstd(train: Subjects, test: Subjects, window: float) -> Array:
    """Predict the time within the window by what is lost of it; one row where observation stopped."""
    time = train.time / window
    cut = ~train.event & (time < 1.0)
    rows = np.maximum(1, np.ceil(np.minimum(time, 1.0) * STEPS - 1e-9)).astype(int) + cut
    who = np.repeat(np.arange(len(time)), rows)
    last = np.cumsum(rows) - 1
    begins = (np.arange(len(who)) - np.repeat(last + 1 - rows, rows)) / STEPS
    begins[last[cut]] = time[cut]
    lost = np.zeros(len(who))
    over = np.zeros(len(who), dtype=bool)
    lost[last[~cut]], over[last[~cut]] = np.maximum(0.0, 1.0 - time[~cut]), True
    table = pd.DataFrame(windowed(train.X[who], 1.0 - begins)).rename(columns=str)
    names = list(table)
    table = table.assign(subject=who, lost=lost, over=over)
    data = Trajectories.from_frame(table, features=names, reward="lost", episode="subject", terminated="over")
    model = LSTDCV(1.0, LMBDAS, fit_intercept=False, n_blocks=0).fit(**data.to_arrays())
    return window * (1.0 - np.clip(model.predict(windowed(test.X, np.ones(len(test.X)))), 0.0, 1.0))


def by_cox(train: Subjects, test: Subjects, window: float) -> list[Array]:
    """Predict the restricted mean survival time by the elastic nets of most partial likelihood and of least error."""
    fold = np.random.default_rng(0).permutation(np.arange(len(train.time)) % FOLDS)
    likely = {}
    close = {}
    for mix in MIXES:
        path = cox(train, mix, None).alphas_
        found = np.zeros((len(path), len(fold)))
        score = np.zeros(len(path))
        for k in range(FOLDS):
            part = train.of(fold != k)
            model = cox(part, mix, path)
            beta = model.coef_[:, [nearest(model, penalty) for penalty in path]]
            score += likelihood(train, beta) - likelihood(part, beta)
            found[:, fold == k] = [restricted(model, train.X[fold == k], window, penalty) for penalty in path]
        for penalty, predicted, value in zip(path, found, score, strict=True):
            likely[mix, penalty], close[mix, penalty] = value, -error(predicted, train, train, window)
    chosen = (max(scores, key=scores.__getitem__) for scores in (likely, close))
    return [restricted(cox(train, mix, None), test.X, window, penalty) for mix, penalty in chosen]


def cox(train: Subjects, mix: float, path: Any) -> Any:
    """Fit Cox models along a path of penalties, as far down as the optimisation converges."""
    outcome = Surv.from_arrays(train.event, train.time)
    for short in range(0, PENALTIES, 3):
        ratio = (1e-5 if mix < 0.1 else 1e-3) ** (1.0 - short / PENALTIES)  # the first is about 1 / mix
        alphas = None if path is None else path[: len(path) - short]
        options = {"alphas": alphas, "n_alphas": PENALTIES - short, "alpha_min_ratio": ratio}
        with contextlib.suppress(ArithmeticError):
            return CoxnetSurvivalAnalysis(l1_ratio=mix, fit_baseline_model=True, **options).fit(train.X, outcome)
    raise ArithmeticError("No Cox model of the path converges.")


def nearest(model: Any, penalty: float) -> int:
    """Number of the nearest penalty of a path, which may have ended early."""
    return int(np.abs(np.log(model.alphas_ / penalty)).argmin())


def likelihood(subjects: Subjects, beta: Array) -> Array:
    """Breslow's logarithm of the partial likelihood, for each column of weights."""
    order = np.argsort(-subjects.time, kind="stable")
    eta = subjects.X[order] @ beta
    time = subjects.time[order]
    last = np.searchsorted(-time, -time, side="right") - 1  # of those at risk
    value: Array = (eta - np.logaddexp.accumulate(eta, axis=0)[last])[subjects.event[order]].sum(axis=0)
    return value


def restricted(model: Any, X: Array, window: float, penalty: float) -> Array:
    """Area below the survival curves up to the end of the window."""
    times = np.append(np.minimum(model.unique_times_, window), window)
    curves = model.predict_survival_function(X, alpha=model.alphas_[nearest(model, penalty)], return_array=True)
    return np.asarray(times[0] + curves @ np.diff(times))


def by_curve(train: Subjects, test: Subjects, window: float) -> Array:
    """Predict the same for all, the restricted mean of the Kaplan-Meier curve."""
    curve = KaplanMeierFitter().fit(train.time, train.event)
    return np.full(len(test.time), float(restricted_mean_survival_time(curve, t=window)))


def error(predicted: Array, test: Subjects, train: Subjects, window: float) -> float:
    """Root mean square error of subjects who were followed, weighted by the inverse probability of that."""
    known = test.event | (test.time >= window)
    until = np.minimum(test.time, window)
    times, counts = np.unique(train.time[~train.event], return_counts=True)
    at_risk = len(train.time) - np.searchsorted(np.sort(train.time), times)
    followed = np.append(1.0, np.cumprod(1.0 - counts / at_risk))[np.searchsorted(times, until)]
    weight = known / np.maximum(followed, 1e-3)
    return float(np.sqrt((weight * (predicted - until) ** 2).sum() / weight.sum()))


def measured() -> list[dict[str, Any]]:
    """Root mean square errors of both sides by log and size; one for each split."""
    found = []
    for name, unit, log in logs():
        n = len(log.time) * 2 // 3
        window = float(np.quantile(log.time, 0.75))
        for size in (n, FEW) if n > 2 * FEW else (n,):
            errors = []
            for seed in range(SPLITS):
                order = np.random.default_rng(seed).permutation(len(log.time))
                train = log.of(order[:size])
                test = log.of(order[n:])
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    predictions = [by_lstd(train, test, window), *by_cox(train, test, window)]
                    predictions.append(by_curve(train, test, window))
                errors.append([error(one, test, train, window) for one in predictions])
            ours, *theirs, curve = np.array(errors).T.tolist()
            best = min(theirs, key=sum)
            about = {"log": name, "measure": f"{unit} of the next {window:.0f}", "way": "LSTDCV", "size": size}
            found.append(about | {"lstd": ours, "theirs": best, "curve": curve})
            print(name, size, np.median(np.divide(ours, best)), flush=True)
    return found
