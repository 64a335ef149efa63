"""`HorizonLSTD(age=...)`: the columns that replace the age, in fits, predictions, contributions, files and tables."""

import warnings
from functools import cache

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import lstd
import naive
from lstd import HorizonLSTD
from lstd.errors import ExtrapolationWarning, InvalidInputError
from lstd.inference import ReturnSpread
from tolerances import assert_close

HORIZON, AGE = 6, 1  # steps, and the number of the column
pytestmark = pytest.mark.filterwarnings("ignore::lstd.errors.LSTDWarning")


def log(seed=0, n_episodes=60, m=1):
    """Episodes of rows whose rewards fade with age, faster or slower by a feature; the age is the second feature."""
    random = np.random.default_rng(seed)
    lengths = random.integers(3, 30, n_episodes)
    episode = np.repeat(np.arange(n_episodes), lengths)
    T = len(episode)
    age = np.arange(T) - np.searchsorted(episode, episode)
    x = random.normal(size=(n_episodes, 2))[episode]
    y = (1.0 + x[:, :1]) * np.exp(-age / 2.0)[:, np.newaxis] + 0.3 * random.normal(size=(T, m))
    X = np.column_stack([x[:, 0], age, x[:, 1]])
    terminated = np.append(np.diff(episode) > 0, True) & (random.uniform(size=T) > 0.5)
    return {"X": X, "y": y[:, 0] if m == 1 else y, "episode": episode, "terminated": terminated}


def by_hand(data):
    """The same with columns made by the definition."""
    return data | {"X": naive.age_columns(data["X"], AGE, HORIZON)}


@cache
def model_of_columns(m):
    return HorizonLSTD(HORIZON, lmbda=0.8).fit(**by_hand(log(m=m)))


@pytest.mark.parametrize("m", [1, 2])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_a_model_with_an_age_is_that_of_the_columns(form, m):
    data = log(m=m)
    model = HorizonLSTD(HORIZON, lmbda=0.8, age=AGE).fit(**data | {"X": form(data["X"])})
    expected = model_of_columns(m)
    assert (model.n_features_in_, model.coef_.shape[-1]) == (3, 8)
    assert_close(model.coef_, expected.coef_, "solve")
    assert_close(model.ridge_, expected.ridge_, "solve")
    X, columns = form(data["X"][:9]), by_hand(data)["X"][:9]
    assert_close(model.predict_curve(X), expected.predict_curve(columns), "solve")
    for one, two in zip(
        model.predict(X, 3, return_std=True), expected.predict(columns, 3, return_std=True), strict=True
    ):
        assert_close(one, two, "solve")
    assert_close(model.predict_interval(X).upper, expected.predict_interval(columns).upper, "solve")
    assert_close(model.score(**data), expected.score(**by_hand(data)), "solve")
    assert_close(model.misfit_check_.p_value, expected.misfit_check_.p_value, "misfit")
    assert_close(model.model_.held_out.score, expected.model_.held_out.score, "solve")


def test_columns_have_names_and_features_keep_theirs(tmp_path):
    data = log()
    frame = pd.DataFrame(data["X"], columns=["spend", "since_first", "size"])
    model = HorizonLSTD(HORIZON, check=False, age="since_first").fit(**data | {"X": frame})
    assert model.feature_names_in_.tolist() == ["spend", "since_first", "size"]
    assert model.coef_names_.tolist() == [
        "spend", "size", "exp(-since_first)", "exp(-since_first/4)",
        "spend * exp(-since_first)", "size * exp(-since_first)",
        "spend * exp(-since_first/4)", "size * exp(-since_first/4)",
    ]  # fmt: skip
    shuffled = frame[["size", "spend", "since_first"]]
    assert_close(model.predict(shuffled), model.predict(frame), "sums")
    model.save(tmp_path / "model")
    loaded = lstd.load(tmp_path / "model")
    assert loaded.age == "since_first"
    np.testing.assert_array_equal(loaded.predict(frame), model.predict(frame))
    again = loaded.fit(**data | {"X": frame})
    assert_close(again.coef_, model.coef_, "sums")
    unnamed = HorizonLSTD(3, check=False, age=AGE).fit(**data)
    assert unnamed.coef_names_.tolist() == ["x0", "x2", "exp(-x1)", "x0 * exp(-x1)", "x2 * exp(-x1)"]
    unnamed.save(tmp_path / "unnamed")
    assert lstd.load(tmp_path / "unnamed").age == AGE


def test_any_split_gives_the_same_model():
    data = log(1)
    whole, parts = HorizonLSTD(HORIZON, check=False, age=AGE).fit(**data), HorizonLSTD(HORIZON, check=False, age=AGE)
    for first, end in ((0, 1), (1, 90), (90, 91), (91, 400), (400, len(data["y"]))):
        parts.partial_fit(**{name: values[first:end] for name, values in data.items()})
    assert_close(parts.coef_, whole.coef_, "solve")
    assert_close(parts.contributions(data["X"][:4]).values, whole.contributions(data["X"][:4]).values, "solve")
    parts.age = 0
    with pytest.raises(InvalidInputError, match="Parameters must stay"):
        parts.partial_fit(**data | {"episode": data["episode"] + 99})


def test_penalties_of_features_are_those_of_their_columns():
    data, alpha = log(), np.array([2.0, 0.5, 0.0])
    model = HorizonLSTD(HORIZON, check=False, alpha=alpha, penalty="raw", age=AGE).fit(**data)
    assert_close(model.ridge_, np.array([2.0, 0.0, 0.5, 0.5, 2.0, 0.0, 2.0, 0.0]), "sums")
    with pytest.raises(InvalidInputError, match="one for each of the 3 features"):
        HorizonLSTD(HORIZON, check=False, alpha=np.ones(8), age=AGE).fit(**data)


