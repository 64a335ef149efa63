"""`Trajectories`: rows of the data contract, checked once and never changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from lstd.data.check_rows import check_rows
from lstd.data.convert import as_real
from lstd.data.doubts import TimesOfEnds
from lstd.data.feature_arrays import Features, check_indices
from lstd.data.ids import last_rows
from lstd.data.rows import COLUMNS, PerRow
from lstd.data.takes import GIVE_HORIZON_ROWS, Takes
from lstd.errors import TerminationWarning, warn
from lstd.trajectories.joining import (
    check_actions,
    check_mean_steps,
    check_names,
    check_probabilities,
    check_times,
    rows_at,
)
from lstd.trajectories.record import Function, Progress
from lstd.types import Array, FeaturesLike

_TRAJECTORIES = Takes("Trajectories", (), {"X_next": GIVE_HORIZON_ROWS})  # beside the named arguments
_FROM_FRAME = Takes(
    "Trajectories.from_frame",
    (),  # beside the named arguments
    {
        "X_next": GIVE_HORIZON_ROWS,
        "next_features": GIVE_HORIZON_ROWS,
        "actions": "The column of actions is `action`.",
        "y": "The column of rewards is `reward`.",
    },
)
_FROM_ARRAYS = Takes(
    "Trajectories.from_arrays",
    (),  # beside the named arguments
    {
        "X_next": "Successors are `next_observations`.",
        "terminated": "Terminal ends are `terminals`.",
        "truncated": "Cuts are `timeouts`.",
        "episode": "Episodes end at `terminals` and `timeouts`; `Trajectories` takes ids.",
    },
)
_ARRAYS = ("X", "y", "episode", "terminated", *COLUMNS, "groups")  # arguments of `fit`
_PER_ROW = (*_ARRAYS, "actions", "behavior_probability", "time")
_FIELDS = (*_PER_ROW, "feature_names", "mean_steps")


class Trajectories:
    """Immutable episodes, as rows in time order.

    Parameters
    ----------
    X : (T, n) array-like or SciPy sparse array
        Features. A sparse array is converted to CSR.
    y : (T,) or (T, m) array-like
        Reward, or m rewards, received on leaving each row. NaN is allowed on horizon rows only.
    episode : (T,) array-like, optional
        Id of each row's episode; the rows of an episode follow one another. By default, a new episode begins after
        each terminated row, and episodes are numbered from 0.
    terminated : (T,) array-like of bool, or False, optional
        True on the last row of each episode that ended in a terminal state, whose value is 0. The last row of any
        other episode is its horizon row.
    discount : (T,) array-like in [0, 1] or float, optional
        Discount of the transition that leaves each row; 0 where it terminates. By default, the estimator's `gamma`.
    importance_ratio : (T,) array-like or float, default 1
        Importance ratio of the transition that leaves each row.
    trace_coefficient, weight : (T,) array-like or float, default 1
        Trace coefficient and weight of that transition; see :meth:`lstd.LSTD.fit`.
    groups : (T,) array-like, optional
        What the row's episode belongs to, such as a patient with several episodes; see :meth:`lstd.LSTD.fit`.
    actions : (T,) or (T, …) array-like, optional
        Action taken in each row: numbers or text. Those of horizon rows have no meaning, and may be missing.
    behavior_probability : (T,) array-like, optional
        Probability with which the policy that recorded the data chose the action, in (0, 1]; a density, above 0, if
        actions are floats. NaN on horizon rows, whatever is given there.
    time : (T,) array-like, optional
        Numbers or dates that increase within each episode, for :func:`lstd.metrics.backtest`.
    feature_names : sequence of n str, optional
    mean_steps : dict of str to float, optional
        What `from_events` chose, for features that it made.
    **others
        Any other argument is refused, with what to do instead.

    Attributes
    ----------
    X, y, episode, terminated
        Read-only arrays with one entry per row.
    discount, importance_ratio, trace_coefficient, weight, groups, actions, behavior_probability, time
        Read-only arrays with one entry per row; None unless given.
    feature_names : tuple of str, or None
    mean_steps : mapping of str to float, or None
        Of rates that `from_events` made with a window: how many steps the mean of all ids counts as in each.
    horizon : (T,) array of bool
        True on horizon rows.
    n_features, n_episodes, n_transitions : int
        An episode of a single horizon row counts as an episode without transitions.

    Raises
    ------
    InvalidInputError
        When the arrays break the data contract; the message names the argument and the first bad row.

    Warns
    -----
    MissingTerminationWarning
        When `episode` is given without `terminated`: every episode is taken as cut off.
    TerminationWarning
        When there are times, and nearly all subjects of the last step of time are marked as ended.

    Examples
    --------
    >>> import numpy as np
    >>> from lstd import Trajectories
    >>> y = [0.0, 1.0, 0.5, float("nan")]
    >>> data = Trajectories(X=np.eye(4)[:, :2], y=y, episode=["a", "a", "b", "b"], terminated=[0, 1, 0, 0])
    >>> data
    Trajectories(n_rows=4, n_features=2, n_episodes=2, n_transitions=3, n_terminated=1)
    >>> data.horizon.tolist()
    [False, False, False, True]

    Consecutive rows, or whole episodes by a mask; the last row of an episode that is cut becomes a horizon row:

    >>> data[:1].horizon.tolist(), data[data.episode == "b"].n_episodes
    ([True], 1)
    """

    __slots__ = (*_FIELDS, "horizon")

    X: Features
    y: Array
    episode: NDArray[Any]
    terminated: NDArray[np.bool_]
    discount: Array | None
    importance_ratio: Array | None
    trace_coefficient: Array | None
    weight: Array | None
    groups: NDArray[Any] | None
    actions: NDArray[Any] | None
    behavior_probability: Array | None
    time: NDArray[Any] | None
    feature_names: tuple[str, ...] | None
    mean_steps: Mapping[str, float] | None
    horizon: NDArray[np.bool_]

    def __init__(
        self,
        X: FeaturesLike,
        y: ArrayLike,
        episode: PerRow = None,
        terminated: PerRow = None,
        *,
        discount: PerRow = None,
        importance_ratio: PerRow = None,
        trace_coefficient: PerRow = None,
        weight: PerRow = None,
        groups: PerRow = None,
        actions: ArrayLike | None = None,
        behavior_probability: PerRow = None,
        time: PerRow = None,
        feature_names: Sequence[str] | None = None,
        mean_steps: Mapping[str, float] | None = None,
        **others: Any,
    ) -> None:
        _TRAJECTORIES.check(others)
        features: Features = X
        if sparse.issparse(X):  # the rows may share its arrays, which are made read-only below
            check_indices("X", X)
            features = features.copy()
        rows = check_rows(
            features,
            y,
            gamma=1.0,
            episode=episode,
            terminated=terminated,
            discount=discount,
            importance_ratio=importance_ratio,
            trace_coefficient=trace_coefficient,
            weight=weight,
            groups=groups,
        )
        horizon = rows.cut
        taken = None
        if actions is not None:
            taken = check_actions(actions, horizon)
        ids = rows.episode
        if ids is None:  # a new episode begins after each terminated row
            ids = np.cumsum(rows.terminated) - rows.terminated
        fields: dict[str, Any] = {
            "X": rows.X,
            "y": as_real("y", y),
            "episode": ids,
            "terminated": rows.terminated,
            **dict.fromkeys(COLUMNS),
            "groups": rows.groups,
            "actions": taken,
            "behavior_probability": check_probabilities(behavior_probability, taken, horizon),
            "time": None,
            "feature_names": None,
            "mean_steps": None,
            "horizon": horizon,
        }
        for name in COLUMNS:
            if name in rows.given:
                fields[name] = getattr(rows, name)
        if time is not None:
            fields["time"] = check_times(time, rows.last)
        if feature_names is not None:
            fields["feature_names"] = check_names(feature_names, rows.n_features)
        if mean_steps is not None:
            fields["mean_steps"] = check_mean_steps(mean_steps, fields["feature_names"])

        if time is not None and len(rows):
            times_of_ends = TimesOfEnds.of(fields["time"], rows.terminated, rows.last)
            warn(times_of_ends.doubt(), TerminationWarning)
        for name, value in fields.items():
            object.__setattr__(self, name, _freeze(value))

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        features: str | Sequence[str],
        reward: str | Sequence[str] | None = None,
        episode: str | None = None,
        terminated: str | Literal[False] | None = None,
        truncated: str | None = None,
        time: str | None = None,
        sort: bool = False,
        discount: str | None = None,
        importance_ratio: str | None = None,
        trace_coefficient: str | None = None,
        weight: str | None = None,
        groups: str | None = None,
        action: str | None = None,
        behavior_probability: str | None = None,
        start: str | None = None,
        stop: str | None = None,
        event: str | None = None,
        gamma: float | None = None,
        first_row: int = 0,
        age: str | None = None,
        **others: Any,
    ) -> Self:
        """Read a long table: one row per state, in time order within each episode.

        All arguments but `frame`, `sort`, `gamma` and `first_row` name columns. For an episode that did not terminate,
        the last row must hold the features of the last state. Its reward may be missing and is not used.

        A table of survival analysis has a row per interval [start, stop) of a subject instead, with the features during
        it, and whether the event, such as death, comes at its end. Give `start`, `stop` and `event` for it, and the
        subject as `episode`. The value of a row is then the expected time to the event, or with `gamma` < 1 its
        discounted integral; see Notes.

        Parameters
        ----------
        frame : pandas, Polars or PyArrow table, lazy frame, or another with the interface of Arrow
            Only the named columns of a lazy frame are collected. In columns of mixed objects, each is read as text.
        features, reward : str or sequence of str
            Columns of numbers without missing values. Booleans count as 0 and 1; text is parsed as in a CSV file.
            A list of columns for `reward` gives several rewards. Without `reward`, that of an interval is its length.
        episode : str, optional
            Column of episode ids: integers, text, categories or dates. By default, a new episode begins after each
            terminated row.
        terminated : str or False, optional
            Column that is True on the last row of episodes that ended for good. False: no end was seen. By default,
            every episode is taken as cut off, with a warning unless `truncated` says so too.
        truncated : str, optional
            Column that is True where an episode was cut off: on its horizon row, or on the row before it. The state
            after the last step needs a row. A row that is both terminated and truncated counts as terminated, as in
            Gymnasium. Requires `episode`.
        time : str, optional
            Column of numbers, dates or durations that increase within each episode; text in ISO format is read as
            dates. It becomes the attribute `time`.
        sort : bool, default False
            Whether to sort the rows by episode, in order of first appearance, and by `time`.
        discount, importance_ratio, trace_coefficient, weight : str, optional
            Columns of the discount in [0, 1], and of the ratio, the trace coefficient and the weight, at least 0, of
            the transition that leaves each row. A value may be missing on a horizon row.
        groups : str, optional
            Column of ids of what episodes belong to, such as patients; the same on all rows of an episode.
        action, behavior_probability : str, optional
            Columns of the action taken in each row, and of its probability under the policy that recorded the data.
        start, stop : str, optional
            Columns of numbers: where intervals begin and end. An interval begins where the one before it ends.
        event : str, optional
            Column that is True on the last interval of a subject if the event came at its end, else False.
        gamma : float in [0, 1], optional
            Discount per unit of time, with `start` and `stop`; 1 unless given.
        first_row : int, default 0
            Number of the first row in messages, for a table that is read in chunks.
        age : str, optional
            Name of a further feature, the last one: steps since the subject was first seen, as
            ``HorizonLSTD(age="since_first")`` takes it. A subject is a group, or an episode without `groups`. With
            `time` it is the time since its first row, in steps, of which one is the median within episodes; else the
            number of rows since its episode began. A subject that the table sees late for the first time needs a column
            of its own, among `features`.
        **others
            Any other argument is refused, with what to do instead.

        Raises
        ------
        InvalidInputError
            When a value breaks a rule; the message names the column and the first bad row, counted from `first_row`.
        MissingExtraError
            When pyarrow is not installed.

        Warns
        -----
        MissingTerminationWarning
            When `episode` is given without `terminated` and `truncated`: every episode is taken as cut off.
        TerminationWarning
            When there are times, and nearly all subjects of the last step of time are marked as ended.

        Notes
        -----
        An interval of length Δ has the discount γ^Δ and the reward ∫₀^Δ γ^s ds = (1 − γ^Δ) / (−log γ), which is Δ at
        γ = 1. So returns do not depend on where time is divided into intervals. A `reward` that is given counts as
        received at the start of its interval.

        The last interval of a subject without event counts in full: a horizon row is added after it, for the time at
        which observation stopped. It has the features of the last interval, but for the `start` column, if that is a
        feature, which is the time itself. Other features that change with time, such as age, are taken as at the last
        start.

        Examples
        --------
        >>> import pandas as pd
        >>> from lstd import Trajectories
        >>> columns = {"patient": ["p1", "p1", "p2", "p2"], "dose": [1, 2, 0, 1], "gain": [0.5, 1.0, 0.2, None]}
        >>> frame = pd.DataFrame(columns | {"died": [False, True, False, False]})
        >>> Trajectories.from_frame(frame, features=["dose"], reward="gain", episode="patient", terminated="died")
        Trajectories(n_rows=4, n_features=1, n_episodes=2, n_transitions=3, n_terminated=1)

        Two patients: one died after three years, the other was last seen after two.

        >>> columns = {"patient": [1, 1, 2], "from": [0.0, 1.0, 0.0], "to": [1.0, 3.0, 2.0], "died": [0, 1, 0]}
        >>> data = Trajectories.from_frame(
        ...     pd.DataFrame(columns | {"size": [2.0, 4.0, 1.0]}),
        ...     features="size", episode="patient", start="from", stop="to", event="died",
        ... )
        >>> data.y.tolist(), data.terminated.tolist(), data.X[:, 0].tolist()
        ([1.0, 2.0, 2.0, nan], [False, True, False, False], [2.0, 4.0, 1.0, 1.0])
        """
        from lstd.trajectories.frame import read_frame, with_age

        _FROM_FRAME.check(others)
        columns = {
            "features": features,
            "reward": reward,
            "episode": episode,
            "terminated": terminated,
            "truncated": truncated,
            "time": time,
            "discount": discount,
            "importance_ratio": importance_ratio,
            "trace_coefficient": trace_coefficient,
            "weight": weight,
            "groups": groups,
            "action": action,
            "behavior_probability": behavior_probability,
            "start": start,
            "stop": stop,
            "event": event,
        }
        arrays = read_frame(frame, columns, sort=sort, gamma=gamma, first_row=first_row)
        if age is not None:
            arrays = with_age(arrays, age, spans=start is not None)
        return cls(**arrays)

    @classmethod
    def from_events(
        cls,
        events: Any,
        *,
        episode: str,
        time: str,
        step: str | float,
        until: Any,
        amount: str | Sequence[str] | None = None,
        terminated: str | Literal[False] | None = None,
        observed_until: str | None = None,
        ended: str | None = None,
        start: Any = None,
        first: str = "apart",
        window: int | None = None,
        mean_at: Any = None,
        age: str | None = None,
    ) -> Self:
        """Read a log of events, such as purchases, as equal steps of each customer, the empty ones included.

        Steps are counted back from `until`, so that all are complete. A row knows the events before its step began, and
        its reward is what the events of the step brought: their number or, with `amount`, the sums of amounts. The
        first row of an id comes at the first start of a step after its first event, the last one at `until`, or at the
        last step before `observed_until`: a horizon row, unless the id has ended for good. An id that ended before its
        first row has none.

        Parameters
        ----------
        events : pandas, Polars or PyArrow table, lazy frame, path-like, or list of paths
            One row per event, in any order. Files are CSV, also compressed, or Parquet.
        episode, time : str
            Columns of ids, such as customers, and of numbers or dates; text in ISO format is read as dates.
        step : str, float or duration
            Length of a step: "hour", "day", "week", "month" or "year", or several as in "2 weeks"; a number in the
            unit of `time` if that has numbers; a duration, as of :class:`datetime.timedelta`, if it has durations.
        until : date, ISO text, float or duration
            When observation ended: no event before it is missing. Later events are not used, and an id whose first
            event is later has no rows.
        amount : str or list of str, optional
            Columns of numbers to sum, as one reward or several, in place of the number of events. Leave out a
            column of ones, whose features repeat those of the number of events.
        terminated : str or False, optional
            Column that is true for an event with which the id ends for good, such as a closed account; else false. By
            default, as for False, no id ends.
        observed_until : str, optional
            Column of when observation of the id ended, in the unit of `time`, such as the day on which a patient left
            the registry: the same in all rows of an id, not before its last event, and missing while it is observed.
            The rows of the id end there, in a horizon row. By default, all are observed until `until`. Without this
            column, an id that left seems to go on without events.
        ended : str, optional
            With `observed_until`: column that is true in all rows of ids that ended for good at that time, such as by
            death, and false for those that were lost from sight. Their last step, in which they ended, terminates.
        start : date, ISO text, float or duration, optional
            Rows begin here; earlier events count in features only. By default they begin with the first event.
        first : {"apart", "counted"}, default="apart"
            What features say of the first events of an id, which are all those at its earliest time. "apart": their
            amounts have columns of their own, and counts and totals are of the later events. "counted": counts and
            totals are of all events, as is right for a panel, such as the yearly figures of firms.
        window : int, optional
            Number of steps that count as recent, such as 13 weeks, at most those of the log. With it, features are
            rates in place of totals: they stay within the range that was seen. Begin with a third of the horizon to
            predict.
        mean_at : date, ISO text, float or duration, optional
            With `window`: the moment at which the mean rate of all ids is taken, towards which rates are drawn. By
            default, half-way through the rows. Give the earliest cut of a backtest, so that features do not know what
            came after it; and the same moment again for a later log, so that they keep their meaning.
        age : str, optional
            With `window`: name of a last feature, the steps since the first event, for ``HorizonLSTD(age=...)``.

        Returns
        -------
        Trajectories
            With `time`, the start of each step, and these features of what came before it:

            - `n_repeat`: number of events after the first ones;
            - ``repeat_<amount>``: their total amount;
            - ``first_<amount>``: total amount of the first events;
            - `since_last` and `since_first`: steps, with fractions, since the last and since the first event.

            With ``first="counted"``, `n_events` and ``total_<amount>`` of all events take the place of the first three.

            With ``window=w``, the features are these, of the number of events, and of each amount under names that end
            in ``_<amount>``; m is the mean rate of all ids:

            - `rate`: what came after the first events, per step since then, (x + u m) / (since_first + u). The mean
              counts as u steps, so that it does not jump for somebody new;
            - `recent`: the same of the last k complete steps, k at most w, (x + m) / (k + 1);
            - `active`: `rate` times exp(-2 since_last / w), which falls with each step without an event;
            - ``first_<amount>``, as above, and `recency`: `since_last`, at most w.

            u is w, unless ids differ so much more than each of them varies that the log before `mean_at` clearly shows
            a smaller one to be better; the attribute `mean_steps` has the u of each rate. See Notes.

            With ``first="counted"`` beside it, rates are of all events and named so: `all_rate`, `all_recent` and
            `all_active`; there is no ``first_<amount>``.

        Raises
        ------
        InvalidInputError
            When a value breaks a rule; the message names the column and the row.
        MissingExtraError
            When pyarrow is not installed.

        Warns
        -----
        PanelWarning
            When there is one event in nearly each step, and rates leave out the first ones.

        Notes
        -----
        Dates have time zones or none, and so has `until`; days, weeks and months follow the clock of the zone of
        `until`, also where it changes. Months are counted back from the day of `until`, or the last day of shorter
        months. Events of one id at one time are several events: drop rows that were recorded twice before. Dates that
        are written as one number, such as 19970131, are numbers: convert them first.

        The first event made an id part of the log, whatever it does later. Counted as behaviour, it makes newcomers
        look like those who come often. So divide `n_repeat` and ``repeat_<amount>`` by `since_first` for rates;
        ``first_<amount>`` is a feature in its own right. `n_repeat` is a count of events, not of steps with an event.

        How many steps u the mean counts as is chosen from w, w/4 and w/16, for the number of events and for each amount
        apart. Rows with a complete step behind them, and w steps before `mean_at` ahead of them, forecast what comes in
        these, per step, by their rate. With e the error of a forecast, a smaller u is taken if the sum of e² is smaller
        than with u = w, and the sum of e² / (m + rate) is so too, by 1 % and by two standard errors of the difference,
        over ids. A row with little behind it then follows its own events, not the mean.

        Examples
        --------
        >>> import pandas as pd
        >>> from lstd import Trajectories
        >>> log = {"who": ["a", "a", "b"], "day": ["2024-01-03", "2024-01-17", "2024-01-20"], "spend": [5.0, 7.0, 1.0]}
        >>> data = Trajectories.from_events(
        ...     pd.DataFrame(log), episode="who", time="day", amount="spend", step="week", until="2024-01-29"
        ... )
        >>> data.feature_names
        ('n_repeat', 'repeat_spend', 'first_spend', 'since_last', 'since_first')
        >>> data.X[:3].round(1).tolist()
        [[0.0, 0.0, 5.0, 0.7, 0.7], [0.0, 0.0, 5.0, 1.7, 1.7], [1.0, 7.0, 5.0, 0.7, 2.7]]
        >>> data.y.tolist(), data.episode.tolist()
        ([0.0, 7.0, 0.0, nan, 0.0, nan], ['a', 'a', 'a', 'a', 'b', 'b'])

        Rates in place of totals:

        >>> data = Trajectories.from_events(
        ...     pd.DataFrame(log), episode="who", time="day", step="week", until="2024-01-29", window=4
        ... )
        >>> data.feature_names
        ('rate', 'recent', 'active', 'recency')
        >>> data.X[3].round(2).tolist()  # one event since the first, in 3.7 weeks of which three are complete
        [0.3, 0.33, 0.13, 1.71]

        Customer b moved away, on a day that we know; a is still observed:

        >>> gone = pd.DataFrame(log).assign(left=[None, None, "2024-01-22"])
        >>> data = Trajectories.from_events(
        ...     gone, episode="who", time="day", step="week", until="2024-01-29", observed_until="left"
        ... )
        >>> data.y.tolist(), data.episode.tolist()
        ([0.0, 1.0, 0.0, nan, nan], ['a', 'a', 'a', 'a', 'b'])
        """
        from lstd.trajectories.events import read_events

        columns = {
            "episode": episode,
            "time": time,
            "amount": amount,
            "terminated": terminated,
            "observed_until": observed_until,
            "ended": ended,
        }
        arrays = read_events(
            events,
            columns,
            step=step,
            until=until,
            start=start,
            first=first,
            window=window,
            mean_at=mean_at,
            age=age,
        )
        return cls(**arrays)

    @classmethod
    def from_arrays(
        cls,
        observations: Any,
        rewards: ArrayLike,
        *,
        terminals: ArrayLike | None = None,
        timeouts: ArrayLike | None = None,
        next_observations: Any = None,
        dones: ArrayLike | None = None,
        done_on: str = "departure",
        reward_on: str = "departure",
        actions: ArrayLike | None = None,
        behavior_probability: ArrayLike | None = None,
        features: Function = None,
        feature_names: Sequence[str] | None = None,
        **others: Any,
    ) -> Self:
        """Read transitions in arrays: a replay buffer, a dictionary of D4RL, the log of a loop of your own.

        Row t has an observation, the action taken there, its reward, and flags of what the action led to. Rows are in
        time order within an episode. Say which ends are terminal (`terminals`) and which are time limits or other cuts
        (`timeouts`), or which episodes are done (`dones`) and which of those by a limit; see Notes.

        Parameters
        ----------
        observations : (T, …) or (T, E, …) array-like, or a dict or tuple of them
            One row per step, or per step of each of E environments that ran side by side.
        rewards : (T,), (T, 1), (T, m), (T, E) or (T, E, m) array-like
            Reward of each row, or m rewards.
        terminals : (T,), (T, 1) or (T, E) array-like of bool, or False, optional
            Whether the row's action led to a terminal state. False: none did.
        timeouts : like `terminals`, optional
            Whether the episode was cut off after the row's action, by a limit or otherwise. False: none was. A row that
            is both terminal and a timeout counts as terminal.
        next_observations : like `observations`, optional
            What the row's action led to, at an end too: the final observation, not the first one of the next episode.
        dones : like `terminals`, optional
            In place of `terminals`: whether the episode ended at all. Terminal are those that are no timeouts.
        done_on : {"departure", "arrival"}, default "departure"
            Whether the flags of row t belong to the action that leaves its observation, or to the one that led to it.
        reward_on : {"departure", "arrival"}, default "departure"
            The same for rewards; with "arrival", the flags come with them.
        actions : (T, …) or (T, E, …) array-like, optional
            Action taken in each row. A column of integers or text, (T, 1), becomes (T,).
        behavior_probability : (T,), (T, 1) or (T, E) array-like, optional
            Probability with which each action was taken.
        features : callable, optional
            Called with one observation; returns its features, shape (n,). By default, the numbers of an observation are
            its features.
        feature_names : sequence of n str, optional
        **others
            Any other argument is refused, with what to do instead.

        Returns
        -------
        Trajectories
            Episodes numbered from 0, those of the first environment first.

        Raises
        ------
        InvalidInputError
            When arrays do not fit together, or flags do not say which ends are terminal: the message has the remedy.

        Warns
        -----
        UnusedRewardWarning
            When rows of timeouts have rewards and no `next_observations`.
        TerminationWarning
            When many episodes terminate at one same greatest length, as if a limit were taken for an end.
        MissingTerminationWarning
            When rows of a reset hide where episodes were cut off, and `timeouts` is missing.

        Notes
        -----
        What is given decides how rows are read:

        ``terminals, timeouts, next_observations``
            After a timeout comes a horizon row made of its `next_observations`.
        ``terminals, timeouts``, as in D4RL and d3rlpy
            The row of a timeout is the horizon row: its successor is unknown, and its reward is not used.
        ``terminals, next_observations``
            An episode is cut off where `next_observations` is not the observation of the next row.
        ``dones, timeouts``, as in Stable-Baselines3
            Terminals are dones that are no timeouts.

        A last row that is neither is read as a timeout. So is a row whose `next_observations` is not the next
        observation: transitions that were shuffled become episodes of two rows each, of which any λ makes the same
        model. With `next_observations`, the steps of a reset are left out (Gymnasium's autoreset mode NextStep):
        they follow an end, begin at its `next_observations` and have no reward. Without them, a row after an end with
        the reward NaN holds the final observation.

        A ring that has been written over begins at its position: ``np.roll(array, -pos, axis=0)``; of one that is not
        full, take the rows before it.

        Examples
        --------
        Two episodes: the first one ended, the second one was stopped by a limit of two steps.

        >>> from lstd import Trajectories
        >>> data = Trajectories.from_arrays(
        ...     observations=[[0.0], [1.0], [5.0], [6.0]],
        ...     next_observations=[[1.0], [2.0], [6.0], [7.0]],
        ...     rewards=[1.0, 2.0, 3.0, 4.0],
        ...     terminals=[False, True, False, False],
        ...     timeouts=[False, False, False, True],
        ... )
        >>> data.X[:, 0].tolist(), data.y.tolist()
        ([0.0, 1.0, 5.0, 6.0, 7.0], [1.0, 2.0, 3.0, 4.0, nan])
        >>> data.horizon.tolist()
        [False, False, False, False, True]
        """
        _FROM_ARRAYS.check(others)
        from lstd.trajectories.transition_arrays import Arrays, read_arrays

        given = Arrays(
            observations=observations,
            rewards=rewards,
            terminals=terminals,
            timeouts=timeouts,
            dones=dones,
            next_observations=next_observations,
            done_on=done_on,
            reward_on=reward_on,
            actions=actions,
            behavior_probability=behavior_probability,
        )
        return cls(**read_arrays(given, features), feature_names=feature_names)

    @classmethod
    def from_gymnasium(
        cls,
        env: Any,
        policy: Callable[[Any], Any],
        *,
        features: Function = None,
        n_episodes: int | None = None,
        n_steps: int | None = None,
        seed: int | None = None,
        progress: Progress = None,
    ) -> Self:
        """Run a policy in a Gymnasium environment or vector environment and record the rows.

        Each step gives a row with the features of the observation before the step, and the reward. An episode that
        was truncated, or cut off by `n_steps`, ends in a horizon row with the features of its final observation. An
        episode that is both terminated and truncated counts as terminated. Episodes are numbered from 0.

        Parameters
        ----------
        env : gymnasium.Env or gymnasium.vector.VectorEnv
            Reset first and left open. Every autoreset mode of a vector environment is supported. With SameStep, each
            sub-environment must return a new array at each step: a shared buffer would overwrite final observations.
        policy : callable
            Called with the observation from `env`; returns the action for ``env.step``, or the pair of the action and
            its probability. All are batches for a vector environment.
        features : callable, optional
            Called with one observation of one environment; returns its features, shape (n,). By default, observations
            are flattened as in ``gymnasium.spaces.flatten``: Discrete and MultiDiscrete parts become one-hot.
        n_episodes, n_steps : int, optional
            Number of whole episodes, or of transitions, to record; at least one is required. Recording stops at the
            limit that is reached first. Sub-environments have equal shares of both, because the episodes that finish
            first are mostly short ones.
        seed : int, optional
            Seed of the first reset and of the action space.
        progress : callable, optional
            Called with the number done and the total: of episodes if `n_episodes` is given, otherwise of transitions.

        Raises
        ------
        InvalidInputError
            When the environment does not follow Gymnasium's API, when features are not finite or change length, or
            when final observations of truncated episodes are missing.
        MissingExtraError
            When Gymnasium is not installed.

        Examples
        --------
        >>> import gymnasium
        >>> from lstd import Trajectories
        >>> env = gymnasium.make("FrozenLake-v1", map_name="4x4", is_slippery=True)
        >>> data = Trajectories.from_gymnasium(env, lambda state: env.action_space.sample(), n_episodes=3, seed=0)
        >>> data.n_episodes, data.n_features, bool(data.terminated[-1])
        (3, 16, True)
        """
        from lstd.trajectories.record import collect

        return cls(**collect(env, policy, features, n_episodes, n_steps, seed, progress))

    @classmethod
    def from_minari(
        cls,
        dataset: Any,
        *,
        features: Function = None,
        reward: Function = None,
        behavior_probability: Function = None,
        progress: Progress = None,
    ) -> Self:
        """Read the episodes of a Minari dataset.

        The final observation of an episode becomes a horizon row unless the episode terminated. Episodes are numbered
        from 0 in the order of the dataset.

        Parameters
        ----------
        dataset : minari.MinariDataset or iterable of Minari episodes
            Episodes without their dataset require `features`.
        features : callable, optional
            Called with one observation; returns its features, shape (n,). Default as in `from_gymnasium`.
        reward : callable, optional
            Called with a Minari episode; returns its rewards, shape (steps,) or (steps, m), by default ``.rewards``.
        behavior_probability : callable, optional
            Called with a Minari episode; returns the probability with which each action was taken, shape (steps,), such
            as one of its ``.infos``.
        progress : callable, optional
            Called with the number of episodes read, and the total.

        Raises
        ------
        InvalidInputError
            When the arrays of an episode do not fit together, or the final observation is missing.

        Warns
        -----
        MissingTerminationWarning
            When the last step of an episode is neither terminated nor truncated: it is taken as truncated.

        Examples
        --------
        >>> import numpy as np
        >>> from minari import EpisodeData
        >>> from lstd import Trajectories
        >>> arrays = {"observations": np.array([[0.0], [0.5], [0.9]]), "actions": np.zeros(2), "rewards": np.ones(2)}
        >>> flags = {"terminations": np.array([False, False]), "truncations": np.array([False, True])}
        >>> episode = EpisodeData(id=0, **arrays, **flags, infos={})
        >>> Trajectories.from_minari([episode], features=lambda x: [1.0, x[0]]).n_transitions
        2
        """
        from lstd.trajectories.minari_dataset import read_dataset

        return cls(**read_dataset(dataset, features, reward, behavior_probability, progress))

    @classmethod
    def concat(cls, parts: Iterable[Trajectories], *, renumber: bool = False) -> Self:
        """Join the episodes of several `Trajectories`, one after another.

        Parameters
        ----------
        parts : iterable of Trajectories
            Their features, rewards, feature names and discounts must agree. Ids of `groups` mean the same group in all
            parts. `mean_steps` are kept if they are the same in all.
        renumber : bool, default False
            Whether to number all episodes from 0. Otherwise no two parts may share an id, which could mean one episode
            or two.

        Raises
        ------
        InvalidInputError
            When the parts do not fit together.

        Examples
        --------
        >>> from lstd import Trajectories
        >>> part = Trajectories(X=[[1.0], [2.0]], y=[0.5, 1.0], terminated=[False, True])
        >>> Trajectories.concat([part, part], renumber=True).episode.tolist()
        [0, 0, 1, 1]
        """
        from lstd.trajectories.joining import join

        return cls(**join(list(parts), renumber))

    def __getitem__(self, rows: slice | ArrayLike) -> Self:
        """Return the rows of a slice or a mask; raises InvalidInputError if an episode would have a gap."""
        places = rows_at(rows, self.episode)
        kept: dict[str, Any] = {"feature_names": self.feature_names, "mean_steps": self.mean_steps}
        for name in _PER_ROW:
            value = getattr(self, name)
            if value is not None:
                kept[name] = value[places]
        return type(self)(**kept)

    def with_history(self, k: int = 1) -> Self:
        """Add the k earlier rows of the same episode to the features: states, actions and rewards.

        Parameters
        ----------
        k : int, default 1
            How many rows to look back. Actions that are labels, numbers or text, get a column each. What lies before
            an episode is zero, and a column "known_1_back" says so.

        Returns
        -------
        Trajectories
            The same rows with more features, for a state that hides something: see
            :class:`lstd.ope.HiddenStateCheck`, of which :func:`lstd.ope.evaluate_policy` warns.

        Raises
        ------
        InvalidInputError
            When `k` is not an integer of at least 1.

        Examples
        --------
        >>> from lstd import Trajectories
        >>> data = Trajectories([[1.0], [2.0]], [0.5, 0.0], terminated=[0, 1], actions=["a", "b"], feature_names=["u"])
        >>> longer = data.with_history(1)
        >>> longer.feature_names[1:]
        ('u_1_back', 'action_a_1_back', 'action_b_1_back', 'reward_1_back', 'known_1_back')
        >>> longer.X.tolist()
        [[1.0, 0.0, 0.0, 0.0, 0.0, 0.0], [2.0, 1.0, 1.0, 0.0, 0.5, 1.0]]
        """
        from lstd.trajectories.history import with_earlier_rows

        X, names = with_earlier_rows(self.X, self.y, self.episode, self.actions, self.feature_names, k)
        values = {name: getattr(self, name) for name in _PER_ROW}
        values["X"] = X
        return type(self)(**values, feature_names=names, mean_steps=self.mean_steps)

    def to_arrays(self, *, frame: str | None = None) -> dict[str, Any]:
        """Return keyword arguments for ``LSTD.fit``: X, y, episode, terminated; others of them if they were given.

        Parameters
        ----------
        frame : {"pandas", "polars"}, optional
            Library of which X becomes a data frame, so that the fitted model stores `feature_names`. By default, X is
            an array; arrays are read-only views.

        Examples
        --------
        >>> from lstd import Trajectories
        >>> data = Trajectories(X=[[1.0]], y=[0.5], terminated=[True], feature_names=["age"])
        >>> sorted(data.to_arrays()), data.to_arrays(frame="pandas")["X"].columns.tolist()
        (['X', 'episode', 'terminated', 'y'], ['age'])
        """
        fields = {name: getattr(self, name) for name in _ARRAYS}
        if frame is not None:
            from lstd.trajectories.frame import to_frame

            fields["X"] = to_frame(self.X, self.feature_names, frame)
        return {name: value for name, value in fields.items() if value is not None}

    def __len__(self) -> int:
        return len(self.terminated)

    @property
    def n_features(self) -> int:
        """Number of features, n."""
        return int(self.X.shape[1])

    @property
    def n_episodes(self) -> int:
        """Number of episodes, including episodes without transitions."""
        return int(last_rows(self.episode).sum())

    @property
    def n_transitions(self) -> int:
        """Number of rows other than horizon rows."""
        return len(self) - int(self.horizon.sum())

    def __repr__(self) -> str:
        return (
            f"Trajectories(n_rows={len(self)}, n_features={self.n_features}, n_episodes={self.n_episodes}, "
            f"n_transitions={self.n_transitions}, n_terminated={int(self.terminated.sum())})"
        )

    def __setattr__(self, name: str, *value: Any) -> None:
        raise AttributeError(f"Trajectories are immutable; `{name}` cannot change. Build new ones from `to_arrays()`.")

    __delattr__ = __setattr__

    def __reduce__(self) -> tuple[Callable[[], Trajectories], tuple[()]]:
        fields = {name: getattr(self, name) for name in _FIELDS}
        if self.mean_steps is not None:  # a read-only mapping has no pickle
            fields["mean_steps"] = dict(self.mean_steps)
        return partial(Trajectories, **fields), ()


def _freeze(value: Any) -> Any:
    """Make an array read-only; copy it first if it is writable or a view."""
    if sparse.issparse(value):
        for array in (value.data, value.indices, value.indptr):
            array.setflags(write=False)
    elif isinstance(value, np.ndarray):
        if value.flags.writeable or not value.flags.owndata:
            value = np.array(value, order="C")
        value.setflags(write=False)
    return value
