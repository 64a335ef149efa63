"""The effective sample that products of importance ratios, and weights, leave; the observed share of returns.

`laws/test_sums.py` holds the definition of the observed share at any split of the data.
"""

import itertools
import warnings

import numpy as np
import pytest

import lstd
import naive
from lstd import LSTD, LSTDCV, LSTDStatistics
from lstd._kernels.traces import sample_sums
from lstd.data.doubts import small
from lstd.errors import EffectiveSampleWarning
from tolerances import assert_close

WORDS = {"match": r"importance ratios the data count as \d(\.\d)? runs of .* as 100 without them: .*smaller `lmbda`"}


def episodes(n, length, seed=0):
    random = np.random.default_rng(seed)
    T = n * length
    ends = np.arange(T) % length == length - 1
    columns = {"episode": np.arange(T) // length, "terminated": ends}
    X, y = random.normal(size=(T, 2)), random.normal(size=T)
    return {"X": X, "y": y, "importance_ratio": np.where(random.uniform(size=T) < 0.2, 4.2, 0.2), **columns}


def weighted(n, length):
    random = np.random.default_rng(1)
    weight, coefficient = random.uniform(size=(2, n * length))
    coefficient *= 2.0
    return {**episodes(n, length), "weight": weight, "trace_coefficient": coefficient}


def sums(data, gamma, lmbda):
    return LSTDStatistics.from_arrays(**data, gamma=gamma, lmbda=lmbda)


def part(data, first, end):
    return {name: values[first:end] for name, values in data.items()}


@pytest.mark.parametrize("n", [0, 1, 7])
def test_the_python_body_gives_the_sums_of_the_compiled_kernel(n):
    columns = np.random.default_rng(3).uniform(0.0, 1.5, size=(4, n))
    one, two = np.zeros((2, 12))
    sample_sums(np.arange(n) != 4, *columns, one)
    getattr(sample_sums, "py_func", sample_sums)(np.arange(n) != 4, *columns, two)
    assert_close(one, two, "sums")


def sizes(data, decay, lengths):
    ones, rho, w, c = np.ones(len(data["y"])), data["importance_ratio"], data["weight"], data["trace_coefficient"]
    columns = ((rho, ones, c), (ones, w, np.minimum(c, 1.0)), (ones, ones, np.minimum(c, 1.0)))
    return [
        naive.effective_sample(ratios, decay, lengths, weights, coefficients)
        for ratios, weights, coefficients in columns
    ]


@pytest.mark.parametrize(("gamma", "lmbda"), [(1.0, 1.0), (0.9, 0.9), (0.9, 0.0), (1.0, 0.5)])
def test_it_is_the_effective_number_of_the_definition(gamma, lmbda):
    data = weighted(7, 12)
    expected = sizes(data, gamma * lmbda, [12] * 7)
    assert_close(sums(data, gamma, lmbda).counts.sample.size, expected, "solve")
    streamed = LSTD(gamma, lmbda)
    for i, j in itertools.pairwise([0, 1, 2, 11, 12, 13, 30, 83, 84]):
        streamed.partial_fit(**part(data, i, j))
    assert_close(streamed.statistics_.counts.sample.size, expected, "solve")
    parts = [sums(part(data, i, j), gamma, lmbda) for i, j in ((0, 24), (24, 84))]  # where an episode ends
    assert_close(parts[0].then(parts[1]).counts.sample.size, expected, "solve")
    assert_close((parts[0] + parts[1]).counts.sample.size, expected, "solve")
    factors = np.repeat([0.25, 1.0], [24, 60])
    expected = sizes({**data, "weight": factors * data["weight"]}, gamma * lmbda, [12] * 7)
    assert_close((0.25 * parts[0]).then(parts[1]).counts.sample.size, expected, "solve")


def test_data_with_ratios_and_without_them_has_no_known_size():
    data = episodes(7, 12)
    mixed = sums(data, 1.0, 1.0) + sums({**data, "importance_ratio": None}, 1.0, 1.0)
    assert np.isnan(mixed.counts.sample.size).all()
    assert mixed.counts.sample.off_policy
    LSTD(1.0, 1.0, fit_intercept=False).fit_statistics(mixed)  # without a warning


def test_all_ways_in_say_when_a_few_products_decide(tmp_path):
    data = episodes(100, 60)
    chunks = [part(data, first, first + 1000) for first in range(0, 6000, 1000)]
    with pytest.warns(EffectiveSampleWarning, **WORDS):
        model = LSTD(1.0, 1.0).fit(**data)
    with pytest.warns(EffectiveSampleWarning, **WORDS) as given:
        sums(data, 1.0, 1.0).solve(0.1)
    assert len(given) == 1
    with pytest.warns(EffectiveSampleWarning):
        LSTDCV(1.0, lmbdas=[1.0]).fit(**data)
    with pytest.warns(EffectiveSampleWarning, **WORDS):
        lstd.fit_chunks(chunks, gamma=1.0, lmbda=1.0)
    model.save(tmp_path / "model")
    assert_close(
        lstd.load(tmp_path / "model").statistics_.counts.sample.size, model.statistics_.counts.sample.size, "solve"
    )


def test_a_stream_says_it_once_when_its_weights_are_used():
    data, streamed = episodes(100, 60), LSTD(1.0, 1.0)
    for first in range(0, 6000, 1000):
        streamed.partial_fit(**part(data, first, first + 1000))
    with pytest.warns(EffectiveSampleWarning, **WORDS):
        _ = streamed.coef_
    streamed.partial_fit(**{**part(data, 0, 1000), "episode": data["episode"][:1000] + 100})
    assert any(small(streamed.statistics_.counts.sample.size, 1.0))
    _ = streamed.coef_


def test_silence_where_products_are_short_data_is_little_or_the_policy_is_the_same():
    data = episodes(100, 60)
    with warnings.catch_warnings(action="error"):
        LSTD(1.0, 0.0).fit(**data)
        LSTD(1.0, 1.0).fit(**part(data, 0, 180))
        LSTD(1.0, 1.0).fit(**{**data, "importance_ratio": np.full(6000, 0.96)})
        LSTD(1.0, 0.5).fit(**data)


def test_a_fit_says_when_a_few_weights_decide():
    data = episodes(100, 6) | {"importance_ratio": None}
    weight = np.where(data["episode"] < 3, 1e4, 1.0)
    with pytest.warns(
        EffectiveSampleWarning, match=r"these weights the data count as 3 runs .* as 100 without them: .*Limit `weight`"
    ):
        LSTD(1.0, 1.0).fit(**data, weight=weight)
    LSTD(1.0, 1.0).fit(**data, weight=np.full(600, 1e4))


def test_forgetting_scales_what_was_seen(tmp_path):
    X, y = np.ones((10, 1)), np.zeros(10)
    one, two = (LSTDStatistics.from_arrays(X, y, gamma=0.5, lmbda=0.9) for _ in range(2))
    (0.25 * one).then(two).save(tmp_path / "sums")
    weight = np.repeat([0.25, 1.0], [10, 9])
    expected = weight @ (1 - 0.5 ** np.arange(19, 0, -1)) / weight.sum()
    assert_close(lstd.load(tmp_path / "sums").observed_share, expected, "sums")
