"""Columns of every type, by every route: the same numbers, flags, ids and times."""

import numpy as np
import pytest

from lstd import LSTD, HorizonLSTD, Trajectories, fit_tables, load

pd = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")

X = np.array([[1.0], [2.0], [3.0], [1.0], [2.0], [4.0]])
Y = np.array([1.0, 2.0, 3.0, 1.0, 2.0, 3.0])
ENDED = np.array([False, False, True, False, False, True])
COEFFICIENT = -0.7383092


def of_table(frame, **options):
    names = {"features": ["x"], "reward": "y", "episode": "e", "terminated": "end"}
    return fit_tables(frame, gamma=0.9, **names, **options)


def of_trajectories(frame, **options):
    names = {"features": ["x"], "reward": "y", "episode": "e", "terminated": "end"}
    data = Trajectories.from_frame(frame, **names, **options)
    return LSTD(0.9).fit(data.X, data.y, episode=data.episode, terminated=data.terminated)


@pytest.mark.parametrize("fit", [of_table, of_trajectories])
@pytest.mark.parametrize("kind", [">f8", ">f4", ">f2", ">i8", ">i2", ">u4", "<f8", "<u2"])
@pytest.mark.parametrize("column", ["x", "y", "e", "end", "t"])
def test_bytes_in_either_order(column, kind, fit):
    frame = pd.DataFrame({"x": X[:, 0], "y": Y, "e": [1, 1, 1, 2, 2, 2], "end": ENDED, "t": [1, 2, 3, 1, 2, 3]})
    frame = frame.astype({column: kind})
    assert fit(frame).coef_ == pytest.approx([COEFFICIENT], rel=1e-7)
    backwards = frame.iloc[::-1]
    assert fit(backwards, sort=True, time="t").coef_ == pytest.approx([COEFFICIENT], rel=1e-7)


@pytest.mark.parametrize("unit", ["ns", "us", "s", "D"])
@pytest.mark.parametrize("make", [lambda: LSTD(0.9), lambda: HorizonLSTD(2, 0.9)])
def test_times_as_ids_continue_after_a_file(tmp_path, make, unit):
    ids = np.array([0, 0, 0, 0, 1, 1]).astype("M8[D]").astype(f"M8[{unit}]")
    ended = np.array([False] * 5 + [True])
    model = make().partial_fit(X[:2], Y[:2], episode=ids[:2], terminated=ended[:2])
    model.save(tmp_path / "model")
    model = load(tmp_path / "model").partial_fit(X[2:], Y[2:], episode=ids[2:], terminated=ended[2:])
    assert (model.n_episodes_, model.n_transitions_) == (2, 5)


def test_long_numbers_as_ids_continue_whether_they_are_text():
    ids = [1234567890123456789] * 4 + [1234567890123456790] * 2
    frame = pd.DataFrame({"x": X[:, 0], "y": [*Y[:3], np.nan, *Y[4:]], "e": ids, "end": [0, 0, 0, 0, 0, 1]})
    text = frame.astype({"e": str})
    expected = of_table(frame).coef_
    for one, two in ((frame, text), (text, frame), (text, text)):
        assert of_table([one[:2], two[2:]]).coef_ == pytest.approx(expected, rel=1e-12)
        rest = two[2:]
        model = of_table(one[:2]).partial_fit(rest[["x"]], rest["y"], episode=rest["e"], terminated=rest["end"])
        assert (model.n_episodes_, model.coef_) == (2, pytest.approx(expected, rel=1e-12))
