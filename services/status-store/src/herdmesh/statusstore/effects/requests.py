"""Outcomes kept for retries: a repeated `request_id` gets the first outcome.

Owns a bounded memory of this process. A retry that meets another writer is decided again, which the put rules make
harmless: a status that is already stored as requested is APPLIED. A removal that is decided again could remove topics
recorded since; so this module also tells for which ids an earlier outcome may be unknown here, and when they were
created.

Invariants: memory is bounded by the number of outcomes and by their bytes: an outcome carries stored statuses, with
traces, so it is kept encoded, without the asyncio task that made it. While a request is in progress, a retry waits for
it and does not start it again. A failed request is discarded, because its retry must run again. An id that carries its
time (`rpc.request_ids`) and that `maybe_since` treats as new was answered by no other writer, as far as the clock that
made it and this one agree.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from google.protobuf.message import Message

from herdmesh.rpc.request_ids import time_ms_of

#: Outcomes can hold traces; a retry comes within seconds.
REMEMBERED_MAX: Final = 2_000
REMEMBERED_BYTES_MAX: Final = 1024 * 1024
#: size of an outcome besides its encoded bytes: its key, and the objects that hold it.
_ENTRY_BYTES: Final = 400

ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class _Answer:
    """The outcome of a request: an encoded message, or a small value unchanged."""

    value: Any
    kind: type[Message] | None

    @classmethod
    def of(cls, value: Any) -> _Answer:
        return cls(value.SerializeToString(), type(value)) if isinstance(value, Message) else cls(value, None)

    @property
    def size(self) -> int:
        return _ENTRY_BYTES + (len(self.value) if self.kind is not None else 0)

    def told(self) -> Any:
        return self.value if self.kind is None else self.kind.FromString(self.value)


class Requests:
    """The outcomes that one service keeps for retries."""

    def __init__(self, remembered_max: int = REMEMBERED_MAX, remembered_bytes_max: int = REMEMBERED_BYTES_MAX) -> None:
        self._answers: dict[tuple[str, str], asyncio.Task[Any] | _Answer] = {}
        self._bytes = 0
        self._remembered_max = remembered_max
        self._remembered_bytes_max = remembered_bytes_max
        self._unknown_until_ms = math.inf

    def begin_writing(self, now_ms: int) -> None:
        """This process became the writer: outcomes of earlier writers are not known here."""
        self._unknown_until_ms = now_ms

    def end_writing(self) -> None:
        """This process is no longer the writer: another may answer requests."""
        self._unknown_until_ms = math.inf

    def maybe_since(self, request_id: str) -> int | None:
        """The creation time of the id, if an earlier outcome of its request may be unknown here; None for a new id, and
        for one that carries no time.
        """
        made_ms = time_ms_of(request_id)
        return made_ms if made_ms is not None and made_ms <= self._unknown_until_ms else None

    async def once(self, method: str, request_id: str, work: Callable[[], Awaitable[ResultT]]) -> ResultT:
        """`await work()`, or its first result for a known `request_id`. An empty `request_id` is never kept."""
        if not request_id:
            return await work()
        key = (method, request_id)
        known = self._answers.get(key)
        if isinstance(known, _Answer):
            return known.told()
        task = known
        if task is None:
            # A task of its own: when the caller leaves, its retry must still find the outcome.
            task = asyncio.ensure_future(_awaited(work))
            self._answers[key] = task
            task.add_done_callback(lambda done: self._settled(key, done))
            self._make_room()
        return await asyncio.shield(task)

    def _make_room(self) -> None:
        """Discard the oldest outcomes, but never the newest one."""
        while len(self._answers) > self._remembered_max or (
            self._bytes > self._remembered_bytes_max and len(self._answers) > 1
        ):
            self._forget(next(iter(self._answers)))

    def _forget(self, key: tuple[str, str]) -> None:
        gone = self._answers.pop(key)
        if isinstance(gone, _Answer):
            self._bytes -= gone.size
        self._unknown_until_ms = max(self._unknown_until_ms, time_ms_of(key[1]) or 0)

    def _settled(self, key: tuple[str, str], task: asyncio.Task[Any]) -> None:
        if self._answers.get(key) is not task:
            return  # discarded meanwhile: too many requests came since
        if task.cancelled() or task.exception() is not None:
            del self._answers[key]
            return
        answer = self._answers[key] = _Answer.of(task.result())
        self._bytes += answer.size
        self._make_room()


async def _awaited(work: Callable[[], Awaitable[ResultT]]) -> ResultT:
    return await work()
