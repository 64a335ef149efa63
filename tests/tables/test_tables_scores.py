"""Scores of tables: those of the definition, at any chunk size, in little memory."""

import io

import numpy as np
import pyarrow as pa
import pytest

from lstd import LSTD
from lstd.data.roles import Roles
from lstd.data.settings import Settings
from lstd.errors import BoundsWarning, ExtrapolationWarning, InvalidInputError, UnobservedWarning
from lstd.estimators.model import read_model
from lstd.estimators.model_parts import Solved
from lstd.metrics import observed_returns
from lstd.statistics.solve import Solution
from lstd.tables.predicting import csv_sink, predict_tables
from lstd.tables.scoring import score_tables
from table_files import ROLES, episodes, fit_files, write
from tolerances import assert_close


def lengths_for(gamma):
    """The longest episode terminates; its first returns hardly depend on its end."""
    return [40, 1, 30, 20, 2, 55, 7, 7, 600 if gamma == 0.99 else 100]


@pytest.mark.filterwarnings("ignore::lstd.errors.UnobservedWarning")
@pytest.mark.parametrize(
    ("gamma", "unobserved"), [(0.0, "predict"), (0.6, "ipcw"), (0.99, "predict"), (0.99, "ipcw"), (1.0, "predict")]
)
def test_scores_are_those_of_the_whole(tmp_path, gamma, unobserved):
    lengths = lengths_for(gamma)
    table = episodes(lengths, seed=10)
    path = write(table, tmp_path / "a.parquet")
    model = fit_files([path], ROLES, Settings(gamma, 0.7))
    columns = {name: table[name].to_numpy(zero_copy_only=False) for name in table.column_names}
    predicted = model.predict(np.column_stack([columns["x"], columns["y"]]))
    expected = observed_returns(
        columns["r"], gamma=gamma, prediction=predicted, episode=columns["id"], terminated=columns["done"],
        unobserved=unobserved,
    )  # fmt: skip
    weight, returns = expected.weight, expected.returns
    mse = np.average((returns - predicted) ** 2, weights=weight)
    variance = np.average((returns - np.average(returns, weights=weight)) ** 2, weights=weight)
    for chunk_rows in (13, 10_000) if gamma == 0.99 else (1, 100):
        score = score_tables(model.linear, [path], ROLES, unobserved=unobserved, chunk_rows=chunk_rows)
        assert (score.rows, score.scored) == (sum(lengths), np.count_nonzero(weight))
        assert_close(score.mse, [mse], "solve")
        assert_close(score.r2, [1 - mse / variance], "solve")
        assert_close(score.observed_share, expected.share, "sums")


@pytest.mark.parametrize("gamma", [0.6, 1.0])
def test_complete_returns_are_scored_alike_only_if_that_does_not_select(tmp_path, gamma):
    table = episodes([40, 1, 30, 2], seed=10)
    path = write(table, tmp_path / "a.parquet")
    model = fit_files([path], ROLES, Settings(gamma, 0.7))
    with pytest.raises(InvalidInputError, match="2 terminated, and 1 of 71 rows"):
        score_tables(model.linear, [path], ROLES, unobserved="drop")
    whole = write(table[:40], tmp_path / "b.parquet")
    found = [score_tables(model.linear, [whole], ROLES, unobserved=way) for way in ("predict", "drop", "ipcw")]
    assert found[0].observed_share == 1.0
    for other in found[1:]:
        assert_close(other.r2, found[0].r2, "solve")
    cut = write(table[:39], tmp_path / "c.parquet")
    roles = Roles(("x", "y"), ("r",), "id")
    if gamma == 1.0:
        for way, message in (
            ("drop", r"of 39 rows none can be scored"),
            ("ipcw", "cut off after 38 steps at the latest"),
        ):
            with pytest.raises(InvalidInputError, match=message):
                score_tables(model.linear, [cut], roles, unobserved=way)
    else:
        dropped, weighted = (score_tables(model.linear, [cut], roles, unobserved=way) for way in ("drop", "ipcw"))
        assert dropped.scored == weighted.scored == 38 - 9  # 0.6^10 is below 0.01
        assert_close(dropped.mse, weighted.mse, "solve")


def test_a_score_of_little_that_was_observed_says_so(tmp_path):
    path = write(episodes([30, 40], seed=12)[30:], tmp_path / "a.csv")
    model = fit_files([path], ROLES, Settings(1.0, fit_intercept=False))
    with pytest.warns(UnobservedWarning, match="Only 0 % of the discounted weight"):
        assert score_tables(model.linear, [path], ROLES).observed_share == 0.0


