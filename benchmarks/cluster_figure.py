"""Figure of the page about costs on many machines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from cluster_model import Job, chosen_rows, in_all, per_row, takes_over
from cluster_page import TRANSITIONS, costs_of, jobs, network_of
from lstd.report.style import COLOURS, LINES, MARKERS, REFERENCE, WIDE, figure_style, new_figure

_STYLES = ("mixed", "boyan", "uncorrected")  # of the numbers of features, in order
_TICKS = {0.01: "10 ms", 1.0: "1 s", 60.0: "1 min", 3600.0: "1 h", 86400.0: "1 day", 2.6e6: "1 month", 3.16e7: "1 year",
          3.16e8: "10 years"}  # fmt: skip


def draw(found: dict[str, Any], path: Path) -> None:
    """Write the figure as PNG."""
    with figure_style():
        figure = new_figure(WIDE, 4.8)
        axes = figure.subplots(1, 2, sharey=True)
        for ax, transitions in zip(axes, TRANSITIONS, strict=True):
            _panel(ax, found, transitions)
        axes[0].set_ylabel("wall time")
        axes[0].set_yticks(list(_TICKS), labels=list(_TICKS.values()), minor=False)
        for ax in axes:
            ax.minorticks_off()
        figure.legend(*_entries(axes[0]), loc="lower center", ncols=4, fontsize=8.0)
        figure.tight_layout(rect=(0.0, 0.1, 1.0, 1.0))
        figure.savefig(path, dpi=110, metadata={"Software": None})


def _panel(ax: Any, found: dict[str, Any], transitions: float) -> None:
    workers = np.unique(np.geomspace(1, 1e5, 121).round().astype(int)).tolist()
    dask, processes = network_of(found, "dask"), network_of(found, "processes")
    n_bytes = found["assumed"]["chunk"]
    for style, (n, cost) in zip(_STYLES, costs_of(found).items(), strict=True):
        rows = [chosen_rows(transitions, W, n, n_bytes) for W in workers]
        pairs = list(zip(workers, rows, strict=True))
        on_cluster = [in_all(Job(cost, dask, transitions, *pair).on_cluster()) for pair in pairs]
        on_executor = [in_all(Job(cost, processes, transitions, *pair).on_executor()) for pair in pairs]
        colour = COLOURS[style]
        ideal = [transitions * per_row(cost, dask) / W for W in workers]
        ax.loglog(workers, ideal, color=REFERENCE, linewidth=0.7, label="reading and sums alone")
        ax.loglog(workers, on_executor, color=colour, linestyle=LINES["boyan"], linewidth=1.0, label="executor")
        ax.loglog(workers, on_cluster, color=colour, label=f"n = {n}, Dask")
        sending = [_sending(Job(cost, dask, transitions, *pair)) for pair in pairs]
        ax.loglog(workers, sending, color=colour, linestyle=LINES["mixed"], linewidth=0.8, label="merging and sending")
        at = [(j, t) for j, t in zip(jobs(found, "dask"), found["simulated"]["dask"], strict=True)
              if j.cost.n == n and j.transitions == transitions]  # fmt: skip
        ax.loglog([j.workers for j, _ in at], [t for _, t in at], MARKERS[style], color=colour, label="simulated")
        limit = takes_over(cost, dask, transitions, n_bytes)["scheduler"]
        if limit < workers[-1]:
            at_limit = transitions * per_row(cost, dask) / limit
            ring = {"color": "black", "fillstyle": "none", "markersize": 9, "label": "the scheduler takes over"}
            ax.plot(limit, at_limit, "o", **ring)
        if cost.solve > 1.0:
            ax.axhline(cost.solve, color=colour, linewidth=0.8, linestyle=LINES["true_online_td"])
            ax.annotate(f"solve, n = {n}", (1, cost.solve), xytext=(3, 3), textcoords="offset points", fontsize=7.5)
    ax.set_title(f"{transitions:.0e} transitions".replace("e+0", "e").replace("e+", "e"))
    ax.set_xlabel("workers of one core")


def _sending(job: Job) -> float:
    """Seconds that a fit on a cluster takes longer for merges and what they move."""
    terms = job.on_cluster()
    return terms["workers"] - job.rounds * job.chunk + terms["tree"]


def _entries(ax: Any) -> tuple[list[Any], list[str]]:
    """Handles and labels of the legend, each label once."""
    handles, labels = ax.get_legend_handles_labels()
    once = dict(zip(reversed(labels), reversed(handles), strict=True))
    order = sorted(once, key=lambda label: (not label.startswith("n ="), labels.index(label)))
    return [once[label] for label in order], order
