"""Policy evaluation on Gymnasium's Pendulum-v1 from short episodes that are cut off, never ended.

Two fixed policies are evaluated: "swing" holds the pendulum's energy at that of the upright position and keeps it
going round, so that most of a value lies behind the cut; "balance" swings up and then holds the pendulum still, so that
little does. The same number of transitions in one long stream of "swing" is the third case.

    python examples/pendulum.py [--quick] [--figure PATH]

The truth is the discounted return of long rollouts at held-out states; half of the rollouts choose λ and α for every
method alike, the other half give the errors that are printed. Needs lstd[gymnasium], for the figure lstd[cli].
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass

import gymnasium
import numpy as np
from scipy import stats

from lstd import LSTDStatistics, Trajectories
from lstd.returns import discounted_returns

GAMMA = 0.98
STEPS, EPISODES = 40, 50  # of the data: at the start of an episode, 0.98^40 = 45 % of a value lies behind the cut
TAIL, SETTLE = 600, 120  # steps behind a held-out state (0.98^600 = 5e-6), and before those of the long stream
LMBDAS = (0.0, 0.3, 0.6, 0.8, 0.9, 0.95, 1.0)
ALPHAS = tuple(10.0**k for k in range(-4, 4))  # with smaller ones the errors stay as they are
VARIANTS = ("boyan", "uncorrected", "mixed")
METHODS = (*VARIANTS, "ridge", "ridge_rescaled")
NAMES = {
    "boyan": "Boyan's LSTD(λ)",
    "uncorrected": "Uncorrected LSTD(λ)",
    "mixed": "Mixed LSTD(λ)",
    "ridge": "ridge, returns up to the cut",
    "ridge_rescaled": "ridge, return = (1 − γ^h) value",
}


def torque(observation, balance):
    """Energy control, and close to the top, if `balance`, a linear law."""
    cosine, sine, velocity = observation
    if balance and cosine > 0.9 and abs(velocity) < 3.0:
        push = -12.0 * np.arctan2(sine, cosine) - 3.0 * velocity
    else:
        push = (5.0 - velocity**2 / 6.0 - 5.0 * cosine) * np.sign(velocity)
    return np.clip([push], -2.0, 2.0).astype(np.float32)


def features(observation):
    """Fourier terms of the angle up to order 3 times Chebyshev polynomials of the velocity up to degree 4: 35."""
    cosine, sine, velocity = observation
    turns = (cosine + 1j * sine) ** np.arange(1, 4)
    x = velocity / 8.0
    polynomials = [1.0, x, 2 * x**2 - 1, 4 * x**3 - 3 * x, 8 * x**4 - 8 * x**2 + 1]
    return np.outer([1.0, *turns.real, *turns.imag], polynomials).ravel()


@dataclass(frozen=True)
class Case:
    """How data are collected."""

    name: str
    balance: bool
    stream: bool  # one long stream in place of short episodes

    def collect(self, n_episodes, n_steps, seed):
        env = gymnasium.make("Pendulum-v1", max_episode_steps=n_steps, disable_env_checker=True)
        return Trajectories.from_gymnasium(
            env,
            lambda observation: torque(observation, self.balance),
            features=features,
            n_episodes=n_episodes,
            seed=seed,
        )

    def truth(self, n_rollouts, seed):
        """Features and values of held-out states, of the kind that the data visit, shape (rollouts, STEPS, ...)."""
        first = SETTLE if self.stream else 0
        data = self.collect(n_rollouts, first + STEPS + TAIL, seed)
        returns = observed_returns(data)[0].reshape(n_rollouts, -1)
        visited = data.X.reshape(*returns.shape, -1)
        return visited[:, first : first + STEPS], returns[:, first : first + STEPS]


CASES = (
    Case("swing, short episodes", balance=False, stream=False),
    Case("balance, short episodes", balance=True, stream=False),
    Case("swing, one long stream", balance=False, stream=True),
)


def observed_returns(data):
    """Discounted returns up to the cut, and γ^h with h the steps up to it."""
    last = np.append(data.episode[1:] != data.episode[:-1], True)
    return discounted_returns(data.y, GAMMA, last, data.terminated)


def ridge(X, y):
    """Weights for every α."""
    return [np.linalg.solve(X.T @ X + alpha * np.eye(X.shape[1]), X.T @ y) for alpha in ALPHAS]


def candidates(data):
    """Weights of every method for every setting: method -> array (λ, α, n)."""
    sums = [LSTDStatistics.from_arrays(**data.to_arrays(), gamma=GAMMA, lmbda=lmbda) for lmbda in LMBDAS]
    found = {v: np.array([[s.solve(alpha, v).weights for alpha in ALPHAS] for s in sums]) for v in VARIANTS}
    returns, behind = observed_returns(data)
    X, y, seen = data.X[~data.horizon], returns[~data.horizon], 1.0 - behind[~data.horizon]
    found["ridge"] = np.array([ridge(X, y)])
    found["ridge_rescaled"] = np.array([ridge(X * seen[:, np.newaxis], y)])
    return found


def evaluate(case, n_seeds, n_rollouts):
    """Errors (seeds, λ) of every method, each at the α, and for the table the λ, that other states chose.

    An error is the root mean square over the held-out states, divided by the standard deviation of their values.
    """
    visited, values = case.truth(n_rollouts, seed=10**6)
    halves = (slice(0, n_rollouts // 2), slice(n_rollouts // 2, None))
    errors = {method: [] for method in METHODS}
    for seed in range(n_seeds):
        print(f"{case.name}: seed {seed + 1} of {n_seeds}", file=sys.stderr)
        data = case.collect(1, STEPS * EPISODES, seed) if case.stream else case.collect(EPISODES, STEPS, seed)
        for method, weights in candidates(data).items():
            missed = np.einsum("rsn,lan->lars", visited, weights) - values
            rms = [np.sqrt((missed[:, :, half] ** 2).mean(axis=(2, 3))) / values[half].std() for half in halves]
            errors[method].append(rms)
    found = {}
    for method, listed in errors.items():
        choosing, telling = np.moveaxis(np.array(listed), 1, 0)  # (seeds, λ, α) each
        alphas = choosing.mean(axis=0).argmin(axis=1)
        at = choosing.mean(axis=0).min(axis=1).argmin()
        curve = telling[:, np.arange(len(alphas)), alphas]
        found[method] = {"curve": curve, "error": curve[:, at], "lmbda": LMBDAS[at], "alpha": ALPHAS[alphas[at]]}
    return found


def verdict(found):
    """Boyan's error less that of each other method: mean paired difference and its 95 % interval over the seeds."""
    judged = {}
    for method in METHODS[1:]:
        difference = found["boyan"]["error"] - found[method]["error"]
        n, mean = len(difference), difference.mean()
        margin = stats.t.ppf(0.975, n - 1) * difference.std(ddof=1) / np.sqrt(n)
        words = "not told apart from" if abs(mean) <= margin else "ahead of" if mean < 0 else "behind"
        judged[method] = {"mean": mean, "margin": margin, "judged": words}
    return judged


