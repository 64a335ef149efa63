"""What a series of pandas holds, and slices of Arrow, are read as the series and the array are."""

import numpy as np
import pytest

from lstd import LSTD
from lstd.errors import InvalidInputError

pd = pytest.importorskip("pandas")
pa = pytest.importorskip("pyarrow")
pytest.importorskip("polars")

from columns_of_types import numbers, text  # noqa: E402

VALUES = {"x": [1, 2, 3, 1, 2, 4], "y": [1, 2, 3, 1, 2, 3], "e": [1, 1, 1, 2, 2, 2], "end": [0, 0, 1, 0, 0, 1]}
X = np.array(VALUES["x"], np.float64)[:, np.newaxis]
COEFFICIENT = -0.7383092


def of_fit(ids):
    return LSTD(0.9).fit(X, VALUES["y"], episode=ids, terminated=VALUES["end"]).coef_


@pytest.mark.parametrize("make", [numbers, text])
def test_what_a_series_holds_is_read_as_the_series(make):
    """Arrays and indices of pandas, and slices of Arrow."""
    values = VALUES["e"]
    for name, maker in make(values).items():
        column = maker()
        if isinstance(column, pa.Array) and name != "arrow runs":
            others = [pa.concat_arrays([column[:1], column])[1:]]
        elif isinstance(column, pd.Series):
            others = [column.array, pd.Index(column)]
        else:
            continue
        for other in others:
            assert of_fit(other) == pytest.approx([COEFFICIENT], rel=1e-6), name


def test_features_of_one_column_are_refused_by_their_shape():
    with pytest.raises(InvalidInputError, match=r"`X` must have shape \(n_rows, n_features\); got \(6,\)"):
        LSTD(0.9).fit(pd.Series(VALUES["x"]), VALUES["y"])


def test_rewards_that_are_missing_in_a_horizon_row_may_be_of_pandas():
    y = pd.array([1.0, 2.0, 3.0, 1.0, 2.0, None], "Float64")
    arguments = {"episode": VALUES["e"], "terminated": [0, 0, 1, 0, 0, 0]}
    found = LSTD(0.9).fit(X, y, **arguments).coef_
    assert found == pytest.approx(LSTD(0.9).fit(X, y.to_numpy(np.float64, na_value=np.nan), **arguments).coef_)
