"""Garbage collector of a run: it does not delay records, and is never off."""

from __future__ import annotations

import subprocess
import sys

_PROCESS = """
import gc
from herdmesh.worker.spark import daemon

daemon.collect_seldom()
collections = []
gc.callbacks.append(lambda phase, info: phase == "start" and collections.append(info["generation"]))

for _ in range(200):
    batch = [[{"id": number}, [number]] for number in range(1_000)]
print(len(collections))

class Cyclic:
    alive = most = 0
    def __init__(self):
        self.itself = self
        Cyclic.alive += 1
        Cyclic.most = max(Cyclic.most, Cyclic.alive)
    def __del__(self):
        Cyclic.alive -= 1

for _ in range(100_000):
    Cyclic()
print(Cyclic.most, daemon.COLLECT_AFTER)
"""


def test_batches_start_no_collection_and_cycles_are_collected() -> None:
    ran = subprocess.run([sys.executable, "-c", _PROCESS], capture_output=True, text=True, check=True, timeout=60)
    collections, most, after = map(int, ran.stdout.split())
    assert collections == 0
    assert most < 1.1 * after
