"""How many purchases will each customer make in the next 39 weeks? CDNOW, 2357 customers, 39 weeks to train on.

The purchase histories of Fader and Hardie's 1/10 sample are read from the installed package `lifetimes` (pip install
lifetimes; it is not imported). A row is a customer's week. Its reward is the number of days with a repeat purchase in
the following week.

    python benchmarks/customer_value.py [--quick] [--figure PATH]

The horizon is part of the state, and nothing is discounted: features are products of functions of the customer and
functions of the weeks to go, which are zero when no week is left. A customer's weeks are cut into windows of 13, then
again of 26 and of 39. Each window is an episode: its weeks to go count down to termination, unless the end of the data
truncates it. λ and α are chosen within the training data: a fit to weeks 1-26 predicts weeks 27-39. The results are
compared with a BG/NBD model (Fader, Hardie and Lee, Marketing Science 24, 2005) and with ridge regression on the
returns observed. The figure needs lstd[cli].
"""

from __future__ import annotations

import argparse
import sys
import warnings
from datetime import date
from importlib.metadata import distribution
from itertools import product
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import betaln, gammaln, hyp2f1

from lstd import LSTD, LSTDStatistics
from lstd.errors import ExtrapolationWarning

TRAIN = 39  # weeks to train on
CHOOSE = 26  # those before the weeks that choose λ and α
AHEAD = 39  # weeks to predict
LMBDAS = (0.0, 0.5, 0.8, 0.9, 0.95, 1.0)
ALPHAS = tuple(10.0**k for k in range(-2, 7))
VARIANTS = ("boyan", "uncorrected", "mixed")
WINDOWS = (13, 26, 39)
NAMES = {
    "boyan": "Boyan's LSTD(λ)",
    "uncorrected": "Uncorrected LSTD(λ)",
    "mixed": "Mixed LSTD(λ)",
    "ridge": "ridge on observed returns",
    "bg_nbd": "BG/NBD",
    "as_before": "same as in weeks 1-39",
}


