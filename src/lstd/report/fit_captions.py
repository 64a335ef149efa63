"""The words of the page of a fit: summary, captions, what a reader who cannot see the figures needs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lstd.estimators.intervals import FEW
from lstd.estimators.metrics import Calibration
from lstd.report.fit_data import FEWEST_GROUPS, MOST_REWARDS, Evaluation, half_widths
from lstd.report.fit_settings import NAMED, Grid
from lstd.report.numbers import VARIANT_NAMES, compact, grouped

Array = NDArray[np.float64]

_MOST_NAMES = 12


def decimals(value: float | None) -> str:
    """Three decimals, or a dash for nothing.

    Examples
    --------
    >>> decimals(0.12345), decimals(-0.00001), decimals(None)
    ('0.123', '0.000', '–')
    """
    return "–" if value is None else f"{round(value, 3) + 0.0:.3f}".replace("-", "−")


def listed(names: Sequence[str], most: int = _MOST_NAMES) -> str:
    """The first names, and how many more there are.

    Examples
    --------
    >>> listed(["a", "b", "c"], most=2)
    'a, b and 1 more'
    """
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {grouped(more)} more" if more > 0 else "")


def introduction(found: Evaluation) -> str:
    """What the page is about, and how to take its comparisons."""
    return (
        "Linear prediction of the discounted sum of future rewards, compared with the discounted returns of "
        f"{grouped(len(found.rows))} rows. With the rows that the model was fitted to, it agrees better than with new "
        "ones: judge it by others."
    )


def summary(found: Evaluation) -> dict[str, str]:
    """The main numbers."""
    model, fitted = found.model, found.fitted
    cards = {
        "discount γ": f"{fitted.gamma:g}",
        "trace decay λ": f"{fitted.statistics.lmbda:g}",
        "ridge coefficient α": f"{fitted.alpha:.4g}",
        "features": grouped(model.n_features_in_),
        "transitions": grouped(model.n_transitions_),
        "episodes": grouped(model.n_episodes_),
        "condition number": compact(model.condition_number_),
        "returns observed": f"{grouped(found.observed.counts.sum())} of {grouped(len(found.rows))}",
    }
    scores = [r2 for r2 in found.r2() if r2 is not None]
    if len(found.rewards) == 1:
        cards["R²"] = decimals(scores[0] if scores else None)
    if found.flagged_share is not None:
        cards["rows flagged"] = f"{_share(found.flagged_share)}"
    return cards


_MANY = 0.1  # of the rows


def _share(fraction: float) -> str:
    return f"{100 * fraction:.0f}\u00a0%" if fraction >= 0.095 or not fraction else f"{100 * fraction:.1g}\u00a0%"


def facts(found: Evaluation) -> dict[str, str]:
    """What was fitted, in words."""
    fitted, observed = found.fitted, found.observed
    chosen = hasattr(found.model, "cv_results_")
    names = getattr(found.model, "feature_names_in_", None)
    entries = {
        "estimator": f"{VARIANT_NAMES[fitted.variant]}, {'with' if fitted.fit_intercept else 'without'} an intercept",
        "λ and α": "chosen from the data" if chosen else "given",
        "rewards": listed([_scored(*pair) for pair in zip(found.rewards, found.r2(), strict=True)]),
    }
    if names is not None:
        entries["features"] = listed([str(name) for name in names])
    entries["conditioning"] = _condition(found.model.condition_number_)
    if found.influence is not None:
        n = len(found.influence.shares)
        kind = "episodes, or runs of them," if fitted.blocks.by_episode else "stretches of the stream"
        entries["intervals"] = f"from what each of {n} {kind} adds to the weights, taken as independent"
    entries["returns"] = (
        f"{grouped(observed.counts.sum())} of {grouped(len(observed.counts))} rows have a return that was observed up "
        f"to {found.tolerance:g} of the value to come; rows closer to where their episode, or the data, was cut off do "
        "not count"
    )
    if found.untold:
        entries["ends of episodes"] = (
            "nothing said which episodes terminated: each is taken as cut off, its last row as features only"
        )
    return entries


def _scored(name: str, r2: float | None) -> str:
    return name if r2 is None else f"{name} (R² {decimals(r2)})"


def _condition(number: float) -> str:
    if not np.isfinite(number):
        return "infinite: A + αI is singular, and the weights are those of least norm; increase α"
    digits = max(0, int(15.65 - np.log10(max(1.0, number))))
    advice = "; increase α, or drop features that repeat one another" if digits < 6 else ""
    return f"{compact(number)} of A + αI: about {digits} digits of the weights are sure{advice}"


def predictions(found: Evaluation) -> str:
    """Caption of the predictions over time."""
    first, end = found.stretch
    step = int(found.drawn[1] - found.drawn[0]) if len(found.drawn) > 1 else 1
    thinned = f", one row in {step}" if step > 1 else ""
    parts = [f"Predictions (line) in time, rows {grouped(first)} to {grouped(end - 1)}{thinned}."]
    if found.observed.counts[found.drawn].any():
        parts.append("Dots are the discounted returns that followed, where they were observed.")
    if found.influence is not None:
        parts.append(
            f"The band is the {100 * found.level:g}\u00a0% interval of the value that LSTD(λ) would come to with "
            "endless data, an expectation: single returns scatter about it, and most may lie outside."
        )
    if found.episode[first] != found.episode[end - 1]:
        parts.append("Every second episode is shaded.")
    if found.flagged_share:
        parts.append(
            f"Crosses at the foot flag rows on which so little data bears that the interval may be off: those with "
            f"fewer than {FEW:g} degrees of freedom, {_share(found.flagged_share)} of all."
        )
    return " ".join(parts)


def predictions_alternative(found: Evaluation) -> str:
    """Of the predictions over time."""
    rows = found.drawn
    ranges = "; ".join(
        f"{name}: predictions from {found.prediction[rows, i].min():.3g} to {found.prediction[rows, i].max():.3g}"
        for i, name in enumerate(found.rewards[:MOST_REWARDS])
    )
    return f"Line chart of predictions against the row, with observed returns as dots. {ranges}."


def calibration(found: Evaluation, tables: Sequence[Calibration]) -> str:
    """Caption of the calibration."""
    words = (
        "Mean observed return against mean prediction, in bins of the prediction with about as many rows each: on the "
        "diagonal, predictions are right on average."
    )
    left_out = 1.0 - found.observed.counts.mean()
    if left_out > _MANY:
        words += (
            f" Returns that were cut off, of {_share(left_out)} of the rows, are left out: where they would have been "
            "higher or lower than the others, so are the predictions."
        )
    gaps = [np.abs(table.observed - table.predicted) for table in tables]
    halves = [half_widths(table, found.level) for table in tables]
    barred = sum(int(np.isfinite(half).sum()) for half in halves)
    if not barred:
        return (
            f"{words} Without bars, as no bin has rows of {FEWEST_GROUPS} or more {found.group_name}, the least for "
            "intervals of the mean."
        )
    off = sum(int((gap > half).sum()) for gap, half in zip(gaps, halves, strict=True))
    return (
        f"{words} Bars are {100 * found.level:g}\u00a0% intervals of the mean return, taking {found.group_name} as "
        f"independent, where a bin has rows of {FEWEST_GROUPS} or more: {off} of {barred} miss the diagonal, and "
        f"{100 * (1 - found.level):.2g}\u00a0% would by chance. Bins share {found.group_name}, so that "
        "they err together."
    )


def calibration_alternative(tables: Sequence[Calibration]) -> str:
    """Of the calibration."""
    table = tables[0]
    return (
        f"Scatter chart of the mean observed return against the mean prediction in {len(table.count)} bins, with the "
        f"diagonal; lowest bin {table.predicted[0]:.3g} predicted and {table.observed[0]:.3g} observed, highest "
        f"{table.predicted[-1]:.3g} and {table.observed[-1]:.3g}."
    )


def grid(found: Grid) -> str:
    """Caption of the error over the grid."""
    i, j = found.chosen
    at = f"λ = {found.lmbdas[i]:g}, α = {found.alphas[j]:.4g}"
    error, lowest = found.error[found.chosen], found.error[found.lowest]
    parts = [
        "Cross-validated error of each pair (λ, α), the share 1 − R² of the variance of held-out returns that was not "
        f"predicted; the star is the pair that was chosen, {at}."
    ]
    if np.isnan(error):
        parts.append("It has no error of its own.")
    elif found.lowest != found.chosen:
        k, m = found.lowest
        above = f"{100 * (error / lowest - 1):.2g}\u00a0% above" if lowest > 0 else f"{error - lowest:.3g} above"
        caution = ": the choice weighs how sure differences are" if found.cautious else ""
        at = f"λ = {found.lmbdas[k]:g}, α = {found.alphas[m]:.4g}"
        parts.append(f"Its error is {above} the lowest, at {at}{caution}.")
    if np.isfinite(found.spread[found.chosen]) and np.isfinite(error):
        parts.append(
            f"Its error in single folds has a standard deviation of {found.spread[found.chosen]:.2g} about the mean, "
            f"{error:.3g}."
        )
    parts.append("At the right, the lowest error of each λ with any α.")
    if found.on_edge:
        parts.append(
            f"The chosen {' and '.join(found.on_edge)} lies at the edge of the grid: a wider one may do better."
        )
    return " ".join(parts)


def grid_alternative(found: Grid) -> str:
    """Of the error over the grid."""
    i, j = found.chosen
    return (
        f"Map of the cross-validated error over {len(found.lmbdas)} values of λ and {len(found.alphas)} of α, the "
        f"chosen pair, λ = {found.lmbdas[i]:g} and α = {found.alphas[j]:.4g}, marked; beside it, the lowest error of "
        "each λ."
    )


def features(found: Evaluation, values: Array, names: Sequence[str], flagged: NDArray[np.bool_]) -> str:
    """Caption of the effective degrees of freedom."""
    parts = [
        f"1 where the data decides a feature's weight, 0 where the ridge term, α = {found.fitted.alpha:.4g}, does. "
        f"The sum, {values.sum():.3g} of {grouped(len(values))}, is the effective number of parameters."
    ]
    if len(values) > NAMED:
        least = np.argsort(values, kind="stable")[:5]
        parts.append("Least decided by the data: " + ", ".join(f"{names[i]} ({values[i]:.2g})" for i in least) + ".")
    if flagged.any():
        parts.append(
            f"Diamonds: a row with this feature alone has an interval with fewer than {FEW:g} degrees of freedom, as "
            f"little data bears on it ({listed([names[int(i)] for i in np.flatnonzero(flagged)], 8)})."
        )
    return " ".join(parts)


def features_alternative(values: Array) -> str:
    """Of the effective degrees of freedom."""
    return (
        f"Chart of the effective degrees of freedom of {len(values)} features, from {values.min():.2g} to "
        f"{values.max():.2g}, median {np.median(values):.2g}."
    )


def not_drawn(found: Evaluation) -> list[str]:
    """What is missing from the figures, and why."""
    sentences = []
    if found.no_intervals:
        sentences.append(found.no_intervals)
    if not found.observed.counts.any():
        sentences.append(
            "Observed returns and calibration: no row's return was observed whole. Of the value to come, a share of "
            f"{found.observed.unobserved.min():.2g} was cut off at best; below {found.tolerance:g} would do. "
            "Give longer episodes, say which terminated, or raise `tolerance`."
        )
    if len(found.rewards) > MOST_REWARDS:
        sentences.append(f"Rewards after the first {MOST_REWARDS}: {listed(found.rewards[MOST_REWARDS:])}.")
    return sentences
