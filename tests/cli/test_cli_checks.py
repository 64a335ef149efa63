"""The checks of a model in the shell: printed by fit and inspect, kept in its file, said beside intervals."""

import re
import warnings

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

from lstd import load
from lstd.cli.app import run
from lstd.cli.options import names
from lstd.errors import InvalidInputError

pytestmark = pytest.mark.usefixtures("few_pairs", "no_pictures")

COLUMNS = ["--reward", "reward", "--episode", "id", "--terminated", "end", "--gamma", "0"]


@pytest.fixture
def data(tmp_path, monkeypatch):
    """A table of 300 episodes whose rewards depend on the square of a feature."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(4)
    x = random.normal(size=1200)
    columns = {"x": x, "square": x**2, "reward": x**2 + random.normal(size=1200)}
    columns |= {"id": np.arange(1200) // 4, "end": np.arange(1200) % 4 == 3}
    pyarrow.csv.write_csv(pa.table(columns), "data.csv")
    return "data.csv"


@pytest.mark.parametrize(
    ("settings", "features", "misfit"),
    [
        (["--alpha", "1", "--lmbda", "0.5", "--report", "page.html"], "x", True),
        (["--alpha", "auto", "--lmbda", "0.5"], "x,square", False),
    ],
    ids=["given, with a report", "chosen"],
)
@pytest.mark.filterwarnings("ignore::lstd.errors.MisfitWarning")
def test_a_misfit_is_kept_with_the_model_and_said_beside_intervals(data, capfd, settings, features, misfit):
    assert run(["fit", data, "--features", features, *COLUMNS, *settings, "-o", "model", "--quiet"]) == 0
    assert "\nmisfit  " in capfd.readouterr().out
    assert run(["inspect", "model"]) == 0
    assert "\nmisfit  " in capfd.readouterr().out
    assert load("model").model_.misfit.misfit is misfit
    assert run(["predict", "model", data, "--interval", "0.9", "-o", "out.csv"]) == 0
    assert ("Intervals leave this out" in capfd.readouterr().err) is misfit
    assert run(["predict", "model", data, "--interval", "0.9", "-o", "quiet.csv", "--quiet"]) == 0
    assert "Intervals leave this out" not in capfd.readouterr().err


def test_a_misfit_is_said_once_when_settings_are_chosen_for_a_report(data, capfd, monkeypatch):
    monkeypatch.setattr("lstd.report.model_page.write_page", lambda *_: None)
    command = ["fit", data, "--features", "x", *COLUMNS, "--alpha", "auto", "--lmbda", "0.5", "-o", "model", "--force"]
    for report in ([], ["--report", "page.html"]):
        with warnings.catch_warnings(action="always"):
            assert run([*command, *report]) == 0
        out, err = capfd.readouterr()
        assert re.search(r"\nmisfit +found", out)
        assert ("no weighted sum" in err) is (not report)


def test_a_name_with_a_line_break_needs_quotes():
    assert names(['"line\nbreak",b'], "--features") == ("line\nbreak", "b")
    with pytest.raises(InvalidInputError, match=r"`--features` must have a name with a line break in quotes"):
        names(["line\nbreak"], "--features")
