"""Every source of rows gives the sums of the definition, and finds the same bad value in the same row."""

import re
from dataclasses import replace

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lstd import LSTD, Trajectories, fit_chunks, fit_tables
from lstd.errors import InvalidInputError
from streams import all_streams, cut, definition
from table_files import write
from tolerances import assert_close

pytestmark = pytest.mark.filterwarnings("ignore::lstd.errors.LSTDWarning")  # successors and ratios are drawn at random

VALUES = {  # bad ones
    "X": (np.nan, np.inf), "y": (np.nan, -np.inf), "X_next": (np.nan, np.inf), "terminated": (2.0, -1.0, np.nan),
    "discount": (1.5, -0.5, np.nan, np.inf), "importance_ratio": (-1.0, np.nan, np.inf),
    "trace_coefficient": (-1.0, np.nan, np.inf), "weight": (-1.0, np.nan, np.inf),
}  # fmt: skip
RULES = {
    "missing": r"has (\[[^]]*)?nan|no value|on a row whose episode continues",
    "range": r"in \[0, 1\]", "sign": "at least 0", "flag": "must hold True and False|neither 0 nor 1",
    "finite": r"has (\[[^]]*)?-?inf|is infinite",
}  # fmt: skip


def frame_of(stream):
    """An Arrow table of the rows, and the roles of its columns."""
    columns = {f"x{i}": values for i, values in enumerate(stream.X.T)}
    columns |= {f"r{j}": values for j, values in enumerate(stream.columns_of_rewards.T)}
    roles = {"features": [f"x{i}" for i in range(stream.X.shape[1])], "reward": [*columns][stream.X.shape[1] :]}
    if stream.X_next is not None:
        columns |= {f"x{i}_next": values for i, values in enumerate(stream.X_next.T)}
        roles["next_features"] = "*_next"
    named = {name: values for name, values in stream.columns.items() if name != "X_next"}
    return pa.table(columns | named), roles | {name: name for name in named}


def sources(stream, chunks, folder):
    """What fits a model to the rows, by the kind of source; rows of tables are counted from 1."""
    frame, roles = frame_of(stream)
    options = stream.settings | {"n_blocks": 0}
    csv, parquet = (write(frame, folder / f"rows{end}") for end in (".csv", ".parquet"))
    tables = {
        "Arrow table": frame, "pandas": frame.to_pandas(), "Polars": pl.from_arrow(frame), "CSV": csv,
        "Parquet": parquet, "dataset": pyarrow.dataset.dataset(parquet),
    }  # fmt: skip
    ways = {
        name: (1, lambda table=table: fit_tables(table, **roles, **options).statistics_)
        for name, table in tables.items()
    }
    ways["arrays"] = (0, lambda: LSTD(**options).fit(**stream.data).statistics_)
    ways["generator"] = (0, lambda: fit_chunks((chunk.data for chunk in chunks), **options).statistics_)
    if stream.X_next is None:
        rows = lambda: Trajectories.from_frame(tables["pandas"], **roles).to_arrays()  # noqa: E731
        ways["from_frame"] = (0, lambda: LSTD(**options).fit(**rows()).statistics_)
    return ways


def outcome(first, fit, chunks, name):
    """Sums; or the row, counted from 0, and the rule of an error."""
    try:
        return fit()
    except InvalidInputError as error:
        text = str(error)
        rule = next((rule for rule, pattern in RULES.items() if re.search(pattern, text)), None)
        if rule is None:
            return "no row can be fitted"
        row = re.search(r"\brow (\d+)\b", text)
        if name == "generator":
            place = int(re.search(r"`source\[(\d+)\]`", text)[1])
            first = -sum(map(len, chunks[:place]))
            if row is None:  # the last row of that chunk, seen when the next one follows
                return sum(map(len, chunks[: place + 1])) - 1, rule
        return int(row[1]) - first, rule


def outcomes(stream, chunks, folder):
    return {name: outcome(first, fit, chunks, name) for name, (first, fit) in sources(stream, chunks, folder).items()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("sources")


@settings(max_examples=30)
@given(all_streams(rows=(1, 2, 5, 12, 24)), st.data())
def test_any_source_has_the_sums_of_the_definition(folder, stream, data):
    found = outcomes(stream, cut(data.draw, stream), folder)
    if any(isinstance(result, str) for result in found.values()):
        assert {*map(str, found.values())} == {"no row can be fitted"}
        return
    A, b = definition(stream.regressors, stream.variant)
    size = max(1.0, np.abs(A).max(), np.abs(b).max())
    for name, statistics in found.items():
        assert_close(statistics.matrix(stream.variant) / size, A / size, "sums", err_msg=name)
        assert_close(statistics.b / size, b / size, "sums", err_msg=name)
        for count in ("n_rows", "n_transitions", "n_episodes", "n_groups", "n_unused_rewards"):
            assert getattr(statistics, count) == getattr(found["arrays"], count), (name, count)


@settings(max_examples=30)
@given(all_streams(rows=(2, 5, 12, 24)), st.data())
def test_any_source_finds_the_same_bad_value(folder, stream, data):
    draw = data.draw
    column = draw(st.sampled_from([name for name in VALUES if getattr(stream, name) is not None]))
    values = np.array(getattr(stream, column), dtype=float)
    row = draw(st.integers(0, len(stream) - 1))
    values[row, ..., *[-1] * (values.ndim - 1)] = draw(st.sampled_from(VALUES[column]))
    bad = replace(stream, **{column: values})
    ways = outcomes(bad, cut(draw, bad), folder)
    found = {result if isinstance(result, (tuple, str)) else "rows are fitted" for result in ways.values()}
    assert len(found) == 1, ways
