"""The outcomes of mutations by request id: a retry gets its first outcome and is not applied again
(docs/design/stores.md, section 3).

Owns the memory of the audit topic that `request_id` needs: each request and its outcome. Has no clock: the age of an
entry comes from record timestamps, from the caller's `now_ms`, and from ids that carry a time (UUID version 7, as
`herdmesh.rpc.request_ids` creates them).

Invariants: an outcome is found for `KEPT_MS`; after that its id is refused, never applied again. Memory is bounded: by
`REMEMBERED_MS`, by `_CHUNKS_MAX` x `_CHUNK_SIZE` requests, and, because an outcome can have some hundreds of offsets,
by `_CHUNKS_MAX` x `_CHUNK_BYTES` (64 MiB) of packed outcomes. An id with a time is refused even when its entry is gone,
because it is older than `KEPT_MS` or than the last discarded entry; any other id then counts as new.
"""

from __future__ import annotations

import zlib
from array import array
from base64 import b64decode, b64encode
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NamedTuple, cast

from herdmesh.connect.json_text import jackson
from herdmesh.connect.topics import AuditRecord
from herdmesh.rpc.errors import RequestIdExpired, RequestInvalid
from herdmesh.rpc.request_ids import time_ms_of

KEPT_MS = 24 * 3_600_000
REMEMBERED_MS = 7 * KEPT_MS
# Sealed chunks are shared between copies; only the open one is copied, so a copy costs the same with any history.
_CHUNK_SIZE = 512
_CHUNK_BYTES = 256 * 1024
_CHUNKS_MAX = 256
_FASTEST = 1
_NOTHING: Mapping[str, Any] = {}
_WHAT_NOW = "read the stored state, then send the request again under a new id"


@dataclass(frozen=True, slots=True)
class Request:
    """One applied mutation. `payload` is the digest of the request. `outcome` is the part of the first response that
    the state does not have; `kept` holds it, packed when it may be large.
    """

    operation: str
    connector: str
    payload: str
    timestamp_ms: int
    kept: Mapping[str, Any] | bytes

    @property
    def outcome(self) -> Mapping[str, Any]:
        if isinstance(self.kept, bytes):
            return cast("Mapping[str, Any]", jackson.loads(zlib.decompress(self.kept)))
        return self.kept


class _Chunk(NamedTuple):
    """A chunk of consecutive requests, packed into a tenth of the memory. Retries are rare, so unpacking one is rare
    too.
    """

    newest_ms: int
    #: of the ids, sorted: a lookup that finds none here needs no unpacking.
    fingerprints: array[int]
    packed: bytes

    @classmethod
    def of(cls, requests: Mapping[str, Request]) -> _Chunk:
        rows = [
            [request_id, one.operation, one.connector, one.payload, one.timestamp_ms, *_kept_to_json(one.kept)]
            for request_id, one in requests.items()
        ]
        newest_ms = max(request.timestamp_ms for request in requests.values())
        fingerprints = array("Q", sorted(map(_fingerprint, requests)))
        return cls(newest_ms, fingerprints, zlib.compress(jackson.dumps(rows), _FASTEST))

    def may_have(self, fingerprint: int) -> bool:
        at = bisect_left(self.fingerprints, fingerprint)
        return at < len(self.fingerprints) and self.fingerprints[at] == fingerprint

    def requests(self) -> Mapping[str, Request]:
        rows = cast("list[list[Any]]", jackson.loads(zlib.decompress(self.packed)))
        return {
            request_id: Request(operation, connector, payload, timestamp_ms, b64decode(kept) if is_packed else kept)
            for request_id, operation, connector, payload, timestamp_ms, kept, is_packed in rows
        }


