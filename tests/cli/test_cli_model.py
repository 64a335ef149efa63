"""The commands fit, predict, score and inspect: results, exit codes, one line per error, memory, interruption."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from lstd import LSTDStatistics, fit_tables, load
from lstd.cli.app import run
from lstd.cli.options import names
from lstd.errors import UnusedRewardWarning
from lstd.estimators.model import read_model
from lstd.metrics import observed_returns
from tolerances import assert_close

COMMAND = [sys.executable, "-c", "import sys; from lstd.cli import main; sys.exit(main())"]
POSIX = pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")
COLUMNS = ["--reward", "r", "--episode", "id", "--terminated", "done", "--gamma", "0.9"]
FIT = ["fit", "data.csv", "--features", "x,y", *COLUMNS, "--out", "model"]


def table(n_rows, seed=0, length=20):
    """Episodes of `length` rows, every other one terminated, the others with nothing known after their last row."""
    rng = np.random.default_rng(seed)
    rows = np.arange(n_rows)
    last, even = rows % length == length - 1, rows // length % 2 == 0
    reward = np.where(last & ~even, np.nan, rng.normal(size=n_rows))
    x, y = rng.normal(size=(2, n_rows))
    return pa.table({"x": x, "y": y, "r": reward, "id": rows // length, "t": rows % length, "done": 1 * (last & even)})


def write_csv(data, path):
    with open(path, "wb") as file:
        file.write(",".join(data.column_names).encode() + b"\n")
        pyarrow.csv.write_csv(data, file, pyarrow.csv.WriteOptions(include_header=False))


def start(*words, **options):
    """Start the command, SIGINT not ignored as it is in a background job."""
    before = (lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)) if os.name == "posix" else None
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
    return subprocess.Popen([*COMMAND, *map(str, words)], preexec_fn=before, **pipes)


def files():
    return sorted(path.name for path in Path().iterdir())


# Results


@pytest.mark.parametrize(
    ("data", "variant"), [("data.csv", "boyan"), ("data.parquet", "uncorrected"), ("data.csv", "mixed")]
)
def test_fit_predict_score_inspect(folder, capsys, data, variant):
    settings = ["--lmbda", "0.5", "--alpha", "2", "--variant", variant, "--no-intercept", "--quiet", "--json"]
    assert run(["fit", data, "--features", "x", "--features", "y", *COLUMNS, *settings, "-o", "model"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    fitted = json.loads(captured.out)
    columns = {name: column.to_numpy() for name, column in zip(table(1).column_names, table(200).columns, strict=True)}
    X = np.column_stack([columns["x"], columns["y"]])
    expected = LSTDStatistics.from_arrays(
        X, columns["r"], gamma=0.9, lmbda=0.5, episode=columns["id"], terminated=columns["done"]
    )
    weights = expected.solve(2.0, variant).weights
    assert_close(list(fitted["coefficients"]["r"].values()), weights, "solve")
    assert fitted["origin"]["rows"] == 200
    assert (fitted["origin"]["transitions"], fitted["origin"]["episodes"]) == (195, 10)
    assert_close(read_model("model").statistics.B, expected.B, "sums")

    assert run(["inspect", "model", "--json"]) == 0
    assert (fitted["selection"], fitted["no_intervals"], fitted.pop("report")) == (None, None, None)
    assert json.loads(capsys.readouterr().out) == fitted

    assert run(["predict", "model", data, "--id", "id,t", "--quiet"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "id,t,prediction"
    assert [line.rsplit(",", 1)[0] for line in lines[1:]] == [f"{i // 20},{i % 20}" for i in range(200)]
    assert_close([float(line.rsplit(",", 1)[1]) for line in lines[1:]], X @ weights, "solve")

    assert run(["score", "model", data, "--quiet", "--json"]) == 0
    score = json.loads(capsys.readouterr().out)
    ends = {"episode": columns["id"], "terminated": columns["done"] == 1}
    found = observed_returns(columns["r"], gamma=0.9, prediction=X @ weights, **ends)
    scored = found.weight > 0
    returns, errors = found.returns[scored], (found.returns - X @ weights)[scored]
    assert (score["rows"], score["scored"], score["unobserved"]) == (200, 195, "predict")
    assert_close(score["observed_share"], found.share, "sums")
    assert_close(score["rewards"]["r"]["mse"], np.mean(errors**2), "solve")
    assert_close(score["rewards"]["r"]["r2"], 1 - np.mean(errors**2) / np.var(returns), "solve")


def test_what_people_read(folder, capsys):
    assert run(FIT) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("model\nfitted on              data.csv\n")
    for fact in ("rows                   200", "transitions            195", "episodes               10"):
        assert f"\n{fact}\n" in captured.out
    assert "\nvariant                boyan, with an intercept\n" in captured.out
    assert "reading data.csv" not in captured.err  # too short for progress
    assert run(["inspect", "model"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(captured.out)
    assert "\ncolumns                episode: id, terminated: done\n" in shown
    assert "\nintervals              from 10 blocks of one or more episodes, taken as independent\n" in shown
    assert re.search(r"\nr  +coef  std err", shown)
    assert "\n(intercept)  " in shown
    assert run(["score", "model", "data.csv"]) == 0
    assert "195 of 200 rows scored; observed share of their returns: 80 %\n" in capsys.readouterr().out
    assert run(["score", "model", "data.csv", "--unobserved", "drop"]) == 2
    assert '`--unobserved` "drop" must have episodes that all terminated or were all' in capsys.readouterr().err
    assert run(["score", "model", "data.csv", "--unobserved", "ipcw", "--tolerance", "0.5"]) == 0
    assert " of 200 rows scored; " in capsys.readouterr().out


@pytest.mark.parametrize(("data", "extension"), [("data.csv", ".parquet"), ("data.parquet", ".csv")])
def test_predictions_in_a_file(folder, capsys, data, extension):
    assert run([*FIT, "--quiet"]) == 0
    capsys.readouterr()
    out = f"out{extension}"
    assert run(["predict", "model", data, "-o", out, "--id", "id", "--quiet", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"file": out, "rows": 200}
    written = pyarrow.csv.read_csv(out) if extension == ".csv" else pq.read_table(out)
    assert written.column_names == ["id", "prediction"]
    model = read_model("model")
    X = np.column_stack([table(200)["x"], table(200)["y"]])
    assert_close(written["prediction"], model.predict(X), "sums")
    assert [int(one) for one in written["id"].to_pylist()] == table(200)["id"].to_pylist()
    assert run(["predict", "model", data, "-o", out, "--quiet"]) == 2
    assert "--force replaces it" in capsys.readouterr().err
    assert run(["predict", "model", data, "-o", out, "--quiet", "--force"]) == 0


def test_several_files_and_all_other_columns(folder, capsys):
    pq.write_table(table(200)[:77], "a.parquet")
    write_csv(table(200)[77:], "b.csv")
    words = [*COLUMNS, "--all-others", "--exclude", "t", "--quiet", "-o", "other"]
    assert run(["fit", "a.parquet", "b.csv", *words]) == 0
    assert run([*FIT, "--quiet"]) == 0
    other, model = read_model("other"), read_model("model")
    assert other.feature_names == model.feature_names == ("x", "y")
    assert_close(other.coef, model.coef, "solve")
    assert other.origin.files == ("a.parquet", "b.csv")


def test_score_with_columns_of_other_names(folder, capsys):
    assert run([*FIT, "--quiet"]) == 0
    pq.write_table(table(200).rename_columns(["x", "y", "gain", "who", "t", "end"]), "other.parquet")
    names = ["--reward", "gain", "--episode", "who", "--terminated", "end"]
    capsys.readouterr()
    assert run(["score", "model", "other.parquet", *names, "--quiet"]) == 0
    other = capsys.readouterr().out.replace("gain", "r")
    assert run(["score", "model", "data.csv", "--quiet"]) == 0
    assert capsys.readouterr().out == other
    assert run(["score", "model", "data.csv", "--episode", "", "--terminated", "", "--quiet"]) == 2
    assert "column 'r', row 40 (the first row of data is 1): has 'nan', which counts" in capsys.readouterr().err


def test_names_of_columns_may_hold_commas():
    assert names(["a,b", "c", '"d,e",f']) == ("a", "b", "c", "d,e", "f")
    assert names(["a, b", ' c,  " d"']) == ("a", "b", "c", " d")
    assert names(None) == ()


@pytest.mark.filterwarnings("default")
def test_what_is_assumed_is_said(folder, capsys):
    words = ["fit", "data.csv", "--features", "x", "--reward", "t", "--gamma", "0.9", "--force", "-o", "model"]
    assert run([*words, "--episode", "id"]) == 0
    asked = capsys.readouterr().err
    assert "Were ends seen? No column says which episodes terminated, so every episode is taken as cut off" in asked
    assert "If no end was seen, say so: `--no-terminated`." in asked
    assert run([*words, "--episode", "id", "--no-terminated"]) == 0
    assert "ends seen" not in capsys.readouterr().err
    assert run([*words, "--episode", "id", "--no-terminated", "--terminated", "done"]) == 2
    assert "either `--terminated` or `--no-terminated` may be given" in capsys.readouterr().err
    assert run([words[0], "data.parquet", *words[1:]]) == 0
    assert "without a column of episodes, the first row of each table is taken as" in capsys.readouterr().err
    assert run([*words, "--features", "y", "--alpha", "0", "--exclude", "x"]) == 2
    write_csv(table(200).append_column("x2", table(200)["x"]), "twice.csv")
    words = ["fit", "twice.csv", "--features", "x,x2", *COLUMNS, "--alpha", "0", "-o", "singular"]
    capsys.readouterr()
    assert run([*words, "--json"]) == 0
    captured = capsys.readouterr()
    assert "singular to working precision" in captured.err or "ill-conditioned" in captured.err
    assert json.loads(captured.out)["condition_number"] is None or json.loads(captured.out)["condition_number"] > 1e10


# Errors


BAD = "x,y,r,id,t,done\n1,1,1,0,0,0\n2,oops,2,0,1,0\n"
X = ["fit", "data.csv", *COLUMNS, "--features", "x"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["fit", "data.csv", "--gamma", "0.9", "-o", "m"], "reward"),
        (["fit", "data.csv", "--reward", "r", "--gamma", "high", "-o", "m", "--features", "x"], "--gamma"),
        (["fit", "data.csv", *COLUMNS, "-o", "m"], "either `--features` with names or `--all-others` must be given"),
        ([*X, "-o", "m", "--all-others"], "and not both"),
        ([*X[:-1], "x,z", "-o", "m"], "data.csv: column 'z' is missing; the file has"),
        ([*X, "-o", "m", "--gamma", "1.3"], "`--gamma` must be in [0, 1]; g"),
        (["fit", "data.csv", *COLUMNS[:4], "--gamma", "1", "-o", "m", "--features", "x", "--truncated", "t"], "--term"),
        (["fit", "bad.csv", *X[2:-1], "x,y", "-o", "m"], "bad.csv: column 'y', row 2 (the first row of"),
        (["fit", "none.csv", *X[2:], "-o", "m"], "none.csv could not be read: No such file"),
        (["fit", "data.txt", *X[2:], "-o", "m"], "'data.txt' must end in one of .csv, .csv.gz"),
        ([*X, "-o", "none/m"], "got 'none/m' (No such file or directory)"),
        ([*X, "-o", "."], "`--out` must name a file; got '.'. Give the path of a file"),
        ([*X, "-o", "bad.csv"], "'bad.csv' exists; --force replaces it"),
        ([*X, "-o", "data.csv", "--force"], "must not be a file that is r"),
        (["predict", "bad.csv", "data.csv"], "bad.csv was not written by lstd"),
        (["predict", "model", "bad.csv"], "bad.csv: column 'y', row 2 (the first row of data is 1): has 'oops'"),
        (["predict", "model", "data.csv", "--id", "who"], "data.csv: column 'who' is missing"),
        (["predict", "model", "data.csv", "--json"], "`--json` needs `--out`"),
        (
            ["predict", "model", "data.csv", "--interval", "95"],
            "`--interval` must be above 0 and below 1, such as 0.95",
        ),
        (["predict", "model", "data.csv", "-o", "p.txt"], "`--out` must end in .csv or .parquet"),
        (["score", "model", "data.csv", "--reward", "r,t"], "`--reward` must name 1 columns, one per prediction; got"),
        (["inspect", "data.csv"], "data.csv was not written by lstd"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(folder, capsys, words, message):
    assert run([*FIT, "--quiet"]) == 0
    Path("bad.csv").write_text(BAD)
    before = {path: Path(path).read_bytes() for path in files()}
    capsys.readouterr()
    assert run([*words, "--quiet"] if words[0] != "inspect" else words) == 2
    captured = capsys.readouterr()
    assert captured.out in ("", "prediction\n")
    assert captured.err.startswith("lstd: ")
    assert captured.err.count("\n") == 1
    assert message in captured.err
    assert {path: Path(path).read_bytes() for path in files()} == before


@POSIX
def test_reader_that_goes_away_is_no_failure(folder):
    write_csv(table(20_000), "long.csv")  # predictions of 400 kB, more than a pipe holds
    assert run([*FIT, "--quiet"]) == 0
    process = start("predict", "model", "long.csv", "--quiet")
    assert process.stdout.readline() == "prediction\n"
    process.stdout.close()
    assert process.wait(timeout=300) == 0
    assert process.stderr.read() == ""
    process.stderr.close()


# Imports


def test_commands_need_neither_scikit_learn_nor_pandas(folder):
    program = (
        "import sys; from lstd.cli import main; "
        "codes = [main(words.split()) for words in sys.argv[1:]]; "
        "sys.exit(str(slow) if (slow := {'sklearn', 'pandas', 'matplotlib'} & set(sys.modules)) else max(codes))"
    )
    commands = [" ".join(FIT), "predict model data.csv"]
    done = subprocess.run([sys.executable, "-c", program, *commands], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.filterwarnings("always::lstd.errors.UnusedRewardWarning")
def test_rewards_of_last_rows_that_are_not_used_are_counted(folder, capsys, no_pictures):
    """Customers who are still active, with what they spent in the last week."""
    data = table(200)
    spent = np.nan_to_num(data["r"].to_numpy(), nan=3.0)
    write_csv(data.set_column(data.column_names.index("r"), "r", pa.array(spent)), "data.csv")
    said = "5 rewards of last rows are not used: their successor is unknown."
    assert run([*FIT, "--report", "fit.html"]) == 0
    found = capsys.readouterr()
    assert said in found.out
    assert f"lstd: {said} Append a row with the features of the state that followed and no reward" in found.err
    assert said in Path("fit.html").read_text(encoding="utf-8")
    for words in (["inspect", "model"], ["inspect", "model", "--json"]):
        assert run(words) == 0
        assert (said if len(words) == 2 else '"unused_rewards": 5') in capsys.readouterr().out
    columns = {"reward": "r", "features": ["x", "y"], "gamma": 0.9, "episode": "id", "terminated": "done"}
    with pytest.warns(UnusedRewardWarning, match=said):
        assert fit_tables("data.csv", **columns).n_unused_rewards_ == load("model").n_unused_rewards_ == 5
