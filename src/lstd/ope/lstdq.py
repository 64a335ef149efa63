"""LSTD(λ) of action values: the expected return of a target policy from logged actions."""

from __future__ import annotations

import warnings
from copy import copy
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Annotated, Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from lstd.data.arguments import check_choice
from lstd.data.doubts import FEWEST
from lstd.data.feature_arrays import Features, check_features, check_not_overflowed, values_of
from lstd.data.read_only import lock, read_only
from lstd.data.rows import COMPARED, Columns, PerRow, Rows
from lstd.data.seen_ids import episodes_seen
from lstd.data.settings import ALPHA, GAMMA, MAX_ITER, TOL, Settings, Solver
from lstd.data.takes import Takes
from lstd.data.variants import VARIANT
from lstd.errors import InvalidInputError, LSTDWarning, RidgeWarning, warn
from lstd.estimators.contributions import Contributions
from lstd.estimators.lstd import LSTD
from lstd.estimators.model import Model, SavedModel, model_of
from lstd.estimators.sparse_solver import fit_without_matrix
from lstd.estimators.validate_data import checked_features
from lstd.files import Saved
from lstd.ope.logged_rows import TRACES, LoggedRows, logged_rows, pair_rows, states_of, summed_pairs, warn_of_support
from lstd.ope.pairs import StateActionFeatures
from lstd.ope.policies import PolicyArguments, is_function, probabilities_of
from lstd.ope.value_by_blocks import dual_solution
from lstd.statistics.ridge import Scales
from lstd.types import Array, FeaturesLike

_PAIR_ENTRIES = 2**18  # entries of features of pairs that are compared at once
_DECIDED = "Leave it out: `target_policy`, `behavior_probability` and `trace` decide ratios and coefficients."
_FIT = Takes("LSTDQ.fit", (), {"importance_ratio": _DECIDED, "trace_coefficient": _DECIDED})  # beside the named

WEIGHTINGS = ("auto", "none", "ratio")


class SparseStates(NamedTuple):
    """Sparse features of states, by rows."""

    data: Annotated[Array, "entries"]
    indices: Annotated[NDArray[np.int64], "entries"]
    indptr: Annotated[NDArray[np.int64], "ends"]


@dataclass(frozen=True, eq=False)
class SavedActionValues:
    """What a file holds of an LSTDQ; raises ValueError if the parts do not fit together."""

    file_kind = "model of action values"

    pairs: SavedModel
    labels: Any
    n_features: int
    names: tuple[str, ...] | None
    trace: str
    weighting: str
    unlogged: tuple[float, float]
    states: Annotated[Array, "episodes features"] | SparseStates
    policy: Annotated[Array, "episodes actions"]

    def __post_init__(self) -> None:
        X, P = self.initial
        n = self.n_features
        fitting = (
            X.shape == (len(P), n),
            P.shape[1] == self.features.n_actions,
            self.pairs.model().n_features == n * self.features.n_actions,
            self.names is None or len(self.names) == n,
            self.trace in TRACES,
            self.weighting in WEIGHTINGS,
        )
        if not all(fitting):
            raise ValueError(fitting)

    @cached_property
    def features(self) -> StateActionFeatures:
        """Features of pairs."""
        return StateActionFeatures(self.labels)

    @cached_property
    def initial(self) -> tuple[Features, Array]:
        """The first state of each episode, and the probabilities of actions there."""
        X = self.states
        if isinstance(X, SparseStates):
            X = sparse.csr_array(tuple(X), shape=(len(self.policy), self.n_features))
            X.check_format()
        return X, self.policy


