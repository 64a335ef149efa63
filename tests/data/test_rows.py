"""The data contract: what is refused, in which words, and what is made of what is accepted."""

import re
import warnings
from dataclasses import MISSING, fields

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import sparse

from lstd import LSTD, TD, LSTDStatistics, fit_tables
from lstd.data import rows as rows_module
from lstd.data.check_rows import check_rows
from lstd.data.doubts import warn_of_breaks
from lstd.data.feature_arrays import check_features
from lstd.data.rows import COLUMNS, Column, ReadOnly, Record, Rows
from lstd.errors import BrokenEpisodeWarning, InvalidInputError, LSTDError, MissingTerminationWarning

NAN, INF = float("nan"), float("inf")
X, y = np.arange(8.0).reshape(4, 2), np.arange(4.0)
NO_ENDS = [False] * 4
TWO = {"episode": [1, 1, 2, 2], "terminated": [False, True, False, False]}


def check(X=X, y=y, **columns):
    return check_rows(X, y, gamma=0.9, **columns)


def with_value(array, where, value):
    changed = np.array(array, dtype=float)
    changed[where] = value
    return changed


LISTS = np.empty(4, dtype=object)  # of ids that have no hash
LISTS[:] = [[1], [1], [2], [2]]

DATED = pd.DataFrame({"x": [1.0] * 4, "day": pd.Timestamp("2024-01-31")})
POLARS = object()  # stands for the same frame of Polars
LAZY = pl.LazyFrame({"x": [1.0] * 4})

