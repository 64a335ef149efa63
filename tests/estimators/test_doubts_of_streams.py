"""What `partial_fit` says against predictions: the same as `fit`, where sums and chunks show it, and once."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lstd
from lstd import LSTD
from lstd.errors import BoundsWarning, ExtrapolationWarning, UnobservedWarning
from support.tolerances import assert_close


def episodes(n_episodes=40, length=11, seed=0):
    random = np.random.default_rng(seed)
    n = n_episodes * length
    return random.normal(size=(n, 2)), random.normal(size=n), np.repeat(np.arange(n_episodes), length)


def fitted_in_chunks(X, y, columns, at, **parameters):
    model = LSTD(0.99, **parameters)
    for part in np.split(np.arange(len(X)), at):
        model.partial_fit(X[part], y[part], **{name: values[part] for name, values in columns.items()})
    return model


@settings(max_examples=30, deadline=None)
@given(
    at=st.lists(st.integers(0, 44), max_size=6).map(sorted),
    kind=st.sampled_from(["stream", "ends", "cuts"]),
    discount=st.booleans(),
    seed=st.integers(0, 9),
)
def test_limits_do_not_depend_on_chunks(at, kind, discount, seed):
    X, y, episode = episodes(4, 11, seed)
    columns = (
        {} if kind == "stream" else {"episode": episode, "terminated": (np.arange(44) % 11 == 10) & (kind == "ends")}
    )
    columns |= {"discount": np.full(44, 0.5)} if discount else {}
    with warnings.catch_warnings(action="ignore"):
        one = LSTD(0.99).fit(X, y, **columns).model_
        two = fitted_in_chunks(X, y, columns, at).model_
    assert_close(two.bounds, one.bounds, "sums")
    assert_close(two.limits.ranges, one.limits.ranges, "sums")
    assert two.limits.n_rows == one.limits.n_rows


def test_predictions_for_rows_beyond_the_chunks_are_said(tmp_path):
    X, y, _ = episodes()
    model = fitted_in_chunks(X, y, {}, [100, 200])
    model.predict(X)
    model.save(tmp_path / "model")
    for one in (model, lstd.load(tmp_path / "model")):
        with pytest.warns(ExtrapolationWarning, match="x0 of 100 % of the rows"):
            one.predict(X[:3] + np.array([1000.0, 0.0]))


def test_predictions_outside_of_what_the_rewards_of_the_chunks_allow_are_said():
    X, y = np.linspace(-2.0, 2.5, 400)[:, np.newaxis], np.resize([0.5, 1.5], 400)
    model = fitted_in_chunks(X, y, {"terminated": np.ones(400, bool)}, [50, 300], fit_intercept=False)
    model.predict(X[:20])
    with pytest.warns(BoundsWarning, match=r"% are below 0, down to -.*At least \d+ % of their variance"):
        outside = model.predict(X)
    with pytest.warns(BoundsWarning):
        assert_close(model.predict(X, clip=True), np.clip(outside, *model.model_.bounds[:, 0]), "sums")


@pytest.mark.filterwarnings("ignore::lstd.errors.UnusedRewardWarning")
def test_returns_that_were_hardly_observed_are_said_once():
    X, y, episode = episodes()
    columns = {"episode": episode, "terminated": np.zeros(len(X), bool)}
    model = fitted_in_chunks(X[:330], y[:330], {name: values[:330] for name, values in columns.items()}, [55])
    with pytest.warns(UnobservedWarning, match=r"Only 5\.\d % of the"):
        model.predict(X)
    assert any(doubt.startswith("Only 5.") for doubt in model.model_.doubts)
    model.partial_fit(X[330:], y[330:], **{name: values[330:] for name, values in columns.items()})
    model.predict(X)


def test_features_that_only_grow_in_a_chunk_are_said_once():
    X, y, episode = episodes(60)
    X[:, 1] = np.arange(len(X)) % 11
    columns = {"episode": episode, "terminated": np.zeros(len(X), bool)}
    with pytest.warns(ExtrapolationWarning, match=r"only grow within an episode \(x1\)") as given:
        model = fitted_in_chunks(X, y, columns, [330])
    assert len(given) == 1
    assert model.model_.said == (str(given[0].message),)


def test_a_table_of_statistics_has_no_limits():
    X, y, _ = episodes()
    model = LSTD(0.9).fit_statistics(lstd.LSTDStatistics.from_arrays(X, y, gamma=0.9, lmbda=0.9, fit_intercept=True))
    assert model.model_.limits is None
    model.predict(1000.0 * X)