class LSTDQ(Saved, BaseEstimator):  # type: ignore[misc]
    """Action values of a target policy from logged actions, by least-squares temporal differences.

    With features φ_t = φ(s_t, a_t) of pairs, and φ̄_t = Σ_a π(a|s_{t+1}) φ(s_{t+1}, a) expected under the target policy,
    the weights are those of :class:`lstd.LSTD` with ``X_next`` φ̄:

        z_t = c_t λγ_t z_{t−1} + φ_t,   A = Σ z_t (φ_t − γ_{t+1} φ̄_t)ᵀ,   b = Σ z_t r_{t+1},   θ = (A + αI)⁻¹ b

    Parameters
    ----------
    gamma : float in [0, 1], default 0.99
        Discount per transition, unless `discount` gives one per row.
    lmbda : float in [0, 1], default 0.0
        Trace decay. 0 bootstraps from the next row; larger values reduce the bias of features that cannot represent
        the values.
    trace : {"retrace", "none"}, default "retrace"
        Trace coefficient c_t for λ > 0: min(1, π/μ) or 0, with the probabilities π and μ that the target policy and
        the policy that logged the data take the logged action. "retrace" needs `behavior_probability`; "none" is the
        same as λ = 0.
    alpha : float, at least 0, or array-like of shape (n_pair_features,), default 1.0
        Ridge coefficient, or one for each feature of pairs.
    fit_intercept : bool, default True
        Add a column of ones, whose weight is not penalised.
    variant : str, default "boyan"
        Which estimator to solve for: a variant of :class:`lstd.LSTD`.
    features : StateActionFeatures or callable, optional
        Features of pairs, with the labels of the actions; or a function φ(s, a), see :class:`StateActionFeatures`. By
        default, actions are 0, 1, …, and each has a block of columns for the features of states.
    weighting : {"auto", "none", "ratio"}, default "auto"
        "ratio" multiplies the weight of each row by 0.99 π/μ + 0.01, with the probabilities of its logged action, so
        that features that are too coarse fit the pairs that the target policy takes. It needs
        `behavior_probability`. "auto" is "ratio" if these are given and there are no traces, and otherwise "none".
        :func:`policy_value` with `state` weights states too.
    n_blocks : int or "auto", default "auto"
        As in :class:`lstd.LSTD`.
    solver, tol, max_iter
        As in :class:`lstd.LSTD`; "auto" is "iterative" for sparse features of states and more than 3000 features of
        pairs. Without the matrix, :func:`policy_value` knows no dual weights and no effective sample size.
        ``lstd_.n_iter_`` and ``lstd_.residual_`` say how well the system was solved.

    Attributes
    ----------
    lstd_ : LSTD
        The model of the pairs, for everything that :class:`lstd.LSTD` offers.
    features_ : StateActionFeatures
    coef_ : ndarray of shape (n_pair_features,)
    intercept_ : float
    unlogged_share_ : float
        Share of the target policy's actions, over logged successors, about which the data say nothing: a feature of the
        pair is zero in all logged pairs.
    is_weighted_ : bool
        Whether rows count by their importance ratios.
    n_features_in_ : int
        Number of features of states.

    Notes
    -----
    A fitted model keeps the states and actions, for the dual weights and initial states of :func:`policy_value`. A file
    of `save` keeps the first state of each episode and the target policy there, but no other rows, and no target policy
    that is a function: give `target_policy` to a loaded model for other states. Its dual weights and its effective
    sample size are None, and :func:`compare_policies` takes it only with models of the same weights.

    The sums of many rows with dense features of states take some n·k products per row, n features of states and k of
    pairs, whatever λ is, and no array of k columns. The weights then differ by rounding from those of
    :class:`lstd.LSTD` with `X_next` φ̄; with few rows, they are the same to the last bit.

    For continuous actions, fit :class:`lstd.LSTD` to features of pairs, with `X_next` their means over actions drawn
    from the target policy, or over a grid, and `trace_coefficient` for λ > 0.

    References
    ----------
    M. G. Lagoudakis and R. Parr, "Least-squares policy iteration", JMLR 4, 2003.
    R. Munos, T. Stepleton, A. Harutyunyan and M. Bellemare, "Safe and efficient off-policy reinforcement learning",
    NeurIPS 2016.

    Examples
    --------
    One state, two actions with rewards 1 and 3, logged alternately; the target policy prefers the second:

    >>> import numpy as np
    >>> from lstd.ope import LSTDQ
    >>> X, actions, policy = np.ones((40, 1)), np.arange(40) % 2, np.full((40, 2), [0.25, 0.75])
    >>> model = LSTDQ(gamma=0.5, alpha=0.0, fit_intercept=False)
    >>> model = model.fit(X, 1.0 + 2.0 * actions, actions=actions, terminated=actions == 1, target_policy=policy)
    >>> model.action_values([[1.0]]).round(2), model.state_values([[1.0]], [[0.25, 0.75]]).round(2)
    (array([[2.43, 3.  ]]), array([2.86]))
    """

    record_kind = SavedActionValues

    def __init__(
        self,
        gamma: float = GAMMA,
        lmbda: float = 0.0,
        trace: str = "retrace",
        alpha: float | ArrayLike = ALPHA,
        fit_intercept: bool = True,
        variant: str = VARIANT,
        features: Any = None,
        n_blocks: int | str = "auto",
        solver: str = "auto",
        tol: float = TOL,
        max_iter: int = MAX_ITER,
        weighting: str = "auto",
    ) -> None:
        self.gamma = gamma
        self.lmbda = lmbda
        self.trace = trace
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.variant = variant
        self.features = features
        self.n_blocks = n_blocks
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.weighting = weighting

    def fit(
        self,
        X: FeaturesLike,
        y: ArrayLike,
        *,
        actions: ArrayLike,
        target_policy: Any,
        behavior_probability: PerRow = None,
        target_policy_next: Any = None,
        episode: PerRow = None,
        terminated: PerRow = None,
        X_next: FeaturesLike | None = None,
        discount: PerRow = None,
        weight: PerRow = None,
        groups: PerRow = None,
        **others: Any,
    ) -> Self:
        """Fit to logged rows in time order; any earlier fit is forgotten.

        Parameters
        ----------
        X : array-like, DataFrame or sparse of shape (T, n)
            Features of the state of each row.
        y : array-like of shape (T,)
            Rewards received on leaving each row.
        actions : array-like of shape (T,)
            The logged action of each row; ignored in the last row of an episode that did not terminate.
        target_policy : array-like of shape (T, n_actions), (T,) or (T, 1), or callable, or object with `predict`
            Probabilities of all actions in each row, last rows included; or the action that the policy takes in each.
            Or a function that returns one of these for features of states, such as :class:`EpsilonGreedy`; a fitted
            LSTDQ, for the best action by its values; or an object whose `predict` returns actions: an agent of
            Stable-Baselines3 or d3rlpy, or a classifier of labels. Columns of a data frame that bear the labels of the
            actions, as they are or as text, may be in any order; by default, labels are 0, 1, …. A function is called
            with a dense or sparse array of all columns.
        behavior_probability : array-like of shape (T,) or (T, n_actions), optional
            Probability with which the logged action was taken, or those of all actions. If all are given, a target
            policy that takes an action of probability 0 raises an error, whatever `trace` and `lmbda`.
        target_policy_next : array-like of shape (T, n_actions), optional
            Probabilities of all actions in the states of `X_next`, needed if `target_policy` is an array.
        episode, terminated, discount, weight, groups : array-like of shape (T,), optional
            As in :meth:`lstd.LSTD.fit`.
        X_next : array-like, DataFrame or sparse of shape (T, n), optional
            Features of the states that followed; by default, those of the next row of the episode.
        **others
            Any other argument is refused. Ratios and trace coefficients follow from `target_policy`,
            `behavior_probability` and `trace`.

        Returns
        -------
        self

        Raises
        ------
        InvalidInputError
            When a parameter or an array breaks a rule, or a trace lacks the probabilities of logged actions.

        Warns
        -----
        IllConditionedWarning, RidgeWarning, EffectiveSampleWarning, MissingTerminationWarning, UnusedRewardWarning
            As :meth:`lstd.LSTD.fit` does.
        SupportWarning
            As :meth:`lstd.LSTD.fit` does, of the ratios that `target_policy` and `behavior_probability` give.
        """
        _FIT.check(others)
        trace = check_choice("trace", self.trace, TRACES)
        settings = Settings(self.gamma, self.lmbda, self.alpha, self.variant, self.fit_intercept)  # type: ignore[arg-type]
        solver = Solver(self.solver, self.tol, self.max_iter)
        columns: Columns = {
            "episode": episode,
            "terminated": terminated,
            "X_next": X_next,
            "discount": discount,
            "weight": weight,
            "groups": groups,
        }
        names = BaseEstimator()
        rows = states_of(X, y, columns, settings.gamma, names)
        target = PolicyArguments(target_policy, target_policy_next)
        logged = logged_rows(rows, actions, target, behavior_probability, self.features, trace, settings.lmbda)
        weighting = check_choice("weighting", self.weighting, WEIGHTINGS)
        weighted = weighting == "ratio"
        if weighting == "auto":
            weighted = logged.ratio is not None and (settings.lmbda == 0.0 or trace == "none")
        if weighted:
            logged = logged.weighted(row_factor(logged))
        model = _fitted(logged, settings, solver, self.n_blocks)
        if logged.ratio is not None and not model.solution.unbounded:
            action_values = logged.features.action_values(rows.X, model.coef)
            text = warn_of_support(logged, (action_values * np.asarray(logged.policy)).sum(axis=1))
            model = model.described(said=(text,) if text else ())
        self._adopt(model, logged.features, logged.unlogged(model.unseen))
        self.logged_: LoggedRows | None = logged
        self.is_weighted_ = weighted
        self.target_policy_ = target_policy if is_function(target_policy) else None
        self.__dict__.pop("feature_names_in_", None)
        lock(vars(names).values())
        self.__dict__.update(vars(names), n_features_in_=rows.n_features)
        return self

    def reweighted(self, factor: Array) -> Self:
        """Return the model of the same rows with their weights times `factor`, one for each transition."""
        logged = self.logged_
        if logged is None:
            raise InvalidInputError("`model` must be fitted in this session: a file of a model keeps no rows.")
        logged = logged.weighted(factor)
        settings = self.lstd_.model_.settings
        solver = Solver(self.solver, self.tol, self.max_iter)
        other = copy(self)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LSTDWarning)  # given by the fit
            model = _fitted(logged, settings, solver, self.n_blocks)
        other._adopt(model, logged.features, self.unlogged_)
        other.logged_ = logged
        return other

    def predict(self, X: FeaturesLike, actions: ArrayLike) -> Array:
        """Predict the return of each pair of a state (T, n) and an action (T,), if the target policy acts afterwards.

        Returns an ndarray of shape (T,).
        """
        values = self.action_values(X)
        return values[np.arange(len(values)), self.features_.codes_of_rows(actions, len(values))]

    def contributions(self, X: FeaturesLike, action: Any) -> Contributions:
        """Compute what each feature of a state contributes to the value of an action.

        Parameters
        ----------
        X : array-like, DataFrame or sparse of shape (T, n)
        action : a label of the actions

        Returns
        -------
        Contributions
            As of :meth:`lstd.LSTD.contributions`; means are over the logged transitions.

        Raises
        ------
        InvalidInputError
            When features of pairs were made by a function, or the model was loaded from a file, which keeps no means.
        """
        check_is_fitted(self, "lstd_")
        phi = checked_features(self, X)
        logged = self.logged_
        if logged is None or self.features_.phi is not None:
            raise InvalidInputError(
                "`contributions` needs a block of features for each action, and the rows of the fit, which a file does "
                "not keep. Fit it in this session, without a function `phi`."
            )
        n = phi.shape[1]
        code = int(self.features_.codes([action])[0])
        means = np.asarray(logged.rows.X[logged.full].mean(axis=0)).reshape(-1)
        names = tuple(getattr(self, "feature_names_in_", [f"x{j}" for j in range(n)]))
        of_action = slice(code * n, (code + 1) * n)
        return Contributions.of(self.lstd_.model_.linear, phi, means, of_action, names)

    def action_values(self, X: FeaturesLike) -> Array:
        """Return the values of all actions in each state (T, n), an ndarray of shape (T, n_actions)."""
        check_is_fitted(self, "lstd_")
        return self.values_at(checked_features(self, X))

    def values_at(self, X: Features) -> Array:
        """Return the values of all actions, (T, n_actions), in states without names of columns."""
        check_is_fitted(self, "lstd_")
        phi = check_features("X", X)
        if phi.shape[1] != self.n_features_in_:
            raise InvalidInputError(f"`X` must have {self.n_features_in_} features; got {phi.shape[1]}.")
        linear = self.lstd_.model_.linear
        with np.errstate(over="ignore", invalid="ignore"):
            values = self.features_.action_values(phi, linear.coef) + linear.intercept
        check_not_overflowed("X", values)
        return values

    def expected_values(self, X: Features, P: Array) -> Array:
        """Return the values of checked states, (T,), under probabilities of the actions, (T, n_actions)."""
        linear = self.lstd_.model_.linear
        of_actions = self.features_.action_values(X, linear.coef)
        return np.asarray((of_actions * P).sum(axis=1) + linear.intercept)

    def state_values(self, X: FeaturesLike, target_policy: Any = None) -> Array:
        """Return the values of states (T, n) under the target policy, an ndarray of shape (T,).

        Parameters
        ----------
        X : array-like, DataFrame or sparse of shape (T, n)
        target_policy : array-like of shape (T, n_actions) or callable, optional
            By default, the function that the model was fitted with. It only decides the first action: after that, the
            policy of `fit` acts.
        """
        values = self.action_values(X)
        return np.asarray((values * self.policy_at(checked_features(self, X), target_policy)).sum(axis=1))

    def policy_at(self, X: Features, target_policy: Any = None) -> Array:
        """Return the probabilities of the target policy, (T, n_actions), in checked states."""
        policy = self.target_policy_ if target_policy is None else target_policy
        if policy is None:
            raise InvalidInputError(
                "`target_policy` must be given for a model that was fitted with an array of probabilities, or loaded "
                "from a file: the probabilities of all actions in these states."
            )
        return probabilities_of(policy, X, self.features_.labels)

    def initial(self, states: Any = None, target_policy: Any = None) -> tuple[Features, Array]:
        """Return initial states, (m, n), by default the first ones of episodes, and the probabilities of actions."""
        if states is not None:
            X = checked_features(self, states)
            return X, self.policy_at(X, target_policy)
        P: Array | None
        logged = self.logged_
        if logged is None:
            X, P = self.initial_
        else:
            first = logged.full[logged.begins]
            X = logged.rows.X[first]
            P = None if logged.policy is None else logged.policy[first]
        if P is None or target_policy is not None:
            P = self.policy_at(X, target_policy)
        return X, P

    def coverage(self, X: Features, P: Array, phi: Array) -> dict[str, Any]:
        """Return what the log says of a value over initial states of mean features `phi`, by field of `ValueByBlocks`.

        From a file, or without the matrix, there are no dual weights.
        """
        fitted = self.lstd_.model_
        logged = self.logged_
        unlogged, pairs = self.unlogged_
        if fitted.unseen.any():
            unlogged += float((P * self.features_.touching(X, fitted.unseen)).sum())
        known: dict[str, Any] = {"unlogged": unlogged / (pairs + float(P.sum())), "log": logged}
        if logged is not None and fitted.matrix_free is None:
            omega, ones = dual_solution(fitted, phi)
            known["dual"] = logged.dual_weights(omega, ones, fitted.statistics.lmbda)
        return known

    def to_record(self) -> SavedActionValues:
        """Return what a file holds of the fitted model."""
        check_is_fitted(self, "lstd_")
        features = self.features_
        if features.phi is not None:
            raise InvalidInputError(
                "`features` must have no function to be saved, as files hold nothing executable; got "
                f"{features.phi!r:.80}. Save `lstd_`, the model of the pairs, and predict from "
                "`features_.transform(X, actions)`."
            )
        if features.labels.dtype.kind not in "biufU":
            raise InvalidInputError(
                "`features` must have labels of one type to be saved, numbers or text; got "
                f"{features.labels.tolist()!r:.80}. Number the actions 0, 1, …."
            )
        names = vars(self).get("feature_names_in_")
        X, P = self.initial()
        return SavedActionValues(
            pairs=self.lstd_.to_record(),
            labels=features.labels.tolist(),
            n_features=self.n_features_in_,
            names=None if names is None else tuple(names.tolist()),
            trace=self.trace,
            weighting="ratio" if self.is_weighted_ else "none",
            unlogged=self.unlogged_,
            states=_saved_states(X),
            policy=P,
        )

    @classmethod
    def of_record(cls, record: SavedActionValues, path: Any = None) -> Self:
        """Return the estimator of what a file held."""
        model = record.pairs.model()
        parameters = LSTD.of_model(model).get_params() | {"trace": record.trace, "weighting": record.weighting}
        estimator = cls(features=record.features, **parameters)
        estimator._adopt(model, record.features, record.unlogged)
        estimator.logged_ = None
        estimator.target_policy_ = None
        estimator.is_weighted_ = record.weighting == "ratio"
        estimator.initial_ = read_only(record.initial)
        estimator.n_features_in_ = record.n_features
        if record.names is not None:
            estimator.feature_names_in_ = read_only(np.array(record.names, dtype=object))
        return estimator

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for name in ("feature_names_in_", "initial_"):
            read_only(state.get(name))

    @property
    def coef_(self) -> Array:
        """Weights of the features of pairs."""
        return self.lstd_.coef_

    @property
    def intercept_(self) -> float:
        """Weight of the column of ones, zero without it."""
        return float(self.lstd_.intercept_)

    def _adopt(self, model: Model, features: StateActionFeatures, unlogged: tuple[float, float]) -> None:
        """Take a fitted model of pairs, and the number of pairs without data, with that of all."""
        self.lstd_ = LSTD.of_model(model)
        self.features_ = features
        self.unlogged_ = unlogged
        without_data, pairs = unlogged
        self.unlogged_share_ = without_data / (pairs or 1.0)


