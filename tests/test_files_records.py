"""Records as documents and arrays: what is packed comes back; another type, shape or range is refused."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from lstd.errors import InvalidInputError
from lstd.files import BROKEN, pack, unpack


class Point(NamedTuple):
    at: Annotated[NDArray[np.float64], "n"]
    share: Annotated[float, (0.0, 1.0)]


@dataclass(frozen=True)
class Everything:
    matrix: Annotated[NDArray[np.float64], "n n"]
    gaps: Annotated[NDArray[np.float64], "2 k nan"]
    flags: Annotated[NDArray[np.bool_], "k"] | None
    points: tuple[Point, ...]
    pair: tuple[int, str]
    names: frozenset[str]
    columns: Mapping[str, Annotated[NDArray[np.int64], "k"]]
    either: float | tuple[float, ...]
    condition: Annotated[float, (0.0, np.inf)]
    episode: Annotated[Any, "episode"]
    options: Any


WHOLE = Everything(
    np.eye(2), np.array([[np.nan], [np.inf]]), np.array([True]), (Point(np.ones(2), 0.5),), (3, "b"), frozenset("ba"),
    {"x": np.array([2**60])}, (1.0, 2.0), np.inf, "text c", [1, "a"],
)  # fmt: skip


def test_a_record_comes_back():
    document, arrays = pack(WHOLE)
    assert {*arrays} == {"matrix", "gaps", "flags", "points.0.at", "columns.x"}
    assert (document["matrix"], document["names"], document["either"]) == ([2, 2], ["a", "b"], [1.0, 2.0])
    found = unpack(Everything, document, arrays)
    assert found.names == WHOLE.names
    ordered = replace(WHOLE, names=("a", "b"))
    assert repr(replace(found, names=tuple(sorted(found.names)))) == repr(ordered)
    assert unpack(Everything, {**document, "condition": None}, arrays).condition == np.inf  # null in JSON


@pytest.mark.parametrize("name", [None, 3, -(2**63), "text 3"])
def test_ids_keep_their_type(name):
    found = unpack(Everything, *pack(replace(WHOLE, episode=name))).episode
    assert (found, type(found)) == (name, type(name))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"matrix": np.full((2, 2), np.nan)}, "must be finite"),
        ({"either": np.inf}, "must be finite"),
    ],
)
def test_what_a_file_cannot_hold_is_refused(change, message):
    with pytest.raises(InvalidInputError, match=message):
        pack(replace(WHOLE, **change))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("matrix", [2, 3]), ("matrix", None), ("gaps", [1, 2]), ("flags", [2]), ("points", {}), ("points", [1]),
        ("points", [{"at": [2]}]), ("points", [{"at": [2], "share": 1.5}]), ("points", [{"at": [2], "share": True}]),
        ("pair", [3]), ("pair", [-1, "b"]), ("pair", [3.0, "b"]), ("names", "ab"), ("names", [1]), ("columns", []),
        ("columns", {"y": [1]}), ("either", "1"), ("either", None), ("either", 10**400), ("condition", np.nan),
        ("condition", "inf"), ("condition", 10**400), ("condition", -1.0), ("episode", []), ("episode", True),
    ],
)  # fmt: skip
def test_documents_of_another_form_are_refused(name, value):
    document, arrays = pack(WHOLE)
    with pytest.raises(BROKEN):
        unpack(Everything, {**document, name: value}, arrays)
    del document[name]
    with pytest.raises(BROKEN):
        unpack(Everything, document, arrays)


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("matrix", np.eye(2, dtype=np.int64)), ("matrix", np.ones(2)), ("matrix", np.ones((2, 3))),
        ("matrix", np.full((2, 2), np.inf)), ("gaps", np.ones((3, 1))), ("flags", np.array([1.0])),
        ("points.0.at", np.ones(3)), ("columns.x", np.ones(1)), ("columns.x", np.ones(2, np.int64)),
    ],
)  # fmt: skip
def test_arrays_of_another_form_are_refused(name, array):
    document, arrays = copy.deepcopy(pack(WHOLE))
    with pytest.raises(BROKEN):
        unpack(Everything, document, {**arrays, name: array})
