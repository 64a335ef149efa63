"""Compare readings of the same arrays: 50 episodes of a pendulum that a limit cuts off after 40 steps.

    python benchmarks/readings.py [--quick] [--write docs/guide/replay-buffers.md]

The data are those of `benchmarks/pendulum.py`, "swing, short episodes": no episode ends, and 40 % of the value at the
start of an episode lies beyond the cut. The arrays are read in four ways by `Trajectories.from_arrays`. An error is the
root mean square over held-out states, divided by the standard deviation of their values, at the λ and α that are best
for the reading on other held-out states. Needs lstd[gymnasium].
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from lstd import LSTDStatistics, Trajectories
from lstd.errors import IllConditionedWarning, TerminationWarning, UnusedRewardWarning
from pages import write_between
from pendulum import ALPHAS, CASES, GAMMA, LMBDAS, errors
from provenance import printed_by

HEADING = "| given | read as | error ÷ spread of the values |"


def arrays(data: Any) -> dict[str, Any]:
    """Return trajectories of episodes that were cut off as the arrays that a loop records."""
    steps = np.flatnonzero(~data.horizon)
    return {
        "observations": data.X[steps],
        "next_observations": data.X[steps + 1],
        "rewards": data.y[steps],
        "timeouts": data.horizon[steps + 1],
    }


def readings(given: dict[str, Any]) -> dict[tuple[str, str], Trajectories]:
    """Read the arrays in four ways; the keys say what is given, and how it is read."""
    observations = given["observations"]
    rewards = given["rewards"]
    timeouts = given["timeouts"]

    def read(**flags: Any) -> Trajectories:
        return Trajectories.from_arrays(observations, rewards, **flags)

    return {
        ("`timeouts`, `next_observations`", "horizon rows"): read(
            terminals=False, timeouts=timeouts, next_observations=given["next_observations"]
        ),
        ("`timeouts`", "each last row is a horizon row"): read(terminals=False, timeouts=timeouts),
        ("`terminals`, of which none is True", "one endless stream"): read(terminals=False, timeouts=False),
        ("`done` as `terminals`", "each episode ends for good"): read(terminals=timeouts, timeouts=False),
    }


def weights(data: Trajectories) -> Any:
    """Fit the weights for every λ and α, (λ, α, n)."""
    sums = [LSTDStatistics.from_arrays(**data.to_arrays(), gamma=GAMMA, lmbda=lmbda) for lmbda in LMBDAS]
    return np.array([[one.solve(alpha, "boyan").weights for alpha in ALPHAS] for one in sums])


def fitted(n_seeds: int) -> dict[tuple[str, str], list[Any]]:
    """Return the weights of every reading by data set."""
    found: dict[tuple[str, str], list[Any]] = {}
    with warnings.catch_warnings(), threadpool_limits(1):
        for category in (IllConditionedWarning, TerminationWarning, UnusedRewardWarning):
            warnings.simplefilter("ignore", category)
        for seed in range(n_seeds):
            for key, data in readings(arrays(CASES[0].collect(seed))).items():
                found.setdefault(key, []).append(weights(data))
    return found


def main(quick: bool = False, write: Path | None = None) -> dict[str, Any]:
    """Print the table; `quick` uses fewer seeds and rollouts. Return the errors by what is given, (seeds,) each."""
    n_seeds, n_rollouts = (3, 200) if quick else (40, 2000)
    visited, values, _ = CASES[0].truth(n_rollouts, seed=10**6)
    lines = [HEADING, "|---|---|---|"]
    errors_of = {}
    for (given, read_as), found in fitted(n_seeds).items():
        error = errors(np.array(found), visited, values)["error"]
        errors_of[given] = error
        lines.append(f"| {given} | {read_as} | {error.mean():.2f} ± {error.std(ddof=1):.2f} |")
    print("\n".join(lines))
    if write:
        note = f"Mean ± standard deviation over {n_seeds} data sets."
        page = [printed_by("python benchmarks/readings.py"), note, "", *lines, ""]
        write_between(write, "benchmarks/readings.py", "\n".join(page))
    return errors_of


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer seeds and rollouts")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="also write the table into this Markdown page")
    main(**vars(parser.parse_args()))
