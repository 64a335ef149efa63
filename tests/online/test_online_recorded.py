"""RecursiveLSTD with several rewards, and learning recorded rows: the definition, and the same bits as updates."""

import copy
import io
import pickle

import numpy as np
import pytest
from scipy import sparse

from lstd import LSTD, RecursiveLSTD
from lstd.errors import InvalidInputError
from online_streams import VARIANTS
from tolerances import assert_close

SETTINGS = {"gamma": 0.9, "lmbda": 0.7, "alpha": 0.5}
IDS = np.repeat([3, 4, 5, 6], [7, 1, 9, 5])
DONE = np.isin(np.arange(22), [7, 21])  # episodes 4 and 6 terminate, 3 and 5 are cut off


pytestmark = pytest.mark.filterwarnings("ignore::lstd.errors.EffectiveSampleWarning")


def drawn(m=None, seed=0, n=5):
    random = np.random.default_rng(seed)
    X, y = random.normal(size=(22, n)), random.normal(size=(22,) if m is None else (22, m))
    y[[6, 16]] = np.nan
    rows = {"episode": IDS, "terminated": DONE, "discount": random.uniform(0.5, 1.0, 22)}
    rows |= {"importance_ratio": random.uniform(0.5, 1.5, 22), "weight": random.uniform(0.5, 2.0, 22)}
    return X, y, rows | {"trace_coefficient": random.uniform(0.2, 1.0, 22)}


def by_updates(model, X, y, rows):
    """Learn row by row, as a live system does; return the prediction for each row before its transition."""
    predictions = []
    for t in range(len(X)):
        predictions.append(model.predict(X[t]))
        if not DONE[t] and (t + 1 == len(X) or IDS[t + 1] != IDS[t]):
            continue
        over = not DONE[t] and (t + 2 == len(X) or IDS[t + 2] != IDS[t + 1]) and not DONE[t + 1]
        numbers = {name: float(rows[name][t]) for name in rows if name not in ("episode", "terminated")}
        x_next = None if DONE[t] else X[t + 1]
        model.update(X[t], y[t], x_next, terminated=bool(DONE[t]), truncated=over, **numbers)
    return np.array(predictions)


@pytest.mark.parametrize("m", [None, 1, 3])
@pytest.mark.parametrize("variant", VARIANTS)
def test_recorded_rows_are_learned_as_by_updates(m, variant):
    X, y, rows = drawn(m)
    one, two = (RecursiveLSTD(5, **SETTINGS, variant=variant, n_rewards=m) for _ in range(2))
    expected = by_updates(one, X, y, rows)
    found = two.partial_fit(X, y, **rows, return_predictions=True)
    assert found.shape == y.shape
    # A cut is known to an update that leads to a horizon row, and to recorded rows after the prediction for it.
    ahead = np.isin(np.arange(22), [6, 16])
    assert found[~ahead].tolist() == expected[~ahead].tolist()
    assert_close(found[ahead], expected[ahead], "recursions")
    assert two.weights.tolist() == one.weights.tolist()
    batch = LSTD(**SETTINGS, variant=variant, fit_intercept=False, n_blocks=0).fit(X, y, **rows)
    assert_close(two.weights, batch.coef_, "solve")


@pytest.mark.parametrize("size", [1, 2, 5, 21])
@pytest.mark.parametrize("form", ["dense", "sparse", "successors"])
def test_any_chunks_give_the_same(size, form):
    X, y, rows = drawn(2)
    if form == "successors":
        y = np.nan_to_num(y)
        rows["X_next"] = np.vstack([X[1:], X[:1]])
    whole, parts = (RecursiveLSTD(5, **SETTINGS, n_rewards=2) for _ in range(2))
    given = sparse.csr_array(X) if form == "sparse" else X
    expected, found = whole.partial_fit(given, y, **rows, return_predictions=True), []
    for first in range(0, 22, size):
        part = slice(first, first + size)
        chunk = {name: values[part] for name, values in rows.items()}
        found.append(parts.partial_fit(given[part], y[part], **chunk, return_predictions=True))
        for again in (pickle.loads(pickle.dumps(parts)), copy.deepcopy(parts), saved(parts)):
            parts = again
    assert_close(np.concatenate(found), expected, "solve")
    assert_close(parts.weights, whole.weights, "solve")
    batch = LSTD(**SETTINGS, fit_intercept=False, n_blocks=0).fit(given, y, **rows)
    assert_close(parts.weights, batch.coef_, "solve")


