"""Measure the rate of forgetting that is chosen from the stream beside every fixed rate, and digits over long streams.

    python benchmarks/forgetting.py [--streams 10]
    python benchmarks/forgetting.py --long 100000000
    python benchmarks/forgetting.py --docs

Every prediction is made before the rewards that it is for. Its error is that against the discounted sum that came. The
best fixed rate is the best of all streams of a kind and of a period in hindsight. The rule of the choice was made on
other seeds, from 1000 on. With `--long`, the weights after so many transitions are compared with those of the batch
estimator on the last of them. The numbers go to results/forgetting-DATE.json and results/forgetting-long-DATE.json;
with `--docs`, the texts in docs/results/which-estimator.md are made from the newest of these.
"""

from __future__ import annotations

import argparse
import datetime
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

import sensor_stream
from lstd import LSTD, RecursiveLSTD
from lstd.data.returns import discounted_returns
from pages import measure_or_write
from provenance import describe_machine

Array = NDArray[np.float64]

SOURCE = "benchmarks/forgetting.py"
HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "docs" / "results" / "which-estimator.md"
LENGTHS = (12, 25, 50, 100, 200, 400, 800, 1600, 3200, 6400, 12_800)  # 1 / (1 − f) of the fixed rates, beside f = 1
FEW_JUMPS = "few jumps, γ = 0.98"
FIRST_SEED = {"sensor": 0, "jumps": 2000, "rare jumps": 3000, "steady": 4000, FEW_JUMPS: 5000}
NEGLIGIBLE = 1e-3  # rows of which more of the return is not observed have no error


class Stream(NamedTuple):
    """Rows, rewards, discount, and the periods whose errors are reported."""

    X: Array
    y: Array
    gamma: float
    periods: dict[str, slice]


def sensor(seed: int) -> Stream:
    """Simulate the machine of sensor_stream.py, whose cooling wears out after 12 000 of 20 000 readings."""
    temperature, vibration = sensor_stream.simulate(20_001, seed)
    excess = np.maximum(0.0, temperature - sensor_stream.LIMIT)
    periods = {"before the wear": slice(0, 12_000), "after the wear": slice(12_000, 20_000)}
    phi = sensor_stream.features_of(temperature, vibration)[:-1]
    return Stream(phi, excess[1:], sensor_stream.GAMMA, periods)


def jumps(seed: int, gap: float = 1500.0, size: float = 3.0, gamma: float = 0.9, n_rows: int = 20_000) -> Stream:
    """Draw rewards of noise 1 whose mean is drawn anew, with standard deviation `size`, every `gap` rows on average."""
    random = np.random.default_rng(seed)
    X = np.ones((n_rows, 4))
    for t in range(1, n_rows):
        X[t, 1:] = 0.8 * X[t - 1, 1:] + 0.6 * random.normal(size=3)
    level: Array = np.cumsum(random.random(n_rows) < 1.0 / gap)
    means = random.normal(0.0, size, n_rows + 1)[level]
    y = means + X[:, 1:] @ random.normal(0.0, 0.3, 3) + random.normal(size=n_rows)
    return Stream(X, y, gamma, {"all": slice(0, n_rows)})


KINDS: dict[str, Callable[[int], Stream]] = {
    "sensor": sensor,
    "jumps": jumps,
    "rare jumps": lambda seed: jumps(seed, 5000.0, 1.0),
    "steady": lambda seed: jumps(seed, 5000.0, 0.0),
    FEW_JUMPS: lambda seed: jumps(seed, 3000.0, gamma=0.98),
}


def errors_of(stream: Stream, forgetting: Any) -> tuple[dict[str, float], Array]:
    """Return mean squared errors by period relative to the variance of the returns, and 1/(1 − f) at each row."""
    X, y, gamma, periods = stream
    model = RecursiveLSTD(X.shape[1], gamma, 0.9, 1.0, forgetting=forgetting)
    lengths = []
    if forgetting == "auto":
        predictions = np.empty(len(y))
        for t in range(len(y)):
            predictions[t] = model.predict(X[t])
            lengths.append(model.forgetting_)
            if t + 1 < len(y):
                model.update(X[t], y[t], X[t + 1])
    else:
        predictions = model.partial_fit(X, y, return_predictions=True)
    returns, unobserved = discounted_returns(np.append(y[:-1], np.nan), gamma, np.zeros(len(y)), np.zeros(len(y)))
    known = unobserved < NEGLIGIBLE
    squares = np.where(known, (predictions - returns) ** 2, np.nan) / returns[known].var()
    return {name: float(np.nanmean(squares[part])) for name, part in periods.items()}, np.array(lengths)