@pytest.mark.parametrize("m", [1, 2])
def test_products_count_with_their_feature_in_contributions(m):
    data = log(m=m)
    model, by_columns = (
        HorizonLSTD(HORIZON, check=False, age=AGE).fit(**data),
        HorizonLSTD(HORIZON, check=False).fit(**by_hand(data)),
    )
    rows = np.flatnonzero(data["X"][:, AGE] > 0.0)[:5]
    X, columns = data["X"][rows], by_hand(data)["X"][rows]
    found, of_columns = model.contributions(X), by_columns.contributions(columns)
    parts = [[0, 4, 6], [2, 3], [1, 5, 7]]
    for j, own in enumerate(parts):
        assert_close(found.values[..., j], of_columns.values[..., own].sum(axis=-1), "solve")
    assert_close(found.base, of_columns.base, "solve")
    assert_close((found.values.sum(axis=-1) + found.base).reshape(5, -1), model.predict(X).reshape(5, -1), "solve")
    assert found.names == ("x0", "x1", "x2")
    assert_close(found.means, data["X"].mean(axis=0), "solve")
    step = 1e-5
    for j in range(3):
        moved = [model.predict(X + sign * step * np.eye(3)[j]).reshape(5, -1) for sign in (1.0, -1.0)]
        slope = (moved[0] - moved[1]) / (2.0 * step)
        np.testing.assert_allclose(found.coef.reshape(5, m, 3)[..., j], slope, rtol=1e-5, atol=1e-7)
    distance = columns - of_columns.means
    vectors = by_columns.model_.at().influence.vectors
    moves = np.einsum("tc,ejc->etj", distance[:, parts[0]], vectors[:, :, parts[0]])
    assert_close(found.standard_error[..., 0].reshape(5, m), np.sqrt((moves**2).sum(axis=0)), "solve")
    assert "x0" in str(found)


def test_rows_at_entry_give_no_warning_and_rows_as_old_as_the_oldest_do():
    """Two kinds of logs: one cohort that all joined at once, and subjects who join all the time."""
    random = np.random.default_rng(0)
    for is_cohort in (True, False):
        lengths = np.full(200, 40) if is_cohort else np.arange(1, 201) // 5 + 1
        age = np.concatenate([np.arange(length) for length in lengths])
        X = np.column_stack([random.normal(size=len(age)), age])
        episode = np.repeat(np.arange(200), lengths)
        data = {"X": X, "y": random.normal(size=len(age)), "episode": episode, "terminated": np.zeros(len(age), bool)}
        with warnings.catch_warnings(record=True, action="always") as found:
            model = HorizonLSTD(HORIZON, check=False, age=1).fit(**data)
        assert not [one for one in found if one.category is ExtrapolationWarning]
        last = np.append(np.diff(episode) > 0, True)
        with warnings.catch_warnings(action="error"):
            model.predict(X[age == 0])
            model.predict(X)
            if not is_cohort:
                model.predict(X[last])
        if is_cohort:
            with pytest.warns(ExtrapolationWarning, match=r"Half of these rows have a `x1` of 39 or more; 2.6 % of"):
                model.predict(X[last])
            with warnings.catch_warnings(action="error"):
                model.predict(X[last])
        with pytest.warns(ExtrapolationWarning, match="x0 of 100 % of the rows"):
            model.predict(X[age == 0] * [99.0, 1.0] + [999.0, 0.0])


def test_the_spread_of_one_return_and_tables_know_the_age(tmp_path):
    pytest.importorskip("pyarrow")
    data = log()
    model = HorizonLSTD(HORIZON, check=False, age=AGE).fit(**data)
    spread = ReturnSpread(model).fit(**data)
    expected = ReturnSpread(HorizonLSTD(HORIZON, check=False).fit(**by_hand(data))).fit(**by_hand(data))
    assert_close(spread.predict_std(data["X"][:5]), expected.predict_std(by_hand(data)["X"][:5]), "solve")
    frame = pd.DataFrame(data["X"], columns=["a", "since", "b"])
    frame = frame.assign(r=data["y"], who=data["episode"], end=data["terminated"].astype(int))
    roles = {"features": ["a", "since", "b"], "reward": "r", "episode": "who", "terminated": "end"}
    of_table = lstd.fit_tables(frame, gamma=1.0, horizon=HORIZON, age="since", **roles)
    assert_close(of_table.coef_, model.coef_, "solve")
    assert of_table.age == "since"
    with pytest.raises(InvalidInputError, match="`age` needs `horizon`"):
        lstd.fit_tables(frame, gamma=1.0, age="since", **roles)


@pytest.mark.parametrize(
    ("age", "message"),
    [
        ("since", "`age` must be the name of a feature; got 'since', and `X` has features without names"),
        (3, "`age` must be"),
        (-1, "`age` must be"),
        (0, "`age` must be a feature of steps since the subject was first seen, at least 0; row"),
    ],
)
def test_what_is_no_age_is_refused(age, message):
    with pytest.raises(InvalidInputError, match=message):
        HorizonLSTD(HORIZON, check=False, age=age).fit(**log())


def test_bad_rows_are_named_as_they_were_given():
    data = log()
    model = HorizonLSTD(HORIZON, check=False, age=AGE).fit(**data)
    X = data["X"][:4].copy()
    X[2, 2] = np.nan
    with pytest.raises(InvalidInputError, match="row 2 has nan in column 2"):
        model.predict(X)
    X[2, 2], X[3, 1] = 0.0, -1.0
    with pytest.raises(InvalidInputError, match="at least 0; row 3 has -1"):
        model.predict(X)
    with pytest.raises(ValueError, match="X has 8 features, but HorizonLSTD is expecting 3"):
        model.predict(by_hand(data)["X"])
