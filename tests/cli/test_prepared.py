"""`--categories`, `--impute`, `--contributions` and `--sort` of the shell."""

import re

import numpy as np
import pandas as pd
import pytest

import lstd
from lstd.cli.app import run
from lstd.datasets import load_machines

ROLES = ["--reward", "days", "--episode", "machine", "--terminated", "failed", "--gamma", "1"]


def machines(folder, **changes):
    """A table of ten machines with words and holes, as CSV; returns the frame."""
    table = load_machines().query("machine < 40").assign(**changes)
    table.loc[table.index % 7 == 3, "temperature"] = np.nan
    table.to_csv(folder / "m.csv", index=False)
    return table


@pytest.mark.filterwarnings("ignore::lstd.errors.LSTDWarning")
def test_words_and_missing_values_become_columns_in_fit_predict_and_score(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    table = machines(tmp_path)
    fit = ["--features", "load,vibration,temperature", *ROLES]
    assert run(["fit", "m.csv", *fit, "--categories", "load", "--impute", "-o", "model"]) == 0
    model = lstd.load("model")
    X = pd.DataFrame({"load=heavy": table["load"] == "heavy", "load=light": table["load"] == "light"}).astype(float)
    X["vibration"], X["temperature"] = table["vibration"], table["temperature"].fillna(table["temperature"].mean())
    X["temperature="] = table["temperature"].isna().astype(float)
    assert [*model.feature_names_in_] == [*X.columns]
    rows = {"episode": table["machine"], "terminated": table["failed"]}
    np.testing.assert_allclose(model.coef_, lstd.LSTD(1.0).fit(X, table["days"], **rows).coef_, rtol=1e-9)
    table.sample(frac=1.0, random_state=0).to_csv("today.csv", index=False)
    predict = "predict model today.csv --contributions --interval 0.9 -o p.csv --id temperature"
    assert run(predict.split()) == 0
    found, shuffled = pd.read_csv("p.csv"), X.sample(frac=1.0, random_state=0)
    np.testing.assert_allclose(found["prediction"], model.predict(shuffled))
    np.testing.assert_array_equal(found["temperature"], table["temperature"][shuffled.index])  # as given
    parts = model.contributions(shuffled)
    names = [f"contribution_{name}" for name in X.columns]
    np.testing.assert_allclose(found[names], parts.values, atol=1e-12)
    np.testing.assert_allclose(found[["at_means", *names]].sum(axis=1), found["prediction"])
    errors = found[[f"contribution_error_{name}" for name in X.columns]]
    np.testing.assert_allclose(errors, parts.standard_error, atol=1e-12)
    assert run(["score", "model", "m.csv"]) == 0
    assert f"of {len(table)} rows scored" in capsys.readouterr().out
    for more, said in (
        (["--categories", "failed"], "'failed' is not one of them"), (["--impute", "--horizon", "3"], "`--impute`"),
        (["--categories", "vibration", "--next-features", "*"], "`--next-features` must not"),
    ):  # fmt: skip
        assert run(["fit", "m.csv", *fit, *more, "-o", "other"]) == 2
        assert said in capsys.readouterr().err


def test_a_row_of_sorted_tables_is_named_by_its_file_and_place_its_id_and_time(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    table = machines(tmp_path).sample(frac=1.0, random_state=0)
    table.to_csv("m.csv", index=False)
    fit = ["--features", "temperature", *ROLES, "-o", "model"]
    assert run(["fit", "m.csv", *fit, "--time", "day", "--sort"]) == 2
    said = capsys.readouterr().err
    place = r"m.csv: column 'temperature', row (\d+) \(the first row of data is 1\) \(machine (\d+), day (\d+)\): has"
    row, *name = map(int, re.search(place, said).groups())
    assert table["temperature"].isna().iloc[row - 1]
    assert name == table[["machine", "day"]].iloc[row - 1].tolist()


@pytest.mark.filterwarnings("default::lstd.errors.LSTDWarning")
def test_words_that_the_fit_has_not_seen_are_named(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    table = machines(tmp_path)
    fit = ["fit", "m.csv", "--features", "load,vibration", *ROLES, "--categories", "load", "--force", "-o", "model"]
    assert run(fit) == 0
    machines(tmp_path, load=np.where(table["machine"] == 3, "none ", np.where(table["machine"] == 5, "new", "light")))
    none, new = (table["machine"] == 3).sum(), (table["machine"] == 5).sum()
    for command in (["predict", "model", "m.csv", "-o", "p.csv"], ["score", "model", "m.csv"]):
        capsys.readouterr()
        assert run(command) == 0
        said = capsys.readouterr().err
        for what in (
            f"'load' has 'new' in {new} rows",
            f"column 'load' has no value in {none} rows",
            "without that column",
        ):
            assert what in said
    assert run(["predict", "model", "m.csv", "--interval", "0.9", "-o", "p.csv", "--force", "--id", "machine"]) == 0
    found = pd.read_csv("p.csv")
    assert {*found["machine"][found["little_data"]]} == {3, 5}
    table.drop(columns="vibration").to_csv("n.csv", index=False)
    capsys.readouterr()
    assert run(["predict", "model", "n.csv"]) == 2
    assert "load=" not in capsys.readouterr().err
    assert run(fit) == 0  # whose model knows rows without a value
    assert [*lstd.load("model").feature_names_in_] == ["load=", "load=light", "load=new", "vibration"]
    assert run(["score", "model", "m.csv"]) == 0
    assert "has no value" not in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore::lstd.errors.LSTDWarning")
def test_a_report_names_rows_by_the_ids_and_times_of_the_table(tmp_path, monkeypatch, no_pictures):
    monkeypatch.chdir(tmp_path)
    table = machines(tmp_path)
    table["machine"] = [f"M{5000 + number}" for number in table["machine"]]
    table["day"] = pd.Timestamp("2024-01-01") + pd.to_timedelta(table["day"], "D")
    table.to_csv("m.csv", index=False)
    fit = ["fit", "m.csv", "--features", "vibration", *ROLES, "--time", "day", "--report", "fit.html", "--quiet"]
    for more in ([], ["--independent"], ["--sort"]):
        assert run([*fit, *more, "--force", "-o", "model"]) == 0
        page = (tmp_path / "fit.html").read_text()
        found = re.search(r"largest\s+prediction, for episode (M\d+) at (\S+): ", page).groups()
        X = table[["vibration"]]
        row = table.iloc[int(np.argmax(lstd.load("model").predict(X)))]
        assert found == (row["machine"], f"{row['day']:%Y-%m-%d}")
        assert re.search(rf"for rows 0 to \d+ \({table['machine'][0]} at 2024-", page)
    table.dropna(subset="days").to_csv("n.csv", index=False)
    roles = ["--reward", "days", "--terminated", "failed", "--gamma", "1"]
    assert run(["fit", "n.csv", "--features", "vibration", *roles, "--report", "n.html", "-o", "n", "--quiet"]) == 0
    assert "for episode no. " in (tmp_path / "n.html").read_text()


def test_errors_name_the_options_that_mend_a_feature(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    machines(tmp_path)
    for features, said in (
        ("load", "or encode the column in numbers. A column of words: `--categories load`."),
        ("temperature", "n/a or the like); `--impute` fills in the mean, with a column of 0 and 1 that says where."),
    ):
        assert run(["fit", "m.csv", "--features", features, *ROLES, "-o", "model"]) == 2
        assert said in capsys.readouterr().err
    machines(tmp_path, day="first")
    assert run(["fit", "m.csv", "--features", "vibration", *ROLES, "--time", "day", "-o", "model"]) == 2
    assert "--categories" not in capsys.readouterr().err
    table = machines(tmp_path).sample(frac=1.0, random_state=0).astype({"vibration": object})
    table.iloc[50, table.columns.get_loc("vibration")] = "bad"
    table.to_csv("m.csv", index=False)
    sort = ["--time", "day", "--sort", "--impute", "-o", "model"]
    assert run(["fit", "m.csv", "--features", "vibration", *ROLES, *sort]) == 2
    assert "column 'vibration', row 51 (the first row of data is 1): has 'bad'" in capsys.readouterr().err
