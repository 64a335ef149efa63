"""A variant is its share of the boundary terms: one more line in the table of shares works at every entry point."""

import re

import numpy as np
import pandas as pd
import pytest

import lstd
import naive
from lstd import LSTD, LSTDCV, LSTDStatistics, RecursiveLSTD, fit_chunks, fit_tables
from lstd.cli.app import run as main
from lstd.data.variants import SHARES, VARIANT, VARIANTS
from lstd.ope import LSTDQ
from tolerances import assert_close

pytestmark = pytest.mark.filterwarnings("ignore::lstd.errors.LSTDWarning")

GAMMA, LMBDA, ALPHA = 0.9, 0.6, 0.5
N_EPISODES, LENGTH = 40, 5
T = N_EPISODES * LENGTH
RANDOM = np.random.default_rng(3)
X = RANDOM.normal(size=(T, 2))
Y = 1.0 + X[:, 0] + RANDOM.normal(size=T)
EPISODE = np.repeat(np.arange(N_EPISODES), LENGTH)
TERMINATED = (np.arange(T) % LENGTH == LENGTH - 1) & (EPISODE % 4 == 0)  # the others are cut off
ROWS = {"episode": EPISODE, "terminated": TERMINATED}
SETTINGS = {"gamma": GAMMA, "lmbda": LMBDA, "alpha": ALPHA, "variant": "half"}


@pytest.fixture(autouse=True)
def half(monkeypatch):
    monkeypatch.setitem(SHARES, "half", lambda lmbda: 0.5 * (1.0 - lmbda))


@pytest.fixture
def expected():
    """Weights without an intercept, where A_half = (A_Uncorrected + A_Mixed)/2."""
    sums = LSTDStatistics.from_arrays(X, Y, gamma=GAMMA, lmbda=LMBDA, **ROWS)
    A = 0.5 * (sums.matrix("uncorrected") + sums.matrix("mixed"))
    return np.linalg.solve(A + ALPHA * np.eye(2), sums.b[:, 0])


def test_a_new_variant_in_every_estimator(expected):
    model = LSTD(**SETTINGS, fit_intercept=False).fit(X, Y, **ROWS)
    assert_close(model.coef_, expected, "solve")
    assert (
        abs(model.coef_ - LSTD(**{**SETTINGS, "variant": "mixed"}, fit_intercept=False).fit(X, Y, **ROWS).coef_).max()
        > 1e-4
    )
    stream = LSTD(**SETTINGS, fit_intercept=False)
    for rows in (slice(0, 63), slice(63, T)):
        stream.partial_fit(X[rows], Y[rows], **{name: values[rows] for name, values in ROWS.items()})
    assert_close(stream.coef_, expected, "solve")
    iterative = LSTD(**SETTINGS, fit_intercept=False, solver="iterative", tol=1e-12).fit(X, Y, **ROWS)
    np.testing.assert_allclose(iterative.coef_, expected, rtol=1e-8)
    assert_close(fit_chunks([{"X": X, "y": Y, **ROWS}], **SETTINGS, fit_intercept=False).coef_, expected, "solve")


def test_a_new_variant_of_merged_sums(expected):
    first = LSTDStatistics.from_arrays(X[:63], Y[:63], gamma=GAMMA, lmbda=LMBDA, **{k: v[:63] for k, v in ROWS.items()})
    second = LSTDStatistics.from_arrays(
        X[63:], Y[63:], gamma=GAMMA, lmbda=LMBDA, **{k: v[63:] for k, v in ROWS.items()}
    )
    assert_close(first.then(second).solve(ALPHA, "half").weights, expected, "solve")


def test_a_new_variant_of_a_live_stream():
    online = RecursiveLSTD(2, GAMMA, LMBDA, ALPHA, variant="half")
    for t in range(30):
        online.update(X[t], Y[t], X[t + 1])
    sums = LSTDStatistics.from_arrays(X[:31], Y[:31], gamma=GAMMA, lmbda=LMBDA)
    expected = np.linalg.solve(
        sums.A + ALPHA * np.eye(2) - 0.5 * (1 - LMBDA) * (sums.A - sums.matrix("boyan")), sums.b[:, 0]
    )
    assert_close(online.weights, expected, "solve")
    assert_close(
        RecursiveLSTD(2, GAMMA, LMBDA, ALPHA).partial_fit(X[:31], Y[:31]).weights_for("half"), expected, "solve"
    )


def test_a_new_variant_chosen_compared_and_saved(tmp_path):
    chosen = LSTDCV(GAMMA, variant="half", cv=3).fit(X, Y, **ROWS)
    same = LSTD(GAMMA, chosen.lmbda_, chosen.alpha_, "half").fit(X, Y, **ROWS)
    assert chosen.variant == "half"
    assert np.isfinite(chosen.predict_interval(X[:3]).lower).all()
    assert np.isfinite(same.predict_interval(X[:3]).lower).all()
    same.save(tmp_path / "model")
    assert (lstd.load(tmp_path / "model").predict(X) == same.predict(X)).all()


def test_a_new_variant_of_action_values():
    actions = RANDOM.integers(2, size=T)
    rows = {"actions": actions, "target_policy": np.full((T, 2), 0.5), "behavior_probability": np.full(T, 0.5), **ROWS}
    model = LSTDQ(GAMMA, LMBDA, alpha=ALPHA, variant="half", fit_intercept=False).fit(X, Y, **rows)
    sums = LSTDQ(GAMMA, LMBDA, alpha=ALPHA, fit_intercept=False).fit(X, Y, **rows).lstd_.statistics_
    A = 0.5 * (sums.matrix("uncorrected") + sums.matrix("mixed"))
    assert_close(model.coef_, np.linalg.solve(A + ALPHA * np.eye(4), sums.b[:, 0]), "solve")


def test_a_new_variant_in_the_shell_and_of_tables(tmp_path, capsys):
    table = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "r": Y, "id": EPISODE, "done": TERMINATED.astype(int)})
    table.to_csv(tmp_path / "t.csv", index=False)
    out = tmp_path / "model"
    options = f"--reward r --gamma {GAMMA} --lmbda {LMBDA} --alpha {ALPHA} --variant half --features a,b --episode id"
    assert main(["fit", str(tmp_path / "t.csv"), *options.split(), "--terminated", "done", "--out", str(out)]) == 0
    names = {"reward": "r", "features": ["a", "b"], "episode": "id", "terminated": "done"}
    of_table = fit_tables(table, **names, **SETTINGS)
    expected = LSTD(**SETTINGS).fit(X, Y, **ROWS).coef_
    assert_close(of_table.coef_, expected, "solve")
    assert_close(lstd.load(out).coef_, expected, "solve")
    assert lstd.load(out).variant == "half"


def test_the_variants_are_said_once():
    """The docstring of LSTD lists those of the table, and so do the definitions."""
    del SHARES["half"]
    listed = re.search(r"variant : \{(.*)\}", LSTD.__doc__)[1]
    assert tuple(re.findall(r'"(\w+)"', listed)) == VARIANTS == tuple(SHARES) == naive.VARIANTS
    assert VARIANT in VARIANTS
    listed = ", ".join(map(repr, naive.VARIANTS))
    with pytest.raises(lstd.errors.InvalidInputError, match=f"{listed}; got 'half'"):
        LSTD(variant="half").fit(X, Y)