class RequestLog:
    """Requests by id, oldest chunk first. Not thread-safe, like all state."""

    def __init__(self) -> None:
        self._sealed: tuple[_Chunk, ...] = ()
        self._open: dict[str, Request] = {}
        self._open_bytes = 0
        self._newest_ms = 0
        self._forgotten_ms = 0

    def add(self, record: AuditRecord, timestamp_ms: int) -> None:
        """Add one audit record. A record without request id is ignored: it could not be found."""
        self._newest_ms = max(self._newest_ms, timestamp_ms)
        if not record.request_id:
            return
        kept = _packed(record.outcome or _NOTHING)
        self._open[record.request_id] = Request(record.operation, record.connector, record.payload, timestamp_ms, kept)
        self._open_bytes += len(kept) if isinstance(kept, bytes) else 0
        if len(self._open) >= _CHUNK_SIZE or self._open_bytes >= _CHUNK_BYTES:
            self._seal()

    def is_known(self, request_id: str) -> bool:
        """True when an entry of this id is kept; `find` then returns its outcome or refuses the request."""
        return bool(request_id) and self._remembered(request_id) is not None

    def find(self, request_id: str, asked: tuple[str, str, str], now_ms: int) -> Request | None:
        """The first outcome of `request_id`, None if it is new. `asked` = operation, connector, payload.

        Raises:
            RequestIdExpired: the id was created or applied so long ago that its outcome is no longer kept.
            RequestInvalid: the id was used for another request.
        """
        if not request_id:
            return None
        request = self._remembered(request_id)
        if request is None:
            made_ms = time_ms_of(request_id)
            if made_ms is not None and made_ms <= max(self._forgotten_ms, now_ms - KEPT_MS - 1):
                raise RequestIdExpired(
                    f"request_id {request_id!r} is too old to tell whether it was applied: {_WHAT_NOW}"
                )
            return None
        if (request.operation, request.connector, request.payload) != asked:
            raise RequestInvalid(
                f"request_id {request_id!r} was used for another {request.operation} of {request.connector!r}; "
                "a retry must repeat its request",
                "options.request_id",
            )
        if now_ms - request.timestamp_ms > KEPT_MS:
            raise RequestIdExpired(f"request_id {request_id!r} is older than {KEPT_MS // 3_600_000} h: {_WHAT_NOW}")
        return request

    def copy(self) -> RequestLog:
        """An independent copy that shares the sealed chunks."""
        copied = RequestLog()
        copied._sealed = self._sealed
        copied._open = dict(self._open)
        copied._open_bytes = self._open_bytes
        copied._newest_ms = self._newest_ms
        copied._forgotten_ms = self._forgotten_ms
        return copied

    def _remembered(self, request_id: str) -> Request | None:
        found = self._open.get(request_id)
        if found is not None:
            return found
        fingerprint = _fingerprint(request_id)
        for chunk in reversed(self._sealed):
            found = chunk.requests().get(request_id) if chunk.may_have(fingerprint) else None
            if found is not None:
                return found
        return None

    def _seal(self) -> None:
        oldest_ms = self._newest_ms - REMEMBERED_MS
        chunks = (*self._sealed, _Chunk.of(self._open))
        first = next((n for n, chunk in enumerate(chunks) if chunk.newest_ms >= oldest_ms), len(chunks))
        first = max(first, len(chunks) - _CHUNKS_MAX)
        for chunk in chunks[:first]:
            self._forget(chunk.requests())
        self._sealed, self._open, self._open_bytes = chunks[first:], {}, 0

    def _forget(self, requests: Mapping[str, Request]) -> None:
        # Check the time in the ids too: callers' clocks make them, not the broker's.
        for request_id, request in requests.items():
            self._forgotten_ms = max(self._forgotten_ms, request.timestamp_ms, time_ms_of(request_id) or 0)


def _fingerprint(request_id: str) -> int:
    digest = blake2b(request_id.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big")


def _kept_to_json(kept: Mapping[str, Any] | bytes) -> tuple[Any, bool]:
    return (b64encode(kept).decode(), True) if isinstance(kept, bytes) else (dict(kept), False)


def _packed(outcome: Mapping[str, Any]) -> Mapping[str, Any] | bytes:
    """An outcome as it is kept: offsets of 500 partitions are 140 KB as values, and 5 KB packed."""
    if not any(isinstance(member, dict | list) for member in outcome.values()):
        return outcome
    return zlib.compress(jackson.dumps(dict(outcome)), _FASTEST)
