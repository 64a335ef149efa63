"""Tables with known truth: the same on every machine, and their truth that of the process which they show."""

import hashlib
import math
from functools import cache

import numpy as np
import pandas as pd
import pytest

from lstd import Trajectories, datasets

TABLES = {
    "shop": ("customer", "spend", "closed", 0.98, ["since_last", "recent"]),
    "machines": ("machine", "days", "failed", 1.0, ["load", "vibration"]),
}
HASHES = {
    "shop": "3d4b430f7d886e17",
    "patients": "5d76330a6eb116dc",
    "machines": "537f93a91836fb3f",
    "decisions": "f12a730a7f53b282",
}


@pytest.mark.parametrize("name", HASHES)
def test_tables_never_change(name):
    text = getattr(datasets, f"load_{name}")().to_csv(index=False, lineterminator="\n")
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == HASHES[name]


def standardised(errors, episode):
    """Mean of errors divided by its standard error, with the sums of episodes as independent."""
    sums = errors.groupby(episode).sum()
    return sums.sum() / np.sqrt((sums**2).sum())


@pytest.mark.parametrize("name", TABLES)
def test_truth_follows_the_equations_of_its_moments_on_average(name):
    episode, reward, ended, gamma, features = TABLES[name]
    table, truth = getattr(datasets, f"load_{name}")(return_truth=True)
    full, goes_on = table[reward].notna(), gamma * ~table[ended]
    value, variance = truth["value"].shift(-1, fill_value=0.0), truth["std"].shift(-1, fill_value=0.0) ** 2
    error = table[reward] + goes_on * value - truth["value"]
    spread = error**2 + goes_on**2 * variance - truth["std"] ** 2
    assert abs(standardised(spread[full], table[episode])) < 3.5
    for feature in features:
        groups = table.loc[full, feature].rank(method="dense", pct=True).round(1)
        assert all(abs(standardised(part, table[episode])) < 3.5 for _, part in error[full].groupby(groups))


def test_true_years_of_patients():
    @cache
    def years(marker, drug, steps):
        if not steps:
            return 0.0
        dies = 0.05 * math.exp(0.07 * marker) * (0.6 if drug else 1.0)
        noise = (-5, -3, -1, 1, 3, 5)
        after = [years(min(max((19 * marker + 10) // 20 + e, -40), 40), drug, steps - 1) for e in noise]
        return 0.25 * dies + (1.0 - dies) * (0.5 + sum(after) / 6)

    table, truth = datasets.load_patients(return_truth=True)
    states = zip((10 * table["marker"]).round().astype(int), table["drug"], strict=True)
    np.testing.assert_allclose(truth["value"], [years(*state, 10) for state in states], atol=1e-6)


def test_true_values_of_policies():
    table, truth = datasets.load_decisions(return_truth=True)
    home = table.groupby("patient")["home"].sum()
    assert home.mean() == pytest.approx(truth.loc["doctors", "value"], abs=3.0 * home.sem())
    treated = table["treatment"] == "treat"
    first = table["day"] == 0
    for name in ("treat more", "treat nobody"):
        chance = np.where(table["severe"] == 1, truth.loc[name, "severe"], truth.loc[name, "mild"])
        ratio = (np.where(treated, chance, 1.0 - chance) / table["probability"]).groupby(table["patient"]).prod()
        assert (ratio * home).mean() == pytest.approx(truth.loc[name, "value"], abs=3.0 * (ratio * home).sem())
    assert table[first].groupby("severe").size().min() > 900


def test_the_log_of_the_shop_has_the_same_weeks():
    table, truth = datasets.load_shop(return_truth=True)
    log, active = datasets.load_shop(events=True, return_truth=True)
    columns = {"episode": "customer", "time": "date", "amount": "spend", "terminated": "closed"}
    data = Trajectories.from_events(log, **columns, step="week", until="2025-12-29")
    np.testing.assert_array_equal(data.y, table["spend"])
    np.testing.assert_array_equal(data.episode, table["customer"])
    np.testing.assert_array_equal(data.time.astype("M8[s]"), table["week"])
    np.testing.assert_array_equal(data.terminated, table["closed"])
    names = list(data.feature_names)
    np.testing.assert_array_equal(data.X[:, names.index("since_last")], table["since_last"])
    np.testing.assert_array_equal(data.X[:, names.index("since_first")], table["weeks"])
    today = table[table["spend"].isna()].iloc[::-1]
    for joined in (today.merge(truth), today.merge(active)):
        pd.testing.assert_frame_equal(joined[truth.columns].iloc[::-1].reset_index(drop=True), active)
    pd.testing.assert_frame_equal(truth[["customer", "week"]], table[["customer", "week"]])
    first = log.groupby("customer")["spend"].first().to_numpy()[table["customer"]]
    before = table["spend"].shift(fill_value=0.0).where(table["weeks"] > 1, first)
    recent = before.groupby(table["customer"]).ewm(alpha=0.1, adjust=False).mean().to_numpy()
    np.testing.assert_allclose(recent, table["recent"], atol=0.7)
