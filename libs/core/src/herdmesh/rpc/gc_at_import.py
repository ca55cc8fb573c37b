"""A pause of the garbage collector while a process imports. Imports make 60,000 to 90,000 objects of a service, of
which hardly any is garbage. Python would scan some of them 140 times meanwhile, and all when the process ends, which
takes longer than the end itself: 0.1 to 0.2 s of processor time.

Owns the pause and its end. Invariant: the collector is never off for good. A pause that its caller forgets to end is
ended once there are more objects than any service imports.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping

_OBJECTS_MAX = 200_000
_paused: list[tuple[int, int, int]] = []
"""The thresholds to have again, while there is a pause."""


def begin() -> None:
    """Let the collector wait: for `over`, for a collection that somebody asks for, or for many objects."""
    usual = gc.get_threshold()
    if not _paused and 0 < usual[0] < _OBJECTS_MAX:
        _paused.append(usual)
        gc.callbacks.append(_collected)
        gc.set_threshold(_OBJECTS_MAX, *usual[1:])


def over() -> None:
    """All is imported, and stays: no later pass looks through it, nor does the last one."""
    gc.freeze()
    _end()


def _collected(_phase: str, _info: Mapping[str, int]) -> None:
    _end()


def _end() -> None:
    if _paused:
        gc.callbacks.remove(_collected)
        gc.set_threshold(*_paused.pop())
