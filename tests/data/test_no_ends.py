"""`terminated=False` says that no end was seen: everywhere as an array of False does, and without a question."""

import numpy as np
import pandas as pd
import pytest

from lstd import (
    LSTD,
    LSTDCV,
    TD,
    HorizonLSTD,
    LSTDStatistics,
    RecursiveLSTD,
    Trajectories,
    TrueOnlineTD,
    fit_chunks,
    fit_tables,
)
from lstd.errors import InvalidInputError, MissingTerminationWarning
from lstd.inference import ReturnSpread
from lstd.metrics import backtest, observed_returns
from lstd.ope import LSTDQ, evaluate_policy, importance_sampling
from lstd.report import write_fit_report

T, GAMMA = 240, 0.5
random = np.random.default_rng(0)
X = random.normal(size=(T, 2))
EPISODE = np.arange(T) // 6
LAST = np.arange(T) % 6 == 5
Y = np.where(LAST, np.nan, X[:, 0] + random.normal(size=T))
ROWS = {"episode": EPISODE}
FITTED = LSTD(GAMMA).fit(X, Y, **ROWS, terminated=np.zeros(T, bool))
STEPS = HorizonLSTD(3, gamma=GAMMA).fit(X, Y, **ROWS, terminated=np.zeros(T, bool))
TABLE = pd.DataFrame(X, columns=["a", "b"]).assign(
    y=Y, id=EPISODE, week=np.arange(T) % 6, done=False, cut=LAST, action=random.integers(2, size=T)
)
POLICY = {
    "actions": TABLE["action"].to_numpy(),
    "target_policy": np.full((T, 2), 0.5),
    "behavior_probability": np.full(T, 0.5),
}

ARRAYS = {
    "LSTD.fit": lambda end: LSTD(GAMMA).fit(X, Y, **ROWS, terminated=end).coef_,
    "LSTD.partial_fit": lambda end: LSTD(GAMMA).partial_fit(X, Y, **ROWS, terminated=end).coef_,
    "LSTD.fit, one stream": lambda end: LSTD(GAMMA).fit(X[:6], Y[:6], terminated=end).coef_,
    "LSTD.fit, X_next": lambda end: LSTD(GAMMA, 0.0).fit(X, X[:, 0], X_next=X[::-1], terminated=end).coef_,
    "LSTD.score": lambda end: FITTED.score(X, Y, **ROWS, terminated=end),
    "LSTD.bias_check": lambda end: FITTED.bias_check(X, Y, **ROWS, terminated=end).p_value,
    "LSTD.misfit_check": lambda end: FITTED.misfit_check(X, Y, **ROWS, terminated=end).p_value,
    "LSTDCV.fit": lambda end: LSTDCV(GAMMA).fit(X, Y, **ROWS, terminated=end).coef_,
    "HorizonLSTD.fit": lambda end: HorizonLSTD(3).fit(X, Y, **ROWS, terminated=end).coef_,
    "HorizonLSTD.partial_fit": lambda end: HorizonLSTD(3).partial_fit(X, Y, **ROWS, terminated=end).coef_,
    "HorizonLSTD.score": lambda end: STEPS.score(X, Y, **ROWS, terminated=end),
    "HorizonLSTD.observed_returns": lambda end: STEPS.observed_returns(X, Y, **ROWS, terminated=end).returns,
    "ReturnSpread.fit": lambda end: ReturnSpread(FITTED).fit(X, Y, **ROWS, terminated=end).predict_interval(X).upper,
    "LSTDStatistics": lambda end: LSTDStatistics.from_arrays(X, Y, gamma=0.5, lmbda=0.9, **ROWS, terminated=end).A,
    "Trajectories": lambda end: Trajectories(X, Y, **ROWS, terminated=end).terminated,
    "RecursiveLSTD": lambda end: RecursiveLSTD(2, GAMMA).partial_fit(X, Y, **ROWS, terminated=end).weights,
    "TD": lambda end: TD(2, GAMMA, step_size=0.1).partial_fit(X, Y, **ROWS, terminated=end).weights,
    "TrueOnlineTD": lambda end: TrueOnlineTD(2, GAMMA, step_size=0.1).partial_fit(X, Y, **ROWS, terminated=end).weights,
    "observed_returns": lambda end: observed_returns(Y, gamma=0.5, **ROWS, terminated=end, prediction=X[:, 0]).returns,
    "backtest": lambda end: backtest(
        LSTD(GAMMA), X, Y, cut=3, steps=2, time=np.arange(T) % 6, **ROWS, terminated=end
    ).observed,
    "LSTDQ": lambda end: LSTDQ(GAMMA).fit(X, Y, **POLICY, **ROWS, terminated=end).action_values(X),
    "evaluate_policy": lambda end: evaluate_policy(X, Y, gamma=GAMMA, **POLICY, **ROWS, terminated=end).value,
    "importance_sampling": lambda end: importance_sampling(X, Y, gamma=GAMMA, **POLICY, **ROWS, terminated=end).value,
    "fit_chunks": lambda end: fit_chunks(
        [{"X": X[part], "y": Y[part], "episode": EPISODE[part], "terminated": end if end is False else end[part]}
         for part in (slice(0, 90), slice(90, T))], gamma=GAMMA
    ).coef_,
}  # fmt: skip
TABLES = {
    "from_frame": lambda end: Trajectories.from_frame(
        TABLE, features=["a", "b"], reward="y", episode="id", terminated=end
    ).terminated,
    "from_frame, truncated": lambda end: Trajectories.from_frame(
        TABLE, features=["a", "b"], reward="y", episode="id", terminated=end, truncated="cut"
    ).terminated,
    "fit_tables": lambda end: fit_tables(
        TABLE, features=["a", "b"], reward="y", episode="id", gamma=0.5, terminated=end
    ).coef_,
    "fit_tables, truncated": lambda end: fit_tables(
        TABLE, features=["a", "b"], reward="y", episode="id", gamma=0.5, terminated=end, truncated="cut"
    ).coef_,
    "fit_tables, horizon": lambda end: fit_tables(
        TABLE, features=["a", "b"], reward="y", episode="id", gamma=0.5, terminated=end, horizon=3
    ).coef_,
    "from_events": lambda end: Trajectories.from_events(
        TABLE.fillna(0.0), episode="id", time="week", step=1.0, until=6.0, terminated=end
    ).terminated,
    "backtest": lambda end: backtest(
        LSTD(GAMMA), TABLE, cut=3, steps=2, features=["a"], reward="y", episode="id", time="week", terminated=end
    ).observed,
}  # fmt: skip


