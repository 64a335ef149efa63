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

from lstd import LSTDCV, report

ROOT = Path(__file__).parents[2]
INK = {"light": "#1f2933", "dark": "#e4e7eb"}
PALE = {"light": "#e8edf2", "dark": "#2f3a45"}
BLUE = {"light": "#0072b2", "dark": "#56b4e9"}
ORANGE = {"light": "#c24e00", "dark": "#f0a35e"}
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
    return {
        "plot_blocks": report.plot_blocks(model, X[:1]),
        "plot_calibration": report.plot_calibration(model, X, y, **data),
        "plot_coefficients": report.plot_coefficients(model),
        "plot_degrees_of_freedom": report.plot_degrees_of_freedom(model),
        "plot_grid": report.plot_grid(model.cv_results_, model.lmbda_, model.alpha_),
        "plot_predictions": report.plot_predictions(model, X, y, **data),
    }


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
    figure, ax = canvas(8.0, 2.7)
    rewards = np.array([0.9, 0.3, 0.0, 1.2, 0.5, 0.8, 0.0, 1.0, 0.6, 0.2, 0.9, 0.0, 0.4, 0.7])
    now = 5
    for t, reward in enumerate(rewards):
        x, past = 0.35 + 0.53 * t, t < now
        ax.bar(x, reward, 0.3, 0.5, color=PALE[theme], edgecolor=INK[theme], linewidth=0.6)
        if not past:
            ax.bar(x, reward * 0.85 ** (t - now), 0.3, 0.5, color=BLUE[theme])
    ax.plot([0.1, 7.6], [0.5, 0.5], color=INK[theme], linewidth=0.8)
    x = 0.35 + 0.53 * now - 0.265
    ax.plot([x, x], [0.35, 2.1], color=ORANGE[theme], linewidth=1.4)
    ax.text(x, 2.15, "now: the features are known", color=ORANGE[theme], ha="center", va="bottom")
    ax.text(1.3, 0.2, "past rewards: the data", ha="center", va="center")
    ax.text(5.2, 0.2, "future rewards: later ones count for less (discount γ)", ha="center", va="center")
    ax.text(5.6, 1.85, "predicted: the expected sum of the blue parts", color=BLUE[theme], ha="center")
    return figure


def rows(theme):
    """Draw the rows of an episode that is still going on and of one that ended, in time."""
    figure, ax = canvas(8.6, 3.0)
    weeks = ("week 1", "week 2", "week 3", "today")
    for x, week in zip((1.35, 3.1, 4.85, 6.6), weeks, strict=True):
        ax.text(x + 0.45, 2.85, week, ha="center", va="center")
    for y, name, final in (
        (1.65, "Ann, still\nactive", "horizon row:\nno reward yet"),
        (0.5, "Ben, left in\nweek 3", None),
    ):
        ax.text(0.1, y + 0.55, name, va="center")
        for k, x in enumerate((1.35, 3.1, 4.85, 6.6)):
            if k == 3 and final is None:
                continue
            box(ax, x, y + 0.3, 0.9, 0.55, theme, text="features", colour=PALE[theme])
            if k == 3:
                ax.text(x + 1.0, y + 0.57, final, va="center", color=ORANGE[theme], fontsize=9)
                continue
            ended = final is None and k == 2
            arrow(ax, (x + 0.9, y + 0.57), (x + 1.72, y + 0.57), INK[theme])
            ax.text(x + 1.31, y + 0.3, "reward", ha="center", va="center", fontsize=9, color=BLUE[theme])
            if ended:
                ax.text(x + 1.8, y + 0.57, "terminated: nothing\nmore to come, value 0", va="center", fontsize=9,
                        color=ORANGE[theme])  # fmt: skip
        ax.plot([1.3, 8.5], [y + 0.12, y + 0.12], color=PALE[theme], linewidth=2, zorder=0)
    ax.text(
        1.35, 0.3, "One row: the features known at its start, and the reward received before the next row starts.",
        va="center", fontsize=9,
    )  # fmt: skip
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
    figure, ax = canvas(8.6, 0.75 * len(levels) + 0.5)
    for number, rooms in enumerate(levels):
        y, width = 0.4 + 0.75 * number, 8.2 / len(rooms)
        for k, room in enumerate(rooms):
            lines = wrapped(purpose(room), int(width * 14))
            box(ax, 0.3 + k * width, y, width - 0.06, 0.68, theme)
            middle = 0.3 + k * width + (width - 0.06) / 2
            ax.text(middle, y + 0.56, room, ha="center", va="center", color=BLUE[theme], fontsize=10, weight="bold")
            ax.text(middle, y + 0.23, "\n".join(lines[:3]), ha="center", va="center", fontsize=7)
    ax.text(0.3, 0.15, "Imports point down.", fontsize=9)
    return figure


def wrapped(text, width):
    """Break text into lines of at most `width` characters."""
    return textwrap.wrap(text.replace("`", "").rstrip("."), width)
