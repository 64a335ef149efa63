"""Figures and page of a fitted model: what they show, from data made for the purpose; contents, not pixels."""

import re
import subprocess
import sys
import warnings
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from scipy import sparse
from scipy.stats import t as student

from lstd import LSTD
from lstd.data.check_rows import check_rows
from lstd.errors import InvalidInputError
from lstd.estimators.choose_settings import held_out_score
from lstd.estimators.model_parts import Checks
from lstd.metrics import calibration, observed_returns
from lstd.mrp import BoyanChain, RandomMRP, make_features
from lstd.report import model_page, plot_calibration, plot_contributions, plot_grid, plot_predictions, write_fit_report
from lstd.report.grid_figure import grid_of
from lstd.report.style import rendered
from other_user import other_user
from page_outline import assert_sound, outline
from tolerances import assert_close

LMBDAS, ALPHAS = np.array([0.0, 0.5, 0.9, 1.0]), 2.0 ** np.arange(-3, 3)


class Chosen(LSTD):
    """Stands in for an estimator that has chosen λ and α."""


def scores():
    """Errors with their lowest at λ = 0.9, α = 1/2; one pair has none."""
    lmbda, alpha = (grid.ravel() for grid in np.meshgrid(LMBDAS, ALPHAS, indexing="ij"))
    error = 0.2 + 0.1 * (lmbda - 0.9) ** 2 + 0.01 * (np.log2(alpha) + 1) ** 2
    score = 1 - error
    score[-6] = -np.inf
    return {"lmbda": lmbda, "alpha": alpha, "mean_test_score": score, "std_test_score": 0.1 * error}


def chain(n_steps=1500, seed=3):
    """Many short episodes: features, rewards, flags."""
    model = BoyanChain(gamma=0.95)
    trajectory = model.simulate(n_steps, seed)
    noise = np.random.default_rng(seed).normal(size=n_steps)
    return model.interpolating_features[trajectory.states[:-1]], trajectory.rewards + noise, trajectory.terminated


def stream(n_steps=3000, features="normal"):
    """One stream that has not ended: features and rewards, the last of which is missing."""
    model = RandomMRP(10, 3, 0.1, seed=5)
    trajectory = model.simulate(n_steps, 1)
    return make_features(model, features)[trajectory.states], np.append(trajectory.rewards, np.nan)


