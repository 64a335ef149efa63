"""Live prediction of how much a machine will overheat, from a stream of two sensors, one reading a minute.

The stream is simulated: the load jumps between three levels, the temperature depends on the load and the time of day,
the vibration depends on the load, and after 60 % of the time the cooling wears out. The reward is the excess of the
next temperature over a limit, in kelvin. Its discounted sum is predicted, with half of the weight on about the next 20
minutes. Every prediction is made before the readings that it predicts, and is compared with them afterwards.

    python benchmarks/sensor_stream.py [--quick] [--figure PATH]

RecursiveLSTD is compared with the present excess continued forever, with an autoregression of the excess that is
refitted at every step, and with TrueOnlineTD at the step size that is best in hindsight. The figure needs lstd[cli].
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from lstd import RecursiveLSTD, TrueOnlineTD
from lstd.data.returns import discounted_returns
from lstd.errors import ChangeWarning

Array = NDArray[np.float64]
GAMMA = 0.966
LMBDA = 0.9
ALPHA = 1.0
STEP_SIZES = tuple(2.0**k for k in range(-13, -2, 2))  # of TrueOnlineTD
LIMIT = 60.0  # degrees Celsius
WEAR = 0.6  # fraction of the stream after which the cooling is worn
NAMES = {
    "lstd": "RecursiveLSTD",
    "td": "TrueOnlineTD, best step size",
    "ar": "autoregression",
    "present": "present excess",
}


def simulate(n_steps: int, seed: int, wear: float = WEAR) -> tuple[Array, Array]:
    """Simulate temperature in degrees Celsius and vibration in mm/s, one reading a minute."""
    rng = np.random.default_rng(seed)
    temperature, vibration = np.empty((2, n_steps))
    warm = 40.0
    load = 0.2
    for t in range(n_steps):
        if rng.random() < 1 / 60:
            load = rng.choice([0.2, 0.6, 1.0], p=[0.4, 0.4, 0.2])
        worn = t > wear * n_steps
        ambient = 20.0 + 5.0 * np.sin(2 * np.pi * t / 1440)
        warm += 0.05 * (ambient + (55.0 if worn else 45.0) * load - warm) + rng.normal(0.0, 0.15)
        temperature[t] = warm + rng.normal(0.0, 0.3)
        vibration[t] = 1.0 + (2.5 if worn else 2.0) * load + rng.normal(0.0, 0.2)
    return temperature, vibration


def features_of(temperature: Array, vibration: Array) -> Array:
    """Compute recent temperatures, smoothed vibrations, and hinges of the temperature expected soon, shape (T, 14)."""
    smooth: dict[Any, float] = {0.1: vibration[0], 0.4: vibration[0], "warm": temperature[0]}
    rows = np.empty((len(temperature), 14))
    for t, (warm, shake) in enumerate(zip(temperature, vibration, strict=True)):
        for rate in (0.1, 0.4):
            smooth[rate] += rate * (shake - smooth[rate])
        smooth["warm"] += 0.3 * (warm - smooth["warm"])
        recent = [(temperature[max(t - k, 0)] - LIMIT) / 20 for k in range(3)]
        level = (smooth["warm"] - LIMIT) / 20
        soon = (level + smooth[0.4] - 2.75) / 2  # vibration indicates load, which raises the temperature soon
        hinges = [max(0.0, x - knot) for x in (level, soon) for knot in (-0.4, 0.0, 0.4)]
        rows[t] = [1.0, *recent, level, smooth[0.1] - 2.0, smooth[0.4] - 2.0, (shake - 2.0) / 2, *hinges]
    return rows


def follow(model: Any, phi: Array, rewards: Array) -> tuple[Array, float]:
    """Return the predictions before each update and the seconds that all updates took."""
    predictions = np.empty(len(rewards))
    seconds = 0.0
    for t, reward in enumerate(rewards):
        predictions[t] = model.predict(phi[t])
        begin = time.perf_counter()
        model.update(phi[t], reward, phi[t + 1])
        seconds += time.perf_counter() - begin
    return predictions, seconds


def autoregression(excess: Array, order: int = 3) -> Array:
    """Forecast discounted sums by a linear autoregression, which is RecursiveLSTD with a discount of zero."""
    model = RecursiveLSTD(order + 1, gamma=0.0, alpha=ALPHA)
    n_steps = len(excess) - 1
    windows = np.zeros((n_steps, order + 1))
    windows[:, -1] = 1.0
    for lag in range(order):
        windows[lag:, lag] = excess[: n_steps - lag]
    weights = np.empty((n_steps, order + 1))  # before each update
    for t, window in enumerate(windows):
        weights[t] = model.weights
        model.update(window, excess[t + 1], window)

    steps = np.zeros((n_steps, order + 1, order + 1))  # from each window to the next
    steps[:, 0] = weights
    steps[:, 1:order, : order - 1] = np.eye(order - 1)
    steps[:, -1, -1] = 1.0
    stable = np.abs(np.linalg.eigvals(steps[:, :-1, :-1])).max(axis=1) < 1.0
    predictions = excess[:-1] / (1 - GAMMA)
    steps = steps[stable]
    sums = np.linalg.solve(np.eye(order + 1) - GAMMA * steps, windows[stable, :, np.newaxis])
    predictions[stable] = (steps @ sums)[:, 0, 0]
    return predictions


def run(
    n_steps: int, seed: int, step_sizes: Sequence[float] = STEP_SIZES
) -> tuple[dict[str, Array], Array, dict[str, float]]:
    """Return predictions of all methods, the realised sums, and updates per second."""
    temperature, vibration = simulate(n_steps + 1, seed)
    phi = features_of(temperature, vibration)
    excess = np.maximum(0.0, temperature - LIMIT)
    realised, behind = discounted_returns(
        np.append(excess[1:], np.nan), GAMMA, np.arange(n_steps + 1) == n_steps, False
    )
    known = behind[:-1] < 1e-3
    found: dict[str, Array] = {}
    per_second: dict[str, float] = {}
    found["lstd"], seconds = follow(RecursiveLSTD(phi.shape[1], GAMMA, LMBDA, ALPHA), phi, excess[1:])
    per_second["lstd"] = n_steps / seconds
    best = np.inf
    for step_size in step_sizes:
        predicted, seconds = follow(TrueOnlineTD(phi.shape[1], GAMMA, LMBDA, step_size), phi, excess[1:])
        error = float(np.mean((predicted - realised[:-1])[known] ** 2))
        if error < best:
            found["td"], best, per_second["td"] = predicted, error, n_steps / seconds
    found["ar"] = autoregression(excess)
    found["present"] = excess[:-1] / (1 - GAMMA)
    return {method: predicted[known] for method, predicted in found.items()}, realised[:-1][known], per_second


def blocks(found: dict[str, Array], realised: Array, n_blocks: int) -> dict[str, Array]:
    """Compute root mean square errors by block of the stream, divided by the spread of the realised sums."""
    return {
        method: np.array([np.sqrt(np.mean(e**2)) for e in np.array_split(predicted - realised, n_blocks)])
        / realised.std()
        for method, predicted in found.items()
    }


def verdict(errors: dict[str, Array]) -> dict[str, dict[str, Any]]:
    """Compare RecursiveLSTD's error with that of each other method: mean difference over streams, 95 % interval."""
    judged = {}
    for method in ("td", "ar", "present"):
        difference = errors["lstd"] - errors[method]
        n = len(difference)
        margin = stats.t.ppf(0.975, n - 1) * difference.std(ddof=1) / np.sqrt(n)
        mean = difference.mean()
        words = "indistinguishable from" if abs(mean) <= margin else "ahead of" if mean < 0 else "behind"
        judged[method] = {"mean": mean, "margin": margin, "judged": words}
    return judged


