"""Statistics and models in files: exact, typed, checked as a whole, never half written."""

import copy
import io
import json
import os
import re
import subprocess
import sys
import zipfile
from dataclasses import fields, replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

import lstd
from lstd import LSTD, LSTDCV, HorizonLSTD, LSTDStatistics
from lstd import files as archive_module
from lstd.data.rows import COLUMNS
from lstd.data.settings import Settings
from lstd.errors import InvalidInputError, OutputError
from lstd.estimators.model import Model, read_model, write_model
from lstd.estimators.model_parts import Origin, Selection, Solved
from lstd.report import write_fit_report
from lstd.statistics.blocks import Blocks
from lstd.statistics.counts import About
from lstd.statistics.solve import Outcome, Solution
from tolerances import assert_close

pytestmark = pytest.mark.filterwarnings("ignore::lstd.errors.BrokenEpisodeWarning")  # successors are drawn at random


def statistics(n_rows=20, *, n=3, m=None, episode=None, terminated=None, X_next=False, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, n))
    y = rng.normal(size=n_rows if m is None else (n_rows, m))
    return LSTDStatistics.from_arrays(
        X, y, gamma=0.9, lmbda=0.8, episode=episode, X_next=rng.normal(size=(n_rows, n)) if X_next else None,
        terminated=np.zeros(n_rows, bool) if terminated is None else terminated,
    )  # fmt: skip


def model(**options):
    about = About(("a", "b,c", "é"), True, frozenset({"Monday", "ü"}))
    s = statistics(n=4, **options)
    s = replace(s, about=about, counts=replace(s.counts, unused=3))
    weights = s.solve(1.0).weights.reshape(4, -1)
    results = {name: np.array([value]) for name, value in (("lmbda", 0.8), ("mean_test_score", np.nan))}
    results |= {"observed_share": np.array([0.5]), "rank_test_score": np.array([1])}
    return Model(
        Blocks(s, 0, reason="It was fitted to too little data."), Settings(0.9, 0.8, 1.0, "boyan", True),
        rewards=tuple(f"r{j}" for j in range(weights.shape[1])),
        origin=Origin(("x.csv", "y.parquet"), 20, 19, 1, "2020-01-01T00:00:00+00:00", "0.1.0", {"episode": "id"}),
        selection=Selection(0.8, 1.0, 0.5, 10, 20, results), options={"n_blocks": 0, "lmbdas": [0.8]},
        known=Solved(Solution(weights, np.inf, Outcome.LIMIT), None, "It was fitted to too little data."),
        is_reported=True, ridge_at=s.n_transitions,
    )  # fmt: skip


def assert_identical(one, two):
    """Equal to the last bit, types included."""
    assert type(one) is type(two)
    if hasattr(one, "__dataclass_fields__"):
        for field in fields(one):
            assert_identical(getattr(one, field.name), getattr(two, field.name))
    elif isinstance(one, dict):
        assert one.keys() == two.keys()
        for name in one:
            assert_identical(one[name], two[name])
    elif isinstance(one, np.ndarray) and one.dtype == object:
        assert_identical(one.tolist(), two.tolist())
    elif isinstance(one, np.ndarray):
        assert one.dtype == two.dtype
        assert one.shape == two.shape
        assert one.tobytes() == two.tobytes()
    else:
        assert one == two


def reseal(path, change):
    """Rewrite a file with its document or entries changed, under a checksum that is right."""
    with zipfile.ZipFile(path) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    document = json.loads(entries["document.json"])
    changed = change(document, entries)
    entries["document.json"] = json.dumps(document if changed is None else changed).encode()
    with open(path, "w+b") as file:
        with zipfile.ZipFile(file, "w") as archive:
            for name, content in entries.items():
                archive.writestr(name, content)
        archive_module.seal(file)


# What is written is read


@settings(max_examples=40, deadline=None)
@given(
    n_rows=st.integers(0, 6),
    n=st.integers(1, 3),
    m=st.sampled_from([None, 1, 2]),
    X_next=st.booleans(),
    ends=st.booleans(),
    name=st.sampled_from([None, 3, -(2**63), "text a", "text \ud800", "number 2.5", "text ü\nü"]),
)
def test_statistics_come_back_to_the_last_bit(tmp_path_factory, n_rows, n, m, X_next, ends, name):
    path = tmp_path_factory.getbasetemp() / "statistics"
    terminated = np.arange(n_rows) == n_rows - 1 if ends else None
    saved = statistics(n_rows, n=n, m=m, X_next=X_next, terminated=terminated)
    saved = saved.named(name, name)
    saved.save(path)
    assert_identical(LSTDStatistics.load(path), saved)


