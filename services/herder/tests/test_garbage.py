"""Garbage collector of the herder: seldom in the way, and never off."""

from __future__ import annotations

import subprocess
import sys

#: What ended long ago is in a cycle that young passes have left behind; then as many objects come and go as the page
#: of the herder's operation names, and a little more: those that stay are more than a quarter of what was imported,
#: which is when Python takes a pass over everything for worth while.
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


def test_a_cycle_that_grew_old_goes_after_ten_million_objects() -> None:
    ran = subprocess.run([sys.executable, "-c", _PROCESS], capture_output=True, text=True, check=True, timeout=60)
    assert 500 < int(ran.stdout) < 1_500, ran.stdout
