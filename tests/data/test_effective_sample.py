"""The effective sample that products of importance ratios leave."""

import numpy as np
import pytest

import naive
from lstd import LSTD, LSTDCV
from lstd.data.check_rows import check_rows
from lstd.data.effective_sample import effective_sample
from lstd.errors import EffectiveSampleWarning
from tolerances import assert_close


def episodes(n, length, seed=0):
    random = np.random.default_rng(seed)
    T = n * length
    ends = np.arange(T) % length == length - 1
    columns = {"episode": np.arange(T) // length, "terminated": ends}
    return random.normal(size=(T, 2)), random.normal(size=T), columns, np.where(random.uniform(size=T) < 0.2, 4.2, 0.2)


@pytest.mark.parametrize(("gamma", "lmbda"), [(1.0, 1.0), (0.9, 0.9), (0.9, 0.0), (1.0, 0.5)])
def test_it_is_the_effective_number_of_the_definition(gamma, lmbda):
    X, y, columns, ratios = episodes(7, 12)
    weights = np.random.default_rng(1).uniform(size=len(y))
    rows = check_rows(X, y, gamma=gamma, importance_ratio=ratios, weight=weights, **columns)
    expected = naive.effective_sample(ratios, gamma * lmbda, [12] * 7, weights)
    assert_close(effective_sample(rows, lmbda), expected, "solve")


def test_equal_episodes_count_as_many_as_they_are():
    X, y, columns, _ = episodes(7, 12)
    rows = check_rows(X, y, gamma=1.0, **columns)
    assert_close(effective_sample(rows, 1.0), 7.0, "solve")


def test_a_fit_says_when_a_few_products_decide():
    X, y, columns, ratios = episodes(100, 60)
    with pytest.warns(EffectiveSampleWarning, match=r"sample of \d(\.\d)? runs of rows, of 100 .*smaller `lmbda`"):
        LSTD(1.0, 1.0).fit(X, y, importance_ratio=ratios, **columns)
    with pytest.warns(EffectiveSampleWarning):
        LSTDCV(1.0, lmbdas=[1.0]).fit(X, y, importance_ratio=ratios, **columns)
    LSTD(1.0, 0.0).fit(X, y, importance_ratio=ratios, **columns)
    LSTD(1.0, 1.0).fit(
        X[:180], y[:180], **{name: column[:180] for name, column in columns.items()}
    )  # few, but on policy
    LSTD(1.0, 1.0).fit(X, y, importance_ratio=np.full(len(y), 0.9), **columns)


def test_a_fit_says_when_a_few_weights_decide():
    X, y, columns, _ = episodes(100, 6)
    weight = np.where(columns["episode"] < 3, 1e4, 1.0)
    with pytest.warns(EffectiveSampleWarning, match=r"The weights leave .* 3 runs of rows, of 100 .*Limit `weight`"):
        LSTD(1.0, 1.0).fit(X, y, weight=weight, **columns)
    LSTD(1.0, 1.0).fit(X, y, weight=np.full(len(y), 1e4), **columns)
