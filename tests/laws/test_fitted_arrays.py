"""No write to what a fitted object gives changes it, and none is lost: its arrays are read-only.

The attributes are found from the objects, and the classes from the public modules: those of a new one are among them.
"""

import copy
import importlib
import inspect
import pickle
import warnings
from collections.abc import Mapping
from dataclasses import is_dataclass
from functools import cache

import joblib
import numpy as np
import pytest
from scipy import sparse
from sklearn.base import BaseEstimator, clone

import lstd
from lstd import LSTD, LSTDCV, TD, HorizonLSTD, LSTDStatistics, RecursiveLSTD, TrueOnlineTD
from lstd.inference import ReturnSpread
from lstd.ope import LSTDQ

T, N = 240, 3
RANDOM = np.random.default_rng(31)
X = RANDOM.normal(size=(T, N))
Y = X @ [1.0, -2.0, 0.5] + RANDOM.normal(size=T)
PAIRS_OF_REWARDS = np.column_stack([Y, -Y])
ENDS = {"episode": np.arange(T) // 8, "terminated": np.arange(T) % 8 == 7}
ACTIONS = {
    "actions": np.arange(T) % 2,
    "target_policy": np.full((T, 2), 0.5),
    "behavior_probability": np.full(T, 0.5),
}
INTERNAL = {
    "model_",
    "model",
    "logged_",
    "reader",
    "alone",
    "arrays",
}  # plain states, whose arrays are memory
GRID = {"lmbdas": [0.5, 1.0], "alphas": [0.5, 2.0]}


def spread():
    """A ReturnSpread of a fitted model."""
    return ReturnSpread(LSTD(0.9).fit(X, Y, **ENDS)).fit(X, Y, **ENDS)


def recursive():
    """A RecursiveLSTD with an `alpha` for each feature, and what its last rows gave."""
    model = RecursiveLSTD(N, 0.9, alpha=np.ones(N))
    model.partial_fit(X, Y, return_predictions=True, **ENDS)
    return model


MAKE = {
    "LSTD": lambda: LSTD(0.9).fit(X, Y, **ENDS),
    "LSTD, two rewards": lambda: LSTD(0.9, alpha=[1.0, 2.0, 0.0]).fit(X, PAIRS_OF_REWARDS, **ENDS),
    "LSTD, iterative": lambda: LSTD(0.9, solver="iterative").fit(sparse.csr_array(X), Y, **ENDS),
    "LSTD, in chunks": lambda: LSTD(0.9).partial_fit(X[:100], Y[:100]).partial_fit(X[100:], Y[100:]),
    "LSTDCV": lambda: LSTDCV(0.9, **GRID).fit(X, PAIRS_OF_REWARDS, **ENDS),
    "HorizonLSTD": lambda: HorizonLSTD(3).fit(X, Y, **ENDS),
    "HorizonLSTD, auto": lambda: HorizonLSTD(3, lmbda="auto", alpha="auto").fit(X, PAIRS_OF_REWARDS, **ENDS),
    "LSTDQ": lambda: LSTDQ(0.9).fit(X, Y, **ACTIONS, **ENDS),
    "ReturnSpread": spread,
    "RecursiveLSTD": recursive,
    "TD": lambda: TD(N, 0.9, step_size=0.01).partial_fit(X, Y, **ENDS),
    "TrueOnlineTD": lambda: TrueOnlineTD(N, 0.9, step_size=0.01).partial_fit(X, Y, **ENDS),
    "LSTDStatistics": lambda: LSTDStatistics.from_arrays(X, Y, gamma=0.9, lmbda=0.5, weight=np.ones(T), **ENDS),
}


@pytest.fixture(params=MAKE)
def fitted(request):
    """A fitted object of each kind."""
    return made(request.param)


def made(name):
    """A new fitted object of a kind."""
    with warnings.catch_warnings(action="ignore"):
        return MAKE[name]()


@cache
def public_classes():
    """Public classes of the package."""
    found = set()
    for module in ("lstd", "lstd.inference", "lstd.ope", "lstd.metrics"):
        home = importlib.import_module(module)
        members = {getattr(home, name) for name in home.__all__}
        found |= {member for member in members if inspect.isclass(member)}
    return found


def test_every_public_class_that_learns_is_among_the_objects():
    learning = {one for one in public_classes() if {*dir(one)} & {"fit", "partial_fit", "then"}}
    assert learning == {type(made(name)) for name in MAKE}


# What an object gives


def attributes(thing):
    """Yield the names and values of public attributes, without parameters, methods and internal states."""
    parameters = set()
    if isinstance(thing, BaseEstimator):
        parameters = {*thing.get_params()}
    for name in dir(thing):
        if name.startswith("_") or name in parameters | INTERNAL:
            continue
        try:
            value = getattr(thing, name)
        except (AttributeError, lstd.errors.InvalidInputError):  # of another kind of model
            continue
        if not callable(value):
            yield name, value


def arrays_in(value, name, seen):
    """Yield the arrays that a value holds, with where they are."""
    if id(value) in seen:
        return
    seen[id(value)] = value
    if isinstance(value, np.ndarray):
        yield name, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from arrays_in(item, f"{name}[{key!r}]", seen)
    elif isinstance(value, list | tuple):
        for place, item in enumerate(value):
            yield from arrays_in(item, f"{name}[{place}]", seen)
    elif type(value) in public_classes():
        yield from arrays_of(value, f"{name}.", seen)
    elif is_dataclass(value):
        for key, item in vars(value).items():
            if key in INTERNAL:
                continue
            yield from arrays_in(item, f"{name}.{key}", seen)


def arrays_of(thing, prefix="", seen=None):
    """Yield the arrays that attributes of an object hold, with their names."""
    seen = {} if seen is None else seen
    for name, value in attributes(thing):
        yield from arrays_in(value, prefix + name, seen)


def state_of(thing, seen=None):
    """Yield all arrays that an object keeps, of the package's own classes."""
    seen = {} if seen is None else seen
    if id(thing) in seen:
        return
    seen[id(thing)] = thing
    if isinstance(thing, np.ndarray):
        yield thing
        return
    items = ()
    if isinstance(thing, Mapping):
        items = thing.values()
    elif isinstance(thing, list | tuple):
        items = thing
    elif type(thing).__module__.startswith("lstd"):
        items = vars(thing).values() if hasattr(thing, "__dict__") else ()
    for item in items:
        yield from state_of(item, seen)


def answers(thing):
    """Return what a fitted object says of the rows, as bytes."""
    if isinstance(thing, LSTDStatistics):
        return thing.solve(1.0, "boyan").weights.tobytes()
    if isinstance(thing, ReturnSpread):
        return thing.predict_interval(X[:5]).lower.tobytes()
    if isinstance(thing, LSTDQ):
        return thing.action_values(X).tobytes()
    return np.asarray(thing.predict(X)).tobytes()


# Ways in which an object comes about


def saved(thing, tmp_path):
    """The object that a file holds, where it can be saved."""
    if not hasattr(thing, "save"):
        return thing
    thing.save(tmp_path / "file")
    return lstd.load(tmp_path / "file")


def by_joblib(mode):
    """Return a function that reads an object from a file of joblib, with its arrays mapped to memory."""

    def mapped(thing, folder):
        if not (folder / "dump").exists():
            joblib.dump(thing, folder / "dump")
        return joblib.load(folder / "dump", mmap_mode=mode)

    return mapped


WAYS = {
    "fitted": lambda thing, _: thing,
    "copy": lambda thing, _: copy.copy(thing),
    "deepcopy": lambda thing, _: copy.deepcopy(thing),
    "pickle": lambda thing, _: pickle.loads(pickle.dumps(thing)),
    "file": saved,
    "joblib": by_joblib(None),
    "joblib, r": by_joblib("r"),
    "joblib, r+": by_joblib("r+"),
    "joblib, c": by_joblib("c"),
}


kept = cache(made)


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory):
    """A folder for each kind of object, with its file of joblib."""
    return cache(lambda name: tmp_path_factory.mktemp("dumps"))