def fitted_chain(**settings):
    X, y, terminated = chain()
    return LSTD(gamma=0.95, **settings).fit(X, y, terminated=terminated), X, y, terminated


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The page of many short episodes, with a choice of settings."""
    X, y, terminated = chain()
    model = Chosen(gamma=0.95, alpha=0.5).fit(X, y, terminated=terminated)
    model.cv_results_, model.lmbda_, model.alpha_ = scores(), 0.9, 1.0
    path = tmp_path_factory.mktemp("fit") / "fit.html"
    assert write_fit_report(path, model, X, y, terminated=terminated) == path
    return path.read_text(encoding="utf-8")


@pytest.fixture
def quick(monkeypatch):
    """For pages of which the words matter: without figures and checks, which take most of their time."""
    for name in ("draw_predictions", "draw_calibration", "plot_grid"):
        monkeypatch.setattr(model_page, name, lambda *_: [Figure().add_subplot()])
    monkeypatch.setattr(model_page, "rendered", lambda figure: b"<svg/>")
    monkeypatch.setattr("lstd.report.figure_data.checks_for_report", lambda *_: Checks("not run", "not run"))


def words(text):
    return " ".join(outline(text).words.getvalue().split())


def svg_is_sound(figure):
    root = ET.fromstring(rendered(figure))
    return root.tag == "{http://www.w3.org/2000/svg}svg"


# ---------------------------------------------------------------- predictions over time


def test_predictions_are_drawn_episode_by_episode_with_bands_and_returns():
    model, X, y, terminated = fitted_chain()
    figure = plot_predictions(model, X, y, terminated=terminated)[0].figure
    assert svg_is_sound(figure)
    (ax,) = figure.axes
    line = next(line for line in ax.lines if len(line.get_xdata()) > 100)
    at, value = np.asarray(line.get_xdata()), np.asarray(line.get_ydata())
    rows = at[~np.isnan(at)].astype(int)
    assert terminated[rows[-1]]  # the window ends with an episode
    assert rows.tolist() == list(range(len(rows)))
    assert 150 < len(rows) <= 200
    assert_close(value[~np.isnan(value)], model.predict(X)[rows], "sums")
    assert np.isnan(at).sum() == terminated[rows[:-1]].sum()  # no line joins two episodes
    dots = np.asarray(ax.collections[0].get_offsets())
    expected = observed_returns(y, gamma=0.95, prediction=model.predict(X), terminated=terminated)
    assert_close(dots, np.column_stack([rows, expected.returns[rows]]), "sums")
    interval = model.predict_interval(X[rows])
    band = np.concatenate([path.vertices for path in ax.collections[1].get_paths()])
    for edge in (interval.lower, interval.upper):
        assert np.isin(edge.round(9), band[:, 1].round(9)).all()
    texts = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert texts == ["prediction", "95 % interval", "return, 100\N{NO-BREAK SPACE}% observed"]


@pytest.mark.filterwarnings("ignore::lstd.errors.RidgeWarning")
def test_without_observed_returns_or_intervals_the_predictions_remain():
    X, y = stream(40)
    figure = plot_predictions(LSTD(gamma=1.0, fit_intercept=False, n_blocks=0).fit(X, y), X, y)[0].figure
    (ax,) = figure.axes
    texts = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert texts == ["prediction", "return, 0\N{NO-BREAK SPACE}% observed"]
    assert len(np.asarray(ax.lines[0].get_xdata())) == 41
    assert svg_is_sound(figure)
    (panel,) = plot_calibration(LSTD(gamma=1.0, fit_intercept=False).fit(X, y), X, y)[0].figure.axes
    assert [text.get_text() for text in panel.texts] == ["no return was observed"]


@pytest.mark.parametrize("m", [1, 2])
@pytest.mark.parametrize("as_matrix", [np.asarray, sparse.csr_matrix])
def test_figure_and_page_doubt_rows_with_a_feature_that_the_fit_never_saw(tmp_path, quick, as_matrix, m):
    random = np.random.default_rng(4)
    X = np.column_stack([random.normal(size=(200, 2)), np.zeros(200)])
    y = random.normal(size=(200, m)).squeeze()
    terminated = np.arange(200) % 10 == 9
    model = LSTD(gamma=0.5, fit_intercept=False).fit(as_matrix(X), y, terminated=terminated)
    X[[3, 70], 2] = 1.0
    rows = as_matrix(X)
    little = model.predict_interval(rows).little_data.reshape(200, m)
    assert little[[3, 70]].all()
    for reward, line in enumerate(plot_predictions(model, rows, y, terminated=terminated)):
        crosses = next(other for other in line.axes.lines if other.get_marker() == "x")
        assert np.asarray(crosses.get_xdata()).tolist() == np.flatnonzero(little[:, reward]).tolist()
    page = write_fit_report(tmp_path / "page.html", model, rows, y, terminated=terminated)
    assert "Crosses at the bottom mark rows that little data supports" in page.read_text()


def test_bands_that_are_far_wider_than_all_else_are_cut_off_and_said_to_be():
    random = np.random.default_rng(1)
    states = np.minimum(random.geometric(0.2, 400) - 1, 20)
    X, y = np.eye(21)[states], random.normal(states / 5, 1)
    terminated = np.tile(np.arange(10) == 9, 40)
    model = LSTD(gamma=0.9, alpha=2.0).fit(X, y, terminated=terminated)
    figure = plot_predictions(model, X, y, terminated=terminated)[0].figure
    little = model.predict_interval(X[:200]).little_data
    assert little.any()
    crosses = next(line for line in figure.axes[0].lines if line.get_marker() == "x")
    assert np.asarray(crosses.get_xdata()).tolist() == np.flatnonzero(little).tolist()
    assert figure.axes[0].get_legend().get_texts()[-1].get_text() == "little data"
    bottom, top = figure.axes[0].get_ylim()
    interval = model.predict_interval(X[:200])
    beyond = interval.lower.min() < bottom or interval.upper.max() > top
    assert beyond == ("band cut off" in [text.get_text() for text in figure.axes[0].texts])


# ---------------------------------------------------------------- calibration


@pytest.mark.filterwarnings("ignore::lstd.errors.UnobservedWarning")
def test_the_page_says_how_much_of_the_returns_was_observed(page, tmp_path, quick):
    X, y, terminated = chain()
    assert "Of the discounted weight of the returns, 100 % was observed." in words(page)
    cut = np.arange(len(X)) % 5 == 4
    y = np.where(cut & ~terminated, 0.0, y)
    columns = {"episode": np.cumsum(cut | terminated) - (cut | terminated), "terminated": terminated}
    model = LSTD(gamma=0.95).fit(X, y, **columns)
    write_fit_report(tmp_path / "fit.html", model, X, y, **columns)
    said = words((tmp_path / "fit.html").read_text(encoding="utf-8"))
    share = observed_returns(y, gamma=0.95, prediction=model.predict(X), **columns).share
    assert 0.2 < share < 0.5
    assert f"Of the discounted weight of the returns, {100 * share:.0f} % was observed. Where an episode" in said
    assert "so R² and the figures mostly compare the model with itself" in said
    (ax,) = plot_calibration(model, X, y, **columns)[0].figure.axes
    assert ax.get_ylabel().replace("\N{NO-BREAK SPACE}", " ") == f"mean return, {100 * share:.0f} % observed"
    with pytest.raises(InvalidInputError, match=r'"drop" must have episodes that all terminated or were all cut off'):
        write_fit_report(tmp_path / "fit.html", model, X, y, unobserved="drop", **columns)


def test_calibration_shows_deciles_with_intervals_over_episodes():
    model, X, y, terminated = fitted_chain()
    (ax,) = plot_calibration(model, X, y, terminated=terminated)[0].figure.axes
    observed = observed_returns(y, gamma=0.95, prediction=model.predict(X), terminated=terminated)
    episode = np.concatenate([[0], np.cumsum(terminated[:-1])])
    table = calibration(model.predict(X), observed, groups=episode)
    (bars,) = ax.containers
    assert_close(np.asarray(bars[0].get_xydata()), np.column_stack([table.predicted, table.observed]), "sums")
    half = table.standard_error * student.ppf(0.975, table.n_groups - 1)
    segments = np.array(bars[2][0].get_segments())
    assert_close(segments[:, 1, 1] - segments[:, 0, 1], 2 * half, "sums")
    diagonal = ax.lines[0].get_xydata()
    assert (diagonal[:, 0] == diagonal[:, 1]).all()
    assert ax.get_xlim() == ax.get_ylim()


# ---------------------------------------------------------------- choice of λ and α


def test_the_grid_puts_every_error_in_its_place():
    found = grid_of(scores(), 0.9, 0.5)
    assert_close(found.error[2], 0.2 + 0.01 * np.square(np.log2(ALPHAS) + 1), "sums")
    assert np.isnan(found.error).sum() == 1
    assert np.isnan(found.error[3, 0])
    assert found.chosen == found.lowest == (2, 2)
    assert found.on_edge == []
    assert grid_of(scores(), 0.9, 4.0).on_edge == ["α"]
    assert grid_of(scores(), 1.0, 0.125).on_edge == ["α"]  # λ cannot go beyond 1
    shuffled = {name: values[::-1] for name, values in scores().items()}
    assert np.array_equal(grid_of(shuffled, 0.9, 0.5).error, found.error, equal_nan=True)


def test_the_grid_is_drawn_with_the_chosen_pair():
    figure = plot_grid(scores(), 0.9, 1.0)[0].figure
    assert svg_is_sound(figure)
    ax, scale = figure.axes
    mesh = ax.collections[0]
    assert_close(mesh.get_array().min(), 1.0, "sums")
    star = next(line for line in ax.lines if line.get_marker() == "*")
    assert star.get_xydata().tolist() == [[3, 2]]
    lowest = next(line for line in ax.lines if line.get_marker() == "o")
    assert lowest.get_xydata().tolist() == [[2, 2]]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["0", "0.5", "0.9", "1"]
    assert ax.get_xticklabels()[0].get_text() == "$2^{-3}$"
    assert scale.get_ylabel() == "error ÷ lowest error"
    assert [text.get_text() for text in figure.axes[0].get_legend().get_texts()] == [
        "chosen",
        "lowest error",
        "no error",
    ]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"alpha": None}, "the arrays lmbda, alpha and mean_test_score; alpha is missing"),
        ({"alpha": [1.0]}, r"`cv_results\['alpha'\]` must have shape"),
        ({"mean_test_score": [1.0]}, r"`cv_results\['mean_test_score'\]` must have shape"),
        ({"mean_test_score": np.full(24, np.nan)}, "with a finite entry; got none"),
        ({"mean_test_score": np.full(24, 1.5)}, "must be R², at most 1, with a finite entry; got 1.5"),
    ],
)
def test_grids_that_break_a_rule_are_refused(changes, message):
    found = {name: values for name, values in (scores() | changes).items() if values is not None}
    with pytest.raises(InvalidInputError, match=message):
        plot_grid(found, 0.9, 0.5)
    with pytest.raises(InvalidInputError, match="`alpha` must be on the grid"):
        plot_grid(scores(), 0.9, 0.7)


# ---------------------------------------------------------------- the page


def test_the_page_is_sound_and_loads_nothing(page):
    found = outline(page)
    assert_sound(found, n_images=5, least_words=60)
    assert not re.search(r"url\(|@import|<script|<iframe|https?:", page)
    assert {link[1:] for link in found.links} <= set(found.identifiers)
    assert len(page) < 1e6


def test_the_page_says_what_was_fitted(page):
    said = words(page)
    for phrase in (
        "boyan, with an intercept",
        "about 10 digits of the weights are reliable",
        "compared with the returns in 1 500 rows",
        "The star is the chosen pair, λ = 0.9, α = 1.",
        "Its error is 5 % above the lowest, at λ = 0.9, α = 0.5.",
        "which is not necessarily the truth",
        "They take episodes as independent",
        "share of the coefficient that the ridge term decides",
    ):
        assert phrase in said, phrase
    assert "What is missing" not in said
    assert "nan" not in said


def test_the_page_shows_what_the_summary_shows(tmp_path, quick):
    X, y, terminated = chain()
    model = LSTD(gamma=0.95, alpha=[1.0, 2.0, 0.0, 3.0]).fit(X, y, terminated=terminated)
    said = words(write_fit_report(tmp_path / "fit.html", model, X, y, terminated=terminated).read_text("utf-8"))
    summary = model.summary()
    for name, text in summary.facts.items():
        assert f"{name} {text}" in " ".join(str(summary).split())
        assert text in said, name
    for line in summary.table():
        assert all(cell in said for cell in line)
    document = summary.document
    assert document["coefficients"]["reward"] == dict(zip(model.model_.feature_names, model.coef_, strict=True))
    assert document["observed_share"] == summary.observed_share


def test_what_cannot_be_drawn_is_said_with_the_reason(tmp_path, no_pictures):
    X, y = stream(300)
    model = LSTD(gamma=1.0, fit_intercept=False, n_blocks=0).fit(X, y)
    text = write_fit_report(tmp_path / "fit.html", model, X, y).read_text(encoding="utf-8")
    said = words(text)
    assert len(outline(text).images) == 2
    assert "What is missing, and why" in said
    assert "Intervals need" in said
    assert "too little of the returns was observed" in said
    assert "both were given, so no others were tried" in said
    assert "Calibration" not in [found.strip() for found in re.findall(r"<h2>(.*?)</h2>", text)]


def test_few_episodes_and_two_rewards_with_names(tmp_path, quick):
    random = np.random.default_rng(6)
    X = pd.DataFrame(random.normal(size=(90, 2)), columns=["x <1>", "a & b"])
    y = pd.DataFrame({"won": random.normal(size=90), "$ paid": np.ones(90)})
    episode, terminated = np.repeat(["p", "q", "r"], 30), np.tile(np.arange(30) == 29, 3)
    model = LSTD(gamma=0.9).fit(X, y, episode=episode, terminated=terminated)
    path = tmp_path / "fit.html"
    write_fit_report(path, model, X, y, episode=episode, terminated=terminated, title="Won & paid")
    said = words(path.read_text(encoding="utf-8"))
    assert "Won & paid" in said
    assert "Intervals need at least 5 episodes" in said
    assert "x <1>, a & b" in said
    assert re.search(r"won \(R² −?\d\.\d+\), \$ paid \(R²", said)
    named = words(write_fit_report(
        path, model, X, y, episode=episode, terminated=terminated, rewards=["one", "two"]
    ).read_text(encoding="utf-8"))  # fmt: skip
    assert "one (R²" in named
    with pytest.raises(InvalidInputError, match="`rewards` must have 2 names"):
        write_fit_report(path, model, X, y, episode=episode, terminated=terminated, rewards=["one"])


@pytest.mark.parametrize("kind", ["sparse", "many rewards", "one row", "singular"])
def test_pages_of_every_kind_of_fit(tmp_path, kind, request):
    X, y, terminated = chain(300)
    settings = {"gamma": 0.95}
    if kind == "sparse":
        request.getfixturevalue("no_pictures")  # they are those of dense rows
        X = sparse.csr_array(X)
    elif kind == "many rewards":
        request.getfixturevalue("quick")
        X, y, terminated = X[:100], np.random.default_rng(0).normal(size=(100, 7)), terminated[:100]
    elif kind == "one row":
        X, y, terminated = X[:1], y[:1], [True]
    else:
        X, settings["alpha"] = np.column_stack([X, X]), 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = LSTD(**settings).fit(X, y, terminated=terminated)
        path = write_fit_report(tmp_path / "fit.html", model, X, y, terminated=terminated)
    said = words(path.read_text(encoding="utf-8"))
    expected = {"many rewards": "Rewards after the first 6: reward_6", "sparse": "with an intercept"}
    expected |= {"one row": "Intervals need", "singular": "infinite: singular"}
    assert expected.get(kind, "observed") in said


def test_bytes_depend_on_the_data_only_and_pyplot_is_not_imported(page, tmp_path, monkeypatch):
    """Not on Python's hashes, on the process that draws, or on the user's configuration of Matplotlib."""
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "experiments")
    import test_report

    program = (
        "import sys, test_model_page as t, lstd.report as r\n"
        "X, y, terminated = t.chain()\n"
        "model = t.Chosen(gamma=0.95, alpha=0.5).fit(X, y, terminated=terminated)\n"
        "model.cv_results_, model.lmbda_, model.alpha_ = t.scores(), 0.9, 1.0\n"
        "r.write_fit_report(sys.argv[1], model, X, y, terminated=terminated)\n"
        "import test_report\n"
        "test_report.write_again(sys.argv[2])\n"
        "sys.exit('matplotlib.pyplot' in sys.modules)"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "fit.html"), str(tmp_path / "again")]
    subprocess.run(command, check=True, env=other_user(tmp_path))
    assert (tmp_path / "fit.html").read_text(encoding="utf-8") == page
    test_report.write_again(tmp_path / "once")
    written = sorted(path.relative_to(tmp_path / "once") for path in (tmp_path / "once").rglob("*.*"))
    assert len(written) == 2 + 1 + 1 + 2
    for name in written:
        assert (tmp_path / "once" / name).read_bytes() == (tmp_path / "again" / name).read_bytes(), name


def test_the_page_begins_with_a_verdict_and_shows_why_and_when(tmp_path, quick):
    X, y, terminated = chain()
    episode = np.concatenate([[0], np.cumsum(terminated[:-1])])
    days = np.datetime64("2024-01-01") + np.arange(len(X)).astype("m8[D]")
    model = LSTD(gamma=0.95).fit(X, y, episode=episode, terminated=terminated)
    rows = {"episode": episode, "terminated": terminated, "rewards": ["euros"], "time": days}
    said = words(write_fit_report(tmp_path / "fit.html", model, X, y, **rows).read_text("utf-8"))
    score = held_out_score(check_rows(X, y, gamma=0.95, episode=episode, terminated=terminated), model.model_)
    assert f"R² is {score:.3f} on held-out rows." in said
    assert re.search(r"(Nothing was found that speaks against|Be careful with) this model", said)
    largest = int(np.argmax(model.predict(X)))
    assert f"for episode {episode[largest]} at {days[largest]}:" in said
    (ax,) = plot_predictions(model, X, y, **rows)[0].figure.axes
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("episode and time", "euros to come, discounted")
    for place, label in zip(ax.get_xticks().astype(int), ax.get_xticklabels(), strict=True):
        assert label.get_text() == f"{episode[place]}\n{days[place]}"
    with pytest.raises(InvalidInputError, match="`time` must have"):
        plot_predictions(model, X, y, **rows | {"time": days[1:]})


@pytest.mark.filterwarnings("ignore::lstd.errors.LSTDWarning")
def test_a_verdict_says_what_speaks_against_a_model(tmp_path, no_pictures):
    random = np.random.default_rng(0)
    X, ends = random.normal(size=(400, 1)), {"episode": np.arange(400), "terminated": np.ones(400, dtype=bool)}
    y = X[:, 0] ** 2 + 0.1 * random.normal(size=400)
    page = words(
        write_fit_report(tmp_path / "fit.html", LSTD(gamma=0.0).fit(X, y, **ends), X, y, **ends).read_text("utf-8")
    )
    assert re.search(r"Be careful with this model: it predicts held-out returns no better [^.]*\(misfit\)\.", page)


def test_bars_of_contributions_add_up_and_few_are_drawn():
    random = np.random.default_rng(3)
    X, y = random.normal(size=(300, 30)), random.normal(size=300)
    model = LSTD(gamma=0.5).fit(X, y, terminated=np.arange(300) % 3 == 2)
    bars, found = plot_contributions(model, X[:1]), model.contributions(X[:1])
    assert len(bars) == 21
    assert bars[0].axes.get_yticklabels()[20].get_text() == "10 more"
    np.testing.assert_allclose(sum(bar.get_width() for bar in bars) + found.base, model.predict(X[:1]))
    interval = model.summary().interval
    j = int(np.argmax(np.abs(found.values[0])))
    half = np.abs(X[0, j] - found.means[j]) * (interval.upper - interval.prediction)[j, 0]
    (segment,) = bars.errorbar[2][0].get_segments()[:1]
    np.testing.assert_allclose(np.ptp(segment[:, 0]), 2 * half)
    with pytest.raises(InvalidInputError, match="one row of features"):
        plot_contributions(model, X[:2])
