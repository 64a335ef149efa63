"""The page about costs on many machines, from what was measured: tables, and a figure."""

from __future__ import annotations

import statistics
import textwrap
from pathlib import Path
from typing import Any

from cluster_model import (
    IN_TREE,
    Costs,
    Job,
    Network,
    caller_takes_over,
    chosen_rows,
    in_all,
    largest_chunk,
    per_row,
    takes_over,
)
from cluster_simulation import cluster_times, executor_times, simulated

TRANSITIONS = (1e9, 1e12)
WORKERS = (1, 10, 100, 1000, 10_000)
_UNITS = (
    ("years", 365.25 * 86400.0),
    ("d", 86400.0),
    ("h", 3600.0),
    ("min", 60.0),
    ("s", 1.0),
    ("ms", 1e-3),
    ("µs", 1e-6),
)
_WHAT = {"caller": "the caller", "scheduler": "the scheduler", "tree": "the tree", "solve": "the solve"}


def costs_of(found: dict[str, Any]) -> dict[int, Costs]:
    """Of each number of features."""
    return {
        int(n): Costs(int(n), cost["row"], cost["merge"], cost["solve"], cost["size"])
        for n, cost in found["costs"].items()
    }


def network_of(found: dict[str, Any], kind: str) -> Network:
    """Of each number the worse of what is assumed and what programs of that kind did here."""
    assumed, here = found["assumed"], found["messages"][kind]
    bandwidth = min(assumed["bandwidth"], here["bandwidth"])
    latency, task = (max(assumed[name], here[name]) for name in ("latency", "task"))
    return Network(bandwidth, latency, task, assumed["reading"])


def jobs(found: dict[str, Any], kind: str) -> list[Job]:
    """All rows of the tables."""
    network = network_of(found, kind)
    return [
        Job(cost, network, transitions, workers, chosen_rows(transitions, workers, n, found["assumed"]["chunk"]))
        for transitions in TRANSITIONS
        for n, cost in costs_of(found).items()
        for workers in WORKERS
    ]


def simulate(found: dict[str, Any]) -> dict[str, list[float]]:
    """Seconds of all rows of the tables."""
    return {kind: [simulated(job, kind == "dask") for job in jobs(found, kind)] for kind in ("dask", "processes")}


def predicted(found: dict[str, Any], run: dict[str, Any]) -> tuple[float, float]:
    """Seconds of a fit on this machine: simulated, and no less than its cores need for all work; and this work."""
    cost, message, on_cluster = costs_of(found)[run["n"]], found["messages"][run["on"]], run["on"] == "dask"
    send = message["latency"] + cost.size / message["bandwidth"]
    chunks, workers = run["chunks"], run["workers"]
    numbers = (cost.merge, send, message["task"])
    times = cluster_times if on_cluster else executor_times
    sent = (chunks - 1) * (1.0 - 1.0 / workers) if on_cluster else chunks
    work = chunks * run["rows"] * cost.row + (chunks - 1) * cost.merge + sent * send
    work += (1 + on_cluster) * chunks * message["task"]
    alone = times([run["rows"] * cost.row] * chunks, workers, *numbers)
    least: float = work / found["machine"]["cores"]
    return max(alone, least), work


def sections(found: dict[str, Any]) -> dict[str, str]:
    """What stands between the markers of the page."""
    return {
        "measured": _measured(found),
        "takes over": _takes_over(found),
        "dask": "\n\n".join(_dask(found, transitions) for transitions in TRANSITIONS),
        "executors": _executors(found),
        "simulation": _checked(found),
        "runs": _runs(found),
    }