@pytest.mark.parametrize("name", MAKE)
@pytest.mark.parametrize("way", WAYS)
def test_no_array_of_an_attribute_can_be_written_to(name, way, folder_of):
    fitted = kept if "joblib" in way else made  # one file of joblib, which is read in four ways
    thing = WAYS[way](fitted(name), folder_of(name))
    found = dict(arrays_of(thing))
    assert found
    assert [name for name, array in found.items() if array.flags.writeable] == []
    before = answers(thing)
    for array in found.values():
        with pytest.raises(ValueError, match="read-only"):
            array[...] = array
    assert answers(thing) == before


def test_arrays_of_internal_states_that_are_shared_cannot_be_written_to():
    """What is computed once and kept, or taken from the rows of a fit, as later methods read it."""
    model = made("LSTD").model_
    steps = made("HorizonLSTD").model_
    found = {name: getattr(model.system, name) for name in ("A", "b", "ridge", "penalty", "rounding")}
    found |= {"unseen": model.unseen, "factors": steps.factors, "steps.penalty": steps.penalty}
    fitted = made("LSTDQ")
    for way, one in {"fitted": fitted, "pickle": pickle.loads(pickle.dumps(fitted))}.items():
        logged = one.logged_
        arrays = {name: value for name, value in vars(logged).items() if isinstance(value, np.ndarray)}
        assert {"full", "codes", "policy", "successors", "ratio"} <= arrays.keys()
        found |= {f"{way}: {name}": value for name, value in arrays.items()}
        found |= {f"{way}: begins": logged.begins, f"{way}: episode": logged.episode}
    assert [name for name, array in found.items() if array.flags.writeable] == []
    assert ACTIONS["target_policy"].flags.writeable


