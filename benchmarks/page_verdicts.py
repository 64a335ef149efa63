"""When a page is wrong on a real log, whether it says so, and the tables of `pages_on_real_logs.py`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
SOURCE = "benchmarks/pages_on_real_logs.py"
UNOBSERVED = "UnobservedWarning"
WORST_RATIO = 1.15
WIDER = 1.25  # times the half width of an interval
TENTH = 0.1
NOISE = 0.01


class Fitted(NamedTuple):
    """Predictions for held-out subjects, the total with its interval, and the kinds of warnings that came.

    A naive forecast has no interval: its ends are not a number.
    """

    predicted: Array
    total: float
    lower: float
    upper: float
    warned: dict[str, str]  # kinds of warnings of the model that predicts, and what they said
    before: dict[str, Array]  # kind of a warning that the page itself follows -> predictions before it did


class Other(NamedTuple):
    """What a practitioner's method predicts."""

    name: str
    predicted: Array


class Trial(NamedTuple):
    """Outcomes of held-out subjects, their weights, and what each method predicts for them."""

    came: Array
    weight: Array
    ours: Fitted
    advised: dict[str, Array]  # kind of a warning -> predictions with what it advises
    others: list[Other]

    def error(self, predicted: Array) -> float:
        """Weighted mean squared error."""
        return float(self.weight @ (predicted - self.came) ** 2 / self.weight.sum())


def judged(page: str, trials: list[Trial]) -> dict[str, Any]:
    """Compare a page with the other methods over all trials; warnings and totals are those of the first one."""
    first = trials[0]
    ours = np.sqrt(np.mean([trial.error(trial.ours.predicted) for trial in trials]))
    names = [other.name for other in first.others]
    theirs = {
        name: float(np.sqrt(np.mean([trial.error(trial.others[j].predicted) for trial in trials])))
        for j, name in enumerate(names)
    }
    best = min(theirs, key=theirs.__getitem__)
    came = float(first.weight @ first.came)
    mean = np.full(len(first.came), came / first.weight.sum())
    other_total = float(first.weight @ first.others[names.index(best)].predicted)
    return {
        "page": page,
        "error": float(ours),
        "best": best,
        "best_error": theirs[best],
        "ratio": float(ours / theirs[best]),
        "came": came,
        "total": first.ours.total / came,
        "lower": known(first.ours.lower / came),
        "upper": known(first.ours.upper / came),
        "other_total": other_total / came,
        "warned": sorted(first.ours.warned),
        "changes": changes(first),
        "r2": 1.0 - first.error(first.ours.predicted) / first.error(mean),
    }


def known(value: float) -> float | None:
    """Return a number, or None in place of one that is none."""
    return None if np.isnan(value) else float(value)


def changes(trial: Trial) -> dict[str, float]:
    """Return the error with what each warning advises, divided by that without."""
    error = trial.error(trial.ours.predicted)
    ratios = {}
    for kind, predicted in trial.advised.items():
        ratios[kind] = float(np.sqrt(trial.error(predicted) / error))
    for kind, predicted in trial.ours.before.items():
        ratios[f"{kind}, followed"] = float(np.sqrt(error / trial.error(predicted)))
    return ratios


def wrong(row: dict[str, Any]) -> bool:
    """Whether a model is wrong where the best method of practitioners is not."""
    if row["ratio"] > WORST_RATIO:
        return True
    off = row["total"] - 1.0
    half = 0.0
    if row["lower"] is not None:
        half = (row["upper"] - row["lower"]) / 2
    if abs(off) <= max(WIDER * half, TENTH):
        return False
    theirs = row["other_total"] - 1.0
    alike = theirs * off > 0.0 and abs(theirs) > TENTH
    return not alike


def silent(row: dict[str, Any]) -> bool:
    """Whether no warning came but that little was observed."""
    return not set(row["warned"]) - {UNOBSERVED}


