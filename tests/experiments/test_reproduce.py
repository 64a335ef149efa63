"""The experiments from beginning to end: resumed, failing in parts, and beside the plain loop."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest

from lstd.errors import InvalidInputError, LSTDError
from lstd.experiments import timing
from lstd.experiments.protocol import ALPHAS, FEATURES, LMBDAS, PROBLEMS, STEP_SIZES, make_plan
from lstd.experiments.reproduce.folder import PROVENANCE
from lstd.experiments.reproduce.run import reproduce
from lstd.experiments.sweep import run_sweep
from lstd.experiments.timing import LOOPS, run_loop, simulate_run

# Sums in another order, and Boyan's recursion divides by 1 + vᵀPu, which comes as close to zero as 7e-5.
LOOP_RTOL = 1e-7


def contents(folder):
    """What must not depend on interruptions: all but timings and provenance."""
    files = [file for file in Path(folder).rglob("*") if file.is_file() and not file.name.startswith(".lstd-")]
    varying = ("timings.json", PROVENANCE)
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in files if file.name not in varying}


# Plan


def test_plan_divides_the_work_into_cells():
    plan = make_plan()
    assert len(plan.cells) == len(set(plan.cells)) == 3 * 3 * 2
    assert sum(cell.runs * len(cell.algorithms) for cell in plan.cells) == 9 * 50 * 4
    assert plan.configuration["problems"] == list(PROBLEMS)


@pytest.mark.parametrize(("problem", "runs"), [("tiny", 1), ("all", 0), ("all", 10**9), ("all", 1.5)])
def test_bad_plans_are_refused(problem, runs):
    with pytest.raises(InvalidInputError, match=r"`(problem|runs)` must be .*; got"):
        make_plan(problem, runs)


# Complete, again, resumed


def test_everything_is_written_and_described(tmp_path, fakes, monkeypatch):
    monkeypatch.setenv("HOME", "/home/of-the-user")
    steps = []
    outcome = reproduce(
        make_plan("small", 2),
        tmp_path / "out",
        n_jobs=1,
        progress=lambda *step: steps.append(step),
        arguments={"problem": "small"},
    )
    assert (outcome.computed, outcome.reused) == (6, 0)
    assert list(outcome.wall_seconds) == ["sweep", "timings", "report"]
    provenance = json.loads((tmp_path / "out" / PROVENANCE).read_text())
    assert provenance["threads"] == 1
    assert provenance["run_seeds"] == [1, 2]
    assert provenance["arguments"] == {"problem": "small"}
    assert provenance["packages"]["numpy"] == np.__version__
    assert provenance["wall_seconds"] == outcome.wall_seconds
    assert provenance["sessions"] == 1
    assert set(provenance["files"]) == set(contents(tmp_path / "out")) - {"configuration.json"} | {"timings.json"}
    text = (tmp_path / "out" / PROVENANCE).read_text()
    assert "of-the-user" not in text
    assert str(tmp_path) not in text
    done = [done for _, done, _ in steps]
    assert done == sorted(done)
    assert all(done <= total for _, done, total in steps)
    assert done[-1] == pytest.approx(steps[-1][2])


def test_resumed_run_writes_the_same_bytes(tmp_path, fakes):
    plan, finished = make_plan("small", 60), 4
    reproduce(plan, tmp_path / "undisturbed")
    cells = itertools.count()

    def interrupt(*cell):
        if next(cells) == finished:
            raise KeyboardInterrupt

    fakes.on_cell = interrupt
    with pytest.raises(KeyboardInterrupt):
        reproduce(plan, tmp_path / "resumed")
    fakes.on_cell = None
    fakes.calls.clear()
    outcome = reproduce(plan, tmp_path / "resumed")
    assert (outcome.computed, outcome.reused) == (len(plan.cells) - finished, finished)
    assert len([call for call in fakes.calls if call.startswith("small")]) == outcome.computed
    assert contents(tmp_path / "resumed") == contents(tmp_path / "undisturbed")
    provenance = json.loads((tmp_path / "resumed" / PROVENANCE).read_text())
    assert provenance["sessions"] == 2
    assert list(provenance["wall_seconds"]) == ["sweep", "timings", "report"]


@pytest.mark.parametrize("name", ["report.html", "results.parquet", PROVENANCE])
def test_what_was_removed_or_changed_is_made_again(tmp_path, fakes, name):
    plan = make_plan("small", 2)
    reproduce(plan, tmp_path)
    before = contents(tmp_path)
    for change in (lambda path: path.unlink(), lambda path: path.write_text("changed")):
        change(tmp_path / name)
        fakes.calls.clear()
        assert reproduce(plan, tmp_path).computed == 0
        assert fakes.calls == ["report"]
        assert contents(tmp_path) == before


# Failures


def test_failed_cell_ends_the_run_which_then_resumes(tmp_path, fakes):
    plan = make_plan("small", 2)

    def fail(problem, features, algorithm, seeds):
        if (features, algorithm) == ("binary", ["true_online_td"]):
            raise MemoryError("no room")

    fakes.on_cell = fail
    with pytest.raises(LSTDError, match=r"small binary, true online TD\(λ\), runs 1 to 2: MemoryError: no room"):
        reproduce(plan, tmp_path)
    fakes.on_cell = None
    fakes.calls.clear()
    outcome = reproduce(plan, tmp_path)
    assert (outcome.computed, outcome.reused) == (3, 3)
    assert fakes.calls[0] == "small binary true_online_td 1"
    reproduce(plan, tmp_path / "undisturbed")
    undisturbed = contents(tmp_path / "undisturbed")
    assert {name: data for name, data in contents(tmp_path).items() if name in undisturbed} == undisturbed


@pytest.mark.parametrize("broken", ["timings", "theory", "report"])
def test_failed_stage_ends_the_run_which_then_resumes(tmp_path, fakes, broken):
    fakes.broken = {broken}
    with pytest.raises(LSTDError, match=rf": RuntimeError: {broken} is\nbroken"):
        reproduce(make_plan("small", 2), tmp_path)
    fakes.broken = set()
    fakes.calls.clear()
    assert reproduce(make_plan("small", 2), tmp_path).computed == 0
    assert fakes.calls == (["timings"] if broken == "timings" else []) + ["report", "theory"]


# The plain loop and its timing


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("features", FEATURES)
def test_loop_gives_the_errors_of_the_sweep(problem, features):
    run = simulate_run(problem, features, 3)
    for algorithm in LOOPS:
        alphas = (STEP_SIZES if algorithm == "true_online_td" else ALPHAS)[[2, 9]]
        lmbdas = LMBDAS[[0, 9, 19]] if problem == "small" else LMBDAS[[9]]
        errors = run_sweep(problem, features, algorithm, lmbdas=lmbdas, alphas=alphas, run_seeds=[3], n_jobs=1)[0]
        found = [[run_loop(algorithm, run, lmbda, alpha) for alpha in alphas] for lmbda in lmbdas]
        np.testing.assert_allclose(errors, found, rtol=LOOP_RTOL, atol=0.0, err_msg=algorithm)


def test_timings_beside_loop_and_paper():
    timings = timing.measure(["small"], ["normal"])
    rows = {row["algorithm"]: row for row in timings["rows"]}
    assert list(rows) == ["boyan", "uncorrected", "mixed", "lstd_one_pass", "true_online_td"]
    for name, row in rows.items():
        assert ("seconds" in row) == (name in ("lstd_one_pass", "true_online_td"))
    for name in ("lstd_one_pass", "true_online_td"):
        assert 0 < rows[name]["low"] <= rows[name]["seconds"] <= rows[name]["high"]
        assert rows[name]["loop_seconds"] > rows[name]["seconds"]
    parts = [rows[name] for name in ("boyan", "uncorrected", "mixed")]
    for key in ("loop_seconds", "paper_seconds"):
        assert rows["lstd_one_pass"][key] == pytest.approx(sum(row[key] for row in parts), rel=1e-12)
    assert rows["mixed"]["paper_seconds"] == 2.13
