"""Values of policies with their intervals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.container import ErrorbarContainer

from lstd.errors import InvalidInputError
from lstd.ope.policy_comparison import PolicyComparison
from lstd.ope.policy_value import PolicyValue
from lstd.report.style import BLUE, REFERENCE, axes_for, name_rows


def plot_policy_values(
    values: PolicyComparison | Mapping[Any, PolicyValue] | Sequence[PolicyValue], *, truth: float | None = None,
    ax: Axes | None = None,
) -> ErrorbarContainer:  # fmt: skip
    """Draw the values of policies with their intervals, the largest value first.

    Of a comparison, policies that the data cannot tell apart from the first one have filled points, and the others
    have open ones.

    Parameters
    ----------
    values : PolicyComparison, or dict or sequence of PolicyValue
        Of :func:`lstd.ope.compare_policies`, :func:`lstd.ope.policy_value` or :func:`lstd.ope.importance_sampling`.
    truth : float, optional
        A value to draw a line at, such as the mean return of the policy that logged the data.
    ax : matplotlib.axes.Axes, optional
        As in :func:`plot_predictions`.

    Returns
    -------
    matplotlib.container.ErrorbarContainer

    Raises
    ------
    InvalidInputError
        When there are no values, or other objects among them.

    Examples
    --------
    >>> import numpy as np
    >>> from lstd.ope import importance_sampling
    >>> from lstd.report import plot_policy_values
    >>> X, y, done = np.ones((20, 1)), np.arange(20.0), np.arange(20) % 2 == 1
    >>> values = {gamma: importance_sampling(X, y, gamma=gamma, terminated=done) for gamma in (0.5, 1.0)}
    >>> artists = plot_policy_values(values)
    >>> [label.get_text() for label in artists[0].axes.get_yticklabels()]
    ['1.0', '0.5']
    """
    found = _named(values)
    order = sorted(found, key=lambda name: -found[name].value)
    best = values.best if isinstance(values, PolicyComparison) else order
    x, low, high = (np.array([getattr(found[name], of) for name in order]) for of in ("value", "lower", "upper"))
    faces = np.array([name in best for name in order])
    with axes_for(ax, 4.4, 0.9 + 0.28 * max(2, len(order))) as panel:
        places = np.arange(len(order))
        if truth is not None:
            panel.axvline(truth, color=REFERENCE, linewidth=0.9, zorder=1)
        artists = panel.errorbar(x, places, xerr=[x - low, high - x], fmt="o", color=BLUE, mfc="white", capsize=2.2)
        panel.plot(x[faces], places[faces], "o", color=BLUE, zorder=3)
        name_rows(panel, list(map(str, order)))
        panel.set_xlabel(f"value of the policy, {100 * found[order[0]].level:g} % interval")
    return artists


def _named(values: Any) -> dict[Any, PolicyValue]:
    if isinstance(values, PolicyComparison):
        return dict(zip(values.names, values.values, strict=True))
    items = values if isinstance(values, Iterable) else ()
    found = dict(values) if isinstance(values, Mapping) else dict(enumerate(items))
    if not found or not all(isinstance(one, PolicyValue) for one in found.values()):
        raise InvalidInputError(
            "`values` must be a PolicyComparison, or one or more PolicyValue by name or in a list; got "
            f"{type(values).__name__}{f' of {len(found)}' if isinstance(values, Iterable) else ''}."
        )
    return found