# Arguments, then what the message must say: the argument and the rule, the value and its first bad row, the remedy.
REFUSED = [
    ({"X": y}, r"`X` must have shape \(n_rows, n_features\); got \(4,\). Reshape your data with X.reshape"),
    (
        {"X": [["a", "b"]] * 4},
        "`X` must be an array of real numbers; row 0 of column 0 has 'a', which is not a number; correct",
    ),
    ({"X": [[1.0], [1.0, 2.0], [1.0], [1.0]]}, "`X` must be an array of real numbers; .* lists of different lengths"),
    (
        {"X": DATED},
        "`X` must be an array of real numbers; row 0 of column 'day' is of type .* convert it to numbers, such as days",
    ),
    (
        {"X": POLARS},
        "row 0 of column 'day' is of type timestamp.* convert it to numbers, such as days since a fixed date",
    ),
    (
        {"X": pa.Table.from_pandas(DATED)},
        "row 0 of column 'day' is of type timestamp.* convert it to numbers, such as days",
    ),
    (
        {"X": DATED.assign(day="x")},
        "`X` must be .*; row 0 of column 'day' has 'x', which is not a number; correct it, or encode",
    ),
    ({"X": X * 1j}, "`X` must be an array of real numbers; row 0 is of type complex128.* Complex data not supported"),
    ({"X": with_value(X, (2, 1), NAN)}, "`X` must be finite.*; row 2 has nan in column 1. Impute such values"),
    ({"X": sparse.csr_array(with_value(X, (2, 1), NAN))}, "`X` must be finite.*; row 2 has nan in column 1"),
    ({"X_next": with_value(X, (3, 0), INF)}, "`X_next` must be finite.*; row 3 has inf in column 0"),
    ({"X_next": X[:3]}, r"`X_next` must have the shape of `X`, \(4, 2\); got \(3, 2\)"),
    ({"y": y[:3]}, r"`y` must have one reward per row of `X`, shape \(4,\) or \(4, n_rewards\); got \(3,\)"),
    ({"y": np.empty((4, 0))}, r"`y` must have one reward per row .*; got \(4, 0\)"),
    (
        {"y": with_value(y, 1, NAN)},
        "`y` must be finite on every row but the last one .*; row 1 has no value .* If its episode was cut off",
    ),
    ({"y": with_value(y, 3, INF)}, "`y` must be finite .*; row 3 has inf"),
    (
        {"y": with_value(y, 3, NAN), "X_next": X},
        "`y` must be finite, since every row is a transition.*; row 3 has no value",
    ),
    ({"y": [[0, 1], [0, NAN], [0, 0], [0, 0]]}, r"`y` must be finite .*; row 1 has no value"),
    ({"episode": [1, 1, 2]}, r"`episode` must have one id per row of `X`, shape \(4,\); got \(3,\)"),
    ({"episode": [1, 2, 2, 1]}, "`episode` must be contiguous; at row 3, id 1 reappears after other episodes"),
    (
        {"episode": ["a", "a", "b", "b"], "terminated": [1, 0, 0, 1]},
        "`terminated` may be true only on the last row .*; row 0 is followed .* same episode, 'a'. .* likely cause",
    ),
    (
        {"episode": [1.0, 1.0, NAN, 2.0]},
        "`episode` must have an id on every row; row 2 has no value .* every row needs an id",
    ),
    ({"episode": np.array(["a", "a", None, "b"])}, "`episode` must have an id on every row; row 2 has no value"),
    (
        {"episode": np.array(["a", NAN, "b", "b"], dtype=object)},
        "`episode` must have an id on every row; row 1 has no value",
    ),
    (
        {"episode": np.array(["2024", "NaT", "NaT", "2025"], "M8[D]")},
        "`episode` must have an id .*; row 1 has no value",
    ),
    ({"episode": LAZY}, r"`episode` must hold values; got a LazyFrame. Call its `collect\(\)` first"),
    ({"X": LAZY}, r"`X` must hold values; got a LazyFrame. Call its `collect\(\)` first"),
    (
        {"terminated": ["no", "maybe"] * 2},
        "`terminated` must hold True and False; row 1 has 'maybe', which is neither 0 nor 1, true nor false, yes nor",
    ),
    ({"terminated": [0, 2, 0, 1]}, "`terminated` must hold True and False; row 1 has 2, which is neither 0 nor 1"),
    (
        {"terminated": [0.0, NAN, 0.0, 1.0]},
        "`terminated` must hold True and False; row 1 has no value .* fill in 0 or 1",
    ),
    (
        {"terminated": [True, False, False, False], "episode": [7, 7, 8, 8]},
        "`terminated` may be true only on the last row of an episode; row 0 is followed .* another id",
    ),
    ({"discount": [1.0] * 3}, r"`discount` must have one value per row of `X`, shape \(4,\); got \(3,\)"),
    ({"discount": [1.0, 1.5, 0.0, 0.0]}, r"`discount` must be in \[0, 1\]; row 1 has 1.5. Correct it"),
    ({"discount": [1.0, 1.0, NAN, 0.0]}, r"`discount` must be finite on every row but .*; row 2 has no value"),
    ({"discount": 2.0}, r"`discount` must be in \[0, 1\]; got 2"),
    ({"importance_ratio": [1.0, -0.5, 0.0, 0.0]}, "`importance_ratio` must be finite and at least 0; row 1 has -0.5"),
    ({"importance_ratio": [1.0, 1.0, 1.0, INF]}, "`importance_ratio` must be finite and at least 0; row 3 has inf"),
    ({"X": np.empty((4, 0))}, r"`X` must have at least one feature; got 0 feature.*\(4, 0\)"),
    (
        {"episode": LISTS},
        r"`episode` must have an id on every row; row 0 is of type list, which cannot be an id; convert",
    ),
    ({"episode": [[1], [1, 2], [1], [1]]}, "`episode` must have an id on every row; row 0 is of type list"),
    (
        {"terminated": [[1], [1, 2], [1], [1]]},
        "`terminated` must hold True and False; its entries are lists of different lengths",
    ),
]


