"""`run_sweep` against direct solves at every step, on the paper's problems and on models of the user's own."""

import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import numba
import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import lstd.experiments.sweep as sweep_module
import naive
from lstd.errors import IllConditionedWarning, InvalidInputError
from lstd.experiments import protocol, run_sweep
from lstd.mrp import MRP, BoyanChain, RandomMRP, RandomWalk
from tolerances import assert_close
from twins import compiled_only

VARIANTS = naive.VARIANTS
TD = ("true_online_td", "td", "td_replacing")
FEATURES = ("tabular", "binary", "normal")
NINE = [(problem, features) for problem in naive.PROBLEMS for features in FEATURES]
TOLERANCE = {"uncorrected": "sweep_uncorrected", "boyan": "sweep", "mixed": "sweep"} | dict.fromkeys(TD, "sweep_td")

# Without compiled kernels the same sweeps are made over the first steps of each run.
STEPS = 12 if numba.config.DISABLE_JIT else None


@pytest.fixture(autouse=True, scope="module")
def _one_thread_of_blas():
    """The solves of `naive` are too small to gain from more."""
    with threadpool_limits(1):
        yield


def steps(n_steps):
    return min(STEPS or n_steps, n_steps)


def expected_entry(model, features, algorithm, lmbda, alpha, seed, n_steps):
    """Error of one run and pair on any model, by the definitions of `naive`."""
    restarted = model.transition + np.outer(model.termination, model.start)
    D = model.start @ naive.stationary(restarted, slice(None))
    values = naive.true_values(model.transition, model.expected_reward, model.gamma)
    theta_star = naive.best_fit(features, values, D)
    states, rewards, discounts, _ = model.simulate(n_steps, seed)
    arguments = (features[states], rewards, lmbda, alpha, discounts)
    if algorithm in VARIANTS:
        theta = naive.weights_every_step_grouped(algorithm, *arguments)
    else:
        theta = naive.TD[algorithm](*arguments)
    return np.mean([naive.normalised_error(w, features, D, theta_star) for w in theta[1:]])


# ---------------------------------------------------------------- the paper's problems


@pytest.mark.parametrize(("problem", "features"), NINE)
def test_lstd_equals_direct_solves_at_every_step(problem, features):
    """Over 120 steps; whole runs are compared with the NumPy loop in `test_reproduce`.

    One pair less of Boyan's and Mixed, which are read out of the same recursion; they differ at λ = 0 and 0.5.
    """
    lmbdas, alphas, seeds = [0.0, 0.5, 0.99, 1.0], [2.0**-8, 1.0, 2.0**8], [1, 50]
    n_steps = steps(min(120, naive.PROBLEMS[problem][3]))
    grid = {"lmbdas": lmbdas, "alphas": alphas, "run_seeds": seeds, "n_steps": n_steps}
    results = run_sweep(problem, features, list(VARIANTS), **grid)
    for algorithm in VARIANTS:
        pairs = ((0, 2, 2), (1, 2, 0), (0, 3, 0), (0, 0, 0), (1, 1, 1))
        for run, i, j in pairs if algorithm == "uncorrected" else pairs[1:]:
            pair = lmbdas[i], alphas[j], seeds[run]
            expected = naive.sweep_entry(problem, features, algorithm, *pair, n_steps=n_steps)
            assert_close(results[algorithm][run, i, j], expected, TOLERANCE[algorithm], err_msg=f"{algorithm} {pair}")


@pytest.mark.parametrize("algorithm", TD)
@pytest.mark.parametrize(("problem", "features"), NINE)
def test_td_equals_its_definition(problem, features, algorithm):
    lmbdas, alphas, seeds, n_steps = [0.0, 0.9, 1.0], [10.0**-3, 0.1, 0.3], [2, 49], steps(100)
    results = run_sweep(problem, features, algorithm, lmbdas=lmbdas, alphas=alphas, run_seeds=seeds, n_steps=n_steps)
    for run, i, j in ((0, 0, 0), (1, 1, 1), (0, 2, 1), (1, 2, 2)):
        pair = lmbdas[i], alphas[j], seeds[run]
        expected = naive.sweep_entry(problem, features, algorithm, *pair, n_steps=n_steps)
        assert_close(results[run, i, j], expected, "sweep_td", err_msg=f"{pair}")


@compiled_only
def test_check_values():
    grid = {"lmbdas": [0.0, 0.1], "alphas": [1e-3], "run_seeds": [1]}
    errors = run_sweep("deterministic", "normal", "true_online_td", **grid)
    assert_close(errors.ravel(), [1.0023869926, 1.0014221751], "check_value")