@pytest.mark.parametrize("name", ["LSTD", "LSTDCV", "HorizonLSTD"])
def test_a_clone_that_is_fitted_has_arrays_that_are_read_only(name):
    with warnings.catch_warnings(action="ignore"):
        again = clone(made(name)).fit(X, Y, **ENDS)
    assert [name for name, array in arrays_of(again) if array.flags.writeable] == []


# What methods return may be written to, and is the caller's own


def results(thing):
    """Yield what methods return, which need no more than rows."""
    for name in ("predict", "predict_curve", "predict_interval", "contributions", "action_values", "quantile"):
        if hasattr(thing, name):
            try:
                yield name, getattr(thing, name)(X[:5].copy())
            except (TypeError, lstd.errors.InvalidInputError):  # of another kind of model
                continue
    if hasattr(thing, "summary"):
        yield "summary", thing.summary()
    if hasattr(thing, "weights_for"):
        yield "weights_for", thing.weights_for("boyan")
    if isinstance(thing, LSTDStatistics):
        yield "solve", thing.solve(1.0, "boyan")
    if hasattr(thing, "snapshot"):
        yield "snapshot", thing.snapshot()


def test_a_write_to_a_result_does_not_reach_the_object(fitted):
    before = answers(fitted)
    given = []
    for name, value in results(fitted):
        given += arrays_in(value, name, {})
    kept = [*state_of(fitted)]
    shared = [
        name for name, array in given if array.flags.writeable and any(np.shares_memory(array, one) for one in kept)
    ]
    assert shared == []
    for _, array in given:
        if array.flags.writeable and array.dtype.kind == "f":
            array[...] = np.nan
    assert answers(fitted) == before


# The arrays that were given stay the caller's own


def test_arguments_can_be_written_to_afterwards_and_change_nothing(monkeypatch):
    arguments = {"X": X, "Y": Y, "PAIRS_OF_REWARDS": PAIRS_OF_REWARDS}
    for name in MAKE:
        for key, value in arguments.items():
            monkeypatch.setitem(globals(), key, value.copy())
        for group in ("ENDS", "ACTIONS"):
            monkeypatch.setitem(globals(), group, {key: value.copy() for key, value in globals()[group].items()})
        thing = made(name)
        rows = X.copy()
        before = answers(thing)
        for array in (X, Y, PAIRS_OF_REWARDS, *ENDS.values(), *ACTIONS.values()):
            assert array.flags.writeable, name
            array[...] = 0
        X[...] = rows  # of `answers`
        assert answers(thing) == before, name
        monkeypatch.undo()
