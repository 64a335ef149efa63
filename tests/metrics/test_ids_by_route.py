"""Ids of every type: the same folds, blocks, values and scores on routes beside `fit`."""

import datetime as dt
import uuid

import numpy as np
import pytest

from lstd import LSTD, LSTDCV, HorizonLSTD, LSTDStatistics, Trajectories, fit_chunks
from lstd.metrics import backtest, calibration
from lstd.ope import LSTDQ, StateActionFeatures, importance_sampling, policy_value

N, LENGTH = 40, 10
T = N * LENGTH
RNG = np.random.default_rng(0)
X = RNG.normal(size=(T, 2))
NUMBER, STEP = np.divmod(np.arange(T), LENGTH)
ENDS = STEP == LENGTH - 1
COMPLETE = X[:, 0] + RNG.normal(size=T)
CUT = ENDS & (NUMBER % 2 == 1)
Y = np.where(CUT, np.nan, COMPLETE)
TERMINATED = ENDS & ~CUT
ACTIONS, POLICY = RNG.integers(0, 2, T), np.full((T, 2), 0.5)
PARTS = [slice(0, 95), slice(95, 233), slice(233, T)]


def objects(names):
    return np.fromiter(names, dtype=object, count=T)


IDS = {
    "text of integers": NUMBER.astype(str),
    "text": np.array([f"customer {i:03d}" for i in NUMBER]),
    "several types": objects([(int(i), f"{i}.0", float(i))[j % 3] for j, i in enumerate(NUMBER)]),
    "tuples": objects([("a", int(i)) for i in NUMBER]),
    "times": np.datetime64("2024-01-01", "ns") + NUMBER * np.timedelta64(1, "D"),
    "dates": objects([dt.date(2024, 1, 1) + dt.timedelta(int(i)) for i in NUMBER]),
    "UUIDs": objects([uuid.UUID(int=int(i)) for i in NUMBER]),
    "bytes": objects([b"\xff%d" % i for i in NUMBER]),
    "floats": NUMBER + 0.5,
    "large integers": NUMBER.astype(object) + 10**30,
    "booleans and text": objects([bool(i) if i < 2 else f"x{i}" for i in NUMBER]),
}


def of_groups(ids):
    return LSTD(0.9).fit(X, Y, episode=NUMBER, terminated=TERMINATED, groups=ids).coef_covariance_


def of_choice(ids):
    return LSTDCV(0.9, lmbdas=[0.0, 0.9], alphas=[1.0, 16.0]).fit(X, Y, episode=ids, terminated=TERMINATED).coef_


def of_horizons(ids):
    return HorizonLSTD(3, 0.9, check=False).fit(X, Y, episode=ids, terminated=TERMINATED, groups=ids).coef_


def of_statistics(ids):
    parts = [
        LSTDStatistics.from_arrays(
            X[part], Y[part], gamma=0.9, lmbda=0.9, episode=ids[part], terminated=TERMINATED[part], groups=ids[part]
        )
        for part in PARTS
    ]
    return parts[0].then(parts[1].then(parts[2])).solve(1.0, "boyan").weights


def of_chunks(ids):
    columns = {"X": X, "y": Y, "episode": ids, "terminated": TERMINATED, "groups": ids}
    chunks = [{name: values[part] for name, values in columns.items()} for part in PARTS]
    return fit_chunks(chunks, gamma=0.9).coef_covariance_


def of_trajectories(ids):
    parts = [Trajectories(X[part], Y[part], ids[part], TERMINATED[part]) for part in (slice(200), slice(200, T))]
    return LSTD(0.9).fit(**Trajectories.concat(parts).to_arrays()).coef_


def of_backtest(ids):
    return backtest(LSTD(0.9), X, COMPLETE, episode=ids, terminated=TERMINATED, time=STEP, cut=5, steps=2).r2


def of_calibration(ids):
    return calibration(X[:, 0], COMPLETE, 5, groups=ids).standard_error


def of_score(ids):
    model = LSTD(0.9).fit(X, Y, episode=NUMBER, terminated=TERMINATED)
    return model.score(X, Y, episode=ids, terminated=TERMINATED)


def of_bias(ids):
    model = LSTD(0.9).fit(X, Y, episode=NUMBER, terminated=TERMINATED)
    return model.bias_check(X, Y, episode=ids, terminated=TERMINATED).p_value


def of_actions(ids):
    model = LSTDQ(0.9, features=StateActionFeatures(2))
    model.fit(X, Y, actions=ACTIONS, target_policy=POLICY, episode=ids, terminated=TERMINATED)
    return policy_value(model).value


def of_importance(ids):
    return importance_sampling(
        X, COMPLETE, actions=ACTIONS, target_policy=POLICY, behavior_probability=np.full(T, 0.5), episode=ids,
        terminated=ENDS, gamma=0.9, estimator="wis",
    ).value  # fmt: skip


ROUTES = [
    of_groups, of_choice, of_horizons, of_statistics, of_chunks, of_trajectories, of_backtest, of_calibration, of_score,
    of_bias, of_actions, of_importance,
]  # fmt: skip


@pytest.mark.filterwarnings("ignore")  # about the data, which are few
@pytest.mark.parametrize("route", ROUTES)
def test_ids_of_every_type_give_the_same(route):
    expected = route(NUMBER)
    for name, ids in IDS.items():
        np.testing.assert_allclose(route(ids), expected, rtol=1e-9, atol=1e-12, err_msg=name)
