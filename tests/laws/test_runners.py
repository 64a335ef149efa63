"""Whatever runs the sums of chunks, a model has the same bits, and the same chunk is refused."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_sources import frame_of

from dask_commands import local_client
from lstd import fit_chunks, fit_tables
from lstd.errors import InvalidInputError
from streams import all_streams, cut

pytestmark = [
    pytest.mark.filterwarnings("ignore::lstd.errors.LSTDWarning"),  # successors and ratios are drawn at random
    pytest.mark.filterwarnings("ignore:X does not have valid feature names"),
]


@pytest.fixture(scope="module")
def runners():
    """Arguments of threads and, if it is installed, of a Dask cluster; the first is the calling thread."""
    runners = {"calling thread": {"n_jobs": 1}, "two threads": {"n_jobs": 2}, "three threads": {"n_jobs": 3}}
    try:
        import distributed  # noqa: F401
    except ModuleNotFoundError:
        yield runners
        return
    with local_client() as client:
        yield runners | {"Dask": {"client": client}}


def bits(fit, rows):
    """All numbers of a model, or the text of an error."""
    try:
        model = fit()
    except InvalidInputError as error:
        return str(error)
    try:
        prediction = model.predict(rows, return_std=True)
    except InvalidInputError:  # too few rows or blocks
        prediction = model.predict(rows)
    sums = {name: getattr(model.statistics_, name) for name in ("sums", "B", "trace", "total_weight")}
    blocks = model.model_.blocks
    sums |= {"shares": blocks.shares, "marks": blocks.marks}
    found = {"coef": model.coef_, "intercept": model.intercept_, "prediction": prediction, **sums}
    return {name: np.array(values).tobytes() for name, values in found.items()}


@settings(max_examples=12)
@given(all_streams(rows=(5, 24, 60)), st.data())
def test_any_runner_gives_the_same_bits(runners, stream, data):
    chunks = cut(data.draw, stream)
    if tables := data.draw(st.booleans()):
        (frames, (roles, *_)) = zip(*[frame_of(chunk) for chunk in chunks], strict=True)
        fit = partial(fit_tables, [*frames], **roles, **stream.settings)
    else:
        fit = partial(fit_chunks, [chunk.data for chunk in chunks], **stream.settings)
    found = {name: bits(partial(fit, **runner), stream.X) for name, runner in runners.items()}
    for name, result in found.items():
        assert result == found["calling thread"], (name, tables)
