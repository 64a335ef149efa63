"""Pictures of the documentation, drawn when it is built, in a light and a dark version."""

from __future__ import annotations

import ast
import textwrap
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from lstd import LSTDCV, HorizonLSTD, report
from lstd.datasets import load_shop
from lstd.experiments import LMBDAS, run_sweep
from lstd.inference import ReturnSpread
from lstd.ope import LSTDQ, compare_policies, policy_value

ROOT = Path(__file__).parents[2]
INK = {"light": "#1f2933", "dark": "#e4e7eb"}
PALE = {"light": "#e8edf2", "dark": "#2f3a45"}
BLUE = {"light": "#0072b2", "dark": "#56b4e9"}
LOOK = {"font.size": 10, "svg.fonttype": "path", "svg.hashsalt": "lstd", "axes.spines.top": False}


def draw_all(folder):
    """Write every picture as NAME-light.svg and NAME-dark.svg."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in {"value": value, "rows": rows, "house": house}.items():
        for theme in ("light", "dark"):
            with plt.rc_context(LOOK | {"text.color": INK[theme]}):
                figure = draw(theme)
                figure.savefig(
                    folder / f"{name}-{theme}.svg", transparent=True, bbox_inches="tight", metadata={"Date": None}
                )
                plt.close(figure)
    for name, artists in plots().items():
        artists[0].figure.savefig(folder / f"{name}.png", dpi=110, metadata={"Software": None})


def plots():
    """Draw every figure of `lstd.report` for 200 customers, of whom some are still active; artists by function."""
    random = np.random.default_rng(1)
    customer = np.repeat(np.arange(200), random.geometric(0.06, 200))
    n, last = len(customer), np.append(np.diff(customer) > 0, True)
    X = pd.DataFrame({"visits": random.poisson(1.5, n), "age": random.normal(40, 10, n)})
    X["newsletter"] = (random.random(n) < 0.4).astype(float)
    data = {"episode": customer, "terminated": last & (customer % 3 > 0)}
    spent = 3 * X["visits"] + 4 * X["newsletter"] + random.gamma(2.0, 2.0, n)
    y = spent.where(~last | data["terminated"], 0.0)
    model = LSTDCV(gamma=0.8).fit(X, y, **data)
    offered = 1 / (1 + np.exp(np.outer(X["visits"] - 1.5, [1, -1])))  # probabilities of two offers, (n, 2)
    offers = (random.random(n) > offered[:, 0]).astype(int)
    return {
        "plot_action_calibration": report.plot_action_calibration(offers, offered),
        "plot_blocks": report.plot_blocks(model, X[:1]),
        "plot_calibration": report.plot_calibration(model, X, y, **data),
        "plot_coefficients": report.plot_coefficients(model),
        "plot_contributions": report.plot_contributions(model, X[:1]),
        "plot_curve": report.plot_curve(HorizonLSTD(12).fit(X, y, **data), X[:3]),
        "plot_grid": report.plot_grid(model.cv_results_, model.lmbda_, model.alpha_),
        "plot_policy_diagnostics": report.plot_policy_diagnostics(policy_value(by_chance(X, y, offers, offered, data))),
        "plot_policy_values": report.plot_policy_values(policies(X, y + 2.0 * offers * (y > 0), offers, offered, data)),
        "plot_predictions": report.plot_predictions(model, X, y, **data),
        "plot_sweep": report.plot_sweep(
            run_sweep("small", "binary", ["boyan", "uncorrected", "mixed"], run_seeds=range(1, 11)), LMBDAS
        ),
        "plot_spread": report.plot_spread(ReturnSpread(model).fit(X, y, **data), X[:8]),
        "range-of-one": range_of_one(),
    }


def range_of_one():
    """Draw the ranges of eight customers of the shop, and the intervals of their means."""
    table = load_shop()
    X = table[["recent", "weeks"]].assign(quiet=table["since_last"] >= 4).astype(float)
    data = {"y": table["spend"], "episode": table["customer"], "terminated": table["closed"]}
    spread = ReturnSpread(LSTDCV(gamma=0.98).fit(X, **data)).fit(X, **data)
    some = np.flatnonzero(table["spend"].isna())[:8]
    labels = [f"customer {name}" for name in table["customer"].iloc[some]]
    artists = report.plot_spread(spread, X.iloc[some], labels=labels)
    artists[0].axes.set_xlabel("what is still to come, discounted by 0.98 a week")
    return artists


def by_chance(X, y, offers, offered, data):
    """Fit action values of making either offer half of the time."""
    half = np.full(offered.shape, 0.5)
    model = LSTDQ(gamma=0.8, alpha=0.1)
    return model.fit(X, y, actions=offers, target_policy=half, behavior_probability=offered, **data)


def policies(X, y, offers, offered, data):
    """Compare how often to make the second offer."""
    shares = {"never": 0.0, "half of the time": 0.5, "always": 1.0}
    models = {
        name: LSTDQ(gamma=0.8, alpha=0.1).fit(
            X, y, actions=offers, target_policy=np.full(offered.shape, [1 - share, share]), **data
        )
        for name, share in shares.items()
    }
    logged = LSTDQ(gamma=0.8, alpha=0.1).fit(X, y, actions=offers, target_policy=offered, **data)
    return compare_policies(models | {"as it was": logged})


def canvas(width, height):
    """Return a figure and axes without frame, one unit per inch."""
    figure, ax = plt.subplots(figsize=(width, height))
    ax.set(xlim=(0, width), ylim=(0, height))
    ax.axis("off")
    return figure, ax


def box(ax, x, y, width, height, theme, *, text="", colour=None, hatch=None, size=9):
    """Draw a box with text in its middle."""
    face = "none" if hatch else (colour or PALE[theme])
    patch = plt.Rectangle((x, y), width, height, facecolor=face, edgecolor=INK[theme], linewidth=0.8, hatch=hatch)
    ax.add_patch(patch)
    ax.text(x + width / 2, y + height / 2, text, ha="center", va="center", fontsize=size)


def arrow(ax, start, end, colour):
    ax.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": colour, "linewidth": 1.2})


def value(theme):
    """Draw the rewards of a sequence, and what is predicted at one of its rows."""
    figure, ax = canvas(7.4, 2.9)
    rewards = np.array([0.9, 0.3, 0.0, 1.2, 0.5, 0.8, 0.0, 1.0, 0.6, 0.2, 0.9, 0.0, 0.4, 0.7])
    now, gap, middle = 5, 0.52, {"ha": "center", "va": "center", "fontsize": 12}
    for t, reward in enumerate(rewards):
        x = 0.3 + gap * t
        ax.bar(x, reward, 0.3, 0.65, color=PALE[theme], edgecolor=INK[theme], linewidth=0.6)
        if t >= now:
            ax.bar(x, reward * 0.85 ** (t - now), 0.3, 0.65, color=BLUE[theme])
    ax.plot([0.1, 7.3], [0.65, 0.65], color=INK[theme], linewidth=0.8)
    x = 0.3 + gap * (now - 0.5)
    ax.plot([x, x], [0.5, 2.45], color=INK[theme], linewidth=1.4)
    ax.text(x, 2.65, "now: the features are known", weight="bold", **middle)
    ax.text(1.3, 0.27, "past rewards:\nthe data", **middle)
    ax.text(5.0, 0.27, "future rewards: later ones\ncount for less (discount γ)", **middle)
    ax.text(5.1, 2.1, "predicted: the expected sum\nof the blue parts", color=BLUE[theme], **middle)
    return figure


def rows(theme):
    """Draw the rows of an episode that is still going on and of one that ended, in time."""
    figure, ax = canvas(5.6, 3.2)
    places = (0.75, 2.2, 3.65)
    for x, week in zip(places, ("week 1", "week 2", "today"), strict=True):
        ax.text(x + 0.37, 3.05, week, ha="center", va="center")
    for y, name, active in ((1.75, "Ann,\nstill\nactive", True), (0.6, "Ben,\nleft in\nweek 2", False)):
        ax.text(0.05, y + 0.57, name, va="center", fontsize=9)
        for k, x in enumerate(places[: 3 if active else 2]):
            box(ax, x, y + 0.3, 0.75, 0.55, theme, text="features", colour=PALE[theme])
            if k == 2:
                ax.text(x + 0.83, y + 0.57, "horizon row:\nno reward yet", va="center", weight="bold", fontsize=9)
                continue
            arrow(ax, (x + 0.75, y + 0.57), (x + 1.43, y + 0.57), INK[theme])
            ax.text(x + 1.1, y + 0.35, "reward", ha="center", va="center", fontsize=9, color=BLUE[theme])
        if not active:
            ended = "terminated: nothing\nmore to come, value 0"
            ax.text(3.7, y + 0.57, ended, va="center", fontsize=9, weight="bold")
        ax.plot([0.7, 5.5], [y + 0.12, y + 0.12], color=PALE[theme], linewidth=2, zorder=0)
    words = "One row: the features known at its start,\nand the reward received before the next row starts."
    ax.text(0.7, 0.3, words, va="center", fontsize=9)
    return figure


def floors():
    """Read the floors from the test that holds them, and the first line that each room says about itself."""
    source = ast.parse((ROOT / "tests" / "test_layout.py").read_text(encoding="utf-8"))
    assigned = next(
        node for node in source.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "FLOORS"
    )
    return [sorted(rooms) for rooms in ast.literal_eval(assigned.value)]


def purpose(room):
    """Return the first line of a room's docstring."""
    path = ROOT / "src" / "lstd" / room
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").split("\n")[0]