@pytest.mark.parametrize("algorithm", [*VARIANTS, *TD])
def test_another_problem_seed_and_a_run_of_one_step(algorithm):
    for seed, n_steps in ((7, steps(50)), (1000, 1)):
        pair = {"lmbdas": [0.7], "alphas": [0.25], "run_seeds": [3], "n_steps": n_steps, "mrp_seed": seed}
        errors = run_sweep("large", "normal", algorithm, **pair)
        expected = naive.sweep_entry("large", "normal", algorithm, 0.7, 0.25, 3, n_steps=n_steps, mrp_seed=seed)
        assert_close(errors[0, 0, 0], expected, TOLERANCE[algorithm])


def test_defaults_are_the_protocol_of_the_paper():
    np.testing.assert_array_equal(protocol.LMBDAS[:10], np.arange(10) / 10)
    np.testing.assert_array_equal(protocol.LMBDAS[10:], np.arange(91, 101) / 100)
    np.testing.assert_array_equal(protocol.ALPHAS, [2.0**power for power in range(-8, 9)])
    expected = [10 ** (-3 + 0.2 * i) for i in range(10)] + [0.1 * i for i in range(1, 21)]
    assert_close(protocol.STEP_SIZES, expected, "sums")
    results = run_sweep("small", "tabular", ["td", "mixed"], run_seeds=[1], n_steps=2)
    assert {name: array.shape for name, array in results.items()} == {"td": (1, 20, 30), "mixed": (1, 20, 17)}
    explicit = {"lmbdas": protocol.LMBDAS, "run_seeds": [1], "n_steps": 2, "mrp_seed": 1000}
    np.testing.assert_array_equal(
        results["td"], run_sweep("small", "tabular", "td", alphas=protocol.STEP_SIZES, **explicit)
    )
    np.testing.assert_array_equal(
        results["mixed"], run_sweep("small", "tabular", "mixed", alphas=protocol.ALPHAS, **explicit)
    )


@compiled_only
def test_default_runs_and_steps():
    errors = run_sweep("small", "normal", "boyan", lmbdas=[0.9], alphas=[1.0])
    assert errors.shape == (50, 1, 1)
    for run in (0, 49):
        assert_close(errors[run, 0, 0], naive.sweep_entry("small", "normal", "boyan", 0.9, 1.0, run + 1), "sweep")
    walk = RandomWalk()
    own = {"lmbdas": [0.9], "alphas": [1.0], "run_seeds": [1]}
    np.testing.assert_array_equal(
        run_sweep(walk, "tabular", "boyan", **own), run_sweep(walk, "tabular", "boyan", n_steps=1000, **own)
    )


# ---------------------------------------------------------------- models and features of the user's own


def permuted(k):
    return np.eye(k)[np.random.RandomState(k).permutation(k)]


def noisy_start():
    random = np.random.RandomState(4)
    P = 0.9 * random.dirichlet(np.ones(6), 6)  # every step ends with chance 0.1
    reward = random.normal(size=(6, 6))
    options = {"reward_std": 0.5, "start": random.dirichlet(np.ones(6)), "termination_reward": random.normal(size=6)}
    return MRP(P, reward, gamma=0.95, **options)


def with_transient_states():
    P = np.zeros((30, 30))
    P[np.arange(29), np.arange(1, 30)] = 1.0
    P[29, 25] = 1.0  # states 0 … 24 are passed once, then a cycle of five
    return MRP(P, np.outer(np.arange(30.0), np.ones(30)), gamma=0.9)


OWN = {
    "Boyan's chain": (BoyanChain(), BoyanChain().interpolating_features),
    "Boyan's chain, tabular": (BoyanChain(29), np.eye(29)),
    "random walk": (RandomWalk(), np.eye(19)),
    "random start": (noisy_start(), np.random.RandomState(2).normal(size=(6, 3))),
    "one-hot": (RandomMRP(40, 3, 0.1, 7), np.eye(40)),
    "one-hot, permuted": (RandomMRP(30, 3, 0.1, 7), permuted(30)),
    "aggregated states": (RandomMRP(30, 3, 0.1, 7), np.repeat(np.eye(6), 5, axis=0)),
    "a column of zeros": (RandomMRP(12, 3, 0.1, 7), np.eye(12)[:, :6] * [0, 1, 2, 3, 4, 5]),
    "transient states": (with_transient_states(), np.eye(30)),
    "one feature": (RandomMRP(12, 3, 0.1, 7), np.arange(1.0, 13.0)[:, None] / 12),
}


