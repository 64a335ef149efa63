"""Compare probabilities of competing causes with the estimators of scikit-survival and lifelines.

    python benchmarks/competing_risks.py [--write docs/guide/competing-risks.md]

`HorizonLSTD` has a feature per step and α → 0. The data are the bone marrow transplants of scikit-survival, in months,
and simulated subjects with two causes. lifelines moves tied times apart at random, so its curves are compared for data
without ties. Standard errors are beside Aalen's, as lifelines computes them. Needs lstd[bench].
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from lstd import HorizonLSTD
from pages import show
from provenance import printed_by

LMBDAS = (0.0, 0.5, 0.9, 1.0)
HORIZON = 24
EXACT = 1e-12  # ridge coefficient in place of 0


def simulated(n: int, seed: int) -> tuple[Any, Any]:
    """Return the step in which each subject leaves, and its cause, 0 for those last seen before; (n,) each."""
    random = np.random.default_rng(seed)
    leaves = np.column_stack([random.geometric(0.03, n), random.geometric(0.02, n)])
    seen = random.integers(6, 40, n)
    cause = np.where(leaves.min(axis=1) <= seen, leaves.argmin(axis=1) + 1, 0)
    return np.minimum(leaves.min(axis=1), seen), cause


def transplants() -> tuple[Any, Any]:
    """Return the same of the patients with bone marrow transplants, in months."""
    from sksurv.datasets import load_bmt

    _, y = load_bmt()
    return y["ftime"].astype(int) + 1, y["status"]  # an event in month 0 comes in the first step


def fitted(exits: Any, causes: Any, lmbda: float = 0.9, alpha: float = EXACT) -> tuple[HorizonLSTD, Any]:
    """Fit to a row per step of each subject; also return the features of the first step."""
    lengths = np.where(causes > 0, exits, exits + 1)
    subject = np.repeat(np.arange(len(exits)), lengths)
    step = np.arange(len(subject)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    last = np.append(subject[1:] != subject[:-1], True)
    ended = last & (causes[subject] > 0)
    y = (ended * causes[subject])[:, np.newaxis] == np.arange(1, causes.max() + 1)
    model = HorizonLSTD(HORIZON, lmbda=lmbda, alpha=alpha, fit_intercept=False, penalty="raw")
    features = np.eye(step.max() + 1)
    return model.fit(features[step], y.astype(float), episode=subject, terminated=ended), features[:1]


def by_scikit_survival(exits: Any, causes: Any) -> Any:
    """Return the cumulative incidence of each cause after each step, (H, J)."""
    from sksurv.nonparametric import cumulative_incidence_competing_risks

    times, curves = cumulative_incidence_competing_risks(causes, exits)
    places = np.searchsorted(times, np.arange(1, HORIZON + 1), side="right") - 1
    return np.where(places >= 0, curves[1:, np.maximum(places, 0)], 0.0).T


def by_lifelines(exits: Any, causes: Any) -> tuple[Any, Any]:
    """Return cumulative incidences and standard errors after each step, (H, J) each."""
    from lifelines import AalenJohansenFitter

    curves = []
    errors = []
    for cause in range(1, causes.max() + 1):
        fitter = AalenJohansenFitter(calculate_variance=True, seed=0).fit(exits, causes, event_of_interest=cause)
        steps = np.arange(1, HORIZON + 1) + 0.5  # ties were moved by less
        places = np.searchsorted(fitter.cumulative_density_.index.to_numpy(), steps) - 1
        curves.append(fitter.cumulative_density_.to_numpy()[places, 0])
        errors.append(np.sqrt(np.ravel(fitter.variance_.to_numpy())[places]))
    return np.column_stack(curves), np.column_stack(errors)


def differences() -> Iterator[str]:
    """Yield the largest differences of curves, as rows of a table."""
    for name, (exits, causes) in (
        ("bone marrow transplants, 35 patients", transplants()),
        ("simulated, 600 subjects", simulated(600, 0)),
    ):
        expected = by_scikit_survival(exits, causes)
        off = []
        for lmbda in LMBDAS:
            model, first = fitted(exits, causes, lmbda)
            off.append(np.abs(model.predict_curve(first)[0] - expected).max())
        model, first = fitted(exits, causes, alpha=1.0)
        with_ridge = np.abs(model.predict_curve(first)[0] - expected).max()
        yield f"| {name} | scikit-survival | {max(off):.0e} | {with_ridge:.4f} |"
    exits = np.random.default_rng(0).permutation(np.arange(1, 61))  # no ties
    causes = np.random.default_rng(1).integers(3, size=60)
    model, first = fitted(exits, causes)
    difference = np.abs(model.predict_curve(first)[0] - by_lifelines(exits, causes)[0]).max()
    model, first = fitted(exits, causes, alpha=1.0)
    with_ridge = np.abs(model.predict_curve(first)[0] - by_lifelines(exits, causes)[0]).max()
    yield f"| simulated, 60 subjects without ties | lifelines | {difference:.0e} | {with_ridge:.4f} |"


def ratios_of_errors(n: int, n_seeds: int = 12) -> Any:
    """Return standard errors divided by those of Aalen: of two causes within 3, 6, 12, 18 and 24 steps, by data set."""
    steps = np.array([3, 6, 12, 18, 24])
    found = []
    for seed in range(n_seeds):
        exits, causes = simulated(n, seed)
        model, first = fitted(exits, causes)
        own = [model.predict(first, horizon=int(h), return_std=True)[1][0] for h in steps]
        found.append(np.array(own) / by_lifelines(exits, causes)[1][steps - 1])
    return np.array(found)


def main() -> None:
    """Print the tables, and write them with --write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--write", type=Path, metavar="PAGE", help="also write the tables into this Markdown page")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    lines = [
        printed_by("python benchmarks/competing_risks.py"),
        "Largest differences of probabilities within 1 to 24 steps, of all λ of 0, 0.5, 0.9 and 1.",
        "",
        "| data | beside | difference | with α = 1 |",
        "|---|---|---|---|",
        *differences(),
        "",
        "Standard errors divided by those of Aalen: two causes, within 3 to 24 steps, 12 data sets.",
        "",
        "| subjects | mean | least | greatest |",
        "|---|---|---|---|",
    ]
    for n in (200, 600, 2000):
        ratios = ratios_of_errors(n)
        lines.append(f"| {n} | {ratios.mean():.2f} | {ratios.min():.2f} | {ratios.max():.2f} |")
    show("\n".join([*lines, ""]), "benchmarks/competing_risks.py", arguments.write)


if __name__ == "__main__":
    main()
