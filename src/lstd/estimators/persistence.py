"""Fitted models in files: arrays and a JSON document, nothing executable, checked as a whole."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lstd.data.checks import check_real
from lstd.data.rows import Features, check_features, product
from lstd.errors import InvalidInputError
from lstd.io.archive import read, write
from lstd.statistics.packing import count, flag, pack, shaped, texts, unpack
from lstd.statistics.statistics import VARIANTS, LSTDStatistics

if TYPE_CHECKING:
    from lstd.estimators.intervals import Influence, Interval
    from lstd.estimators.lstd import LSTD

Array = NDArray[np.float64]

_PARAMETERS = ("gamma", "lmbda", "alpha", "variant", "fit_intercept", "feature_names", "reward_names")


@dataclass(frozen=True)
class Origin:
    """What a model was fitted on.

    Attributes
    ----------
    files : tuple of str
        Names of the files, in the order in which they were read.
    rows, transitions, episodes : int
    date : str
        When, in ISO 8601.
    lstd : str
        Version of the package.
    episode, terminated, truncated : str or None
        Names of the columns that were used.
    """

    files: tuple[str, ...]
    rows: int
    transitions: int
    episodes: int
    date: str
    lstd: str
    episode: str | None = None
    terminated: str | None = None
    truncated: str | None = None


@dataclass(frozen=True, eq=False)
class FittedModel:
    """A fitted model with all that a file keeps of it; n features, m rewards.

    Its statistics lead back to an estimator that goes on learning: :meth:`lstd.LSTD.fit_statistics`.

    Attributes
    ----------
    statistics : LSTDStatistics
        With `fit_intercept` its last feature is the column of ones.
    gamma, lmbda, alpha, variant, fit_intercept
        Parameters, as of :class:`lstd.LSTD`.
    coef : ndarray of shape (m, n)
    intercept : ndarray of shape (m,)
    feature_names, reward_names : tuple of str
        Of lengths n and m.
    condition_number : float
        Of the system that was solved, its rows and columns scaled alike; infinite when it is singular.
    origin : Origin or None
    influence : Influence or None
        What each stretch of the data adds to the weights, for intervals.
    """

    statistics: LSTDStatistics
    gamma: float
    lmbda: float
    alpha: float
    variant: str
    fit_intercept: bool
    coef: Array
    intercept: Array
    feature_names: tuple[str, ...]
    reward_names: tuple[str, ...]
    condition_number: float
    origin: Origin | None = None
    influence: Influence | None = None

    def predict(self, X: Any) -> Array:
        """Predictions for rows of features.

        Parameters
        ----------
        X : array-like, DataFrame or sparse of shape (T, n)
            The columns of a DataFrame must be `feature_names`, in that order.

        Returns
        -------
        ndarray of shape (T, m)

        Raises
        ------
        InvalidInputError
            When the features are not those of the model, or not finite.
        """
        return self._predicted(self._checked(X))

    def predict_interval(self, X: Any, level: float = 0.95) -> Interval:
        """Intervals for the values of rows, as :meth:`lstd.LSTD.predict_interval` gives them.

        Parameters
        ----------
        X : array-like, DataFrame or sparse of shape (T, n)
        level : float in (0, 1), default 0.95

        Returns
        -------
        Interval
            Of arrays of shape (T, m).

        Raises
        ------
        InvalidInputError
            When an argument breaks a rule, or the model was saved without what intervals need.
        """
        level = check_real("level", level, 0.0, 1.0, open_low=True, open_high=True)
        phi = self._checked(X)
        if self.influence is None:
            raise InvalidInputError(
                "This model was saved without what intervals need: it was fitted to too few episodes or rows, to "
                "merged statistics, or without stretches of the data told apart, as are too many features for the "
                "memory. Fit it again to more data, with `n_blocks` of at least 10, or, to files, with more `memory`."
            )
        return self.influence.interval(phi, self._predicted(phi), level)

    def _predicted(self, phi: Features) -> Array:
        return product("X", phi, self.coef.T, self.intercept)

    def _checked(self, X: Any) -> Features:
        names = getattr(X, "columns", None)
        if names is not None and tuple(names) != self.feature_names:
            raise InvalidInputError(
                f"`X` must have the columns of the model, {list(self.feature_names)!r:.200}; got {list(names)!r:.200}. "
                "Select them in this order, or pass an array."
            )
        phi = check_features("X", X)
        if phi.shape[1] != len(self.feature_names):
            raise InvalidInputError(
                f"`X` must have {len(self.feature_names)} features, as the model has; got shape {phi.shape}."
            )
        return phi


def save_model(model: FittedModel | LSTD, path: str | os.PathLike[str]) -> None:
    """Write a fitted model to a file, whole or not at all; an existing file is replaced. It holds nothing executable.

    Parameters
    ----------
    model : FittedModel or LSTD
        An estimator is kept as a :class:`FittedModel`: with features named x0, x1, … where they have no names, the
        reward ``reward`` or the rewards reward_0, reward_1, …, and what intervals need where it has that.
    path : path-like

    Raises
    ------
    InvalidInputError
        When the model is not fitted; when the first or last episode's id is neither an integer nor a float nor text.
    OutputError
        When the file could not be written.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> from lstd import LSTD
    >>> from lstd.estimators.persistence import load_model, save_model
    >>> model = LSTD(gamma=0.5, lmbda=0.0, alpha=0.0).fit(np.ones((3, 1)), np.ones(3))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_model(model, f"{folder}/model")
    ...     load_model(f"{folder}/model").predict([[1.0]])
    array([[2.]])
    """
    model = model if isinstance(model, FittedModel) else _of_estimator(model)
    document, arrays = pack(model.statistics)
    content = {
        "model": {name: getattr(model, name) for name in _PARAMETERS},
        "origin": None if model.origin is None else asdict(model.origin),
        "statistics": document,
        "influence": None,
    }
    arrays |= {
        "coef": model.coef,
        "intercept": model.intercept,
        "condition_number": np.array([model.condition_number]),
    }
    if model.influence is not None:
        content["influence"] = {"intercept": model.influence.intercept}
        arrays |= {f"influence_{name}": getattr(model.influence, name) for name in ("vectors", "shift", "shares")}
    write(path, "model", content, arrays)


def load_model(path: str | os.PathLike[str]) -> FittedModel:
    """Read a model that :func:`save_model` wrote.

    Parameters
    ----------
    path : path-like

    Returns
    -------
    FittedModel
        The same to the last bit.

    Raises
    ------
    InvalidInputError
        When there is no such file, or it is damaged, of another kind, or of another version of the format.
    """
    return read(path, "model", _model)


def _of_estimator(model: Any) -> FittedModel:
    from lstd.estimators.model import Fitted  # scipy.stats takes its time: who only reads models need not wait for it

    fitted = getattr(model, "_fitted", None)
    if not isinstance(fitted, Fitted):
        unfitted = ", which is not fitted" if hasattr(model, "fit") else ""
        raise InvalidInputError(f"`model` must be a fitted LSTD or a FittedModel; got {model!r:.80}{unfitted}.")
    statistics = fitted.statistics
    weights = fitted.solution.weights[: model.n_features_in_]
    n, m = weights.shape
    try:
        influence = fitted.influence
    except InvalidInputError:  # too little data for intervals, or none kept
        influence = None
    names = getattr(model, "feature_names_in_", [f"x{i}" for i in range(n)])
    return FittedModel(
        statistics=statistics,
        gamma=fitted.gamma, lmbda=statistics.lmbda, alpha=fitted.alpha, variant=fitted.variant,
        fit_intercept=fitted.fit_intercept,
        coef=np.ascontiguousarray(weights.T), intercept=np.atleast_1d(fitted.intercept),
        feature_names=tuple(map(str, names)),
        reward_names=("reward",) if m == 1 else tuple(f"reward_{j}" for j in range(m)),
        condition_number=fitted.solution.condition_number,
        influence=influence,
    )  # fmt: skip


def _model(document: Mapping[str, Any], arrays: Mapping[str, Array]) -> FittedModel:
    found, origin = document["model"], document["origin"]
    statistics = LSTDStatistics(**unpack(document["statistics"], arrays))
    features, rewards = texts(found["feature_names"]), texts(found["reward_names"])
    if len(features) != statistics.n_features - flag(found["fit_intercept"]) or found["variant"] not in VARIANTS:
        raise ValueError(found)
    return FittedModel(
        statistics=statistics,
        gamma=check_real("gamma", found["gamma"], 0.0, 1.0),
        lmbda=check_real("lmbda", found["lmbda"], 0.0, 1.0),
        alpha=check_real("alpha", found["alpha"], 0.0, np.inf),
        variant=found["variant"],
        fit_intercept=found["fit_intercept"],
        coef=shaped(arrays["coef"], len(rewards), len(features)),
        intercept=shaped(arrays["intercept"], len(rewards)),
        feature_names=features,
        reward_names=rewards,
        condition_number=float(shaped(arrays["condition_number"], 1)[0]),
        origin=None if origin is None else _origin(origin),
        influence=_influence(document["influence"], arrays, len(rewards), statistics.n_features),
    )


def _influence(found: Mapping[str, Any] | None, arrays: Mapping[str, Array], m: int, n: int) -> Influence | None:
    if found is None:
        return None
    from lstd.estimators.intervals import Influence

    shares = arrays["influence_shares"]
    return Influence(
        vectors=shaped(arrays["influence_vectors"], len(shares), m, n),
        shift=shaped(arrays["influence_shift"], m, n),
        shares=shaped(shares, len(shares)),
        intercept=flag(found["intercept"]),
    )


def _origin(found: Mapping[str, Any]) -> Origin:
    values = {field.name: found[field.name] for field in fields(Origin)}
    counts = {name: count(values[name]) for name in ("rows", "transitions", "episodes")}
    for name in ("date", "lstd", "episode", "terminated", "truncated"):
        if not isinstance(values[name], str) and (values[name] is not None or name in ("date", "lstd")):
            raise TypeError(name)
    return Origin(**{**values, **counts, "files": texts(values["files"])})
