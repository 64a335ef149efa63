"""Quick stand-ins for what `lstd.experiments.run` calls: sweep, timings, theory, report.

As a program, the command ``lstd`` with these in place: ``python fake_experiments.py SECONDS_PER_CELL WORDS...``
"""

from __future__ import annotations

import importlib
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from lstd.experiments import timing
from lstd.experiments.protocol import FEATURES
from lstd.io.files import replacing


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
        lmbdas: Sequence[float],
        alphas: Sequence[float],
        run_seeds: Iterable[int],
        mrp_seed: int,
        n_jobs: int | None,
        progress: Callable[[int, int], None],
    ) -> dict[str, Any]:
        seeds = list(run_seeds)
        self.calls.append(f"{problem} {features} {algorithm[0]} {seeds[0]}")
        progress(0, len(seeds))
        if self.on_cell is not None:
            self.on_cell(problem, features, list(algorithm), seeds)
        progress(len(seeds), len(seeds))
        return {name: _errors(f"{problem} {features} {name}", seeds, lmbdas, alphas) for name in algorithm}

    def measure(self, problems: Sequence[str], *, progress: Callable[[int, int], None]) -> dict[str, Any]:
        self._call("timings")
        progress(1, 1)
        names = [(p, f, a) for p in problems for f in FEATURES for a in timing.TIMED]
        rows = [{"problem": p, "features": f, "algorithm": a, "seconds": 1.0} for p, f, a in names]
        return {"threads": 1, "sample": "none", "rows": rows}

    def proposition1(self) -> dict[str, Any]:
        self._call("proposition1")
        return {"mu": np.float64(1.0), "rows": [{"T": 1, "bias_exact": -0.1}]}

    def theorem2(self) -> dict[str, Any]:
        self._call("theorem2")
        return {"n_seeds": 3, "rows": []}

    def write_all(self, folder: Path, progress: Callable[[int, int, str], None]) -> None:
        self._call("report")
        progress(1, 1, "report")
        for name, content in (("figures/figure2.svg", b"<svg/>"), ("report.html", b"<html/>" * 40_000)):
            with replacing(folder / name) as file:
                file.write(content)

    def _call(self, name: str) -> None:
        self.calls.append(name)
        if name in self.broken:
            raise RuntimeError(f"{name} is\nbroken")

    def install(self, set_module: Callable[[str, Any], None]) -> None:
        """Put the stand-ins in place: `set_module(name, module)` makes `module` importable."""
        set_module("lstd.experiments.sweep", SimpleNamespace(run_sweep=self.run_sweep))
        theory = SimpleNamespace(proposition1=self.proposition1, theorem2=self.theorem2)
        set_module("lstd.experiments.theory", theory)
        set_module("lstd.experiments.report", SimpleNamespace(write_all=self.write_all))
        set_module("lstd.experiments.timing", SimpleNamespace(measure=self.measure))


def _errors(name: str, seeds: list[int], lmbdas: Sequence[float], alphas: Sequence[float]) -> Any:
    """Errors that depend on name and seed only, infinite ones among them."""
    key = zlib.crc32(name.encode())
    errors = np.stack([np.random.RandomState([key, seed]).rand(len(lmbdas), len(alphas)) for seed in seeds])
    errors[[seed % 50 == 1 for seed in seeds], -1, -1] = np.inf
    return errors


def _set_for_good(name: str, module: Any) -> None:
    package, _, attribute = name.rpartition(".")
    sys.modules[name] = module
    setattr(importlib.import_module(package), attribute, module)


def install_for_good(seconds: float) -> None:
    """Put the stand-ins in place for as long as the process lives; a cell takes so many seconds."""
    Fakes(on_cell=lambda *cell: time.sleep(seconds)).install(_set_for_good)


if __name__ == "__main__":
    install_for_good(float(sys.argv[1]))
    from lstd.cli import main

    sys.exit(main(sys.argv[2:]))
