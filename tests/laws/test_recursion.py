"""RecursiveLSTD after every prefix of a stream is LSTD on the same transitions, forgetting and intervals included."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import naive
from lstd import LSTD, RecursiveLSTD
from online_streams import UNIT, VARIANTS, streams
from tolerances import assert_close

pytestmark = pytest.mark.filterwarnings("ignore::lstd.errors.LSTDWarning")  # successors and ratios are drawn at random


def arrays(stream):
    """The stream as the arguments of `fit`."""
    over = np.array([step.terminated or step.truncated for step in stream])
    return {
        "X": np.array([step.x for step in stream]), "y": np.array([step.reward for step in stream]),
        "X_next": np.array([step.x_next for step in stream]), "episode": np.cumsum(over) - over,
        "terminated": np.array([step.terminated for step in stream]),
        "discount": np.array([step.discount for step in stream]),
        "importance_ratio": np.array([step.ratio for step in stream]),
        "trace_coefficient": np.array([step.coefficient for step in stream]),
        "weight": np.array([step.weight for step in stream]),
    }  # fmt: skip


@settings(max_examples=15, deadline=None, derandomize=True)
@given(
    streams(most=60, widths=(1, 3), weighted=True), st.sampled_from(VARIANTS), UNIT,
    st.sampled_from([1.0, 0.99, 0.8]), st.sampled_from([1, 7, 4096]),
)  # fmt: skip
def test_each_prefix_is_the_batch_estimator(stream, variant, lmbda, forgetting, every):
    """The ridge is at least 1, so that condition numbers stay below 1e4."""
    n, rows = len(stream[0].x), arrays(stream)
    model = RecursiveLSTD(n, lmbda=lmbda, alpha=10.0, variant=variant, forgetting=forgetting, check_every=every)
    for t, step in enumerate(stream, start=1):
        step.feed(model)
        if t % 7 == 0 or t == len(stream):
            faded = {name: values[:t] for name, values in rows.items()}
            faded["weight"] = faded["weight"] * forgetting ** np.arange(t - 1, -1, -1.0)
            ridge = np.full(n, 10.0) if forgetting == 1.0 else naive.forgotten_ridge(np.full(n, 10.0), t, forgetting)
            for read in VARIANTS:
                batch = LSTD(lmbda=lmbda, alpha=ridge, variant=read, fit_intercept=False, n_blocks=0).fit(**faded)
                assert_close(model.weights_for(read), batch.coef_, "solve")


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("episodes", "m"), [(False, None), (True, 2)])
def test_standard_errors_are_those_of_the_batch_estimator(variant, episodes, m):
    """After any number of transitions, of any chunks."""
    random = np.random.default_rng(0)
    X, y = random.normal(size=(301, 3)), random.normal(size=(300,) if m is None else (300, m))
    over = (random.random(300) < 0.2) & episodes
    rows = {"episode": np.cumsum(over) - over, "terminated": over & (random.random(300) < 0.5)}
    model, first = RecursiveLSTD(3, 0.9, variant=variant, n_rewards=m, check_every=100), 0
    for stop in (64, 65, 200, 300):
        chunk = {name: values[first:stop] for name, values in rows.items()}
        model.partial_fit(X[first:stop], y[first:stop], X_next=X[first + 1 : stop + 1], **chunk)
        whole = {name: values[:stop] for name, values in rows.items()}
        batch = LSTD(0.9, variant=variant, fit_intercept=False).fit(X[:stop], y[:stop], X_next=X[1 : stop + 1], **whole)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = batch.predict(X[:4], return_std=True)
            one, other = model.predict_interval(X[0], 0.9), batch.predict_interval(X[:1], 0.9)
        for found, wanted in zip(model.predict(X[:4], return_std=True), expected, strict=True):
            assert_close(found, wanted, "solve")
        for name in ("lower", "upper", "degrees_of_freedom", "shift"):
            assert_close(getattr(one, name), getattr(other, name)[0], "solve")
        first = stop
