"""Ratios of times measured in turn in one run, so that other load on the machine slows both sides alike."""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

HEAD = ("claim", "ratio: median (lowest to highest)", "goal", "`lstd`", "beside", "pairs")
_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


@dataclass(frozen=True)
class Ratio:
    """Seconds of `lstd` and of its neighbour, `ours[i]` measured next to `beside[i]`.

    The ratio is beside / ours, how many times as fast `lstd` is, and `goal` is its least value. For a `cost`, the ratio
    is ours / beside, how many times as long `lstd` takes, and `goal` is its largest value. `seconds_goal` is the
    largest value for `ours`. With `unit="bytes"`, they are bytes of memory. `skipped` says why there are no seconds.
    """

    claim: str
    ours: Sequence[float] = ()
    beside: Sequence[float] = ()
    cost: bool = False
    goal: float | None = None
    seconds_goal: float | None = None
    skipped: str = ""
    unit: str = "s"

    def row(self) -> dict[str, Any]:
        """The claim and its numbers as plain JSON values."""
        if self.skipped:
            return {"claim": self.claim, "skipped": self.skipped}
        pairs = list(zip(self.ours, self.beside, strict=True))
        ratio = _spread([a / b if self.cost else b / a for a, b in pairs])
        ours = _spread(self.ours)
        met = None
        if self.goal is not None or self.seconds_goal is not None:
            met = self.seconds_goal is None or ours["median"] <= self.seconds_goal
            if self.goal is not None:
                met = met and (ratio["median"] <= self.goal if self.cost else ratio["median"] >= self.goal)
        return {
            "claim": self.claim,
            "kind": self._kind,
            "ratio": ratio,
            "goal": self.goal,
            "seconds_goal": self.seconds_goal,
            "met": met,
            "pairs": len(pairs),
            "seconds": {"lstd": ours, "beside": _spread(self.beside)},
        }

    @property
    def _kind(self) -> str:
        if self.unit == "bytes":
            return "the memory"
        return "the time" if self.cost else "as fast"


def in_turn(
    ours: Callable[[], Any], beside: Callable[[], Any], pairs: int, clock: Callable[[], float] = time.perf_counter
) -> tuple[list[float], list[float]]:
    """Measure the seconds of both in turn, after a run of each that does not count."""
    tasks: tuple[Callable[[], Any], ...] = (ours, beside)
    seconds: tuple[list[float], list[float]] = ([], [])
    for task in tasks:
        task()
    for _ in range(pairs):
        for task, times in zip(tasks, seconds, strict=True):
            times.append(timed(task, clock))
    return seconds


def timed(task: Callable[[], Any], clock: Callable[[], float] = time.perf_counter) -> float:
    """Measure the seconds of one run."""
    begin = clock()
    task()
    return clock() - begin


def table(rows: Iterable[dict[str, Any]]) -> list[str]:
    """Lines of a Markdown table of rows of :class:`Ratio`."""
    return [_joined(HEAD), "|" + "---|" * len(HEAD), *(_joined(_cells(row)) for row in rows)]


def run_alone(doc: str | None, ratios: Callable[[bool], Iterator[Ratio]]) -> None:
    """Measure one script's ratios and print their table; the main function of each script."""
    parser = argparse.ArgumentParser(description=(doc or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--quick", action="store_true", help="less data and fewer repeats, to see that it runs")
    arguments = parser.parse_args()
    rows = []
    for ratio in ratios(arguments.quick):
        note(ratio.claim)
        rows.append(ratio.row())
    print("\n".join(table(rows)))


def note(text: str) -> None:
    """Print a line of progress."""
    print(text, file=sys.stderr, flush=True)


def _spread(values: Sequence[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "low": min(values), "high": max(values)}


def _joined(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cells(row: dict[str, Any]) -> list[str]:
    if "skipped" in row:
        return [row["claim"], f"skipped: {row['skipped']}", *[""] * (len(HEAD) - 2)]
    ratio = row["ratio"]
    seconds = row["seconds"]
    shown = f"{_number(ratio['median'])}× {row['kind']} ({_number(ratio['low'])} to {_number(ratio['high'])})"
    amount = _size if row["kind"] == "the memory" else _duration
    ours, beside = (amount(seconds[side]["median"]) for side in ("lstd", "beside"))
    return [row["claim"], shown, _goal(row), ours, beside, str(row["pairs"])]


def _goal(row: dict[str, Any]) -> str:
    if row["met"] is None:
        return "—"
    goals = []
    if row["goal"] is not None:
        goals.append(f"{'≥' if row['kind'] == 'as fast' else '≤'} {row['goal']:g}×")
    if row["seconds_goal"] is not None:
        goals.append(f"≤ {_duration(row['seconds_goal'])}")
    return f"{', '.join(goals)}: {'met' if row['met'] else 'MISSED'}"


def _number(value: float) -> str:
    """Three significant digits; larger numbers in whole."""
    return f"{value:.0f}" if value >= 99.5 else f"{value:.3g}"


def _size(n_bytes: float) -> str:
    return f"{_number(n_bytes / 1e6)} MB"


def _duration(seconds: float) -> str:
    size, unit = next((each for each in _UNITS if seconds >= each[0]), _UNITS[-1])
    return f"{_number(seconds / size)} {unit}"
