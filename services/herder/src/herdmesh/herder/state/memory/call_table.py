"""Call table part of a herder's memory: calls, writes and commands under way, and who changes whose offsets.

Owns the tables and the numbers by which answers find them. Does not own what a call does (`calls`), nor which worker is
asked (`workers.commands`).

Invariants: a number is used once by this process. A command belongs to a call or to a connector's own affairs. A
connector's offsets belong to one call at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from herdmesh.herder.state.memory.entities import Call, Command, Op, OpKind

LEFT_ALONE_MAX = 1_000


class CallTable:
    """One per herder. Calls whose write is under way outlive the reign."""

    def __init__(self) -> None:
        self._calls: dict[int, Call] = {}
        #: by number, those that are not answered.
        self.calls: Mapping[int, Call] = self._calls
        self._ops: dict[int, Op] = {}
        #: by number, the writes that a store has not answered.
        self.ops: Mapping[int, Op] = self._ops
        self._commands: dict[str, Command] = {}
        #: by id, those that no worker has answered, oldest first.
        self.commands: Mapping[str, Command] = self._commands
        #: calls that wait for the config watch.
        self._reading_back: set[int] = set()
        #: the call that writes offsets, by the connector's name.
        self._offsets_under_way: dict[str, int] = {}
        #: request ids of changes of offsets that were begun, and refused before anything was written.
        self._offsets_left_alone: dict[str, None] = {}
        self._next_number = 0

    def end_leadership(self) -> None:
        """Forget commands, and all writes but those of calls."""
        self._ops = {number: op for number, op in self._ops.items() if op.kind is OpKind.CALL}
        self.ops = self._ops
        self._commands.clear()
        self._offsets_left_alone.clear()

    # --- calls

    def add(self, call: Call) -> None:
        """A call begins."""
        self._calls[call.id] = call

    def remove(self, call: Call) -> None:
        """A call is over: nobody waits for what was asked for it."""
        self._calls.pop(call.id, None)
        self._reading_back.discard(call.id)
        if self._offsets_under_way.get(call.name) == call.id:
            del self._offsets_under_way[call.name]
        self.forget_commands(call)

    def wait_for_watch(self, call: Call) -> None:
        """A call waits for the config watch."""
        self._reading_back.add(call.id)

    def stop_waiting(self, call: Call) -> None:
        """A call waits for the config watch no longer."""
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
        """A number for a write, under which its result finds `op`."""
        number = self.next_number()
        self._ops[number] = op
        return number

    def add_op(self, number: int, op: Op) -> None:
        """The result of the write of that number finds `op`."""
        self._ops[number] = op

    def take_op(self, number: int) -> Op | None:
        """What a result belongs to; None = to a write of an earlier reign."""
        return self._ops.pop(number, None)

    # --- commands

    def add_command(self, command: Command) -> None:
        """A worker is asked."""
        self._commands[command.id] = command

    def take_command(self, command_id: str, session: int) -> Command | None:
        """The command a reply answers; None when nobody waits for it any more, or another worker was asked
        meanwhile."""
        command = self._commands.get(command_id)
        if command is None or command.session != session:
            return None
        return self._commands.pop(command_id)

    def take_commands_of(self, session: int) -> list[Command]:
        """Take what was asked over a session that ended, in the order it was asked."""
        gone = [command_id for command_id, command in self._commands.items() if command.session == session]
        return [self._commands.pop(command_id) for command_id in gone]

    def forget_commands(self, call: Call) -> None:
        """Nobody waits for what was asked for a call."""
        for command_id in call.command_ids:
            self._commands.pop(command_id, None)
        call.command_ids.clear()

    # --- offsets

    def offsets_holder(self, call: Call) -> Call | None:
        """Another call that holds the offsets of the connector that this one is about; None = nobody else does."""
        number = self._offsets_under_way.get(call.name, call.id)
        return None if number == call.id else self._calls.get(number)

    def reserve_offsets(self, call: Call) -> None:
        """The call begins to write the connector's offsets."""
        self._offsets_under_way[call.name] = call.id

    def leave_offsets_alone(self, request_id: str) -> None:
        """A change of offsets of that id was begun, and refused before anything was written."""
        self._offsets_left_alone[request_id] = None
        while len(self._offsets_left_alone) > LEFT_ALONE_MAX:
            del self._offsets_left_alone[next(iter(self._offsets_left_alone))]

    def were_offsets_left_alone(self, request_id: str) -> bool:
        """True when nothing was written for that id, as far as this leader knows."""
        return request_id in self._offsets_left_alone

    def begin_offsets_anew(self, request_id: str) -> None:
        """A change of that id may write from now on."""
        self._offsets_left_alone.pop(request_id, None)

    def others_of(self, call: Call) -> Iterable[Call]:
        """The other calls about the same connector."""
        return (other for other in self._calls.values() if other.name == call.name and other.id != call.id)
