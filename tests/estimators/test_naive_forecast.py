"""Predictions of the next steps beside a naive forecast: as defined, quiet where they are right, loud where it wins."""

import warnings

import numpy as np
import pytest

import lstd
import naive
from lstd import HorizonLSTD
from lstd.data.check_rows import check_rows
from lstd.errors import MisfitWarning
from lstd.estimators.folds import folds_of
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


@pytest.mark.parametrize("ending", [0.0, 0.5])
def test_it_is_its_definition(ending):
    X, y, rows, _ = log(1, ending=ending)
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
    worse, ratio = {}, [0.0, 0.0]
    n_compared = 0
    for name in np.unique(rows["episode"]):
        own = np.flatnonzero(rows["episode"] == name)
        ended = rows["terminated"][own[-1]]
        for t, row in enumerate(own):
            k = HORIZON if ended else min(HORIZON, len(own) - 1 - t)
            is_late = ended or len(own) - 1 - t <= HORIZON
            if not is_late or k < HORIZON / 2 or t < HORIZON / 2 or (row == own[-1] and not ended):
                continue
            n_compared += 1
            came = sum(GAMMA**j * y[own[t + j]] for j in range(min(k, len(own) - t)))
            forecast = naive.forecast_of_steps_before(y[own], t, k, HORIZON, GAMMA)
            w = rows["weight"][row]
            ratio[0] += w * (came - curve[row, k - 1]) ** 2
            ratio[1] += w * (came - forecast) ** 2
            worse[name] = worse.get(name, 0.0) + w * ((came - curve[row, k - 1]) ** 2 - (came - forecast) ** 2)
    compared = found_by(model)
    assert compared.n_rows == n_compared
    assert_close(compared.ratio, [np.sqrt(ratio[0] / ratio[1])], "solve")
    sums = np.array([*worse.values()])
    from scipy import stats

    assert_close(compared.p_value, [stats.t.sf(sums.sum() / np.sqrt(sums @ sums), len(sums) - 1)], "solve")


def test_a_model_without_what_subjects_keep_is_warned_of_and_one_with_it_is_not(tmp_path):
    X, y, rows, rate = log(2)
    with pytest.warns(MisfitWarning, match="Add the mean reward of its last steps as a feature"):
        model = HorizonLSTD(HORIZON).fit(X, y, **rows)
    text = "times that of a forecast that repeats the 6 steps before"
    assert text in str(model.summary())
    assert text in model.model_.facts["naive forecast"]
    model.save(tmp_path / "model")
    assert text in str(lstd.load(tmp_path / "model").summary())
    with warnings.catch_warnings(action="error", category=MisfitWarning):
        right = HorizonLSTD(HORIZON).fit(np.column_stack([X, rate]), y, **rows)
    assert found_by(right).ratio < 1.0


def test_right_models_are_hardly_ever_warned_of():
    for seed in range(20):
        X, y, rows, rate = log(seed, n=40, ending=0.3)
        with warnings.catch_warnings(action="ignore"):
            model = HorizonLSTD(3).fit(np.column_stack([X, rate]), y, **rows)
        assert not found_by(model).is_better.any()


def test_few_rows_and_short_episodes_are_not_compared():
    X, y, rows, _ = log(3, n=15)
    with warnings.catch_warnings(action="ignore"):
        assert found_by(HorizonLSTD(HORIZON).fit(X, y, **rows)) is None
        X, y, rows, _ = log(3, weeks=4)
        assert found_by(HorizonLSTD(HORIZON).fit(X, y, **rows)) is None
        stream = HorizonLSTD(2).fit(X, np.nan_to_num(y))
    assert found_by(stream).n_rows > 50  # one long stream, in blocks
