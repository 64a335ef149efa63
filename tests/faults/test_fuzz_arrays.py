"""Arguments changed at random: each call ends in a finite result or in an error that is meant for users.

Meant for users are the errors of `lstd.errors`, and what scikit-learn's `validate_data` says of `X` and of what is not
fitted yet: its messages are part of the contract of its estimators, which `check_estimator` asks for word by word.
Warnings are errors here, as everywhere, but for our own and two of scikit-learn's.
"""

import pickle
import traceback
import warnings
from functools import cache

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.exceptions import NotFittedError, UndefinedMetricWarning

from fuzz_arguments import BREAKS, N, Unreadable, broken_sparse, mutated, scalar, valid
from lstd import LSTD, LSTDCV, TD, HorizonLSTD, LSTDStatistics, RecursiveLSTD, Trajectories, TrueOnlineTD
from lstd.errors import InvalidInputError, LSTDError, LSTDWarning
from lstd.metrics import backtest
from lstd.ope import evaluate_policy

CASES = 60


def is_for_users(error):
    if isinstance(error, (LSTDError, NotFittedError)):
        return True
    frames = traceback.extract_tb(error.__traceback__)
    by_scikit_learn = any(frame.name == "validate_data" and "sklearn" in frame.filename for frame in frames)
    return by_scikit_learn and type(error) in (ValueError, TypeError)


def attempt(call, done):
    """The result of a call, or None when it ends in an error that is meant for users."""
    try:
        with warnings.catch_warnings():
            for expected in (LSTDWarning, UndefinedMetricWarning):
                warnings.simplefilter("ignore", expected)
            warnings.filterwarnings("ignore", "X (does not have valid|has) feature names", UserWarning)
            return (call(),)
    except Exception as error:
        if not is_for_users(error):
            pytest.fail(f"{done}: {''.join(traceback.format_exception(error))}")
        return None


def state(model):
    """What a fitted estimator knows, but for what it works out from that when asked."""
    s = model.statistics_
    kept = {name: value for name, value in vars(model).items() if name not in ("model_",)}
    return pickle.dumps((kept, s, model.coef_, model.intercept_))


def learned(model):
    """What an online estimator has learned, and not what it has warned of or compiled."""
    known = model.snapshot() if isinstance(model, RecursiveLSTD) else vars(model)
    return pickle.dumps({name: value for name, value in known.items() if name not in ("warned", "_warned", "_typed")})


def check_model(model, done):
    """Weights and sums are numbers; or reading the weights says why there are none."""
    found = attempt(lambda: model.coef_, done)
    if found is not None:
        assert np.isfinite(found[0]).all(), done
        assert np.isfinite(model.intercept_).all(), done
    for name in ("A", "B", "b", "trace"):
        assert np.isfinite(getattr(model.statistics_, name)).all(), (done, name)


def options(rng):
    return {
        "gamma": float(rng.choice([0.0, 0.9, 1.0])),
        "lmbda": float(rng.choice([0.0, 0.7, 1.0])),
        "alpha": float(rng.choice([0.0, 1.0])),
        "variant": str(rng.choice(["boyan", "uncorrected", "mixed"])),
        "fit_intercept": bool(rng.integers(2)),
    }


def fitted(rng):
    data = {**valid(rng, 30), "episode": np.repeat(np.arange(5), 6), "terminated": np.arange(30) % 6 == 5}
    data.pop("X_next", None)
    found = attempt(lambda: LSTD(**{**options(rng), "alpha": 1.0}).fit(**data), "a fit to sound data")
    return found[0]


def test_fit():
    rng = np.random.default_rng(1)
    for case in range(CASES):
        model = fitted(rng) if case % 4 == 0 else LSTD()
        model.set_params(**options(rng))
        arguments, done = mutated(rng, valid(rng, groups=True))
        done = f"case {case}, {model}, {done}"
        before = state(model) if hasattr(model, "model_") else pickle.dumps(vars(model))
        if attempt(lambda: model.fit(**arguments), done) is not None:  # noqa: B023
            check_model(model, done)
        else:
            after = state(model) if hasattr(model, "model_") else pickle.dumps(vars(model))
            assert after == before, done


