"""`ExtrapolationWarning`: features that only grow within one cohort of episodes, such as tenure and totals."""

import numpy as np
import pytest
from scipy import sparse

from lstd import LSTD, LSTDCV, HorizonLSTD
from lstd.errors import ExtrapolationWarning
from tolerances import assert_close

pytestmark = pytest.mark.filterwarnings(*(f"ignore::lstd.errors.{what}Warning" for what in ("Unobserved", "Bounds")))


def cohort(n=60, n_rows=30, joins=6, seed=1, ended=False):
    """Draw subjects who join within the first rows of a log; each gets a horizon row in its last one."""
    random = np.random.default_rng(seed)
    first = random.integers(joins, size=n)
    subject, time = np.nonzero(np.arange(n_rows) >= first[:, np.newaxis])
    age, last = time - first[subject], time == n_rows - 1
    rate = random.gamma(2.0, 0.3, n)
    y = random.poisson(rate[subject]).astype(float)
    total = np.array([y[(subject == s) & (time < t)].sum() for s, t in zip(subject, time, strict=True)])
    features = {
        "age": age, "total": total, "born": random.uniform(0.0, 120.0, n)[subject] + age,
        "rate": (total + 0.5) / (age + 1.0), "limited": np.minimum(age, 10), "noise": random.normal(size=len(y)),
        "kind": random.integers(3, size=n)[subject], "left": -age,
    }  # fmt: skip
    return features, y, {"episode": subject, "terminated": last & ended}


def arrays(*names, **options):
    features, y, columns = cohort(**options)
    return np.column_stack([features[name] for name in names]).astype(float), y * ~columns["terminated"], columns


@pytest.mark.parametrize("make", [LSTD, lambda gamma: LSTDCV(gamma, lmbdas=[0.5], alphas=[1.0])])
@pytest.mark.parametrize("convert", [np.asarray, sparse.csr_array])
@pytest.mark.filterwarnings("ignore::lstd.errors.LSTDWarning")
def test_features_that_only_grow_are_named(make, convert):
    X, y, columns = arrays("noise", "age", "rate", "total", "limited", "kind", "left", "born")
    with pytest.warns(ExtrapolationWarning, match=r"grow within an episode \(x1, x3\) .* fall .* \(x6\) have") as given:
        make(0.95).fit(convert(X), rewards(y, columns), **columns)
    assert [w.filename for w in given if w.category is ExtrapolationWarning] == [__file__]


def rewards(y, columns):
    return np.where(np.append(columns["episode"][1:] != columns["episode"][:-1], True), np.nan, y)


def test_names_of_columns_are_in_the_message():
    pd = pytest.importorskip("pandas")
    X, y, columns = arrays("noise", "age")
    with pytest.warns(ExtrapolationWarning, match=r"\('weeks'\)"):
        LSTD(0.95).fit(pd.DataFrame(X, columns=["noise", "weeks"]), rewards(y, columns), **columns)


@pytest.mark.parametrize(
    ("names", "options", "gamma"),
    [
        (("noise", "rate", "limited", "kind", "born"), {}, 0.95),  # nothing that only grows beyond the others
        (("age", "total"), {"joins": 30}, 0.95),  # subjects who join at all times
        (("age", "total"), {"ended": True}, 0.95),  # nothing to predict after the last row
        (("age", "total"), {}, 0.5),  # hardly anything lies behind the last rows
        (("age", "total"), {"n": 19}, 0.95),  # too few
    ],
)
@pytest.mark.parametrize("seed", range(3))
def test_right_features_are_not_named(names, options, gamma, seed):
    X, y, columns = arrays(*names, seed=seed, **options)
    y = y if options.get("ended") else rewards(y, columns)
    LSTD(gamma).fit(X, y, **columns)  # warnings are errors


@pytest.mark.parametrize(("n_rows", "window"), [(20, 2), (26, 8), (52, 9), (52, 16)])
@pytest.mark.parametrize("joins", [1, 4])
def test_a_rate_that_grows_towards_a_limit_is_not_named(n_rows, window, joins):
    """Everybody has an event in every step, so that a shrunken rate only grows."""
    _, y, columns = cohort(n_rows=n_rows, joins=joins)
    subject = columns["episode"]
    begins = np.append(True, subject[1:] != subject[:-1])
    age = np.arange(len(y)) - np.flatnonzero(begins)[subject]
    rate = (age + 0.9 * window) / (age + window)
    X = np.column_stack([rate, 1.0 / (1.0 + age)])
    HorizonLSTD(n_rows // 2, check=False).fit(X, rewards(y, columns), **columns)  # warnings are errors


def test_a_growing_feature_without_which_predictions_hardly_move_is_not_named():
    """Without it, the model is that of the other features, with the same penalty; the total decides."""
    X, y, columns = arrays("rate", "total")
    y = rewards(y, columns)
    now = np.isnan(y)
    model = HorizonLSTD(8, check=False)
    with pytest.warns(ExtrapolationWarning, match=r"\(x1\)"):
        model.fit(X, y, **columns)
    without = HorizonLSTD(8, alpha=model.ridge_[:1], penalty="raw", check=False).fit(X[:, :1], y, **columns)
    whole = model.model_
    (kept,) = np.nonzero([True, False, True])
    of_rate = whole.total.only(np.array([True, False, True]))
    assert_close(of_rate.full[0][:, :2], whole.total.full[0][np.ix_(kept, kept)], "sums")
    assert_close(of_rate.full, without.model_.total.full, "sums")
    moved = model.predict(X[now]).sum() / without.predict(X[now, :1]).sum()
    assert abs(moved - 1.0) > 0.05
    X, _, _ = arrays("rate", "limited", "age")
    X[:, 2] *= 1e-3  # of a weight that the large penalty leaves near zero
    with pytest.warns(ExtrapolationWarning, match=r"\(x2\)"):
        LSTD(0.9, alpha=[1.0, 1.0, 1e6]).fit(X, y, **columns)
    HorizonLSTD(8, alpha=[1.0, 1.0, 1e6], check=False).fit(X, y, **columns)  # warnings are errors


def test_discounts_of_rows_measure_time():
    """Half of the subjects have three times as many rows in the same time: by steps, they would be older."""
    X, y, columns = arrays("age", "noise", joins=1)
    subject = columns["episode"]
    often = subject % 2 == 0
    X[:, 0] *= np.where(often, 1.0, 3.0)
    keep = often | (np.arange(len(y)) % 30 < 10) | np.append(subject[1:] != subject[:-1], True)
    discount = np.where(often, 0.97, 0.97**3)[keep]
    with pytest.warns(ExtrapolationWarning, match="x0"):
        LSTD(0.97).fit(
            X[keep], rewards(y, columns)[keep], episode=subject[keep], terminated=np.zeros(keep.sum(), bool),
            discount=discount,
        )  # fmt: skip
