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


def test_runs_resume_where_they_stopped_and_only_with_the_same_source(load, tmp_path, monkeypatch):
    script, path = load("policy_evaluation"), tmp_path / "found.json"

    def run(repeats, name):
        arguments = [
            "x",
            "--sizes",
            "20",
            "--only",
            "WIS",
            "--repeats",
            str(repeats),
            "--results",
            str(tmp_path / name),
        ]
        monkeypatch.setattr("sys.argv", arguments)
        script.main()
        return script.json.loads((tmp_path / name).read_text())["estimates"]

    run(2, path.name)
    assert run(3, path.name) == run(3, "whole.json")
    monkeypatch.setattr(script, "source_digest", lambda: "other")
    with pytest.raises(SystemExit, match=r"was measured with source .* not other"):
        run(4, path.name)


def test_columns_of_pairs_that_were_never_logged_change_no_value(load):
    script, hospital = load("policy_evaluation"), load("hospital")
    one = hospital.task()
    data = script.Data(one, one.model.episodes(one.behavior, 30, seed=0))
    model = data.fitted("coarse", 1.0, "retrace")
    whole = script.LSTDQ(model.gamma, 1.0, "retrace", script.ALPHA, features=script.StateActionFeatures(25))
    X = script.sparse.csr_array(data.rows("coarse"))
    whole.fit(X, **data.common, **data.actions)
    np.testing.assert_allclose(model.action_values(X), whole.action_values(X), atol=1e-10)
