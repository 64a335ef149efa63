"""The check of misfit: silent where returns are a weighted sum of the features, loud where they are not."""

import warnings
from itertools import pairwise

import numpy as np
import pytest
from scipy import sparse
from sklearn.ensemble import HistGradientBoostingRegressor

import lstd
import naive
from lstd import LSTD, LSTDCV
from lstd.data.check_rows import check_rows
from lstd.errors import InvalidInputError, LSTDWarning, MisfitWarning
from lstd.estimators import bias_check
from lstd.estimators.folds import rows_from_all_over
from lstd.mrp import RandomWalk
from tolerances import assert_close

pytestmark = pytest.mark.usefixtures("few_pairs")


def episodes(n_episodes, seed, nonlinear=lambda x: 0.0 * x[:, 0]):
    """Episodes of 2 to 8 rows that share an error; reward at their ends, linear in two features, plus `nonlinear`."""
    random = np.random.default_rng(seed)
    lengths = random.integers(2, 9, n_episodes)
    episode = np.repeat(np.arange(n_episodes), lengths)
    X = random.normal(size=(n_episodes, 2))[episode] + 0.5 * random.normal(size=(len(episode), 2))
    y = X @ [1.0, -1.0] + nonlinear(X) + random.exponential(size=n_episodes)[episode] + random.normal(size=len(X))
    return X, y, {"episode": episode, "terminated": np.append(np.diff(episode) > 0, True)}


def checked(X, y, columns, **settings):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MisfitWarning)
        return (
            LSTD(**{"gamma": 0.0, "fit_intercept": True, **settings}).fit(X, y, **columns).misfit_check(X, y, **columns)
        )


@pytest.mark.parametrize(
    "nonlinear", [lambda x: x[:, 0] ** 2, lambda x: x[:, 0] * x[:, 1], lambda x: 2 * np.sin(3 * x[:, 0])],
    ids=["square", "product", "wave"],
)  # fmt: skip
def test_what_no_weighted_sum_can_follow_does(nonlinear):
    X, y, columns = episodes(400, 1, nonlinear)
    model = LSTD(gamma=0.0, fit_intercept=True).fit(X, y, **columns)
    with pytest.warns(MisfitWarning, match="Add features such as squares, products or bins"):
        found = model.misfit_check(X, y, **columns)
    assert found.misfit is True
    assert found.dominates
    assert found.standard_error == pytest.approx(model.predict(X, return_std=True)[1].mean())
    truth = naive.uncorrelated(nonlinear(X)[:, np.newaxis], np.column_stack([X, np.ones(len(X))]))[:, 0]
    assert 0.6 * truth @ nonlinear(X) / len(X) < found.systematic < 1.3 * truth @ nonlinear(X) / len(X)


