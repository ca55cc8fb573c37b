"""A pause of the garbage collector while a process imports. Imports of a service create 60,000 to 90,000 objects,
hardly any of them garbage. Python would scan some of them 140 times during the imports, and all of them when the
process ends. That takes longer than the rest of the exit: 0.1 to 0.2 s of processor time.

Owns the pause and its end. Invariant: the collector is never off for good. If the caller forgets to end the pause, it
ends when there are more objects than any service imports.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping

_OBJECTS_MAX = 200_000
_paused: list[tuple[int, int, int]] = []
"""The thresholds to restore, during a pause."""


def begin() -> None:
    """Pause the collector until `over`, until an explicit collection, or until there are many objects."""
    usual = gc.get_threshold()
    if not _paused and 0 < usual[0] < _OBJECTS_MAX:
        _paused.append(usual)
        gc.callbacks.append(_collected)
        gc.set_threshold(_OBJECTS_MAX, *usual[1:])


def over() -> None:
    """End the pause. Imported objects stay alive, so no later collection scans them, not even the last one."""
    gc.freeze()
    _end()


def _collected(_phase: str, _info: Mapping[str, int]) -> None:
    _end()


def _end() -> None:
    if _paused:
        gc.callbacks.remove(_collected)
        gc.set_threshold(*_paused.pop())
