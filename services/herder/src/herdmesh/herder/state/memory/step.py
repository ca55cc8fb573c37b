"""Step: the event that is being handled, with its time, the rules it is handled by, and the instructions it leads to.

Owns the clock of the state and the way out of it. Owns nothing that outlives the event but the time.

Invariant: time never goes back, whatever the events say.
"""

from __future__ import annotations

from herdmesh.herder.state.model import Rules
from herdmesh.herder.state.model.instructions import Instruction


class Step:
    """One per herder, begun anew with every event."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        #: the time of the event, in milliseconds of one clock.
        self.now = 0
        self._instructions: list[Instruction] = []

    def begin(self, now: int) -> None:
        """Another event happens."""
        self.now = max(self.now, now)

    def emit(self, instruction: Instruction) -> None:
        """Have something done, after what was emitted before."""
        self._instructions.append(instruction)

    def take_instructions(self) -> list[Instruction]:
        """The instructions since they were taken last."""
        taken, self._instructions = self._instructions, []
        return taken
