"""Compute how long fits take on many machines, from costs that one machine measured.

    python benchmarks/cluster.py           measure (about 10 GB of memory), write results/cluster-DATE.json and the page
    python benchmarks/cluster.py --docs    write the page and its figure from the newest results

T transitions of n features are read in C chunks of R rows, by W workers of one core each. The page
docs/results/cluster-costs.md defines the other symbols and states the formula.
"""

from __future__ import annotations

import argparse
import datetime
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps

import cluster_measure
from lstd.report.style import REFERENCE, WIDE, figure_style, new_figure
from pages import newest, store, write_between
from provenance import describe_machine

SOURCE = "benchmarks/cluster.py"
DOCS = Path(__file__).parents[1] / "docs" / "results"
FEATURES = (100, 1000, 10_000)
TRANSITIONS = (1e9, 1e12)
WORKERS = (1, 10, 100, 1000, 10_000)
ASSUMED = {"bandwidth": 1.25e9, "latency": 1e-3, "task": 1e-3, "reading": 1e9, "chunk": 1e9}  # bytes, seconds
CHUNKS_PER_WORKER = 4  # at least, so that no worker waits long for the last one
SMALL = 0.1  # share of a worker's time at which merging and sending count as small

Results = dict[str, Any]


@dataclass(frozen=True)
class Fit:
    """A fit, by the symbols of the page; seconds and bytes."""

    n: int
    s: float
    m: float
    v: float
    beta: float
    latency: float
    tau: float
    rho: float
    T: float
    W: int
    R: float

    @property
    def C(self) -> int:  # noqa: N802
        """Number of chunks."""
        return math.ceil(self.T / self.R)

    @property
    def D(self) -> int:  # noqa: N802
        """Depth of the tree of merges."""
        return math.ceil(math.log2(self.C))

    @property
    def S(self) -> float:  # noqa: N802
        """Bytes of statistics: two matrices and five vectors."""
        return 16.0 * self.n**2 + 40.0 * self.n

    @property
    def t(self) -> float:
        """Seconds to send statistics."""
        return self.latency + self.S / self.beta

    @property
    def per_row(self) -> float:
        """Seconds to read and sum a row."""
        return self.s + 8.0 * self.n / self.rho

    def terms(self) -> dict[str, float]:
        """Terms of the time on a Dask cluster: the larger of the first two, and the others."""
        apart = 1.0 - 1.0 / self.W
        merges = max(0.0, self.C - self.W) / self.W
        return {
            "workers": math.ceil(self.C / self.W) * self.R * self.per_row + merges * (self.m + apart * self.t),
            "scheduler": (2 * self.C - 1) * self.tau,
            "tree": self.D * (self.m + (self.W > 1) * self.t + self.tau) + self.t,
            "solve": self.v,
        }

    def seconds(self) -> float:
        """Seconds of the fit."""
        workers, scheduler, *last = self.terms().values()
        return float(max(workers, scheduler) + sum(last))

    def takes_over(self) -> dict[str, float]:
        """Rows per chunk, and numbers of workers, from which something else takes longer than reading and sums."""
        work = self.T * self.per_row
        chunk = self.R * self.per_row
        last = self.t + self.tau + self.m
        return {
            "rows": (self.m + self.t) / (SMALL * self.per_row),
            "scheduler": min(chunk / (2 * self.tau), math.sqrt(work / (2 * CHUNKS_PER_WORKER * self.tau))),
            "tree": work / (self.D * last + self.t),
            "solve": work / self.v,
        }


def fit_of(results: Results, n: int, T: float, W: int) -> Fit:
    """A fit on a Dask cluster, over the worse of the assumed network and the one measured.

    Chunks are as large as memory allows, with at least `CHUNKS_PER_WORKER` for each worker.
    """
    costs = results["costs"][str(n)]
    network = results["messages"]["dask"]
    assumed = results["assumed"]
    beta = min(network["bandwidth"], assumed["bandwidth"])
    latency, tau = (max(network[name], assumed[name]) for name in ("latency", "task"))
    R = min(int(assumed["chunk"] / (8 * n)), T / (CHUNKS_PER_WORKER * W))
    return Fit(n, costs["row"], costs["merge"], costs["solve"], beta, latency, tau, assumed["reading"], T, W, R)


# ---------------------------------------------------------------- the page


def sections(results: Results) -> dict[str, str]:
    """Tables between the markers of the page."""
    return {
        "measured": _measured(results),
        "limits": _limits(results),
        "times": _times(results),
    }


def _measured(results: Results) -> str:
    machine = results["machine"]
    about = (
        f"Measured on {results['date']}: {machine['cpu']}, {machine['cores']} cores, Python {machine['python']}, NumPy "
        f"{machine['packages']['numpy']}; load average at the start {results['load']:.1f}."
    )
    costs = []
    for n, cost in results["costs"].items():
        size = fit_of(results, int(n), 1e9, 1).S
        costs.append([n, _bytes(size), *(_time(cost[name]) for name in ("row", "merge", "solve")), cost["rows"]])
    networks = {
        "between Dask workers, measured": results["messages"]["dask"],
        "network, assumed": results["assumed"],
    }
    sending = [
        [name, f"{_bytes(network['bandwidth'])}/s", _time(network["latency"]), _time(network["task"])]
        for name, network in networks.items()
    ]
    head = ("n", "statistics S", "sums per row s", "merge m", "solve v", "rows summed")
    return "\n\n".join(
        (
            about,
            _table(head, costs),
            _table(("sending statistics", "bandwidth β", "latency ℓ", "per task τ"), sending),
        )
    )


