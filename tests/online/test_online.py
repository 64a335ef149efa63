"""Online estimators: after every transition, the weights of the definition."""

import contextlib
import copy
import io
import json
import pickle
import warnings
from functools import cache
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import lstd
import naive
from lstd._kernels import online_state as at
from lstd.errors import BrokenEpisodeWarning, IllConditionedWarning, InvalidInputError
from lstd.online import TD, RecursiveLSTD, TrueOnlineTD
from online_streams import FORMS, PYTHON, UNIT, VARIANTS, Transition, entries, streams
from tolerances import assert_close
from twins import compiled_only


@contextlib.contextmanager
def quiet():
    """Without the warnings of ill-conditioned streams and of gaps in an episode."""
    with warnings.catch_warnings():
        for category in (IllConditionedWarning, BrokenEpisodeWarning):
            warnings.simplefilter("ignore", category)
        yield


# ---------------------------------------------------------------- weights


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    streams(most=10, widths=(1, 3), weighted=True),
    st.sampled_from(VARIANTS),
    UNIT,
    st.sampled_from(["dense", "entries"]),
)
def test_weights_by_the_python_bodies(stream, variant, lmbda, form):
    """After every transition; `laws/test_recursion.py` holds the compiled ones to the batch estimator."""
    compiled, body = (RecursiveLSTD(len(stream[0].x), lmbda=lmbda, alpha=10.0, variant=variant) for _ in range(2))
    for step in stream:
        with quiet():
            step.feed(compiled, FORMS[form])
            with (
                mock.patch("lstd.online.recursive_lstd.kernels", PYTHON.online_step),
                mock.patch("lstd.online.recursion.kernels", PYTHON.online_step),
                np.errstate(all="ignore"),
            ):
                step.feed(body, FORMS[form])
                found = [body.weights_for(read) for read in VARIANTS]
            assert_close(found, [compiled.weights_for(read) for read in VARIANTS], "solve")


@compiled_only
@pytest.mark.parametrize("n", [40, 60, 300])
def test_sparse_rows_give_what_dense_rows_give(n):
    random, n_steps = np.random.RandomState(n), 3 * n
    dense, pairs, mixed = (RecursiveLSTD(n, gamma=0.9, lmbda=0.7, variant="mixed") for _ in range(3))
    rows = random.normal(size=(n_steps + 1, n)) * (random.uniform(size=(n_steps + 1, n)) < 10 / n)
    A, b, z = {variant: np.eye(n) for variant in VARIANTS}, np.zeros(n), np.zeros(n)
    for t in range(n_steps):
        reward, end = random.normal(), t % 50 == 49
        x, x_next = rows[t], random.permutation(rows[t + 1]) if end else rows[t + 1]
        dense.update(x, reward, x_next, truncated=end)
        pairs.update(entries(x), reward, entries(x_next), truncated=end)
        form = entries if random.uniform() < 0.5 else np.asarray
        mixed.update(form(x), reward, x_next if random.uniform() < 0.5 else entries(x_next), truncated=end)
        z = (0.0 if t % 50 == 0 else 0.9 * 0.7) * z + x
        b += reward * z
        for variant in VARIANTS:
            share = naive.SHARES[variant](0.7) if end or t + 1 == n_steps else 1.0
            A[variant] += np.outer(z, x - share * 0.9 * x_next)
    for variant in VARIANTS:
        expected = np.linalg.solve(A[variant], b)
        for model in (dense, pairs, mixed):
            assert_close(model.weights_for(variant), expected, "solve")


def test_a_gap_warns_once():
    model = RecursiveLSTD(2)
    model.update([1.0, 0.0], 1.0, [0.0, 1.0])
    with pytest.warns(BrokenEpisodeWarning, match=r"`x` differs from `x_next` of update 1.*truncated=True"):
        model.update([1.0, 0.0], 1.0, [0.0, 1.0])
    model.update([1.0, 0.0], 1.0, [0.0, 1.0])


# ---------------------------------------------------------------- state


def some_state(seed=0, n=5, n_steps=45):
    random = np.random.RandomState(seed)
    model = RecursiveLSTD(n, gamma=0.9, lmbda=0.6, alpha=0.3, variant="mixed")
    rows = random.normal(size=(n_steps + 1, n))
    for t in range(n_steps):
        model.update(rows[t], random.normal(), rows[t + 1], truncated=t % 20 == 19, discount=random.uniform())
        if t % 20 == 19:
            rows[t + 1] = random.normal(size=n)
    return model, random, rows[-1]


