"""Costs of fits on many machines: the formulas beside stored measurements, and the page made from them."""

from __future__ import annotations

import itertools
import json
import math
import statistics
import sys
from dataclasses import replace
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
try:
    import cluster
finally:
    sys.path.remove(str(ROOT / "benchmarks"))

PAGE = (ROOT / "docs" / "results" / "cluster-costs.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def checked():
    """The results that also have a simulation and whole sums."""
    return json.loads((ROOT / "benchmarks" / "results" / "cluster-2026-11-20.json").read_text(encoding="utf-8"))


# ---------------------------------------------------------------- the page


def test_the_tables_of_the_page_are_those_of_the_newest_results():
    for name, text in cluster.sections(cluster.newest("cluster")).items():
        assert f"<!-- begin: benchmarks/cluster.py: {name} -->\n\n{text}\n\n<!-- end: " in PAGE


def test_the_formulas_are_near_the_stored_simulation(checked):
    fits = list(itertools.product(cluster.TRANSITIONS, cluster.FEATURES, cluster.WORKERS))
    excess = [
        seconds / cluster.fit_of(checked, kind, n, T, W).seconds(kind) - 1.0
        for kind, times in checked["simulated"].items()
        for seconds, (T, n, W) in zip(times, fits, strict=True)
    ]
    assert len(excess) == 60
    assert max(map(abs, excess)) < 0.1
    assert f"between −{-100 * min(excess):.1f} % and +{100 * max(excess):.1f} % more time" in " ".join(PAGE.split())


def test_the_page_says_how_far_runs_were_from_the_formula(checked):
    ratios = {"dask": [], "processes": []}
    for run in checked["runs"]:
        kind, here = run["on"], checked["messages"][run["on"]]
        general = cluster.fit_of(checked, kind, run["n"], run["chunks"] * run["rows"], run["workers"])
        network = {"beta": here["bandwidth"], "latency": here["latency"], "tau": here["task"], "rho": math.inf}
        formula = replace(general, R=run["rows"], v=0.0, **network).seconds(kind)
        ratios[kind].append(statistics.median(run["seconds"]) / formula)
    words = " ".join(PAGE.split())
    for kind, name in (("processes", "took {} to {} times"), ("dask", "and {} to {} times by Dask workers")):
        assert name.format(*(f"{limit(ratios[kind]):.2f}" for limit in (min, max))) in words