def report(name, found, judged):
    n_seeds = len(found["boyan"]["error"])
    print(f"\n{name}: error / spread of the values, mean ± standard deviation over {n_seeds} seeds")
    for method, result in found.items():
        setting = (f"λ = {result['lmbda']:g}, " if method in VARIANTS else "") + f"α = {result['alpha']:g}"
        less = "Boyan's is {judged} it: {mean:+.3f} ± {margin:.3f}".format(**judged[method]) if method in judged else ""
        error = result["error"]
        print(f"  {NAMES[method]:32}{error.mean():6.3f} ± {error.std():.3f}   {setting:22}{less}".rstrip())


def draw(results, path):
    from lstd.report.style import COLOURS, LINES, MARKERS, REFERENCE, figure_style, new_figure

    with figure_style():
        figure = new_figure(9.5, 3.2)
        for ax, (name, found) in zip(figure.subplots(1, len(results), sharey=True), results.items(), strict=True):
            for variant in VARIANTS:
                error = found[variant]["curve"]
                look = {"color": COLOURS[variant], "linestyle": LINES[variant], "marker": MARKERS[variant]}
                ax.errorbar(LMBDAS, error.mean(axis=0), error.std(axis=0), label=NAMES[variant], capsize=2, **look)
            for method, line in (("ridge", "-"), ("ridge_rescaled", "--")):
                ax.axhline(found[method]["error"].mean(), color=REFERENCE, linestyle=line, label=NAMES[method])
            ax.set(title=name, xlabel="λ", yscale="log")
        figure.axes[0].set_ylabel("error / spread of the values")
        handles, labels = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="lower center", ncols=3)
        figure.tight_layout(rect=(0, 0.16, 1, 1))
        figure.savefig(path, dpi=110, metadata={"Software": None})


def main(quick=False, figure=None):
    """Print the tables and verdicts; `quick` uses fewer seeds and rollouts."""
    results, verdicts = {}, {}
    for case in CASES:
        found = evaluate(case, *((4, 12) if quick else (20, 60)))
        results[case.name], verdicts[case.name] = found, verdict(found)
        report(case.name, found, verdicts[case.name])
    if figure is not None:
        draw(results, figure)
    return results, verdicts


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer seeds and rollouts")
    parser.add_argument("--figure", help="where to write the figure")
    main(**vars(parser.parse_args()))
