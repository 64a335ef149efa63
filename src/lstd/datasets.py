"""Small simulated tables with known truth: a shop, patients, machines, and logged decisions.

Each table is drawn from a chain of finitely many states, which the columns of a row determine, so that the exact values
of all rows are known. States and rewards are integers inside, so that the tables are the same on every machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from lstd.errors import missing_extra
from lstd.types import Array

if TYPE_CHECKING:
    import pandas as pd

Integers = NDArray[np.int64]

__all__ = ["load_decisions", "load_machines", "load_patients", "load_shop"]


@dataclass(frozen=True)
class _Chain:
    """A chain of k states: the j-th of J outcomes of each has a probability, a reward and a successor, below 0 the end.

    All arrays have shape (k, J).
    """

    probability: Array
    reward: Array
    successor: Integers

    @classmethod
    def with_end(cls, ends: Array, successor: Integers, reward: Array | float, reward_at_end: float) -> _Chain:
        """Return a chain whose outcomes are equally likely, but for the last one, with which the episode ends.

        `ends` (k,) is the probability of that one, and `successor` (k, J − 1) and `reward` are those of the others.
        """
        n_others = successor.shape[1]
        end = ends[:, np.newaxis]
        each = (1.0 - end) / n_others
        rewards = np.broadcast_to(reward, successor.shape)
        last_reward = np.full_like(end, reward_at_end)
        no_successor = np.full(end.shape, -1)
        return cls(
            probability=np.hstack([np.repeat(each, n_others, axis=1), end]),
            reward=np.hstack([rewards, last_reward]),
            successor=np.hstack([successor, no_successor]),
        )

    def episodes(self, random: np.random.Generator, state: Integers, lengths: Integers) -> dict[str, NDArray[Any]]:
        """Draw an episode from each state, of at most `lengths` steps, then a horizon row: arrays over all rows.

        The columns are episode, step, state, reward (NaN in horizon rows), outcome (-1 there) and ended.
        """
        cumulative = self.probability.cumsum(axis=1).round(9)
        thresholds = cumulative[:, :-1]  # the last one is 1
        episode = np.arange(len(state))  # those that go on
        step = 0
        rows_of_steps: list[dict[str, NDArray[Any]]] = []
        while len(episode):
            uniform = random.random((len(episode), 1))
            outcome = (uniform > thresholds[state]).sum(axis=1)
            successor = self.successor[state, outcome]
            is_observed = lengths[episode] > step  # False in a horizon row
            ended = is_observed & (successor < 0)
            reward = self.reward[state, outcome]
            rows_of_step = {
                "episode": episode,
                "step": np.full(len(episode), step),
                "state": state,
                "reward": np.where(is_observed, reward, np.nan),
                "outcome": np.where(is_observed, outcome, -1),
                "ended": ended,
            }
            rows_of_steps.append(rows_of_step)
            goes_on = is_observed & ~ended
            episode = episode[goes_on]
            state = successor[goes_on]
            step += 1

        columns = {}
        for name in rows_of_steps[0]:
            parts = [rows[name] for rows in rows_of_steps]
            columns[name] = np.concatenate(parts)
        by_episode = np.lexsort([columns["step"], columns["episode"]])
        for name, column in columns.items():
            columns[name] = column[by_episode]
        return columns

    def returns(self, gamma: float, steps: int) -> tuple[Array, Array]:
        """Compute the mean and the standard deviation of the discounted rewards of the next `steps`, each (k,).

        With one step more, the mean m and the mean square q of the return become, summed over outcomes,

            m(s) = Σ p (r + γ m(s')),    q(s) = Σ p (r² + 2γ r m(s') + γ² q(s')).
        """
        k = len(self.reward)
        p = self.probability
        r = self.reward
        mean_reward = (p * r).sum(axis=1)
        mean_square_reward = (p * r**2).sum(axis=1)
        once = self._expecting(gamma * p)
        crossed = self._expecting(2.0 * gamma * p * r)
        twice = self._expecting(gamma**2 * p)

        mean = np.zeros(k)
        square = np.zeros(k)
        for _ in range(steps):
            square = mean_square_reward + crossed @ mean + twice @ square
            mean = mean_reward + once @ mean
        variance = np.maximum(square - mean**2, 0.0)
        std = np.sqrt(variance)
        return mean.round(6), std.round(6)

    def _expecting(self, weights: Array) -> csr_array:
        """Return the matrix (k, k) that sums values of successors over outcomes, with weights (k, J)."""
        k, J = weights.shape
        entries = weights * (self.successor >= 0)
        columns = np.maximum(self.successor, 0)
        begins_of_rows = np.arange(0, k * J + 1, J)
        parts = (entries.ravel(), columns.ravel(), begins_of_rows)
        return csr_array(parts, shape=(k, k))

    def truth(self, state: Integers, gamma: float, steps: int, **ids: Any) -> pd.DataFrame:
        """Return ids, and the columns value and std of :meth:`returns`, for the state of each row."""
        mean, std = self.returns(gamma, steps)
        return _frame(**ids, value=mean[state], std=std[state])


def _frame(**columns: Any) -> pd.DataFrame:
    try:
        import pandas as pd
    except ImportError as error:
        raise missing_extra("lstd.datasets", "pandas", "data") from error
    return pd.DataFrame(columns)


def load_shop(*, events: bool = False, return_truth: bool = False) -> Any:
    """Load weeks of 1000 customers of a shop, who buy again and again until they close their account.

    A customer buys in half of the weeks, for about as much as before. One who has not bought for four weeks leaves with
    probability 0.3 per week, any other with 0.02. Observation ends on 29 December 2025.

    Parameters
    ----------
    events : bool, default False
        Whether to return the log of events in place of the weeks: one row per purchase, and one of 0 where an account
        was closed, with the columns customer, date (the Monday of the week), spend and closed.
    return_truth : bool, default False
        Whether to return the truth too.

    Returns
    -------
    table : pandas.DataFrame
        One row per customer and week, with the columns customer, week (its Monday), recent (exponential mean of weekly
        spending), weeks (since the first purchase), since_last (weeks since the last purchase), spend (NaN in the last
        row of those who are still active) and closed.
    truth : pandas.DataFrame
        Only with `return_truth`. The columns customer, week, value and std: the expected sum of what the customer will
        spend, discounted by 0.98 a week, and the standard deviation of that sum. One row per row of the table, with the
        same index; with `events` one per customer who is still active. ``frame.merge(truth)`` joins either.

    Examples
    --------
    >>> from lstd.datasets import load_shop
    >>> load_shop().head(3)
       customer       week  recent  weeks  since_last  spend  closed
    0         0 2025-06-23    30.7      1           1   33.7   False
    1         0 2025-06-30    31.0      2           1    0.0   False
    2         0 2025-07-07    27.9      3           2    0.0   False
    """
    table, truth = _shop(1000, 1, events=events)
    if not return_truth:
        return table
    return table, truth


def _shop(n_customers: int, seed: int, *, events: bool = False) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Draw the table and the truth of :func:`load_shop`, with other customers (`benchmarks/shops.py`)."""
    chain = _shop_chain()
    random = np.random.default_rng(seed)
    start = random.integers(1, 52, n_customers)  # week of the row after the first purchase
    first_spend = random.integers(50, 351, n_customers)  # in tenths
    rows = chain.episodes(random, 4 * first_spend, 52 - start)

    customer = rows["episode"]
    weeks = rows["step"] + 1
    spend = rows["reward"]
    closed = rows["ended"]
    first_monday = np.datetime64("2024-12-30", "s")
    days = 7 * np.arange(53)
    monday = first_monday + days.astype("m8[D]")
    week = start[customer] + rows["step"]
    truth = chain.truth(
        rows["state"],
        0.98,
        700,
        customer=customer,
        week=monday[week],
    )
    if events:
        is_event = (spend > 0) | closed
        everybody = np.arange(n_customers)
        never_closed = np.zeros(n_customers, dtype=bool)
        week_of_event = np.append(start - 1, week[is_event])
        log = _frame(
            customer=np.append(everybody, customer[is_event]),
            date=monday[week_of_event],
            spend=np.append(first_spend / 10, spend[is_event]),
            closed=np.append(never_closed, closed[is_event]),
        )
        log = log.sort_values(["customer", "date"], ignore_index=True)
        is_active = np.isnan(spend)
        return log, truth[is_active].reset_index(drop=True)

    row = np.arange(len(week))
    bought_before = np.append(True, spend[:-1] > 0)
    follows_purchase = bought_before | (weeks == 1)
    begins = np.where(follows_purchase, row, 0)
    row_after_purchase = np.maximum.accumulate(begins)
    table = _frame(
        customer=customer,
        week=monday[week],
        recent=rows["state"] // 4 / 10,
        weeks=weeks,
        since_last=row - row_after_purchase + 1,
        spend=spend,
        closed=closed,
    )
    return table, truth


def _shop_chain() -> _Chain:
    """Return the chain of `load_shop`: a state is 4 × recent spending, in tenths, + weeks without a purchase, up to 3.

    The outcomes are no purchase, five times, five purchases, and the end of the account.
    """
    factors = np.array([0, 0, 0, 0, 0, 10, 13, 16, 18, 23])  # tenths of what is usual, 0.8 on average
    recent, since_last = np.divmod(np.arange(800 * 4), 4)
    leaves = np.where(since_last == 3, 0.3, 0.02)

    before = recent[:, np.newaxis]
    usual = 30 + before
    spend = (factors * usual + 5) // 10
    smoothed = (9 * before + spend + 5) // 10
    recent_next = np.minimum(smoothed, 799)
    one_week_more = np.minimum(since_last + 1, 3)
    since_last_next = np.where(factors > 0, 0, one_week_more[:, np.newaxis])
    successor = 4 * recent_next + since_last_next
    return _Chain.with_end(leaves, successor, reward=spend / 10, reward_at_end=0.0)


def load_patients(*, return_truth: bool = False) -> Any:
    """Load visits of 400 patients, every half-year, until they die or are seen for the last time.

    A patient dies within the next half-year with probability 0.05 exp(0.7 marker), or 0.6 times that with the drug. The
    marker goes on from 0.95 times its value with noise of standard deviation 0.34. Patients are followed for 1 to 12
    years, whatever their marker.

    Parameters
    ----------
    return_truth : bool, default False
        Whether to return the expected years, too.

    Returns
    -------
    table : pandas.DataFrame
        One row per visit, with the columns patient, year (since the first visit), marker, drug (0 or 1), lived (years
        until the next visit: 0.5, or 0.25 for who dies; NaN at the last visit of those alive) and died.
    truth : pandas.DataFrame
        Only with `return_truth`. The columns patient, year, value and std, one row per visit: the expected years that
        the patient lives of the next five, and the standard deviation of these years.

    Examples
    --------
    >>> from lstd.datasets import load_patients
    >>> load_patients().head(3)
       patient  year  marker  drug  lived   died
    0        0   0.0     0.3     1    0.5  False
    1        0   0.5     0.8     1    0.5  False
    2        0   1.0     0.9     1    0.5  False
    """
    # A state is 2 × (marker + 40) + drug, with the marker in tenths.
    marker, drug = np.divmod(np.arange(81 * 2), 2)
    marker = marker - 40
    noise = np.array([-5, -3, -1, 1, 3, 5])
    with_drug = np.where(drug == 1, 0.6, 1.0)
    dies = 0.05 * np.exp(0.07 * marker) * with_drug
    expected = (19 * marker + 10) // 20
    marker_next = np.clip(expected[:, np.newaxis] + noise, -40, 40)
    successor = 2 * (marker_next + 40) + drug[:, np.newaxis]
    chain = _Chain.with_end(dies, successor, reward=0.5, reward_at_end=0.25)

    random = np.random.default_rng(1)
    drawn = np.rint(10 * random.normal(size=400))
    first_marker = np.clip(drawn.astype(int), -40, 40)
    has_drug = random.integers(0, 2, 400)
    followed = random.integers(2, 25, 400)  # half-years
    first_state = 2 * (first_marker + 40) + has_drug
    rows = chain.episodes(random, first_state, followed)
    state = rows["state"]
    table = _frame(
        patient=rows["episode"],
        year=0.5 * rows["step"],
        marker=marker[state] / 10,
        drug=drug[state],
        lived=rows["reward"],
        died=rows["ended"],
    )
    if not return_truth:
        return table
    ids = table[["patient", "year"]]
    return table, chain.truth(state, 1.0, 10, **ids)


def load_machines(*, return_truth: bool = False) -> Any:
    """Load daily readings of 200 machines, which wear out, until they fail or the log ends on day 120.

    Wear shows as vibration and grows by 0 to 0.2 a day, or by 0 to 0.4 under heavy load. A machine fails with
    probability 0.4 (vibration / 6)⁶ a day, so the days to go are a curve in vibration. Temperature depends on the load
    and chance.

    Parameters
    ----------
    return_truth : bool, default False
        Whether to return the expected days, too.

    Returns
    -------
    table : pandas.DataFrame
        One row per machine and day, with the columns machine, day, load ("light" or "heavy"), vibration, temperature,
        days (1, or 0.5 on the day of the failure; NaN in the last row of machines that still run) and failed.
    truth : pandas.DataFrame
        Only with `return_truth`. The columns machine, day, value and std, one row per row of the table: the expected
        days that the machine will still run, and their standard deviation.

    Examples
    --------
    >>> from lstd.datasets import load_machines
    >>> load_machines().head(3)
       machine  day   load  vibration  temperature  days  failed
    0        0   56  light        1.0           61   1.0   False
    1        0   57  light        1.0           59   1.0   False
    2        0   58  light        1.1           60   1.0   False
    """
    # A state is 2 × vibration, in tenths, + 1 under heavy load.
    vibration, heavy = np.divmod(np.arange(64 * 2), 2)
    worn = np.minimum(vibration, 60) / 60
    fails = 0.4 * worn**6
    load = heavy[:, np.newaxis]
    wear = np.arange(3) * (1 + load)
    vibration_next = np.minimum(vibration[:, np.newaxis] + wear, 63)
    successor = 2 * vibration_next + load
    chain = _Chain.with_end(fails, successor, reward=1.0, reward_at_end=0.5)

    random = np.random.default_rng(1)
    start = random.integers(0, 120, 200)  # day of the first reading
    first_vibration = random.integers(5, 16, 200)
    is_heavy = random.integers(0, 2, 200)
    first_state = 2 * first_vibration + is_heavy
    rows = chain.episodes(random, first_state, 120 - start)
    state = rows["state"]
    machine = rows["episode"]
    names_of_loads = np.array(["light", "heavy"])
    noise = random.integers(-5, 6, len(state))
    table = _frame(
        machine=machine,
        day=start[machine] + rows["step"],
        load=names_of_loads[heavy[state]],
        vibration=vibration[state] / 10,
        temperature=60 + 8 * heavy[state] + noise,
        days=rows["reward"],
        failed=rows["ended"],
    )
    if not return_truth:
        return table
    ids = table[["machine", "day"]]
    return table, chain.truth(state, 1.0, 2000, **ids)


def load_decisions(*, return_truth: bool = False) -> Any:
    """Load decisions of doctors on each day of 2000 patients, mild or severe, until these go home or die.

    Doctors treat 20 % of mild and 30 % of severe patients. Untreated severe patients die with probability 0.05 a day,
    all others with 0.01; mild ones go home with 0.3, severe ones with 0.1. Who stays is severe the next day with
    probability 0.1 if mild, 0.8 if severe, 0.4 if severe and treated.

    Parameters
    ----------
    return_truth : bool, default False
        Whether to return the values of policies, too.

    Returns
    -------
    table : pandas.DataFrame
        One row per patient and day, with the columns patient, day, severe (0 or 1), treatment ("treat" or "wait"),
        probability (with which the doctors chose this treatment), home (the reward: 1 for who goes home) and ended.
    truth : pandas.DataFrame
        Only with `return_truth`. One row per policy (doctors, treat more, treat nobody), with the columns mild and
        severe (the probability of treatment) and value: the share of patients who go home.

    Examples
    --------
    >>> from lstd.datasets import load_decisions
    >>> load_decisions().head(3)
       patient  day  severe treatment  probability  home  ended
    0        0    0       0      wait          0.8   0.0  False
    1        0    1       0      wait          0.8   1.0   True
    2        1    0       1     treat          0.3   0.0  False
    """
    policies = {  # probability of treatment of mild and of severe patients
        "doctors": np.array([0.2, 0.3]),
        "treat more": np.array([0.2, 0.8]),
        "treat nobody": np.array([0.0, 0.0]),
    }
    chains = {name: _decisions_chain(treats) for name, treats in policies.items()}
    random = np.random.default_rng(1)
    largest = np.iinfo(np.int64).max
    forever = np.full(2000, largest)
    first_state = random.integers(0, 2, 2000)
    rows = chains["doctors"].episodes(random, first_state, forever)
    severe = rows["state"]
    treated = rows["outcome"] // 4
    treats = policies["doctors"][severe]
    names_of_treatments = np.array(["wait", "treat"])
    table = _frame(
        patient=rows["episode"],
        day=rows["step"],
        severe=severe,
        treatment=names_of_treatments[treated],
        probability=np.where(treated == 1, treats, 1.0 - treats),
        home=rows["reward"],
        ended=rows["ended"],
    )
    if not return_truth:
        return table
    treats_mild, treats_severe = np.array([*policies.values()]).T
    values = []
    for chain in chains.values():
        mean, _ = chain.returns(1.0, 500)
        values.append(mean.mean())
    truth = _frame(mild=treats_mild, severe=treats_severe, value=values)
    return table, truth.set_axis([*policies]).rename_axis("policy")


def _decisions_chain(treats: Array) -> _Chain:
    """Return the chain of `load_decisions` for the probability of treatment in each state, (2,).

    The outcomes are death, home, mild and severe without treatment, and the same four with it.
    """
    severe = np.array([[0], [1]])
    treated = np.array([[0, 1]])
    is_at_risk = (severe == 1) & (treated == 0)
    dies = np.where(is_at_risk, 0.05, 0.01)
    home = np.where(severe == 1, 0.1, 0.3) + 0.0 * treated  # of shape (2, 2), as the others
    remains_severe = np.where(treated == 1, 0.4, 0.8)
    severe_next = np.where(severe == 0, 0.1, remains_severe)
    stays = 1.0 - dies - home
    mild_next = 1.0 - severe_next
    treats_of_state = treats[:, np.newaxis]
    chosen = np.where(treated == 1, treats_of_state, 1.0 - treats_of_state)
    outcomes = np.stack([dies, home, stays * mild_next, stays * severe_next], axis=2)
    probability = outcomes * chosen[:, :, np.newaxis]
    return _Chain(
        probability=probability.reshape(2, 8),
        reward=np.tile([0.0, 1.0, 0.0, 0.0], (2, 2)),
        successor=np.tile([-1, -1, 0, 1], (2, 2)),
    )