@pytest.mark.parametrize("case", OWN)
def test_own_model_and_features(case):
    model, features = OWN[case]
    lmbdas, n_steps = [0.0, 0.8, 1.0], steps(35)
    options = {"lmbdas": lmbdas, "run_seeds": [6], "n_steps": n_steps}
    lstd = run_sweep(model, features, list(VARIANTS), alphas=[0.1, 10.0], **options)
    td = run_sweep(model, features, list(TD), alphas=[0.02, 0.1], **options)
    for algorithm, errors in {**lstd, **td}.items():
        alphas = [0.1, 10.0] if algorithm in VARIANTS else [0.02, 0.1]
        for i, j in ((1, 0), (2, 1)):
            expected = expected_entry(model, features, algorithm, lmbdas[i], alphas[j], 6, n_steps)
            assert_close(errors[0, i, j], expected, TOLERANCE[algorithm], err_msg=f"{algorithm} {lmbdas[i]}")


@pytest.mark.parametrize(
    ("k", "features", "chosen"),
    [(23, np.eye(23), "dense"), (24, np.eye(24), "onehot"), (24, permuted(24), "dense"), (24, 2 * np.eye(24), "dense")],
)
def test_one_hot_kernel_is_for_many_unit_vectors_in_order(monkeypatch, k, features, chosen):
    used = []
    for name in ("dense", "onehot"):
        kernel = getattr(sweep_module, f"lstd_{name}")
        spy = lambda *arguments, name=name, kernel=kernel: (used.append(name), kernel(*arguments))  # noqa: E731
        monkeypatch.setattr(sweep_module, f"lstd_{name}", spy)
    pair = {"lmbdas": [0.5], "alphas": [1.0], "run_seeds": [1], "n_steps": 3}
    run_sweep(RandomMRP(k, 2, 0.1, 1), features, "mixed", **pair)
    assert set(used) == {chosen}


# ---------------------------------------------------------------- the same bits in any company

COMPANY = [("small", "tabular"), ("small", "normal"), ("large", "tabular"), ("deterministic", "binary")]


@pytest.mark.parametrize("algorithm", ["boyan", "true_online_td"])
@pytest.mark.parametrize(("problem", "features"), COMPANY)
def test_same_bits_for_any_number_of_threads_and_runs(problem, features, algorithm):
    options, seeds = {"n_steps": steps(100)}, [4, 9, 1]
    one = run_sweep(problem, features, algorithm, run_seeds=seeds, n_jobs=1, **options)
    for n_jobs in (2, 3):
        np.testing.assert_array_equal(
            run_sweep(problem, features, algorithm, run_seeds=seeds, n_jobs=n_jobs, **options), one
        )
    alone = run_sweep(problem, features, algorithm, run_seeds=[9], **options)
    np.testing.assert_array_equal(alone[0], one[1])


@pytest.mark.parametrize("algorithm", ["uncorrected", "td"])
@pytest.mark.parametrize(("problem", "features"), COMPANY)
def test_same_bits_for_a_pair_alone(problem, features, algorithm):
    default = protocol.STEP_SIZES if algorithm in TD else protocol.ALPHAS
    run = {"run_seeds": [3], "n_steps": steps(100)}
    grid = run_sweep(problem, features, algorithm, **run)
    for i, j in ((0, 0), (3, 5), (12, 1), (19, 16)):
        alone = run_sweep(problem, features, algorithm, lmbdas=[protocol.LMBDAS[i]], alphas=[default[j]], **run)
        np.testing.assert_array_equal(alone[0, 0, 0], grid[0, i, j])


@compiled_only
@pytest.mark.parametrize("algorithm", ["td", "td_replacing"])
def test_divergence_is_infinite_and_touches_nothing_else(algorithm):
    runs = {"lmbdas": [0.5, 1.0], "run_seeds": [1, 2]}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        calm = run_sweep("large", "binary", algorithm, alphas=[1e-3, 0.01, 0.02], **runs)
        wild = run_sweep("large", "binary", algorithm, alphas=[1e-3, 50.0, 0.02], **runs)
    assert np.isfinite(calm).all()
    assert (wild[:, :, 1] == np.inf).all()
    np.testing.assert_array_equal(wild[:, :, [0, 2]], calm[:, :, [0, 2]])


# ---------------------------------------------------------------- progress and errors