def through_file(model):
    file = io.BytesIO()
    np.savez(file, **model.snapshot())
    file.seek(0)
    with np.load(file, allow_pickle=False) as arrays:
        return RecursiveLSTD.restore(arrays)


COPIES = {
    "snapshot": lambda model: RecursiveLSTD.restore(model.snapshot()),
    "file": through_file,
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}


@pytest.mark.parametrize("n_steps", [0, 45])
def test_a_copy_goes_on_with_the_same_bits(n_steps):
    model, random, x = some_state(n_steps=n_steps)
    twins = {how: copied(model) for how, copied in COPIES.items()} | {"untouched": some_state(n_steps=n_steps)[0]}
    assert {*map(repr, twins.values())} == {repr(model)}
    rows = [x, *random.normal(size=(1100, 5))]
    for t in range(1100):
        for each in (model, *twins.values()):
            each.update(rows[t], 0.5, rows[t + 1])
    for how, twin in twins.items():
        for variant in VARIANTS:
            np.testing.assert_array_equal(twin.weights_for(variant), model.weights_for(variant), err_msg=how)
        for name, array in model.snapshot().items():
            np.testing.assert_array_equal(twin.snapshot()[name], array, err_msg=f"{how}: {name}")


@cache
def good():
    """A sound snapshot, made when a test asks for it: its kernel takes seconds to compile."""
    return some_state()[0].snapshot()


def broken(**changes):
    return {name: array for name, array in {**good(), **changes}.items() if array is not None}


class Damaged(dict):
    """What a file is whose entries cannot be read."""

    def __getitem__(self, name):
        raise ValueError("bad magic number")


def core(name, place, value):
    """Change an array of the recursion."""
    array = good()[f"cores.0.{name}"].copy()
    array[place] = value
    return broken(**{f"cores.0.{name}": array})


def document(**changes):
    return broken(document=np.array(json.dumps(json.loads(str(good()["document"])) | changes)))


BAD_SNAPSHOTS = {
    "none": lambda: None,
    "text": lambda: "snapshot",
    "empty": dict,
    "damaged": lambda: Damaged(good()),
    "later version": lambda: broken(version=np.array(99)),
    "no document": lambda: broken(document=None),
    "no state": lambda: broken(**{"cores.0.state": None}),
    "no recursions": lambda: document(cores=[]),
    "state of one dimension": lambda: broken(**{"cores.0.state": np.zeros(3)}),
    "objects": lambda: broken(**{"cores.0.state": good()["cores.0.state"].astype(object)}),
    "other buffer": lambda: broken(**{"cores.0.buffer": np.zeros((1, 3))}),
    "variant is a number": lambda: document(variant=1),
    **{f"count {k} is negative": lambda k=k: core("counts", k, -1) for k in range(at.N_COUNTS)},
    **{f"count {k} is large": lambda k=k: core("counts", k, 2**40) for k in range(at.AHEAD + 1)},
    "trace decay of 99": lambda: core("numbers", at.LMBDA, 99.0),
    "discount of 2": lambda: core("numbers", at.DECAY, 2.0),
    "discount of NaN": lambda: core("numbers", at.BOOTSTRAP, np.nan),
    "trace of NaN": lambda: core("state", (at.TRACE, 0), np.nan),
    "another rate of forgetting": lambda: core("numbers", at.FORGETTING, 0.5),
}


@pytest.mark.parametrize("snapshot", BAD_SNAPSHOTS.values(), ids=BAD_SNAPSHOTS)
def test_what_is_no_snapshot_is_refused(snapshot):
    with pytest.raises(InvalidInputError, match=r"`snapshot` must be a result of RecursiveLSTD\.snapshot; "):
        RecursiveLSTD.restore(snapshot())


@pytest.mark.parametrize(
    "snapshot",
    [
        lambda: document(gamma=2.0),
        lambda: broken(alpha=np.array([-1.0])),
        lambda: document(variant="plain"),
        lambda: document(check_every=0),
    ],
)
def test_parameters_of_a_snapshot_are_checked_as_arguments(snapshot):
    with pytest.raises(InvalidInputError, match=r"`(gamma|alpha|variant|check_every)` must be"):
        RecursiveLSTD.restore(snapshot())


