"""A herder's side of a batch, for tests of the CLI with a herder in memory.

Owns the order of a batch as the real herder keeps it (`herdmesh.herder.service.batches`): all checks, then the changes.
The test's herder answers each of them by its own `call`.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from typing import Any

from herdmesh.api.herder.v1 import batch_messages_pb2 as batch_pb
from herdmesh.api.herder.v1 import config_messages_pb2 as messages
from herdmesh.cli.errors import CommandError
from herdmesh.rpc import errors, status

_OUTCOMES = {"create": "created", "update": "updated", "delete": "deleted"}
_CLASSES = {one.reason: one for one in status.CODES}


class BatchHerder(ABC):
    """Base of a herder in memory whose `call` answers single requests. It stands in for `HerderClient`."""

    patience_s = 0.5

    def __init__(self) -> None:
        self.stopped = asyncio.Event()
        """Set when a caller has stopped its batch."""

    @abstractmethod
    async def call(self, _method: Any, request: Any) -> Any:
        """Answer one request. Raises CommandError."""

    def check(self, request: Any) -> None:
        """Every change may be sent; it has a request id."""
        assert request.request_id

    async def stream(
        self, _method: Any, make: Callable[[], AsyncIterator[batch_pb.ChangeConnectorsRequest]]
    ) -> AsyncIterator[batch_pb.ChangeConnectorsResponse]:
        """Carry out a batch, a change at a time. A stop keeps all that were not begun from being begun."""
        parts = make()
        changes: list[batch_pb.ConnectorChange] = []
        begin = batch_pb.BeginChanges()
        async for part in parts:
            if part.WhichOneof("part") == "begin":
                begin = part.begin
                break
            changes += part.changes.changes
        stop = asyncio.ensure_future(self._read_stop(parts))
        try:
            refused: set[int] = set()
            for number, one in enumerate(changes):
                response = await self._checked(number, one)
                if response is not None:
                    refused |= {number} if response.HasField("failure") else set()
                    yield response
            if begin.validate_only or (refused and not begin.keep_going):
                return
            for number, one in enumerate(changes):
                if self.stopped.is_set():
                    return
                if number not in refused:
                    yield await self._changed(number, one)
        finally:
            stop.cancel()
            await asyncio.gather(stop, return_exceptions=True)

    async def _read_stop(self, parts: AsyncIterator[batch_pb.ChangeConnectorsRequest]) -> None:
        async for part in parts:
            assert part.WhichOneof("part") == "stop"
            self.stopped.set()

    async def _checked(self, number: int, one: batch_pb.ConnectorChange) -> batch_pb.ChangeConnectorsResponse | None:
        kind = one.WhichOneof("change")
        assert kind is not None
        if kind == "delete":
            return None
        try:
            request = messages.ValidateConfigRequest(config=getattr(one, kind).config)
            validation = (await self.call(None, request)).validation
        except CommandError as error:
            return batch_pb.ChangeConnectorsResponse(number=number, failure=_failure(error))
        wrong = [errors.FieldViolation(field.name, text) for field in validation.fields for text in _texts(field)]
        if wrong:
            failure = batch_pb.ChangeFailure(status=status.details(errors.InvalidConfig(wrong)))
            failure.warnings.extend(validation.warnings)
            return batch_pb.ChangeConnectorsResponse(number=number, failure=failure)
        checked = batch_pb.ChangeChecked(warnings=validation.warnings)
        return batch_pb.ChangeConnectorsResponse(number=number, checked=checked)

    async def _changed(self, number: int, one: batch_pb.ConnectorChange) -> batch_pb.ChangeConnectorsResponse:
        kind = one.WhichOneof("change")
        assert kind is not None
        try:
            outcome: dict[str, Any] = {_OUTCOMES[kind]: await self.call(None, getattr(one, kind))}
        except CommandError as error:
            outcome = {"failure": _failure(error)}
        return batch_pb.ChangeConnectorsResponse(number=number, **outcome)


def _texts(field: Any) -> list[str]:
    fixes = [*field.fixes, *("" for _ in field.errors)]
    return [f"{text} ({fix})" if fix else text for text, fix in zip(field.errors, fixes, strict=False)]


def _failure(error: CommandError) -> batch_pb.ChangeFailure:
    return batch_pb.ChangeFailure(status=status.details(_CLASSES[error.reason].restore(error.message, {}, ())))