@pytest.mark.parametrize(("arguments", "message"), REFUSED)
def test_bad_input_is_refused(arguments, message):
    if arguments.get("X") is POLARS:  # made here, since threads of Polars do not survive the fork after the collection
        arguments = {"X": pl.from_pandas(DATED)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MissingTerminationWarning)
        with pytest.raises(InvalidInputError, match=message) as one:
            check(**arguments)
        with pytest.raises(InvalidInputError, match=message) as two:  # where the sums are what shows NaN and inf
            LSTDStatistics.from_arrays(**{"X": X, "y": y, "gamma": 0.9, "lmbda": 0.5, **arguments})
    assert str(one.value) == str(two.value)
    assert isinstance(one.value, LSTDError)
    assert isinstance(one.value, ValueError)


@pytest.mark.parametrize("source", [LAZY, [LAZY], [lambda: LAZY]])
def test_lazy_tables_are_refused_with_a_remedy(source):
    with pytest.raises(InvalidInputError, match=r"must hold values; got a LazyFrame. Call its `collect\(\)` first"):
        fit_tables(source, features="x", reward="x", gamma=0.9)


@pytest.mark.parametrize("value", [NAN, INF, 1e300])
@pytest.mark.parametrize("as_given", [np.asarray, sparse.csr_array])
def test_features_of_terminal_successors_are_not_used(value, as_given):
    random = np.random.default_rng(0)
    X, X_next, y, X_test = *random.normal(size=(2, 6, 2)), random.normal(size=6), random.normal(size=(3, 2))
    ends = np.array([False, True, False, False, False, True])
    columns = {"episode": [0, 0, 1, 2, 3, 3], "terminated": ends, "importance_ratio": random.uniform(size=6)}
    unknown = np.where(ends[:, np.newaxis], value, X_next)
    fits = []
    for successors in (X_next, unknown):
        columns["X_next"] = as_given(successors)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", BrokenEpisodeWarning)
            models = [LSTD(variant=name).fit(as_given(X), y, **columns) for name in ("boyan", "mixed", "uncorrected")]
            parts = LSTD()
            for rows in (slice(2), slice(2, 6)):
                parts.partial_fit(as_given(X)[rows], y[rows], **{name: of[rows] for name, of in columns.items()})
            online = TD(2).partial_fit(as_given(X), y, **columns)
        fits.append(np.concatenate([model.predict(X_test) for model in (*models, parts, online)]))
    np.testing.assert_array_equal(*fits)
    assert np.isnan(unknown).any() == np.isnan(value), "`X_next` is not written to"


def test_what_is_made_of_two_episodes():
    rows = check(y=[0.0, 1.0, 2.0, NAN], **TWO)
    assert len(rows) == 4
    assert rows.n_features == 2
    assert rows.last.tolist() == [False, True, False, True]
    assert rows.terminated.tolist() == [False, True, False, False]
    assert rows.discount.tolist() == [0.9, 0.0, 0.9, 0.9]
    assert rows.importance_ratio.tolist() == [1.0] * 4
    assert rows.y.tolist() == [[0.0], [1.0], [2.0], [0.0]]
    assert rows.known.tolist() == [True] * 3 + [False]
    assert (rows.first_episode, rows.last_episode, rows.single) == (1, 2, True)


def test_a_discount_or_ratio_may_be_one_number():
    rows = check(discount=0.5, importance_ratio=2, terminated=[False] * 3 + [True])
    assert rows.discount.tolist() == [0.5, 0.5, 0.5, 0.0]
    assert rows.importance_ratio.tolist() == [2.0] * 4


def test_no_rows():
    rows = check(np.empty((0, 2)), np.empty(0), episode=[], terminated=np.empty(0, dtype=bool))
    assert len(rows) == 0
    assert rows.first_episode is None


def test_features_are_not_copied_and_stay_as_they_are():
    dense = np.ones((3, 2))
    assert check_features("X", dense) is dense
    unsorted = sparse.csr_array((np.array([1.0, 2.0, 3.0]), np.array([1, 0, 0]), np.array([0, 3])), shape=(1, 2))
    kept = [unsorted.data.copy(), unsorted.indices.copy(), unsorted.indptr.copy()]
    for array in (unsorted.data, unsorted.indices, unsorted.indptr):
        array.flags.writeable = False
    assert check_features("X", unsorted).toarray().tolist() == [[5.0, 1.0]]
    for before, after in zip(kept, (unsorted.data, unsorted.indices, unsorted.indptr), strict=True):
        np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "lil", "dok", "bsr"])