def saved(model):
    file = io.BytesIO()
    np.savez(file, **model.snapshot())
    file.seek(0)
    return RecursiveLSTD.restore(np.load(file))


def test_several_rewards_survive_lost_digits():
    random = np.random.default_rng(4)
    scale = 10.0 ** np.arange(6)
    model = RecursiveLSTD(6, gamma=0.5, lmbda=0.5, alpha=1e-9, n_rewards=2, check_every=16)
    batch = LSTD(gamma=0.5, lmbda=0.5, alpha=1e-9, fit_intercept=False, n_blocks=0)
    X, y = random.normal(size=(60, 6)) * scale, random.normal(size=(60, 2))
    X[:, 1] = 10 * X[:, 0] + 1e-3 * X[:, 1]
    for each in (model, batch):
        each.partial_fit(X, y).predict(X)
    assert_close(model.predict(X), batch.predict(X), "fixed_point")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"X": np.ones((4, 2))}, "`X` must have 3 features; got 2"),
        ({"y": np.ones((4, 2))}, r"`y` must have shape \(4,\), one reward per row; .* `n_rewards` .* got \(4, 2\)"),
        ({"y": [1.0, np.nan, 1.0, 1.0]}, "`y` must be finite on every row but"),
        ({"X": np.array([[1e200, 1.0, 1.0]] * 4)}, r"`X\[0\]` must be below 1e\+145, so that sums"),
        ({"X": np.diag([1.0, 1.0, 1e200, 1.0])[:, :3]}, r"`X\[2\]` must be below 1e\+145, so that sums"),
        ({"y": [1.0, 1e300, 1.0, 1.0]}, "At row 1: `reward` and `importance_ratio` must be so small"),
        ({"weight": -1.0}, "`weight` must be"),
        ({"return_predictions": 2}, "`return_predictions` must be"),
    ],
)
def test_rows_that_are_refused_change_nothing(arguments, message):
    model = RecursiveLSTD(3).partial_fit(np.eye(3), np.ones(3))
    before, twin = model.snapshot(), copy.deepcopy(model)
    data = {"X": np.vstack([np.eye(3), np.ones((1, 3))]), "y": np.ones(4)} | arguments
    with pytest.raises(InvalidInputError, match=message):
        model.partial_fit(**data)
    for name, values in model.snapshot().items():
        assert np.array_equal(values, before[name]), name
    rest = np.random.default_rng(0).normal(size=(5, 3)), np.ones(5)
    assert model.partial_fit(*rest).weights.tolist() == twin.partial_fit(*rest).weights.tolist()


def test_rewards_that_are_refused():
    model = RecursiveLSTD(2, n_rewards=2)
    for reward, message in (
        (1.0, r"`reward` must have shape \(2,\)"),
        ([1.0, np.nan], "`reward` must be finite"),
        ([1.0, 1e200], "`reward` must be below 1e\\+145"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            model.update([1.0, 0.0], reward, [0.0, 1.0])
    assert model.n_updates == 0
    with pytest.raises(InvalidInputError, match="`n_rewards` must be"):
        RecursiveLSTD(2, n_rewards=0)
    model = RecursiveLSTD(1).partial_fit([[1.0], [1.0]], [1.0, np.nan], episode=[1, 1], terminated=[False, False])
    with pytest.raises(
        InvalidInputError,
        match=r"`y` must be finite on every row but .*; the last row of the chunk before has no value",
    ):
        model.partial_fit([[1.0]], [1.0], episode=[1], terminated=[False])


def test_an_id_that_comes_again_is_refused_and_changes_nothing():
    X, y, rows = drawn()
    model = RecursiveLSTD(5, **SETTINGS).partial_fit(X, y, **rows)
    weights, n_updates = model.weights, model.n_updates
    late = {"episode": [7, 7, 4], "terminated": [False, True, True]}
    with pytest.raises(InvalidInputError, match=r"contiguous in a stream; at row 2, id 4 reappears"):
        model.partial_fit(X[:3], y[:3], **late)
    assert model.n_updates == n_updates
    np.testing.assert_array_equal(model.weights, weights)
    model.partial_fit(X[:2], y[:2], episode=[7, 8], terminated=[True, False])
    model.update(X[1], y[1], X[2])  # in place of the pending row
    model.partial_fit(X[2:4], y[2:4], episode=[8, 8], terminated=[False, True])
    with pytest.raises(
        InvalidInputError, match=r"the last row of the chunk before is followed by a row of the same episode, 8"
    ):
        model.partial_fit(X[:1], y[:1], episode=[8], terminated=[True])
