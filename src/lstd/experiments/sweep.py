"""Error of every pair (λ, α) of an algorithm on a Markov reward process, run by run.

After each step the weights θ are compared with the best linear fit θ* of the true values under the stationary
distribution D: (Φθ − Φθ*)ᵀ D (Φθ − Φθ*), averaged over the steps of the run and divided by (Φθ*)ᵀ D (Φθ*).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_array

from lstd.data.arguments import check_array, check_choice, check_grid, check_integer
from lstd.errors import IllConditionedWarning, InvalidInputError
from lstd.experiments import protocol
from lstd.experiments import sweep_td as td_kernels
from lstd.experiments.sweep_dense import LANES, lstd_dense
from lstd.experiments.sweep_onehot import lstd_onehot, plan
from lstd.mrp import MRP, RandomMRP, Trajectory, make_features
from lstd.statistics.threads import available_cores, one_blas_thread
from lstd.types import Array

Progress = Callable[[int, int], None]
_Kernel = Callable[..., None]  # of a trajectory, λ and α of the pairs, and the totals that it fills

SURE_DIGITS = 8  # of a sweep's errors; with fewer there is a warning
DEFAULT_STEPS = 1000  # of a run on a model of the user's own
ONEHOT_FROM = 24  # features from which the kernel for one-hot features is faster than that for dense ones
TD_KINDS = {
    "true_online_td": td_kernels.TRUE_ONLINE,
    "td": td_kernels.ACCUMULATING,
    "td_replacing": td_kernels.REPLACING,
}


def run_sweep(
    problem: str | MRP,
    features: str | ArrayLike,
    algorithm: str | list[str] | tuple[str, ...],
    *,
    lmbdas: ArrayLike = protocol.LMBDAS,
    alphas: ArrayLike | None = None,
    run_seeds: Iterable[int] = range(1, protocol.N_RUNS + 1),
    mrp_seed: int = protocol.MRP_SEED,
    n_steps: int | None = None,
    n_jobs: int | None = None,
    progress: Progress | None = None,
) -> Any:
    """Compute the normalised mean squared error of each run and each pair (λ, α), averaged over the steps of the run.

    Parameters
    ----------
    problem : {"small", "large", "deterministic"} or MRP
        A problem of the paper, or a model of your own.
    features : {"tabular", "binary", "normal"} or array-like of shape (n_states, n_features)
        Features of the states by name or as a matrix.
    algorithm : str or list of str
        Of "boyan", "uncorrected", "mixed" (LSTD(λ)), "true_online_td", "td" (accumulating traces) and
        "td_replacing" (a feature that is not zero sets its trace). The LSTD variants of a list are computed in one
        pass, which takes as long as one of them.
    lmbdas : array-like of shape (n_lmbdas,)
        Trace decays in [0, 1]; the paper's 20 by default.
    alphas : array-like of shape (n_alphas,), optional
        Ridge coefficients of LSTD(λ), step sizes of TD(λ), above 0; the paper's 17 and 30 by default.
    run_seeds : iterable of int
        Seed of each run; 1, …, 50 by default.
    mrp_seed : int, default 1000
        Seed of the problem, when it is given by name.
    n_steps : int, optional
        Length of a run in transitions: by default the paper's, and 1000 for a model of your own.
    n_jobs : int, optional
        Threads; all available cores by default. Results do not depend on it.
    progress : callable, optional
        Called as ``progress(done, total)`` in the calling thread.

    Returns
    -------
    ndarray of shape (n_runs, n_lmbdas, n_alphas), or a dict of them by algorithm when a list was given
        A run that diverged counts as infinite.

    Raises
    ------
    InvalidInputError
        If an argument breaks its rule, or the values of the model are all zero.

    Warns
    -----
    IllConditionedWarning
        If an α is so small relative to the features that fewer than eight digits of the errors are reliable.

    Notes
    -----
    The kernels compile at first use, for some seconds, and are cached. Dense features need about n² / 2 kB per
    thread.

    References
    ----------
    Osogami, "Uncorrected least-squares temporal difference with lambda-return", AAAI-20; van Seijen, Mahmood,
    Pilarski, Machado and Sutton, "True online temporal-difference learning", JMLR 17 (2016).

    Examples
    --------
    >>> from lstd.experiments import run_sweep
    >>> errors = run_sweep("small", "tabular", ["boyan", "uncorrected"], lmbdas=[0.0, 0.9], alphas=[1.0])
    >>> errors["boyan"].shape
    (50, 2, 1)
    """
    names = _check_algorithms(algorithm)
    lmbdas = check_grid("lmbdas", lmbdas, 0.0, 1.0)
    ridges = protocol.ALPHAS
    step_sizes = protocol.STEP_SIZES
    if alphas is not None:
        ridges = step_sizes = check_grid("alphas", alphas, 0.0, np.inf, open_low=True)
    seeds = _check_seeds(run_seeds)
    jobs = available_cores() if n_jobs is None else check_integer("n_jobs", n_jobs, 1)

    variants = [name for name in names if name in protocol.LSTD_VARIANTS]
    passes = []
    with one_blas_thread():  # the values of the model would depend in the last bit on the number of threads
        study = _study(problem, features, mrp_seed, n_steps)
        if variants:
            passes.append(_Pass(variants, study, lmbdas, ridges, seeds))
        passes += [_Pass([name], study, lmbdas, step_sizes, seeds) for name in names if name in TD_KINDS]
    if alphas is not None and variants:
        _warn_of_small_alpha(ridges, study.features)
    _run(passes, jobs, progress)
    errors = {name: one_pass.errors(name) for one_pass in passes for name in one_pass.names}
    if isinstance(algorithm, str):
        return errors[algorithm]
    return {name: errors[name] for name in names}


@dataclass(frozen=True)
class _Study:
    """A model, its features and what the error is measured against."""

    model: MRP
    features: Array  # (k, n)
    metric: Array  # (n, n) ΦᵀDΦ
    target: Array  # (n,) θ*
    scale: float  # (Φθ*)ᵀ D (Φθ*)
    n_steps: int

    @property
    def diagonal(self) -> bool:
        """Whether the metric is diagonal."""
        return bool(np.count_nonzero(self.metric - np.diag(np.diag(self.metric))) == 0)

    @property
    def diagonalised(self) -> tuple[Array, Array, Array]:
        """Features, diagonal of the metric and target in a basis of unit vectors where the metric is diagonal.

        The error is a weighted sum of squares there; αI stays αI, and TD(λ) and LSTD(λ) do not depend on the basis.
        """
        if self.diagonal:
            return self.features, np.diag(self.metric).copy(), self.target
        weight, basis = np.linalg.eigh(self.metric)
        return self.features @ basis, np.maximum(weight, 0.0), basis.T @ self.target

    def kernel(self, algorithm: str) -> _Kernel:
        """The kernel of an algorithm, with all that does not change from run to run."""
        if algorithm in TD_KINDS:
            return self._td_kernel(TD_KINDS[algorithm])
        n_states = self.model.n_states
        if n_states >= ONEHOT_FROM and np.array_equal(self.features, np.eye(n_states)):
            return partial(_onehot, np.diag(self.metric).copy(), self.target)
        return partial(_dense, *self.diagonalised)

    def _td_kernel(self, kind: int) -> _Kernel:
        """Return the kernel of one kind of TD(λ), in the basis where the error is cheapest to sum."""
        features = self.features
        metric = self.metric
        target = self.target
        if self.diagonal or kind != td_kernels.REPLACING:  # replacing traces depend on the basis
            features, weight, target = self.diagonalised
            metric = weight[np.newaxis]
        rows = csr_array(features)
        sparse = (rows.indptr.astype(np.int64), rows.indices.astype(np.int64), rows.data)
        return partial(_td, sparse, metric, target, kind)


# Kernels as functions of a run and its `pairs`: λ (pairs,), α (pairs,) and the totals that they fill.


def _dense(features: Array, weight: Array, target: Array, run: Trajectory, *pairs: Array) -> None:
    lstd_dense(features[run.states], run.rewards, run.discounts, weight, target, *pairs)


def _onehot(weight: Array, target: Array, run: Trajectory, *pairs: Array) -> None:
    lstd_onehot(plan(run.states, len(weight)), run.rewards, run.discounts, weight, target, *pairs)


def _td(sparse: tuple[Array, ...], metric: Array, target: Array, kind: int, run: Trajectory, *pairs: Array) -> None:
    lmbdas, alphas, totals = pairs
    td_kernels.td(
        *sparse,
        run.states,
        run.rewards,
        run.discounts,
        metric,
        target,
        kind,
        lmbdas,
        alphas,
        totals[0],
    )


class _Pass:
    """Algorithms that share one recursion, over all runs; `solve` fills one run's slice of the pairs."""

    def __init__(self, names: list[str], study: _Study, lmbdas: Array, alphas: Array, seeds: list[int]) -> None:
        self.names = names
        self.study = study
        self.seeds = seeds
        self.kernel = study.kernel(names[0])
        self.shape = (len(seeds), len(lmbdas), len(alphas))
        self.pairs = np.stack([np.repeat(lmbdas, len(alphas)), np.tile(alphas, len(lmbdas))])  # (2, pairs)
        self.rows = tuple(names)  # of the kernel's totals
        if names[0] in protocol.LSTD_VARIANTS:
            self.rows = protocol.LSTD_VARIANTS
        self.totals = np.empty((len(self.rows), len(seeds), self.pairs.shape[1]))

    def compile(self) -> None:
        """Compile the kernel now, in this thread."""
        no_steps = self.study.model.simulate(0, 0)
        lmbdas, alphas = np.empty((2, 0))
        self.kernel(no_steps, lmbdas, alphas, np.empty((len(self.rows), 0)))

    def slices(self, jobs: int) -> list[slice]:
        """All pairs at once if there are enough runs to keep every thread busy; else divided by whole lanes."""
        n_pairs = self.pairs.shape[1]
        n_slices = max(1, math.ceil(4 * jobs / len(self.seeds)))
        size = math.ceil(n_pairs / (n_slices * LANES)) * LANES
        return [slice(first, first + size) for first in range(0, n_pairs, size)]

    def solve(self, run: int, pairs: slice) -> None:
        """Compute one run's errors of a slice of the pairs."""
        trajectory = self.study.model.simulate(self.study.n_steps, self.seeds[run])
        totals = np.empty_like(self.totals[:, run, pairs], order="C")
        self.kernel(trajectory, *self.pairs[:, pairs], totals)
        self.totals[:, run, pairs] = totals

    def errors(self, name: str) -> Array:
        """Normalised errors of one algorithm, shape (runs, lmbdas, alphas); infinite where a run diverged."""
        totals = self.totals[self.rows.index(name)] / (self.study.n_steps * self.study.scale)
        return np.where(np.isfinite(totals), totals, np.inf).reshape(self.shape)


