"""Models of the next steps in the shell and from tables."""

import json

import numpy as np
import pandas as pd
import pytest

import lstd
from lstd import LSTD, HorizonLSTD
from lstd.cli.app import run
from lstd.errors import InvalidInputError
from lstd.metrics import backtest

pytestmark = pytest.mark.filterwarnings("ignore::lstd.errors.LSTDWarning")  # of small noisy data
FIT = ["fit", "rows.csv", "--features", "a,b", "--reward", "r", "--episode", "who", "--terminated", "end", "--quiet"]
NAMES = {"features": ["a", "b"], "reward": "r", "episode": "who", "terminated": "end"}


@pytest.fixture(autouse=True)
def rows(tmp_path, monkeypatch):
    """A table of 30 episodes of ten steps, of which every second one ended."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    frame = pd.DataFrame(random.normal(size=(300, 3)), columns=["a", "b", "r"])
    frame = frame.assign(who=np.arange(300) // 10, end=(np.arange(300) % 20 == 19).astype(int))
    frame.to_csv("rows.csv", index=False)
    return frame


def expected(rows, **parameters):
    columns = {"episode": rows["who"], "terminated": rows["end"]}
    return HorizonLSTD(6, **parameters).fit(rows[["a", "b"]], rows["r"], **columns)


def test_a_fit_to_tables_is_that_of_the_rows(rows):
    model, whole = lstd.fit_tables("rows.csv", gamma=1.0, horizon=6, **NAMES), expected(rows)
    np.testing.assert_allclose(model.coef_, whole.coef_, rtol=1e-10)
    assert model.feature_names_in_.tolist() == ["a", "b"]
    assert (model.n_transitions_, model.n_episodes_) == (whole.n_transitions_, whole.n_episodes_)
    rows[:95].to_csv("one.csv", index=False)
    rows[95:].to_csv("two.csv", index=False)
    for source in (["one.csv", "two.csv"], rows, [rows[:95], rows[95:]]):
        model = lstd.fit_tables(source, gamma=1.0, horizon=6, **NAMES)
        np.testing.assert_allclose(model.coef_, whole.coef_, rtol=1e-10)
        one, two = (each.predict_interval(rows[["a", "b"]]) for each in (model, whole))
        np.testing.assert_allclose(one.upper, two.upper, rtol=1e-8)
    factors = lstd.fit_tables("rows.csv", gamma=1.0, horizon=6, penalty=[2.0, 0.5], **NAMES)
    np.testing.assert_allclose(factors.ridge_, [2.0, 0.5])
    factors.save("factors")
    assert lstd.load("factors").penalty == (2.0, 0.5)
    with pytest.raises(InvalidInputError, match="`penalty` needs `horizon`"):
        lstd.fit_tables("rows.csv", gamma=1.0, penalty="raw", **NAMES)
    with pytest.raises(InvalidInputError, match="`n_jobs` must not be given with `horizon`"):
        lstd.fit_tables("rows.csv", gamma=1.0, horizon=6, n_jobs=2, **NAMES)


def test_checks_of_tables_are_those_of_the_rows_whatever_the_chunks():
    """Two cohorts, one after the other in the table; the second alone depends on the age."""
    random = np.random.default_rng(0)
    frame = pd.DataFrame(random.normal(size=(6000, 2)), columns=["a", "b"])
    age = np.arange(6000) % 20
    late = np.arange(6000) >= 3000
    frame = frame.assign(who=np.arange(6000) // 20, end=0, day=age + 5 * late + np.arange(6000) // 20 % 7)
    frame["r"] = frame["a"] + random.normal(size=6000) + 6.0 * late * np.exp(-age / 4.0)
    columns = {"episode": frame["who"], "terminated": frame["end"]}
    whole = HorizonLSTD(6).fit(frame[["a", "b"]], frame["r"], **columns, time=frame["day"])
    assert whole.misfit_check_.misfit
    for size in (577, 3000, 6000):
        tables = [frame[first : first + size] for first in range(0, 6000, size)]
        model = lstd.fit_tables(tables, gamma=1.0, horizon=6, time="day", **NAMES)
        np.testing.assert_allclose(model.misfit_check_.p_value, whole.misfit_check_.p_value, rtol=1e-6)
        np.testing.assert_allclose(model.bias_check_.p_value, whole.bias_check_.p_value, rtol=1e-6)
        assert model.model_.held_out.n_rows == whole.model_.held_out.n_rows
        np.testing.assert_allclose(model.model_.held_out.score, whole.model_.held_out.score, rtol=1e-6)
        np.testing.assert_allclose(model.model_.naive.ratio, whole.model_.naive.ratio, rtol=1e-6)


def test_the_shell_has_intervals_of_what_comes(rows, capsys):
    assert run([*FIT, "--gamma", "1", "--horizon", "6", "-o", "model"]) == 0
    predict = ["predict", "model", "rows.csv", "--quiet", "--horizon", "3"]
    assert run([*predict, "--interval", "0.9", "--of", "return", "-o", "out.csv"]) == 0
    found = pd.read_csv("out.csv")
    interval = expected(rows).predict_interval(rows[["a", "b"]], 0.9, horizon=3, of="return")
    np.testing.assert_allclose(found["upper"], interval.upper, rtol=1e-8)
    capsys.readouterr()
    assert run([*predict, "--of", "return"]) == 2
    assert "`--of` needs `--interval`" in capsys.readouterr().err
    assert run([*predict, "--interval", "0.9", "--of", "total"]) == 2
    assert "`--of` must be one of 'mean', 'return'" in capsys.readouterr().err
    assert run([*FIT, "--gamma", "1", "--horizon", "6", "--no-check", "-o", "unchecked"]) == 0
    assert run(["predict", "unchecked", "rows.csv", "--interval", "0.9", "--of", "return"]) == 2
    assert "check=True" in capsys.readouterr().err


def test_the_shell_fits_and_predicts_several_horizons(rows, capsys):
    assert run([*FIT, "--gamma", "1", "--horizon", "6", "--lmbda", "auto", "--penalty", "raw", "-o", "model"]) == 0
    out = capsys.readouterr().out
    assert "horizon         6" in out
    assert "penalty         raw" in out
    whole = expected(rows, lmbda="auto", penalty="raw")
    assert (lstd.load("model").penalty, lstd.load("model").alpha_) == ("raw", 1.0)
    more = ["--interval", "0.9", "--contributions", "-o", "out.csv"]
    assert run(["predict", "model", "rows.csv", "--horizon", "2,6", *more]) == 0
    out = pd.read_csv("out.csv")
    assert out.columns[:5].tolist() == ["prediction_2", "lower_2", "upper_2", "standard_error_2", "little_data_2"]
    np.testing.assert_allclose(out["prediction_2"], whole.predict(rows[["a", "b"]], horizon=2), rtol=1e-8)
    np.testing.assert_allclose(out["lower_6"], whole.predict_interval(rows[["a", "b"]], level=0.9).lower, rtol=1e-8)
    parts = out[["at_means_6", "contribution_a_6", "contribution_b_6"]].sum(axis=1)
    np.testing.assert_allclose(parts, out["prediction_6"], rtol=1e-8)
    assert run(["predict", "model", "rows.csv", "--horizon", "6,2-6,0-3", "-o", "windows.csv"]) == 0
    out = pd.read_csv("windows.csv")
    assert out.columns.tolist() == ["prediction_6", "prediction_2-6", "prediction_3"]
    np.testing.assert_allclose(out["prediction_2-6"], whole.predict(rows[["a", "b"]], (2, 6)), rtol=1e-8)
    for wrong in ("6-2", "2-", "-3", "a-b"):
        assert run(["predict", "model", "rows.csv", "--horizon", wrong]) == 2
    capsys.readouterr()
    assert run(["predict", "model", "rows.csv", "--id", "who"]) == 0
    assert capsys.readouterr().out.startswith("who,prediction\n0,")
    assert run(["inspect", "model", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["horizon"] == 6


def test_contributions_in_files_add_up_with_what_the_bounds_change(rows):
    assert run([*FIT, "--gamma", "1", "--horizon", "6", "--low", "3", "--high", "4", "-o", "model"]) == 0
    assert run(["predict", "model", "rows.csv", "--horizon", "2,6", "--contributions", "-o", "out.csv"]) == 0
    out = pd.read_csv("out.csv")
    for h in (2, 6):
        parts = [f"at_means_{h}", f"contribution_a_{h}", f"contribution_b_{h}", f"by_bounds_{h}"]
        np.testing.assert_allclose(out[parts].sum(axis=1), out[f"prediction_{h}"], rtol=1e-8)
    assert out["by_bounds_6"].any()


def test_the_shell_scores_the_sums_of_steps(rows, capsys):
    assert run([*FIT, "--gamma", "1", "--horizon", "6", "-o", "model"]) == 0
    capsys.readouterr()
    assert run(["score", "model", "rows.csv", "--horizon", "2,6", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["horizons"]
    model, columns = expected(rows), {"episode": rows["who"], "terminated": rows["end"]}
    for h in (2, 6):
        one, returns = found[str(h)], model.observed_returns(rows[["a", "b"]], rows["r"], horizon=h, **columns)
        r2 = model.score(rows[["a", "b"]], rows["r"], horizon=h, **columns)
        assert one["rewards"]["r"]["r2"] == pytest.approx(r2)
        assert one["observed_share"] == pytest.approx(returns.share)
        assert (one["rows"], one["scored"]) == (300, 285)
    assert run(["score", "model", "rows.csv", "--unobserved", "ipcw"]) == 0
    assert "6 steps: " in capsys.readouterr().out


@pytest.mark.parametrize("horizon", [6, None])
def test_the_shell_backtests_both_kinds_of_models(rows, capsys, horizon):
    frame = rows.assign(day=pd.Timestamp("2024-01-01") + pd.to_timedelta(np.arange(300) % 10, "D"), end=0)
    frame.to_csv("rows.csv", index=False)
    given = ["--horizon", str(horizon)] if horizon else []
    assert run([*FIT, "--gamma", "0.9", "--time", "day", *given, "-o", "model"]) == 0
    capsys.readouterr()
    assert run(["score", "model", "rows.csv", "--backtest", "2024-01-05", "--horizon", "2,3", "--json", "--quiet"]) == 0
    found = json.loads(capsys.readouterr().out)["backtests"]
    kind = HorizonLSTD(6, gamma=0.9) if horizon else LSTD(0.9)
    columns = {"episode": frame["who"], "terminated": frame["end"], "time": frame["day"]}
    for steps, one in zip((2, 3), found, strict=True):
        whole = backtest(kind, frame[["a", "b"]], frame["r"], cut="2024-01-05", steps=steps, **columns)
        assert (one["steps"], one["rows"], one["cut"]) == (steps, 30, "2024-01-05")
        assert one["r2"] == pytest.approx(whole.r2)
        assert one["own_mean_r2"] == pytest.approx(whole.own_mean_r2)
        assert one["predicted"] == pytest.approx(whole.predicted.sum())
    assert run(["score", "model", "rows.csv", "--backtest", "2024-01-05", "--horizon", "3"]) == 0
    assert "r: Backtest over 3 steps" in capsys.readouterr().out
    cuts = ["score", "model", "rows.csv", "--backtest", "2024-01-05, 2024-01-04", "--horizon", "3", "--quiet"]
    assert run([*cuts, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["backtests"]
    whole = backtest(kind, frame[["a", "b"]], frame["r"], cut=["2024-01-04", "2024-01-05"], steps=3, **columns)
    assert [one["cut"] for one in found] == ["2024-01-04", "2024-01-05"]
    assert [one["r2"] for one in found] == [pytest.approx(one.r2) for one in (*whole.earlier, whole)]
    assert run(cuts) == 0
    assert "Choose by the latest cut." in capsys.readouterr().out
    for value, rule in (("2034-01-05", "must lie between"), ("2024-01-05,A", "must hold numbers or dates")):
        assert run(["score", "model", "rows.csv", "--backtest", value, "--horizon", "3"]) == 2
        assert f"`--backtest` {rule}" in capsys.readouterr().err


def test_a_model_with_an_age_is_scored_by_the_features_as_they_are_given(rows, capsys):
    """The columns that replace the age are in no table."""
    day = np.arange(300) % 10
    frame = rows.assign(day=day, since_first=day + rows["who"] % 3, end=0)
    frame.to_csv("rows.csv", index=False)
    names = ["a", "since_first", "b"]
    fit = ["fit", "rows.csv", "--features", ",".join(names), *FIT[4:]]
    assert run([*fit, "--gamma", "1", "--horizon", "6", "--time", "day", "--age", "since_first", "-o", "model"]) == 0
    capsys.readouterr()
    columns = {"episode": frame["who"], "terminated": frame["end"]}
    model = HorizonLSTD(6, age="since_first").fit(frame[names], frame["r"], **columns)
    assert run(["score", "model", "rows.csv", "--horizon", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["horizons"]["2"]
    assert found["rewards"]["r"]["r2"] == pytest.approx(model.score(frame[names], frame["r"], horizon=2, **columns))
    assert run(["score", "model", "rows.csv", "--backtest", "4", "--horizon", "3", "--json", "--quiet"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["backtests"]
    whole = backtest(model, frame[names], frame["r"], cut=4, steps=3, time=frame["day"], **columns)
    assert found["predicted"] == pytest.approx(whole.predicted.sum())


def test_steps_of_tables_must_be_equal(rows):
    day = pd.Timestamp("2024-01-01") + pd.to_timedelta(np.arange(300) % 10, "D")
    frame = rows.assign(day=day.astype(str))
    lstd.fit_tables(frame, gamma=1.0, horizon=6, time="day", **NAMES)
    frame.loc[9, "day"] = "2024-01-12"
    with pytest.raises(InvalidInputError, match=r"row 9, `time` grows by 3 times the usual step.*from_events"):
        lstd.fit_tables(frame, gamma=1.0, horizon=6, time="day", **NAMES)
    for name, part in (("one.csv", frame[:9]), ("two.csv", frame[9:])):
        part.to_csv(name, index=False)
    with pytest.raises(InvalidInputError, match=r"two.csv.*at row 0, `time` grows by 3 times"):
        lstd.fit_tables(["one.csv", "two.csv"], gamma=1.0, horizon=6, time="day", **NAMES)


def test_bounds_of_a_model_hold_for_tables(rows):
    assert run([*FIT, "--gamma", "1", "--horizon", "6", "--low", "0", "--high", "0.5", "-o", "model"]) == 0
    assert run(["predict", "model", "rows.csv", "--horizon", "3", "-o", "out.csv"]) == 0
    found = pd.read_csv("out.csv")["prediction"]
    assert found.min() == 0.0
    assert found.max() <= 0.5


def test_errors_are_one_line(rows, capsys):
    expected(rows).save("model")
    lstd.fit_tables("rows.csv", gamma=0.5, **NAMES).save("plain")
    for words, message in (
        ([*FIT, "--gamma", "1", "--horizon", "0", "-o", "new"], "`--horizon` must be"),
        ([*FIT, "--gamma", "1", "--horizon", "3", "--variant", "mixed", "-o", "new"], "`--variant` must not be given"),
        (
            [*FIT, "--gamma", "1", "--low", "0", "-o", "new"],
            "`--low`, `--high`, `--penalty` and `--age` need `--horizon`",
        ),
        (["predict", "plain", "rows.csv", "--horizon", "3"], "needs a model that `lstd fit --horizon` wrote"),
        (["predict", "model", "rows.csv", "--horizon", "7"], "`--horizon` must be"),
        (["predict", "model", "rows.csv", "--horizon", "a"], "`--horizon` must be"),
        (["score", "model", "rows.csv", "--horizon", "7"], "`--horizon` must be at most 6"),
        (["score", "plain", "rows.csv", "--horizon", "7"], "`--horizon` needs `--backtest`"),
        (["score", "plain", "rows.csv", "--backtest", "5", "--time", "who"], "and `--horizon` with the number"),
    ):
        assert run(words) == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1


def test_the_shell_leaves_out_the_checks_of_a_model_of_steps(rows, capsys):
    for more, ran in (([], True), (["--no-check"], False)):
        assert run([*FIT, "--gamma", "1", "--horizon", "6", "--force", "-o", "model", *more]) == 0
        capsys.readouterr()
        model = lstd.load("model")
        assert model.check is ran
        assert isinstance(model.misfit_check_, str) is not ran
    assert run([*FIT, "--gamma", "1", "--no-check", "--force", "-o", "model"]) == 2
    assert "`--no-check` needs `--horizon`" in capsys.readouterr().err
