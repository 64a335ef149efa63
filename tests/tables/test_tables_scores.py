"""Scores of tables: those of the definition, at any chunk size, in little memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lstd.data.returns import discounted_returns
from lstd.data.settings import Settings
from lstd.errors import InvalidInputError
from lstd.statistics.solve import Solution
from lstd.tables.predicting import CsvSink, predict_tables
from lstd.tables.row_reader import Roles
from lstd.tables.scoring import score_tables
from lstd.tables.stream import fit_stream
from table_files import ROLES, episodes, write
from tolerances import assert_close


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 5), st.booleans()), min_size=1, max_size=6), st.floats(0, 1))
def test_returns_are_those_of_the_definition(drawn, gamma):
    rng = np.random.default_rng(len(drawn))
    last = np.concatenate([np.arange(length) == length - 1 for length, _ in drawn])
    terminated = last & np.repeat([ends for _, ends in drawn], [length for length, _ in drawn])
    y = rng.normal(size=(len(last), 2))
    y[last & ~terminated] = np.nan
    returns, unobserved = discounted_returns(y, gamma, last, terminated)
    single, _ = discounted_returns(y[:, 0], gamma, last, terminated)
    for t in range(len(last)):
        end = t + int(np.argmax(last[t:]))
        rows = np.arange(t, end + 1 if terminated[end] else end)
        assert_close(returns[t], (gamma ** (rows - t)) @ y[rows] if len(rows) else np.zeros(2), "sums")
        assert_close(unobserved[t], 0.0 if terminated[end] else gamma ** (end - t), "sums")
    assert_close(single, returns[:, 0], "sums")


def test_returns_of_no_row_and_of_one():
    for rows in (0, 1):
        returns, unobserved = discounted_returns(np.ones(rows), 0.5, np.ones(rows), np.zeros(rows))
        assert returns.tolist() == [0.0] * rows
        assert unobserved.tolist() == [1.0] * rows


@pytest.mark.parametrize("gamma", [0.0, 0.6, 0.99, 1.0])
@pytest.mark.parametrize("chunk_rows", [1, 13, 100, 10_000])
def test_scores_are_those_of_the_whole(tmp_path, gamma, chunk_rows):
    table = episodes([40, 1, 30, 600, 2, 55], seed=10)
    path = write(table, tmp_path / "a.parquet")
    model = fit_stream([path], ROLES, Settings(gamma, 0.7))[0]
    score = score_tables(model, [path], ROLES, chunk_rows=chunk_rows)
    columns = {name: table[name].to_numpy(zero_copy_only=False) for name in table.column_names}
    last = np.append(columns["id"][1:] != columns["id"][:-1], True)
    returns, unobserved = discounted_returns(columns["r"], gamma, last, columns["done"])
    counts = unobserved < 0.01
    predicted = model.predict(np.column_stack([columns["x"], columns["y"]]))
    errors, returns = (returns - predicted)[counts], returns[counts]
    assert (score.rows, score.scored) == (728, int(counts.sum()))
    assert_close(score.mse, [np.mean(errors**2)], "sums")
    assert_close(score.r2, [1 - np.sum(errors**2) / np.sum((returns - returns.mean()) ** 2)], "solve")


def test_score_of_a_long_stream_holds_few_rows(tmp_path, monkeypatch):
    from lstd.tables import scoring

    held = []
    settle = scoring._Waiting._settle

    def watched(self, **options):
        held.append(sum(map(len, self._episodes)))
        settle(self, **options)

    monkeypatch.setattr(scoring._Waiting, "_settle", watched)
    table = episodes([20_000], seed=11)
    path = write(table, tmp_path / "a.parquet")
    model = fit_stream([path], ROLES, Settings(0.9))[0]
    assert score_tables(model, [path], ROLES, chunk_rows=100).scored == 20_000
    assert max(held) < 2000  # 0.9^394 is below 1e-18


def test_score_without_whole_returns_says_so(tmp_path):
    table = episodes([2, 30, 2, 40], seed=12)[2:32]
    path = write(table, tmp_path / "a.csv")
    model = fit_stream([path], ROLES, Settings(0.99))[0]
    with pytest.raises(InvalidInputError, match=r"of 30 rows none can be scored.*more than 459 rows"):
        score_tables(model, [path], ROLES)


def test_without_discount_memory_does_not_grow_with_an_episode(tmp_path):
    rng = np.random.default_rng(13)
    reward = rng.normal(1000.0, 1.0, 30_000)
    table = pa.table({"x": reward, "r": reward, "d": np.arange(30_000) == 25_000})
    path, roles = write(table, tmp_path / "a.parquet"), Roles(("x",), ("r",), None, "d")
    model = fit_stream([path], roles, Settings(1.0, 1.0))[0]
    found = score_tables(model, [path], roles, chunk_rows=1000)
    returns = np.cumsum(reward[25_000::-1])[::-1]
    errors = returns - model.predict(reward[:25_001, np.newaxis])
    assert (found.rows, found.scored) == (30_000, 25_001)
    assert_close(found.mse, [np.mean(errors**2)], "solve")
    assert_close(found.r2, [1 - np.mean(errors**2) / np.var(returns)], "solve")


def test_without_discount_only_terminated_episodes_can_be_scored(tmp_path):
    path = write(episodes([30, 40], seed=12)[30:], tmp_path / "a.csv")
    model = fit_stream([path], ROLES, Settings(1.0))[0]
    with pytest.raises(InvalidInputError, match=r"of 40 rows none can be scored, .*: a row counts when its"):
        score_tables(model, [path], ROLES)
    with pytest.raises(InvalidInputError, match=r"no row can be scored: with gamma 1 .* Name .*`--terminated`"):
        score_tables(model, [path], Roles(("x", "y"), ("r",), "id"))


def test_scores_and_predictions_that_overflow_are_refused(tmp_path):
    table = pa.table({"x": [1e200, 2e200, 1e-3], "r": [1e200, 1.0, 3.0], "d": [0, 0, 1]})
    path, roles = write(table, tmp_path / "a.parquet"), Roles(("x",), ("r",), None, "d")
    model = fit_stream(
        [write(episodes([9, 9], 1), tmp_path / "b.csv")], Roles(("x",), ("r",), "id", "done"), Settings(0.9)
    )[0]
    with pytest.raises(InvalidInputError, match=r"the squares of returns or of errors are beyond 1e308; scale the"):
        score_tables(model, [path], roles)
    model = replace(model, saved_solution=Solution(np.array([[1e200]]), 1.0, False))
    with pytest.raises(InvalidInputError, match=r"a\.parquet: row 1 \(.*\): the prediction is beyond 1e308; look for"):
        score_tables(model, [path], roles)
    with open(tmp_path / "out.csv", "wb") as file, pytest.raises(InvalidInputError, match=r"row 1 .* is beyond 1e308"):
        predict_tables(model, [path], [], CsvSink, file)
