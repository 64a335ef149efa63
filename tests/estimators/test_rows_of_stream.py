"""The rows of a stream that are checked: those that are taken in memory, whatever the chunks."""

import numpy as np
import pytest

from lstd.data.check_rows import check_rows
from lstd.data.time_steps import steps_since_earliest
from lstd.estimators.folds import rows_from_all_over
from lstd.estimators.rows_of_stream import RowsOfStream


def log(seed, n_episodes, longest, has_groups):
    """Rows with numbered episodes of lengths up to `longest`, some of which terminate, and their times."""
    random = np.random.default_rng(seed)
    lengths = random.integers(1, longest + 1, n_episodes)
    episode = np.repeat(np.arange(n_episodes), lengths)
    first = np.cumsum(lengths) - lengths
    T = len(episode)
    terminated = np.append(np.diff(episode) > 0, True) & (random.random(n_episodes) < 0.5)[episode]
    X = random.normal(size=(T, 2))
    y = random.normal(size=T)
    groups = None
    if has_groups:
        groups = episode // 3
    times = 7.0 * (np.arange(T) - first[episode] + random.integers(0, 9, n_episodes)[episode])
    rows = check_rows(X, y, episode=episode, terminated=terminated, groups=groups, gamma=0.9, warn=False)
    return rows, times


SIZES = {"all": (10_000, 5, 10_000), "few": (40, 0, 10_000), "groups": (10, 8, 10_000), "limit": (10, 64, 30)}


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("has_groups", [False, True])
@pytest.mark.parametrize("longest", [6, 80])
def test_they_are_those_of_rows_in_memory_whatever_the_chunks(sizes, has_groups, longest):
    random = np.random.default_rng(0)
    for seed in range(6):
        rows, times = log(seed, [1, 2, 7, 40][seed % 4], longest, has_groups)
        timed = rows.changed(time=steps_since_earliest(times, rows.last))
        expected = rows_from_all_over(timed, *sizes)
        for n_cuts in (0, 1, 5, len(rows)):
            cuts = np.unique([0, *random.integers(0, len(rows), n_cuts)])
            stream = RowsOfStream(*sizes)
            edges = [*cuts.tolist(), len(rows)]
            for chunk, start, end in zip(rows.split(cuts.tolist()), edges[:-1], edges[1:], strict=True):
                stream.add(chunk, times[start:end])
            found = stream.rows
            for name in ("X", "y", "episode", "last", "terminated", "full", "discount", "time", "groups"):
                given = getattr(expected, name)
                if given is not None:
                    np.testing.assert_array_equal(getattr(found, name), given, err_msg=name)


def test_no_more_rows_are_held_than_are_checked_and_those_of_the_last_group():
    rows, times = log(1, 400, 10, has_groups=False)
    stream = RowsOfStream(50, 3, 1000)
    for start, chunk in zip(range(0, len(rows), 20), rows.split(range(0, len(rows), 20)), strict=True):
        stream.add(chunk, times[start : start + len(chunk)])
        assert stream.n_held <= 50 + 10
