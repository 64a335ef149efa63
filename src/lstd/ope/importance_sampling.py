"""Importance sampling and doubly robust estimates of the value of a policy: what LSTD is compared with.

For episode i with transitions t = 0, …, let D_t be the product of the discounts before t, ρ_t = π(a_t|s_t)/μ(a_t|s_t),
R_t = ρ_0 ⋯ ρ_t, and after the end of the episode R as it was. With action values q and v(s) = Σ_a π(a|s) q(s, a),

    is      mean_i R_T Σ_t D_t r_{t+1}                     wis     the same with R_T / Σ_i R_T
    pdis    mean_i Σ_t D_t R_t r_{t+1}                     wpdis   Σ_t Σ_i D_t r_{t+1} R_t / Σ_i R_t
    dr      mean_i v(s_0) + Σ_t D_t R_t δ_t                wdr     mean_i v(s_0) + Σ_t Σ_i D_t δ_t R_t / Σ_i R_t

with δ_t = r_{t+1} + γ_{t+1} v(s_{t+1}) − q(s_t, a_t). Without ratios all are the mean return. Where an episode was cut
off, "dr" and "wdr" continue with v; the others treat it as terminated. Standard errors are those of a jackknife over
episodes or groups.

J. Jiang and L. Li, "Doubly robust off-policy value evaluation for reinforcement learning", ICML 2016.
P. S. Thomas and E. Brunskill, "Data-efficient off-policy policy evaluation for reinforcement learning", ICML 2016.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lstd.data.arguments import check_choice, check_real
from lstd.data.rows import Columns, PerRow, Rows
from lstd.data.takes import Takes
from lstd.errors import EffectiveSampleWarning, InvalidInputError, warn
from lstd.ope.logged_rows import (
    UNWEIGHTED,
    LoggedRows,
    check_ratio_alone,
    logged_rows,
    ratio_rows,
    states_of,
    warn_of_support,
)
from lstd.ope.pairs import StateActionFeatures, values_in
from lstd.ope.policies import PolicyArguments
from lstd.ope.policy_value import PolicyValue
from lstd.ope.tied_returns import Bounds, TiedReturns, checked_bounds, cut_interval, tied_returns
from lstd.statistics.intervals import FEW, check_level, degrees_of_freedom, half_width
from lstd.statistics.solve import check_range
from lstd.types import Array, FeaturesLike

FEW_EPISODES = 50.0  # effective sample below which products of ratios have no useful interval
ESTIMATORS = ("is", "pdis", "wis", "wpdis", "dr", "wdr")

_TAKES = Takes("importance_sampling", (), UNWEIGHTED)  # beside the named arguments


def importance_sampling(
    X: FeaturesLike,
    y: ArrayLike,
    *,
    gamma: float,
    estimator: str = "wpdis",
    actions: Any = None,
    target_policy: Any = None,
    behavior_probability: PerRow = None,
    q: Any = None,
    episode: PerRow = None,
    terminated: PerRow = None,
    discount: PerRow = None,
    groups: PerRow = None,
    level: float = 0.95,
    labels: Any = None,
    importance_ratio: PerRow = None,
    bounds: tuple[float, float] | None = None,
    **others: Any,
) -> PolicyValue:
    """Estimate the value of a policy from whole episodes, by importance ratios.

    Parameters
    ----------
    X, y, actions, target_policy, behavior_probability, episode, terminated, discount, groups
        As in :meth:`LSTDQ.fit`. Without `target_policy`, the result is the value of the policy that logged the data:
        the mean return (Monte Carlo).
    gamma : float in [0, 1]
    estimator : {"is", "pdis", "wis", "wpdis", "dr", "wdr"}, default "wpdis"
        "is" multiplies the return of an episode by the product of its ratios, "pdis" each reward by the product up to
        it. "wis" and "wpdis" divide by the sum of these products, which adds bias and reduces variance. "dr" and "wdr"
        are doubly robust: they do so with the errors of `q`, and add its values.
    q : fitted LSTDQ or callable, optional
        For "dr" and "wdr": a model of action values, or a function that returns those of all actions, (T, n_actions),
        for an array of states.
    level : float in (0, 1), default 0.95
        Probability that the interval contains the value.
    labels : sequence, optional
        Labels of the actions, in the order of the columns; by default those of `q`, or 0, 1, ….
    importance_ratio : array-like of shape (T,), optional
        Ratio π/μ of each logged action, in place of `actions`, `target_policy` and `behavior_probability`, as
        :meth:`lstd.LSTD.fit` takes it: for continuous actions, say. Not for "dr" and "wdr".
    bounds : tuple of two floats, optional
        Least and largest return that an episode can have, as in :func:`evaluate_policy`.
    **others
        Any other argument is refused, such as weights of rows.

    Returns
    -------
    PolicyValue
        Its `effective_sample_size` counts episodes: it is that of the products of all ratios of an episode. Its
        `step_values` are what each time step adds to the value.

    Raises
    ------
    InvalidInputError
        When an argument breaks a rule, there are fewer than two episodes or groups, or the products of the ratios are
        zero in every episode, so that a weighted estimate would divide by zero.

    Warns
    -----
    EffectiveSampleWarning
        When the products of the ratios leave an effective sample below 50 episodes, or, without `bounds`, when most
        returns agree and data are few, or all agree.
    SupportWarning
        When the mean of the ratios is not 1, as by :meth:`lstd.LSTD.fit`.

    Examples
    --------
    >>> import numpy as np
    >>> from lstd.ope import importance_sampling
    >>> X, actions, done = np.ones((400, 1)), np.arange(400) % 2, np.ones(400, dtype=bool)
    >>> found = importance_sampling(
    ...     X, 1.0 + 2.0 * actions, gamma=1.0, estimator="wis", actions=actions, terminated=done,
    ...     target_policy=np.full((400, 2), [0.25, 0.75]), behavior_probability=np.full(400, 0.5),
    ... )
    >>> round(found.value, 3), round(found.effective_sample_size)
    (2.5, 320)
    """
    _TAKES.check(others)
    check_choice("estimator", estimator, ESTIMATORS)
    gamma = check_real("gamma", gamma, 0.0, 1.0)
    level = check_level(level)
    columns: Columns = {"episode": episode, "terminated": terminated, "discount": discount, "groups": groups}
    if importance_ratio is not None:
        columns["importance_ratio"] = importance_ratio
    features = getattr(q, "features_", None)
    if labels is not None:
        features = StateActionFeatures(labels)
    rows = states_of(X, y, columns, gamma)
    logged = _logged(rows, actions, target_policy, behavior_probability, features)
    bounds = checked_bounds(bounds, logged)
    rewards, start = _rewards(logged, q, X, estimator)
    table = StepTable.of(logged, rewards)
    _check_left(estimator, table.products, logged)

    weighted = estimator.startswith("w")
    shares = table.products
    if estimator in ("is", "wis"):  # the product of the whole episode in every step
        shares = np.broadcast_to(shares[:, -1:], shares.shape)
    with np.errstate(over="ignore", invalid="ignore"):
        steps, u = _estimate(weighted, shares, table.discounted, start, _first_of_groups(logged))
    check_range(steps, u, table.products)
    value = float(steps.sum())
    total = shares.sum(axis=0) if weighted else float(len(shares))
    dual = (table.discount * shares / total)[table.episode, table.step]
    tied = tied_returns(logged, value, dual, bounds)
    found = _with_interval(value, u, table.products[:, -1], level, tied, bounds)
    found = replace(found, method=estimator, step_values=steps, importance_ratio=logged.ratio)
    return _doubted(found, logged, tied)


class StepTable(NamedTuple):
    """Episodes by rows and their steps by columns, with shorter episodes filled up."""

    episode: NDArray[np.intp]  # (N,) place of each transition,
    step: NDArray[np.intp]  # (N,) and
    discount: Array  # (n_episodes, n_steps) D_t
    products: Array  # (n_episodes, n_steps) R_t; after the end, as it was
    discounted: Array  # (n_episodes, n_steps) D_t r_{t+1}; after the end, 0

    @classmethod
    def of(cls, logged: LoggedRows, rewards: Array) -> StepTable:
        """Return the table of transitions, with what takes the place of rewards, (N,)."""
        episode = np.cumsum(logged.begins) - 1
        step = logged.step
        shape = (int(episode[-1]) + 1, int(step.max()) + 1)
        discount_after = np.ones(shape)
        discount_after[episode, step] = logged.discount
        discount = np.ones(shape)
        discount[:, 1:] = np.cumprod(discount_after[:, :-1], axis=1)
        ratio = np.ones(shape)
        if logged.ratio is not None:
            ratio[episode, step] = logged.ratio
        reward = np.zeros(shape)
        reward[episode, step] = rewards
        with np.errstate(over="ignore", invalid="ignore"):
            products = np.cumprod(ratio, axis=1)
            discounted = discount * reward
        return cls(episode, step, discount, np.asarray(products, np.float64), discounted)


def _first_of_groups(logged: LoggedRows) -> NDArray[np.intp]:
    """Return the first episode of each group; without groups, all episodes."""
    group = logged.group[logged.begins]
    return np.flatnonzero(np.diff(group, prepend=-1))


def _doubted(found: PolicyValue, logged: LoggedRows, tied: TiedReturns | None) -> PolicyValue:
    """Warn of what the log says against a value, and return the value with it."""
    texts = [warn_of_support(logged)]
    size = found.effective_sample_size or 0.0
    m = len(logged.ended)
    if logged.ratio is not None and size < FEW_EPISODES:
        few = "these are few"
        if size < 0.9 * m:
            few = "a few of them decide the value"
        texts.append(
            f"The products of importance ratios leave an effective sample of {size:.2g} of {m} episodes: {few}, and "
            "the interval may be too short. Use `evaluate_policy`, LSTD with `importance_ratio`, or an LSTDQ."
        )
        warn(texts[-1], EffectiveSampleWarning)
    of_ties = "" if tied is None else tied.doubt(found.little_data)
    if of_ties:
        texts.append(of_ties)
        warn(of_ties, EffectiveSampleWarning)
    return replace(found, said=tuple(filter(None, texts)))


def _logged(rows: Rows, actions: Any, policy: Any, behavior: Any, features: Any) -> LoggedRows:
    """Return transitions with importance ratios, without them on policy."""
    if "importance_ratio" in rows.given:
        check_ratio_alone(target_policy=policy, actions=actions, behavior_probability=behavior)
    if policy is None:
        for name, given in (("actions", actions), ("behavior_probability", behavior)):
            if given is not None:
                raise InvalidInputError(f"`target_policy` must be given with `{name}`; without it, leave out both.")
        return ratio_rows(rows)
    if actions is None:
        raise InvalidInputError("`actions` must be given with `target_policy`: the logged action of each row.")
    if behavior is None:
        raise InvalidInputError(
            "`behavior_probability` must be given with `target_policy`: the probability with which each action was "
            "taken. Without it, use an LSTDQ."
        )
    return logged_rows(rows, actions, PolicyArguments(policy), behavior, features)


def _check_left(estimator: str, R: Array, logged: LoggedRows) -> None:
    """Raise InvalidInputError if a weighted estimate has no episode left at some step."""
    if not estimator.startswith("w") or R.any(axis=0).all():
        return
    never_taken = np.flatnonzero(logged.ratio == 0.0)
    row = int(logged.full[never_taken[0]])
    last = int((R > 0.0).any(axis=0).sum())
    raise InvalidInputError(
        f"`target_policy` must be able to take all logged actions of at least one episode for estimator={estimator!r}; "
        f"of {len(R)} episodes none is left after {last} of {R.shape[1]} steps: each has an action that it never "
        f"takes, the first one in row {row}. Mix the target policy with that of the log, so that it takes all of them "
        "with some probability, or use an LSTDQ, which needs no whole episodes."
    )


def _rewards(logged: LoggedRows, q: Any, X: FeaturesLike, estimator: str) -> tuple[Array, Array]:
    """Return what takes the place of rewards, (N,), and the value at the start of each episode."""
    if estimator not in ("dr", "wdr"):
        return logged.rewards, np.zeros(int(logged.begins.sum()))
    if q is None:
        raise InvalidInputError(f"`q` must be given for estimator={estimator!r}: a fitted LSTDQ, or a function.")
    if "importance_ratio" in logged.rows.given:
        raise InvalidInputError(f"`target_policy` must be given for estimator={estimator!r}: with both policies.")
    assert logged.policy is not None
    n_actions = logged.features.n_actions
    if hasattr(q, "action_values"):  # a model finds its columns in a data frame, with rows as they were given
        values = values_in(q, X, n_actions=n_actions)
        if logged.rows.order is not None:
            values = values[logged.rows.order]
    else:
        values = values_in(q, logged.rows.X, n_actions=n_actions)
    values_next = values[np.minimum(logged.full + 1, len(values) - 1)]
    v_next = (logged.successors * values_next).sum(axis=1)
    taken = values[logged.full, logged.codes]
    delta = logged.rewards + logged.discount * v_next - taken
    first = logged.full[logged.begins]
    return delta, (logged.policy[first] * values[first]).sum(axis=1)


def _estimate(weighted: bool, R: Array, x: Array, start: Array, first: NDArray[np.intp]) -> tuple[Array, Array]:
    """Return what each step adds to the value, and what it changes by without each group.

    `R` are products and `x` discounted rewards, (n_episodes, n_steps); `first` are the first episodes of the groups.
    """
    share = np.ones((len(R), 1 + R.shape[1]))  # of episodes in each mean; v(s_0) comes before the steps
    if weighted:
        share[:, 1:] = R
    else:
        x = R * x
    share /= share.sum(axis=0)
    x = np.column_stack([start, x])
    mean = (share * x).sum(axis=0)
    change = np.add.reduceat(share * (x - mean), first)
    left_out = np.add.reduceat(share, first)
    without = (change / np.maximum(1.0 - left_out, 1e-12)).sum(axis=1)
    first_step = mean[:1] + mean[1:2]
    return np.append(first_step, mean[2:]), without


def _with_interval(
    value: float, u: Array, products: Array, level: float, tied: TiedReturns | None, bounds: Bounds | None
) -> PolicyValue:
    """Return the value with its interval, from what it changes by without each group, (n_groups,)."""
    n = len(u)
    if n < 2:
        raise InvalidInputError(f"An interval needs at least two episodes or groups; got {n}.")
    squares = u**2 * (n - 1) / n
    error = float(np.sqrt(squares.sum()))
    freedom = float(degrees_of_freedom(squares[np.newaxis, :, np.newaxis], np.full(n, 1.0 / n))[0, 0])
    if np.count_nonzero(products) < 2:  # no episodes that differ
        error = np.inf
    half = float(half_width(error, freedom, level))
    lower = value - half
    upper = value + half
    little = freedom < FEW
    if tied is not None:
        little = little or tied.decides(value, half, level)
        value, lower, upper = tied.interval(value, half, level)
    elif bounds is not None:
        value, lower, upper = cut_interval(value, half, half, bounds)
    size = 0.0
    total = float(products.sum())
    if total:
        size = total**2 / float((products**2).sum())
    return PolicyValue(value, lower, upper, error, freedom, 0.0, little, level, "independent", size, bounds=bounds)
