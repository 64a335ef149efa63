"""Predictions of the next steps beside a naive forecast: as defined, quiet where they are right, loud where it wins."""

import warnings

import numpy as np
import pytest
from scipy import stats

import lstd
import naive
from lstd import HorizonLSTD
from lstd.data.check_rows import check_rows
from lstd.errors import MisfitWarning
from lstd.estimators.folds import folds_of
from lstd.estimators.naive_forecast import NaiveForecast
from tolerances import assert_close

HORIZON, GAMMA = 6, 0.9


def log(seed, n=100, weeks=20, ending=0.0):
    """Customers with a rate of their own, rows with and without it, and some who end."""
    random = np.random.default_rng(seed)
    rate = random.gamma(1.0, 2.0, n)
    lengths = np.full(n, weeks)
    ends = random.random(n) < ending
    lengths[ends] = random.integers(4, weeks, ends.sum())
    episode = np.repeat(np.arange(n), lengths)
    T = len(episode)
    y = rate[episode] + random.normal(size=T)
    last = np.append(np.diff(episode) > 0, True)
    terminated = last & ends[episode]
    y[last & ~terminated] = np.nan
    X = random.normal(size=(T, 2))
    return X, y, {"episode": episode, "terminated": terminated, "weight": random.uniform(0.5, 2.0, T)}, rate[episode]


def found_by(model):
    return model.model_.naive


def said_of_forecasts(model, X, y, **rows):
    """The warning about a naive forecast; one of another kind comes too."""
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        model.fit(X, y, **rows)
    (text,) = [str(one.message) for one in given if "of a forecast that repeats" in str(one.message)]
    return text


def forecasts_of(rewards, t, k, longest):
    """Both naive forecasts of the k steps after row t of an episode."""
    return [naive.forecast_of_steps_before(rewards, t, k, window, GAMMA) for window in (longest, len(rewards))]


def check(model, cuts):
    """Compare what `fit` found with the definition."""
    found = found_by(model)
    ratio, p_value = naive.beside_naive_forecasts(cuts, stats.t.sf)
    assert found.n_rows == sum(map(len, cuts))
    assert_close(found.ratio, [ratio], "solve")
    assert_close(found.p_value, [p_value], "solve")


def test_looking_back_it_is_its_definition():
    X, y, rows, _ = log(1, ending=0.5)
    with warnings.catch_warnings(action="ignore"):
        model = HorizonLSTD(HORIZON, gamma=GAMMA).fit(X, y, **rows)
        checked = check_rows(X, y, **rows, gamma=GAMMA)
        curves = []
        first = 0
        for fold in folds_of(checked):
            out = (np.arange(len(X)) >= first) & (np.arange(len(X)) < first + len(fold))
            some = {name: column[~out] for name, column in rows.items()}
            share = some["weight"] @ checked.full[~out] / (rows["weight"] @ checked.full)
            refit = HorizonLSTD(HORIZON, GAMMA, alpha=share * model.ridge_, penalty="raw", check=False)
            curves.append(refit.fit(X[~out], y[~out], **some).predict_curve(X[out]))
            first += len(fold)
    curve = np.concatenate(curves)
    compared = []
    for name in np.unique(rows["episode"]):
        own = np.flatnonzero(rows["episode"] == name)
        ended = rows["terminated"][own[-1]]
        for t, row in enumerate(own):
            k = HORIZON if ended else min(HORIZON, len(own) - 1 - t)
            is_late = ended or len(own) - 1 - t <= HORIZON
            if not is_late or k < HORIZON / 2 or t < HORIZON / 2 or (row == own[-1] and not ended):
                continue
            came = sum(GAMMA**j * y[own[t + j]] for j in range(min(k, len(own) - t)))
            forecasts = forecasts_of(y[own], t, k, HORIZON)
            compared.append((name, rows["weight"][row], came, curve[row, k - 1], forecasts))
    check(model, [compared])


