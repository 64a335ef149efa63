"""The examples run, their verdicts follow from their numbers, and the page built on them shows what they print."""

from __future__ import annotations

import contextlib
import importlib
import io
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from tolerances import assert_close

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "which-estimator.md").read_text(encoding="utf-8")
SNIPPETS = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", PAGE, re.DOTALL)


def load(name):
    sys.path.insert(0, str(ROOT / "examples"))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(ROOT / "examples"))


def run(name, folder):
    """The module, what its quick run returns, and what it prints."""
    module, printed = load(name), io.StringIO()
    figure = folder / f"{name}.png"
    with contextlib.redirect_stdout(printed):
        found = module.main(quick=True, figure=figure)
    assert figure.read_bytes()[:4] == b"\x89PNG"
    return module, found, printed.getvalue()


@pytest.fixture(scope="module")
def pendulum(tmp_path_factory):
    return run("pendulum", tmp_path_factory.mktemp("pendulum"))


@pytest.fixture(scope="module")
def customers(tmp_path_factory):
    return run("customer_value", tmp_path_factory.mktemp("customer_value"))


@pytest.fixture(scope="module")
def sensors(tmp_path_factory):
    return run("sensor_stream", tmp_path_factory.mktemp("sensor_stream"))


# ---------------------------------------------------------------- pendulum


def test_pendulum_boyan_is_far_ahead_when_the_value_lies_behind_the_cut(pendulum):
    module, (results, verdicts), printed = pendulum
    errors = {method: found["error"].mean() for method, found in results["swing, short episodes"].items()}
    assert errors["boyan"] < 0.4
    assert min(errors[method] for method in ("uncorrected", "ridge", "ridge_rescaled")) > 3 * errors["boyan"]
    for method in ("uncorrected", "ridge", "ridge_rescaled"):
        assert verdicts["swing, short episodes"][method]["judged"] == "ahead of"
    line = next(line for line in printed.splitlines() if module.NAMES["uncorrected"] in line)
    assert "Boyan's is ahead of it" in line


def test_pendulum_the_cut_matters_less_when_little_lies_behind_it_or_in_one_stream(pendulum):
    _, (results, _), _ = pendulum
    ratios = [found["uncorrected"]["error"].mean() / found["boyan"]["error"].mean() for found in results.values()]
    assert ratios[1] < ratios[0] / 3
    assert ratios[2] < ratios[0] / 3


def test_pendulum_ridge_on_returns_is_uncorrected_at_lambda_one(pendulum):
    module = pendulum[0]
    weights = module.candidates(module.CASES[0].collect(10, module.STEPS, seed=3))
    for at, alpha in enumerate(module.ALPHAS):
        if alpha >= 0.1:
            assert_close(weights["uncorrected"][-1, at], weights["ridge"][0, at], "solve")


@pytest.mark.parametrize(("shift", "words"), [(-1.0, "ahead of"), (0.0, "not told apart from"), (1.0, "behind")])
def test_pendulum_verdict_follows_from_the_numbers(pendulum, capsys, shift, words):
    module = pendulum[0]
    spread = np.array([-0.1, 0.1, -0.1, 0.1])
    found = {method: {"error": np.full(4, 5.0), "lmbda": 0.5, "alpha": 1.0} for method in module.METHODS}
    found["boyan"]["error"] = 5.0 + shift + spread
    judged = module.verdict(found)
    assert all(result["mean"] == pytest.approx(shift) for result in judged.values())
    module.report("planted", found, judged)
    assert capsys.readouterr().out.count(f"Boyan's is {words} it") == len(module.METHODS) - 1


# ---------------------------------------------------------------- customers


def test_customers_bg_nbd_has_the_published_estimates(customers):
    module, found, _ = customers
    data = module.Histories()
    assert data.n == 2357
    np.testing.assert_allclose(found["estimates"], [0.243, 4.414, 0.793, 2.426], rtol=0, atol=6e-4)
    loss = module.bg_nbd_loss(np.log(found["estimates"]), *data.summary(np.arange(data.n), module.TRAIN - 1))
    assert loss == pytest.approx(9582.4, abs=0.05)
    assert found["observed"].sum() == 1882
    assert found["found"]["bg_nbd"]["rmse"] == pytest.approx(1.608, abs=0.002)


