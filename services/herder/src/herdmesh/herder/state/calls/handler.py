"""Request handler: the base of the classes that carry out one kind of request each.

Owns the steps of a call (begin, a worker replied, a worker was lost, a store wrote, the deadline passed, this herder
stopped leading) and the default for each step. Does not own the table of calls, nor the one answer of each call:
`calls.py` runs the steps and answers.

Each step returns the answer, or None while it waits for an event, and raises the error to refuse the call with. Before
a request that a store may know from an earlier call of its id is refused, the store is queried (`look_back`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Final

from herdmesh.herder.state.leadership import leadership_queries
from herdmesh.herder.state.memory import (
    Call,
    CallStage,
    Command,
    HerderMemory,
    Leadership,
    Step,
)
from herdmesh.herder.state.model.events import CommandReplied, WriteDone
from herdmesh.herder.state.model.requests import Answer
from herdmesh.rpc.errors import HerdmeshError, NoLeader, RequestIdUnknown, RequestInvalid, StaleEpoch, Timeout

#: The store completes the write whichever herder leads, and the config watch brings it to followers too.
SEEN_THROUGH: Final = (CallStage.WRITING, CallStage.LOOKING_BACK, CallStage.READING_BACK)


@dataclass(frozen=True)
class RequestHandler(ABC):
    """Steps of one kind of request. Has no state: the state of a call is in its `Call`."""

    @abstractmethod
    def begin(self, memory: HerderMemory, call: Call) -> Answer | None:
        """Start the call."""

    def on_reply(self, memory: HerderMemory, call: Call, command: Command, reply: CommandReplied) -> Answer | None:
        """A worker replied to a command of the call."""
        raise AssertionError(f"{type(self).__name__} has no commands")

    def on_worker_lost(self, memory: HerderMemory, call: Call, command: Command) -> Answer | None:
        """The worker that was to reply is gone."""
        raise AssertionError(f"{type(self).__name__} has no commands")

    def on_write_completed(self, memory: HerderMemory, call: Call, event: WriteDone) -> Answer | None:
        """The store acknowledged the call's write, now or for an earlier request of its id. It is answered after it was
        read back.
        """
        call.stage = CallStage.READING_BACK
        call.revision, call.created, call.restarted = event.revision, event.created, event.restarted
        call.unchanged = event.unchanged
        memory.call_table.wait_for_watch(call)
        return self.look_again(memory, call)

    def on_write_failed(self, memory: HerderMemory, call: Call, error: HerdmeshError) -> Answer | HerdmeshError | None:
        """The store refused the call's write, or its outcome is unknown. A returned error answers the call."""
        if call.refusal is not None:
            # The store has no earlier request of this id, or one with another content.
            return call.refusal if isinstance(error, RequestIdUnknown | RequestInvalid) else error
        return no_longer_leads(memory.step, memory.leadership, error) or error

    def look_again(self, memory: HerderMemory, call: Call) -> Answer | None:
        """The config watch moved on, or time has passed: take a step that no other event announces."""
        if call.stage is CallStage.READING_BACK and memory.stores.applied(call.revision):
            return self.outcome(memory, call)
        return None

    def outcome(self, memory: HerderMemory, call: Call) -> Answer | None:
        """The answer to a write that was read back."""
        raise AssertionError(f"{type(self).__name__} reads nothing back")

    def may_be_recorded(self, call: Call) -> bool:
        """True when a store may know the request from an earlier call of its id."""
        return False

    def look_back(self, memory: HerderMemory, call: Call) -> None:
        """Query the store for an earlier request of this id; if there is none, `call.refusal` is the answer."""
        raise AssertionError(f"{type(self).__name__} is not recorded")

    def expired(self, call: Call) -> HerdmeshError:
        """The answer at the deadline."""
        return Timeout(call.stage.value)

    def deposed(self, call: Call, why: str) -> HerdmeshError | None:
        """The answer when this herder stops leading; None for a call that is completed without leading."""
        return None if call.stage in SEEN_THROUGH else NoLeader(f"this herder stopped leading: {why}")


def no_longer_leads(step: Step, leadership: Leadership, error: HerdmeshError) -> HerdmeshError | None:
    """The answer to a write that was refused because another epoch was granted; None for any other error."""
    if not isinstance(error, StaleEpoch):
        return None
    return leadership_queries.refusal(step, leadership) or NoLeader("another herder was elected meanwhile; try again")
