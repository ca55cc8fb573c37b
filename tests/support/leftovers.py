"""Ends what a test left: Kafka clients that, in a cycle with the error or the run they were part of, wait to be found.

Owns when garbage is looked for besides Python's own turns, which come late beside thousands of tests in memory. Until
then such clients poll, and consumers fetch, here and in the broker. And when not: while tests are imported and
collected, where it would take a third of the time.
Invariant: after a test, fewer than `_THREADS_MAX` threads are there that were not after the last look.
"""

from __future__ import annotations

import gc
from collections.abc import Generator
from typing import Any

import psutil
import pytest

#: A client has about four. To look takes as long as a quick test.
_THREADS_MAX = 12
_PROCESS = pytest.StashKey[psutil.Process]()
_THREADS = pytest.StashKey[int]()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Of this process. Who only hands tests out collects none."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """What was imported and collected lives as long as the process: nobody looks through it again."""
    gc.freeze()
    process = session.stash[_PROCESS] = psutil.Process()
    session.stash[_THREADS] = process.num_threads()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """After its teardown, when pytest has let go of the test's fixtures."""
    ran = yield
    stash = item.session.stash
    if stash[_PROCESS].num_threads() >= stash[_THREADS] + _THREADS_MAX:
        gc.collect()
        stash[_THREADS] = stash[_PROCESS].num_threads()
    return ran