@pytest.mark.parametrize(("n_episodes", "effect"), [(40, 0.0), (60, 0.0), (60, 1.0)])
def test_it_is_the_test_of_the_definition(n_episodes, effect):
    gamma, alpha = 0.5, 2.0
    X, y, columns = episodes(n_episodes, 3, lambda x: 0.3 * x[:, 0] ** 2)
    age = np.arange(len(X)) - np.searchsorted(columns["episode"], columns["episode"])
    y = y + effect * np.exp(-age)
    edges = [0, *np.flatnonzero(columns["terminated"]) + 1]
    slices = [slice(first, end) for first, end in pairwise(edges)]
    phi = np.column_stack([X, np.ones(len(X))])
    returns = np.concatenate([naive.discounted_returns(y[part], gamma) for part in slices])
    fold = np.repeat(np.arange(n_episodes) * 5 // n_episodes, [part.stop - part.start for part in slices])
    residuals, boosted = np.empty(len(X)), np.empty(len(X))
    for k in range(5):
        outside = fold != k
        share = np.sum(outside) / len(X)
        ridge = np.diag([alpha * share, alpha * share, 0.0])
        weights = np.linalg.solve(phi[outside].T @ phi[outside] + ridge, phi[outside].T @ returns[outside])
        residuals[~outside] = returns[~outside] - phi[~outside] @ weights
    tree = {"max_iter": 20, "max_depth": 3, "min_samples_leaf": 20, "early_stopping": False, "random_state": 0}
    for k in range(5):
        grown = HistGradientBoostingRegressor(**tree).fit(X[fold != k], residuals[fold != k])
        boosted[fold == k] = grown.predict(X[fold == k])
    products = naive.uncorrelated(naive.squares_and_products(X), phi)
    trees = naive.uncorrelated(boosted[:, np.newaxis], np.column_stack([phi, products]))
    ages = np.empty((len(X), 0))
    if n_episodes >= 50:
        ages = naive.uncorrelated(naive.functions_of_age(age), phi)
    tests = np.column_stack([products, trees, ages])
    s, u = naive.block_scores(tests, phi, returns, slices, 0.75)
    signs = 2.0 * np.random.default_rng(0).integers(0, 2, (1999, n_episodes)) - 1.0

    def size(places):
        correlation = np.linalg.inv(tests[:, places].T @ tests[:, places] / len(X))
        return lambda s: s[places] @ correlation @ s[places]

    statistics = [size(slice(0, 3)), lambda s: s[3]]
    if ages.size:
        statistics.append(size(slice(4, 7)))
    expected = naive.sign_flip_p_value(statistics, s, u, signs)
    ranks = [naive.sign_flip_rank(one, s, u, signs) for one in statistics]
    of_age = bool(ages.size) and ranks[2] < min(ranks[:2]) and expected < 0.01
    group, kept = (slice(4, 7), 3) if of_age else (slice(0, 4), 4 if s[3] > 0 else 3)
    gram = tests[:, group].T @ tests[:, group] / len(X)
    weights, *influence = (np.linalg.lstsq(gram, one[group])[0][:kept] for one in (s, *u))
    gram = gram[:kept, :kept]
    systematic, chance = weights @ gram @ weights, np.trace(gram @ np.transpose(influence) @ influence)
    residual = returns - phi @ np.linalg.lstsq(phi, returns)[0]
    found = checked(X, y, columns, gamma=gamma, lmbda=1.0, alpha=alpha)
    assert found.of_age == of_age == bool(effect)
    assert_close(found.residual, np.sqrt(np.mean(residual**2)), "misfit")
    assert_close(found.p_value, expected, "misfit")
    assert_close(found.expected, np.sqrt(chance), "misfit")
    assert_close(found.systematic, np.sqrt(max(0.0, systematic - chance)), "misfit")


def test_scales_forms_and_rewards_make_no_difference():
    X, y, columns = episodes(60, 4, lambda x: 0.5 * x[:, 0] ** 2)
    found = checked(X, y, columns, gamma=0.5, alpha=0.0)
    forms = [
        checked(sparse.csr_array(X), y, columns, gamma=0.5, alpha=0.0),
        checked(X * [1e8, 1e-8], y, columns, gamma=0.5, alpha=0.0),
        checked(X, y, {**columns, "X_next": np.roll(X, -1, axis=0)}, gamma=0.5, alpha=0.0),
    ]
    for other in forms:
        assert_close(other.p_value, found.p_value, "misfit")
        assert_close(other.systematic, found.systematic, "misfit")
    both = checked(X, np.column_stack([y, 1e100 * y]), columns, gamma=0.5, alpha=0.0)
    assert both.p_value.shape == both.misfit.shape == both.standard_error.shape == (2,)
    assert_close(both.systematic / [1, 1e100], [found.systematic] * 2, "misfit")


def test_groups_are_independent_of_one_another():
    X, y, columns = episodes(300, 5, lambda x: 0.5 * x[:, 0] ** 2)
    groups = columns["episode"] % 30
    order = np.argsort(groups, kind="stable")
    found = checked(X, y, {**columns, "groups": groups})
    sorted_columns = {name: column[order] for name, column in columns.items()}
    assert_close(
        checked(X[order], y[order], {**sorted_columns, "groups": groups[order]}).p_value, found.p_value, "misfit"
    )
    with pytest.raises(InvalidInputError, match=r"at least 10 groups; got .* rows of 7 groups"):
        checked(X, y, {**columns, "groups": columns["episode"] % 7})


def test_constant_and_huge_features():
    X, y, columns = episodes(60, 12)
    assert not checked(np.ones((len(X), 2)), y, columns).misfit
    assert not checked(np.ones((len(X), 1)), y, columns, fit_intercept=False).misfit
    model = LSTD(gamma=0.0).fit(X, y, **columns)
    with pytest.raises(InvalidInputError, match="overflow"):
        model.misfit_check(X, 1e200 * y, **columns)
    with pytest.raises(InvalidInputError, match="row 3 has nan in column 1"):
        model.misfit_check(np.where(np.arange(2 * len(X)).reshape(-1, 2) == 7, np.nan, X), y, **columns)


def test_a_choice_of_settings_is_checked(tmp_path):
    X, y, columns = episodes(200, 13, lambda x: 2 * x[:, 0] ** 2)
    with pytest.warns(MisfitWarning, match="mean standard error"):
        model = LSTDCV(gamma=0.5, lmbdas=[0.0, 0.5, 1.0]).fit(X, y, **columns)
    assert model.misfit_check_.misfit is True
    assert model.bias_check_ == "`lmbda` must be below 1 for a check of bias; got 1, which does not bootstrap." or (
        0 <= model.bias_check_.p_value <= 1
    )
    model.save(tmp_path / "model.lstd")
    loaded = lstd.load(tmp_path / "model.lstd")
    assert vars(loaded.misfit_check_) == vars(model.misfit_check_)
    assert str(loaded.bias_check_) == str(model.bias_check_)
    few = slice(0, int(np.flatnonzero(columns["terminated"])[5]) + 1)
    short = LSTDCV(gamma=0.5, lmbdas=[0.0, 0.5]).fit(X[few], y[few], **{name: x[few] for name, x in columns.items()})
    assert short.misfit_check_.startswith("A check of misfit needs at least 10 episodes")


def test_warnings_after_a_choice_say_how_many_rows_were_checked(monkeypatch):
    X, y, columns = episodes(200, 13, lambda x: 2 * x[:, 0] ** 2)
    with pytest.warns(MisfitWarning, match=r"does not help\.$"):
        LSTDCV(gamma=0.5, lmbdas=[0.0, 0.5, 1.0]).fit(X, y, **columns)
    for name in ("ENTRIES_OF_CHECK", "ROWS_OF_CHECK"):
        monkeypatch.setattr(bias_check, name, 1)
    lengths = np.bincount(columns["episode"])
    some = np.argsort(np.arange(200) * 0.5 * (np.sqrt(5.0) - 1.0) % 1.0)[:64]
    note = rf"does not help\. Checked on {lengths[some].sum()} of {len(X)} rows, from all over the data\.$"
    with pytest.warns(MisfitWarning, match=note):
        LSTDCV(gamma=0.5, lmbdas=[0.0, 0.5, 1.0]).fit(X, y, **columns)


def test_rows_of_a_check_are_whole_groups_from_all_over():
    lengths = np.random.default_rng(0).integers(1, 9, 300)
    episode = np.repeat(np.arange(300), lengths)
    ends = np.append(np.diff(episode) > 0, True)
    rows = check_rows(
        np.arange(len(episode))[:, np.newaxis], np.zeros(len(episode)), episode=episode, terminated=ends, gamma=0.5
    )
    some = rows_from_all_over(rows, 400)
    chosen = np.unique(some.episode)
    assert 392 < len(some) <= 400
    assert some.X[:, 0].tolist() == np.flatnonzero(np.isin(episode, chosen)).tolist()
    assert np.diff(chosen).max() <= 5
    assert len(np.unique(rows_from_all_over(rows, 1, 64).episode)) == 64
    assert len(rows_from_all_over(rows, 1, 64, 100)) <= 100
    grouped = rows.changed(groups=episode // 3)
    kept = rows_from_all_over(grouped, 400).groups
    assert [np.sum(kept == group) for group in np.unique(kept)] == [np.sum(episode // 3 == g) for g in np.unique(kept)]
    stream = check_rows(np.ones((50, 1)), np.zeros(50), gamma=0.5)
    assert len(rows_from_all_over(stream, 20)) == 20


def test_scores_that_chance_explains_leave_lmbda_arbitrary():
    X, y, columns = episodes(40, 14)
    model = LSTDCV(gamma=0.5, lmbdas=[0.0, 0.5, 1.0]).fit(X, y, **columns)
    low, high = model.arbitrary_scores_
    assert low <= model.best_score_ <= high
    chain = RandomWalk(19)
    run = chain.simulate(4000, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LSTDWarning)
        model = LSTDCV(gamma=1.0).fit(
            np.eye(5)[np.arange(19) // 4][run.states[:-1]], run.rewards, terminated=run.terminated
        )
    assert model.arbitrary_scores_ is None


def test_the_weight_of_a_horizon_row_changes_no_check():
    """It has no transition; checks average over transitions."""
    X, y, columns = episodes(60, 7, lambda x: 0.5 * x[:, 0] ** 2)
    columns["terminated"] = columns["terminated"] & (columns["episode"] % 3 > 0)
    weight = np.random.default_rng(8).uniform(0.5, 2.0, len(X))
    horizon = np.append(np.diff(columns["episode"]) > 0, True) & ~columns["terminated"]
    other = np.where(horizon, 50.0, weight)
    with warnings.catch_warnings(action="ignore"):
        model = LSTD(0.8, 0.5).fit(X, y, weight=weight, **columns)
        for check in (model.misfit_check, model.bias_check):
            one, two = (check(X, y, weight=w, **columns) for w in (weight, other))
            assert vars(one) == vars(two)