@pytest.mark.parametrize("m", [None, 2])
def test_model_comes_back_to_the_last_bit(tmp_path, m):
    for origin in (model(m=m).origin, None):
        saved = model(m=m).changed(origin=origin)
        write_model(saved, tmp_path / "m")
        assert_identical(read_model(str(tmp_path / "m")), saved)


# Estimators


def stream(m=None, n_rows=60):
    rng = np.random.default_rng(0)
    return rng.normal(size=(n_rows, 3)), rng.normal(size=n_rows if m is None else (n_rows, m))


def assert_predicts_the_same(found, fitted, X):
    assert_array_equal(found.predict(X), fitted.predict(X))
    assert_array_equal(found.predict(X, return_std=True), fitted.predict(X, return_std=True))
    assert_identical(found.predict_interval(X, 0.9), fitted.predict_interval(X, 0.9))
    for name in ("coef_", "intercept_", "condition_number_", "n_features_in_", "n_transitions_", "n_episodes_"):
        assert_identical(getattr(found, name), getattr(fitted, name))
    assert_identical(found.statistics_, fitted.statistics_)
    assert repr(found.get_params()) == repr(fitted.get_params())


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("m", [None, 1, 2])
def test_an_lstd_comes_back_and_goes_on(tmp_path, fit_intercept, m):
    X, y = stream(m)
    fitted = LSTD(0.5, 0.3, 2.0, "mixed", fit_intercept, n_blocks=30).fit(X, y)
    fitted.save(tmp_path / "m")
    for found in (LSTD.load(tmp_path / "m"), lstd.load(str(tmp_path / "m"))):
        assert type(found) is LSTD
        assert_predicts_the_same(found, fitted, X)
        assert not hasattr(found, "feature_names_in_")
    found.partial_fit(X, y)
    assert_close(found.coef_, fitted.partial_fit(X, y).coef_, "solve")  # summed in other blocks
    with pytest.raises(InvalidInputError, match=r"files do not keep: this model was loaded and fitted further"):
        found.predict_interval(X)
    assert read_model(tmp_path / "m").reward_names == (("reward_0", "reward_1") if m == 2 else ("reward",))


def test_an_lstdcv_keeps_its_choice(tmp_path):
    X, y = stream()
    fitted = LSTDCV(0.5, lmbdas=[0.0, 0.5], alphas=np.array([1.0, 4.0]), cv=4, fit_intercept=True).fit(X, y)
    fitted.save(tmp_path / "m")
    for found in (LSTDCV.load(tmp_path / "m"), lstd.load(tmp_path / "m")):
        assert type(found) is LSTDCV
        assert_array_equal(found.alphas, fitted.alphas)
        assert_predicts_the_same(found, fitted.set_params(alphas=[1.0, 4.0]), X)
        for name in ("lmbda_", "alpha_", "best_score_", "observed_share_", "n_folds_"):
            assert_identical(getattr(found, name), getattr(fitted, name))
        assert found.cv_results_.keys() == fitted.cv_results_.keys()
        for name, values in fitted.cv_results_.items():
            assert_identical(found.cv_results_[name], values)
    with pytest.raises(InvalidInputError, match=r"m must hold an LSTD; it holds an LSTDCV\. Load it with `lstd.load`"):
        LSTD.load(tmp_path / "m")


def test_names_are_kept_and_asked_for(tmp_path):
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(9, 2)), columns=["a", "b"])
    fitted = LSTD(n_blocks=0).fit(frame, np.arange(9.0))
    fitted.save(tmp_path / "m")
    found = LSTD.load(tmp_path / "m")
    assert_array_equal(found.feature_names_in_, ["a", "b"])
    assert_array_equal(found.predict(frame), fitted.predict(frame))
    assert_array_equal(found.predict(frame[["b", "a"]]), fitted.predict(frame))
    with pytest.raises(InvalidInputError, match="'b' is missing"):
        found.predict(frame[["a"]])
    with pytest.raises(InvalidInputError, match="`n_blocks` of at least 10; the model was fitted with 0"):
        found.predict_interval(frame)


