"""The choice of λ and α against its definition by refitting, and its invariances and limits."""

import re
import warnings
from dataclasses import replace
from itertools import count

import numpy as np
import pytest
from sklearn.base import clone

import lstd.estimators.pair_search as rule
import naive
from lstd import LSTD, LSTDCV
from lstd.data.check_rows import check_rows
from lstd.data.settings import Settings
from lstd.errors import InvalidInputError, NothingToChooseWarning, UnobservedWarning
from lstd.estimators.choose_settings import select
from lstd.metrics import observed_returns
from streams import Stream, definition
from tolerances import assert_close

pytestmark = [
    pytest.mark.filterwarnings(  # rewards are drawn at random
        *(f"ignore::lstd.errors.{what}Warning" for what in ("UnusedReward", "Bias", "Misfit", "Unobserved"))
    ),
    pytest.mark.usefixtures("few_pairs"),
]

GAMMA = 0.9
LMBDAS, ALPHAS = [0.0, 0.5, 0.9, 1.0], [0.1, 1.0, 10.0, 100.0]


def stream_of(seed=0, n_rows=60, n=3, episodes=0, m=None, every=2):
    """One stream, or episodes of which some terminate, every so many; values that a linear model can find."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(n_rows, n))
    X[1:] += 0.7 * X[:-1]
    y = X @ random.normal(size=(n,) if m is None else (n, m)) + random.normal(
        size=(n_rows,) if m is None else (n_rows, m)
    )
    if not episodes:
        return Stream(X, y, GAMMA, 0.0)
    length = n_rows // episodes
    last = np.arange(n_rows) % length == length - 1
    ends = np.arange(n_rows) // length % every == 0
    return Stream(X, y, GAMMA, 0.0, episode=np.arange(n_rows) // length, terminated=last & ends)


def rows_of(stream):
    return check_rows(stream.X, stream.y, gamma=GAMMA, warn=False, **stream.columns)


def chosen(rows, variant="boyan", **options):
    return select(rows, Settings(variant=variant, fit_intercept=False), **options)[0]


def folds_of(stream, count):
    """Rows of each fold, and rows that are full transitions."""
    T = len(stream)
    if len(stream.episodes) >= 5:
        starts = [episode.start for episode in stream.episodes]
        first = [starts[-(-k * len(starts) // count)] for k in range(count)]
    else:
        first = [k * T // count for k in range(count)]
    full = np.ones(T, dtype=bool)
    for episode in stream.episodes:
        full[episode.stop - 1] = stream.ended[episode.stop - 1]
    return [np.arange(a, b) for a, b in zip(first, [*first[1:], T], strict=True)], full


def weights_without(stream, fold, lmbda, variant, full):
    """Refitted with each alpha to what comes before the fold and what comes after it, as separate streams."""
    n = stream.X.shape[1]
    A, b, transitions = np.zeros((n, n)), 0.0, 0
    for part in (slice(0, fold[0]), slice(fold[-1] + 1, len(stream))):
        if part.start >= part.stop:
            continue
        A_part, b_part = definition(replace(stream[part], lmbda=lmbda), variant)
        A, b = A + A_part, b + b_part
        ends = stream[part].ended
        transitions += sum(
            episode.stop - episode.start - (not ends[episode.stop - 1]) for episode in stream[part].episodes
        )
    return [np.linalg.solve(A + alpha * transitions / full.sum() * penalty_of(stream, full), b) for alpha in ALPHAS]


def penalty_of(stream, full):
    """The diagonal matrix of the squared spreads of the features about zero."""
    return np.diag([naive.column_units(x, np.ones(len(x)), centred=False)[1] for x in stream.X[full].T])


def targets_of(stream, lmbda, w):
    """λ-returns of all rows, by the definition, one episode after the other; zero in horizon rows."""
    found = np.zeros(len(stream))
    for episode in stream.episodes:
        X, y = stream.X[episode], stream.y[episode]
        if stream.ended[episode][-1]:
            phi, discounts = np.vstack([X, np.zeros(X.shape[1])]), np.append(np.full(len(X), GAMMA), 0.0)
        else:
            phi, discounts, y = X, np.full(len(X), GAMMA), y[:-1]
        found[episode.start : episode.start + len(y)] = naive.reference_returns(phi, y, w, lmbda, discounts)
    return found


class ByDefinition:
    """Weights of all pairs from all data, (λ, α, n), and without each fold, (K, λ, α, n), all by refitting."""

    def __init__(self, stream, count, variant):
        self.stream = stream
        self.folds, self.full = folds_of(stream, count)
        outside = [[weights_without(stream, f, lmbda, variant, self.full) for lmbda in LMBDAS] for f in self.folds]
        self.outside = np.array(outside)[..., 0]
        penalty = penalty_of(stream, self.full)
        systems = [definition(replace(stream, lmbda=lmbda), variant) for lmbda in LMBDAS]
        self.weights = np.array(
            [[np.linalg.solve(A + alpha * penalty, b)[:, 0] for alpha in ALPHAS] for A, b in systems]
        )
        rows = stream.X[self.full]
        self.unit = naive.alpha_unit(rows, np.ones(self.full.sum()), penalty.diagonal(), centred=False)

    def nearest(self, lmbda):
        return LMBDAS.index(lmbda), int(np.argmin(np.abs(np.log(np.array(ALPHAS) / self.unit))))

    def squared(self, decay, pair):
        """Held-out squared errors on returns that a pair completes, (K, λ, α), and the variance of the returns."""
        G = targets_of(self.stream, decay, self.weights[pair])
        X, full = self.stream.X, self.full
        errors = [
            [[np.sum((G[f] - X[f] @ w)[full[f]] ** 2) for w in row] for row in weights]
            for f, weights in zip(self.folds, self.outside, strict=True)
        ]
        return np.array(errors), G[full].var()

    def scores(self, pair):
        squared, variance = self.squared(1.0, pair)
        counts = np.array([self.full[f].sum() for f in self.folds])
        return 1 - squared / counts[:, np.newaxis, np.newaxis] / variance

    def chosen_on_returns(self, stages):
        pair = self.nearest(0.9)
        for decay, caution in stages:
            squared, _ = self.squared(decay, pair)
            last = pair
            D = squared - squared[:, pair[0], pair[1]][:, np.newaxis, np.newaxis]
            cost = D.sum(axis=0) + caution * np.sqrt(len(D)) * D.std(axis=0, ddof=1)
            pair = least(cost)
        return pair, self.scores(last)

    def beside(self, reference):
        """D, C and the D without each fold, by `naive.beside_reference`."""
        _, variance = self.squared(1.0, reference)
        i, j = reference
        rows = self.stream.X[self.full]
        found = [
            [
                naive.beside_reference(
                    rows, self.weights[k, m], self.weights[i, j], self.outside[:, k, m], self.outside[:, i, j], variance
                )
                for m in range(len(ALPHAS))
            ]
            for k in range(len(LMBDAS))
        ]
        D, C, without = (np.array([[one[place] for one in row] for row in found]) for place in range(3))
        return D, C, without

    def chosen_beside_references(self):
        D, C, _ = self.beside(self.nearest(0.9))
        pair = least(D + 2 * C)
        D, C, without = self.beside(self.nearest(1.0))
        change = without - without[pair]
        n_folds = len(self.folds)
        deviation = change - change.mean(axis=-1, keepdims=True)
        error = np.sqrt((n_folds - 1) / n_folds * np.sum(deviation**2, axis=-1))
        lmbda, _ = least(D + C - (D + C)[pair] + 0.25 * error)
        pair = lmbda, int(np.argmin((D + 2 * C)[lmbda]))
        return pair, self.scores(pair)


def least(cost):
    i, j = np.unravel_index(np.argmin(cost), cost.shape)
    return int(i), int(j)


@pytest.mark.parametrize("variant", naive.VARIANTS)
@pytest.mark.parametrize(("episodes", "every"), [(0, 1), (10, 1), (10, 2), (10, 100)])
def test_it_is_the_choice_by_refitting(variant, episodes, every, monkeypatch):
    monkeypatch.setattr(rule, "STAGES", (0.8, 0.9, 1.0))  # so that rewards far away count, and all stages differ
    monkeypatch.setattr(rule, "FEW_COMPLETE", 0.15)  # one episode in ten ends
    stream = stream_of(1, episodes=episodes, every=every)
    found = chosen(rows_of(stream), lmbdas=LMBDAS, alphas=ALPHAS, variant=variant, cv=5)
    definition_of = ByDefinition(stream, 5, variant)
    if every == 100:
        assert found.results["observed_share"][0] < 0.75
        pair, scores = definition_of.chosen_beside_references()
    else:
        pair, scores = definition_of.chosen_on_returns([(0.8, 0.0), (0.9, 0.0), (1.0, 1.0 if episodes else 0.25)])
    assert (found.lmbda, found.alpha) == (LMBDAS[pair[0]], ALPHAS[pair[1]])
    for k, score in enumerate(scores):
        assert_close(found.results[f"split{k}_test_score"], score.reshape(-1), "solve")
    place = pair[0] * len(ALPHAS) + pair[1]
    assert found.results["rank_test_score"][place] == 1
    assert np.nanargmax(found.results["cautious_test_score"]) == place
    assert_close(found.score, found.results["mean_test_score"][place], "solve")


def test_the_number_of_jobs_makes_no_difference():
    rows = rows_of(stream_of(episodes=12))
    one, two = (chosen(rows, n_jobs=n_jobs) for n_jobs in (1, 2))
    assert (one.lmbda, one.alpha) == (two.lmbda, two.alpha)
    assert_close(two.results["mean_test_score"], one.results["mean_test_score"], "solve")


# ---------------------------------------------------------------- the estimator


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_it_is_lstd_with_the_pair_that_was_chosen(fit_intercept):
    stream = stream_of(episodes=12, m=2)
    model = LSTDCV(GAMMA, fit_intercept=fit_intercept).fit(stream.X, stream.y, **stream.columns)
    plain = LSTD(GAMMA, model.lmbda_, model.ridge_, fit_intercept=fit_intercept)
    plain.fit(stream.X, stream.y, **stream.columns)
    assert np.array_equal(model.coef_, plain.coef_)
    assert model.n_folds_ == 10
    one, two = model.predict_interval(stream.X), plain.predict_interval(stream.X)
    assert np.array_equal(one.upper, two.upper)
    assert model.best_score_ == model.cv_results_["mean_test_score"][model.cv_results_["rank_test_score"].argmin()]
    assert model.score(stream.X, stream.y, **stream.columns) == plain.score(stream.X, stream.y, **stream.columns)
    columns = {"gamma": GAMMA, "prediction": model.predict(stream.X), **stream.columns}
    assert_close(model.observed_share_, observed_returns(stream.y, **columns).share, "sums")


@pytest.mark.parametrize(("seconds", "lines"), [(0.0, 0), (4.0, 3)])
def test_a_slow_choice_reports_its_progress_where_somebody_looks_on(seconds, lines, capsys, monkeypatch):
    clock = count(0.0, seconds)
    monkeypatch.setattr("lstd.estimators.lstd_cv.monotonic", lambda: next(clock))
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    stream = stream_of()
    LSTDCV(GAMMA, np.linspace(0.0, 0.9, 8), ALPHAS).fit(stream.X, stream.y)
    assert len(capsys.readouterr().err.splitlines()) == lines


def test_a_fit_that_fails_leaves_a_model_as_it_was(capsys):
    stream = stream_of()
    model = LSTDCV(GAMMA, LMBDAS, ALPHAS, verbose=1).fit(stream.X, stream.y)
    assert capsys.readouterr().err.count("choosing lmbda and alpha") == 4
    before = model.coef_.copy()
    bad = stream.X.copy()
    bad[3, 1] = np.inf
    with pytest.raises(InvalidInputError, match="row 3 has inf in column 1"):
        model.fit(bad, stream.y)
    assert np.array_equal(model.coef_, before)
    assert not hasattr(clone(model), "coef_")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lmbdas": [0.5, 1.5]}, r"`lmbdas\[1\]` must be in \[0, 1\]; got 1.5"),
        ({"lmbdas": []}, "`lmbdas` must hold at least one"),
        ({"alphas": [-1.0]}, r"`alphas\[0\]` must be"),
        ({"cv": 1}, "`cv` must be at least 2"),
        ({"n_jobs": 0}, "`n_jobs` must be"),
    ],
)
def test_parameters_are_checked(options, message):
    stream = stream_of()
    with pytest.raises(InvalidInputError, match=message):
        LSTDCV(**options).fit(stream.X, stream.y)


# ---------------------------------------------------------------- limits


def test_too_few_transitions_are_an_error_and_two_will_do():
    stream = stream_of()
    with pytest.raises(InvalidInputError, match="at least two full transitions"):
        LSTDCV(GAMMA).fit(stream.X[:2], stream.y[:2])
    with pytest.raises(InvalidInputError, match="at least two full transitions"):
        LSTDCV(GAMMA).fit(stream.X, stream.y, episode=np.arange(60), terminated=np.zeros(60, bool))
    model = LSTDCV(GAMMA).fit(stream.X[:3], stream.y[:3])
    assert model.n_folds_ == 2
    assert np.isfinite(model.coef_).all()


def test_few_episodes_are_cut_into_folds_of_rows():
    stream = stream_of(episodes=3)
    model = LSTDCV(GAMMA).fit(stream.X, stream.y, **stream.columns)
    assert np.isfinite(model.coef_).all()
    many = stream_of(episodes=6)
    assert LSTDCV(GAMMA).fit(many.X, many.y, **many.columns).n_folds_ == 6


@pytest.mark.filterwarnings("ignore::lstd.errors.SupportWarning")  # of ratios of zero
@pytest.mark.parametrize("zero", ["features", "rewards", "ratios"])
def test_nothing_to_choose_by_is_said(zero):
    stream = stream_of(episodes=10)
    if zero == "ratios":
        stream = replace(stream, importance_ratio=np.zeros(60))
    X, y = stream.X * (zero != "features"), stream.y * (zero != "rewards")
    with pytest.warns(NothingToChooseWarning, match="nothing to choose by"):
        model = LSTDCV(GAMMA, fit_intercept=False).fit(X, y, **stream.columns)
    assert model.lmbda_ == 0.9
    assert not model.coef_.any()
    assert np.isfinite(model.cv_results_["mean_test_score"]).all()


@pytest.mark.parametrize("reward", [1.0, 0.1, 3.7, 1e-8, 1e9])  # some of the returns differ by rounding
def test_equal_returns_leave_nothing_to_choose_by(reward):
    X = np.random.default_rng(0).normal(size=(200, 2))
    with pytest.warns(NothingToChooseWarning, match="the returns are all the same"):
        model = LSTDCV(GAMMA).fit(X, np.full(200, reward), terminated=np.zeros(200, bool))
    assert model.lmbda_ == 0.9


def test_a_choice_of_alpha_alone_needs_a_penalty():
    stream = stream_of(episodes=10)
    with pytest.warns(NothingToChooseWarning, match="ratios or the penalties are all zero"):
        LSTDCV(GAMMA, lmbdas=[0.5], penalty=np.zeros(stream.X.shape[1])).fit(stream.X, stream.y, **stream.columns)


def test_an_intercept_at_gamma_1_needs_ends():
    stream = stream_of()
    with pytest.raises(InvalidInputError, match="`terminated` must be set for some row outside of each fold"):
        LSTDCV(1.0).fit(stream.X, stream.y)


def test_ill_conditioned_pairs_are_not_chosen():
    stream = stream_of(episodes=10)
    X = np.column_stack([stream.X, stream.X[:, 0]])
    with pytest.raises(InvalidInputError, match="`alphas` must hold a value with a well-conditioned system"):
        LSTDCV(GAMMA, alphas=[0.0]).fit(X, stream.y, **stream.columns)
    model = LSTDCV(GAMMA, alphas=[0.0, 1.0]).fit(X, stream.y, **stream.columns)
    assert model.alpha_ == 1.0
    singular = model.cv_results_["alpha"] == 0.0
    assert np.isnan(model.cv_results_["mean_test_score"][singular]).all()
    assert model.cv_results_["rank_test_score"][singular].min() == singular.sum() + 1


def test_targets_go_on_only_while_rows_follow_one_another():
    stream = stream_of(n_rows=200)
    order = np.arange(199)[::-1]
    model = LSTDCV(GAMMA, lmbdas=[0.0]).fit(stream.X[:-1][order], stream.y[:-1][order], X_next=stream.X[1:][order])
    assert_close(model.observed_share_, 1 - GAMMA, "sums")
    straight = LSTDCV(GAMMA, lmbdas=[0.0]).fit(stream.X[:-1], stream.y[:-1], X_next=stream.X[1:])
    assert_close(straight.observed_share_, 1 - np.mean(GAMMA ** np.arange(1, 200)), "sums")


@pytest.mark.filterwarnings("ignore::lstd.errors.LSTDWarning")
@pytest.mark.parametrize("gamma", [1.0, 0.98])
@pytest.mark.parametrize(("steps", "little"), [(5, True), (60, False)])
def test_mostly_cut_episodes_can_hardly_tell_what_is_best(gamma, steps, little):
    random = np.random.default_rng(0)
    lengths = random.geometric(0.1, 100)
    n_rows = np.minimum(lengths, steps)
    episode = np.repeat(np.arange(100), n_rows)
    terminated = np.zeros(len(episode), bool)
    terminated[np.cumsum(n_rows) - 1] = lengths <= steps
    X = random.normal(size=(len(episode), 2))
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always", UnobservedWarning)
        model = LSTDCV(gamma).fit(X, np.ones(len(X)), episode=episode, terminated=terminated)
    assert (model.observed_share_ < 0.5) is little
    assert [f"Only {100 * model.observed_share_:.2g} % of" in str(w.message) for w in given] == [True] * little
    best = model.cv_results_["rank_test_score"].argmin()
    scores = f"is {model.best_score_:.3g}, {model.cv_results_['observed_test_score'][best]:.3g} of the observed part"
    assert all(scores in str(w.message) for w in given)
    assert all("can hardly tell" in str(w.message) and w.category is UnobservedWarning for w in given)
    assert [str(w.message) for w in given] == ([model.summary().facts["doubt"]] if little else [])


def test_the_summary_says_that_the_choice_of_alpha_lies_at_the_end_of_the_grid():
    random = np.random.default_rng(0)
    X = random.normal(size=(80, 30))
    y = 3.0 * X[:, 0] + 2.0 * random.normal(size=80)
    for alphas, end in (([1e-9, 0.1], "largest"), ([1e4, 1e5], "least"), ([1e-9, 10.0, 1e6], ""), ([1.0], "")):
        fact = LSTDCV(0.5, lmbdas=[0.5], alphas=alphas).fit(X, y).summary().facts.get("choice of alpha", "")
        assert re.match(f"the ({end}) of the grid. Give `alphas`" if end else "$", fact)


def test_score_of_the_observed_part_has_its_variance():
    random, n, gamma = np.random.default_rng(3), 20, 0.9
    X, y = random.normal(size=(n * 6, 2)), random.normal(2.0, 1.0, size=n * 6)
    columns = {"episode": np.repeat(np.arange(n), 6), "terminated": np.arange(n * 6) % 12 == 5}
    model = LSTDCV(gamma, lmbdas=[0.5], alphas=[1.0]).fit(X, y, **columns)
    full = columns["terminated"] | (np.arange(n * 6) % 6 < 5)
    found = observed_returns(y, gamma=gamma, prediction=model.predict(X), **columns)
    seen = [sum(gamma**k * y[t + k] for k in range(n * 6) if full[t : t + k + 1].all() and t // 6 == (t + k) // 6)
            for t in range(n * 6)]  # fmt: skip
    error = (1.0 - model.best_score_) * found.returns[full].var()
    assert_close(model.cv_results_["observed_test_score"], [1.0 - error / np.array(seen)[full].var()], "solve")


def test_the_unit_of_weights_makes_no_difference_to_the_choice():
    """Also where weights are far below rounding of one: costs that count as ties are in their unit."""
    random = np.random.default_rng(0)
    X = random.normal(size=(1000, 5))
    y = X[:, 0] + random.normal(size=1000)
    columns = {"episode": np.arange(1000) // 5, "terminated": np.arange(1000) % 5 == 4}
    usual = LSTDCV(0.9, n_blocks=0).fit(X, y, **columns)
    for exponent in (-500, -50, -10, 400):
        unit = 2.0**exponent
        model = LSTDCV(0.9, n_blocks=0).fit(X, y, weight=np.full(1000, unit), **columns)
        assert (model.lmbda_, model.alpha_) == (usual.lmbda_, usual.alpha_ * unit)
        assert model.best_score_ == pytest.approx(usual.best_score_, rel=1e-9)
