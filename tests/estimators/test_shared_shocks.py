"""What all subjects share: as defined, in intervals of totals; nothing without a shock, and wide enough with one."""

import copy
import pickle

import numpy as np
import pandas as pd
import pytest
from scipy import special

import lstd
import naive
from lstd import HorizonLSTD, fit_tables
from lstd.data.check_rows import check_rows
from lstd.errors import InvalidInputError
from lstd.estimators import bias_check
from lstd.estimators.shared_shocks import SharedShock
from tolerances import assert_close

HORIZON = 2
STEPS = 16  # of an episode, so that there are four cuts
pytestmark = [
    pytest.mark.filterwarnings("ignore::lstd.errors.LSTDWarning"),
    pytest.mark.usefixtures("no_bias_or_misfit"),
]


def log(seed, n=50, shock=0.0, steps=STEPS, m=1, to_come=0):
    """Rows of subjects with a rate that a feature shows, all of whom a shock moves for `HORIZON` steps; what comes."""
    random = np.random.default_rng(seed)
    rate = random.gamma(2.0, 1.0, n)
    level = np.repeat(random.lognormal(-0.5 * shock**2, shock, steps), HORIZON)[: steps - 1 + to_come]
    came = rate[:, np.newaxis] * level * random.gamma(2.0, 0.5, (n, len(level)))
    known = np.column_stack([came[:, : steps - 1], np.full(n, np.nan)])
    y = np.column_stack([known.ravel(), *(random.gamma(2.0, 1.0, n * steps) for _ in range(1, m))])
    y[steps - 1 :: steps] = np.nan
    data = {
        "X": np.repeat(rate, steps)[:, np.newaxis],
        "y": y if m > 1 else y[:, 0],
        "episode": np.repeat(np.arange(n), steps),
        "terminated": np.zeros(n * steps, dtype=bool),
    }
    return data, rate[:, np.newaxis], came[:, steps - 1 :].sum()


def without_shock(model):
    """A copy of a model that knows of no shock."""
    other = copy.copy(model)
    other.model_ = model.model_.described(shock=None)
    return other


def shock_of(model):
    return model.model_.shock


def of_return(model, X, **how):
    return model.predict_interval(X, of="return", **how)


def shared_variance(model, X, **how):
    """What the shock adds to the variance."""
    errors = [of_return(one, X, **how).standard_error for one in (model, without_shock(model))]
    return errors[0] ** 2 - errors[1] ** 2


@pytest.mark.parametrize("low", [None, 1.5])
def test_it_is_its_definition(low):
    gamma = 0.9
    data, _, _ = log(0, n=30, shock=0.3, m=2)
    random = np.random.default_rng(1)
    data["X"] = data["X"] + random.normal(size=data["X"].shape)
    data["weight"] = random.uniform(0.5, 2.0, len(data["X"]))
    data["groups"] = data["episode"] // 2
    model = HorizonLSTD(HORIZON, gamma=gamma, low=low).fit(**data)
    full = check_rows(**data, gamma=gamma).full
    back = STEPS - 1 - np.arange(len(full)) % STEPS
    of_all = data["weight"] @ full
    cuts = [[], []]
    for cut in (2, 4, 6, 8):
        known = back >= cut
        now = np.flatnonzero(back == cut)
        some = {name: column[known] for name, column in data.items()}
        some["y"] = some["y"].copy()
        some["y"][back[known] == cut] = np.nan
        share = some["weight"] @ (back[known] > cut) / of_all
        refit = HorizonLSTD(HORIZON, gamma, alpha=share * model.ridge_, penalty="raw", check=False)
        values = refit.fit(**some).predict(data["X"][now])
        error = model.predict_interval(data["X"][now], weights=data["weight"][now]).standard_error
        came = data["y"][now] + gamma * data["y"][now + 1]
        of_rows = [data[name][now] for name in ("groups", "weight")]
        for j in range(2):
            cuts[j].append((list(zip(*of_rows, came[:, j], values[:, j], strict=True)), error[j] ** 2 / share))
    expected = [naive.shared_shock(of_reward) for of_reward in cuts]
    assert expected[0] > 0.01
    assert shock_of(model).n_cuts == 4
    assert_close(shock_of(model).variance, expected, "solve")


