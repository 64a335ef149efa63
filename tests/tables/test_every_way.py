"""The same model and score from arrays, data frames, files and the shell, for every column that rows can have."""

import json

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import lstd
from lstd import LSTD, Trajectories
from lstd.cli.app import app
from lstd.errors import InvalidInputError
from table_files import write
from tolerances import assert_close

NAMED = ("episode", "groups", "terminated", "discount", "importance_ratio", "trace_coefficient", "weight")
ROLES = {name: name[:4] for name in NAMED}
FEATURES = ["u", "v"]
SETTINGS = {"gamma": 0.8, "lmbda": 0.6, "alpha": 0.3}


def columns(successors, seed=0):
    """Eleven episodes, of one to nine rows: most terminate, the others end in a row without numbers, or do not."""
    rng = np.random.default_rng(seed)
    lengths = [5, 1, 7, 2, 4, 9, 3, 6, 4, 8, 5]
    number = np.repeat(np.arange(11), lengths)
    last = np.append(number[1:] != number[:-1], True)
    done = last & (number % 3 != 1)
    horizon = last & ~done & (not successors)
    numbers = {name: rng.uniform(0.2, 1.0, len(last)) for name in NAMED[3:]}
    numbers["rew"] = rng.normal(size=len(last))
    table = {name[:4]: np.where(horizon & (number < 8), np.nan, values) for name, values in numbers.items()}
    table |= {"epis": number + 40, "grou": number // 2, "term": done, "t": np.arange(len(last)) * 0.5}
    table |= {name: rng.normal(size=len(last)) for name in FEATURES}
    for name in FEATURES:
        table[f"{name}_next"] = np.where(done, np.nan, np.roll(table[name], -1) + last)
    return table


def arrays(table, successors):
    data = {name: table[column] for name, column in ROLES.items()}
    data |= {"X": np.column_stack([table[name] for name in FEATURES]), "y": table["rew"]}
    return data | ({"X_next": np.column_stack([table[f"{name}_next"] for name in FEATURES])} if successors else {})


def options(given):
    """Options of the shell for arguments of `fit_tables`."""
    words = []
    for name, value in given.items():
        text = ",".join(value) if isinstance(value, list) else str(value)
        words += [f"--{name.replace('_', '-')}", text]
    return words


def shell(*words):
    result = CliRunner().invoke(app, [*map(str, words)])
    assert result.exit_code == 0, result.output
    return result.stdout


pytestmark = [
    pytest.mark.filterwarnings("ignore::lstd.errors.UnusedRewardWarning"), pytest.mark.usefixtures("few_pairs"),
    pytest.mark.filterwarnings("ignore::lstd.errors.SupportWarning"),  # all ratios are below 1
]  # fmt: skip


@pytest.mark.parametrize("successors", [False, True], ids=["rows", "successors"])
def test_every_way_gives_the_same_model_and_score(tmp_path, successors):
    table = columns(successors)
    data = arrays(table, successors)
    model = LSTD(**SETTINGS).fit(**data)
    score = model.score(**data)
    assert lstd.fit_chunks([data], **SETTINGS).coef_.tolist() == pytest.approx(model.coef_.tolist(), rel=1e-12)
    roles = {"features": FEATURES, "reward": "rew"} | ROLES
    frames = [kind(table) for kind in (pd.DataFrame, pl.DataFrame, pa.table)]
    if not successors:
        for frame in frames:
            rows = Trajectories.from_frame(frame, **roles).to_arrays()
            assert LSTD(**SETTINGS).fit(**rows).coef_.tolist() == model.coef_.tolist()
    more = {"next_features": "*_next"} if successors else {}
    files = [[write(frames[2], tmp_path / f"a{end}")] for end in (".csv", ".csv.gz", ".parquet")]
    halves = [frames[2].slice(0, 23), frames[2].slice(23)]
    files.append([write(half, tmp_path / f"half{i}.parquet") for i, half in enumerate(halves)])
    for source in (*frames, *files):
        fitted = lstd.fit_tables(source, **roles, **more, **SETTINGS, time="t")
        assert_close(fitted.coef_, model.coef_, "solve")
        assert_close(fitted.intercept_, model.intercept_, "solve")
        assert fitted.statistics_.n_transitions == model.n_transitions_
    for paths in files:
        shell("fit", *paths, *options(roles | more | SETTINGS), "--time", "t", "-o", tmp_path / "model", "--force")
        assert_close(lstd.load(tmp_path / "model").coef_, model.coef_, "solve")
        found = json.loads(shell("score", tmp_path / "model", *paths, "--json"))
        assert found["rewards"]["rew"]["r2"] == pytest.approx(score, rel=1e-10)
        assert found["observed_share"] > 0.5


@pytest.mark.parametrize("end", [".csv", ".parquet"])
@pytest.mark.parametrize("dates", [False, True], ids=["numbers", "dates"])
def test_rows_in_any_order_are_sorted(tmp_path, end, dates):
    table = columns(False)
    if dates:
        table["t"] = np.datetime64("2024-01-01") + (2 * table["t"]).astype("m8[D]")
    frame = pa.table(table)
    order = np.random.default_rng(1).permutation(len(frame))
    path, mixed = write(frame, tmp_path / f"a{end}"), write(frame.take(order), tmp_path / f"b{end}")
    roles = {"features": FEATURES, "reward": "rew", "time": "t"} | ROLES
    model = lstd.fit_tables(path, **roles, **SETTINGS)
    with pytest.raises(InvalidInputError, match=r"reappears after other episodes|is earlier than"):
        lstd.fit_tables(mixed, **roles, **SETTINGS)
    assert_close(lstd.fit_tables(mixed, **roles, **SETTINGS, sort=True).coef_, model.coef_, "solve")
    shell("fit", mixed, *options(roles | SETTINGS), "--sort", "-o", tmp_path / "model")
    found, expected = (
        json.loads(shell("score", tmp_path / "model", *words, "--json"))["rewards"]
        for words in ((mixed, "--sort"), (path,))
    )
    assert found["rew"]["r2"] == pytest.approx(expected["rew"]["r2"], rel=1e-10)


@pytest.mark.parametrize(
    ("change", "arguments", "message"),
    [
        ({"rew": np.nan}, {"next_features": "*_next"}, "column 'rew', row 3 .* every row is a transition"),
        ({"u_next": np.nan}, {"next_features": "*_next"}, "column 'u_next', row 3 .* has no value"),
        ({}, {"next_features": ["u_next"]}, "`next_features` must name one column per feature, 2; got 1"),
        ({}, {"next_features": ["u_next"], "features": None}, "`next_features` must be a pattern such as"),
        ({}, {"next_features": "after_*"}, "column 'after_u' is missing"),
        ({}, {"weight": "disc"}, "column 'disc' is named 2 times; give each one role"),
        ({}, {"sort": True}, "`sort` needs `time`"),
        ({}, {"sort": True, "time": "t", "independent": True}, "`independent` must be False with `sort`"),
    ],
)
def test_columns_that_break_a_rule(change, arguments, message):
    table = columns(False)
    for name, value in change.items():
        table[name] = table[name].copy()
        table[name][2] = value
    roles = {"features": FEATURES, "reward": "rew"} | ROLES | arguments
    with pytest.raises(InvalidInputError, match=message):
        lstd.fit_tables(pa.table(table), **roles, **SETTINGS)


def test_more_rows_than_can_be_sorted_in_memory_are_refused(tmp_path):
    n = 2**18
    table = pa.table(
        {"x": np.ones(n), "t": np.arange(n)[::-1].copy(), "r": np.ones(n), "end": np.zeros(n), "y": np.ones(n)}
    )
    with pytest.raises(
        InvalidInputError, match=r"`sort`: the rows take more than half of `memory`, 16 MB. Give more, or"
    ):
        lstd.fit_tables(
            table, features=["x", "y"], reward="r", gamma=0.5, terminated="end", time="t", sort=True, memory=2**24
        )


def test_all_other_columns_with_a_pattern_of_successors():
    table = pa.table(columns(True)).drop(["t"])
    roles = {"reward": "rew", "next_features": "*_next"} | ROLES
    model = lstd.fit_tables(table, features=None, **roles, **SETTINGS)
    assert model.feature_names_in_.tolist() == FEATURES
    assert_close(model.coef_, lstd.fit_tables(table, features=FEATURES, **roles, **SETTINGS).coef_, "solve")
    chosen = lstd.fit_tables(table, features=FEATURES, **roles, gamma=0.8, lmbda="auto", alpha="auto")
    arrays_chosen = lstd.LSTDCV(gamma=0.8).fit(**arrays(columns(True), True))
    assert (chosen.lmbda_, chosen.alpha_) == (arrays_chosen.lmbda_, arrays_chosen.alpha_)
