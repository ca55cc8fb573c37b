"""Cleanup of Kafka clients that a test left behind in a reference cycle with an error or a run.

Owns additional garbage collections besides Python's own, which come late beside thousands of tests in memory. Until
then such clients poll, and consumers fetch, here and in the broker. Also owns the pause of collection while tests are
imported and collected, where it would take a third of the time.
Invariant: after a test, fewer than `_THREADS_MAX` threads exist that did not after the last check.
"""

from __future__ import annotations

import gc
from collections.abc import Generator
from typing import Any

import psutil
import pytest

#: A client has about four. A collection takes as long as a quick test.
_THREADS_MAX = 12
_PROCESS = pytest.StashKey[psutil.Process]()
_THREADS = pytest.StashKey[int]()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Pause garbage collection in this process. The process that only hands tests out collects none."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Freeze all imported and collected objects: they live as long as the process, so no collection visits them
    again.
    """
    gc.freeze()
    process = session.stash[_PROCESS] = psutil.Process()
    session.stash[_THREADS] = process.num_threads()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Collect after the teardown, when pytest has released the test's fixtures."""
    ran = yield
    stash = item.session.stash
    if stash[_PROCESS].num_threads() >= stash[_THREADS] + _THREADS_MAX:
        gc.collect()
        stash[_THREADS] = stash[_PROCESS].num_threads()
    return ran
