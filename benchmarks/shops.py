"""Spending still to come in many simulated shops: the picture and the numbers of the README.

    python benchmarks/shops.py [--seeds 24]
    python benchmarks/shops.py --docs

Each shop is drawn as `lstd.datasets.load_shop` is, with other customers. The error is the root mean square over the
customers who are still active of prediction less true value; coverage is the share of their 95 % intervals that hold
the true value. The features are `recent` and `since_last`, or `recent` in each of four columns for 1, 2, 3, or more
weeks since the last purchase, and these columns, which can represent the values. Beside LSTDCV: linear regression with
the first features on the returns of those who left, and on what each customer has spent so far. --docs draws
docs/readme.png from the newest results.
"""

from __future__ import annotations

import argparse
import warnings
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.linear_model import LinearRegression

from lstd import LSTDCV
from lstd.datasets import _shop
from lstd.errors import LSTDWarning
from lstd.metrics import observed_returns
from pages import newest, show, store
from provenance import describe_machine

DOCS = Path(__file__).resolve().parents[1] / "docs"
SIZES = (125, 500, 1000, 4000)
FIRST_SEED = 101
WAYS = {
    "LSTD": ("LSTD, two columns", "#0072b2", "o"),
    "features": ("LSTD, features made of them", "#0072b2", "D"),
    "left": ("regression on customers who left", "#8a94a0", "s"),
    "so far": ("regression on spending so far", "#8a94a0", "^"),
}
KEYS = (*WAYS, "covered LSTD", "covered features")


def main() -> None:
    """Measure and store, or draw the picture of the newest results."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--seeds", type=int, default=24, help="shops of each size")
    parser.add_argument("--docs", action="store_true", help="draw docs/readme.png from the newest results")
    arguments = parser.parse_args()
    if not arguments.docs:
        store("shops", measured(range(FIRST_SEED, FIRST_SEED + arguments.seeds)))
    found = newest("shops")
    show("\n".join(table(found)), "benchmarks/shops.py", DOCS / "results" / "intervals.md" if arguments.docs else None)
    if arguments.docs:
        picture(found).savefig(DOCS / "readme.png", dpi=100, metadata={"Software": None})


def measured(seeds: range) -> dict[str, Any]:
    """Measure shops of all sizes."""
    shops = {str(size): [one_shop(size, seed) for seed in seeds] for size in SIZES}
    return {"date": f"{datetime.now(UTC):%Y-%m-%d}", "machine": describe_machine(), "shops": shops}


def one_shop(size: int, seed: int) -> dict[str, float]:
    """Compute the errors of each way on one shop, the coverage of the intervals, and the mean true value."""
    rows, truth = _shop(size, seed)
    X = rows[["recent", "since_last"]].to_numpy()
    last = rows["spend"].isna().to_numpy()
    ends = {"episode": rows["customer"], "terminated": rows["closed"]}
    returns = observed_returns(rows["spend"], gamma=0.98, prediction=np.zeros(len(rows)), **ends).returns
    left = rows.groupby("customer")["closed"].transform("any").to_numpy()
    true = truth["value"].to_numpy()[last]
    weeks = np.minimum(X[:, 1:], 4) == np.arange(1, 5)
    found = {"value": float(true.mean())}
    made = {}
    for name, phi in (("LSTD", X), ("features", np.hstack([weeks, weeks * X[:, :1]]))):
        interval = LSTDCV(gamma=0.98).fit(phi, rows["spend"], **ends).predict_interval(phi[last])
        made[name] = interval.prediction
        found[f"covered {name}"] = float(np.mean((interval.lower <= true) & (true <= interval.upper)))
    for name, some in (("left", left), ("so far", ~last)):
        made[name] = LinearRegression().fit(X[some], returns[some]).predict(X[last])
    return found | {name: float(np.sqrt(np.mean((one - true) ** 2))) for name, one in made.items()}


def table(found: dict[str, Any]) -> list[str]:
    """Means over the shops of each size, with the least and the greatest in brackets."""
    names = [label for label, *_ in WAYS.values()]
    names += [f"intervals of {label} that hold" for label in names[:2]]
    lines = [f"| customers | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for size, shops in found["shops"].items():
        frame = pd.DataFrame(shops)
        cells = [spread(frame[name], "{:.0f}") for name in WAYS]
        cells += [spread(100 * frame[name], "{:.0f} %") for name in KEYS[-2:]]
        lines.append(f"| {size} | {' | '.join(cells)} |")
    return lines


def spread(values: Any, form: str) -> str:
    return f"{form.format(values.mean())} ({form.format(values.min())} to {form.format(values.max())})"


def picture(found: dict[str, Any]) -> Any:
    """Draw error and coverage against the number of customers: means over the shops, and all but 2 + 2 of them."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (ax, right) = plt.subplots(1, 2, figsize=(8.2, 3.3), layout="constrained", width_ratios=(5, 4))
    sizes = [int(size) for size in found["shops"]]
    shops = {name: np.array([[shop[name] for shop in shops] for shops in found["shops"].values()]) for name in KEYS}
    for name, (label, colour, marker) in WAYS.items():
        band(ax, sizes, shops[name], (label, colour, marker))
    for name in ("LSTD", "features"):
        band(right, sizes, 100 * shops[f"covered {name}"], WAYS[name])
    right.axhline(95, color="#8a8a8a", linestyle=":", linewidth=1)
    ax.set(ylim=(0, 235), title="Error, of about 245 still to come", ylabel="root mean square over customers")
    right.set(ylim=(0, 103), title="95 % intervals that hold the truth", ylabel="%")
    for each in (ax, right):
        each.set_xscale("log")
        each.set_xticks(sizes, sizes)
        each.minorticks_off()
        each.set_xlabel("customers in the log")
        each.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, fontsize=8, loc="upper right", ncols=1)
    return figure


def band(ax: Any, sizes: list[int], values: Any, look: tuple[str, str, str]) -> None:
    """Draw the means of (sizes, shops), and from the third least to the third greatest."""
    label, colour, marker = look
    low, high = np.sort(values, axis=1)[:, [2, -3]].T
    hollow = "white" if marker == "o" else colour
    ax.fill_between(sizes, low, high, color=colour, alpha=0.15, linewidth=0)
    ax.plot(sizes, values.mean(axis=1), color=colour, marker=marker, markersize=5, mfc=hollow, label=label)


if __name__ == "__main__":
    warnings.simplefilter("ignore", LSTDWarning)
    main()