# ---------------------------------------------------------------- arguments

ROW, NEXT = np.array([1.0, 0.5, -0.25]), np.array([0.0, 0.5, 2.0])
BAD_UPDATES = [
    ((np.array([1.0, 2.0]), 1.0, NEXT), {}, r"`x` must have shape \(3,\); got \(2,\)"),
    ((ROW, 1.0, np.zeros(4)), {}, r"`x_next` must have shape \(3,\)"),
    ((np.array([1.0, np.nan, 0.0]), 1.0, NEXT), {}, r"`x` must be finite; entry 1 is nan"),
    ((ROW, 1.0, np.array([1.0, 0.0, np.inf])), {}, r"`x_next` must be finite; entry 2 is inf"),
    ((ROW, np.nan, NEXT), {}, "`reward` must be"),
    ((ROW, "1", NEXT), {}, "`reward` must be a number; got '1'"),
    ((ROW, 1.0, None), {}, "`x_next` must be a row of 3 features unless the transition terminated"),
    ((ROW, 1.0, NEXT), {"discount": 1.5}, r"`discount` must be in \[0, 1\]; got 1.5"),
    ((ROW, 1.0, NEXT), {"importance_ratio": -0.5}, "`importance_ratio` must be in"),
    ((ROW, 1.0, NEXT), {"terminated": "no"}, "`terminated` must be True or False; got 'no'"),
    ((np.array(["a", "b", "c"]), 1.0, NEXT), {}, "`x` must be an array of real numbers"),
    ((([0, 3], [1.0, 1.0]), 1.0, NEXT), {}, r"`x\[0\]`, the indices, must be in \[0, 3\); got 3"),
    (((np.array([0, 3]), np.ones(2)), 1.0, (np.array([0]), np.ones(1))), {}, "the indices, must be in"),
    (((np.array([0]), np.array([np.nan])), 1.0, (np.array([0]), np.ones(1))), {}, r"`x\[1\]` must be finite"),
    ((([0.5], [1.0]), 1.0, NEXT), {}, "the indices, must be a vector of integers"),
    ((([0], [1.0, 2.0]), 1.0, NEXT), {}, r"`x\[1\]` must have shape"),
    ((sparse.csr_array(np.ones((1, 4))), 1.0, NEXT), {}, "must be one row of 3 features"),
]  # fmt: skip
MODELS = {
    "lstd": lambda: RecursiveLSTD(3, gamma=0.9),
    "td": lambda: TD(3, gamma=0.9),
    "true online": lambda: TrueOnlineTD(3, gamma=0.9),
}


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize(("arguments", "options", "message"), BAD_UPDATES)
def test_bad_input_changes_nothing(make, arguments, options, message):
    model, other = make(), make()
    for each in (model, other):
        each.update(NEXT, 1.0, ROW)
    with pytest.raises(InvalidInputError, match=message):
        model.update(*arguments, **options)
    assert model.n_updates == 1
    for each in (model, other):
        each.update(ROW, 2.0, NEXT)
        each.update(NEXT, 2.0, ROW)
    np.testing.assert_array_equal(model.weights, other.weights)


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_numbers_of_other_types_are_taken(make):
    one, two = make(), make()
    one.update(ROW, 1.0, NEXT, discount=1.0, terminated=True)
    one.update(ROW, 2.0, NEXT, discount=1.0)
    two.update(ROW.astype(np.float32), np.int64(1), None, discount=1, importance_ratio=1, terminated=np.True_)
    two.update(ROW, np.float32(2.0), NEXT.tolist(), discount=np.float64(1.0), terminated=np.False_)
    np.testing.assert_array_equal(one.weights, two.weights)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RecursiveLSTD(0), "`n_features` must be at least 1"),
        (lambda: RecursiveLSTD(2, gamma=1.1), r"`gamma` must be in \[0, 1\]"),
        (lambda: RecursiveLSTD(2, alpha=0.0), r"`alpha` must be in \(0, ∞\)"),
        (lambda: RecursiveLSTD(2, alpha=[1.0]), "`alpha` must be one number, or one for each of the 2 .* got 1 numb"),
        (lambda: RecursiveLSTD(2, alpha=[1.0, -1.0]), r"`alpha\[1\]` must be in \[0, ∞\); got -1"),
        (lambda: RecursiveLSTD(2).update([1, 0], 1.0, [0, 1], weight=-1.0), r"`weight` must be in \[0, ∞\); got -1"),
        (lambda: RecursiveLSTD(2).update([1, 0], 1.0, [0, 1], trace_coefficient=np.nan), "`trace_coefficient` must be"),
        (lambda: RecursiveLSTD(2, variant="plain"), "`variant` must be one of"),
        (lambda: RecursiveLSTD(2, check_every=0), "`check_every` must be at least 1"),
        (lambda: TD(2, trace="dutch"), "`trace` must be one of"),
        (lambda: TD(2, step_size=0.0), r"`step_size` must be in \(0, ∞\)"),
        (lambda: TrueOnlineTD(2).update([1, 0], 1.0, [0, 1], importance_ratio=2.0), "`importance_ratio` must be 1"),
        (lambda: RecursiveLSTD(2).predict([[1.0]]), "`x` must have 2 features"),
        (lambda: RecursiveLSTD(2).predict([np.nan, 1.0]), "`x` must be finite"),
        (lambda: TD(2).partial_fit(np.ones((3, 2)), np.ones((3, 2))), "`y` must hold one reward per row"),
        (lambda: TD(2).partial_fit(np.ones((3, 2)), [1.0, np.nan, 1.0]), "`y` must be finite"),
    ],
)
def test_bad_parameters(make, message):
    with pytest.raises(InvalidInputError, match=message):
        make()