def row_of(rng):
    """Features of one row, whole or changed."""
    x = rng.normal(size=N)
    if rng.random() < 0.5:
        return x
    kinds = ("array", "pair", "scalar", "sparse")
    kind = kinds[int(rng.integers(len(kinds)))]
    if kind == "scalar":
        return scalar(rng)
    if kind == "pair":
        changed, _ = mutated(rng, {"indices": np.arange(N), "values": x})
        return tuple(changed.values())
    changed, _ = mutated(rng, {"x": x if kind == "array" else x[np.newaxis]})
    return changed["x"]


def told(value):
    """As `repr`, which fails for broken sparse matrices."""
    try:
        return repr(value)
    except Exception:
        return object.__repr__(value)


def test_partial_fit():
    rng = np.random.default_rng(2)
    for case in range(CASES):
        if case % 10 == 0:
            model = fitted(rng)
        arguments, done = mutated(rng, valid(rng, groups=True))
        done = f"case {case}, {model}, {done}"
        before = state(model)
        if attempt(lambda: model.partial_fit(**arguments), done) is None:  # noqa: B023
            assert state(model) == before, done
            continue
        check_model(model, done)
        if attempt(lambda: model.coef_, done) is None:  # noqa: B023
            model = fitted(rng)


def test_updates():
    rng = np.random.default_rng(7)
    for maker in (RecursiveLSTD, TD):
        model = maker(N, gamma=0.9, lmbda=0.7)
        for case in range(2 * CASES):
            x, x_next = row_of(rng), row_of(rng)
            rest = {"reward": 1.0, "terminated": False, "discount": 0.5, "importance_ratio": 1.0}
            for name in rest:
                if rng.random() < 0.15:
                    rest[name] = scalar(rng)
            done = f"case {case}, {model}, {told(x)}, {told(x_next)}, {rest}"
            before = learned(model)
            if attempt(lambda: model.update(x, x_next=x_next, **rest), done) is None:  # noqa: B023
                assert learned(model) == before, done
            elif (weights := attempt(lambda: model.weights, done)) is not None:  # noqa: B023
                assert np.isfinite(weights[0]).all(), done
            predicted = attempt(lambda: model.predict(x), done)  # noqa: B023
            assert predicted is None or np.isfinite(predicted[0]).all(), done


# What such cases have shown once, word for word


@pytest.mark.parametrize(("kind", "part"), BREAKS)
def test_broken_sparse_matrix(kind, part):
    """SciPy fails from inside then, or reads and writes foreign memory."""
    dense, y = np.random.default_rng(0).normal(size=(12, N)), np.ones(12)
    options = {"gamma": 0.9, "lmbda": 0.5}
    for name, call in {
        "X": lambda X: TD(N).partial_fit(X, y),
        " X": lambda X: TrueOnlineTD(N).partial_fit(X, y),
        "X ": lambda X: LSTDStatistics.from_arrays(X, y, **options),
        " X ": lambda X: LSTD().fit(X, y),
        "X_next": lambda X: LSTD().fit(dense, y, X_next=X),
        "x": lambda X: RecursiveLSTD(N).predict(X),
    }.items():
        with pytest.raises(InvalidInputError, match=f"`{name.strip()}` must be a sparse matrix whose indices lie with"):
            call(broken_sparse(dense, kind, part))


@pytest.mark.parametrize("maker", [RecursiveLSTD, TD, TrueOnlineTD])
@pytest.mark.parametrize("part", ["float indices", "unsigned indices", "short data", "short indptr", "indptr beyond"])
def test_broken_sparse_row(maker, part):
    """Between two sparse rows, which kernels take as they are."""
    row = np.ones((1, N))
    for rows in ((0, 1), (1, 0)):
        model = maker(N)
        pair = [broken_sparse(row, "csr", part), sparse.csr_array(row)]
        with pytest.raises(InvalidInputError, match=r"`x(_next)?` must be a sparse matrix whose indices lie within"):
            model.update(pair[rows[0]], 1.0, pair[rows[1]])
        assert model.n_updates == 0


X, Y = np.random.default_rng(0).normal(size=(2, 40, N))


