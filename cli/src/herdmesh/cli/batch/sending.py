"""Batches: many changes sent to the herder as one call.

Owns the parts of a batch, its repetition after a lost leader, and the stop by Ctrl-C. The herder validates each config
once and writes all changes side by side. Invariants: a change is sent again only under its own request id, so it is
made at most once; after Ctrl-C every change is known as made, or as not made, or is reported as unknown.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import AsyncIterator, Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias

from herdmesh.api.herder.v1 import batch_messages_pb2 as batch_pb
from herdmesh.api.herder.v1 import config_messages_pb2 as messages
from herdmesh.api.worker.v1 import worker_service_pb2 as worker_service
from herdmesh.cli.display.output import err
from herdmesh.cli.display.progress import ProgressLine
from herdmesh.cli.errors import CommandError
from herdmesh.cli.mesh.client import RETRIED, HerderClient, command_error
from herdmesh.cli.mesh.outcomes import Item, ItemOutcome, OrderedOutcomes, Result
from herdmesh.rpc import errors as rpc_errors
from herdmesh.rpc import status

EXIT_INTERRUPTED = 130
_PART = 50
"""Changes in one message."""
_AGAIN_S = 0.2
_NAMED_MAX = 10

Change: TypeAlias = messages.CreateConnectorRequest | messages.UpdateConnectorRequest | messages.DeleteConnectorRequest
Warnings: TypeAlias = Sequence[worker_service.ConfigWarning]


@dataclass(frozen=True, slots=True)
class Interrupt:
    """Ctrl-C: the first asks the herder to begin no further change; a second one does not wait for that."""

    first: asyncio.Event = field(default_factory=asyncio.Event)
    second: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True, slots=True)
class ChangeBatch(Generic[Item, Result]):
    """What to send, and what to do with the responses.

    `change_of` makes an item's request, with a request id. `result_of` makes its result from the response. `forgiven`
    makes a result of an error, or None if it is one. `warned` is called with the warnings about a config that is
    refused. `verb` is what is said of the items that are done, as `applied`.
    """

    items: Sequence[Item]
    change_of: Callable[[Item], Change]
    result_of: Callable[[Item, Any], Result]
    verb: str
    show: Callable[[Result], None] | None = None
    forgiven: Callable[[Item, CommandError], Result | None] | None = None
    warned: Callable[[Item, Warnings], None] | None = None
    keep_going: bool = False
    validate_only: bool = False
    shows_progress: bool = True


@dataclass(frozen=True, slots=True)
class BatchOutcomes(Generic[Item, Result]):
    """The outcome of each item, in order; one without was not begun. `interrupted` is the error after Ctrl-C."""

    outcomes: list[ItemOutcome[Item, Result]]
    interrupted: CommandError | None = None

    @property
    def results(self) -> list[Result]:
        """The results of the items that have one."""
        return [one.result for one in self.outcomes if one.result is not None]

    @property
    def failed(self) -> list[tuple[Item, CommandError]]:
        """The items with an error."""
        return [(one.item, one.error) for one in self.outcomes if one.error is not None]


async def send(client: HerderClient, batch: ChangeBatch[Item, Result]) -> BatchOutcomes[Item, Result]:
    """Send a batch and wait for its outcomes. Raises CommandError when no herder takes it."""
    if not batch.items:
        return BatchOutcomes([])
    progress = ProgressLine(len(batch.items), is_shown=batch.shows_progress)
    sending = _Sending(client, batch, progress)

    def tell() -> None:
        progress.clear()
        err.print("interrupted: what was begun is completed; Ctrl-C again does not wait for it")

    with _interruptible(tell) as interrupt:
        work = asyncio.ensure_future(sending.run(interrupt))
        second = asyncio.ensure_future(interrupt.second.wait())
        try:
            await asyncio.wait({work, second}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (work, second):
                task.cancel()
            ended, _ = await asyncio.gather(work, second, return_exceptions=True)
            progress.clear()
    sending.outcomes.show_rest()
    if interrupt.first.is_set() and sending.outcomes.ended < len(batch.items):
        return BatchOutcomes(
            sending.outcomes.all, _interrupted(sending.outcomes.all, batch.verb, is_known=sending.is_known)
        )
    if isinstance(ended, BaseException):
        raise ended
    return BatchOutcomes(sending.outcomes.all)


class _Sending(Generic[Item, Result]):
    """The rounds of one batch: each sends the changes that have no outcome yet."""

    def __init__(self, client: HerderClient, batch: ChangeBatch[Item, Result], progress: ProgressLine) -> None:
        self._client = client
        self._batch = batch
        self._progress = progress
        self._changes = [batch.change_of(item) for item in batch.items]
        self._checked: set[int] = set()
        self._only_checks = batch.validate_only
        self.is_known = True
        """The changes without an outcome are known not to be made."""
        self.outcomes: OrderedOutcomes[Item, Result] = OrderedOutcomes(batch.items, self._show)

    async def run(self, interrupt: Interrupt) -> None:
        """Send until every change has an outcome, or an invalid config prevents all. Raises the error for which none
        has one.
        """
        if not self._batch.validate_only:
            self._client.check(self._changes[0])
        loop = asyncio.get_running_loop()
        patient_until_s = loop.time() + self._client.patience_s
        left = list(range(len(self._changes)))
        while left and not interrupt.first.is_set():
            before = self.outcomes.ended
            self.is_known = False
            left, error = await self._round(left, interrupt)
            self.is_known = error is None
            if error is None or interrupt.first.is_set():
                return
            if self.outcomes.ended > before:
                patient_until_s = loop.time() + self._client.patience_s
            if error.reason not in RETRIED or loop.time() >= patient_until_s:
                if not self.outcomes.ended:
                    raise error
                for number in left:
                    self.outcomes.end(number, error=error)
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(interrupt.first.wait(), _AGAIN_S)

    async def _round(self, numbers: list[int], interrupt: Interrupt) -> tuple[list[int], CommandError | None]:
        """Send these changes. Returns those without an outcome, and the error for which they are to be sent again."""
        left: dict[int, None] = dict.fromkeys(numbers)
        failed: CommandError | None = None

        over = asyncio.Event()

        def parts() -> AsyncIterator[batch_pb.ChangeConnectorsRequest]:
            return self._parts(numbers, interrupt, over)

        try:
            response: batch_pb.ChangeConnectorsResponse
            async for response in self._client.stream(lambda stub: stub.ChangeConnectors, parts):
                number = numbers[response.number]
                error = self._note(number, response)
                if error is not None:
                    failed = error
                elif response.WhichOneof("outcome") != "checked" or self._only_checks:
                    left.pop(number, None)
        except CommandError as error:
            failed = error
        finally:
            over.set()
        await asyncio.sleep(0)  # gRPC's reader of the parts ends with them, and would else be destroyed in the middle
        return list(left), failed

    async def _parts(
        self, numbers: list[int], interrupt: Interrupt, over: asyncio.Event
    ) -> AsyncIterator[batch_pb.ChangeConnectorsRequest]:
        """The messages of one round, which end when its responses have ended (`over`)."""
        for first in range(0, len(numbers), _PART):
            part = [_wrapped(self._changes[number]) for number in numbers[first : first + _PART]]
            yield batch_pb.ChangeConnectorsRequest(changes=batch_pb.ConnectorChanges(changes=part))
        begin = batch_pb.BeginChanges(keep_going=self._batch.keep_going, validate_only=self._only_checks)
        yield batch_pb.ChangeConnectorsRequest(begin=begin)
        waits = [asyncio.ensure_future(event.wait()) for event in (interrupt.first, over)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()
        if not over.is_set():
            yield batch_pb.ChangeConnectorsRequest(stop=batch_pb.StopChanges())

    def _note(self, number: int, response: batch_pb.ChangeConnectorsResponse) -> CommandError | None:
        """Take the outcome of a change. Returns an error after which it is to be sent again."""
        item = self._batch.items[number]
        kind = response.WhichOneof("outcome")
        if kind == "failure":
            error = _error_of(response.failure)
            if error.reason in RETRIED:
                return error
            self._fail(number, error, response.failure.warnings)
        elif kind == "checked" and not self._batch.validate_only:
            self._checked.add(number)
            self._progress.show("checked", len(self._checked))
            return None
        elif kind is not None:
            self.outcomes.end(number, result=self._batch.result_of(item, getattr(response, kind)))
        self._progress.show(self._batch.verb, self.outcomes.ended)
        return None

    def _fail(self, number: int, error: CommandError, warnings: Warnings) -> None:
        item = self._batch.items[number]
        forgiven = self._batch.forgiven(item, error) if self._batch.forgiven is not None else None
        if forgiven is not None:
            self.outcomes.end(number, result=forgiven)
            return
        if warnings and self._batch.warned is not None:
            self._progress.clear()
            self._batch.warned(item, warnings)
        self.outcomes.end(number, error=error)
        was_refused = number not in self._checked and not isinstance(
            self._changes[number], messages.DeleteConnectorRequest
        )
        if was_refused and not self._batch.keep_going:
            self._only_checks = True  # a round that follows must not make the others: one of all is invalid

    def _show(self, result: Result) -> None:
        if self._batch.show is not None:
            self._progress.clear()
            self._batch.show(result)


def _wrapped(change: Change) -> batch_pb.ConnectorChange:
    match change:
        case messages.CreateConnectorRequest():
            return batch_pb.ConnectorChange(create=change)
        case messages.UpdateConnectorRequest():
            return batch_pb.ConnectorChange(update=change)
        case _:
            return batch_pb.ConnectorChange(delete=change)


def _error_of(failure: batch_pb.ChangeFailure) -> CommandError:
    error = status.from_details(failure.status)
    return command_error(error or rpc_errors.Internal.restore("the herder sent an error of an unknown form", {}, ()))


def _interrupted(outcomes: Sequence[ItemOutcome[Any, Any]], verb: str, *, is_known: bool) -> CommandError:
    done = sum(one.result is not None for one in outcomes)
    left = [str(getattr(one.item, "stored_name", one.item)) for one in outcomes if not (one.result or one.error)]
    more = f" and {len(left) - _NAMED_MAX} more" if len(left) > _NAMED_MAX else ""
    named = f"{', '.join(left[:_NAMED_MAX])}{more}"
    rest = f"not {verb}: {named}" if is_known else f"not known: {named}"
    text = f"interrupted: {done} of {len(outcomes)} {verb}; {rest}"
    return CommandError("INTERRUPTED", text, "Run the command again: what is done is left alone.", EXIT_INTERRUPTED)


@contextlib.contextmanager
def _interruptible(on_first: Callable[[], None]) -> Generator[Interrupt]:
    """Turn Ctrl-C and SIGTERM into an `Interrupt` while the block lasts. Only the main thread gets signals."""
    loop = asyncio.get_running_loop()
    interrupt = Interrupt()

    def on_signal() -> None:
        if interrupt.first.is_set():
            interrupt.second.set()
        else:
            interrupt.first.set()
            on_first()

    is_main = threading.current_thread() is threading.main_thread()
    numbers = (signal.SIGINT, signal.SIGTERM) if is_main else ()
    before = {number: signal.getsignal(number) for number in numbers}
    for number in numbers:
        loop.add_signal_handler(number, on_signal)
    try:
        yield interrupt
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)
