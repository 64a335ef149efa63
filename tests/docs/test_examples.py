"""The scripts behind the page on estimators: verdicts follow from numbers, and the page shows what they print."""

import contextlib
import importlib
import io
import re
import sys
from functools import partial
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from lstd import Trajectories

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "results" / "which-estimator.md").read_text(encoding="utf-8")
SCRIPTS = "pendulum", "customer_value", "sensor_stream"
PRINTED = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)


def told(block, whose):
    """What a printed table says: (case, method) -> words, mean and margin."""
    found, case = {}, None
    for line in block.splitlines():
        if not line.startswith(" "):
            case = line.partition(":")[0]
        row = re.match(rf"  (.*?)  +\d.*{whose} is (.*) it; error less this one (\S+) ± (\S+)", line)
        if row:
            found[case, row[1]] = (row[2], float(row[3]), float(row[4]))
    return found


TOLD = told(next(block for block in PRINTED if block.startswith("swing")), "Boyan's")
LIVE = told(next(block for block in PRINTED if block.startswith("first 10 %")), "RecursiveLSTD")


def load(name):
    folder = str(ROOT / "benchmarks")
    sys.path.insert(0, folder)
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(folder)


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


def test_the_right_reading_of_a_buffer_is_far_ahead():
    with contextlib.redirect_stdout(io.StringIO()):
        right, alone, stream, done = (error.mean() for error in load("readings").main(quick=True).values())
    assert right < 0.25
    assert abs(alone - right) < 0.05
    assert stream > 2 * right
    assert done > 2 * stream


def test_pendulum_boyan_is_far_ahead_when_the_value_lies_behind_the_cut(pendulum):
    module, (results, verdicts), printed = pendulum
    errors = {method: found["error"].mean() for method, found in results["swing, short episodes"].items()}
    assert errors["boyan"] < 0.4
    assert min(errors[method] for method in ("uncorrected", "ridge", "ridge_rescaled")) > 3 * errors["boyan"]
    for method in ("uncorrected", "ridge", "ridge_rescaled"):
        assert verdicts["swing, short episodes"][method]["judged"] == "ahead of"
    line = next(line for line in printed.splitlines() if module.NAMES["uncorrected"] in line)
    assert "Boyan's is ahead of it" in line


def test_pendulum_many_at_once_move_as_gymnasium_moves_one(pendulum):
    module = pendulum[0]
    for case in module.CASES[:2]:
        env = gymnasium.make("Pendulum-v1", max_episode_steps=60, disable_env_checker=True)
        policy = partial(module.torque, balance=case.balance)
        data = Trajectories.from_gymnasium(env, policy, features=module.features, n_episodes=5, seed=7)
        observations, rewards = case.rollouts(5, 60, seed=7)
        kept = ~data.horizon
        phi = module.features(observations.transpose(1, 2, 0))
        np.testing.assert_allclose(rewards.T.ravel(), data.y[kept], rtol=0, atol=1e-4)  # float32 actions
        np.testing.assert_allclose(phi.reshape(300, -1), data.X[kept], rtol=0, atol=1e-4)


def test_pendulum_quick_says_nothing_significant_against_the_page(pendulum):
    module, (_, verdicts), _ = pendulum
    assert list(TOLD) == [(case.name, module.NAMES[m]) for case in module.CASES for m in module.METHODS[1:]]
    for (case, name), (words, _, _) in TOLD.items():
        method = next(m for m in module.METHODS if module.NAMES[m] == name)
        assert {words, verdicts[case][method]["judged"]} != {"ahead of", "behind"}


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


def test_customers_what_does_not_depend_on_quick_stands_on_the_page(customers):
    module, _, printed = customers
    for method in ("ridge", "bg_nbd", "as_before"):
        line = next(line for line in printed.splitlines() if line.startswith(module.NAMES[method]))
        assert f"\n{line.partition('Boyan')[0]}" in PAGE


def test_customers_nothing_is_learned_from_the_weeks_held_out(customers):
    module = customers[0]
    data, changed = module.Histories(), module.Histories()
    changed.counts[:, module.TRAIN :] = 1000
    changed.last[:, module.TRAIN :] = 10**6
    changed.frequency = changed.counts.cumsum(axis=1)
    known = changed.episodes(module.TRAIN)
    for name, array in data.episodes(module.TRAIN).items():
        assert array.tobytes() == known[name].tobytes(), name
    np.testing.assert_array_equal(data.ridge(module.TRAIN, 1.0), changed.ridge(module.TRAIN, 1.0))


# ---------------------------------------------------------------- sensors


def test_sensors_recursive_lstd_beats_what_it_is_compared_with_after_the_wear(sensors):
    _, found, _ = sensors
    errors = {method: blocks[:, 12:].mean() for method, blocks in found["by_block"].items()}
    assert errors["lstd"] < 1.0
    assert errors["lstd"] < errors["td"]
    assert errors["lstd"] < errors["present"]
    assert found["per_second"]["lstd"] > found["per_second"]["td"] / 50


def test_sensors_quick_says_nothing_significant_against_the_page(sensors):
    module, found, _ = sensors
    assert {name for _, name in LIVE} == {module.NAMES[method] for method in ("td", "ar", "present")}
    for case, judged in found["verdicts"].items():
        for method, result in judged.items():
            assert {LIVE[case, module.NAMES[method]][0], result["judged"]} != {"ahead of", "behind"}


def test_sensors_predictions_do_not_look_ahead(sensors):
    module = sensors[0]
    temperature, vibration = module.simulate(300, seed=5)
    np.testing.assert_array_equal(
        module.features_of(temperature, vibration)[:200], module.features_of(temperature[:200], vibration[:200])
    )
    excess = np.maximum(0.0, temperature - temperature.mean())
    np.testing.assert_array_equal(module.autoregression(excess)[:199], module.autoregression(excess[:200]))


# ---------------------------------------------------------------- the page


def test_page_has_its_commands_and_figures():
    for name in SCRIPTS:
        assert f"python benchmarks/{name}.py" in PAGE
        figure = ROOT / "docs" / "results" / "figures" / f"{name}.png"
        assert figure.stat().st_size < 150_000
        assert f"figures/{name}.png" in PAGE


def test_page_words_follow_from_its_numbers():
    assert len(re.findall("is (ahead of|behind|indistinguishable from) it", PAGE)) == len(TOLD) + len(LIVE)
    for words, mean, margin in [*TOLD.values(), *LIVE.values()]:
        expected = "indistinguishable from" if abs(mean) <= margin else "ahead of" if mean < 0 else "behind"
        assert words == expected


def test_page_says_in_words_what_was_printed():
    stored = r"<!-- begin: .*?<!-- end: "  # tables that are made from results
    prose = re.sub(rf"{stored}|```.*?```|`[^`]*`|\([^)]*\.png\)", "", PAGE, flags=re.DOTALL)
    shown = {float(number) for block in PRINTED for number in re.findall(r"[-+]?\d+\.?\d*", block)}
    shown |= {-number for number in shown}
    settings = {0.98, 0.99, 0.966, 0.999}  # discounts, and a rate of forgetting
    assert set(re.findall(r"\d+ %", prose)) <= set(re.findall(r"\d+ %", "".join(PRINTED)))
    for number in re.findall(r"\d+\.\d+", prose):
        close = {x for x in shown if abs(x) < 100 and round(x, len(number.partition(".")[2])) == float(number)}
        assert float(number) in settings or close, number