def test_any_sparse_form_becomes_rows(form):
    np.testing.assert_array_equal(check_features("X", sparse.csr_array(X).asformat(form)).toarray(), X)


@pytest.mark.parametrize("columns", [{}, {"episode": [1, 1, 2, 2], "X_next": X}, TWO, {"terminated": NO_ENDS}])
def test_no_warning_where_nothing_is_assumed(columns):
    check(**columns)


@pytest.mark.parametrize("name", ["X", "y", "X_next", "episode", "terminated", "discount", "importance_ratio"])
def test_masked_entries_are_refused(name):
    data = {"X": np.ones((3, 1)), "y": np.ones(3), "X_next": np.ones((3, 1)), "episode": np.ones(3)}
    data |= {"terminated": np.arange(3) == 2, "discount": np.ones(3), "importance_ratio": np.ones(3)}
    hidden = np.zeros(np.shape(data[name]), dtype=bool)
    data[name] = np.ma.array(data[name], mask=hidden)
    assert len(check_rows(**data, gamma=0.9)) == 3  # nothing is hidden
    data[name][1] = np.ma.masked
    with pytest.raises(InvalidInputError, match=f"^`{name}` must not have masked entries"):
        check_rows(**data, gamma=0.9)


# ---------------------------------------------------------------- rows that are not the successors of those before

FEATURES = np.random.default_rng(0).normal(size=(9, 3))