def test_progress_is_reported_in_the_calling_thread():
    calls = []
    run_sweep(
        "small", "tabular", ["boyan", "td"], run_seeds=[1, 2, 3], n_steps=2, n_jobs=2,
        progress=lambda done, total: calls.append((done, total, threading.current_thread())),
    )  # fmt: skip
    total = calls[0][1]
    assert total >= 6
    assert calls == [(done, total, threading.current_thread()) for done in range(1, total + 1)]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_error_in_progress_stops_the_sweep(monkeypatch, error):
    """What had not begun is left: all runs but the first wait until the pool has been shut down."""
    calls, solved, left, begun = [], [], threading.Event(), threading.Lock()

    class Pool(ThreadPoolExecutor):
        def shutdown(self, wait=True, **options):
            if wait:
                left.set()
            super().shutdown(wait, **options)
            left.set()

    def solve(phi, *arguments):
        pairs = arguments[-1].shape[1]
        assert not pairs or begun.acquire(blocking=False) or left.wait(300)
        solved.append(pairs)

    def stop(done, total):
        calls.append(done)
        raise error

    monkeypatch.setattr(sweep_module, "ThreadPoolExecutor", Pool)
    monkeypatch.setattr(sweep_module, "lstd_dense", solve)
    before = threading.active_count()
    with pytest.raises(error):
        run_sweep("small", "tabular", "boyan", run_seeds=range(200), n_steps=2, n_jobs=2, progress=stop)
    assert calls == [1]
    assert 2 <= len(solved) <= 4  # without pairs it is compiled; one run ends, and up to two have begun
    assert threading.active_count() == before


SMALL = ("small", "tabular", "boyan")
WALK = RandomWalk(3)
BAD = {
    "problem": (("huge", "tabular", "boyan"), {}, "problem", "'huge'"),
    "no values": ((MRP(np.eye(2), np.zeros((2, 2))), "tabular", "boyan"), {}, "problem", "zero"),
    "gamma": ((MRP(np.eye(2), np.ones((2, 2)), gamma=1.0), "tabular", "boyan"), {}, "gamma", "1"),
    "features missing": (("small", None, "boyan"), {}, "features", r"\(\)"),
    "features of a walk": ((WALK, "normal", "boyan"), {}, "features", "RandomWalk"),
    "features rows": (("small", np.eye(9), "boyan"), {}, "features", r"\(9, 9\)"),
    "features zero": ((WALK, np.zeros((3, 2)), "boyan"), {}, "(problem|features)", "zero"),
    "algorithm": (("small", "tabular", "lstd"), {}, "algorithm", "'lstd'"),
    "algorithm twice": (("small", "tabular", ["boyan", "boyan"]), {}, "algorithm", "once"),
    "algorithm empty": (("small", "tabular", []), {}, "algorithm", "none"),
    "lmbda large": (SMALL, {"lmbdas": [0.5, 1.3]}, r"lmbdas\[1\]", "1.3"),
    "alpha zero": (SMALL, {"alphas": [1.0, 0.0]}, r"alphas\[1\]", "0"),
    "step size zero": (("small", "tabular", "td"), {"alphas": [0.0]}, r"alphas\[0\]", "0"),
    "alphas empty": (SMALL, {"alphas": []}, "alphas", r"\(0,\)"),
    "no seeds": (SMALL, {"run_seeds": []}, "run_seeds", "none"),
    "seed negative": (SMALL, {"run_seeds": [1, -1]}, r"run_seeds\[1\]", "-1"),
    "problem seed": (SMALL, {"mrp_seed": -1}, "mrp_seed", "-1"),
    "no steps": (SMALL, {"n_steps": 0}, "n_steps", "0"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_named(case):
    arguments, options, argument, found = BAD[case]
    with pytest.raises(InvalidInputError, match=rf"(?s)^`{argument}` .*{found}"):
        run_sweep(*arguments, **{"n_steps": 2, "run_seeds": [1], **options})


def test_a_small_alpha_beside_the_features_gives_a_warning():
    grid = {"lmbdas": [0.5], "run_seeds": [1], "n_steps": 5}
    with pytest.warns(IllConditionedWarning, match=r"`alphas` has 1e-12 .* at least 2e-08"):
        run_sweep("small", "tabular", "boyan", alphas=[1.0, 1e-12], **grid)
    with pytest.warns(IllConditionedWarning, match="squared length up to 1e"):
        run_sweep("small", 1e6 * np.eye(10), "mixed", alphas=[1.0], **grid)
    run_sweep("small", "tabular", "boyan", alphas=[1e-7], **grid)
    run_sweep("small", "tabular", "true_online_td", alphas=[1e-12], **grid)


def test_values_that_are_zero_but_for_rounding_are_refused():
    model = MRP(np.full((3, 3), 1 / 3), np.ones((3, 3)))  # every value is 100, of which the feature fits nothing
    with pytest.raises(InvalidInputError, match="not all zero"):
        run_sweep(model, [[1.0], [1.0], [-2.0]], "boyan", n_steps=5)