def _saved_states(X: Features) -> Array | SparseStates:
    """Return features of states as a file holds them."""
    if not sparse.issparse(X):
        return np.asarray(X, np.float64)
    return SparseStates(
        data=X.data.astype(np.float64),
        indices=X.indices.astype(np.int64),
        indptr=X.indptr.astype(np.int64),
    )


def row_factor(logged: LoggedRows) -> Array:
    """Return 0.99 ρ + 0.01 of each transition, (N,): actions that the target policy never takes keep some data."""
    if logged.ratio is None:
        raise InvalidInputError('`behavior_probability` must be given for weighting="ratio".')
    return np.asarray(0.99 * logged.ratio + 0.01)


def _scales_doubt(model: Model, logged: LoggedRows, rows: Rows) -> str:
    """Say that action values depend on the units of the features, if they do; nothing where `alpha` is for them.

    `rows` are the transitions. Residuals are TD errors.
    """
    settings = model.settings
    if isinstance(settings.alpha, tuple) or model.solution.unbounded:
        return ""
    k = model.n_features
    states = logged.rows
    n_blocks = logged.features.n_actions
    if logged.features.phi is not None:  # features of pairs, without a block for each action
        states = rows
        n_blocks = 1
    scales = Scales.of(states, np.full(k // n_blocks, settings.alpha), intercept=settings.fit_intercept)
    if scales is None:
        return ""
    weights = model.linear.weights
    change = scales.moved_weights(model.system, weights)
    n_compared = max(FEWEST, min(COMPARED, _PAIR_ENTRIES // k))
    some = slice(None, None, -(-len(rows) // n_compared))
    pairs = rows.X[some]
    values = values_of(pairs, weights)
    moved = values_of(pairs, change)

    def residual() -> Array:
        assert rows.X_next is not None
        ahead = values_of(rows.X_next[some], weights)
        td_error = rows.y[some] + rows.discount[some, np.newaxis] * ahead - values
        square: Array = np.mean(td_error**2, axis=0)
        return square

    return scales.doubt(moved, values, residual)


def _fitted(logged: LoggedRows, settings: Settings, solver: Solver, n_blocks: int | str) -> Model:
    """Fit LSTD to transitions from pairs to expected pairs."""
    rows = pair_rows(logged)
    if solver.takes(logged.rows.X, rows.n_features):
        rows = rows.changed(X=rows.X[:], X_next=rows.X_next[:])  # type: ignore[index]
        fitted = fit_without_matrix(rows, settings, solver, {"n_blocks": n_blocks, **asdict(solver)})
        return fitted.checked().changed(limits=None)
    blocks = summed_pairs(logged, rows, settings.lmbda, settings.fit_intercept, n_blocks)
    fitted = model_of(blocks, settings, None, n_blocks, episodes=episodes_seen(rows))
    warn(_scales_doubt(fitted, logged, rows), RidgeWarning)
    # Of k weights, the influence of E blocks takes 2/3 E k³ operations, where the sums took 2 n k per row.
    n_systems = blocks.n_blocks
    if logged.wide and 3 * len(rows) * logged.rows.n_features >= n_systems * logged.width**2:
        _ = fitted.no_intervals  # computes it here, so that `policy_value` need not
        logged.dual_weights(np.zeros(logged.width), 0.0, settings.lmbda)  # loads its kernel
    return fitted
