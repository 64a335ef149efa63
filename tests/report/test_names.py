"""Names of columns are shown as they are: never read as mathematics, markup or templates."""

import html
import re

import numpy as np
import pytest

from lstd.cli import main

pd = pytest.importorskip("pandas")

NAMES = {
    "x": "cost_$_per_$_spent", "z": r"a$\frac{$b", "r": r"$\nothing$ <b>", "s": "{{x}} %s & $_$", "e": "id $^$",
    "end": "end$_$", "t": "day $x$", "g": "group $_{$",
}  # fmt: skip


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    rng, n_rows = np.random.default_rng(0), 400
    episode, step = np.divmod(np.arange(n_rows), 10)
    columns = {name: rng.normal(size=n_rows) for name in "xzrs"}
    columns |= {"e": [f"who $_$ <{i}>" for i in episode], "t": step, "end": (step == 9) & (episode % 2 == 0)}
    columns["g"] = [f"of $_{{$ {i // 2}" for i in episode]
    frame = pd.DataFrame(columns)
    frame.loc[(step == 9) & (episode % 2 == 1), ["r", "s"]] = np.nan
    path = tmp_path_factory.mktemp("names") / "a.csv"
    frame.rename(columns=NAMES).to_csv(path, index=False)
    return path


def quoted(*names):
    return ",".join(f'"{NAMES[name]}"' for name in names)


HORIZON = ["--horizon", "3"]
IDS = ["--time", NAMES["t"], "--groups", NAMES["g"]]


@pytest.mark.parametrize(
    ("extra", "rewards"), [([], "r"), (IDS, "rs"), (HORIZON, "rs"), ([*HORIZON, *IDS], "r")], ids=[1, 2, 3, 4]
)
def test_reports_show_names_as_they_are(file, tmp_path, extra, rewards):
    page = tmp_path / "page.html"
    roles = ["--features", quoted("x", "z"), "--reward", quoted(*rewards), "--episode", NAMES["e"]]
    roles += ["--terminated", NAMES["end"], "--gamma", "0.9", *extra]
    assert main(["fit", str(file), *roles, "--out", str(tmp_path / "m"), "--report", str(page)]) == 0
    text = html.unescape(re.sub("<[^>]*>", "", page.read_text()))
    for name in ("x", "z", *rewards):
        assert NAMES[name] in text


@pytest.mark.parametrize("extra", [[], HORIZON], ids=len)
def test_predictions_and_scores_with_such_names(file, tmp_path, extra):
    model, table = str(tmp_path / "m"), tmp_path / "p.csv"
    roles = ["--features", quoted("x", "z"), "--reward", quoted("r", "s"), "--episode", NAMES["e"]]
    assert main(["fit", str(file), *roles, "--terminated", NAMES["end"], "--gamma", "0.9", *extra, "--out", model]) == 0
    assert main(["predict", model, str(file), "--id", NAMES["e"], "--out", str(table)]) == 0
    assert [*pd.read_csv(table)][1:] == [f"prediction_{NAMES[name]}{'_3' if extra else ''}" for name in "rs"]
    assert main(["score", model, str(file)]) == 0
    assert main(["inspect", model]) == 0
