"""Headers of a dead letter, and its headers after a replay.

Owns the parsing of Connect's `__connect.errors.*` headers (docs/reference/connect/data-model.md, section 5.4), the
header of a replayed record, and the filter of dead letters in a request. Reads and writes no Kafka.

A record that fails a second time keeps the headers of the first failure, and new ones of the same names follow them. So
the last header of each name describes the failure that created the dead letter.

Invariant: a replayed record that fails again is distinguished from a first failure by its own headers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from herdmesh.connect.topics import ERROR_HEADER_PREFIX
from herdmesh.worker.state.model import Config

Header = tuple[str, bytes | None]

TOPIC, PARTITION, OFFSET = (f"{ERROR_HEADER_PREFIX}{name}" for name in ("topic", "partition", "offset"))
CONNECTOR, STAGE = f"{ERROR_HEADER_PREFIX}connector.name", f"{ERROR_HEADER_PREFIX}stage"
EXCEPTION, MESSAGE = f"{ERROR_HEADER_PREFIX}exception.class.name", f"{ERROR_HEADER_PREFIX}exception.message"
STACK_TRACE = f"{ERROR_HEADER_PREFIX}exception.stacktrace"
REPLAYED = "__herdmesh.replayed"
"""Header that names the dead letter of a replayed record: `<queue>-<partition>@<offset>`."""
CUT = "__herdmesh.cut"
"""Header of a dead letter that was too large for its queue and has only the beginning of its record
(`engine.bad_records.dead_letters`).
"""
_CAUSE = re.compile(r"^Caused by: [^:\n]+: (.+)$", re.MULTILINE)
QUEUE_KEY = "errors.deadletterqueue.topic.name"


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One record of a dead letter queue; `time_ms` None = it has no timestamp."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    time_ms: int | None
    headers: tuple[Header, ...] = ()
    """Headers without those of the last failure."""
    errors: tuple[Header, ...] = ()
    """Headers of the last failure, one of each name."""
    replayed: bool = False

    def error(self, name: str) -> str | None:
        """A header of the last failure as text; None when it is missing or null."""
        found = next((value for known, value in self.errors if known == name), None)
        return None if found is None else found.decode("utf-8", "replace")

    @property
    def brief_message(self) -> str | None:
        """The message of the last failure. Some of Connect's end with a colon, where Java's log goes on with the cause:
        the last cause of the stack trace follows here too.
        """
        message = self.error(MESSAGE)
        if message is None or not message.rstrip().endswith(":"):
            return message
        causes = _CAUSE.findall(self.error(STACK_TRACE) or "")
        return f"{message.rstrip()} {causes[-1]}" if causes else message

    @property
    def place(self) -> str:
        """Its place as users write it."""
        return f"{self.partition}:{self.offset}"

    @property
    def size_bytes(self) -> int:
        """Bytes of key, value and headers."""
        headers = sum(len(name) + len(value or b"") for name, value in (*self.headers, *self.errors))
        return len(self.key or b"") + len(self.value or b"") + headers

    @property
    def original(self) -> object | None:
        """Identity of the original record, equal for dead letters of the same record; None when unknown."""
        place = self.error(TOPIC), self.error(PARTITION), self.error(OFFSET)
        return (*place, self.key, self.value) if (place[2] or "").isdecimal() else None

    @property
    def is_cut(self) -> bool:
        """True when it may be truncated, or its record is itself a truncated dead letter."""
        return any(name == CUT for name, _ in self.headers)

    def belongs_to(self, connector: str) -> bool:
        """True when it is the connector's, or names no connector."""
        return self.error(CONNECTOR) in (None, connector)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Filter of a connector's dead letters."""

    connector: str
    replayed: bool = False
    """Include replayed ones."""
    stage: str = ""
    error: str = ""
    since_ms: int | None = None
    stage_folded: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "stage_folded", self.stage.strip().upper())

    def takes(self, letter: DeadLetter) -> bool:
        """True when the dead letter matches."""
        return (
            letter.belongs_to(self.connector)
            and (self.replayed or not letter.replayed)
            and (not self.stage_folded or letter.error(STAGE) == self.stage_folded)
            and (not self.error or self._names(letter))
            and (self.since_ms is None or (letter.time_ms is not None and letter.time_ms >= self.since_ms))
        )

    def _names(self, letter: DeadLetter) -> bool:
        text = self.error.casefold()
        return any(text in (letter.error(name) or "").casefold() for name in (EXCEPTION, MESSAGE))


def queue_of(config: Config) -> str:
    """The queue's topic, "" = none."""
    return (config.get(QUEUE_KEY) or "").strip()


def split(headers: Sequence[Header]) -> tuple[tuple[Header, ...], tuple[Header, ...]]:
    """A record's own headers, including those of earlier failures, and those of the last failure."""
    last = {name: at for at, (name, _) in enumerate(headers) if name.startswith(ERROR_HEADER_PREFIX)}
    taken = set(last.values())
    own = tuple(header for at, header in enumerate(headers) if at not in taken)
    return own, tuple(headers[at] for at in sorted(taken))


def replayed_text(letter: DeadLetter, queue: str) -> bytes:
    """The value of the header `REPLAYED` for a dead letter."""
    return f"{queue}-{letter.partition}@{letter.offset}".encode()


def put_back_headers(letter: DeadLetter, queue: str) -> list[Header]:
    """The headers of the replayed record."""
    return [*letter.headers, (REPLAYED, replayed_text(letter, queue))]
