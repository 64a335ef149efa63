"""Policy evaluation on Gymnasium's Pendulum-v1 from short episodes that are cut off and never terminate.

Two fixed policies are evaluated. "swing" holds the pendulum's energy at that of the upright position and keeps it
turning, so that much of a value lies beyond the cut. "balance" swings up and then holds the pendulum still, so that
little does. The third case is the same number of transitions in one long stream of "swing".

    python benchmarks/pendulum.py [--quick] [--figure PATH]

True values are the discounted returns of long rollouts from held-out states. One fifth of the rollouts choose λ and α
in the same way for every method; the others give the errors. The intervals account for the randomness of both the data
and those rollouts. The benchmark needs lstd[gymnasium]; the figure needs lstd[cli].
"""

from __future__ import annotations

import argparse
import sys
import warnings
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from scipy import stats
from threadpoolctl import threadpool_limits

from lstd import LSTDStatistics, Trajectories
from lstd.data.returns import discounted_returns
from lstd.errors import IllConditionedWarning

GAMMA = 0.98
STEPS = 40  # of the data
EPISODES = 50  # 0.98^40 = 0.45 is the weight of rewards after 40 steps
TAIL = 600  # steps after a held-out state (0.98^600 = 5e-6)
SETTLE = 120  # and before those of the long stream
LMBDAS = (0.0, 0.3, 0.6, 0.8, 0.9, 0.95, 1.0)
ALPHAS = (0.0, *(10.0**k for k in range(-10, 5)))  # from no ridge, so that the grid has no lower edge
VARIANTS = ("boyan", "uncorrected", "mixed")
METHODS = (*VARIANTS, "ridge", "ridge_rescaled")
NAMES = {
    "boyan": "Boyan's LSTD(λ)",
    "uncorrected": "Uncorrected LSTD(λ)",
    "mixed": "Mixed LSTD(λ)",
    "ridge": "ridge, returns up to the cut",
    "ridge_rescaled": "ridge, return = (1 − γ^h) value",
}


def torque(observation: Any, balance: Any) -> Any:
    """Control the energy of pendulums, observations (3, ...); near the top, if `balance`, apply a linear law."""
    cosine, sine, velocity = observation
    swing = (5.0 - velocity**2 / 6.0 - 5.0 * cosine) * np.sign(velocity)
    hold = -12.0 * np.arctan2(sine, cosine) - 3.0 * velocity
    held = balance & (cosine > 0.9) & (abs(velocity) < 3.0)
    return np.clip([np.where(held, hold, swing)], -2.0, 2.0).astype(np.float32)


def features(observation: Any) -> Any:
    """Multiply Fourier terms of the angle by Chebyshev polynomials of the velocity; shape (..., 35)."""
    cosine, sine, velocity = np.asarray(observation, dtype=np.float64)
    turns = [(cosine + 1j * sine) ** k for k in range(1, 4)]
    angle = [np.ones_like(cosine), *(turn.real for turn in turns), *(turn.imag for turn in turns)]
    x = velocity / 8.0
    polynomials = [np.ones_like(x), x, 2 * x**2 - 1, 4 * x**3 - 3 * x, 8 * x**4 - 8 * x**2 + 1]
    return np.einsum("i...,j...->...ij", angle, polynomials).reshape(*x.shape, -1)


@dataclass(frozen=True)
class Case:
    """A way to collect data."""

    name: str
    balance: bool
    stream: bool  # one long stream instead of short episodes

    def collect(self, seed: Any) -> Any:
        n_episodes, n_steps = (1, STEPS * EPISODES) if self.stream else (EPISODES, STEPS)
        env = gymnasium.make("Pendulum-v1", max_episode_steps=n_steps, disable_env_checker=True)
        return Trajectories.from_gymnasium(
            env,
            lambda observation: torque(observation, self.balance),
            features=features,
            n_episodes=n_episodes,
            seed=seed,
        )

    def rollouts(self, n_rollouts: Any, n_steps: Any, seed: Any) -> Any:
        """Simulate rollouts: observations (steps, 3, rollouts) and rewards (steps, rollouts).

        Gymnasium's own step moves all pendulums at once, because it works on arrays of states too.
        """
        env: Any = gymnasium.make("Pendulum-v1", disable_env_checker=True).unwrapped
        starts = [(env.reset(seed=seed if k == 0 else None)[0], env.state) for k in range(n_rollouts)]
        observation, env.state = (np.stack(part, axis=-1) for part in zip(*starts, strict=True))
        observations = []
        rewards = []
        for _ in range(n_steps):
            observations.append(observation)
            observation, reward, *_ = env.step(torque(observation, self.balance))
            rewards.append(reward)
        return np.array(observations), np.array(rewards)

    def truth(self, n_rollouts: Any, seed: Any) -> Any:
        """Return features and values of held-out states like those of the data, shape (rollouts, STEPS, ...).

        Also return the fraction of the first states' values that comes at least STEPS steps later.
        """
        first = SETTLE if self.stream else 0
        observations, rewards = self.rollouts(n_rollouts, first + STEPS + TAIL, seed)
        values, _ = discounted_returns(rewards, GAMMA, np.zeros(len(rewards), dtype=bool), False)
        states = slice(first, first + STEPS)
        later = GAMMA**STEPS * values[first + STEPS].sum() / values[first].sum()
        return features(observations[states].transpose(1, 2, 0)), values[states].T, later