def measured(n_streams: int) -> dict[str, Any]:
    """Measure every kind of stream."""
    kinds = {}
    for kind, make in KINDS.items():
        errors: dict[str, list[dict[str, float]]] = {}
        shares = []
        for seed in range(FIRST_SEED[kind], FIRST_SEED[kind] + n_streams):
            print(f"{kind}, seed {seed}", file=sys.stderr)
            stream = make(seed)
            for length in (*LENGTHS, None):
                rate = 1.0 if length is None else 1.0 - 1.0 / length
                errors.setdefault(str(length), []).append(errors_of(stream, rate)[0])
            found, rates = errors_of(stream, "auto")
            errors.setdefault("auto", []).append(found)
            shares.append(float(np.mean(rates < 1.0)))
        kinds[kind] = {"errors": errors, "forgetting": float(np.mean(shares))}
    return {
        "kinds": kinds,
        "streams": n_streams,
        "date": datetime.date.today().isoformat(),
        "machine": describe_machine(),
    }


def rows_of(kind: dict[str, Any]) -> list[dict[str, Any]]:
    """Compute the root mean square errors of a kind of stream by period, and the best fixed rate."""
    rows = []
    for period in kind["errors"]["auto"][0]:
        root = {name: np.sqrt(np.mean([each[period] for each in errors])) for name, errors in kind["errors"].items()}
        fixed = {name: value for name, value in root.items() if name != "auto"}
        best = min(fixed, key=lambda name: fixed[name])
        pairs = zip(kind["errors"]["auto"], kind["errors"][best], strict=True)
        worst = np.sqrt(max(auto[period] / other[period] for auto, other in pairs))
        rows.append(
            {
                "period": period,
                "none": root["None"],
                "best": fixed[best],
                "length": best,
                "auto": root["auto"],
                "worst": worst,
            }
        )
    return rows


def table(found: dict[str, Any]) -> list[str]:
    """Lines of the Markdown table."""
    lines = [
        f"Printed by `python {SOURCE} --streams {found['streams']}` on {found['date']}. Root mean square errors over "
        f"{found['streams']} streams of 20 000 rows, divided by the spread of the returns; seeds from "
        + ", ".join(f"{first} ({kind})" for kind, first in FIRST_SEED.items())
        + ".",
        "",
        '| stream | no forgetting | best fixed rate in hindsight | `forgetting="auto"` | auto ÷ best (worst stream) '
        "| none ÷ best |",
        "|---|---|---|---|---|---|",
    ]
    for name, kind in found["kinds"].items():
        for row in rows_of(kind):
            what = name if row["period"] == "all" else f"{name}, {row['period']}"
            best = "none" if row["length"] == "None" else f"1/(1 − f) = {row['length']}"
            lines.append(
                f"| {what} | {row['none']:.3f} | {row['best']:.3f} ({best}) | {row['auto']:.3f} "
                f"| {row['auto'] / row['best']:.3f} ({row['worst']:.2f}) | {row['none'] / row['best']:.2f} |"
            )
    return lines


def long_run(n_steps: int, forgetting: float = 0.999, n: int = 5, chunk: int = 100_000) -> dict[str, Any]:
    """Compare the weights after many transitions with the batch estimator on the last 100 000 of them."""
    random = np.random.default_rng(7)
    X = random.normal(size=(chunk, n)) + 0.5
    y = random.normal(size=chunk) + 1.0
    model = RecursiveLSTD(n, 0.9, 0.8, 1.0, forgetting=forgetting)
    begin = time.process_time()
    for _ in range(n_steps // chunk):
        model.partial_fit(X, y)
    seconds = time.process_time() - begin
    done = model.n_updates
    rotation = round(max(n, 0.1 / (1.0 - forgetting)))
    since = (done - np.arange(n) * rotation // n) % rotation  # transitions since each ridge was restored
    weight = np.append(forgetting ** np.arange(chunk - 2, -1, -1.0), 1.0)
    batch = LSTD(0.9, 0.8, forgetting**since, fit_intercept=False, n_blocks=0).fit(X, y, weight=weight)
    return {
        "steps": n_steps,
        "n": n,
        "forgetting": forgetting,
        "apart": float(np.abs(model.weights - batch.coef_).max() / np.abs(batch.coef_).max()),
        "seconds": seconds,
        "date": datetime.date.today().isoformat(),
        "machine": describe_machine(),
    }


def sentence(found: dict[str, Any]) -> list[str]:
    """Say how many digits a long stream kept."""
    return [
        f"Printed by `python {SOURCE} --long {found['steps']}` on {found['date']}: after {found['steps']:,} "
        f"transitions of {found['n']} features with f = {found['forgetting']}, the weights are within "
        f"{found['apart']:.0e} of the batch estimator's. "
        f"One transition took {1e6 * found['seconds'] / found['steps']:.1f} µs."
    ]


def main() -> None:
    """Measure, print and store; or write the documentation's texts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--streams", type=int, default=10, help="streams of each kind")
    parser.add_argument("--long", type=int, metavar="STEPS", help="compare weights after so many transitions instead")
    parser.add_argument("--docs", action="store_true", help="write the documentation's texts; measure nothing")
    asked = parser.parse_args()
    with threadpool_limits(limits=1):
        if not asked.long:
            measure_or_write("forgetting", SOURCE, PAGE, lambda: measured(asked.streams), table, docs=asked.docs)
        if asked.long or asked.docs:
            source = f"{SOURCE} --long"
            measure_or_write("forgetting-long", source, PAGE, lambda: long_run(asked.long), sentence, docs=asked.docs)


if __name__ == "__main__":
    main()
