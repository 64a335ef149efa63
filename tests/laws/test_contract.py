"""Each entry point uses each per-row column, refuses it with a remedy, or says that it has no effect there.

Entry points are found from signatures and columns from the contract, so that a new one of either kind fails here until
it has a verdict. A column that no verdict names must be refused.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import pytest
import typer
from matplotlib.collections import Collection
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.text import Text
from sklearn.base import clone

import lstd
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
from lstd.cli.app import app
from lstd.cli.app import run as main
from lstd.data.rows import COLUMNS
from lstd.data.takes import LACKING
from lstd.errors import InvalidInputError
from lstd.inference import ReturnSpread
from lstd.metrics import Backtest, backtest, calibration, observed_returns
from lstd.ope import LSTDQ, evaluate_policy, importance_sampling, policy_value
from lstd.report import plot_calibration, plot_predictions, write_fit_report

pytestmark = [
    pytest.mark.filterwarnings("ignore::lstd.errors.LSTDWarning"),
    pytest.mark.usefixtures("few_trees"),
]

# ------------------------------------------------------------ the rows, and another value of each column

N_EPISODES, LENGTH = 80, 4
T = N_EPISODES * LENGTH
RANDOM = np.random.default_rng(5)
X = np.column_stack([RANDOM.normal(size=T), np.tile(np.arange(LENGTH) / LENGTH, N_EPISODES)])
Y = 3.0 + X[:, 0] + RANDOM.normal(size=T)
EPISODE = np.repeat(np.arange(N_EPISODES), LENGTH)
LAST = np.tile(np.arange(LENGTH) == LENGTH - 1, N_EPISODES)
TERMINATED = LAST & (EPISODE % 3 > 0)  # the others are cut off
ACTIONS = RANDOM.integers(2, size=T)
POLICY = np.full((T, 2), [0.4, 0.6])
HALF = np.full(T, 0.5)

BASE: dict[str, Any] = {"episode": EPISODE, "terminated": TERMINATED}
GIVEN: dict[str, Any] = {
    "episode": np.where(EPISODE < 40, EPISODE, 40 + np.arange(T) // 2),  # half as long in the second half
    "terminated": LAST & (EPISODE % 3 > 1),
    "X_next": np.roll(X, -1, axis=0) + 0.5,
    "discount": np.where(np.arange(T) % 2, 0.5, 0.9),
    "importance_ratio": np.where(ACTIONS, 1.3, 0.7),
    "trace_coefficient": np.where(ACTIONS, 0.2, 0.9),
    "weight": np.where(ACTIONS, 1.5, 0.5),
    "groups": EPISODE // 3,
    "time": np.tile(np.arange(LENGTH), N_EPISODES) + EPISODE % 2,
    "sample_weight": np.where(ACTIONS, 2.0, 1.0),
    "actions": 1 - ACTIONS,
    "behavior_probability": np.where(ACTIONS, 0.45, 0.55),
}
NEW = {name: np.where(ACTIONS, 0.5, 0.25) for name in COLUMNS if name not in GIVEN}  # of the contract, but not above
GIVEN |= NEW
ENDS = {"terminals": TERMINATED, "timeouts": LAST & ~TERMINATED}
BROKEN = {"time": -GIVEN["time"], "importance_ratio": GIVEN["importance_ratio"]}


def rows(columns: dict[str, Any]) -> dict[str, Any]:
    return {"X": X, "y": Y, **BASE, **columns}


def frame(columns: dict[str, Any]) -> pd.DataFrame:
    arrays = {name: values for name, values in (BASE | columns).items() if name != "X_next"}
    table = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": Y, **arrays})
    for j, name in enumerate("ab") if "X_next" in columns else ():
        table[f"next_{name}"] = columns["X_next"][:, j]
    return table


def cut_in_two(columns: dict[str, Any]) -> list[dict[str, Any]]:
    given, half = rows(columns), 41 * LENGTH  # no episode is cut, but in two halves of one that `columns` may have
    parts = slice(0, half), slice(half, T)
    return [{name: values[part] for name, values in given.items()} for part in parts]


# ------------------------------------------------------------ what each entry point computes


@pytest.fixture(scope="module")
def fitted():
    """Models of the rows, for entry points that take a fitted one."""
    models = {
        "lstd": LSTD(gamma=0.9, lmbda=0.5),
        "cv": LSTDCV(gamma=0.9, lmbdas=[0.0, 0.5], alphas=[1.0, 4.0]),
        "horizon": HorizonLSTD(3),
    }
    return {name: model.fit(X, Y, **BASE) for name, model in models.items()}


def numbers(model: Any) -> np.ndarray:
    """Weights, and the ends of intervals of all rows."""
    with contextlib.suppress(InvalidInputError):  # too few blocks
        rows = pd.DataFrame(X[:4], columns=model.feature_names_in_) if hasattr(model, "feature_names_in_") else X[:4]
        interval = model.predict_interval(rows)
        return np.concatenate([np.ravel(model.coef_), interval.lower, interval.upper])
    return np.ravel(model.coef_)


def of_figure(artists: Any) -> np.ndarray:
    axes = artists[0].axes if isinstance(artists, list) else artists.lines[0].axes
    lines = [np.ravel(line.get_xydata()).astype(float) for line in axes.lines]
    segments = [np.ravel(np.ma.filled(path, 0.0)) for each in axes.collections for path in each.get_offsets()]
    labels = " ".join(text.get_text() for text in axes.get_xticklabels())
    return np.nan_to_num(np.concatenate([*lines, *segments, [len(labels)]]))


def points_of(figure: Any) -> bytes:
    """What a figure draws, as numbers and words: to make a picture of it would take most of the time of a page."""
    points = [line.get_xydata() for line in figure.findobj(Line2D)]
    points += [patch.get_path().vertices for patch in figure.findobj(Patch)]
    for drawn in figure.findobj(Collection):
        points += [drawn.get_offsets(), *(path.vertices for path in drawn.get_paths())]
    words = [text.get_text() for text in figure.findobj(Text)]
    return repr([np.ma.filled(each, np.nan).tolist() for each in points] + words).encode()


def of_page(model: Any, columns: dict[str, Any]) -> np.ndarray:
    with tempfile.TemporaryDirectory() as folder, mock.patch("lstd.report.model_page.rendered", points_of):
        page = write_fit_report(f"{folder}/page.html", model, **rows(columns))
        return np.array(page.read_text(encoding="utf-8"))


def of_online(model: Any, columns: dict[str, Any]) -> np.ndarray:
    for chunk in cut_in_two(columns):
        model.partial_fit(**chunk)
    return model.weights


def of_chunks(model: Any, columns: dict[str, Any]) -> np.ndarray:
    for chunk in cut_in_two(columns):
        model.partial_fit(**chunk)
    return numbers(model)


def of_table(columns: dict[str, Any], **options: Any) -> np.ndarray:
    roles = {name: name for name in (*BASE, *columns) if name != "X_next"}
    if "X_next" in columns:
        roles["next_features"] = "next_*"
    return numbers(fit_tables(frame(columns), features=["a", "b"], reward="y", gamma=0.9, **roles, **options))


def of_trajectories(data: Trajectories) -> np.ndarray:
    parts = data[: T // 2], data[T // 2 :]
    joined = Trajectories.concat(parts, renumber=True)
    arrays = joined.to_arrays() | {name: getattr(joined, name) for name in ("actions", "behavior_probability", "time")}
    return np.concatenate([np.nan_to_num(np.ravel(v).astype(float)) for v in arrays.values() if v is not None])


def of_frame(columns: dict[str, Any]) -> np.ndarray:
    columns = {"actions": ACTIONS} | columns
    names = {"actions": "action"}
    roles = {names.get(name, name): name for name in (*BASE, *columns) if name != "X_next"}
    if "X_next" in columns:
        roles["next_features"] = "next_a"
    return of_trajectories(Trajectories.from_frame(frame(columns), features=["a", "b"], reward="y", **roles))


def of_logged(columns: dict[str, Any]) -> dict[str, Any]:
    given = {"actions": ACTIONS, "target_policy": POLICY, "behavior_probability": HALF} | rows(columns)
    return given | ({"target_policy_next": POLICY} if "X_next" in columns else {})


def of_value(found: Any) -> np.ndarray:
    return np.array([found.value, found.lower, found.upper])


def of_results(found: Backtest) -> np.ndarray:
    """The numbers of a backtest at all cuts, with the intervals of its totals."""
    parts = []
    for one in (*found.earlier, found):
        total = one.total
        parts += [one.value, one.observed, one.predicted, one.forecast, one.naive, one.own_mean]
        parts += [[one.r2, one.n_left_out, total.prediction, total.lower, total.upper]]
    return np.concatenate(parts)


CUTS = {"cut": [1, 2], "steps": 2}  # traces act on fits to two transitions, and ends within the steps that follow
TIME = np.tile(np.arange(LENGTH), N_EPISODES)


def of_backtest(columns: dict[str, Any]) -> np.ndarray:
    given = {"time": TIME} | rows(columns)
    return of_results(backtest(LSTD(gamma=0.9, lmbda=0.5), **given, **CUTS))


def of_backtest_of_trajectories(columns: dict[str, Any]) -> np.ndarray:
    data = Trajectories(**{"time": TIME, "actions": ACTIONS} | rows(columns))
    return of_results(backtest(LSTD(gamma=0.9, lmbda=0.5), data, **CUTS))


def of_backtest_of_frame(columns: dict[str, Any]) -> np.ndarray:
    given = {"time": TIME} | columns
    roles = {name: name for name in (*BASE, *given) if name != "X_next"}
    if "X_next" in columns:
        roles["next_features"] = "next_*"
    model = LSTD(gamma=0.9, lmbda=0.5)
    return of_results(backtest(model, frame(given), features=["a", "b"], reward="y", **roles, **CUTS))


def of_calibration(columns: dict[str, Any]) -> np.ndarray:
    table = calibration(X[:, 0], Y, 4, **columns)
    return np.concatenate([table.observed, table.standard_error])


def of_observed(columns: dict[str, Any]) -> np.ndarray:
    return of_returns(observed_returns(Y, gamma=0.9, prediction=X[:, 0], **BASE | columns))


def of_importance_sampling(columns: dict[str, Any]) -> np.ndarray:
    given = of_logged(columns)
    if "importance_ratio" in columns:
        given = rows(columns)
    return of_value(importance_sampling(**given, gamma=0.9))


def of_evaluated(columns: dict[str, Any]) -> np.ndarray:
    given = rows(columns) if "importance_ratio" in columns else of_logged(columns)
    return of_value(evaluate_policy(**given, gamma=0.9))


def of_returns(found: Any) -> np.ndarray:
    return np.concatenate([np.ravel(found.returns), found.weight])


def of_action_values(columns: dict[str, Any]) -> np.ndarray:
    model = LSTDQ(gamma=0.9).fit(**of_logged(columns))
    value = policy_value(model, X[::LENGTH], target_policy=POLICY[::LENGTH])
    return np.concatenate([np.ravel(model.coef_), of_value(value)])


LSTD_ROWS = {"episode", "terminated", "X_next", "discount", "importance_ratio", "trace_coefficient", "weight", "groups"}
PLAIN = {"episode", "terminated", "discount", "weight", "groups"}
ONLINE = {"episode", "terminated", "X_next", "discount"}
LOGGED = {"actions", "behavior_probability"}
SCORED = LSTD_ROWS - {"groups"}
NOT_IN_R2 = {"groups": "R² does not depend on groups"}


@dataclass
class Entry:
    """How an entry point is called, and its verdicts other than "refused"."""

    run: Callable[[dict[str, Any], Any], Any]  # of columns and fitted models
    used: set[str]
    checked: set[str] = field(default_factory=set)  # columns of which only values that break a rule make a difference
    silent: dict[str, str] = field(default_factory=dict)  # columns without effect, with the sentence that says so


def fit_lstd(columns, models):
    return numbers(LSTD(gamma=0.9, lmbda=0.5).fit(**rows(columns)))


def fit_iterative(columns, models):
    return numbers(LSTD(gamma=0.9, lmbda=0.5, solver="iterative", n_blocks=20).fit(**rows(columns)))


def fit_cv(columns, models):
    return numbers(LSTDCV(gamma=0.9, lmbdas=[0.0, 0.5], alphas=[1.0, 4.0]).fit(**rows(columns)))


def fit_horizon(columns, models):
    return numbers(HorizonLSTD(3).fit(**rows(columns)))


def check(method, kind="lstd"):
    def run(columns, models):
        found = getattr(models[kind], method)(**rows(columns))
        return np.array([np.ravel(found.p_value)[0], np.ravel(found.expected)[0]])

    return run


ENTRIES = {
    "LSTD.fit": Entry(fit_lstd, LSTD_ROWS),
    "LSTD.fit, iterative": Entry(fit_iterative, LSTD_ROWS),
    "LSTD.partial_fit": Entry(lambda c, _: of_chunks(LSTD(gamma=0.9, lmbda=0.5), c), LSTD_ROWS),
    "LSTD.score": Entry(lambda c, m: m["lstd"].score(**rows(c)), SCORED | {"sample_weight"}, silent=NOT_IN_R2),
    "LSTD.bias_check": Entry(check("bias_check"), LSTD_ROWS),
    "LSTD.misfit_check": Entry(check("misfit_check"), LSTD_ROWS | {"time"}),
    "LSTDCV.fit": Entry(fit_cv, LSTD_ROWS),
    "HorizonLSTD.fit": Entry(fit_horizon, PLAIN, {"time"}),
    "HorizonLSTD.partial_fit": Entry(lambda c, _: of_chunks(HorizonLSTD(3), c), PLAIN, {"time"}),
    "HorizonLSTD.bias_check": Entry(check("bias_check", "horizon"), PLAIN),
    "HorizonLSTD.misfit_check": Entry(check("misfit_check", "horizon"), PLAIN, {"time"}),
    "HorizonLSTD.score": Entry(
        lambda c, m: m["horizon"].score(**rows(c)), PLAIN - {"groups"} | {"sample_weight"}, silent=NOT_IN_R2
    ),
    "HorizonLSTD.observed_returns": Entry(
        lambda c, m: of_returns(m["horizon"].observed_returns(**rows(c))),
        PLAIN - {"groups"},
        silent={"groups": "returns do not depend on groups"},
    ),
    "ReturnSpread.fit": Entry(lambda c, m: ReturnSpread(m["lstd"]).fit(**rows(c)).predict_std(X[:9]), PLAIN),
    "ReturnSpread.fit, horizon": Entry(
        lambda c, m: ReturnSpread(m["horizon"]).fit(**rows(c)).predict_std(X[:9]), PLAIN
    ),
    "LSTDStatistics.from_arrays": Entry(
        lambda c, _: LSTDStatistics.from_arrays(**rows(c), gamma=0.9, lmbda=0.5).solve(1.0, "boyan").weights,
        LSTD_ROWS - {"groups"},
        silent={"groups": "Sums do not depend on groups"},
    ),
    "fit_chunks": Entry(lambda c, _: numbers(fit_chunks(cut_in_two(c), gamma=0.9, lmbda=0.5)), LSTD_ROWS),
    "fit_tables": Entry(lambda c, _: of_table(c, lmbda=0.5), LSTD_ROWS, {"time"}),
    "fit_tables, horizon": Entry(lambda c, _: of_table(c, horizon=3), PLAIN, {"time"}),
    "RecursiveLSTD.partial_fit": Entry(
        lambda c, _: of_online(RecursiveLSTD(2, gamma=0.9, lmbda=0.5), c), LSTD_ROWS - {"groups"}
    ),
    "TD.partial_fit": Entry(lambda c, _: of_online(TD(2, gamma=0.9, lmbda=0.5), c), ONLINE | {"importance_ratio"}),
    "TrueOnlineTD.partial_fit": Entry(
        lambda c, _: of_online(TrueOnlineTD(2, gamma=0.9, lmbda=0.5), c), ONLINE, {"importance_ratio"}
    ),
    "backtest": Entry(lambda c, _: of_backtest(c), PLAIN | {"time", "trace_coefficient"}),
    "backtest, Trajectories": Entry(
        lambda c, _: of_backtest_of_trajectories(c),
        PLAIN | {"time", "trace_coefficient"},
        silent=dict.fromkeys(LOGGED, "`actions` and `behavior_probability` of Trajectories have no effect"),
    ),
    "backtest, frame": Entry(lambda c, _: of_backtest_of_frame(c), PLAIN | {"time", "trace_coefficient"}),
    "observed_returns": Entry(lambda c, _: of_observed(c), PLAIN - {"groups"} | {"importance_ratio"}),
    "calibration": Entry(lambda c, _: of_calibration(c), {"groups"}),
    "plot_predictions": Entry(
        lambda c, m: of_figure(plot_predictions(m["lstd"], **rows(c))),
        SCORED - {"weight"} | {"time"},
        silent=dict.fromkeys(["groups", "weight"], "does not depend on groups, nor on weights above 0"),
    ),
    "plot_calibration": Entry(
        lambda c, m: of_figure(plot_calibration(m["lstd"], **rows(c))),
        LSTD_ROWS,
        silent={"time": "This figure does not depend on `time`"},
    ),
    "write_fit_report": Entry(lambda c, m: of_page(m["lstd"], c), LSTD_ROWS | {"time"}),
    "LSTDQ.fit": Entry(lambda c, _: of_action_values(c), PLAIN | {"X_next"} | LOGGED),
    "evaluate_policy": Entry(
        lambda c, _: of_evaluated(c), PLAIN - {"weight"} | {"X_next", "importance_ratio"} | LOGGED
    ),
    "importance_sampling": Entry(
        lambda c, _: of_importance_sampling(c), PLAIN - {"weight"} | {"importance_ratio"} | LOGGED
    ),
    "Trajectories": Entry(
        lambda c, _: of_trajectories(Trajectories(**rows({"actions": ACTIONS} | c))),
        LSTD_ROWS - {"X_next"} | {"time"} | LOGGED,
    ),
    "Trajectories.from_arrays": Entry(
        lambda c, _: of_trajectories(Trajectories.from_arrays(X, Y, **ENDS | {"actions": ACTIONS} | c)), LOGGED
    ),
    "Trajectories.from_frame": Entry(lambda c, _: of_frame(c), LSTD_ROWS - {"X_next"} | {"time"} | LOGGED),
}


@pytest.fixture(scope="module")
def usual(fitted):
    """What each entry point computes without the column in question."""
    return cache(lambda name: ENTRIES[name].run({}, fitted))


@pytest.mark.parametrize("name", ENTRIES)
def test_the_same_rows_give_the_same_numbers(name, fitted, usual):
    """Else any column would count as used."""
    assert np.asarray(usual(name)).dtype != object
    assert equal(ENTRIES[name].run({}, fitted), usual(name))


@pytest.mark.parametrize("column", GIVEN)
@pytest.mark.parametrize("name", ENTRIES)
def test_each_column_has_its_verdict(name, column, fitted, usual):
    entry = ENTRIES[name]
    if column in entry.checked:
        with pytest.raises(InvalidInputError, match=f"[`']{column}[`']"):
            entry.run({column: BROKEN[column]}, fitted)
    elif column in entry.used:
        assert not equal(entry.run({column: GIVEN[column]}, fitted), usual(name))
    elif column in entry.silent:
        assert equal(entry.run({column: GIVEN[column]}, fitted), usual(name))
        assert entry.silent[column] in " ".join(inspect.getdoc(documented(name)).split())
    else:
        names = {"X_next": "(X_next|next_features)", "actions": "actions?"}.get(column, column)
        with pytest.raises(InvalidInputError, match=rf"`{names}` must not be given.*[.:] .+") as refusal:
            entry.run({column: GIVEN[column]}, fitted)
        if (method := re.search(r"no argument of ([\w.]+)\.", str(refusal.value))) is not None:
            assert method[1].rpartition(".")[2] in name


# ------------------------------------------------------------ columns of the fit that the rows then lack

LEFT_OUT = "may be left out for a model that was fitted with"
MAY_BE_LEFT_OUT = {
    "LSTD.score": {"X_next", "weight", "groups"},
    "LSTD.bias_check": {"X_next"},
    "LSTD.misfit_check": {"X_next"},
    "ReturnSpread.fit": {"X_next"},
    "HorizonLSTD.score": {"weight", "groups"},
    "HorizonLSTD.observed_returns": {"weight", "groups"},
    "plot_predictions": {"X_next", "weight", "groups"},
    "plot_calibration": {"X_next", "weight", "groups"},
    "write_fit_report": {"X_next", "weight", "groups"},
}
MODELS = {"lstd": ("LSTD.fit", LSTD(gamma=0.9, lmbda=0.5)), "horizon": ("HorizonLSTD.fit", HorizonLSTD(3))}


def model_of(name: str) -> str:
    """Which fitted model an entry point takes; empty if none."""
    asked = mock.MagicMock()
    with contextlib.suppress(Exception):  # of what is not a model
        ENTRIES[name].run({}, asked)
    if not asked.__getitem__.called:
        return ""
    return asked.__getitem__.call_args.args[0]


@cache
def fitted_with(kind: str, column: str) -> Any:
    """A model that was fitted with a column."""
    return clone(MODELS[kind][1]).fit(**rows({column: GIVEN[column]}))


@pytest.mark.parametrize("name", [name for name in ENTRIES if model_of(name)])
def test_what_a_fit_was_given_is_asked_for_or_documented(name, monkeypatch):
    """Rows that lack a column are refused, or the documentation says that they may."""
    kind = model_of(name)
    columns = ENTRIES[MODELS[kind][0]].used
    documentation = " ".join(inspect.getdoc(documented(name)).split())
    for column in columns - BASE.keys():
        models = {kind: fitted_with(kind, column)}
        if column in MAY_BE_LEFT_OUT.get(name, ()):
            assert re.search(rf"`{column}`[^.]* {LEFT_OUT}", documentation)
            ENTRIES[name].run({}, models)
            continue
        message = rf"`{column}` must be given for a model that was fitted with it: .*\. Pass"
        with pytest.raises(InvalidInputError, match=message):
            ENTRIES[name].run({}, models)
        if column in ENTRIES[name].used:
            ENTRIES[name].run({column: GIVEN[column]}, models)
    monkeypatch.setitem(globals(), "BASE", {})
    with pytest.raises(InvalidInputError, match="`episode` or `terminated` must be given for a model"):
        ENTRIES[name].run({}, {kind: fitted_with(kind, "weight")})


def test_each_column_of_numbers_says_what_lacking_it_means():
    assert {*COLUMNS} <= {*LACKING}


def equal(one: Any, two: Any) -> bool:
    return np.shape(one) == np.shape(two) and bool(np.array_equal(one, two))


def test_a_trace_coefficient_has_no_effect_without_traces():
    columns = {"trace_coefficient": GIVEN["trace_coefficient"]}
    fits = [numbers(LSTD(gamma=0.9, lmbda=0.0).fit(**rows(given))) for given in ({}, columns)]
    assert equal(*fits)
    assert "no effect at a `lmbda` of 0" in " ".join(inspect.getdoc(LSTD.fit).split())


@pytest.mark.parametrize("column", [*(GIVEN.keys() - BASE.keys()), "groups"])
@pytest.mark.parametrize("model", [TD(2), TrueOnlineTD(2), RecursiveLSTD(2)])
def test_an_update_uses_a_column_or_refuses_it(model, column):
    taken = inspect.signature(model.update).parameters
    if column not in taken:
        with pytest.raises(InvalidInputError, match=rf"`{column}` must not be given: .*update\. [A-Z`]"):
            model.update(X[0], 1.0, X[1], **{column: 1.0})


# ------------------------------------------------------------ the shell

SHELL = {  # columns that are options of a command that reads rows
    "fit": LSTD_ROWS - {"X_next"} | {"next_features", "time"},
    "score": LSTD_ROWS - {"X_next", "groups"} | {"next_features", "time"},
    "predict": set(),
}


@pytest.mark.parametrize("command", SHELL)
def test_the_shell_has_an_option_for_each_column_that_it_uses(command):
    options = typer.main.get_command(app).commands[command].params
    assert {option.name for option in options} & {*GIVEN, "next_features"} == SHELL[command]


@pytest.mark.parametrize("column", [name for name in GIVEN if name not in BASE])
@pytest.mark.parametrize("horizon", [None, 3])
def test_the_shell_uses_each_column_or_refuses_it(column, horizon, tmp_path, capsys):
    data, out, columns = tmp_path / "rows.csv", tmp_path / "model.lstd", {column: GIVEN[column]}
    frame(columns).to_csv(data, index=False)
    option, name = ("next-features", "next_*") if column == "X_next" else (column.replace("_", "-"), column)
    words = f"fit {data} --features a,b --reward y --gamma 0.9 --lmbda 0.5 --episode episode --terminated terminated"
    if horizon:
        words += f" --horizon {horizon}"
    code = main([*words.split(), f"--{option}", name, "-o", str(out), "--quiet"])
    entry = ENTRIES["fit_tables, horizon" if horizon else "fit_tables"]
    if column in entry.used | entry.checked:
        assert code == 0
        expected = of_table(columns, lmbda=0.5, horizon=horizon)
        assert equal(numbers(lstd.load(out)), expected[: len(numbers(lstd.load(out)))])
    else:
        assert code != 0
        assert option in capsys.readouterr().err.replace("_", "-")


# ------------------------------------------------------------ every entry point has verdicts

MODULES = ("lstd", "lstd.ope", "lstd.metrics", "lstd.inference", "lstd.report")
NAMES = {*GIVEN, "columns", "data", "others", "source"}
OTHERS = {
    "TD.update": "a single transition",
    "RecursiveLSTD.update": "a single transition",
    "LSTDQ.predict": "actions to predict for",
    "StateActionFeatures": "actions are labels",
    "StateActionFeatures.transform": "actions to make features of",
    "StateActionFeatures.codes": "actions to number",
    "StateActionFeatures.codes_of_rows": "actions to number",
    "action_calibration": "actions and probabilities alone",
    "plot_action_calibration": "actions and probabilities alone",
    "ObservedReturns": "returns, no rows",
    "ObservedReturns.scores": "returns, no rows",
    "Contributions.of": "a fitted model",
    "PolicyValue": "a result",
    "StateActionFeatures.touching": "actions to look up",
    "Trajectories.from_minari": "a dataset, with columns of its own",
    "policy_value": "a fitted model, with its own rows",
    "Trajectories.from_events": "names of columns of events, not of rows",
}


def documented(name: str) -> Any:
    """The class, function or method of an entry point."""
    path = name.partition(",")[0].split(".")
    for module in MODULES:
        found: Any = importlib.import_module(module)
        with contextlib.suppress(AttributeError):
            for part in path:
                found = getattr(found, part)
            return found
    raise AssertionError(name)


def entry_points() -> dict[Any, str]:
    """Public functions and methods that take columns of rows; of one that several classes inherit, the first name."""
    found: dict[Any, str] = {}
    for module in map(importlib.import_module, MODULES):
        for name in module.__all__:
            public = getattr(module, name)
            methods = {name: public}
            if inspect.isclass(public):
                for part in dir(public):
                    method = inspect.getattr_static(public, part)
                    if not part.startswith("_"):
                        methods[f"{name}.{part}"] = getattr(method, "__func__", method)
            for path, function in methods.items():
                if callable(function) and NAMES & inspect.signature(function).parameters.keys():
                    found.setdefault(function, path)
    return found


def test_every_entry_point_has_verdicts():
    judged = {getattr(documented(name), "__func__", documented(name)) for name in ENTRIES}
    without = {name for function, name in entry_points().items() if function not in judged}
    assert without == OTHERS.keys()
    assert judged <= entry_points().keys()