def test_features_without_a_penalty():
    """Weights are those of the sums from the first update on; the recursion goes on once they are determined."""
    random = np.random.default_rng(0)
    X, y, alpha = random.normal(size=(201, 3)), random.normal(size=201), np.array([0.0, 2.0, 0.0])
    model = RecursiveLSTD(3, gamma=0.9, lmbda=0.5, alpha=alpha)
    copy = RecursiveLSTD.restore(model.snapshot())
    for t in range(200):
        step = Transition(X[t], y[t], X[t + 1], False, False, 0.9, 1.0)
        with quiet():
            step.feed(model)
            step.feed(copy)
            found = model.weights
        if t in (5, 20, 199):
            A, b = naive.matrix_boyan(X[: t + 2], 0.5, 0.9), naive.vector_b(X[: t + 2], y[: t + 1], 0.5, 0.9)
            assert_close(found, np.linalg.solve(A + np.diag(alpha), b), "solve")
    assert copy.weights.tolist() == found.tolist()


def test_predict():
    model, _, _ = some_state()
    X = np.random.RandomState(1).normal(size=(4, 5))
    expected = X @ model.weights
    assert_close(model.predict(X), expected, "sums")
    assert_close(model.predict(sparse.csr_array(X)), expected, "sums")
    assert isinstance(model.predict(X[0]), float)
    assert_close(model.predict(X[0]), expected[0], "sums")
    assert_close(model.predict(entries(X[0])), expected[0], "sums")


@pytest.mark.parametrize("model", [RecursiveLSTD(2), TD(2), lstd.HorizonLSTD(2, n_blocks=0)])
def test_a_feature_without_a_value_is_named_by_its_column(model):
    frame = pytest.importorskip("pandas").DataFrame(np.eye(2), columns=["a", "b"])
    model.partial_fit(frame, [1.0, 0.0])
    frame.loc[1, "b"] = np.nan
    with pytest.raises(InvalidInputError, match="row 1 has nan in column 'b'"):
        model.predict(frame)


@pytest.mark.parametrize("lmbda", [0.0, 0.9])
def test_without_a_future_it_is_recursive_least_squares(lmbda):
    """With γ = 0 and α → 0, the weights after each step are those of least squares of the rewards so far."""
    random = np.random.default_rng(0)
    X = np.column_stack([np.ones(60), random.normal(size=(60, 2))])
    y = X @ [2.0, 1.0, -1.0] + random.normal(size=60)
    model = RecursiveLSTD(3, gamma=0.0, lmbda=lmbda, alpha=1e-10)
    for t in range(60):
        model.update(X[t], y[t], random.normal(size=3))  # the next row makes no difference
        if t >= 6:
            assert_close(model.weights, np.linalg.lstsq(X[: t + 1], y[: t + 1], rcond=None)[0], "solve")