@pytest.mark.parametrize(
    ("weeks", "steps", "later"),
    [(20, 6, [6, 9]), (10, 3, [3, 4]), (3, 1, [1]), (32, 6, [6, 12]), (70, 6, [6, 12, 18, 24, 30, 36, 42, 48])],
)
def test_looking_ahead_it_is_its_definition(weeks, steps, later):
    X, y, rows, _ = log(4, n=12, weeks=weeks)
    rows["weight"][:] = np.repeat(np.random.default_rng(0).uniform(0.5, 2.0, 12), weeks)
    full = ~np.isnan(y)
    with warnings.catch_warnings(action="ignore"):
        model = HorizonLSTD(HORIZON, gamma=GAMMA).fit(X, y, **rows)
        cuts = []
        for cut in later:
            known = np.tile(np.arange(weeks) < weeks - cut, 12)
            now = np.flatnonzero(np.tile(np.arange(weeks) == weeks - 1 - cut, 12))
            some = {name: column[known] for name, column in rows.items()}
            y_known = y.copy()
            y_known[now] = np.nan
            weight = some["weight"] @ ~np.isnan(y_known[known])
            share = weight / (rows["weight"] @ full)
            refit = HorizonLSTD(steps, GAMMA, alpha=share * model.ridge_, penalty="raw", check=False)
            predicted = refit.fit(X[known], y_known[known], **some).predict(X[now])
            cuts.append([])
            for row, v in zip(now, predicted, strict=True):
                name = rows["episode"][row]
                rewards = y[rows["episode"] == name]
                came = sum(GAMMA**j * y[row + j] for j in range(steps))
                forecasts = forecasts_of(rewards, weeks - 1 - cut, steps, steps)
                cuts[-1].append((name, rows["weight"][row], came, v, forecasts))
    assert found_by(model).steps == steps
    check(model, cuts)


def test_a_model_without_what_subjects_keep_is_warned_of_and_one_with_it_is_not(tmp_path):
    X, y, rows, rate = log(2)
    text = "6 steps, fitted to what was known before them, .* Add the mean reward of its last steps as a feature"
    with pytest.warns(MisfitWarning, match=text):
        model = HorizonLSTD(HORIZON).fit(X, y, **rows)
    text = "times that of a forecast that repeats the 6 steps before"
    assert text in str(model.summary())
    assert text in model.model_.facts["naive forecast"]
    model.save(tmp_path / "model")
    assert text in str(lstd.load(tmp_path / "model").summary())
    with warnings.catch_warnings(action="error", category=MisfitWarning):
        right = HorizonLSTD(HORIZON).fit(np.column_stack([X, rate]), y, **rows)
    assert found_by(right).ratio < 1.0


def test_the_mean_of_all_steps_before_is_the_better_forecast_where_rewards_vary_much():
    random = np.random.default_rng(0)
    rate = np.repeat(random.gamma(1.0, 2.0, 40), 30)
    y = random.poisson(rate).astype(float)
    y[29::30] = np.nan
    X = random.normal(size=(len(y), 1))
    said = said_of_forecasts(HorizonLSTD(2), X, y, episode=np.repeat(np.arange(40), 30), terminated=False)
    assert "repeats the mean of all steps before, on 320 rows" in said


def test_where_the_level_falls_the_steps_before_are_the_better_forecast():
    random = np.random.default_rng(0)
    level = random.gamma(4.0, 25.0, (60, 1)) * 0.8 ** np.arange(13)
    y = level * random.uniform(0.95, 1.05, level.shape)
    y[:, -1] = np.nan
    X = np.repeat(level[:, :1], 13, axis=1).reshape(-1, 1)
    said = said_of_forecasts(HorizonLSTD(3), X, y.ravel(), episode=np.repeat(np.arange(60), 13), terminated=False)
    assert "fitted to what was known before them" in said
    assert "repeats what as many steps before brought, on 120 rows" in said


def test_a_much_larger_error_asks_for_less_evidence():
    ratio = np.array([1.05, 1.15, 1.15, 1.25, 1.25])
    p_value = np.array([0.001, 0.005, 0.02, 0.02, 0.06])
    found = NaiveForecast(ratio, p_value, 100, 6)
    assert found.is_better.tolist() == [False, True, False, True, False]


