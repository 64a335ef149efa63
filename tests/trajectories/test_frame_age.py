"""`from_frame(age=...)`: steps since the subject was first seen, as a further feature."""

import numpy as np
import pandas as pd
import pytest

from lstd import HorizonLSTD, Trajectories
from lstd.errors import InvalidInputError

FRAME = pd.DataFrame(
    {
        "who": [1, 1, 1, 2, 2, 3], "part": [1, 1, 2, 3, 3, 4], "x": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
        "r": [1.0, 0.5, np.nan, 1.0, np.nan, np.nan], "week": [4, 6, 12, 2, 4, 8],
        "day": pd.to_datetime(["2024-01-01", "2024-01-08", "2024-02-05", "2024-01-15", "2024-01-22", "2024-01-01"]),
    }
)  # fmt: skip
ROLES = {"features": ["x"], "reward": "r", "terminated": False}


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"episode": "who"}, [0, 1, 2, 0, 1, 0]),
        ({"episode": "part"}, [0, 1, 0, 0, 1, 0]),
        ({"episode": "part", "time": "week"}, [0, 1, 0, 0, 1, 0]),
        ({"episode": "part", "time": "week", "groups": "who"}, [0, 1, 4, 0, 1, 0]),
        ({"episode": "part", "time": "day", "groups": "who"}, [0, 1, 5, 0, 1, 0]),
    ],
)
def test_it_is_the_time_since_the_first_row_of_the_subject(columns, expected):
    data = Trajectories.from_frame(FRAME, age="since_first", **ROLES, **columns)
    assert list(data.feature_names) == ["x", "since_first"]
    assert data.X[:, 1].tolist() == expected
    assert data.X[:, 0].tolist() == FRAME["x"].tolist()


@pytest.mark.filterwarnings("ignore::lstd.errors.LSTDWarning")
def test_a_model_takes_it():
    data = Trajectories.from_frame(FRAME, age="since_first", episode="who", **ROLES)
    model = HorizonLSTD(2, age="since_first").fit(**data.to_arrays(frame="pandas"))
    assert model.coef_names_.tolist() == ["x", "exp(-since_first)", "x * exp(-since_first)"]


@pytest.mark.parametrize(
    ("age", "more", "message"),
    [
        ("x", {"episode": "who"}, "`age` must be a new name, that of no feature; got 'x'"),
        (3, {"episode": "who"}, "`age` must be a new name"),
    ],
)
def test_what_is_refused(age, more, message):
    with pytest.raises(InvalidInputError, match=message):
        Trajectories.from_frame(FRAME, age=age, **ROLES, **more)


def test_intervals_have_no_steps():
    frame = FRAME.assign(start=[0, 1, 2, 0, 1, 0], stop=[1, 2, 3, 1, 2, 1], died=0)
    with pytest.raises(InvalidInputError, match="`age` must be None with `start` and `stop`"):
        Trajectories.from_frame(
            frame, features=["x"], episode="who", start="start", stop="stop", event="died", age="age"
        )