def _study(problem: str | MRP, features: str | ArrayLike, mrp_seed: int, n_steps: int | None) -> _Study:
    """Check and build the model and the features, and compute what errors are measured against."""
    if isinstance(problem, MRP):
        model = problem
        length = DEFAULT_STEPS
    else:
        paper = protocol.PROBLEMS[check_choice("problem", problem, protocol.PROBLEMS)]
        mrp_seed = check_integer("mrp_seed", mrp_seed, 0, 2**32 - 1)
        model = RandomMRP(paper.n_states, paper.branching, paper.reward_std, mrp_seed)
        length = paper.n_steps
    if n_steps is not None:
        length = check_integer("n_steps", n_steps, 1)
    if isinstance(features, str):
        phi = make_features(model, features)
    else:
        phi = check_array("features", features, (model.n_states, None))
    metric = phi.T @ (model.stationary[:, np.newaxis] * phi)
    target = model.best_fit(phi)
    scale = float(target @ metric @ target)
    # By rounding, a fit that should be zero has squares of about 1e-32 times those of the values.
    if not scale > 1e-24 * float(model.stationary @ model.values**2):
        raise InvalidInputError(
            "`problem` and `features` must give values that are not all zero, since the error is relative to them; "
            f"got (Φθ*)ᵀD(Φθ*) = {scale:g}."
        )
    return _Study(model, phi, metric, target, scale, length)