@cache
def sound():
    """A model, fitted when a test asks for it: the kernel takes a second to compile."""
    return LSTD(gamma=0.5).fit(X, 100.0 * Y[:, 0])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: LSTD().fit(X, Y, X_next=[[1.0]] * 39 + [[]]), "`X_next` must be an array of real numbers"),
        (lambda: LSTD().fit(pd.DataFrame(X, columns=list("aab")), Y), "`X` must have columns of different names; got"),
        (lambda: LSTD().fit(X, Y, discount=[10**400] * 40), "`discount` must be finite in float64, below 1e308"),
        (
            lambda: LSTD().fit(X, Y, episode=ids_with_an_array()),
            "`episode` must have an id on every row; row .* is of type ndarray, which cannot be an id",
        ),
        (
            lambda: LSTD().fit(np.array([[10**400]] * 40), Y),
            "`X` must be finite in float64, below 1e308 in absolute value",
        ),
        (lambda: LSTD().fit(X, Y, episode=np.zeros(40, "i,i")), "`episode` must be a vector of ids, not of records"),
        (lambda: TD(N).update(np.ma.zeros(N, "?,?"), 1.0, X[0]), "`x` must be an array of real numbers"),
        (lambda: sound().score(1e200 * X, Y[:, 0]), "squares of returns or of errors must not be beyond"),
        (lambda: LSTDCV(n_jobs=10**9).fit(X, Y), r"`n_jobs` must be in \[-1024, 1024\]; got 1000000000"),
        (
            lambda: sound().score(X, Y[:, 0], np.zeros(40)),
            "`sample_weight` must be above 0 for some row that is scored",
        ),
        (
            lambda: sound().predict(np.full((1, N), 1.7e308) * np.sign(sound().coef_)),
            "`X` must not be so large that predictions overflow",
        ),
        (lambda: RecursiveLSTD(N).predict([[1.0], []]), "`x` must be an array of real numbers"),
        (lambda: TD(N).update(([[0], []], [1.0, 2.0]), 1.0, X[0]), r"`x\[0\]` must be an array of real numbers"),
        (lambda: sound().predict(X, np.ones(2)), r"`return_std` must be True or False; got ndarray of shape \(2,\)"),
        (lambda: sound().predict(X, return_std=pd.NA), "`return_std` must be True or False; got <NA>"),
        (lambda: RecursiveLSTD(10**7), r"`n_features` must be so small .* needs 1.49e\+6 GiB. Select or hash"),
        (
            lambda: LSTD().fit(Unreadable(X), Y),
            "`X` must be an array of real numbers; NumPy makes no array of this Unreadable: cannot be read",
        ),
    ],
)
def test_message(call, message):
    with pytest.raises(InvalidInputError, match=message):
        call()


def ids_with_an_array():
    ids = np.array([0] * 39 + [None], dtype=object)
    ids[-1] = np.array([1, 2])
    return ids