CASES = (
    Case("swing, short episodes", balance=False, stream=False),
    Case("balance, short episodes", balance=True, stream=False),
    Case("swing, one long stream", balance=False, stream=True),
)


def observed_returns(data: Any) -> Any:
    """Compute discounted returns up to the cut, and γ^h for h steps up to it."""
    last = np.append(data.episode[1:] != data.episode[:-1], True)
    return discounted_returns(data.y, GAMMA, last, data.terminated)


def ridge(X: Any, y: Any) -> Any:
    """Solve a ridge regression for every α."""
    return [np.linalg.solve(X.T @ X + alpha * np.eye(X.shape[1]), X.T @ y) for alpha in ALPHAS]


def candidates(data: Any) -> Any:
    """Fit every method with every setting: method -> array of weights (λ, α, n)."""
    sums = [LSTDStatistics.from_arrays(**data.to_arrays(), gamma=GAMMA, lmbda=lmbda) for lmbda in LMBDAS]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IllConditionedWarning)  # the grid reaches α = 0; the errors are measured
        found = {v: np.array([[s.solve(alpha, v).weights for alpha in ALPHAS] for s in sums]) for v in VARIANTS}
    returns, behind = observed_returns(data)
    X = data.X[~data.horizon]
    y = returns[~data.horizon]
    seen = 1.0 - behind[~data.horizon]
    found["ridge"] = np.array([ridge(X, y)])
    found["ridge_rescaled"] = np.array([ridge(X * seen[:, np.newaxis], y)])
    return found


def rms(visited: Any, values: Any, weights: Any) -> Any:
    """Compute the root mean square of visited @ w - values for every w, from a QR factor of 36 rows."""
    both = np.concatenate([visited, values[..., np.newaxis]], axis=-1).reshape(values.size, -1)
    factor: Any = np.linalg.qr(both, mode="r")
    return np.linalg.norm(weights @ factor[:, :-1].T - factor[:, -1], axis=-1) / np.sqrt(values.size)


