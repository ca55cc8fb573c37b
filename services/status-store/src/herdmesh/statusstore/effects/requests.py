"""Outcomes kept for retries: a repeated `request_id` gets the first outcome.

Owns a bounded memory of this process. A retry that meets another writer is decided again, which the put rules make
harmless: a status that is already stored as requested is APPLIED. A removal that is decided again could remove topics
recorded since; so this module also knows for which ids an earlier outcome may be unknown here, and when they were made.

Invariants: memory is bounded by the number of outcomes and by their bytes: an outcome carries stored statuses, with
traces, so it is kept encoded, without the asyncio task that made it. While a request is being worked on, a retry waits
for it and does not start it again; a failed request is forgotten, because its retry must be tried. An id that says when
it was made (`rpc.request_ids`) and that `maybe_since` takes for new was answered by no other writer, as far as its
maker's clock and this one agree.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from google.protobuf.message import Message

from herdmesh.rpc.request_ids import time_ms_of

#: Answers can hold traces; a retry comes within seconds.
REMEMBERED_MAX: Final = 2_000
REMEMBERED_BYTES_MAX: Final = 1024 * 1024
#: of an answer besides its encoded bytes: its key, and what holds it.
_ENTRY_BYTES: Final = 400

ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class _Answer:
    """What a request was answered: an encoded message, or a small value as it is."""

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
    """One per service."""

    def __init__(self, remembered_max: int = REMEMBERED_MAX, remembered_bytes_max: int = REMEMBERED_BYTES_MAX) -> None:
        self._answers: dict[tuple[str, str], asyncio.Task[Any] | _Answer] = {}
        self._bytes = 0
        self._remembered_max = remembered_max
        self._remembered_bytes_max = remembered_bytes_max
        self._unknown_until_ms = math.inf

    def begin_writing(self, now_ms: int) -> None:
        """This process writes from now on: what others answered before is not known here."""
        self._unknown_until_ms = now_ms

    def end_writing(self) -> None:
        """Another process may answer from now on."""
        self._unknown_until_ms = math.inf

    def maybe_since(self, request_id: str) -> int | None:
        """When the id was made, where its request may have been answered before without this process knowing; None for
        one that is new, and for one that does not say."""
        made_ms = time_ms_of(request_id)
        return made_ms if made_ms is not None and made_ms <= self._unknown_until_ms else None

    async def once(self, method: str, request_id: str, work: Callable[[], Awaitable[ResultT]]) -> ResultT:
        """`await work()`, or what it gave the first time. An empty `request_id` is never remembered."""
        if not request_id:
            return await work()
        key = (method, request_id)
        known = self._answers.get(key)
        if isinstance(known, _Answer):
            return known.told()
        task = known
        if task is None:
            # A task of its own: the caller may leave, its retry must find the outcome all the same.
            task = asyncio.ensure_future(_awaited(work))
            self._answers[key] = task
            task.add_done_callback(lambda done: self._settled(key, done))
            self._make_room()
        return await asyncio.shield(task)

    def _make_room(self) -> None:
        """Forget what was asked longest ago, but for the newest answer."""
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
            return  # forgotten meanwhile: there were too many since
        if task.cancelled() or task.exception() is not None:
            del self._answers[key]
            return
        answer = self._answers[key] = _Answer.of(task.result())
        self._bytes += answer.size
        self._make_room()


async def _awaited(work: Callable[[], Awaitable[ResultT]]) -> ResultT:
    return await work()
