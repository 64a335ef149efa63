"""Intervals, settings chosen from the data, and the report, from the shell."""

import json
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from test_cli_model import COLUMNS, FIT, table, write_csv

from lstd import LSTD, LSTDCV
from lstd.cli.app import run
from lstd.data.settings import Settings
from lstd.estimators.model import read_model
from lstd.tables.first_rows import FirstRows
from lstd.tables.reader import RowReader
from table_files import ROLES, episodes, fit_files, write
from tolerances import assert_close

pytestmark = pytest.mark.usefixtures("few_pairs")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty working folder with a table of 1000 rows."""
    monkeypatch.chdir(tmp_path)
    write_csv(table(1000), "data.csv")
    return tmp_path


def arrays(data):
    """Arguments of `LSTD.fit` from a table."""
    columns = {name: data[name].to_numpy() for name in data.column_names}
    X = np.column_stack([columns["x"], columns["y"]])
    return {"X": X, "y": columns["r"], "episode": columns["id"], "terminated": columns["done"] == 1}


# Intervals


@pytest.mark.parametrize("out", ["", "out.csv", "out.parquet"])
def test_predicted_intervals(folder, capsys, out):
    assert run([*FIT, "--quiet"]) == 0
    capsys.readouterr()
    words = [
        "predict",
        "model",
        "data.csv",
        "--interval",
        "0.8",
        "--id",
        "id",
        "--quiet",
        *(["-o", out] if out else []),
    ]
    assert run(words) == 0
    text = capsys.readouterr().out
    if not out:
        Path("out.csv").write_text(text)
    found = pq.read_table(out) if out == "out.parquet" else pyarrow.csv.read_csv("out.csv")
    assert found.column_names == ["id", "prediction", "lower", "upper", "standard_error", "little_data"]
    assert found["little_data"].type == pa.bool_()
    expected = read_model("model").interval(arrays(table(1000))["X"], 0.8)
    for name in found.column_names[1:]:
        assert np.array_equal(found[name].to_numpy(), getattr(expected, name)), name


def test_intervals_of_several_rewards(folder, capsys):
    assert run(["fit", "data.csv", "--features", "x,y", "--reward", "r,t", *COLUMNS[2:], "-o", "model", "--quiet"]) == 0
    assert run(["predict", "model", "data.csv", "--interval", "0.95", "--quiet", "-o", "out.csv"]) == 0
    header = Path("out.csv").read_text().splitlines()[0].split(",")
    kinds = ("prediction", "lower", "upper", "standard_error", "little_data")
    assert header == [f"{kind}_{reward}" for reward in ("r", "t") for kind in kinds]
    assert run(["predict", "model", "data.csv", "--interval", "0.95", "--quiet", "--id", "r", "-o", "two.csv"]) == 0


def test_model_without_intervals_says_so(folder, capsys):
    write_csv(table(60), "few.csv")
    words = ["fit", "few.csv", *FIT[2:], "--quiet"]
    assert run(words) == 0
    assert "\nintervals              none. Intervals need at least 5 episodes" in capsys.readouterr().out
    assert run([*words, "--json", "--force"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["blocks"] is None
    assert found["no_intervals"].startswith("Intervals need at least 5 episodes")
    assert found["coefficient_errors"] is found["intercept_error"] is None
    assert run(["inspect", "model"]) == 0
    shown = capsys.readouterr().out
    assert "\nintervals              none. Intervals need at least 5 episodes" in shown
    assert re.search(r"\nr  +coef  ridge\n", shown)
    assert run(["predict", "model", "few.csv", "--interval", "0.95", "--quiet"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("lstd: model has no intervals. Intervals need at least 5 episodes")


def test_standard_errors_are_shown(folder, capsys):
    assert run([*FIT, "--quiet", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    model = LSTD(0.9).fit(**arrays(table(1000)))
    expected = np.sqrt(np.diag(model.coef_covariance_))
    assert_close(list(found["coefficient_errors"]["r"].values()), expected, "solve")
    assert_close(found["intercept_error"]["r"], model.predict(np.zeros((1, 2)), return_std=True)[1][0], "solve")
    assert run(["inspect", "model"]) == 0
    lines = capsys.readouterr().out.splitlines()
    first = lines.index("") + 1
    assert lines[first].split() == ["r", "coef", "std", "err", "0.025", "0.975", "ridge"]
    assert [line.split()[:3] for line in lines[first + 1 : first + 4]] == [
        [name, f"{value:.6g}", f"{error:.2g}"]
        for name, value, error in zip(
            ("x", "y", "(intercept)"),
            (*model.coef_, model.intercept_),
            (*expected, found["intercept_error"]["r"]),
            strict=True,
        )
    ]


# Settings chosen from the data


@pytest.mark.parametrize("words", [["--lmbda", "auto", "--alpha", "auto"], ["--lmbda", "auto"], ["--alpha", "auto"]])
def test_settings_are_those_of_the_estimator(folder, capsys, words):
    assert run([*FIT, *words]) == 0
    told = capsys.readouterr().out
    assert run(["inspect", "model", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    grids = {"lmbdas": None if "--lmbda" in words else [0.9], "alphas": None if "--alpha" in words else [1.0]}
    penalty = None if "--alpha" in words else [1.0, 1.0]  # a number has the meaning that it has for LSTD
    expected = LSTDCV(0.9, **grids, penalty=penalty).fit(**arrays(table(1000)))
    assert found["selection"]["lmbda"] == found["lmbda"] == expected.lmbda_
    assert found["selection"]["alpha"] == found["alpha"]
    assert_close(found["alpha"], expected.alpha_, "sums")
    assert_close(found["selection"]["score"], expected.best_score_, "solve")
    assert (found["selection"]["rows"], found["selection"]["folds"]) == (1000, expected.n_folds_)
    assert_close(list(found["coefficients"]["r"].values()), expected.coef_, "solve")
    assert " all 1000 rows in 10 folds; R² " in told
    assert_close(found["selection"]["observed_share"], expected.observed_share_, "sums")
    assert f"; observed share of their returns: {100 * expected.observed_share_:.0f} %\n" in told
    assert_close(found["ridge"], expected.ridge_, "solve")
    low, high = (f"{size:g}" for size in (min(found["ridge"]), max(found["ridge"])))
    ridge = f"; ridge {low} to {high}" if "--alpha" in words else ""
    assert f"\nlmbda                  {found['lmbda']:g}, chosen\n" in told
    assert f"\nalpha                  {found['alpha']:g}, chosen{ridge}\n" in told


def test_choice_reports_its_progress(tmp_path):
    path = write(table(200), tmp_path / "a.parquet")
    told = []
    fit_files([path], ROLES, Settings.with_choice(0.9, "auto", 1.0), on_progress=lambda *event: told.append(event))
    texts = list(dict.fromkeys(text for text, _, _ in told))
    assert texts == [f"reading {path}", "choosing lmbda and alpha"]
    chosen = [done / total for text, done, total in told if text == texts[1]]
    assert chosen == sorted(chosen)
    assert chosen[-1] == 1.0


# The first rows


@pytest.mark.parametrize(
    ("lengths", "limit", "kept"),
    [
        ([30, 30, 30], 100, 90),  # all
        ([30, 30, 30], 90, 90),
        ([30, 30, 40], 70, 60),  # whole episodes
        ([64, 1], 64, 64),
        ([100], 80, 80),  # one that is longer
        ([10, 100], 80, 80),  # little would be left
        ([40, 100], 80, 40),
    ],
)
@pytest.mark.parametrize("chunk_rows", [1, 16, 1000])
def test_sample_holds_whole_episodes_where_it_can(tmp_path, lengths, limit, kept, chunk_rows):
    data = episodes(lengths, seed=1)
    reader = RowReader([write(data, tmp_path / "a.parquet")], ROLES, chunk_rows=chunk_rows)
    sample = FirstRows(3 * limit, ones=True)
    for chunk in reader.chunks():
        sample.add(reader, chunk)
    assert (len(sample), sample.is_full) == (kept, sum(lengths) > limit)
    arguments = sample.rows.arguments
    assert np.array_equal(arguments["X"], np.column_stack([data["x"], data["y"], np.ones(len(data))])[:kept])
    assert np.array_equal(arguments["y"], data["r"].to_numpy()[:kept], equal_nan=True)
    assert np.array_equal(arguments["episode"], data["id"].to_numpy()[:kept])
    assert np.array_equal(arguments["terminated"], data["done"].to_numpy()[:kept])


# The report


@pytest.mark.usefixtures("no_pictures")
@pytest.mark.parametrize("words", [[], ["--alpha", "auto", "--no-intercept"]])
def test_report(folder, capsys, words):
    assert run([*FIT, *words, "--report", "fit.html"]) == 0
    captured = capsys.readouterr()
    assert "\nreport                 fit.html, on all 1000 rows\n" in captured.out
    assert [line for line in captured.err.splitlines() if "left: " not in line] == []
    page = Path("fit.html").read_text()
    assert "LSTD(λ) for data.csv" in page
    assert ("Choice of λ and α" in page) == bool(words)
    assert "Predictions and returns" in page
    if words:
        return
    assert run([*FIT, "--report", "fit.html"]) == 2
    Path("model").unlink()
    assert run([*FIT, "--report", "fit.html"]) == 2
    assert "`--report` must name a new file; 'fit.html' exists; --force replaces it." in capsys.readouterr().err
    assert not Path("model").exists()
    assert run([*FIT, "--report", "fit.html", "--force", "--json", "--quiet"]) == 0
    assert json.loads(capsys.readouterr().out)["report"] == {"file": "fit.html", "rows": 1000}


@pytest.mark.usefixtures("no_pictures")
def test_report_on_the_first_rows(folder, capsys, monkeypatch):
    monkeypatch.setattr("lstd.tables.first_rows.REPORT_ENTRIES", 2 * 410)
    assert run([*FIT, "--report", "fit.html", "--quiet"]) == 0
    assert "\nreport                 fit.html, on the first 400 of 1000 rows\n" in capsys.readouterr().out
    assert "LSTD(λ) for data.csv, the first 400 of 1000 rows" in Path("fit.html").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--report", "model"], "`--report` must not be the file of the model; got 'model'; give another."),
        (["--report", "data.csv", "--force"], "`--report` must not be a file that is read; got 'data.csv'"),
        (["--report", "none/fit.html"], "`--report` must name a file in a folder that can be written; got 'none/fit.h"),
        (["--report", ""], "`--report` must name a file; got ''."),
    ],
)
def test_report_that_cannot_be_written(folder, capsys, words, message):
    assert run([*FIT, *words, "--quiet"]) == 2
    captured = capsys.readouterr()
    assert (captured.out, captured.err.count("\n")) == ("", 1)
    assert message in captured.err
    assert not Path("model").exists()


@pytest.mark.usefixtures("no_pictures")
def test_groups_from_the_shell(folder, capsys):
    """Ten episodes of each patient; the page takes patients as independent, and refusals name the column."""
    data = table(1000)
    who = pa.array([f"p{i // 10:03}" for i in data["id"].to_pylist()])
    write_csv(data.append_column("who", who), "grouped.csv")
    command = ["grouped.csv" if word == "data.csv" else word for word in FIT]
    assert run([*command, "--groups", "who", "--report", "fit.html", "--json", "--quiet"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["origin"]["columns"]["groups"] == "who"
    model = read_model("model")
    assert model.statistics.n_groups == len(set(who.to_pylist()))
    grouped = arrays(data) | {"groups": np.array(who.to_pylist())}
    settings = model.settings
    expected = LSTD(settings.gamma, settings.lmbda, settings.alpha, fit_intercept=settings.fit_intercept).fit(**grouped)
    assert_close(model.influence.shares, expected.model_.influence.shares, "sums")
    assert_close(model.influence.covariance()[0], expected.coef_covariance_, "solve")
    assert "take groups as independent" in " ".join(Path("fit.html").read_text(encoding="utf-8").split())
    assert run(["inspect", "model"]) == 0
    shown = capsys.readouterr().out
    assert "groups: who" in shown
    assert f"\ngroups                 {model.statistics.n_groups}\n" in shown
    backwards = pa.array([f"p{i % 2}" for i in data["id"].to_pylist()])
    write_csv(data.append_column("who", backwards), "grouped.csv")
    assert run([*command, "--groups", "who", "--quiet", "--force"]) == 2
    assert "column 'who', row" in (error := capsys.readouterr().err)
    assert "reappears after other groups; sort the rows by group, episode and time." in error