def _limits(results: Results) -> str:
    rows = []
    for T in TRANSITIONS:
        for n in FEATURES:
            fit = fit_of(results, n, T, 1)
            limit = fit.takes_over()
            workers = [_count(limit[name]) for name in ("scheduler", "tree", "solve")]
            rows.append(
                [
                    f"{T:.0e}",
                    n,
                    _bytes(8.0 * n * T),
                    _time(T * fit.per_row),
                    f"{fit.s / fit.per_row:.0%}",
                    _count(limit["rows"]),
                    int(fit.R),
                    *workers,
                    _bytes(8.0 * n * fit.R + 4.0 * fit.S),
                ]
            )
    head = (
        "T",
        "n",
        "data",
        "one core",
        "of it sums",
        f"R for {SMALL:.0%}",
        "R taken",
        "W: scheduler",
        "W: tree",
        "W: solve",
        "memory per worker",
    )
    return _table(head, rows)


def _times(results: Results) -> str:
    rows = [
        [f"{T:.0e}", n, *(_time(fit_of(results, n, T, W).seconds()) for W in WORKERS)]
        for T in TRANSITIONS
        for n in FEATURES
    ]
    head = ("T", "n", *(f"{W} worker{'s' * (W > 1)}" for W in WORKERS))
    return _table(head, rows)


def _table(head: Any, rows: list[list[Any]]) -> str:
    return "\n".join(f"| {' | '.join(map(str, cells))} |" for cells in [head, ["---:"] * len(head), *rows])


_UNITS = (("years", 3.15576e7), ("d", 86400.0), ("h", 3600.0), ("min", 60.0), ("s", 1.0), ("ms", 1e-3), ("µs", 1e-6))


def _time(seconds: float) -> str:
    unit, length = next((u for u in _UNITS if seconds >= u[1] * (2.0 if u[1] > 1.0 else 1.0)), _UNITS[-1])
    return "0" if seconds == 0.0 else f"{seconds / length:.3g} {unit}"


def _count(number: float) -> str:
    rounded = float(f"{number:.2g}")
    return f"{rounded:.0f}" if rounded < 1e6 else f"{rounded:.1e}".replace(".0e", "e")


def _bytes(number: float) -> str:
    for power, unit in ((15, "PB"), (12, "TB"), (9, "GB"), (6, "MB"), (3, "kB")):
        if number >= 10.0**power:
            return f"{number / 10.0**power:.3g} {unit}"
    return f"{number:.3g} B"


def draw(results: Results, path: Path) -> None:
    """Draw the time of a fit against the number of workers."""
    workers = np.unique(np.geomspace(1, 1e5, 121).round().astype(int)).tolist()
    ticks = {
        0.01: "10 ms",
        1.0: "1 s",
        60.0: "1 min",
        3600.0: "1 h",
        86400.0: "1 day",
        2.6e6: "1 month",
        3.16e7: "1 year",
        3.16e8: "10 years",
    }
    with figure_style():
        figure = new_figure(WIDE, 4.6)
        axes = figure.subplots(1, 2, sharey=True)
        for ax, T in zip(axes, TRANSITIONS, strict=True):
            for n, colour in zip(FEATURES, colormaps["viridis"]([0.75, 0.45, 0.1]), strict=True):
                one = fit_of(results, n, T, 1)
                ax.loglog(workers, [T * one.per_row / W for W in workers], color=REFERENCE, linewidth=0.7)
                seconds = [fit_of(results, n, T, W).seconds() for W in workers]
                ax.loglog(workers, seconds, color=colour, label=f"n = {n}")
            ax.set_title(f"{T:.0e} transitions".replace("e+0", "e").replace("e+", "e"))
            ax.set_xlabel("workers of one core")
            ax.minorticks_off()
        axes[0].lines[0].set_label("reading and sums alone")
        axes[0].set_ylabel("time")
        axes[0].set_yticks(list(ticks), labels=list(ticks.values()), minor=False)
        figure.legend(*axes[0].get_legend_handles_labels(), loc="lower center", ncols=4, fontsize=8.0)
        figure.tight_layout(rect=(0.0, 0.1, 1.0, 1.0))
        figure.savefig(path, dpi=110, metadata={"Software": None})


def main() -> None:
    """Measure, unless --docs is given, and write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--docs", action="store_true", help="write the page from the newest results")
    arguments = parser.parse_args()
    if not arguments.docs:
        date = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
        results = {"date": date, "machine": describe_machine(), "assumed": ASSUMED}
        results |= cluster_measure.everything(FEATURES)
        store("cluster", results)
    results = newest("cluster")
    for name, text in sections(results).items():
        write_between(DOCS / "cluster-costs.md", f"{SOURCE}: {name}", text)
        print(text, end="\n\n")
    draw(results, DOCS / "figures" / "cluster-costs.png")


if __name__ == "__main__":
    main()
