"""Quick stand-ins for what `lstd.experiments.reproduce.run` calls: sweep, timings, theory, report.

As a program, the command ``lstd`` with these in place: ``python fake_experiments.py SECONDS_PER_CELL WORDS...``.
``SECONDS,N,FILE`` in place of the seconds: cells after the first N wait for a file, for ever if it is not named.
"""

from __future__ import annotations

import importlib
import io
import itertools
import os
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from lstd.experiments.protocol import ALPHAS, FEATURES, LMBDAS, STEP_SIZES
from lstd.experiments.reproduce.results import Results, write_table


class Fakes:
    """Stand-ins that record their calls; `on_cell` may fail or wait."""

    def __init__(self, on_cell: Callable[[str, str, list[str], list[int]], None] | None = None) -> None:
        self.calls: list[str] = []
        self.on_cell = on_cell
        self.broken: set[str] = set()

    def run_sweep(
        self,
        problem: str,
        features: str,
        algorithm: Sequence[str],
        *,
        run_seeds: Iterable[int],
        n_jobs: int | None,
        progress: Callable[[int, int], None],
    ) -> dict[str, Any]:
        seeds = list(run_seeds)
        self.calls.append(f"{problem} {features} {algorithm[0]} {seeds[0]}")
        progress(0, len(seeds))
        if self.on_cell is not None:
            self.on_cell(problem, features, list(algorithm), seeds)
        progress(len(seeds), len(seeds))
        return {name: _errors(f"{problem} {features} {name}", seeds, _n_alphas(name)) for name in algorithm}

    def measure(self, problems: Sequence[str], *, progress: Callable[[int, int], None]) -> dict[str, Any]:
        self._call("timings")
        progress(1, 1)
        numbers = dict.fromkeys(("loop_seconds", "paper_seconds", "paper_spread"), 1.0)
        names = [(p, f, a) for p in problems for f in FEATURES for a in ("lstd_one_pass", "true_online_td")]
        rows = [{"problem": p, "features": f, "algorithm": a, "loop_sample": "", **numbers} for p, f, a in names]
        return {"threads": 1, "sample": "none", "rows": rows}

    def check_theory(self) -> dict[str, Any]:
        self._call("theory")
        return {"proposition1": {"mu": np.float64(1.0), "rows": [{"T": 1, "bias_exact": -0.1}]}}

    def compose(
        self, results: Results, theory: Callable[[], dict[str, Any]], n_jobs: int
    ) -> Iterator[tuple[str, bytes, int]]:
        self._call("report")
        theory()
        table = io.BytesIO()
        write_table(table, results.sweeps)
        yield "results.parquet", table.getvalue(), 3
        yield "figures/figure2.png", b"PNG", 3
        yield "report.html", b"<html/>" * 40_000, 3

    def _call(self, name: str) -> None:
        self.calls.append(name)
        if name in self.broken:
            raise RuntimeError(f"{name} is\nbroken")

    def install(self, set_module: Callable[[str, Any], None]) -> None:
        """Put the stand-ins in place: `set_module(name, module)` makes `module` importable."""
        set_module("lstd.experiments.sweep", SimpleNamespace(run_sweep=self.run_sweep))
        set_module("lstd.experiments.theory", SimpleNamespace(check_theory=self.check_theory))
        set_module("lstd.experiments.reproduce.report", SimpleNamespace(compose=self.compose))
        set_module("lstd.experiments.timing", SimpleNamespace(measure=self.measure))


def _n_alphas(algorithm: str) -> int:
    return len(STEP_SIZES if algorithm == "true_online_td" else ALPHAS)


def _errors(name: str, seeds: list[int], n_alphas: int) -> Any:
    """Errors that depend on name and seed only, infinite ones among them."""
    key = zlib.crc32(name.encode())
    errors = np.stack([np.random.RandomState([key, seed]).rand(len(LMBDAS), n_alphas) for seed in seeds])
    errors[[seed % 50 == 1 for seed in seeds], -1, -1] = np.inf
    return errors


def set_for_good(name: str, module: Any) -> None:
    package, _, attribute = name.rpartition(".")
    sys.modules[name] = module
    setattr(importlib.import_module(package), attribute, module)


def install_for_good(seconds: float, n_free: float = np.inf, file: str = "") -> None:
    """Put the stand-ins in place for as long as the process lives; a cell takes so many seconds.

    Cells after the first `n_free` wait until a file exists.
    """
    number = itertools.count(1)

    def on_cell(*_: Any) -> None:
        time.sleep(seconds)
        waits = next(number) > n_free
        while waits and not os.path.exists(file):
            time.sleep(0.01)

    Fakes(on_cell).install(set_for_good)


if __name__ == "__main__":
    seconds, n_free, file, *_ = [*sys.argv[1].split(","), "inf", ""]
    install_for_good(float(seconds), float(n_free), file)
    from lstd.cli import main

    sys.exit(main(sys.argv[2:]))
