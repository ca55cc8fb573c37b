"""Step: the event that is being handled, its time, the rules in force, and the resulting instructions.

Owns the clock of the state and the list of instructions. Owns nothing that outlives the event except the time.

Invariant: time never goes back, whatever times the events carry.
"""

from __future__ import annotations

from herdmesh.herder.state.model import Rules
from herdmesh.herder.state.model.instructions import Instruction


class Step:
    """Step of one herder, begun anew with every event."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        #: the time of the event, in milliseconds of one clock.
        self.now = 0
        self._instructions: list[Instruction] = []

    def begin(self, now: int) -> None:
        """Another event begins."""
        self.now = max(self.now, now)

    def emit(self, instruction: Instruction) -> None:
        """Append an instruction."""
        self._instructions.append(instruction)

    def take_instructions(self) -> list[Instruction]:
        """Take out the instructions."""
        taken, self._instructions = self._instructions, []
        return taken