class Histories:
    """Purchases: the first day of each customer; repeat purchases and last day by customer and week."""

    def __init__(self) -> None:
        path: Any = distribution("lifetimes").locate_file("lifetimes/datasets/CDNOW_sample.txt")
        fields = [line.split() for line in path.read_text(encoding="ascii").splitlines()]
        days = [(date.fromisoformat(field[2]) - date(1997, 1, 1)).days for field in fields]
        who, day = np.unique([[int(field[1]) for field in fields], days], axis=1)  # each day counts once
        who = np.unique(who, return_inverse=True)[1]
        self.n = int(who.max()) + 1
        self.first = day[np.searchsorted(who, np.arange(self.n))]
        self.start = self.first // 7
        repeat = day > self.first[who]
        self.counts = np.zeros((self.n, TRAIN + AHEAD), dtype=np.int64)
        np.add.at(self.counts, (who[repeat], day[repeat] // 7), 1)
        last = np.zeros_like(self.counts)
        np.maximum.at(last, (who, day // 7), day)
        self.last = np.maximum.accumulate(last, axis=1)
        self.frequency = self.counts.cumsum(axis=1)

    def summary(self, customer: Any, week: Any) -> Any:
        """Return repeat purchases x, weeks from first to last purchase t_x, and weeks observed T, after `week`."""
        last = self.last[customer, week]
        today = 7 * week + 6
        return self.frequency[customer, week], *((day - self.first[customer]) / 7 for day in (last, today))

    def features(self, customer: Any, week: Any, to_go: Any) -> Any:
        """Multiply functions of frequency, recency and age by functions of the weeks to go; shape (rows, 30)."""
        x, t_x, age = self.summary(customer, week)
        lately = np.exp((t_x - age) / 4)
        recently = np.exp((t_x - age) / 13)
        often = np.log1p(x)
        rate = 4 * (x + 0.25) / (age + 4)
        mixed = (f * g for f in (often, rate) for g in (1.0, lately, recently))
        state = [np.ones(len(x)), np.log1p(age) / 3, lately, recently, *mixed]
        horizon = [to_go / 39, (to_go / 39) ** 2, 1 - np.exp(-to_go / 6.5)]
        return np.einsum("ir,jr->rij", state, horizon).reshape(len(x), -1)

    def weeks(self, end: Any) -> Any:
        """Return customer and week of every row, from each customer's first week to week `end`."""
        customer = np.repeat(np.arange(self.n), end - self.start)
        return customer, np.concatenate([np.arange(start, end) for start in self.start])

    def episodes(self, end: Any) -> Any:
        """Return arguments of `LSTD.fit` for the data of the first `end` weeks."""
        customer, week = self.weeks(end)
        cut = week == end - 1
        passed = week - self.start[customer]
        reward = np.where(cut, np.nan, self.counts[customer, np.minimum(week + 1, end - 1)])
        parts = []
        for number, window in enumerate(WINDOWS):
            to_go = window - passed % window
            episode = (number * self.n + customer) * 100 + passed // window
            parts.append((self.features(customer, week, to_go), reward, episode, (to_go == 1) & ~cut))
        columns = (np.concatenate(column) for column in zip(*parts, strict=True))
        return dict(zip(("X", "y", "episode", "terminated"), columns, strict=True))

    def ridge(self, end: Any, alpha: Any) -> Any:
        """Regress the purchases between each week and week `end` on the features."""
        customer, week = self.weeks(end)
        X = self.features(customer, week, end - 1 - week)
        returns = self.frequency[customer, end - 1] - self.frequency[customer, week]
        return np.linalg.solve(X.T @ X + alpha * np.eye(X.shape[1]), X.T @ returns)


def bg_nbd_loss(parameters: Any, x: Any, t_x: Any, T: Any) -> Any:
    """Compute minus the log-likelihood of a BG/NBD model, given the logarithms of r, α, a, b."""
    r, alpha, a, b = np.exp(parameters)
    common = gammaln(r + x) - gammaln(r) + r * np.log(alpha) - betaln(a, b)
    active = betaln(a, b + x) - (r + x) * np.log(alpha + T)
    gone = np.where(x > 0, betaln(a + 1, b + np.maximum(x, 1) - 1) - (r + x) * np.log(alpha + t_x), -np.inf)
    return -np.sum(common + np.logaddexp(active, gone))


def bg_nbd(x: Any, t_x: Any, T: Any, ahead: Any) -> Any:
    """Estimate r, α, a, b, and the expected purchases in the next `ahead` weeks."""
    r, alpha, a, b = estimates = np.exp(minimize(bg_nbd_loss, np.zeros(4), args=(x, t_x, T), method="L-BFGS-B").x)
    later = alpha + T + ahead
    kept = ((alpha + T) / later) ** (r + x) * hyp2f1(r + x, b + x, a + b + x - 1, ahead / later)
    odds_gone = np.where(x > 0, a / (b + np.maximum(x, 1) - 1) * ((alpha + T) / (alpha + t_x)) ** (r + x), 0.0)
    return estimates, (a + b + x - 1) / (a - 1) * (1 - kept) / (1 + odds_gone)


def rmse(predicted: Any, observed: Any) -> Any:
    return np.sqrt(np.mean((predicted - observed) ** 2, axis=-1))


def choose(data: Any, lmbdas: Any) -> Any:
    """Choose for each variant, and for ridge, the (λ, α) with which weeks 1-26 predict weeks 27-39 best."""
    now = data.features(np.arange(data.n), np.full(data.n, CHOOSE - 1), np.full(data.n, TRAIN - CHOOSE))
    observed = data.counts[:, CHOOSE:TRAIN].sum(axis=1)
    arrays = data.episodes(CHOOSE)
    errors: Any = {"ridge": {(("α", alpha),): rmse(now @ data.ridge(CHOOSE, alpha), observed) for alpha in ALPHAS}}
    for lmbda in lmbdas:
        print(f"choosing λ and α: λ = {lmbda}", file=sys.stderr)
        sums = LSTDStatistics.from_arrays(**arrays, gamma=1.0, lmbda=lmbda)
        for name, alpha in product(VARIANTS, ALPHAS):
            key = (("λ", lmbda), ("α", alpha))
            predicted = now @ sums.solve(alpha, name).weights
            errors.setdefault(name, {})[key] = rmse(predicted, observed)
    return {method: dict(min(found, key=found.get)) for method, found in errors.items()}


def predict(data: Any, chosen: Any) -> Any:
    """Predict the purchases of each customer in the held-out weeks, by method; also return the estimates of BG/NBD."""
    now = data.features(np.arange(data.n), np.full(data.n, TRAIN - 1), np.full(data.n, AHEAD))
    arrays = data.episodes(TRAIN)
    fitted = (
        LSTD(1.0, chosen[name]["λ"], chosen[name]["α"], name, fit_intercept=False).fit(**arrays) for name in VARIANTS
    )
    with warnings.catch_warnings():  # customers are older than at the start of any window
        warnings.simplefilter("ignore", ExtrapolationWarning)
        predicted = {model.variant: model.predict(now) for model in fitted}
    predicted["ridge"] = now @ data.ridge(TRAIN, chosen["ridge"]["α"])
    x, t_x, T = data.summary(np.arange(data.n), TRAIN - 1)
    estimates, predicted["bg_nbd"] = bg_nbd(x, t_x, T, AHEAD)
    predicted["as_before"] = data.frequency[:, TRAIN - 1].astype(np.float64)
    return predicted, estimates


def compare(predicted: Any, observed: Any, n_resamples: Any, seed: int = 0) -> Any:
    """Compute RMSE and its difference from that of Boyan's LSTD, with 95 % bootstrap intervals over customers."""
    drawn = np.random.default_rng(seed).integers(len(observed), size=(n_resamples, len(observed)))
    spread = {method: rmse(p[drawn], observed[drawn]) for method, p in predicted.items()}
    found = {}
    unsure = 2 * np.sqrt(0.025 * 0.975 / n_resamples)  # two standard errors of a fraction of resamples
    for method, p in predicted.items():
        less = spread["boyan"] - spread[method]
        (low, high), lean = np.quantile(less, (0.025, 0.975)), np.sign(less).mean()
        words = "better than" if lean < 0 else "worse than"
        tail = (1 - abs(lean)) / 2
        if tail > 0.025 - unsure:
            words = f"possibly {words}" if tail < 0.025 + unsure else "indistinguishable from"
        found[method] = {"rmse": rmse(p, observed), "low": low, "high": high, "judged": words, "total": p.sum()}
    return found


def draw(data: Any, predicted: Any, observed: Any, path: Any) -> None:
    from lstd.report.style import COLOURS, LINES, REFERENCE, figure_style, new_figure

    x = np.minimum(data.frequency[:, TRAIN - 1], 7)
    looks: Any = {m: {"color": COLOURS[m], "linestyle": LINES[m]} for m in VARIANTS}
    looks |= {"bg_nbd": {"color": REFERENCE}, "ridge": {"color": REFERENCE, "linestyle": ":"}}
    with figure_style():
        ax = (figure := new_figure(6.0, 3.6)).subplots()
        ax.bar(range(8), [observed[x == k].mean() for k in range(8)], color="#E4E4E4", label="observed")
        for method, look in looks.items():
            ax.plot(range(8), [predicted[method][x == k].mean() for k in range(8)], label=NAMES[method], **look)
        ax.set(xlabel="repeat purchases in weeks 1-39 (7: seven and more)", ylabel="mean purchases in weeks 40-78")
        ax.legend()
        figure.savefig(path, dpi=110, bbox_inches="tight", metadata={"Software": None})


def main(quick: bool = False, figure: Any = None) -> Any:
    """Print the table and verdicts; `quick` tries three λ and uses fewer resamples."""
    chosen = choose(data := Histories(), LMBDAS[::2] if quick else LMBDAS)
    predicted, estimates = predict(data, chosen)
    observed = data.counts[:, TRAIN:].sum(axis=1)
    found = compare(predicted, observed, 300 if quick else 2000)
    print("BG/NBD: r = {:.3f}, α = {:.3f}, a = {:.3f}, b = {:.3f}".format(*estimates))
    print(f"weeks 40-78, {data.n} customers, {observed.sum()} purchases; differences in RMSE: 95 % over customers")
    for method, result in found.items():
        setting = ", ".join(f"{name} = {value:g}" for name, value in chosen.get(method, {}).items())
        setting += ", end of the grid" * (chosen.get(method, {}).get("α") in (ALPHAS[0], ALPHAS[-1]))
        verdict = (
            ""
            if method == "boyan"
            else "Boyan's is {judged} it; error less this one {low:+.3f} to {high:+.3f}".format(**result)
        )
        line = f"{NAMES[method]:26}RMSE {result['rmse']:.3f}, predicted {result['total']:4.0f}  {setting:19} {verdict}"
        print(line.rstrip())
    if figure is not None:
        draw(data, predicted, observed, figure)
    return {"chosen": chosen, "estimates": estimates, "observed": observed, "found": found}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="three λ, fewer resamples")
    parser.add_argument("--figure", help="path of the figure")
    main(**vars(parser.parse_args()))