@pytest.mark.parametrize("size", [1e-300, 1e153, 1e154])
@pytest.mark.parametrize("of", ["X", "y", "both", "one feature", "opposite"])
def test_data_of_any_size_gives_finite_results_or_our_errors(size, of):
    random = np.random.default_rng(0)
    X, y = random.normal(size=(120, 2)), random.normal(size=120)
    if of != "y":
        X = X * ([size, 1.0] if of == "one feature" else size)
    if of in ("y", "both", "opposite"):
        y = y / size if of == "opposite" else y * size
    ends = {"episode": np.arange(120) // 10, "terminated": np.arange(120) % 10 == 9}
    model = LSTD(gamma=0.9, lmbda=0.5, alpha=1e-3)
    done = (size, of)
    if attempt(lambda: model.fit(X, y, **ends), done) is None:
        model.fit(np.clip(X, -1.0, 1.0), np.clip(y, -1.0, 1.0), **ends)
    of_steps = HorizonLSTD(3, gamma=0.9, lmbda=0.5)
    if attempt(lambda: of_steps.fit(X, y, **ends), done) is None:
        of_steps.fit(np.clip(X, -1.0, 1.0), np.clip(y, -1.0, 1.0), **ends)
    for call in (
        lambda: of_steps.predict(X, return_std=True),
        lambda: of_steps.predict_interval(X, of="return").upper,
        lambda: of_steps.predict_interval(X, of="return", weights=np.ones(120)).degrees_of_freedom,
        lambda: of_steps.score(X, y, **ends),
        lambda: of_steps.bias_check(X, y, **ends).p_value,
        lambda: of_steps.misfit_check(X, y, **ends).p_value,
        lambda: HorizonLSTD(3, lmbda="auto", alpha="auto").fit(X, y, **ends).coef_,
        lambda: HorizonLSTD(3, alpha=size, penalty="raw", fit_intercept=False).fit(X, y, **ends).coef_,
        lambda: model.predict(X, return_std=True),
        lambda: model.coef_covariance_,
        lambda: model.predict_interval(X).upper,
        lambda: model.score(X, y, **ends),
        lambda: model.bias_check(X, y, **ends).p_value,
        lambda: LSTDCV(gamma=0.9, lmbdas=[0.5, 0.9], n_blocks=0).fit(X, y, **ends).coef_,
        lambda: LSTDCV(gamma=0.9, lmbdas=[0.5], alphas=[1e-3, 1.0], n_blocks=0).fit(X, y).coef_,
    ):
        found = attempt(call, done)
        assert found is None or np.isfinite(found[0]).all()


@pytest.mark.filterwarnings("ignore::lstd.errors.LSTDWarning")
@pytest.mark.parametrize("size", [1e-140, 1e-80, 1e80, 1e150])
def test_the_unit_of_rewards_makes_no_difference(size):
    """Each square of a square is in range then, as are squares; the log has what all of the checks look for."""
    random = np.random.default_rng(3)
    lengths = random.integers(8, 25, 60)
    episode = np.repeat(np.arange(60), lengths)
    T = len(episode)
    X = random.normal(size=(T, 2))
    y = X @ [1.0, 0.5] + X[:, 0] ** 2 + random.gamma(1.0, size=60)[episode] + random.normal(size=T)
    last = np.append(np.diff(episode) > 0, True)
    ends = {"episode": episode, "terminated": last & (random.random(T) < 0.5)}
    results = []
    for unit in (1.0, size):
        model = HorizonLSTD(5).fit(X, unit * y, **ends)
        of_rows = model.predict_interval(X[:5], of="return")
        total = model.predict_interval(X, of="return", weights=np.ones(T))
        found = [model.model_.held_out.score, model.misfit_check_.p_value, model.bias_check_.p_value]
        found += [*model.model_.naive.ratio, *model.model_.naive.p_value]
        found += [*of_rows.standard_error / unit, *of_rows.degrees_of_freedom, *of_rows.upper / unit]
        results.append([*found, total.standard_error / unit, total.degrees_of_freedom, total.lower / unit])
    np.testing.assert_allclose(results[1], results[0], rtol=1e-6)


@pytest.mark.parametrize("method", ["fit", "partial_fit", "misfit_check"])
def test_no_rows_with_times(method):
    model = HorizonLSTD(2)
    nothing = {"X": np.empty((0, N)), "y": np.empty(0), "time": np.empty(0)}
    if method == "partial_fit":
        assert model.partial_fit(**nothing).n_transitions_ == 0
        return
    if method == "misfit_check":
        model.fit(X, Y[:, 0])
    with pytest.raises(InvalidInputError, match=r"`X` must hold a full transition|needs at least 10 episodes"):
        getattr(model, method)(**nothing)


@pytest.mark.parametrize("times", [[-1e308, 1e308, 1.5e308], [0.0, 1e-320, 1e308], [2**63, 2**63 + 1, 2**63 + 2]])
def test_times_of_any_size(times):
    with pytest.raises(InvalidInputError, match=r"Steps must be equal|`time` must increase"):
        HorizonLSTD(2).fit(X[:3], Y[:3, 0], time=np.array(times))


@pytest.mark.usefixtures("few_trees")
@pytest.mark.filterwarnings("ignore::lstd.errors.LSTDWarning")
@pytest.mark.parametrize("size", [1e-310, 1e-170, 1e30, 1e39, 1e150, 1e300])
@pytest.mark.parametrize("of", ["X", "y"])
def test_a_policy_of_data_of_any_size(size, of):
    random = np.random.default_rng(0)
    actions = random.integers(2, size=120)
    log = {"X": random.integers(2, size=(120, 2)) * 1.0, "y": random.normal(size=120)}
    log[of] = np.sign(log[of]) * size
    known = {"target_policy": np.full((120, 2), [0.2, 0.8]), "behavior_probability": np.full(120, 0.5)}
    ends = {"episode": np.arange(120) // 3, "terminated": np.arange(120) % 3 == 2}
    found = attempt(lambda: evaluate_policy(**log, gamma=0.9, actions=actions, **known, **ends), (of, size))
    if found is not None:
        assert np.isfinite([found[0].value, found[0].standard_error, found[0].hidden.z]).all()
    elif size > 1.0:
        with pytest.raises(InvalidInputError, match=rf"`{of}` must be at most 1e\+3[08] in absolute value, as trees"):
            evaluate_policy(**log, gamma=0.9, actions=actions, **known, **ends)


@pytest.mark.parametrize(("kind", "part"), BREAKS)
def test_trajectories_of_a_broken_sparse_matrix(kind, part):
    broken = broken_sparse(np.random.default_rng(0).normal(size=(12, N)), kind, part)
    with pytest.raises(InvalidInputError, match="`X` must be a sparse matrix whose indices lie within"):
        Trajectories(broken, np.ones(12))
    log = {"X": np.ones((12, 1)), "y": np.ones(12), "actions": np.zeros(12, int), "gamma": 0.5}
    with pytest.raises(InvalidInputError, match="`target_policy` must be a sparse matrix whose indices lie within"):
        evaluate_policy(**log, target_policy=broken, behavior_probability=np.ones(12))


@pytest.mark.parametrize("kind", ["csr", "csc", "bsr", "coo", "dia", "dok", "lil"])
def test_times_in_a_sparse_matrix(kind):
    times = sparse.csr_array(np.arange(40.0)[:, np.newaxis]).asformat(kind)
    with pytest.raises(InvalidInputError, match="`time` must hold numbers or dates; it is a sparse matrix"):
        HorizonLSTD(2).fit(X, Y[:, 0], time=times)


_DAYS = np.datetime64("2024-01-01") + np.arange(80) * np.timedelta64(1, "D")
_CUTS = [20, [20.5, 30], "2024-01-20", np.datetime64("2024-01-20"), pd.Timestamp("2024-01-20"), pd.Timedelta("20D")]
_CUTS += [pd.Series(cut) for cut in _CUTS]


@pytest.mark.filterwarnings("ignore::lstd.errors.LSTDWarning")
@pytest.mark.parametrize("time", [np.arange(80), np.arange(80.0), _DAYS, _DAYS.astype(str), _DAYS - _DAYS[0]])
@pytest.mark.parametrize("cut", _CUTS, ids=str)
def test_times_of_any_type_and_a_cut_of_any_other(time, cut):
    rows = np.random.default_rng(0).normal(size=(80, 2))
    found = attempt(lambda: backtest(LSTD(0.5), rows, rows[:, 0], time=time, cut=cut, steps=3), (time.dtype, cut))
    if time.dtype.kind in "UM" and isinstance(cut, (str, np.datetime64, pd.Timestamp)):
        assert found[0].r2 == backtest(LSTD(0.5), rows, rows[:, 0], cut=19, steps=3).r2


@pytest.mark.filterwarnings("ignore::lstd.errors.LSTDWarning")
@pytest.mark.parametrize("model", [HorizonLSTD(2), LSTD(0.9)], ids=["horizons", "LSTD"])
@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_features_near_the_largest_float(model, weight):
    huge = np.where(X > 0.0, 1.7e308, -1.7e308)
    for rows in (huge, X * [1.0, 1e307, 1.0]):
        for fit in (model.fit, model.partial_fit):
            vars(model).pop("model_", None)
            if attempt(lambda: fit(rows, Y[:, 0], weight=np.full(40, weight)), fit) is not None:  # noqa: B023
                attempt(lambda: model.predict(rows), fit)  # noqa: B023


@pytest.mark.filterwarnings("ignore::lstd.errors.LSTDWarning")
@pytest.mark.parametrize("model", [HorizonLSTD(2, alpha=1e300, penalty="raw", check=False), LSTD(0.9, alpha=1e300)])
def test_a_huge_ridge_coefficient_of_huge_features(model):
    random = np.random.default_rng(0)
    rows = random.normal(size=(200, 3)) * [1.0, 1e30, 1e-30]
    model.fit(rows, random.normal(size=200))
    assert np.isfinite(model.coef_).all()


def test_a_misfit_whose_squares_overflow():
    log = {"X": np.zeros((400, 2)), "episode": np.arange(400) // 5, "terminated": np.arange(400) % 5 == 4}
    log["y"] = np.random.default_rng(0).normal(size=400) * 1e100
    log["importance_ratio"] = np.full(400, 1e60)
    model = LSTD(0.0, 0.0, alpha=1.0)
    if attempt(lambda: model.fit(**log), "fit") is not None:
        attempt(lambda: model.misfit_check(**log), "misfit")
