"""Purchases of the next 39 weeks: HorizonLSTD beside Pareto/NBD and BG/NBD on the CDNOW log, and its speed.

    python benchmarks/next_steps.py [--docs docs/results/next-steps.md]

The log comes with `lifetimes`: all customers, and the sample of a tenth that is mostly used. What happened until week
39 is known, the purchases of the 39 weeks that follow are predicted. λ and α are 0.9 and 1, or chosen from those weeks.
Times are of one process with a single-threaded BLAS, in seconds of the processor: the least of three.
"""

from __future__ import annotations

import argparse
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

from lstd import LSTD, HorizonLSTD, Trajectories
from pages import measure_or_write
from provenance import describe_machine, printed_by

KNOWN, AHEAD, QUARTER = 39, 39, 13
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


def features(columns: Any) -> Any:
    """Functions of repeat purchases, of the weeks since the last one and of age, from the columns of `from_events`."""
    repeat, age = columns[:, 0] - 1.0, columns[:, 4]
    since = np.where(repeat > 0.0, columns[:, 3], age)
    recent = [np.ones(len(age)), np.exp(-since / 4), np.exp(-since / 13)]
    rate, often = (repeat + 0.25) / (age + 4), np.log1p(repeat)
    products = [f * g for f in (often, rate) for g in recent]
    return np.column_stack([np.log1p(age) / 3, *recent[1:], *products, rate**2, np.minimum(since, 26.0) / 26])


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
    from lifetimes import BetaGeoFitter, ParetoNBDFitter

    log = purchases(file)
    data = Trajectories.from_events(log, episode="id", time="day", amount=["one", "spend"], step=7.0, until=7.0 * KNOWN)
    X, now = features(data.X), data.horizon
    customers = data.episode[now]
    later = log[log["day"] >= 7 * KNOWN].groupby("id")[["one", "spend"]].sum()
    came = later.reindex(customers).fillna(0.0).to_numpy()
    for lmbda, alpha in ((0.9, 1.0), ("auto", "auto")):
        model = HorizonLSTD(AHEAD, lmbda=lmbda, alpha=alpha, low=0.0)
        model.fit(X, data.y, episode=data.episode, terminated=data.terminated)
        name = f"HorizonLSTD, λ = {model.lmbda_:g}, α = {model.alpha_:.3g}" + (" (chosen)" if lmbda == "auto" else "")
        predicted = model.predict(X[now])
        quarter = model.predict(X[now], horizon=QUARTER) * (AHEAD / QUARTER)
        yield {"method": name, "what": "purchases", **errors(predicted[:, 0], came[:, 0])}
        yield {"method": name, "what": "spending", **errors(predicted[:, 1], came[:, 1])}
        yield {"method": f"13 weeks × 3 of {name}", "what": "purchases", **errors(quarter[:, 0], came[:, 0])}
    day = log[log["day"] < 7 * KNOWN].groupby("id")["day"]
    known = pd.DataFrame({"x": day.count() - 1, "t": (day.max() - day.min()) / 7, "T": KNOWN - day.min() / 7})
    known = known.reindex(customers)
    for name, kind in (("Pareto/NBD", ParetoNBDFitter), ("BG/NBD", BetaGeoFitter)):
        fitted = kind(penalizer_coef=0.0).fit(known["x"], known["t"], known["T"])
        predicted = fitted.conditional_expected_number_of_purchases_up_to_time(
            AHEAD, known["x"], known["t"], known["T"]
        )
        yield {"method": name, "what": "purchases", **errors(np.asarray(predicted), came[:, 0])}


def least(act: Callable[[], Any]) -> float:
    """Return the least processor time of three calls, after one that compiles."""
    seconds = []
    for _ in range(4):
        begin = time.process_time()
        act()
        seconds.append(time.process_time() - begin)
    return min(seconds[1:])


def speeds(horizon: int = 52, length: int = 100) -> Iterable[dict[str, Any]]:
    """Yield the time of a fit of `horizon` steps, and that of `LSTD.fit`, for random rows in episodes that are cut."""
    for n_rows, n in SHAPES:
        random = np.random.default_rng(0)
        X, y = random.normal(size=(n_rows, n)), random.normal(size=n_rows)
        rows = {"episode": np.repeat(np.arange(n_rows // length), length), "terminated": np.zeros(n_rows, dtype=bool)}
        one = least(lambda: LSTD(0.9).fit(X, y, **rows))  # noqa: B023
        many = least(lambda: HorizonLSTD(horizon).fit(X, y, **rows))  # noqa: B023
        yield {"rows": n_rows, "features": n, "horizon": horizon, "LSTD.fit": one, "HorizonLSTD.fit": many}


def measured() -> dict[str, Any]:
    """Measure everything."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the fitters, and of returns of 39 weeks that are never observed whole
        logs = {name: list(on_log(file)) for name, file in LOGS.items()}
        found = {"logs": logs, "speeds": list(speeds())}
    printed, date = printed_by("python benchmarks/next_steps.py"), datetime.now(UTC).date().isoformat()
    return {"date": date, "printed": printed, "machine": describe_machine(), **found}


def table(found: dict[str, Any]) -> Iterable[str]:
    """Yield the lines of the page."""
    yield found["printed"]
    for log, runs in found["logs"].items():
        yield f"\n**CDNOW, {'a tenth of the customers' if log == 'sample' else 'all customers'}**\n"
        yield "| method | | RMSE | MAE | rank correlation | total ÷ what came |"
        yield "|---|---|---|---|---|---|"
        for run in runs:
            numbers = f"{run['rmse']:.3f} | {run['mae']:.3f} | {run['rank']:.3f} | {run['total']:.2f}"
            yield f"| {run['method']} | {run['what']} | {numbers} |"
    yield "\n**Time**\n"
    yield "| rows | features | horizon | `LSTD.fit` | `HorizonLSTD.fit` | ratio |"
    yield "|---|---|---|---|---|---|"
    for run in found["speeds"]:
        shape, one, many = f"{run['rows']} | {run['features']}", run["LSTD.fit"], run["HorizonLSTD.fit"]
        yield f"| {shape} | {run['horizon']} | {one:.3f} s | {many:.2f} s | {many / one:.0f} |"


def main() -> None:
    """Measure and print, or write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--docs", type=Path, metavar="PAGE", help="put the newest results into this page")
    arguments = parser.parse_args()
    with threadpool_limits(1):
        measure_or_write(
            "next_steps", "benchmarks/next_steps.py", arguments.docs or Path(), measured, table,
            docs=arguments.docs is not None,
        )  # fmt: skip


if __name__ == "__main__":
    main()