@pytest.mark.parametrize("weights", [None, np.linspace(-1.0, 2.0, 50), np.ones(50)])
@pytest.mark.parametrize("horizon", [1, 2])
def test_intervals_have_its_share(weights, horizon):
    data, now, _ = log(2, shock=0.3)
    model = HorizonLSTD(HORIZON).fit(**data)
    (variance,) = shock_of(model).variance
    assert variance > 0.01
    how = {"weights": weights, "horizon": horizon}
    both = of_return(model, now, **how)
    alone = of_return(without_shock(model), now, **how)
    mean = model.predict_interval(now, **how)
    freedom_of_spread = model.model_.spread.freedom[0]
    share = np.eye(len(now)) if weights is None else weights[np.newaxis]
    size = np.abs(share) @ np.abs(model.predict(now, horizon))
    found = np.array([both.upper - both.prediction, both.standard_error, both.degrees_of_freedom]).reshape(3, -1)
    known = np.array([mean.standard_error, mean.degrees_of_freedom, mean.shift, alone.standard_error]).reshape(4, -1)
    for column, (se, df, shift, whole), total in zip(found.T, known.T, size, strict=True):
        parts = [(se**2, df), (whole**2 - se**2, freedom_of_spread), (variance * total**2, 4)]
        expected = naive.interval_of_what_comes(parts, shift, lambda freedom: special.stdtrit(freedom, 0.975))
        assert_close(column, expected, "solve")
    np.testing.assert_array_equal(both.prediction, alone.prediction)


def test_without_a_shock_totals_are_held_and_most_intervals_are_as_wide_as_before():
    held, wider = [], []
    for seed in range(60):
        data, now, came = log(seed, n=40, to_come=HORIZON)
        model = HorizonLSTD(HORIZON, n_blocks=10).fit(**data)
        total = of_return(model, now, weights=np.ones(len(now)))
        before = of_return(without_shock(model), now, weights=np.ones(len(now)))
        held.append(total.lower <= came <= total.upper)
        wider.append((total.upper - total.lower) / (before.upper - before.lower))
    assert np.mean(held) >= 0.92
    assert np.mean(np.array(wider) > 1.01) < 0.3


def test_with_a_shock_totals_are_held_more_often():
    held, before = [], []
    for seed in range(30):
        data, now, came = log(seed, n=100, shock=0.3, to_come=HORIZON)
        model = HorizonLSTD(HORIZON, n_blocks=10).fit(**data)
        for one, found in ((model, held), (without_shock(model), before)):
            total = of_return(one, now, weights=np.ones(len(now)))
            found.append(total.lower <= came <= total.upper)
    assert np.mean(before) < 0.8
    assert np.mean(held) > 0.85


@pytest.mark.parametrize("size", [1e-140, 1e-3, 1e3, 1e140])
def test_units_of_rewards_and_weights_make_no_difference(size):
    data, now, _ = log(3, shock=0.3)
    ones = np.ones(len(now))
    model = HorizonLSTD(HORIZON, alpha=1e-3).fit(**data)
    scaled = HorizonLSTD(HORIZON, alpha=1e-3).fit(**data | {"y": size * data["y"]})
    np.testing.assert_allclose(shock_of(scaled).variance, shock_of(model).variance, rtol=1e-6)
    total = of_return(model, now, weights=ones)
    of_scaled = of_return(scaled, now, weights=ones)
    np.testing.assert_allclose(of_scaled.lower / size, total.lower, rtol=1e-6)
    weight = np.full(len(data["y"]), 8.0)
    weighted = HorizonLSTD(HORIZON, alpha=8e-3).fit(**data, weight=weight)
    assert_close(shock_of(weighted).variance, shock_of(model).variance, "solve")
    two = HorizonLSTD(HORIZON, alpha=1e-3).fit(**data | {"y": np.column_stack([data["y"], -2.0 * data["y"]])})
    expected = np.array([1.0, 4.0]) * shared_variance(model, now, weights=ones)
    assert_close(shared_variance(two, now, weights=ones), expected, "solve")


