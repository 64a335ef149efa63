"""`LSTD.partial_fit(forgetting=)`: earlier chunks count less, in the sums, the blocks and the effective sample."""

import numpy as np
import pytest

import naive
from lstd import LSTD
from lstd.errors import InvalidInputError
from tolerances import assert_close

SIZES = (40, 1, 25, 60, 34)


def chunks(seed=0, m=None, n=3):
    """Rows of chunks whose episodes continue from chunk to chunk, and the rows' faded weights."""
    random, n_rows = np.random.default_rng(seed), sum(SIZES)
    episode = np.arange(n_rows) // 7
    last = np.append(episode[1:] != episode[:-1], True)
    rows = {"X": random.normal(size=(n_rows, n)), "y": random.normal(size=(n_rows,) if m is None else (n_rows, m))}
    rows |= {"episode": episode, "terminated": last & (episode % 3 == 0), "weight": random.uniform(0.5, 2.0, n_rows)}
    rows["y"][last & (episode % 3 != 0)] = np.nan
    rows |= {"importance_ratio": random.uniform(0.5, 1.5, n_rows)}
    return rows, np.repeat(np.arange(len(SIZES))[::-1], SIZES)


@pytest.mark.parametrize("variant", naive.VARIANTS)
@pytest.mark.parametrize("m", [None, 2])
def test_chunks_with_forgetting_are_rows_with_weights(variant, m):
    rows, age = chunks(m=m)
    model, whole = (LSTD(0.9, 0.7, 0.5, variant) for _ in range(2))
    for part in np.split(np.arange(sum(SIZES)), np.cumsum(SIZES)[:-1]):
        model.partial_fit(**{name: values[part] for name, values in rows.items()}, forgetting=0.6)
    whole.fit(**rows | {"weight": rows["weight"] * 0.6**age})
    assert_close(model.coef_, whole.coef_, "solve")
    for found, expected in zip(
        model.predict(rows["X"][:4], return_std=True), whole.predict(rows["X"][:4], return_std=True), strict=True
    ):
        assert_close(found, expected, "solve")
    assert_close(model.statistics_.total_weight, whole.statistics_.total_weight, "sums")


@pytest.mark.parametrize("forgetting", [0.0, 1.5, np.nan, "auto"])
def test_a_factor_that_is_none_leaves_the_model_as_it_was(forgetting):
    rows, _ = chunks()
    model = LSTD(0.9, 0.7, 0.5).partial_fit(**rows)
    before = model.coef_.tolist()
    with pytest.raises(InvalidInputError, match="`forgetting` must be"):
        model.partial_fit(rows["X"], rows["y"], episode=rows["episode"] + 100, forgetting=forgetting)
    assert model.coef_.tolist() == before