def house(theme):
    """Draw the rooms of the package by floor; each imports from the floors below it only."""
    levels = [[room for room in rooms if "/" not in room] for rooms in floors()]
    texts = [[wrapped(purpose(room), int(8.2 / len(rooms) * 12)) for room in rooms] for rooms in levels]
    heights = [0.45 + 0.18 * max(map(len, lines)) for lines in texts]
    figure, ax = canvas(8.6, sum(heights) + 0.5)
    ax.text(0.3, 0.15, "Imports point down.", fontsize=9)
    y = 0.4
    for rooms, lines, height in zip(levels, texts, heights, strict=True):
        width = 8.2 / len(rooms)
        for k, room in enumerate(rooms):
            box(ax, 0.3 + k * width, y, width - 0.06, height - 0.07, theme)
            middle, top = 0.3 + k * width + (width - 0.06) / 2, y + height - 0.14
            ax.text(middle, top, room, ha="center", va="top", color=BLUE[theme], fontsize=10, weight="bold")
            ax.text(middle, top - 0.2, "\n".join(lines[k]), ha="center", va="top", fontsize=8)
        y += height
    return figure


def wrapped(text, width):
    """Break text into lines of at most `width` characters."""
    return textwrap.wrap(text.replace("`", "").rstrip("."), width)