def _measured(found: dict[str, Any]) -> str:
    machine, assumed = found["machine"], found["assumed"]
    where = (
        f"Measured by `python benchmarks/cluster.py` on {found['date']}: {machine['cpu']}, {machine['cores']} cores, "
        f"Python {machine['python']}, NumPy {machine['packages']['numpy']}. Processor seconds of one core, medians; of "
        f"messages, the least of several times. Other processes that wanted a core when it began: {found['load']:.1f}."
    )
    rows = [
        [
            f"{n}", _bytes(cost.size), _duration(cost.row), _duration(cost.merge), _duration(cost.solve),
            f"{found['costs'][str(n)]['rows']}", _bytes(found["costs"][str(n)]["peak"]),
        ]
        for n, cost in costs_of(found).items()
    ]  # fmt: skip
    head = ("n", "statistics S", "sums per row s", "merge m", "solve v", "rows of the chunk", "peak memory of process")
    also = (
        f"Assumed too: each worker reads {_bytes(assumed['reading'])}/s (ρ), however many there are, and a chunk has "
        f"at most {_bytes(assumed['chunk'])} of data. Of β, ℓ and τ, the tables take the worse of what is assumed and "
        "what was measured."
    )
    return "\n\n".join((_wrapped(where), _table(head, rows), _messages(found), _wrapped(also)))


def _messages(found: dict[str, Any]) -> str:
    rows = [
        [name, f"{_bytes(value['bandwidth'])}/s", _duration(value["latency"]), _duration(value["task"])]
        for name, value in (
            ("between Dask workers, here", found["messages"]["dask"]),
            ("from a process to its caller, here", found["messages"]["processes"]),
            ("network, assumed", found["assumed"]),
        )
    ]
    return _table(("sending statistics", "bandwidth β", "latency ℓ", "per task τ"), rows)


def _takes_over(found: dict[str, Any]) -> str:
    n_bytes = found["assumed"]["chunk"]
    dask, processes = network_of(found, "dask"), network_of(found, "processes")
    rows = []
    for transitions in TRANSITIONS:
        for n, cost in costs_of(found).items():
            over = takes_over(cost, dask, transitions, n_bytes)
            work = transitions * per_row(cost, dask)
            memory = Job(cost, dask, transitions, 1, largest_chunk(n, n_bytes)).memory
            numbers = [over["scheduler"], caller_takes_over(cost, processes, transitions, n_bytes), over["tree"]]
            rows.append([
                f"{transitions:.0e}", f"{n}", _bytes(8.0 * n * transitions), _duration(work),
                f"{cost.row / per_row(cost, dask):.0%}", _count(over["rows"]), f"{largest_chunk(n, n_bytes)}",
                *(_count(number) for number in (*numbers, over["solve"])), _bytes(memory),
            ])  # fmt: skip
    head = (
        "T", "n", "data", "one core", "of it sums", f"R for {IN_TREE:.0%}", "R taken", "W: scheduler", "W: caller",
        "W: tree", "W: solve", "memory per worker",
    )  # fmt: skip
    return _table(head, rows)


def _dask(found: dict[str, Any], transitions: float) -> str:
    head = (
        "n", "workers", "rows per chunk", "chunks", "depth", "reading", "sums", "merging", "scheduler", "tree", "solve",
        "in all", "simulated", "bytes moved", "most of it",
    )  # fmt: skip
    rows = []
    for job, seconds in zip(jobs(found, "dask"), found["simulated"]["dask"], strict=True):
        if job.transitions != transitions:
            continue
        terms = job.on_cluster()
        whole = in_all(terms)
        parts = _parts(job, terms)
        rows.append([
            f"{job.cost.n}", f"{job.workers}", f"{job.rows:.0f}", f"{job.chunks}", f"{job.depth}",
            *(_duration(parts[name]) for name in ("reading", "sums", "merging", "scheduler", "tree", "solve")),
            _duration(whole), f"{seconds / whole - 1.0:+.1%}", _bytes(job.moved), _most(parts),
        ])  # fmt: skip
    return f"{transitions:.0e} transitions on a Dask cluster:\n\n{_table(head, rows)}"


def _parts(job: Job, terms: dict[str, float]) -> dict[str, float]:
    """Terms with that of the workers in three; those that come last."""
    sums = job.rounds * job.rows * job.cost.row
    reading = job.rounds * job.chunk - sums
    return {"reading": reading, "sums": sums, "merging": terms["workers"] - sums - reading} | terms


