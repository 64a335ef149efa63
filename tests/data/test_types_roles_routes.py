"""Columns of each type in each role: every route reads the same values, or refuses them alike."""

import contextlib
import io
import re
from functools import cache

import numpy as np
import pytest

pd = pytest.importorskip("pandas")
pa = pytest.importorskip("pyarrow")
pl = pytest.importorskip("polars")

import pyarrow.parquet as pq  # noqa: E402

import columns_of_types  # noqa: E402
from lstd import (  # noqa: E402
    LSTD,
    HorizonLSTD,
    LSTDStatistics,
    RecursiveLSTD,
    Trajectories,
    fit_chunks,
    fit_tables,
    load,
)
from lstd.cli import main  # noqa: E402
from lstd.data import parse_columns  # noqa: E402
from lstd.data.arrow_columns import arrow_batches, arrow_table  # noqa: E402
from lstd.errors import InvalidInputError  # noqa: E402

VALUES = {
    "x": [1, 2, 3, 1, 2, 4], "y": [1, 2, 3, 1, 2, 3], "e": [1, 1, 1, 2, 2, 2], "end": [0, 0, 1, 0, 0, 1],
    "t": [0, 1, 2, 0, 1, 2], "w": [1, 2, 1, 3, 1, 2], "g": [1, 1, 1, 2, 2, 2],
}  # fmt: skip
NAMES = {"features": ["x"], "reward": "y", "episode": "e", "terminated": "end", "weight": "w", "groups": "g"}
OPTIONS = [
    "--features=x", "--reward=y", "--episode=e", "--terminated=end", "--weight=w", "--groups=g", "--time=t",
    "--gamma=.9", "--lmbda=.9", "--alpha=1", "--force", "--jobs=1",
]  # fmt: skip
pytestmark = pytest.mark.filterwarnings("ignore")


def frame_of(role, values):
    """A data frame of the library of a column."""
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return pa.table({**{name: pa.array(each) for name, each in VALUES.items()}, role: values})
    if isinstance(values, pl.Series):
        return pl.DataFrame(VALUES).with_columns(values.alias(role))
    if isinstance(values, list):
        values = columns_of_types.objects(values)
    frame = pd.DataFrame(VALUES)
    frame[role] = values
    return frame


def features_of(role, values):
    """The features, as a frame of the library of a column if they are of that."""
    if role != "x":
        return np.array(VALUES["x"], np.float64)[:, np.newaxis]
    if isinstance(values, (np.ndarray, list)):
        return np.array(values, None if isinstance(values, np.ndarray) else object).reshape(-1, 1)
    return frame_of("x", values)[["x"]] if isinstance(values, pd.Series) else frame_of("x", values).select(["x"])


def arrays_of(role, values):
    arrays = {name: np.array(each, np.float64) for name, each in VALUES.items()} | {role: values}
    columns = {"episode": arrays["e"], "terminated": arrays["end"], "weight": arrays["w"], "groups": arrays["g"]}
    return features_of(role, values), arrays["y"], columns


def of_fit(role, values, path):
    X, y, columns = arrays_of(role, values)
    return LSTD(0.9).fit(X, y, **columns).coef_


def of_horizons(role, values, path):
    X, y, columns = arrays_of(role, values)
    return HorizonLSTD(3, 0.9, check=False).fit(X, y, **columns).predict([[1.0], [2.0]])


def of_trajectories(role, values, path):
    X, y, columns = arrays_of(role, values)
    times = values if role == "t" else VALUES["t"]
    return LSTD(0.9).fit(**Trajectories(X, y, **columns, time=times).to_arrays()).coef_


def of_statistics(role, values, path):
    X, y, columns = arrays_of(role, values)
    return LSTDStatistics.from_arrays(X, y, gamma=0.9, lmbda=0.9, **columns).solve(1.0).weights


def of_chunks(role, values, path):
    X, y, columns = arrays_of(role, values)
    return fit_chunks([{"X": X, "y": y, **columns}], gamma=0.9, n_jobs=1).coef_


def of_recursive(role, values, path):
    X, y, columns = arrays_of(role, values)
    del columns["groups"]
    return RecursiveLSTD(1, 0.9).partial_fit(X, y, **columns).weights


def of_transitions(role, values, path):
    X, y, columns = arrays_of(role, values)
    data = Trajectories.from_arrays(X, y, terminals=columns["terminated"], timeouts=False)
    return LSTD(0.9).fit(**data.to_arrays()).coef_


def of_frame(role, values, path):
    data = Trajectories.from_frame(frame_of(role, values), **NAMES, time="t")
    return LSTD(0.9).fit(**data.to_arrays()).coef_


def of_tables(role, values, path):
    return fit_tables(frame_of(role, values), **NAMES, time="t", gamma=0.9, n_jobs=1).coef_


def written(role, values, path):
    """A file of Parquet; None where the library of the column has no such type in files."""
    frame = frame_of(role, values)
    file = path / "a.parquet"
    try:
        if isinstance(frame, pa.Table):
            pq.write_table(frame, file)
        elif isinstance(frame, pl.DataFrame):
            frame.write_parquet(file)
        else:
            frame.to_parquet(file)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException:  # panics of Polars are no exceptions
        return None
    return file