def test_customers_lstd_is_close_to_bg_nbd(customers):
    _, found, _ = customers
    errors = {method: result["rmse"] for method, result in found["found"].items()}
    assert errors["boyan"] == pytest.approx(errors["bg_nbd"], rel=0.05)
    assert errors["boyan"] < 0.95 * errors["uncorrected"]
    assert errors["boyan"] < 0.9 * errors["as_before"]


def test_customers_nothing_is_learned_from_the_weeks_held_out(customers):
    module = customers[0]
    data, changed = module.Histories(), module.Histories()
    changed.counts[:, module.TRAIN :] = 1000
    changed.last[:, module.TRAIN :] = 10**6
    changed.frequency = changed.counts.cumsum(axis=1)
    for end in (module.CHOOSE, module.TRAIN):
        for name, array in data.episodes(end).items():
            np.testing.assert_array_equal(array, changed.episodes(end)[name])
        np.testing.assert_array_equal(data.ridge(end, 1.0), changed.ridge(end, 1.0))
    assert module.choose(data, (0.8,)) == module.choose(changed, (0.8,))


def test_customers_windows_count_down_to_a_termination(customers):
    module = customers[0]
    arrays = module.Histories().episodes(module.TRAIN)
    last = np.append(np.diff(arrays["episode"]) != 0, True)
    assert np.isnan(arrays["y"][last & ~arrays["terminated"]]).all()
    assert np.isfinite(arrays["y"][~last | arrays["terminated"]]).all()
    lengths = np.diff(np.flatnonzero(np.append(True, last)))
    complete = arrays["terminated"][last]
    assert set(lengths[complete]) <= {*module.WINDOWS, *(window + 1 for window in module.WINDOWS)}


def test_customers_verdict_follows_from_the_numbers(customers):
    module = customers[0]
    observed = np.arange(200.0)
    off = np.where(np.arange(200) % 2, 1.0, -1.0)
    predicted = {"boyan": observed + off, "ridge": observed + 2 * off, "bg_nbd": observed, "as_before": observed - off}
    judged = {method: result["judged"] for method, result in module.compare(predicted, observed, 1000).items()}
    assert judged["ridge"] == "better than"
    assert judged["bg_nbd"] == "worse than"
    assert judged["as_before"] == "not told apart from"
    assert module.compare(predicted, observed, 50)["ridge"]["judged"] == "possibly better than"  # too few to be sure


# ---------------------------------------------------------------- sensors


def test_sensors_recursive_lstd_beats_what_it_is_compared_with_after_the_wear(sensors):
    _, found, _ = sensors
    errors = {method: blocks[:, 12:].mean() for method, blocks in found["by_block"].items()}
    assert errors["lstd"] < 1.0
    assert errors["lstd"] < errors["td"]
    assert errors["lstd"] < errors["present"]
    assert found["per_second"]["lstd"] > 5000


def test_sensors_predictions_do_not_look_ahead(sensors):
    module = sensors[0]
    temperature, vibration = module.simulate(300, seed=5)
    np.testing.assert_array_equal(
        module.features_of(temperature, vibration)[:200], module.features_of(temperature[:200], vibration[:200])
    )
    excess = np.maximum(0.0, temperature - temperature.mean())
    np.testing.assert_array_equal(module.autoregression(excess)[:199], module.autoregression(excess[:200]))


@pytest.mark.parametrize(("shift", "words"), [(-1.0, "ahead of"), (0.0, "not told apart from"), (1.0, "behind")])
def test_sensors_verdict_follows_from_the_numbers(sensors, shift, words):
    module = sensors[0]
    errors = {"lstd": 2.0 + shift + np.array([-0.1, 0.1, 0.0]), **{m: np.full(3, 2.0) for m in ("td", "ar", "present")}}
    assert {result["judged"] for result in module.verdict(errors).values()} == {words}


# ---------------------------------------------------------------- the page


@pytest.mark.parametrize("number", range(len(SNIPPETS)))
def test_page_snippets_print_what_the_page_shows(number):
    code, shown = SNIPPETS[number]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "which-estimator.md", "exec"), {})
    assert printed.getvalue() == shown


def test_page_has_its_snippets_commands_and_figures():
    assert len(SNIPPETS) == PAGE.count("```python")
    for name in ("pendulum", "customer_value", "sensor_stream"):
        assert f"python examples/{name}.py" in PAGE
        figure = ROOT / "docs" / "figures" / f"{name}.png"
        assert figure.stat().st_size < 150_000
        assert f"figures/{name}.png" in PAGE


def test_examples_are_short():
    for path in sorted((ROOT / "examples").glob("*.py")):
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 200, path.name