def test_files_tables_pickles_and_copies_know_it_and_say_so(tmp_path):
    data, now, _ = log(4, shock=0.6)
    model = HorizonLSTD(HORIZON).fit(**data)
    expected = shared_variance(model, now)
    (variance,) = shock_of(model).variance
    text = f"standard deviation {100.0 * np.sqrt(variance):.2g} % of a total, from 4 cuts"
    model.save(tmp_path / "model")
    for other in (lstd.load(tmp_path / "model"), pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        np.testing.assert_array_equal(shared_variance(other, now), expected)
        assert text in str(other.summary())
        assert other.model_.facts["shared shock"] == text
    table = pd.DataFrame({"a": data["X"][:, 0], **{name: data[name] for name in ("episode", "terminated", "y")}})
    roles = {"episode": "episode", "terminated": "terminated"}
    from_table = fit_tables(table, features=["a"], reward="y", gamma=1.0, horizon=HORIZON, **roles)
    assert_close(shared_variance(from_table, pd.DataFrame({"a": now[:, 0]})), expected, "solve")
    model.partial_fit(**data | {"episode": data["episode"] + 1000})
    assert shock_of(model) is None


def test_without_intervals_there_is_none():
    data, _, _ = log(1, shock=0.5)
    assert shock_of(HorizonLSTD(HORIZON).fit(**data)).variance > 0.0
    assert shock_of(HorizonLSTD(HORIZON, n_blocks=0).fit(**data)) is None


@pytest.mark.parametrize("first", [0.0, 1e-12])
def test_what_was_near_zero_before_is_no_shock_of_many_times_a_total(first):
    data, _, _ = log(2)
    began = np.tile(np.arange(STEPS) >= 10, 50)
    data["y"] = np.where(began, data["y"], first * data["y"])
    model = HorizonLSTD(HORIZON).fit(**data)
    assert 0.0 < shock_of(model).variance < 4.0


def test_variances_that_are_out_of_range_are_refused():
    with pytest.raises(ValueError, match="inf"):
        SharedShock(np.array([np.inf]), 2).check_read()
    with pytest.raises(InvalidInputError):
        SharedShock(np.array([4.0]), 2).deviation(np.array([[1e308]]))


def test_without_cuts_there_is_none():
    data, now, _ = log(5, shock=0.3)
    ended = data["terminated"].copy()
    ended[STEPS - 1] = True
    logs = (
        data | {"terminated": ended, "y": np.nan_to_num(data["y"])},
        {"X": data["X"], "y": np.nan_to_num(data["y"])},
        {name: column[: 5 * STEPS] for name, column in data.items()},
    )
    for one in logs:
        model = HorizonLSTD(HORIZON).fit(**one)
        assert shock_of(model) is None
        assert model.summary().facts["shared shock"].startswith("not looked for: ")
    assert "shared shock" not in HorizonLSTD(HORIZON, check=False).fit(**data).summary().facts
    model = HorizonLSTD(HORIZON).fit(**logs[0])
    total = of_return(model, now, weights=np.ones(len(now)))
    mean = model.predict_interval(now, weights=np.ones(len(now)))
    spread = model.model_.spread.variance(now, HORIZON, intercept=True).sum()
    assert_close(total.standard_error**2, mean.standard_error**2 + spread, "solve")


def test_a_shock_that_chance_explains_is_none():
    data, now, _ = log(0)
    model = HorizonLSTD(HORIZON).fit(**data)
    assert shock_of(model).variance == 0.0
    assert model.summary().facts["shared shock"] == "none beyond chance, from 4 cuts"
    found, expected = (of_return(one, now) for one in (model, without_shock(model)))
    for name in ("lower", "upper", "standard_error", "degrees_of_freedom"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))


def test_ends_of_a_total_stay_within_the_sums_of_the_bounds_of_rows():
    data, now, _ = log(7, shock=2.0)
    free = HorizonLSTD(HORIZON).fit(**data)
    bounded = HorizonLSTD(HORIZON, low=0.0, high=10.0).fit(**data)
    for weights, least, most in (
        (np.ones(50), 0.0, 500.0),
        (np.repeat([1.0, -1.0], 25), -250.0, 250.0),
        (-np.ones(50), -500.0, 0.0),
    ):
        total = of_return(free, now, weights=weights)
        assert total.lower < least
        assert total.upper > most
        within = of_return(bounded, now, weights=weights)
        assert (within.lower, within.upper) == (least, most)
        assert_close(within.prediction, total.prediction, "solve")
    floor = of_return(HorizonLSTD(HORIZON, low=0.0).fit(**data), now, weights=np.repeat([1.0, -1.0], 25))
    assert_close(floor.lower, of_return(free, now, weights=np.repeat([1.0, -1.0], 25)).lower, "solve")
    high = HorizonLSTD(HORIZON, low=9.0).fit(**data)  # above what is predicted of the sum, which bounds do not limit
    total = of_return(high, now, weights=np.ones(50))
    assert total.lower == total.prediction
    mean = high.predict_interval(now, weights=np.ones(50))
    assert_close(mean.lower, free.predict_interval(now, weights=np.ones(50)).lower, "solve")


def test_of_many_rows_more_are_looked_at_ahead_than_checked_and_the_same_ones_whatever_the_chunks(monkeypatch):
    monkeypatch.setattr(bias_check, "ENTRIES_OF_CHECK", 2000)
    monkeypatch.setattr(bias_check, "ENTRIES_AHEAD", 4000)
    data, _, _ = log(8, n=400, shock=0.3)
    model = HorizonLSTD(HORIZON).fit(**data)
    n_cuts = shock_of(model).n_cuts
    assert 4000 // STEPS * n_cuts - n_cuts <= model.model_.naive.n_rows <= 4000 // STEPS * n_cuts
    table = pd.DataFrame({"a": data["X"][:, 0], **{name: data[name] for name in ("episode", "terminated", "y")}})
    roles = {"features": ["a"], "reward": "y", "episode": "episode", "terminated": "terminated"}
    for n_rows in (6400, 1000, 77):
        parts = [table[first : first + n_rows] for first in range(0, len(table), n_rows)]
        found = fit_tables(parts, gamma=1.0, horizon=HORIZON, **roles)
        assert_close(shock_of(found).variance, shock_of(model).variance, "solve")
        assert found.model_.naive.n_rows == model.model_.naive.n_rows