def of_parquet(role, values, path):
    file = written(role, values, path)
    return None if file is None else fit_tables(file, **NAMES, time="t", gamma=0.9, n_jobs=1).coef_


def of_shell(role, values, path):
    file = written(role, values, path)
    if file is None:
        return None
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        failed = main(["fit", str(file), *OPTIONS, "--out", str(path / "model")])
    if failed:
        raise InvalidInputError(said.getvalue())
    return load(path / "model").coef_


ROUTES = [
    of_tables, of_fit, of_horizons, of_trajectories, of_statistics, of_chunks, of_recursive, of_transitions, of_frame,
    of_parquet, of_shell,
]  # fmt: skip
LEFT_OUT = {"w": {of_transitions}, "e": {of_transitions}, "g": {of_transitions, of_recursive}}
ROUTES_OF = {role: [route for route in ROUTES if route not in LEFT_OUT.get(role, ())] for role in VALUES}
ROUTES_OF["t"] = [of_tables, of_trajectories, of_frame, of_parquet, of_shell]

NOT_IN_FILES = "is not in a file"
# What the messages of all routes say of a value, after its place.
KINDS_OF_REFUSALS = {
    "is of a type": r"is of type .*, which (is not numeric|cannot be an id|is no number)",
    "is a time": r"convert it to numbers, such as days since a fixed date",
    "is missing": r"has no value|counts as no value|has nan\b|row 0 has \[nan\]",
    "is infinite": r"is infinite|has inf\b|has \[inf\]|must be finite in float64",
    "is not text": r"is not text in UTF-8",
    "is no number": r"has .*, which is not a number; (correct|write)",
    "is no flag": r"has .*, which is neither 0 nor 1",
    "is no time": r"has .*, which is neither a number nor a date",
    "is not in order": r"reappears|same `?episode|the time of|is earlier|in one group|be the same|has \S+ after \S+",
    "is read as another one": r"does not tell from another|less than a microsecond",
    NOT_IN_FILES: "Integers with more than 64 bits not implemented",
    "is outside its range": r"must be finite and at least 0",
}


@cache
def of_plain_numbers(route, role, values, path):
    return outcome(route, role, lambda: np.array(values), path)


def outcome(route, role, make, path):
    """What a route makes of a column: numbers, or the kind of its refusal; None where no file holds the type."""
    try:
        numbers = route(role, make(), path)
    except InvalidInputError as error:
        kinds = [kind for kind, pattern in KINDS_OF_REFUSALS.items() if re.search(pattern, str(error))]
        if NOT_IN_FILES in kinds:
            return None
        return "is a time" if "is a time" in kinds else kinds[0] if kinds else str(error)
    return None if numbers is None else "read as " + np.array2string(np.ravel(numbers), precision=6)


def alike(found, role, make, path):
    """Whether all routes refuse a column alike, or read it as the numbers that the parser of tables makes of it."""
    results = {result for result in found.values() if result is not None}
    if len(results) == 1 or not any(result.startswith("read as") for result in results):
        return len(results) <= 1
    if not all(result.startswith("read as") for result in results):
        return False
    values = np.array(VALUES[role])
    if any(
        result != of_plain_numbers(route, role, tuple(values.tolist()), path)
        for route, result in found.items()
        if result
    ):
        array = next(arrow_batches(arrow_table("`frame`", frame_of(role, make())), [role], 100)).column(0)
        values = parse_columns.numbers(array, role)[0]
    return all(
        result == of_plain_numbers(route, role, tuple(values.tolist()), path)
        for route, result in found.items()
        if result
    )


MAKERS = {}
for _number, _make in enumerate(
    (
        columns_of_types.numbers, columns_of_types.text, columns_of_types.flags, columns_of_types.times,
        columns_of_types.zoned, columns_of_types.identifiers, columns_of_types.durations, columns_of_types.others,
    )
):  # fmt: skip
    for _name in _make([0]):
        MAKERS[f"{_make.__name__}: {_name}"] = (_make, _name)
for _name in columns_of_types.odd([0]):
    MAKERS[_name] = (columns_of_types.odd, _name)

# pandas changes these, or has a type of its own in files, before a route sees them.
CHANGED = {"objects of two zones", "objects tuple of one", "objects list", "numpy complex"}


@pytest.mark.parametrize("role", VALUES)
def test_all_routes_read_a_column_alike_or_refuse_it_alike(role, tmp_path):
    """Tables and another route in turn, another one in each role: the types together meet all routes in every role.

    Odd types are in every role, and meet most routes. Of types that have long been read alike, each role has a quarter.
    """
    routes = ROUTES_OF[role][1:]
    place = [*VALUES].index(role)
    differ = []
    for number, (name, (make, kind)) in enumerate(MAKERS.items()):
        is_odd = make is columns_of_types.odd
        if kind in CHANGED or (not is_odd and (number + place) % 4):
            continue
        maker = make(VALUES[role])[kind]
        other = routes[(number + 3 * place) % len(routes)]
        found = {route: outcome(route, role, maker, tmp_path) for route in (of_tables, other)}
        if not alike(found, role, maker, tmp_path):
            differ.append((name, {route.__name__: result for route, result in found.items()}))
    assert not differ