@pytest.mark.usefixtures("few_trees", "few_pairs")
@pytest.mark.filterwarnings("ignore::lstd.errors.EffectiveSampleWarning")  # of forty episodes
@pytest.mark.parametrize("door", ARRAYS)
def test_false_alone_is_an_array_of_false(door):
    n = 6 if "one stream" in door else T
    expected = ARRAYS[door](np.zeros(n, bool))
    for flag in (False, np.False_):
        if door == "fit_chunks" and flag is not False:
            continue
        np.testing.assert_array_equal(ARRAYS[door](flag), expected)


@pytest.mark.parametrize("door", TABLES)
def test_false_alone_is_a_column_of_false(door):
    expected = TABLES[door]("done")
    for flag in (False, np.False_):
        np.testing.assert_array_equal(TABLES[door](flag), expected)


@pytest.mark.parametrize("flag", [True, np.True_, 0, 1, 0.0, np.int64(0)])
def test_other_single_flags_are_refused(flag):
    for act in (*ARRAYS.values(), *TABLES.values()):
        if act is ARRAYS["fit_chunks"]:
            continue
        with pytest.raises(InvalidInputError, match=r"`terminated` must be .*, or False alone.* no end was seen; got"):
            act(flag)
    with pytest.raises(InvalidInputError, match=r"`source\[0\]`.*or False alone"):
        fit_chunks([{"X": X, "y": Y, "episode": EPISODE, "terminated": flag}], gamma=GAMMA)


def test_a_report_does_not_say_that_ends_were_assumed(tmp_path):
    write_fit_report(tmp_path / "page.html", FITTED, X, Y, **ROWS, terminated=False)
    assert "was not given" not in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_the_question_proposes_it():
    with pytest.warns(MissingTerminationWarning, match=r"Were ends seen\?.* If no end was seen.*`terminated=False`"):
        LSTD(GAMMA).fit(X, Y, **ROWS)


def test_an_event_says_who_ended():
    intervals = {"features": "a", "episode": "id", "start": "week", "stop": "done", "event": "done"}
    with pytest.raises(InvalidInputError, match="`terminated` must be None with `event`"):
        Trajectories.from_frame(TABLE, **intervals, terminated=False)
