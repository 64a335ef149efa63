"""Which pairs of λ and α are tried."""

import numpy as np
import pytest

from lstd import LSTDCV

pytestmark = pytest.mark.filterwarnings("ignore::lstd.errors.UnusedRewardWarning")


@pytest.mark.parametrize(
    ("n", "lmbdas", "ratio"),
    [
        (63, [*np.arange(10) / 10, *np.arange(91, 101) / 100], 2.0),
        (64, [0.0, 0.3, 0.6, 0.8, 0.9, 0.95, 0.98, 1.0], 4.0),
    ],
)
def test_the_grid_is_coarse_with_many_features(n, lmbdas, ratio):
    random = np.random.default_rng(n)
    X = random.normal(size=(300, n))
    model = LSTDCV(gamma=0.8).fit(X, X[:, 0] + random.normal(size=300))
    tried = model.cv_results_
    assert np.unique(tried["lmbda"]).tolist() == lmbdas
    alphas = np.unique(tried["alpha"])
    assert len(alphas) >= 4
    np.testing.assert_allclose(alphas[1:] / alphas[:-1], ratio)
    assert len(tried["lmbda"]) == len(lmbdas) * len(alphas)


@pytest.mark.parametrize("seed", range(3))
def test_many_features_of_whole_episodes_without_a_signal_have_a_large_ridge_coefficient(seed):
    random = np.random.default_rng(seed)
    X = random.normal(size=(600, 70))
    columns = {"episode": np.repeat(np.arange(60), 10), "terminated": np.arange(600) % 10 == 9}
    model = LSTDCV(gamma=1.0, n_blocks=0).fit(X, random.normal(size=600), **columns)
    assert model.alpha_ > 2 * 70  # the largest one before the grid grows


def test_a_given_grid_of_many_features_is_searched_whole():
    random = np.random.default_rng(0)
    X = random.normal(size=(200, 70))
    lmbdas = [0.1, 0.5, 0.7]
    alphas = [1.0, 2.0, 3.0, 50.0]
    model = LSTDCV(gamma=0.8, lmbdas=lmbdas, alphas=alphas).fit(X, X[:, 0] + random.normal(size=200))
    np.testing.assert_array_equal(model.cv_results_["lmbda"], np.repeat(lmbdas, 4))
    np.testing.assert_array_equal(model.cv_results_["alpha"], np.tile(alphas, 3))


def test_sums_that_are_kept_while_the_grid_grows_make_no_difference(monkeypatch):
    random = np.random.default_rng(2)
    X = random.normal(size=(200, 5))
    y = X[:, 0] + random.normal(size=200)
    kept = LSTDCV(gamma=0.9).fit(X, y).cv_results_
    assert len(np.unique(kept["alpha"])) > 9  # the grid grew
    monkeypatch.setattr("lstd.estimators.pair_search.BYTES_OF_SUMS", 0)
    again = LSTDCV(gamma=0.9).fit(X, y).cv_results_
    for name, values in kept.items():
        np.testing.assert_array_equal(values, again[name])


def test_many_features_of_whole_episodes_have_large_ridge_coefficients_at_once():
    random = np.random.default_rng(1)
    X = random.normal(size=(3000, 64))
    columns = {"episode": np.repeat(np.arange(100), 30), "terminated": np.arange(3000) % 30 == 29}
    y = 3.0 * X[:, 0] + random.normal(size=3000)
    whole = LSTDCV(gamma=0.5, n_blocks=0, fit_intercept=False).fit(X, y, **columns)
    largest = whole.cv_results_["alpha"].max()
    assert largest == pytest.approx(16 * 64)
    assert whole.alpha_ < largest  # so that the grid did not grow


@pytest.mark.filterwarnings("ignore::lstd.errors.RidgeWarning")  # which is right here
@pytest.mark.parametrize("seed", range(3))
def test_slow_features_without_a_signal_have_a_large_ridge_coefficient(seed):
    random = np.random.default_rng(seed)
    noise = random.normal(size=(2000, 21))
    X = noise.copy()
    for t in range(1, len(X)):
        X[t] = 0.9 * X[t - 1] + 0.4 * noise[t]
    model = LSTDCV(gamma=0.95, n_blocks=0).fit(X[:, :20], X[:, 20] + random.normal(size=2000))
    assert model.alpha_ > 4 * 20  # four units: beyond the usual grid


def test_a_pair_beyond_the_grid_is_better_on_observed_returns():
    random = np.random.default_rng(4)
    X = random.normal(size=(300, 6))
    y = 0.1 * X[:, 0] + random.normal(size=300)
    usual = LSTDCV(gamma=0.9, alphas=6 * np.exp2(np.arange(-8.0, 1.0))).fit(X, y)
    grown = LSTDCV(gamma=0.9).fit(X, y)
    assert grown.alpha_ > usual.alpha_
    assert grown.best_score_ > usual.best_score_
