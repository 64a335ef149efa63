"""The hospital of `benchmarks/policy_evaluation.py`: sampling agrees with exact values, and results become tables."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def load(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module


def test_returns_of_sampled_episodes_have_the_exact_mean_and_deviation(load):
    hospital = load("hospital")
    model, gamma = hospital.Hospital(), hospital.GAMMA
    log = model.episodes(model.expert, 4000, seed=0)
    step = np.arange(len(log.state)) - np.flatnonzero(log.first)[log.episode]
    returns = np.bincount(log.episode, log.reward * gamma**step)
    assert abs(returns.mean() - model.value(model.expert, gamma)) < 4.0 * returns.std() / np.sqrt(4000)
    assert abs(returns.std() / model.deviation(model.expert, gamma) - 1.0) < 0.1
    inner = np.flatnonzero(~log.terminated)
    np.testing.assert_array_equal(log.next_state[inner], log.state[inner + 1])
    start = np.bincount(log.state[log.first], minlength=713) / 4000
    assert np.abs(start - model.start).sum() < 0.5


def test_results_become_tables(load):
    script = load("policy_evaluation")
    estimates = {script.RULE: [[0.72, 0.6, 0.9], [0.78, 0.76, 0.8]], "tabular model": [[0.5, None, None]] * 2}
    results = {
        "truth": 0.75,
        "bound": 0.4,
        "seed": 1,
        "date": "today",
        "revision": "x",
        "estimates": {"300": estimates},
    }
    lines = script.tables(results | {"machine": {"cores": 2, "python": "3"}})
    assert f"| {script.RULE} | 30.0 (+0.0) |" in lines
    assert f"| {script.RULE} | 0.50 |" in lines
    assert "| tabular model | 250.0 (-250.0) |" in lines
    assert lines[-3].endswith("| 1.30 | missed |")
