"""Garbage collector of the herder: seldom running, and never off."""

from __future__ import annotations

import subprocess
import sys

#: Streams that ended long ago are in cycles that young passes have left behind; then as many objects come and go as the
#: page of the herder's operation names, and a little more: the surviving ones are more than a quarter of the imported
#: objects, the threshold at which Python makes a full pass.
_PROCESS = """
import gc, weakref
from herdmesh.herder import __main__ as herder

class Ended:
    def __init__(self):
        self.itself = self

herder._collect_seldom()
ends = Ended()
gc.collect(1)
ended = weakref.ref(ends)
del ends
stays, rounds = [], 0
while ended() is not None and rounds < 1_500:
    stays.extend([] for _ in range(1_000))
    comes = [[] for _ in range(10_000)]
    rounds += 1
print(rounds)
"""


def test_an_old_cycle_is_collected_after_ten_million_objects() -> None:
    ran = subprocess.run([sys.executable, "-c", _PROCESS], capture_output=True, text=True, check=True, timeout=60)
    assert 500 < int(ran.stdout) < 1_500, ran.stdout