def table(found: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of the documentation's table, failures first in each page; those of the judges apart."""
    machine = found["machine"]
    yield f"Measured by `python {SOURCE}` on {found['date']}: {machine['cores']} cores, {machine['cpu']}."
    seen = [row for row in found["rows"] if not row["judge"]]
    judges = [row for row in found["rows"] if row["judge"]]
    for title, rows in (("Logs that the pages were made with", seen), ("Logs that judge", judges)):
        yield ""
        yield f"**{title}.**"
        yield ""
        yield from summary(rows)
    yield ""
    yield from ranges(found["ranges"])
    yield ""
    yield from differences(found["differences"])
    yield ""
    yield from averages(found["averages"])
    for title, rows in (("Logs that the pages were made with", seen), ("Logs that judge", judges)):
        yield ""
        yield f"**{title}, one by one.**"
        yield ""
        yield from fits(rows)


def fits(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield a line for each page and log, failures first in each page."""
    titles = ["page", "log", "predicted", "ratio", "best method", "total ÷ came", "its total", "R²"]
    titles += ["warnings", "verdict"]
    yield f"| {' | '.join(titles)} |"
    yield "|---" * len(titles) + "|"
    for row in sorted(rows, key=lambda row: (row["page"], not wrong(row), -row["ratio"])):
        cells = [
            row["page"],
            f"{row['log']} ({row['field']})",
            row["what"],
            f"{row['ratio']:.2f}",
            row["best"],
            total_of(row),
            f"{row['other_total']:.2f}",
            f"{row['r2']:.2f}",
            "; ".join(said(row)) or "–",
            verdict(row),
        ]
        yield f"| {' | '.join(cells)} |"


def total_of(row: dict[str, Any]) -> str:
    """Write the total with its interval, if there is one."""
    if row["lower"] is None:
        return f"{row['total']:.2f}"
    return f"{row['total']:.2f} ({row['lower']:.2f} to {row['upper']:.2f})"


def said(row: dict[str, Any]) -> Iterator[str]:
    """Yield each warning with the error that follows from its advice, divided by the error without it."""
    for kind in row["warned"]:
        short = kind.replace("Warning", "")
        yield f"{short} ×{row['changes'][kind]:.2f}" if kind in row["changes"] else short
    for kind, change in row["changes"].items():
        if kind.endswith(", followed"):
            yield f"{kind.replace('Warning', '')} ×{change:.2f}"


def verdict(row: dict[str, Any]) -> str:
    """Say whether a model is wrong, and whether it says so."""
    if not wrong(row):
        return "right"
    return "**wrong, silent**" if silent(row) else "wrong, warned"


def summary(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the counts that the goals are about, by page."""
    titles = ["page", "logs", "median ratio", "wrong", "wrong, silent", "silent", "÷ silent", "÷ wrong"]
    titles += ["warnings", "noise"]
    yield f"| {' | '.join(titles)} |"
    yield "|---" * len(titles) + "|"
    pages = [*dict.fromkeys(row["page"] for row in rows), ""]
    for page in pages:
        some = [row for row in rows if page in ("", row["page"])]
        failed = [row for row in some if wrong(row)]
        quiet = [row for row in some if silent(row)]
        missed = sum(map(silent, failed))
        given = [change for row in some for change in row["changes"].values()]
        noise = [change for change in given if abs(change - 1.0) < NOISE]
        cells = [
            page or "**all**",
            f"{len(some)}",
            f"{np.median([row['ratio'] for row in some]):.2f}",
            f"{len(failed)}",
            f"{missed}",
            f"{len(quiet)}",
            share(missed, len(quiet)),
            share(missed, len(failed)),
            f"{len(given)}",
            f"{len(noise)}",
        ]
        yield f"| {' | '.join(cells)} |"


def share(some: int, all_of_them: int) -> str:
    """Write a share, if there is anything to share."""
    return f"{some / all_of_them:.2f}" if all_of_them else "–"


def ranges(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield how often the range of one return held what came."""
    titles = ["range-of-one", "predicted", "subjects", "90 % range held", "below it", "above it"]
    titles.append("held of the quarter with the largest predictions")
    yield f"| {' | '.join(titles)} |"
    yield "|---" * len(titles) + "|"
    for row in rows:
        name = row["log"] + (" (judge)" if row["judge"] else "")
        held = f"{row['held']:.2f} | {row['below']:.2f} | {row['above']:.2f} | {row['held_of_largest']:.2f}"
        yield f"| {name} | {row['what']} | {row['subjects']} | {held} |"


def differences(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield how often the interval of a difference of two random arms held the true one."""
    yield "| ab-test | arms | 95 % interval held no effect | held an effect of a fifth | found that effect |"
    yield "|---|---|---|---|---|"
    for row in rows:
        name = row["log"] + (" (judge)" if row["judge"] else "")
        yield f"| {name} | {row['splits']} splits | {row['none']:.2f} | {row['planted']:.2f} | {row['found']:.2f} |"


def averages(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield average rewards of half a series beside the mean of the other half."""
    yield "| average-reward | rows | average, interval | of the later half | its standard error | apart, in errors |"
    yield "|---|---|---|---|---|---|"
    for row in rows:
        average = f"{row['average']:.3g} ({row['lower']:.3g} to {row['upper']:.3g})"
        later = f"{row['later']:.3g} | {row['later_error']:.2g} | {row['apart']:.1f}"
        yield f"| {row['log']} | {row['rows']} | {average} | {later} |"