def test_a_model_predicts_without_scikit_learn(tmp_path):
    X, y = stream()
    fitted = LSTD().fit(X, y)
    fitted.save(tmp_path / "m")
    code = (
        "import sys, numpy as np; from lstd.estimators.model import read_model; model = read_model(sys.argv[1]);"
        "print(model.predict(np.ones((1, 3))).tolist(), model.interval(np.ones((1, 3)), 0.9).lower.tolist());"
        "assert 'sklearn' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "m"], check=True, capture_output=True, text=True)
    expected = fitted.predict_interval(np.ones((1, 3)), 0.9)
    assert done.stdout == f"{expected.prediction.tolist()} {expected.lower.tolist()}\n"


def test_existing_file_is_replaced_and_a_link_stays(tmp_path):
    (tmp_path / "s").write_text("old")
    (tmp_path / "link").symlink_to("s")
    statistics().save(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert LSTDStatistics.load(tmp_path / "s").n_rows == 20
    assert {file.name for file in tmp_path.iterdir()} == {"s", "link"}


# What is damaged is refused

A = "statistics.sums.npy"


def test_another_version_is_refused_with_the_remedy(tmp_path):
    path = tmp_path / "m"
    write_model(model(), path)
    now = archive_module.VERSION
    for version, remedy in ((now + 1, "update lstd"), (now - 1, "make it again")):
        reseal(path, lambda document, entries: {**document, "version": version, "settings": "another"})  # noqa: B023
        with pytest.raises(
            InvalidInputError, match=rf"m is of format version {version}, and .* version {now} only; {remedy}"
        ):
            read_model(path)


def places(content, place=()):
    """Yield where the values of a document are."""
    items = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for key, value in items:
        yield (*place, key)
        yield from places(value, (*place, key))


def test_a_file_from_before_a_column_was_added_has_its_usual_value(tmp_path):
    """Each column of the contract was added at some time: files without it load, and go on as before."""
    X, y = stream(2)
    path = tmp_path / "m"
    expected = LSTD(0.9, n_blocks=0).partial_fit(X, y)
    for name, column in COLUMNS.items():
        expected.save(path)
        added = column.usual is not None  # the discount was there from the beginning

        def without(document, entries):
            for row in ("first", "last"):
                del document["statistics"][row]["numbers"][name]  # noqa: B023
                del entries[f"statistics.{row}.numbers.{name}.npy"]  # noqa: B023

        reseal(path, without)
        assert_array_equal(lstd.load(path).partial_fit(X, y).coef_, copy.deepcopy(expected).partial_fit(X, y).coef_)
        row = LSTD.load(path).statistics_.last
        assert added is False or getattr(row, name)[0] == column.usual


def test_files_of_another_layout_are_refused_with_the_rule_and_the_remedy(tmp_path):
    """Without any one entry of the document, or with a column more, a file is refused or loads as it was."""
    X, y = stream(2)
    path = tmp_path / "m"
    model = LSTD(0.9, n_blocks=10).fit(X, y)
    model.save(path)
    sound = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        document = json.loads(archive.read("document.json"))
    inner = [place for place in places(document) if place[0] not in ("format", "version")]
    inner = [place for place in inner if isinstance(place[-1], str)]
    n_refused = 0

    def is_refused(change):
        path.write_bytes(sound)
        reseal(path, change)
        message = ""
        try:
            found = lstd.load(path)
        except InvalidInputError as error:
            message = str(error)
        if not message:
            assert_array_equal(found.predict(X), model.predict(X))
            return False
        assert re.search(r"m does not hold .* in the form that this version reads\. .*make it again", message)
        return True

    for *folder, name in inner:

        def without(document, entries):
            for key in folder:  # noqa: B023
                document = document[key]
            del document[name]  # noqa: B023

        n_refused += is_refused(without)
    assert n_refused > 0.7 * len(inner)

    def with_another_column(document, entries):
        document["statistics"]["last"]["numbers"]["offset"] = [1]
        entries["statistics.last.numbers.offset.npy"] = entries["statistics.last.numbers.weight.npy"]

    assert is_refused(with_another_column)


@pytest.mark.parametrize(
    "estimator",
    [LSTD(0.9, n_blocks=10), LSTDCV(0.9, lmbdas=[0.0, 0.5], alphas=[1.0], cv=3), HorizonLSTD(3, n_blocks=10)],
)
def test_a_document_with_any_other_value_is_refused_or_gives_a_sound_model(tmp_path, estimator):
    path, rng, (X, y) = tmp_path / "m", np.random.default_rng(0), stream(2)
    estimator.fit(X, y, weight=np.ones(len(y))).save(path)
    sound = path.read_bytes()
    others = [None, True, -1, 0, 1.5, 10**400, -1e308, "x", [], [1], ["a"], [3, 2], {}]
    n_refused = 0
    for _ in range(48):
        path.write_bytes(sound)

        def change(document, entries):
            inner = [place for place in places(document) if place[0] not in ("format", "version", "arrays")]
            *folder, name = inner[int(rng.integers(len(inner)))]
            for key in folder:
                document = document[key]
            document[name] = others[int(rng.integers(len(others)))]

        reseal(path, change)
        try:
            found = lstd.load(path)
        except InvalidInputError:
            n_refused += 1
        else:
            assert np.isfinite(found.predict_interval(X).upper).all()
    assert n_refused > 30


@pytest.mark.filterwarnings("ignore::lstd.errors.LSTDWarning")
@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("known.influence.shares", np.zeros_like),
        ("known.influence.shares", np.negative),
        ("spread.floor", lambda floor: floor - 1.0),
        ("spread.freedom", np.zeros_like),
    ],
)
def test_arrays_of_a_model_of_horizons_that_lstd_never_wrote_are_refused(tmp_path, name, changed):
    path = tmp_path / "m"
    X, y = stream(2)
    rows = {"episode": np.arange(len(y)) // 5, "terminated": np.arange(len(y)) % 5 == 4}
    HorizonLSTD(3).fit(X, y, **rows).save(path)

    def change(document, entries):
        whole = io.BytesIO()
        np.save(whole, changed(np.load(io.BytesIO(entries[f"{name}.npy"]))))
        entries[f"{name}.npy"] = whole.getvalue()

    reseal(path, change)
    with pytest.raises(InvalidInputError, match="m does not hold a model of horizons"):
        lstd.load(path)


def test_sums_that_overflowed_are_not_saved(tmp_path):
    saved = statistics()
    with pytest.raises(InvalidInputError, match="The sums must be finite to be saved; they overflowed"):
        replace(saved, sums=saved.sums + np.inf).save(tmp_path / "s")
    assert not list(tmp_path.iterdir())


class Folder:
    def __fspath__(self):
        raise RuntimeError("not mounted")


@pytest.mark.parametrize("path", [None, 1, 1.5, b"m", "", "\0", "a\0b", Folder(), ["m"]])
def test_paths_that_are_none(tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    fitted = LSTD().fit(np.ones((30, 1)), np.ones(30))
    for call in (
        read_model,
        LSTDStatistics.load,
        statistics().save,
        lambda path: write_model(model(), path),
        lambda path: write_fit_report(path, fitted, np.ones((30, 1)), np.ones(30)),
    ):
        with pytest.raises(InvalidInputError, match=r"`path` must be text or a pathlib.Path.*; got "):
            call(path)
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs files that are none")
def test_nothing_but_a_file_is_replaced(tmp_path, no_pictures):
    """As root, a device such as /dev/null would become a file."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "pipe")
    fitted = LSTD().fit(np.ones((30, 1)), np.ones(30))
    for name in ("pipe", "folder", "link", "."):
        for call in (fitted.save, lambda path: write_fit_report(path, fitted, np.ones((30, 1)), np.ones(30))):
            with pytest.raises(OutputError, match=r"could not be written: it is a folder or a device\. Give the path"):
                call(tmp_path / name)
    with pytest.raises(OutputError, match="could not be written: it is a folder"):
        fitted.save(".")
    with pytest.raises(OutputError, match="could not be written: File name too long; "):
        fitted.save(tmp_path / ("x" * 300))
    assert {path.name for path in tmp_path.iterdir()} == {"pipe", "folder", "link"}
    assert (tmp_path / "pipe").is_fifo()


def test_pickles_are_not_loaded(tmp_path):
    import pickle

    class Bomb:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "executed"),))

    path = tmp_path / "m"
    write_model(model(), path)
    reseal(path, lambda document, entries: entries.update({A: pickle.dumps(Bomb())}))
    with pytest.raises(InvalidInputError):
        read_model(path)
    path.write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(InvalidInputError, match="was not written by lstd"):
        read_model(path)
    assert not (tmp_path / "executed").exists()


def test_files_that_are_not_there_or_not_ours(tmp_path):
    for name, message in (("none", "none could not be read: No such file"), (".", "could not be read: Is a directory")):
        with pytest.raises(InvalidInputError, match=message):
            read_model(tmp_path / name)
    np.savez(tmp_path / "a.npz", A=np.ones(3))
    for content in (b"", b"text", (tmp_path / "a.npz").read_bytes()):
        (tmp_path / "m").write_bytes(content)
        with pytest.raises(InvalidInputError, match=r"m (was not written by lstd|is cut off or damaged)"):
            read_model(tmp_path / "m")
