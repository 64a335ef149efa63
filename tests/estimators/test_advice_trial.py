"""A misfit gives a warning only where what it advises lowers the error of rows that are held out, and ahead."""

import warnings

import numpy as np
import pytest

import lstd
from lstd import HorizonLSTD
from lstd.data.check_rows import check_rows
from lstd.errors import MisfitWarning
from lstd.estimators.folds import folds_of

HORIZON, N, WEEKS = 3, 60, 12
AGE = np.tile(np.arange(WEEKS), N)
ROWS = {"episode": np.repeat(np.arange(N), WEEKS), "terminated": AGE == WEEKS - 1}
pytestmark = pytest.mark.filterwarnings("ignore::lstd.errors.LSTDWarning")


def log(misfit, seed):
    """A feature of each subject, and rewards that are linear in it but for a misfit."""
    random = np.random.default_rng(seed)
    x = random.normal(size=N)[ROWS["episode"]]
    return x[:, np.newaxis], x + misfit(x) + random.normal(size=len(x))


def fitted(X, y, **rows):
    """A model, and whether its fit warned of a misfit."""
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always", MisfitWarning)
        model = HorizonLSTD(HORIZON).fit(X, y, **rows)
    texts = [str(one.message) for one in given if one.category is MisfitWarning]
    return model, any("no weighted sum" in text for text in texts)


def held_out(X, y):
    """Mean squared error of predictions of folds by the columns X and the other folds, with the same penalty."""
    ridge = HorizonLSTD(HORIZON, check=False, n_blocks=2).fit(X, y, **ROWS).ridge_
    left = np.minimum(HORIZON, WEEKS - AGE)
    returns = np.array([y[t : t + k].sum() for t, k in enumerate(left)])
    predicted = []
    for fold in folds_of(check_rows(X, y, **ROWS, gamma=1.0)):
        first = len(np.concatenate([[], *predicted]))
        out = np.isin(np.arange(len(y)), np.arange(first, first + len(fold)))
        model = HorizonLSTD(HORIZON, alpha=np.mean(~out) * ridge, penalty="raw", check=False, n_blocks=2)
        others = {name: column[~out] for name, column in ROWS.items()}
        predicted.append(model.fit(X[~out], y[~out], **others).predict(X[out]))
    return np.mean((returns - np.concatenate(predicted)) ** 2)


@pytest.mark.parametrize(("of_age", "expected"), [(False, {True}), (True, {False, True})])
def test_the_error_of_held_out_episodes_decides(of_age, expected):
    outcomes = set()
    for seed in range(12):
        effect = np.random.default_rng(seed).uniform(0.05, 0.15)
        X, y = log(lambda x, size=effect: 5.0 * size * np.exp(-AGE) if of_age else size * x**2, seed)
        model, warned = fitted(X, y, **ROWS)
        found = model.misfit_check(X, y, **ROWS)
        assert warned == model.misfit_check_.misfit
        if not found.misfit:
            continue
        decay = np.exp(-AGE)[:, np.newaxis]
        advised = [X, decay, X * decay] if found.of_age else [X, ((X - X.mean()) / X.std()) ** 2]
        ratio = held_out(np.hstack(advised), y) / held_out(X, y)
        assert warned == (ratio <= 0.99**2)
        assert ("little to gain" in str(model.summary())) != warned
        outcomes.add(warned)
    assert outcomes == expected


@pytest.mark.parametrize("turns", [False, True])
def test_where_the_effect_has_turned_looking_ahead_decides(turns):
    late = turns & (AGE >= WEEKS - 4)
    X, y = log(lambda x: np.where(late, -0.5, 0.5) * x**2, 1)
    y[WEEKS - 1 :: WEEKS] = np.nan
    rows = ROWS | {"terminated": False}
    model, warned = fitted(X, y, **rows)
    assert model.misfit_check(X, y, **rows).misfit
    assert warned == (not turns)


def test_what_cannot_be_tried_gives_a_warning():
    X, y = log(lambda x: x**2, 1)
    assert fitted(X, y, **ROWS)[1]
    with pytest.warns(MisfitWarning):
        HorizonLSTD(HORIZON, penalty=[1.0]).fit(X, y, **ROWS)
    wide = np.hstack([X, np.random.default_rng(0).normal(size=(len(X), 20))])
    with pytest.warns(MisfitWarning):
        HorizonLSTD(HORIZON).fit(wide, y, **ROWS)


def test_each_of_several_rewards_is_tried_by_itself_and_files_keep_what_counts(tmp_path):
    X, with_age = log(lambda x: 3.0 * np.exp(-AGE), 1)
    _, bent = log(lambda x: x**2, 1)
    _, little = next(
        (X_seed, y)
        for X_seed, y in (log(lambda x: 0.08 * x**2, seed) for seed in range(40))
        if (model := fitted(X, y, **ROWS)[0]).misfit_check_.has_little_to_gain
    )
    alone = [fitted(X, y, **ROWS)[0].misfit_check_ for y in (with_age, bent, little)]
    expected = [True, True, False]
    assert [check.misfit for check in alone] == expected
    assert all(type(check.misfit) is bool for check in alone)
    for order in ([0, 1, 2], [2, 0, 1], [1, 2, 0], [2, 1, 0]):
        y = np.column_stack([(with_age, bent, little)[j] for j in order])
        model, warned = fitted(X, y, **ROWS)
        assert warned
        assert model.misfit_check_.misfit.tolist() == [expected[j] for j in order]
        model.save(tmp_path / "model")
        np.testing.assert_array_equal(lstd.load(tmp_path / "model").misfit_check_.misfit, model.misfit_check_.misfit)
    model, _ = fitted(X, little, **ROWS)
    model.save(tmp_path / "model")
    assert "little to gain" in str(lstd.load(tmp_path / "model").summary())
