"""Costs of fits on many machines: the simulation beside cases worked by hand and lower bounds; the page's tables."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
try:
    from cluster_model import Costs, Job, Network, in_all, takes_over
    from cluster_page import deviations, network_of, sections
    from cluster_simulation import cluster_times, executor_times, simulated
finally:
    sys.path.remove(str(ROOT / "benchmarks"))

MERGE, SEND, TASK = 1.0, 10.0, 0.25


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8])
def test_one_worker_of_a_cluster_sums_and_merges_and_sends_no_more_than_the_result(count):
    found = cluster_times([100.0] * count, 1, MERGE, SEND, 0.0)
    assert found == pytest.approx(100.0 * count + (count - 1) * MERGE + SEND)


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8])
def test_one_worker_of_an_executor_sends_each_and_the_caller_merges_beside_it(count):
    """All merges but those that the last chunk completes are done while the worker sums."""
    last = {1: 0, 2: 1, 3: 1, 5: 1, 8: 3}[count]
    found = executor_times([100.0] * count, 1, MERGE, SEND, TASK)
    assert found == pytest.approx((100.0 + SEND + TASK) * count + last * MERGE)


def test_two_workers_of_a_cluster_with_a_chunk_each():
    """Given out one after another; the scheduler gives out the merge, one part is sent, and then the result."""
    found = cluster_times([100.0, 100.0], 2, MERGE, SEND, TASK)
    assert found == pytest.approx(2 * TASK + 100.0 + TASK + SEND + MERGE + SEND)


def test_two_workers_of_an_executor_with_a_chunk_each():
    """The second waits until the caller has received what the first sent."""
    assert executor_times([100.0, 100.0], 2, MERGE, SEND, TASK) == pytest.approx(100.0 + 2 * (SEND + TASK) + MERGE)


def test_merges_of_different_pairs_are_done_at_a_time():
    """Worker 0 has chunks 0 and 2 and worker 1 has 1 and 3: each merges one pair, at the same time."""
    assert cluster_times([100.0] * 4, 2, MERGE, SEND, 0.0) == pytest.approx(200.0 + 2 * (SEND + MERGE) + SEND)


def test_a_merge_goes_to_the_worker_that_is_free():
    """Worker 1 is at chunk 1 until 300 and at chunk 3 until 400; (01) is merged by then, on worker 0."""
    found = cluster_times([100.0, 300.0, 100.0, 100.0], 2, MERGE, SEND, 0.0)
    assert found == pytest.approx(400.0 + 2 * (SEND + MERGE) + SEND)


@pytest.mark.parametrize("levels", range(1, 8))
def test_as_many_workers_as_chunks_take_as_many_steps_as_the_tree_is_deep(levels):
    found = cluster_times([100.0] * 2**levels, 2**levels, MERGE, SEND, 0.0)
    assert found == pytest.approx(100.0 + levels * (SEND + MERGE) + SEND)


@pytest.mark.parametrize("count", [1, 7, 100])
def test_a_slow_scheduler_or_caller_is_all_that_counts(count):
    many = cluster_times([1e-6] * count, 50, 1e-6, 1e-6, TASK)
    assert many == pytest.approx((2 * count - 1) * TASK, abs=1e-3)
    assert executor_times([1e-6] * count, 50, MERGE, SEND, TASK) == pytest.approx(
        count * (SEND + TASK) + (count - 1) * MERGE, abs=1e-3
    )


COST = st.floats(0.001, 10.0)


@settings(derandomize=True, deadline=None, max_examples=100)
@given(st.lists(COST, min_size=1, max_size=40), st.integers(1, 12), COST, COST, COST)
def test_no_fit_is_faster_than_its_parts_nor_slower_than_one_thing_after_another(chunks, workers, merge, send, task):
    count, sums, merges = len(chunks), sum(chunks), (len(chunks) - 1) * merge
    depth = math.ceil(math.log2(count))
    least = max((sums + merges) / workers, (2 * count - 1) * task, max(chunks) + depth * merge) + send
    most = sums + merges + count * send + (2 * count - 1) * task
    assert least * (1 - 1e-9) <= cluster_times(chunks, workers, merge, send, task)
    assert cluster_times(chunks, workers, merge, send, task) <= most * (1 + 1e-9)
    least = max(sums / workers, max(chunks), count * (send + task) + merges)
    assert least * (1 - 1e-9) <= executor_times(chunks, workers, merge, send, task)
    assert executor_times(chunks, workers, merge, send, task) <= (sums + merges + count * (send + task)) * (1 + 1e-9)


@pytest.mark.parametrize("on_cluster", [True, False])
@pytest.mark.parametrize("workers", [1, 10])
def test_more_chunks_than_are_simulated_add_in_proportion(on_cluster, workers):
    cost, network = Costs(10, 1e-4, 1e-3, 1e-2, 1600.0), Network(1e6, 1e-3, 1e-4)
    job = Job(cost, network, 1e5, workers, 100)
    assert job.chunks == 1000
    assert simulated(job, on_cluster, fewest=250) == pytest.approx(simulated(job, on_cluster), rel=0.01)


def test_where_the_scheduler_takes_over_both_terms_are_the_same():
    cost, network = Costs(100, 4e-7, 5e-5, 1e-3, 1.6e5), Network(1e9, 1e-3, 1e-3)
    limit = takes_over(cost, network, 1e12, 8e8)["scheduler"]
    assert limit == pytest.approx(1e6 * 4e-7 / 2e-3)
    terms = Job(cost, network, 1e12, round(limit), 1e6).on_cluster()
    assert terms["workers"] == pytest.approx(terms["scheduler"], rel=0.01)
    assert in_all(terms) == max(terms["workers"], terms["scheduler"]) + terms["tree"] + terms["solve"]


def test_one_worker_sends_the_result_only():
    network = Network(1e6, 1e-3, TASK)
    terms = [
        Job(Costs(10, 1e-4, MERGE, 1e-2, 1600.0), network, 1e5, workers, 25_000).on_cluster() for workers in (1, 2)
    ]
    send = network.sending(1600.0)
    assert terms[0]["tree"] == pytest.approx(2 * (MERGE + TASK) + send)
    assert terms[1]["tree"] == pytest.approx(2 * (MERGE + TASK) + 3 * send)


# ---------------------------------------------------------------- the page


def test_the_worse_of_what_is_assumed_and_what_was_measured_counts():
    assumed = {"bandwidth": 4.0, "latency": 2.0, "task": 2.0, "reading": 1.0}
    here = {"dask": {"bandwidth": 3.0, "latency": 3.0, "task": 3.0}, "processes": {"bandwidth": 5.0}}
    here["processes"] |= {"latency": 1.0, "task": 1.0}
    found = {"assumed": assumed, "messages": here}
    assert network_of(found, "dask") == Network(3.0, 3.0, 3.0, 1.0)
    assert network_of(found, "processes") == Network(4.0, 2.0, 2.0, 1.0)


@pytest.fixture(scope="module")
def newest():
    paths = sorted((ROOT / "benchmarks" / "results").glob("cluster-*.json"))
    return json.loads(paths[-1].read_text(encoding="utf-8"))


def test_the_tables_of_the_page_are_those_of_the_newest_results(newest):
    page = (ROOT / "docs" / "cluster-costs.md").read_text(encoding="utf-8")
    for name, text in sections(newest).items():
        assert f"<!-- begin: benchmarks/cluster.py: {name} -->\n\n{text}\n\n<!-- end: " in page


def test_the_formulas_are_near_the_simulation(newest):
    assert len(deviations(newest)) == 60
    assert max(abs(apart) for apart in deviations(newest)) < 0.1