def _most(parts: dict[str, float]) -> str:
    central = next(name for name in ("scheduler", "caller") if name in parts)
    rest = {name: parts[name] for name in ("tree", "solve")}
    if parts[central] > parts["workers"]:
        rest[central] = parts[central]
    else:
        rest |= {name: parts[name] for name in ("reading", "sums", "merging")}
    most = max(rest, key=rest.__getitem__)
    return _WHAT.get(most, most)


def _executors(found: dict[str, Any]) -> str:
    pairs = list(zip(jobs(found, "processes"), found["simulated"]["processes"], strict=True))
    half = len(pairs) // 2
    rows = []
    for two in zip(pairs[:half], pairs[half:], strict=True):
        row = [f"{two[0][0].cost.n}", f"{two[0][0].workers}"]
        for job, seconds in two:
            terms = job.on_executor()
            whole = in_all(terms)
            numbers = (_duration(terms["workers"]), _duration(terms["caller"]), _duration(whole))
            row += [*numbers, f"{seconds / whole - 1.0:+.1%}", _most(_parts(job, terms))]
        rows.append(row)
    head = ["n", "workers"]
    for transitions in TRANSITIONS:
        head += [f"{transitions:.0e}: workers", "caller", "in all", "simulated", "most of it"]
    return _table(head, rows)


def deviations(found: dict[str, Any]) -> list[float]:
    """Simulated over worked out, less one, of all rows of the tables."""
    return [
        seconds / in_all(job.on_cluster() if kind == "dask" else job.on_executor()) - 1.0
        for kind, times in found["simulated"].items()
        for job, seconds in zip(jobs(found, kind), times, strict=True)
    ]


def _checked(found: dict[str, Any]) -> str:
    apart = deviations(found)
    return _wrapped(
        f"Of the {len(apart)} fits in the tables, the simulated one takes between {min(apart):+.1%} and "
        f"{max(apart):+.1%} longer than the formula says; {sum(abs(one) <= 0.01 for one in apart)} agree within 1 %."
    )


def _runs(found: dict[str, Any]) -> str:
    rows = []
    for run in found["runs"]:
        seconds, low, high = (f(run["seconds"]) for f in (statistics.median, min, max))
        expected, work = predicted(found, run)
        rows.append([
            "processes" if run["on"] == "processes" else "Dask", f"{run['workers']}", f"{run['n']}", f"{run['chunks']}",
            f"{run['rows']}", f"{seconds:.2f} ({low:.2f}–{high:.2f})", f"{expected:.2f}", f"{seconds / expected:.2f}",
            f"{statistics.median(run['processor']):.2f}", f"{work:.2f}",
        ])  # fmt: skip
    head = (
        "on",
        "workers",
        "n",
        "chunks",
        "rows each",
        "measured, s",
        "predicted, s",
        "ratio",
        "processor s",
        "predicted",
    )
    return _table(head, rows)


def _wrapped(text: str) -> str:
    return textwrap.fill(text, 120)


def _table(head: Any, rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [head, ["---:"] * len(head), *rows])


def _duration(seconds: float) -> str:
    unit, length = next((pair for pair in _UNITS if seconds >= pair[1] * (2.0 if pair[1] > 1.0 else 1.0)), _UNITS[-1])
    return "0" if seconds == 0.0 else f"{seconds / length:.3g} {unit}"


def _count(number: float) -> str:
    """A number of which two digits are worth saying."""
    rounded = float(f"{number:.2g}")
    return f"{rounded:.0f}" if rounded < 1e6 else f"{rounded:.1e}".replace(".0e", "e")


def _bytes(number: float) -> str:
    for power, unit in ((18, "EB"), (15, "PB"), (12, "TB"), (9, "GB"), (6, "MB"), (3, "kB")):
        if number >= 10.0**power:
            return f"{number / 10.0**power:.3g} {unit}"
    return f"{number:.3g} B"


def write_pages(found: dict[str, Any], docs: Path) -> None:
    """Write tables into the page, and the figure beside it."""
    from cluster_figure import draw
    from pages import write_between

    for name, text in sections(found).items():
        write_between(docs / "cluster-costs.md", f"benchmarks/cluster.py: {name}", text)
    draw(found, docs / "figures" / "cluster-costs.png")