def test_score_without_whole_returns_says_so(tmp_path):
    table = episodes([2, 30, 2, 40], seed=12)[2:32]
    path = write(table, tmp_path / "a.csv")
    model = fit_files([path], ROLES, Settings(0.99))
    with pytest.raises(InvalidInputError, match=r"of 30 rows none can be scored.*longer episodes, or use"):
        score_tables(model.linear, [path], ROLES, unobserved="drop")
    one = write(table[28:29], tmp_path / "b.csv")
    with pytest.raises(InvalidInputError, match=r"of 1 rows none can be scored.*longer episodes\."):
        score_tables(model.linear, [one], ROLES)


def test_a_score_without_discount_joins_chunks(tmp_path):
    rng = np.random.default_rng(13)
    reward = rng.normal(1000.0, 1.0, 30_000)
    table = pa.table({"x": reward, "r": reward, "d": np.arange(30_000) == 25_000})
    path, roles = write(table, tmp_path / "a.parquet"), Roles(("x",), ("r",), None, "d")
    model = fit_files([path], roles, Settings(1.0, 1.0))
    found = score_tables(model.linear, [path], roles, chunk_rows=1000)
    predicted = model.predict(reward[:, np.newaxis])
    ended, cut = (np.cumsum(reward[part][::-1])[::-1] for part in (slice(0, 25_001), slice(25_001, 29_999)))
    returns = np.concatenate([ended, cut + predicted[-1]])
    errors = returns - predicted[:-1]
    assert (found.rows, found.scored) == (30_000, 29_999)
    assert_close(found.observed_share, 25_001 / 29_999, "sums")
    assert_close(found.mse, [np.mean(errors**2)], "solve")
    assert_close(found.r2, [1 - np.mean(errors**2) / np.var(returns)], "solve")


def test_scores_and_predictions_that_overflow_are_refused(tmp_path):
    table = pa.table({"x": [1e200, 2e200, 1e-3], "r": [1e200, 1.0, 3.0], "d": [0, 0, 1]})
    path, roles = write(table, tmp_path / "a.parquet"), Roles(("x",), ("r",), None, "d")
    model = fit_files(
        [write(episodes([9, 9], 1), tmp_path / "b.csv")], Roles(("x",), ("r",), "id", "done"), Settings(0.9)
    )
    with pytest.raises(InvalidInputError, match=r"squares of returns or of errors must not be beyond 1e308. Scale the"):
        score_tables(model.linear, [path], roles)
    model = model.changed(known=Solved(Solution(np.array([[1e200]]), 1.0), None, "none"))
    with pytest.raises(InvalidInputError, match=r"a\.parquet: row 1 \(.*\): the prediction is beyond 1e308; look for"):
        score_tables(model.linear, [path], roles)
    with open(tmp_path / "out.csv", "wb") as file, pytest.raises(InvalidInputError, match=r"row 1 .* is beyond 1e308"):
        predict_tables(model.linear, [path], [], csv_sink, file)


@pytest.mark.filterwarnings("always")
@pytest.mark.parametrize("chunk_rows", [7, 1000])
def test_tables_give_the_warnings_that_arrays_give(tmp_path, chunk_rows):
    """Of features far outside of the range of the fit, and of predictions that the rewards rule out."""
    rng = np.random.default_rng(14)
    x, y = rng.normal(size=(2, 400))
    done = np.arange(400) % 10 == 9
    frame = pa.table({"x": x, "r": np.abs(y), "id": np.arange(400) // 10, "done": 1 * done})
    estimator = LSTD(0.5).fit(x[:, np.newaxis], np.abs(y), terminated=done)
    model = read_model(estimator.save(tmp_path / "model") or tmp_path / "model")
    model = model.changed(rewards=("r",), known=Solved(Solution(np.array([[100.0], [0.0]]), 1.0), None, "none"))
    roles = Roles(("x0",), ("r",), "id", "done")
    path = write(frame.rename_columns(["x0", "r", "id", "done"]), tmp_path / "a.parquet")
    with pytest.warns(BoundsWarning, match=r"outside of what the rewards allow: "):
        score_tables(model.linear, [path], roles, chunk_rows=chunk_rows)
    far = write(
        frame.rename_columns(["x0", "r", "id", "done"]).set_column(0, "x0", pa.array(50 + x)), tmp_path / "b.csv"
    )
    with open(tmp_path / "out.csv", "wb") as file, pytest.warns(ExtrapolationWarning, match=r"x0 of 100 % of the rows"):
        predict_tables(model.linear, [far], [], csv_sink, file, chunk_rows=chunk_rows)


def test_no_header_stands_alone_beside_an_error():
    file = io.BytesIO()
    with pytest.raises(InvalidInputError), csv_sink(file, ["prediction"]):
        raise InvalidInputError("a bad cell in the first chunk")
    assert not file.getvalue()
    with csv_sink(file, ["prediction"]):
        pass  # a table without rows
    assert file.getvalue() == b"prediction\n"