def breaks(rows, lmbda=0.5, before=None):
    """Row that the warning names; None without one."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        told = warn_of_breaks(rows, lmbda, before)
    assert told == bool(caught)
    assert all(w.category is BrokenEpisodeWarning for w in caught)
    return int(re.match(r"Row (\d+) of `X` is not the successor", str(caught[0].message))[1]) if caught else None


def transitions(order=range(8), form=np.asarray, **columns):
    X, X_next = FEATURES[:-1][order], FEATURES[1:][order]
    return check_rows(form(X), np.zeros(len(X)), gamma=0.9, X_next=form(X_next), **columns)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("compared", [1, 2**17])
def test_the_first_break_is_told(form, compared, monkeypatch):
    monkeypatch.setattr(rows_module, "ENTRIES_COMPARED", compared)
    assert breaks(transitions(form=form)) is None
    assert breaks(transitions([0, 1, 2, 4, 5, 7], form=form)) == 3
    assert breaks(transitions([3, 0, 1], form=form)) == 1
    assert breaks(transitions([0, 1, 2, 4], form=form), lmbda=0.0) is None
    assert breaks(transitions([0, 1, 2, 4], form=form, terminated=[False, False, True, False])) is None
    assert breaks(transitions([0, 1, 2, 4], form=form, episode=[7, 7, 7, 8])) is None
    assert breaks(transitions([0, 1, 2, 4], form=form, episode=[7, 7, 8, 8])) == 3
    assert breaks(transitions([], form=form)) is None
    assert breaks(transitions([2, 3], form=form), before=FEATURES[2]) is None
    assert breaks(transitions([2, 3], form=form), before=FEATURES[1]) == 0


def told(**columns):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_of_breaks(transitions([0, 2, 4], episode=[7, 7, 7], **columns), 0.5)
    return " ".join(str(warning.message) for warning in caught)


def test_the_remedy_for_expected_successors():
    """Traces need coefficients; ratios beside expected successors would count the target policy twice."""
    assert "pass `trace_coefficient`, such as min(1, ratio), in place of any `importance_ratio`, or use" in told()
    assert "pass `trace_coefficient`" in told(importance_ratio=[2.0, 1.0, 1.0])
    assert not told(trace_coefficient=[0.5, 1.0, 0.0])
    both = told(trace_coefficient=[0.5, 1.0, 0.0], importance_ratio=[2.0, 1.0, 1.0])
    assert "leave the ratio out: it would count that policy twice" in both
    one_step = transitions([0, 2, 4], episode=[7, 7, 7], importance_ratio=[2.0, 1.0, 1.0])
    assert breaks(one_step, lmbda=0.0) == 1
    assert breaks(transitions([0, 2, 4], importance_ratio=[2.0, 1.0, 1.0]), lmbda=0.0) is None  # not known to be rows
    assert breaks(transitions(episode=[7] * 8, importance_ratio=[2.0] * 8), lmbda=0.0) is None


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_ratios_beside_mixed_successors_are_told_without_episodes(form):
    """One-hot pairs, and successors that a policy expects: more entries than any row has."""
    random = np.random.default_rng(0)
    pairs, policy = np.eye(6)[random.integers(6, size=60)], random.dirichlet(np.ones(6), size=60)

    def mixed(after, **columns):
        rows = check_rows(form(pairs), np.zeros(60), gamma=0.9, X_next=form(after), **columns)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            return warn_of_breaks(rows, 0.0) and "Most rows of `X_next` .* leave the ratio out", caught

    ratios = {"importance_ratio": random.uniform(0.5, 2.0, 60)}
    pattern, caught = mixed(policy, **ratios)
    assert re.match(pattern, str(caught[0].message))
    assert mixed(policy, **ratios | {"terminated": np.arange(60) > 30})[0]
    for after, columns in (
        (policy, {}), (pairs[::-1], ratios), (policy, ratios | {"terminated": np.arange(60) > 9}),
    ):  # fmt: skip
        assert mixed(after, **columns) == (False, [])


def test_rounding_is_no_break():
    X_next = FEATURES[1:] * (1.0 + 1e-12)
    assert breaks(check_rows(FEATURES[:-1], np.zeros(8), gamma=0.9, X_next=X_next)) is None
    assert breaks(check_rows(FEATURES, np.zeros(9), gamma=0.9)) is None


def test_an_unknown_discount_of_a_horizon_row_is_no_other_discount():
    assert not check(episode=[1] * 4, terminated=NO_ENDS, discount=[0.9, 0.9, 0.9, NAN]).own_discounts
    assert check(episode=[1] * 4, terminated=NO_ENDS, discount=[0.9, 0.8, 0.9, NAN]).own_discounts


def subclasses(cls):
    return {cls, *(one for child in cls.__subclasses__() for one in subclasses(child))}


@pytest.mark.parametrize("cls", sorted(subclasses(Record) - {Record, ReadOnly}, key=lambda cls: cls.__name__))
def test_a_record_made_of_its_values_has_the_defaults_that_the_initialiser_gives(cls):
    """Among them those that a function makes, anew for each record."""
    given = [field for field in fields(cls) if field.default is MISSING and field.default_factory is MISSING]
    values = {field.name: None for field in given}
    one, two = cls.of(**values), cls.of(**values)
    for field in fields(cls):
        assert field.name in vars(one)
        if field.default_factory is not MISSING:
            assert type(getattr(one, field.name)) is type(field.default_factory())
            assert getattr(one, field.name) is not getattr(two, field.name)
        elif field.default is not MISSING:
            assert getattr(one, field.name) == field.default


@pytest.mark.parametrize("name", COLUMNS)
def test_a_missing_number_has_the_usual_value_of_its_column(name, monkeypatch):
    if name != "discount":
        monkeypatch.setitem(COLUMNS, name, Column(usual=0.25))
    usual = {"discount": 0.9}.get(name, 0.25)
    rows = check(**{name: [0.5, 0.5, 0.5, NAN], "terminated": NO_ENDS})
    assert isinstance(rows, Rows)
    np.testing.assert_array_equal(getattr(rows, name), [0.5, 0.5, 0.5, usual])
    np.testing.assert_array_equal(rows.known, [True, True, True, False])
