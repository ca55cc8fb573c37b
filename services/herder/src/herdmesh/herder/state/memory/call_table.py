"""Call table part of a herder's memory: calls, writes and commands under way, and which call changes whose offsets.

Owns the tables and the numbers by which replies find their entries. Does not own the steps of a call (`calls`), nor the
choice of a worker for a command (`workers.commands`).

Invariants: a number is used once by this process. A command belongs to a call or to a connector's own work. A
connector's offsets belong to one call at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from herdmesh.herder.state.memory.entities import Call, Command, Op, OpKind

UNTOUCHED_OFFSETS_MAX = 1_000


class CallTable:
    """Call table of one herder. Calls whose write is under way outlive the leadership."""

    def __init__(self) -> None:
        self._calls: dict[int, Call] = {}
        #: by number, the calls without an answer.
        self.calls: Mapping[int, Call] = self._calls
        self._ops: dict[int, Op] = {}
        #: by number, the writes without a result.
        self.ops: Mapping[int, Op] = self._ops
        self._commands: dict[str, Command] = {}
        #: by id, the commands without a reply, oldest first.
        self.commands: Mapping[str, Command] = self._commands
        #: calls that wait for the config watch.
        self._reading_back: set[int] = set()
        #: the call that writes offsets, by the connector's name.
        self._offsets_under_way: dict[str, int] = {}
        #: request ids of changes of offsets that were begun, and refused before anything was written.
        self._untouched_offsets: dict[str, None] = {}
        self._next_number = 0

    def end_leadership(self) -> None:
        """Forget commands, and all writes except those of calls."""
        self._ops = {number: op for number, op in self._ops.items() if op.kind is OpKind.CALL}
        self.ops = self._ops
        self._commands.clear()
        self._untouched_offsets.clear()

    # --- calls

    def add(self, call: Call) -> None:
        """A call begins."""
        self._calls[call.id] = call

    def remove(self, call: Call) -> None:
        """A call is over: forget its waits and commands."""
        self._calls.pop(call.id, None)
        self._reading_back.discard(call.id)
        if self._offsets_under_way.get(call.name) == call.id:
            del self._offsets_under_way[call.name]
        self.forget_commands(call)

    def wait_for_watch(self, call: Call) -> None:
        """Let a call wait for the config watch."""
        self._reading_back.add(call.id)

    def stop_waiting(self, call: Call) -> None:
        """End a call's wait for the config watch."""
        self._reading_back.discard(call.id)

    def waits_for_watch(self, call: Call) -> bool:
        """True while the call waits for the config watch."""
        return call.id in self._reading_back

    def waiting_for_watch(self) -> list[Call]:
        """The calls that wait for the config watch, oldest first."""
        return [self._calls[number] for number in sorted(self._reading_back)]

    # --- writes

    def next_number(self) -> int:
        """A number never used before by this process."""
        self._next_number += 1
        return self._next_number

    def op(self, op: Op) -> int:
        """A new number for a write; its result finds `op` by it."""
        number = self.next_number()
        self._ops[number] = op
        return number

    def add_op(self, number: int, op: Op) -> None:
        """Store `op` under the number of its write."""
        self._ops[number] = op

    def take_op(self, number: int) -> Op | None:
        """Take out the entry for a result; None = the write is of an earlier leadership."""
        return self._ops.pop(number, None)

    # --- commands

    def add_command(self, command: Command) -> None:
        """A command was sent."""
        self._commands[command.id] = command

    def take_command(self, command_id: str, session: int) -> Command | None:
        """The command of a reply; None when nobody waits for it any more, or another worker has the command by now."""
        command = self._commands.get(command_id)
        if command is None or command.session != session:
            return None
        return self._commands.pop(command_id)

    def take_commands_of(self, session: int) -> list[Command]:
        """Take out the commands of a session that ended, in the order they were sent."""
        gone = [command_id for command_id, command in self._commands.items() if command.session == session]
        return [self._commands.pop(command_id) for command_id in gone]

    def forget_commands(self, call: Call) -> None:
        """Forget the commands of a call: nobody waits for their replies."""
        for command_id in call.command_ids:
            self._commands.pop(command_id, None)
        call.command_ids.clear()

    # --- offsets

    def offsets_holder(self, call: Call) -> Call | None:
        """Another call that holds the offsets of this call's connector; None = no other does."""
        number = self._offsets_under_way.get(call.name, call.id)
        return None if number == call.id else self._calls.get(number)

    def reserve_offsets(self, call: Call) -> None:
        """The call begins to write the connector's offsets."""
        self._offsets_under_way[call.name] = call.id

    def note_untouched_offsets(self, request_id: str) -> None:
        """Note that a change of offsets of that id was begun, and refused before anything was written."""
        self._untouched_offsets[request_id] = None
        while len(self._untouched_offsets) > UNTOUCHED_OFFSETS_MAX:
            del self._untouched_offsets[next(iter(self._untouched_offsets))]

    def were_offsets_untouched(self, request_id: str) -> bool:
        """True when nothing was written for that id, as far as this leader knows."""
        return request_id in self._untouched_offsets

    def begin_offsets_anew(self, request_id: str) -> None:
        """A change of that id may write from now on."""
        self._untouched_offsets.pop(request_id, None)

    def others_of(self, call: Call) -> Iterable[Call]:
        """The other calls about the same connector."""
        return (other for other in self._calls.values() if other.name == call.name and other.id != call.id)
