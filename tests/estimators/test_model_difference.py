"""The difference of two models: paired and independent, by its definition, in files and chunks, and what is refused."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse, stats

import lstd
from lstd import LSTD, LSTDCV, fit_chunks
from lstd.errors import InvalidInputError
from lstd.inference import difference
from tolerances import assert_close

GAMMA = 0.9


def arm(seed, episodes=60, n=3, uplift=0.0):
    """Features, rewards and columns of episodes of four rows, with noise of their own that the whole episode shares."""
    random = np.random.default_rng(seed)
    T = 4 * episodes
    X = random.normal(size=(T, n)) + 1.0
    y = X.sum(axis=1) + uplift + np.repeat(random.normal(size=episodes), 4) + random.normal(size=T)
    return X, y, {"episode": np.arange(T) // 4, "terminated": np.arange(T) % 4 == 3}


def fitted(data, **settings):
    X, y, columns = data
    return LSTD(**{"gamma": GAMMA, "alpha": 0.1} | settings).fit(X, y, **columns)


NEW = np.random.default_rng(9).normal(size=(5, 3))
MEAN = np.full(5, 0.2)


def test_independent_arms_add_their_variances():
    a, b = fitted(arm(0)), fitted(arm(1, episodes=90))
    found = difference(a, b, NEW, level=0.9)
    assert not found.paired
    one, two = a.predict_interval(NEW), b.predict_interval(NEW)
    assert_close(found.prediction, one.prediction - two.prediction, "solve")
    assert_close(found.standard_error, np.hypot(one.standard_error, two.standard_error), "solve")
    parts = [(i.standard_error**4 / i.degrees_of_freedom) for i in (one, two)]
    assert_close(found.degrees_of_freedom, found.standard_error**4 / sum(parts), "solve")
    half = stats.t.ppf(0.95, found.degrees_of_freedom) * np.hypot(found.standard_error, one.shift - two.shift)
    assert_close(found.upper - found.prediction, half, "solve")
    assert_close(found.prediction - found.lower, half, "solve")
    mean = difference(a, b, NEW, MEAN)
    assert_close(mean.prediction, found.prediction.mean(), "solve")
    assert np.ndim(mean.standard_error) == 0


@pytest.mark.parametrize("settings", [{"lmbda": 0.3}, {"alpha": 50.0}, {"variant": "uncorrected"}, {"lmbda": 1.0}])
def test_models_of_the_same_rows_are_paired(settings):
    data = arm(0)
    a, b = fitted(data), fitted(data, **settings)
    found = difference(a, b, NEW, MEAN)
    assert found.paired
    u, v = (np.append(NEW.mean(axis=0), 1.0) @ model.model_.influence.vectors[:, 0].T for model in (a, b))
    assert_close(found.standard_error, np.sqrt(np.sum((u - v) ** 2)), "solve")
    assert found.standard_error < 0.5 * np.hypot(
        *(m.predict_interval(NEW, weights=MEAN).standard_error for m in (a, b))
    )


@pytest.mark.filterwarnings("ignore::lstd.errors.BiasWarning", "ignore::lstd.errors.MisfitWarning")  # random rewards
def test_rewards_weights_and_chunks_do_not_unpair():
    X, y, columns = arm(0)
    whole = fitted((X, y, columns))
    weight = np.random.default_rng(3).uniform(0.5, 1.5, len(y))
    sparse_rows = (sparse.csr_array(X), y, columns)
    streamed = LSTD(GAMMA, alpha=0.1)
    for part in (slice(0, 50), slice(50, 51), slice(51, 240)):
        streamed.partial_fit(X[part], y[part], **{name: column[part] for name, column in columns.items()})
    others = [
        fitted((X, -y, columns)), fitted((X, y, columns | {"weight": weight})), fitted(sparse_rows), streamed,
        fitted((X, y, columns), fit_intercept=False), LSTDCV(GAMMA).fit(X, y, **columns),
    ]  # fmt: skip
    for other in others:
        assert difference(whole, other, NEW).paired
    X = X.copy()
    X[100, 1] += 1e-9
    assert not difference(whole, fitted((X, y, columns)), NEW).paired
    assert not difference(whole, fitted((X[:236], y[:236], {k: v[:236] for k, v in columns.items()})), NEW).paired


def test_long_streams_are_told_apart_in_any_chunks(tmp_path):
    """More rows than the mark takes whole."""
    random = np.random.default_rng(4)
    X, y = random.normal(size=(9000, 2)), random.normal(size=9000)
    columns = {"episode": np.arange(9000) // 30, "terminated": np.arange(9000) % 30 == 29}
    one, two = fitted((X, y, columns)), LSTD(GAMMA, alpha=0.1)
    for part in (slice(0, 4000), slice(4000, 7777), slice(7777, 9000)):
        two.partial_fit(X[part], y[part], **{name: column[part] for name, column in columns.items()})
    assert difference(one, two, X[:1]).paired
    rolled = np.roll(X, 31, axis=0)
    assert not difference(one, fitted((rolled, y, columns)), X[:1]).paired
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "r": y, "id": columns["episode"], "end": columns["terminated"]})
    names = {"features": ["a", "b"], "reward": "r", "episode": "id", "terminated": "end", "gamma": GAMMA}
    tables = [lstd.fit_tables(frame, **names, lmbda=lmbda) for lmbda in (0.9, 0.5)]
    assert difference(*tables, frame[["b", "a"]][:3]).paired
    chunks = [{"X": X[i : i + 3000], "y": y[i : i + 3000]} | {k: v[i : i + 3000] for k, v in columns.items()}
              for i in (0, 3000, 6000)]  # fmt: skip
    assert difference(*(fit_chunks(chunks, gamma=GAMMA, lmbda=lmbda) for lmbda in (0.9, 0.5)), X[:3]).paired


def test_saved_models_give_the_same(tmp_path):
    data = arm(0)
    a, b, c = fitted(data), fitted(data, lmbda=0.2), fitted(arm(1))
    for name, model in (("a", a), ("b", b), ("c", c)):
        model.save(tmp_path / name)
    for other, loaded in ((b, "b"), (c, "c")):
        expected, found = (
            difference(a, other, NEW),
            difference(lstd.load(tmp_path / "a"), lstd.load(tmp_path / loaded), NEW),
        )
        for name, value in vars(expected).items():
            np.testing.assert_array_equal(getattr(found, name), value)


def test_other_models_are_refused():
    X, y, columns = arm(0)
    a = fitted((X, y, columns))
    named = [fitted((pd.DataFrame(X, columns=list(names)), y, columns)) for names in ("abc", "abd")]
    cases = [
        ((a, fitted((X[:, :2], y, columns)), NEW), r"same features; a has 3, b has 2"),
        ((*named, pd.DataFrame(NEW, columns=list("abc"))), "same order; a has 'c' where b has 'd'"),
        ((a, fitted((X, y, columns), gamma=0.5), NEW), "same `gamma`; got 0.9 and 0.5, whose .* any_gamma=True"),
        ((a, fitted((X, y[:, np.newaxis], columns)), NEW), "the same number of rewards, in the same form; got 1 and 1"),
        ((a, fitted((X, y, columns), n_blocks=0), NEW), "`b` has no intervals: Intervals need `n_blocks`"),
        ((a, "b", NEW), "`b` must be a fitted LSTD or LSTDCV; got str"),
        ((a, a, NEW[:, :2]), "3 features"),
        ((a, a, NEW, [1.0]), "`weights` must have shape"),
    ]  # fmt: skip
    for arguments, message in cases:
        with pytest.raises(ValueError, match=message):
            difference(*arguments)
    with pytest.raises(InvalidInputError, match="`X_b` must have as many rows as `X`, 5; got 2"):
        difference(a, a, NEW, X_b=NEW[:2])
    assert difference(a, fitted((X, y, columns), gamma=0.5), NEW, any_gamma=True).paired