def draw(by_block: dict[str, Array], sample: tuple[dict[str, Array], Array], n_steps: int, path: str) -> None:
    from lstd.report.style import COLOURS, LINES, REFERENCE, figure_style, new_figure

    looks: dict[str, Any] = {
        "lstd": {"color": COLOURS["boyan"]},
        "td": {"color": COLOURS["true_online_td"], "linestyle": LINES["true_online_td"]},
        "ar": {"color": REFERENCE, "linestyle": LINES["mixed"]},
        "present": {"color": REFERENCE, "linestyle": ":"},
    }
    found, realised = sample
    shown = range(len(realised) // 2, len(realised) // 2 + 600)
    with figure_style():
        figure = new_figure(8.0, 5.0)
        above, below = figure.subplots(2)
        above.fill_between(shown, realised[shown], color="#E4E4E4", label="realised")
        for method in ("lstd", "ar"):
            above.plot(shown, found[method][shown], label=NAMES[method], **looks[method])
        above.set(xlabel="minute of the first stream", ylabel="discounted excess, K")
        for method, look in looks.items():
            error = by_block[method]
            middle = (np.arange(error.shape[1]) + 0.5) * n_steps / error.shape[1]
            below.plot(middle, error.mean(axis=0), label=NAMES[method], **look)
        below.axvline(WEAR * n_steps, color="#000000", linewidth=0.7)
        below.set(xlabel="minute (line: the cooling wears out)", ylabel="error / spread", ylim=(0, None))
        for ax in (above, below):
            ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
        figure.tight_layout()
        figure.savefig(path, dpi=110, metadata={"Software": None})


def main(quick: bool = False, figure: str | None = None) -> dict[str, Any]:
    """Print the table and verdicts; `quick` uses fewer and shorter streams, and one step size."""
    n_steps, n_streams, step_sizes = (10000, 3, STEP_SIZES[3:4]) if quick else (20000, 10, STEP_SIZES)
    runs = []
    for seed in range(n_streams):
        print(f"stream {seed + 1} of {n_streams}", file=sys.stderr)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ChangeWarning)  # the cooling wears out
            runs.append(run(n_steps, seed, step_sizes))
    listed = [blocks(found, realised, 20) for found, realised, _ in runs]
    by_block = {method: np.array([errors[method] for errors in listed]) for method in NAMES}
    edges = {"first 10 %": (0, 2), "until the wear": (2, round(WEAR * 20)), "worn": (round(WEAR * 20), 20)}
    verdicts: dict[str, Any] = {}
    for name, (first, stop) in edges.items():
        errors = {method: np.sqrt((e[:, first:stop] ** 2).mean(axis=1)) for method, e in by_block.items()}
        verdicts[name] = verdict(errors)
        print(f"\n{name}: error / spread of the realised sums, mean ± standard deviation over {n_streams} streams")
        for method, error in errors.items():
            words = (
                ""
                if method == "lstd"
                else "RecursiveLSTD is {judged} it; error less this one {mean:+.3f} ± {margin:.3f}"
            )
            less = words.format(**verdicts[name].get(method, {}))
            print(f"  {NAMES[method]:28} {error.mean():6.3f} ± {error.std():.3f}   {less}".rstrip())
    per_second = {method: float(np.median([rates[method] for _, _, rates in runs])) for method in ("lstd", "td")}
    print("\nupdates per second: " + ", ".join(f"{NAMES[m]} {rate:,.0f}" for m, rate in per_second.items()))
    if figure is not None:
        draw(by_block, runs[0][:2], n_steps, figure)
    return {"by_block": by_block, "verdicts": verdicts, "per_second": per_second}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer and shorter streams, one step size")
    parser.add_argument("--figure", help="path of the figure")
    main(**vars(parser.parse_args()))
