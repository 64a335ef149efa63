"""`lstd steps`: a log of events becomes a table that `lstd fit` takes."""

import json

import pandas as pd
import pytest

from lstd import LSTD, Trajectories
from lstd.cli.app import run

LOG = "who,day,spend,closed\na,2024-01-03,5,0\nb,2024-01-20,1,0\na,2024-01-17,7,0\nb,2024-01-27,2,1\n"
WORDS = ["steps", "log.csv", "--episode", "who", "--time", "day", "--step", "week", "--until", "2024-01-29"]


@pytest.fixture(autouse=True)
def log(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "log.csv").write_text(LOG)


def test_steps_are_written_as_a_table(capsys):
    assert run([*WORDS, "--amount", "spend", "--terminated", "closed", "-o", "steps.csv"]) == 0
    assert capsys.readouterr().out == "steps.csv: 5 rows of 2 episodes, 4 of them complete steps\n"
    with open("steps.csv", encoding="utf-8") as file:
        lines = file.read().splitlines()
    assert lines[0] == "who,day,n_repeat,repeat_spend,first_spend,since_last,since_first,spend,closed"
    assert lines[1].startswith("a,2024-01-08,0.0,0.0,5.0,0.714")
    assert lines[-2].endswith(",,false")
    assert lines[-1].endswith(",2.0,true")


def test_first_events_may_be_counted():
    assert run([*WORDS, "--amount", "spend", "--first", "counted", "-o", "steps.csv"]) == 0
    with open("steps.csv", encoding="utf-8") as file:
        lines = file.read().splitlines()
    assert lines[0] == "who,day,n_events,total_spend,since_last,since_first,spend,terminated"
    assert lines[1].startswith("a,2024-01-08,1.0,5.0,0.714")


def test_rates_may_take_the_place_of_totals():
    words = ["--amount", "spend", "--window", "2", "--mean-at", "2024-01-22", "--age", "weeks", "-o", "steps.csv"]
    assert run([*WORDS, *words]) == 0
    table = pd.read_csv("steps.csv")
    data = Trajectories.from_events(
        pd.read_csv("log.csv"),
        episode="who",
        time="day",
        amount="spend",
        step="week",
        until="2024-01-29",
        window=2,
        mean_at="2024-01-22",
        age="weeks",
    )
    assert table.columns.tolist() == ["who", "day", *data.feature_names, "spend", "terminated"]
    assert table[[*data.feature_names]].to_numpy() == pytest.approx(data.X, rel=1e-12)


def test_ids_may_have_ends_of_their_own(capsys):
    with open("log.csv", "w", encoding="utf-8") as file:
        file.write("who,day,left,died\na,2024-01-03,,0\nb,2024-01-02,2024-01-16,1\nc,2024-01-02,2024-01-10,0\n")
    assert run([*WORDS, "--observed-until", "left", "--ended", "died", "-o", "steps.csv"]) == 0
    table = pd.read_csv("steps.csv")
    assert table["who"].tolist() == [*"aaaa", *"bb", "c"]
    assert table["terminated"].tolist() == [False] * 5 + [True, False]
    assert table["events"].isna().tolist() == [False] * 3 + [True, False, False, True]


def test_it_says_where_the_mean_counts_less(capsys):
    rows = [f"{who},{day + k / who}" for who in (1, 2, 4, 8, 16, 32, 64) for day in range(24) for k in range(who)]
    with open("log.csv", "w", encoding="utf-8") as file:
        file.write("\n".join(["who,day", *rows]))
    words = ["steps", "log.csv", "--episode", "who", "--time", "day", "--step", "1", "--until", "24", "--window", "4"]
    assert run([*words, "-o", "steps.csv"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1:] == ["rate: the mean counts as 0.25 steps, which forecasts better in this log"]
    assert run([*words, "-o", "again.csv", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["mean_steps"] == {"rate": 0.25}


@pytest.mark.filterwarnings("ignore::lstd.errors.LSTDWarning")
@pytest.mark.parametrize("extension", ["csv", "parquet"])
def test_the_table_gives_the_model_of_the_rows(extension, capsys):
    assert run([*WORDS, "--terminated", "closed", "-o", f"steps.{extension}", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "file": f"steps.{extension}", "rows": 5, "episodes": 2, "transitions": 4,
    }  # fmt: skip
    fit = ["fit", f"steps.{extension}", "--episode", "who", "--time", "day", "--terminated", "closed"]
    assert run([*fit, "--reward", "events", "--all-others", "--gamma", "0.5", "-o", "model", "--quiet"]) == 0
    data = Trajectories.from_events(
        pd.read_csv("log.csv"), episode="who", time="day", terminated="closed", step="week", until="2024-01-29"
    )
    expected = LSTD(gamma=0.5).fit(**data.to_arrays(frame="pandas"))
    assert LSTD.load("model").coef_.tolist() == pytest.approx(expected.coef_.tolist(), rel=1e-12)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-o", "steps.txt"], "`--out` must end in .csv or .parquet"),
        (["-o", "steps.csv", "--until", "2023-01-01"], "`--until` must be after the first event"),
        (
            ["-o", "steps.csv", "--amount", "price"],
            "column 'price' is missing; the file has 'who'",
        ),
        (["-o", "steps.csv", "--first", "both"], "`--first` must be one of 'apart', 'counted'; got 'both'"),
        (["-o", "steps.csv", "--mean-at", "2024-01-22"], "`--mean-at` must be None without `--window`"),
        (["-o", "steps.csv", "--terminated", "spend"], "column 'spend'"),
        (["-o", "steps.csv", "--ended", "closed"], "`--ended` must be None without `--observed-until`"),
        (["-o", "steps.csv", "--observed-until", "spend"], "must hold what column 'day' (`--time`) holds"),
        (["-o", "steps.csv", "--amount", "spend", "--time", "day", "--episode", "spend"], "two columns 'spend'"),
    ],
)
def test_errors_are_one_line(words, message, capsys):
    assert run([*WORDS, *words]) == 2
    error = capsys.readouterr().err
    assert message.lower() in error.lower()
    assert error.count("\n") == 1
