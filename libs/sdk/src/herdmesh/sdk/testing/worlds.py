"""The interfaces by which an author describes the world outside a connector to the standard suite.

Owns the two interfaces and the records a sink is given. Invariant: every record that the suite writes can be identified
by a number, on both sides.
"""

from __future__ import annotations

import json
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, Final

from herdmesh.connect.model import OPTIONAL_STRING, Schema

JSON_WITHOUT_SCHEMAS: Final[Mapping[str, str]] = {
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
}
"""The suite's converters, where the connector has no own (`default_converters`)."""
BadConfig = tuple[Mapping[str, str | None], str]
"""Changes to the good config (None leaves a key out), and the key that validation must name."""


class World(ABC):
    """One world outside, made anew for each test."""

    def __init__(self, folder: Path) -> None:
        """`folder`: empty, and this world's own."""
        self.folder = folder
        self.name = f"{folder.name}-{uuid.uuid4().hex[:12]}"
        """Unique: for topics, tables and the like."""

    @abstractmethod
    def config(self) -> dict[str, str]:
        """A config that works, with the connector's own keys. It is asked for before each run."""

    def bad_configs(self) -> Sequence[BadConfig]:
        """Configs that validation must refuse. Required keys that are missing and numbers that are none are tried
        anyhow."""
        return ()

    def close(self) -> None:
        """Take the world away, after the test."""
        return


class SourceWorld(World):
    """What a source reads."""

    patience_s: ClassVar[float] = 0.0
    """How long a task may say that there is nothing, though there is: 0 = what was written is there at once."""
    silence_s: ClassVar[float | None] = None
    """How long to look for records that must not come: of a patient world, which would cost its whole patience each
    time. None = `patience_s`."""
    records_min: ClassVar[int] = 0
    """A source that makes its records up may always have one: the fewest that can be written into it."""
    run_records: ClassVar[int | None] = None
    """How many records a run on a broker is to bring, of a source that makes one now and then by the clock and not as
    many as are written; None = as many as the suite writes."""
    each_task_has_all: ClassVar[bool] = False
    """True = tasks do not share what was written: each sends all of it, in a source partition of its own."""
    in_order: ClassVar[bool] = True
    """Records of one source partition come in the order in which they were written."""

    @abstractmethod
    def write(self, numbers: range) -> None:
        """Have one more record in the source for each number."""

    def write_changed(self, numbers: range) -> bool:
        """Likewise, of another shape: other fields, another type. Returns False, having written nothing, where records
        have one shape only."""
        return False

    @abstractmethod
    def number_of(self, value: bytes) -> int:
        """The number that a record was written for.

        Args:
            value: as it is in Kafka: JSON without a schema, or what the connector's `default_converters` make.
        """

    def topics(self) -> list[str]:
        """The topics the records go to. They have to be this world's own (`name`)."""
        return [self.config()["topic"]]


class RecordForm(StrEnum):
    """What values of records can be."""

    MAP = "map"
    """`{"id": 7, "name": "n7"}` without a schema."""
    STRUCT = "struct"
    """The same under a schema."""
    TEXT = "text"
    """`"7"`"""


_PERSON: Final = Schema("STRUCT", name="person", version=1, fields=[("id", Schema("INT64")), ("name", OPTIONAL_STRING)])
_PERSON_2: Final = Schema(
    "STRUCT", name="person", version=2, fields=[("id", Schema("INT64")), ("email", OPTIONAL_STRING)]
)  # fmt: skip
_TEXT: Final = Schema("STRING")


class SinkWorld(World):
    """What a sink writes to."""

    forms: ClassVar[tuple[RecordForm, ...]] = (RecordForm.MAP, RecordForm.STRUCT)
    """What values the sink takes; most tests use the first."""
    is_idempotent: ClassVar[bool] = False
    """A record that is given again is there once. Of a `StagingSinkTask` it is anyhow, but after a
    rewind; of a `LedgerSinkTask` always."""
    takes_tombstones: ClassVar[bool] = True
    """False = records without a value are refused, with a DataError."""

    def record(self, number: int, form: RecordForm, *, changed: bool) -> tuple[Any, Schema | None]:
        """Value and schema of a record, for sinks that need other fields than `id` and `name` (changed: `id` and
        `email`). From the value `found` has to tell the number."""
        if form is RecordForm.TEXT:
            return str(number), None if changed else _TEXT
        fields: dict[str, Any] = {"id": number}
        fields["email" if changed else "name"] = f"n{number}"
        if form is RecordForm.MAP:
            return fields, None
        from herdmesh.connect.model import Struct  # beside its only use

        return Struct(_PERSON_2 if changed else _PERSON, list(fields.values())), _PERSON_2 if changed else _PERSON

    @abstractmethod
    def found(self) -> list[int]:
        """The numbers (`id`) of all records that somebody else sees there now, as often as they are there. What is no
        such record, as a tombstone's, is left out."""


def json_number(value: bytes, field: str = "") -> int:
    """The number in a JSON value, or in a field of it: what `number_of` most often is."""
    found = json.loads(value)
    return int(found[field] if field else found)
