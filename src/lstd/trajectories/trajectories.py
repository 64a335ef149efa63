"""`Trajectories`: rows of the data contract, checked once and never changed.

A row holds the features of a state and the reward received on leaving it. An episode that terminated ends in its last
transition; one that was cut off ends in a horizon row, of which only the features count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from lstd.data.rows import check_rows
from lstd.trajectories.structure import check_ids, check_names, freeze, last_rows

Array = NDArray[np.float64]
_FIELDS = ("X", "y", "episode", "terminated", "discount", "importance_ratio", "feature_names")


class Trajectories:
    """Episodes as rows in time order; immutable.

    Parameters
    ----------
    X : (T, n) array-like or SciPy sparse array
        Features; sparse ones are held as compressed sparse rows.
    y : (T,) or (T, m) array-like
        Reward, or m reward signals, received on leaving each row. NaN is allowed on horizon rows and nowhere else.
    episode : (T,) array-like of ids, optional
        The rows of an id follow one another. Default: one stream, in which a new episode begins after each
        terminated row, numbered from 0.
    terminated : (T,) array-like of bool, optional
        Whether the successor of a row is terminal, that is, of value 0. May be True on the last row of an episode only.
        The last row of an episode that did not terminate is its horizon row.
    discount : (T,) array-like in [0, 1] or float, optional
        Discount of the transition that leaves each row; 0 where the row terminates. Default: the estimator's `gamma`.
    importance_ratio : (T,) array-like or float, optional
        Importance ratio of the transition that leaves each row. Default: 1.
    feature_names : sequence of n str, optional

    Attributes
    ----------
    X, y, episode, terminated
        Read-only arrays as above; `episode` and `terminated` always have one entry per row.
    discount, importance_ratio
        Read-only arrays of shape (T,), or None.
    feature_names : tuple of str, or None
    horizon : (T,) array of bool
        Rows of which only the features count.
    n_features, n_episodes, n_transitions : int
        An episode that consists of a horizon row counts as an episode without a transition.

    Raises
    ------
    InvalidInputError
        When the arrays break the data contract; the message names the argument and the first bad row.

    Warns
    -----
    MissingTerminationWarning
        When `episode` is given without `terminated`: all episodes are assumed to be cut off.

    Examples
    --------
    >>> from lstd import Trajectories
    >>> data = Trajectories(
    ...     X=[[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 1.0]],
    ...     y=[0.0, 1.0, 0.5, float("nan")],
    ...     episode=["a", "a", "b", "b"],
    ...     terminated=[False, True, False, False],
    ... )
    >>> data
    Trajectories(n_rows=4, n_features=2, n_episodes=2, n_transitions=3, n_terminated=1)
    >>> data.horizon.tolist()
    [False, False, False, True]
    """

    __slots__ = (*_FIELDS, "horizon")

    X: Any
    y: Array
    episode: NDArray[Any]
    terminated: NDArray[np.bool_]
    discount: Array | None
    importance_ratio: Array | None
    feature_names: tuple[str, ...] | None
    horizon: NDArray[np.bool_]

    def __init__(
        self,
        X: Any,
        y: ArrayLike,
        episode: ArrayLike | None = None,
        terminated: ArrayLike | None = None,
        *,
        discount: ArrayLike | None = None,
        importance_ratio: ArrayLike | None = None,
        feature_names: Sequence[str] | None = None,
    ) -> None:
        ids = None if episode is None else check_ids(episode)
        rows = check_rows(
            X.copy() if sparse.issparse(X) else X, y, gamma=1.0, episode=ids, terminated=terminated, discount=discount,
            importance_ratio=importance_ratio,
        )  # fmt: skip
        if ids is None:
            ids = np.cumsum(rows.terminated) - rows.terminated
        fields = {
            "X": rows.X,
            "y": np.asarray(y, dtype=np.float64),
            "episode": ids,
            "terminated": rows.terminated,
            "discount": None if discount is None else rows.leaving,
            "importance_ratio": None if importance_ratio is None else rows.ratios,
            "feature_names": None if feature_names is None else check_names(feature_names, rows.n_features),
            "horizon": rows.last & ~rows.terminated,
        }
        for name, value in fields.items():
            object.__setattr__(self, name, freeze(value))

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        features: str | Sequence[str],
        reward: str | Sequence[str],
        episode: str | None = None,
        terminated: str | None = None,
        truncated: str | None = None,
        time: str | None = None,
        sort: bool = False,
        discount: str | None = None,
        importance_ratio: str | None = None,
        first_row: int = 0,
    ) -> Self:
        """Read a long table: one row per state, in time order within each episode.

        Every argument but `frame`, `sort` and `first_row` names columns. An episode that did not terminate must end
        in a row of features, its horizon row, whose reward may be missing and is not used.

        Parameters
        ----------
        frame : pandas, Polars or PyArrow table, or a lazy frame that narwhals knows
            Only the named columns of a lazy frame are collected.
        features, reward : str or sequence of str
            Columns of numbers without missing values; booleans count as 0 and 1, and text is read as it is in a CSV
            file. Several columns of `reward` give several reward signals.
        episode : str, optional
            Column of episode ids: integers, text, categories or dates. Without it, the table is one stream, in which
            a new episode begins after each terminated row.
        terminated : str, optional
            Column that is True on the last row of episodes that ended for good. Without it, all episodes are assumed
            to be cut off, with a warning unless `truncated` is True for all of them.
        truncated : str, optional
            Column that is True where an episode was cut off: on its horizon row, or on the row before it. A step that
            was cut off without a row for the state after it raises. A row that is both terminated and truncated
            counts as terminated, as in Gymnasium. Needs `episode`.
        time : str, optional
            Column of numbers or dates that must rise from row to row within each episode.
        sort : bool, default False
            Sort the rows by episode (in order of first appearance) and `time` first.
        discount, importance_ratio : str, optional
            Columns of discounts in [0, 1] and of ratios ≥ 0 of the transition that leaves each row. They may be
            missing where the reward of a horizon row is missing.
        first_row : int, default 0
            Number of the first row in messages, for tables that are read in chunks.

        Raises
        ------
        InvalidInputError
            With the column, the first bad row (counted from `first_row`) and the remedy.
        MissingExtraError
            When narwhals is not installed.

        Examples
        --------
        >>> import pandas as pd
        >>> from lstd import Trajectories
        >>> frame = pd.DataFrame(
        ...     {
        ...         "patient": ["p1", "p1", "p2", "p2"],
        ...         "dose": [1, 2, 0, 1],
        ...         "gain": [0.5, 1.0, 0.2, None],
        ...         "died": [False, True, False, False],
        ...     }
        ... )
        >>> Trajectories.from_frame(frame, features=["dose"], reward="gain", episode="patient", terminated="died")
        Trajectories(n_rows=4, n_features=1, n_episodes=2, n_transitions=3, n_terminated=1)
        """
        from lstd.trajectories.frame import Columns, read_frame

        columns = Columns(features, reward, episode, terminated, truncated, time, discount, importance_ratio)
        return cls(**read_frame(frame, columns, sort=sort, first_row=first_row))

    @classmethod
    def from_gymnasium(
        cls,
        env: Any,
        policy: Callable[[Any], Any],
        *,
        features: Callable[[Any], ArrayLike] | None = None,
        n_episodes: int | None = None,
        n_steps: int | None = None,
        seed: int | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> Self:
        """Run a policy in a Gymnasium environment or vector environment and record the rows.

        Each step gives one row: the features of the observation that the action was taken in, and the reward. An
        episode that terminated has no further row (the value of a terminal state is 0), also when Gymnasium says
        truncated at the same step. One that was truncated, or cut off by `n_steps`, gets a horizon row with the
        features of its final observation. Episodes are numbered from 0.

        Parameters
        ----------
        env : gymnasium.Env or gymnasium.vector.VectorEnv
            It is reset first and left open. Each sub-environment of a vector environment gives a stream of its own.
            With autoreset NextStep, the step after an end, whose action is ignored, is not a transition; with
            SameStep, the final observation is in ``info["final_obs"]``; with Disabled, ``reset_mask`` is used.
            SameStep needs sub-environments that return a new array each time: one buffer would be overwritten.
        policy : callable
            Called with the observation from `env`; returns the action for ``env.step``. For a vector environment
            both are batches.
        features : callable, optional
            From one observation (of one sub-environment) to its features, shape (n,). Default: numbers flattened,
            Discrete and MultiDiscrete one-hot, Dict and Tuple concatenated, as in ``gymnasium.spaces.flatten``.
        n_episodes, n_steps : int, optional
            How many whole episodes, or transitions, to collect; give at least one. Recording stops at the first that
            is reached. Both are shared out evenly among sub-environments beforehand: taking the episodes that finish
            first would favour short ones.
        seed : int, optional
            Seed of the first reset and of the action space.
        progress : callable, optional
            Called with the number done and the total, of episodes, or of transitions if `n_episodes` is not given.

        Raises
        ------
        InvalidInputError
            When the environment does not follow Gymnasium's API, when features are not finite or change length, or
            when final observations of truncated episodes are missing or were overwritten.
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
        from lstd.trajectories.environment import Budget, collect

        return cls(**collect(env, policy, features, Budget(n_episodes, n_steps, progress), seed))

    @classmethod
    def from_minari(
        cls,
        dataset: Any,
        *,
        features: Callable[[Any], ArrayLike] | None = None,
        reward: Callable[[Any], ArrayLike] | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> Self:
        """Read the episodes of a Minari dataset.

        A Minari episode has one observation more than steps. The last one becomes a horizon row, unless the episode
        terminated. Episodes are numbered from 0 in the order of the dataset, so that ``dataset[i]`` is episode i.

        Parameters
        ----------
        dataset : minari.MinariDataset
            Or any iterable of Minari episodes; then `features` must be given.
        features : callable, optional
            From one observation to its features, shape (n,). Default as in `from_gymnasium`.
        reward : callable, optional
            From a Minari episode to its rewards, shape (steps,) or (steps, m). Default: the episode's own.
        progress : callable, optional
            Called with the number of episodes read, and the total.

        Raises
        ------
        InvalidInputError
            When an episode that did not terminate lacks its final observation, or lengths of its arrays differ.

        Warns
        -----
        MissingTerminationWarning
            When the last step of an episode is neither terminated nor truncated: it is taken as truncated.

        Examples
        --------
        >>> import numpy as np
        >>> from minari import EpisodeData
        >>> from lstd import Trajectories
        >>> episode = EpisodeData(
        ...     id=0,
        ...     observations=np.array([[0.0], [0.5], [0.9]]),
        ...     actions=np.array([1, 1]),
        ...     rewards=np.array([0.0, 1.0]),
        ...     terminations=np.array([False, False]),
        ...     truncations=np.array([False, True]),
        ...     infos={},
        ... )
        >>> Trajectories.from_minari([episode], features=lambda x: [1.0, x[0]]).n_transitions
        2
        """
        from lstd.trajectories.minari_dataset import read_dataset

        return cls(**read_dataset(dataset, features, reward, progress))

    @classmethod
    def concat(cls, parts: Iterable[Trajectories], *, renumber: bool = False) -> Self:
        """Join the episodes of several `Trajectories`, one after another.

        Parameters
        ----------
        parts : iterable of Trajectories
            With equal numbers of features and rewards.
        renumber : bool, default False
            Number all episodes from 0. Otherwise an id that occurs in two parts raises, because the two may or may not
            be one episode.

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
        from lstd.trajectories.concatenation import join

        return cls(**join([part.to_arrays() | {"feature_names": part.feature_names} for part in parts], renumber))

    def to_arrays(self, *, frame: str | None = None) -> dict[str, Any]:
        """Return keyword arguments for ``LSTD.fit``: X, y, episode, terminated; discount, importance_ratio if given.

        Parameters
        ----------
        frame : {"pandas", "polars"}, optional
            Return X as a data frame of this library with `feature_names`, so that a model fitted to it stores them.
            By default, all are arrays: read-only views, not copies.

        Examples
        --------
        >>> from lstd import Trajectories
        >>> data = Trajectories(X=[[1.0]], y=[0.5], terminated=[True], feature_names=["age"])
        >>> sorted(data.to_arrays()), data.to_arrays(frame="pandas")["X"].columns.tolist()
        (['X', 'episode', 'terminated', 'y'], ['age'])
        """
        fields = {name: getattr(self, name) for name in _FIELDS if name != "feature_names"}
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
        """Number of episodes, those without a transition included."""
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

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"Trajectories are immutable; `{name}` cannot be set. Build new ones from `to_arrays()`.")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"Trajectories are immutable; `{name}` cannot be deleted.")

    def __reduce__(self) -> tuple[Callable[[], Trajectories], tuple[()]]:
        return partial(Trajectories, **{name: getattr(self, name) for name in _FIELDS}), ()
