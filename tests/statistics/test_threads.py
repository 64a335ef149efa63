"""The limit on threads of the BLAS, which users in several threads share."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy.linalg  # noqa: F401  which loads a BLAS
import pytest
import sklearn.ensemble  # noqa: F401  which loads OpenMP
from threadpoolctl import threadpool_info, threadpool_limits

from lstd.statistics.threads import blas_threads, one_blas_thread, one_openmp_thread


def threads_of(api):
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == api]


def threads_of_the_blas():
    return threads_of("blas")


@pytest.fixture(autouse=True)
def two_threads():
    with threadpool_limits(2, user_api="blas"):
        yield


def test_the_last_of_several_users_puts_it_back():
    """Whoever came first leaves first, and its thread lives on."""
    before = threads_of_the_blas()
    inside, may_leave, has_left = threading.Barrier(4, timeout=300), *([threading.Event() for _ in "123"] for _ in "12")
    end, seen = threading.Event(), []

    def use(leave, left):
        with one_blas_thread():
            inside.wait()
            leave.wait(300)
            seen.append((threads_of_the_blas(), blas_threads()))
        left.set()
        end.wait(300)

    try:
        for events in zip(may_leave, has_left, strict=True):
            threading.Thread(target=use, args=events, daemon=True).start()
        inside.wait()
        for leave, left in zip(may_leave, has_left, strict=True):
            assert threads_of_the_blas() == [1] * len(before)
            leave.set()
            assert left.wait(300)
        assert seen == [([1] * len(before), max(before))] * 3
        assert threads_of_the_blas() == before
        assert blas_threads() == max(before)
    finally:
        for event in (*may_leave, end):
            event.set()


def test_it_is_put_back_after_an_error():
    before = threads_of_the_blas()
    with pytest.raises(KeyError), one_blas_thread(), one_blas_thread():
        raise KeyError
    assert threads_of_the_blas() == before


def test_openmp_has_one_thread_for_a_while():
    with ThreadPoolExecutor(1) as pool:  # the limit is that of the calling thread
        elsewhere = pool.submit(openmp_in_and_after).result()
    for inside, after in (openmp_in_and_after(), elsewhere, openmp_in_and_after()):
        assert set(inside) == {1}
        assert set(after) == {2}


def openmp_in_and_after():
    with threadpool_limits(2, user_api="openmp"):
        with one_openmp_thread():
            inside = threads_of("openmp")
        return inside, threads_of("openmp")