@pytest.mark.usefixtures("no_bias_or_misfit")
@pytest.mark.parametrize("ending", [0.0, 0.3])
def test_right_models_are_hardly_ever_warned_of(ending):
    """If one log in ten were warned of, it would be among 24 in 92 % of all choices of seeds."""
    for seed in range(12):
        X, y, rows, rate = log(seed, n=40, ending=ending)
        with warnings.catch_warnings(action="ignore"):
            model = HorizonLSTD(3).fit(np.column_stack([X, rate]), y, **rows)
        assert not found_by(model).is_better.any()


def test_few_rows_and_short_episodes_are_not_compared():
    X, y, rows, _ = log(3, n=5)
    with warnings.catch_warnings(action="ignore"):
        assert found_by(HorizonLSTD(HORIZON).fit(X, y, **rows)) is None
        X, y, rows, _ = log(3, n=6)
        assert found_by(HorizonLSTD(HORIZON).fit(X, y, **rows)) is not None
        X, y, rows, _ = log(3, weeks=2)
        assert found_by(HorizonLSTD(HORIZON).fit(X, y, **rows)) is None
        X, y, rows, _ = log(3, weeks=4)
        stream = HorizonLSTD(2).fit(X, np.nan_to_num(y))
    assert found_by(stream).n_rows > 50  # one long stream, in blocks


@pytest.mark.parametrize("reward", [1.0, 0.1, 1e9 / 3])
def test_a_forecast_without_error_but_for_rounding_is_no_reason_to_warn(reward):
    random = np.random.default_rng(5)
    lengths = random.integers(30, 60, 80)  # long ago begun, so that all who are compared stay
    episode = np.repeat(np.arange(80), lengths)
    y = np.full(len(episode), reward)
    y[np.cumsum(lengths) - 1] = np.nan
    X = random.normal(size=(len(y), 2))
    with warnings.catch_warnings(action="error", category=MisfitWarning):
        model = HorizonLSTD(HORIZON).fit(X, y, episode=episode, terminated=False)
    assert found_by(model).ratio == 1.0
    assert found_by(model).p_value == 1.0


def test_where_subjects_do_not_vary_a_model_without_what_they_keep_is_warned_of():
    random = np.random.default_rng(6)
    y = np.repeat(np.pi * random.gamma(2.0, 1.0, 60), 30)
    y[29::30] = np.nan
    rows = {"episode": np.repeat(np.arange(60), 30), "terminated": False}
    said = said_of_forecasts(HorizonLSTD(HORIZON), random.normal(size=(len(y), 2)), y, **rows)
    assert said.startswith("Predictions of 6 steps, fitted to what was known before them, have ")
    few = 1.0 + np.arange(60) * 1e-4  # of returns that differ by as little, no error counts
    with warnings.catch_warnings(action="error", category=MisfitWarning):
        model = HorizonLSTD(HORIZON).fit(
            random.normal(size=(len(y), 2)), np.where(np.isnan(y), y, few[rows["episode"]]), **rows
        )
    assert found_by(model).ratio == 1.0


@pytest.mark.filterwarnings("ignore::lstd.errors.LSTDWarning")
def test_rows_that_see_no_end_are_not_compared_where_ends_were_seen():
    random = np.random.default_rng(7)
    lengths = np.where(np.arange(80) < 20, 2, 14)  # who dies does so at once
    episode = np.repeat(np.arange(80), lengths)
    last = np.append(np.diff(episode) > 0, True)
    terminated = last & (episode < 20)
    y = np.ones(len(episode))
    y[last & ~terminated] = np.nan
    model = HorizonLSTD(HORIZON).fit(random.normal(size=(len(y), 2)), y, episode=episode, terminated=terminated)
    assert found_by(model) is None


def test_one_step_is_not_many():
    X, y, rows, _ = log(2)
    said = said_of_forecasts(HorizonLSTD(1), X, y, **rows)
    assert said.startswith("Predictions of one step, fitted to what was known before them, have ")
    assert "1 steps" not in said


def test_the_summary_says_how_likely_a_ratio_is_by_chance():
    X, y, rows, rate = log(2)
    model = HorizonLSTD(HORIZON).fit(np.column_stack([X, rate]), y, **rows)
    assert str(model.summary().facts["naive forecast"]).endswith(" rows (p = 1)")
