"""`plot_curve` and `plot_spread`: the numbers that are drawn are those of the model."""

import re
import warnings

import numpy as np
import pytest

from lstd import LSTD, HorizonLSTD
from lstd.errors import InvalidInputError
from lstd.inference import ReturnSpread
from lstd.report import plot_curve, plot_spread, write_fit_report
from page_outline import assert_sound, outline

pytest.importorskip("matplotlib")
pytestmark = pytest.mark.filterwarnings("ignore::lstd.errors.LSTDWarning")  # of few rows


@pytest.fixture
def data():
    random = np.random.default_rng(0)
    episode = np.arange(80) // 4
    return {
        "X": random.normal(size=(80, 2)),
        "y": random.normal(size=(80, 2)),
        "episode": episode,
        "terminated": np.arange(80) % 4 == 3,
    }


def test_lines_and_bands_are_predictions_and_intervals(data):
    model = HorizonLSTD(5).fit(**data)
    lines = plot_curve(model, data["X"][:3], level=0.9)
    curve = model.predict_curve(data["X"][:3])
    np.testing.assert_allclose([line.get_ydata() for line in lines[:3]], curve[..., 0], rtol=1e-12)
    np.testing.assert_allclose([line.get_ydata() for line in lines[3:]], curve[..., 1], rtol=1e-12)
    band = lines[0].axes.collections[0].get_paths()[0].vertices
    upper = model.predict_interval(data["X"][:1], 0.9, horizon=5).upper[0, 0]
    assert np.isclose(band[band[:, 0] == 5, 1].max(), upper)


def test_without_blocks_there_are_no_bands(data):
    model = HorizonLSTD(5, n_blocks=0).fit(**data)
    assert not plot_curve(model, data["X"])[0].axes.collections
    with pytest.raises(InvalidInputError, match="Intervals need"):
        plot_curve(model, data["X"], weights=np.ones(80))


def test_ranges_of_one_return_and_intervals_of_the_mean(data):
    for model, m in ((LSTD(0.5), 1), (HorizonLSTD(5, n_blocks=0), 1), (LSTD(0.5), 2)):
        given = data | {"y": data["y"][:, :m].squeeze()}
        spread = ReturnSpread(model.fit(**given)).fit(**given)
        if m == 2:
            with pytest.raises(InvalidInputError, match="must be of one reward; got 2"):
                plot_spread(spread, data["X"])
            continue
        ranges = plot_spread(spread, data["X"], level=0.8, labels=[f"customer {k}" for k in range(80)])
        panel, found = ranges[0].axes, spread.predict_interval(data["X"][:12], 0.8)
        np.testing.assert_allclose([bar.get_x() for bar in ranges], found.lower)
        np.testing.assert_allclose([bar.get_x() + bar.get_width() for bar in ranges], found.upper)
        assert [text.get_text() for text in panel.get_yticklabels()][:2] == ["customer 0", "customer 1"]
        points, _, bars = panel.containers[1]
        np.testing.assert_allclose(points.get_xdata(), found.prediction)
        assert len(bars) == (model.n_blocks != 0)
        if bars:
            mean = model.predict_interval(data["X"][:12], 0.8)
            np.testing.assert_allclose([line[1, 0] for line in bars[0].get_segments()], mean.upper)


def test_a_page_shows_what_a_model_of_the_next_steps_predicts(tmp_path, data):
    last = np.arange(80)[:, np.newaxis] % 4 == 3
    data |= {"y": np.where(last, np.nan, data["y"]), "terminated": np.zeros(80, dtype=bool)}
    model = HorizonLSTD(5).fit(**data)
    page = write_fit_report(tmp_path / "page.html", model, **data, rewards=["visits", "spend"]).read_text("utf-8")
    assert_sound(outline(page), 3, 5)
    found = model.observed_returns(**data, horizon=3)
    for text in ("visits", "spend", "horizon", f"{100 * found.share:.0f}\u00a0%", "all 20 rows that are still active"):
        assert text in page
    ends = {"X": data["X"], "y": data["X"][:, 0], "terminated": np.arange(80) % 4 == 3}
    page = write_fit_report(tmp_path / "page.html", HorizonLSTD(5, n_blocks=0).fit(**ends), **ends)
    assert_sound(outline(page.read_text("utf-8")), 2, 5)
    assert "on these rows. Be careful with this model: it has no intervals." in page.read_text("utf-8")


def test_the_verdict_on_a_model_of_the_next_steps_says_what_its_checks_found(tmp_path, no_pictures):
    random = np.random.default_rng(0)
    x = random.normal(size=(600, 1))
    rows = {"X": x, "y": 3.0 * x[:, 0] ** 2 + random.normal(size=600), "episode": np.repeat(np.arange(150), 4)}
    rows |= {"terminated": np.arange(600) % 4 == 3}

    def verdict(**options):
        with warnings.catch_warnings(action="ignore"):
            model = HorizonLSTD(3, **options).fit(**rows)
            page = write_fit_report(tmp_path / "page.html", model, **rows).read_text("utf-8")
        return re.search(r'<p class="verdict-line [a-z]*">([^<]*)</p>', page)[1]

    assert "returns depend on the features in ways that it cannot follow (misfit)" in verdict()
    unchecked = verdict(check=False)
    assert "misfit" not in unchecked or "could not be checked for bias and misfit" in unchecked
    rows["y"] = rows["X"][:, 0] + random.normal(size=600)
    right = verdict()
    assert right.endswith("Nothing was found that speaks against this model.")
    assert verdict(lmbda=1.0).endswith("Nothing was found that speaks against this model.")
    assert "could not be checked for bias and misfit" in verdict(check=False)