def errors(weights: Any, visited: Any, values: Any) -> Any:
    """Compute errors of one method, at the λ and α that the first fifth of the rollouts chooses, in the others.

    `weights` has shape (seeds, λ, α, n). An error is the root mean square over the held-out states, divided by the
    standard deviation of their values: "curve" (seeds, λ) for each λ at its best α, "error" (seeds,) at the best λ.
    The means of "squares" (seeds, rollouts) over rollouts are the squares of "error".
    """
    choosing = slice(0, len(values) // 5)
    telling = slice(len(values) // 5, None)
    chosen = rms(visited[choosing], values[choosing], weights).mean(axis=0)
    alphas = chosen.argmin(axis=1)
    at = chosen.min(axis=1).argmin()
    weights = weights[:, np.arange(len(alphas)), alphas]
    visited, values, spread = visited[telling], values[telling], values[telling].std()
    missed = visited @ weights[:, at].T - values[..., np.newaxis]
    curve = rms(visited, values, weights) / spread
    squares = (missed**2).mean(axis=1).T / spread**2
    setting = {"lmbda": LMBDAS[at], "alpha": ALPHAS[alphas[at]]}
    return {"curve": curve, "error": curve[:, at], "squares": squares, **setting}


def evaluate(case: Any, n_seeds: Any, n_rollouts: Any) -> Any:
    """Compute the errors of every method, and the fraction of a value that comes at least STEPS steps later."""
    visited, values, later = case.truth(n_rollouts, seed=10**6)
    fitted = []
    for seed in range(n_seeds):
        print(f"{case.name}: seed {seed + 1} of {n_seeds}", file=sys.stderr)
        fitted.append(candidates(case.collect(seed)))
    return {m: errors(np.array([by[m] for by in fitted]), visited, values) for m in METHODS}, later


def verdict(found: Any) -> Any:
    """Compare Boyan's error with that of each other method: mean difference over the seeds, 95 % interval.

    The variance is the sum of that over the seeds and that over the rollouts, by the jackknife; the degrees of freedom
    of the sum follow Satterthwaite.
    """
    judged = {}
    without = {}
    for method in METHODS:
        squares = found[method]["squares"]
        n_seeds, n = squares.shape
        without[method] = np.sqrt((squares.sum(axis=1, keepdims=True) - squares) / (n - 1)).mean(axis=0)
    for method in METHODS[1:]:
        difference = found["boyan"]["error"] - found[method]["error"]
        parts = difference.var(ddof=1) / n_seeds, (n - 1) * (without["boyan"] - without[method]).var()
        freedom = sum(parts) ** 2 / (parts[0] ** 2 / (n_seeds - 1) + parts[1] ** 2 / (n - 1))
        mean = difference.mean()
        margin = stats.t.ppf(0.975, freedom) * np.sqrt(sum(parts))
        words = "indistinguishable from" if abs(mean) <= margin else "ahead of" if mean < 0 else "behind"
        judged[method] = {"mean": mean, "margin": margin, "judged": words}
    return judged


def report(name: Any, found: Any, judged: Any, later: Any = None) -> None:
    n_seeds, n = found["boyan"]["squares"].shape
    print(f"\n{name}: error / spread of the values, mean ± standard deviation over {n_seeds} seeds; {n} rollouts")
    if later is not None:
        print(f"  beyond the cut lies {100 * later:.0f} % of the values at the start of an episode")
    for method, result in found.items():
        setting = (f"λ = {result['lmbda']:g}, " if method in VARIANTS else "") + f"α = {result['alpha']:g}"
        setting += ", largest tried" * (result["alpha"] == ALPHAS[-1])
        less = (
            "Boyan's is {judged} it; error less this one {mean:+.3f} ± {margin:.3f}".format(**judged[method])
            if method in judged
            else ""
        )
        error = result["error"]
        print(f"  {NAMES[method]:32}{error.mean():6.3f} ± {error.std(ddof=1):.3f}   {setting:20}{less}".rstrip())


def draw(results: Any, path: Any) -> None:
    from lstd.report.style import COLOURS, LINES, MARKERS, REFERENCE, figure_style, new_figure

    with figure_style():
        figure = new_figure(9.5, 3.2)
        for ax, (name, found) in zip(figure.subplots(1, len(results)), results.items(), strict=True):
            for variant in VARIANTS:
                error = found[variant]["curve"]
                mean = error.mean(axis=0)
                spread = error.std(axis=0, ddof=1)
                look = {"color": COLOURS[variant], "linestyle": LINES[variant], "marker": MARKERS[variant]}
                ax.errorbar(LMBDAS, mean, spread, label=NAMES[variant], capsize=2, **look)
            for method, line in (("ridge", "-"), ("ridge_rescaled", "--")):
                ax.axhline(found[method]["error"].mean(), color=REFERENCE, linestyle=line, label=NAMES[method])
            ax.set(title=name, xlabel="λ", ylim=(0, None))
            if ax.get_ylim()[1] > 1:
                ax.set(yscale="log", ylim=(0.1, None), yticks=(ticks := (0.1, 0.2, 0.5, 1, 2, 5)), yticklabels=ticks)
                ax.minorticks_off()
        figure.axes[0].set_ylabel("error / spread of the values")
        handles, labels = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="lower center", ncols=3)
        figure.tight_layout(rect=(0, 0.16, 1, 1))
        figure.savefig(path, dpi=110, metadata={"Software": None})


def main(quick: bool = False, figure: Any = None) -> Any:
    """Print the tables and verdicts; `quick` uses fewer seeds and rollouts."""
    results = {}
    verdicts = {}
    for case in CASES:
        with threadpool_limits(1):  # BLAS threads do not pay off with 36 columns
            found, later = evaluate(case, *((3, 200) if quick else (40, 5000)))
        results[case.name], verdicts[case.name] = found, verdict(found)
        report(case.name, found, verdicts[case.name], None if case.stream else later)
    if figure is not None:
        draw(results, figure)
    return results, verdicts


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer seeds and rollouts")
    parser.add_argument("--figure", help="path of the figure")
    main(**vars(parser.parse_args()))