def _run(passes: list[_Pass], jobs: int, progress: Progress | None) -> None:
    """Compute all passes in threads, each run or slice of it by itself."""
    for one_pass in passes:
        one_pass.compile()
    with ThreadPoolExecutor(jobs, thread_name_prefix="lstd") as pool:
        futures: list[Future[None]] = []
        for one_pass in passes:
            for run, pairs in product(range(len(one_pass.seeds)), one_pass.slices(jobs)):
                futures.append(pool.submit(one_pass.solve, run, pairs))
        try:
            for n_done, future in enumerate(as_completed(futures), start=1):
                future.result()
                if progress is not None:
                    progress(n_done, len(futures))
        except BaseException:  # also an interruption by the user: what has not begun never does
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _warn_of_small_alpha(alphas: Array, features: Array) -> None:
    """Warn if rounding of about 1e-16 |φ|²/α stays in the inverse, as the recursion starts from I/α."""
    size = float((features**2).sum(axis=1).max())
    eps = float(np.finfo(np.float64).eps)
    rounding = eps * size / alphas.min()
    digits = -np.log10(rounding)
    if digits < SURE_DIGITS:
        warnings.warn(
            f"`alphas` has {alphas.min():g} with features of squared length up to {size:g}: the recursion keeps only "
            f"about {max(0.0, digits):.0f} digits. Use alphas of at least {10**SURE_DIGITS * eps * size:.1g}, or scale "
            "the features down.",
            IllConditionedWarning,
            stacklevel=3,
        )


def _check_algorithms(algorithm: str | list[str] | tuple[str, ...]) -> list[str]:
    """Return the names of algorithms, of which each is known and given once."""
    names = list(algorithm) if isinstance(algorithm, (list, tuple)) else [algorithm]
    for name in names:
        check_choice("algorithm", name, protocol.ALGORITHMS)
    if not names or len(set(names)) < len(names):
        raise InvalidInputError(f"`algorithm` must name one algorithm or more, each once; got {names or 'none'}.")
    return names


def _check_seeds(run_seeds: Iterable[int]) -> list[int]:
    """Return the seeds as a list of one or more."""
    try:
        seeds = list(run_seeds)
    except TypeError:
        raise InvalidInputError(f"`run_seeds` must be a list of integers; got {run_seeds!r}.") from None
    if not seeds:
        raise InvalidInputError("`run_seeds` must hold at least one seed; got none.")
    return [check_integer(f"run_seeds[{i}]", seed, 0, 2**32 - 1) for i, seed in enumerate(seeds)]
