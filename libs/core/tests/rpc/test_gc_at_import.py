"""Garbage collection during a process's imports: no collection runs, and the collector is never switched off."""

from __future__ import annotations

import subprocess
import sys

import pytest

_HEAD = """
import gc

usual = gc.get_threshold()

def collections():
    return sum(each["collections"] for each in gc.get_stats())
"""
_SERVICE = """
before = collections()
import herdmesh.herder.__main__
assert collections() - before < 20, collections() - before  # 140 otherwise
assert len(gc.get_objects()) > 50 * usual[0]
"""
_ENDS = {
    "said": "gc_at_import.over(); assert gc.get_freeze_count() > 1_000",
    "asked": "gc.collect(0)",
    "forgotten": "kept = [[] for _ in range(200_100)]; assert collections() > before",
}
_PAUSE = """
from herdmesh.rpc import gc_at_import

gc_at_import.begin()
gc_at_import.begin()
before = collections()
made = [[] for _ in range(50_000)]
assert collections() == before
assert gc.isenabled() and gc.get_threshold() != usual
{end}
assert gc.get_threshold() == usual and not gc.callbacks
before = collections()
made = [[] for _ in range(usual[0] + 100)]
assert collections() > before
"""


def test_importing_a_service_runs_hardly_any_garbage_collection() -> None:
    subprocess.run([sys.executable, "-c", _HEAD + _SERVICE], check=True)


@pytest.mark.parametrize("end", _ENDS)
def test_garbage_collection_resumes_after_the_imports(end: str) -> None:
    subprocess.run([sys.executable, "-c", _HEAD + _PAUSE.format(end=_ENDS[end])], check=True)
