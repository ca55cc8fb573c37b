"""Faults for a mesh, drawn from a seed. Owns the draw, not the execution.

Invariant: the same seed gives the same rounds; every kind of fault comes once before any comes again, so that a run of
a few minutes has seen nearly all of them, and each deck begins with a kill -9 of every target.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Way(StrEnum):
    """Kind of harm to a process."""

    KILL = "kill -9"
    STOP = "SIGTERM"
    FREEZE = "SIGSTOP"


@dataclass(frozen=True, slots=True)
class Fault:
    """`target` is a role: worker, jvm, daemon, run, leader, follower, config-store, status-store or broker. `pick` in
    [0, 1) chooses the process of that role, `freeze_s` is the duration, `gap_s` the time after the fault before.
    """

    way: Way
    target: str
    pick: float
    freeze_s: float
    gap_s: float


#: Shorter than any time-out of ours, and longer than all of them (a worker's session: 6 s). The broker is frozen for
#: less than its own session (3 s in a development stack): the only broker of a cluster that wakes up after more fences
#: itself and skips the commit markers in flight, "these partitions are likely deleted already", so that transactions
#: hang until an operator aborts them (Kafka 4.3.1).
_BLINK_S = (0.3, 2.0)
_LONG_S = (6.5, 9.0)

_Card = tuple[Way, str, tuple[float, float]]
_CARDS: Sequence[_Card] = (
    *((Way.KILL, target, (0, 0)) for target in ("worker", "worker", "jvm", "daemon", "run", "run", "leader")),
    *(
        (Way.KILL, target, (0, 0))
        for target in ("leader", "follower", "config-store", "config-store", "status-store", "broker")
    ),
    *((Way.STOP, target, (0, 0)) for target in ("worker", "leader", "config-store", "status-store", "broker")),
    *(
        (Way.FREEZE, target, _BLINK_S)
        for target in ("worker", "jvm", "daemon", "run", "leader", "config-store", "broker")
    ),
    *((Way.FREEZE, target, _LONG_S) for target in ("worker", "run", "leader", "config-store", "status-store")),
    (Way.FREEZE, "broker", _BLINK_S),
    (Way.STOP, "follower", (0, 0)),
    (Way.FREEZE, "follower", _LONG_S),
)
TARGETS = frozenset(target for _, target, _ in _CARDS)
_SIZES = (1, 1, 2, 2, 3)
_GAP_S_MAX = 3.0


def rounds(seed: int) -> Iterator[Sequence[Fault]]:
    """Endless rounds: some faults at a time, each round followed by a check of the mesh."""
    draw = random.Random(seed)
    deck: list[_Card] = []
    while True:
        faults: list[Fault] = []
        for number in range(draw.choice(_SIZES)):
            if not deck:
                deck = _shuffled(draw)
            way, target, (shortest_s, longest_s) = deck.pop()
            gap_s = draw.uniform(0, _GAP_S_MAX) if number else 0.0
            faults.append(Fault(way, target, draw.random(), round(draw.uniform(shortest_s, longest_s), 1), gap_s))
        yield faults


def _shuffled(draw: random.Random) -> list[_Card]:
    """All cards, the next to be dealt last: each target is killed before any has a second turn."""
    cards = draw.sample(_CARDS, len(_CARDS))
    first = {card[1]: card for card in cards if card[0] is Way.KILL}
    for card in first.values():
        cards.remove(card)
    return [*cards, *first.values()]
