"""pytest plugin that runs tests with native.c compiled for AddressSanitizer and UBSan (`make soak ARGS=native`).

Owns the swap of the compiled library before anything loads it, and that child processes (a broker's JVM) are started
without the sanitizer. `HERDMESH_TEST_LOOPS` names the compiled library.

Invariant: the tests run with that library, or the session fails.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from herdmesh.engine.librdkafka import native

_LIBRARY = Path(os.environ["HERDMESH_TEST_LOOPS"])
os.environ.pop("LD_PRELOAD", None)
native._LOOPS = _LIBRARY  # pyright: ignore[reportPrivateUsage]


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a session that did not use the library."""
    loops = native.loops()
    if loops is None or str(_LIBRARY) not in Path("/proc/self/maps").read_text():
        session.exitstatus = pytest.ExitCode.INTERNAL_ERROR
        raise pytest.UsageError(f"the tests did not use {_LIBRARY}")
