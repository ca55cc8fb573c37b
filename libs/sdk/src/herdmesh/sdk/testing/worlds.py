"""The interfaces by which an author describes the world outside a connector to the standard suite.

Owns the two interfaces and the records for a sink. Invariant: every record that the suite writes can be identified
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
"""The suite's converters, for a connector without its own (`default_converters`)."""
BadConfig = tuple[Mapping[str, str | None], str]
"""Changes to the good config (None removes a key), and the key that validation must name."""


class World(ABC):
    """The world outside of a connector, created anew for each test."""

    def __init__(self, folder: Path) -> None:
        """`folder`: an empty folder that only this world uses."""
        self.folder = folder
        self.name = f"{folder.name}-{uuid.uuid4().hex[:12]}"
        """Unique name, for topics, tables and the like."""

    @abstractmethod
    def config(self) -> dict[str, str]:
        """A config that works, with the connector's own keys. Called before each run."""

    def bad_configs(self) -> Sequence[BadConfig]:
        """Configs that validation must refuse. The suite tries missing required keys and invalid numbers by itself."""
        return ()

    def close(self) -> None:
        """Remove the world, after the test."""
        return


class SourceWorld(World):
    """The world that a source reads."""

    patience_s: ClassVar[float] = 0.0
    """How long a task may return nothing although there are records: 0 = written records are available at once."""
    silence_s: ClassVar[float | None] = None
    """How long to wait for records that must not come, for a world with a long `patience_s`, which would cost that time
    in each test. None = `patience_s`.
    """
    records_min: ClassVar[int] = 0
    """For a source that generates its records and may always have one more: the fewest that can be written into it."""
    run_records: ClassVar[int | None] = None
    """The number of records that a run on a broker must bring, for a source that generates them by the clock and not as
    many as are written; None = as many as the suite writes.
    """
    each_task_has_all: ClassVar[bool] = False
    """True = tasks do not share the written records: each sends all of them, in a source partition of its own."""
    in_order: ClassVar[bool] = True
    """True = records of one source partition come in the order in which they were written."""

    @abstractmethod
    def write(self, numbers: range) -> None:
        """Add one record to the source for each number."""

    def write_changed(self, numbers: range) -> bool:
        """Like `write`, for records of another shape: other fields, another type. Returns False, without writing, if
        records have only one shape.
        """
        return False

    @abstractmethod
    def number_of(self, value: bytes) -> int:
        """The number for which a record was written.

        Args:
            value: as it is in Kafka: JSON without a schema, or the output of the connector's `default_converters`.
        """

    def topics(self) -> list[str]:
        """The topics of the records. Only this world may use them (`name`)."""
        return [self.config()["topic"]]


class RecordForm(StrEnum):
    """Forms of a record's value."""

    MAP = "map"
    """`{"id": 7, "name": "n7"}` without a schema."""
    STRUCT = "struct"
    """The same with a schema."""
    TEXT = "text"
    """`"7"`"""


_PERSON: Final = Schema("STRUCT", name="person", version=1, fields=[("id", Schema("INT64")), ("name", OPTIONAL_STRING)])
_PERSON_2: Final = Schema(
    "STRUCT", name="person", version=2, fields=[("id", Schema("INT64")), ("email", OPTIONAL_STRING)]
)  # fmt: skip
_TEXT: Final = Schema("STRING")


class SinkWorld(World):
    """The world that a sink writes to."""

    forms: ClassVar[tuple[RecordForm, ...]] = (RecordForm.MAP, RecordForm.STRUCT)
    """Forms of values that the sink takes; most tests use the first."""
    is_idempotent: ClassVar[bool] = False
    """True = a record that the sink gets again is there once. A `StagingSinkTask` ensures it except after a rewind, a
    `LedgerSinkTask` always.
    """
    takes_tombstones: ClassVar[bool] = True
    """False = records without a value are refused, with a DataError."""

    def record(self, number: int, form: RecordForm, *, changed: bool) -> tuple[Any, Schema | None]:
        """Value and schema of a record, for sinks that need other fields than `id` and `name` (changed: `id` and
        `email`). `found` must be able to derive the number from the value.
        """
        if form is RecordForm.TEXT:
            return str(number), None if changed else _TEXT
        fields: dict[str, Any] = {"id": number}
        fields["email" if changed else "name"] = f"n{number}"
        if form is RecordForm.MAP:
            return fields, None
        from herdmesh.connect.model import Struct  # imported at its only use

        return Struct(_PERSON_2 if changed else _PERSON, list(fields.values())), _PERSON_2 if changed else _PERSON

    @abstractmethod
    def found(self) -> list[int]:
        """The numbers (`id`) of all records that another reader sees there now, with repetitions. Omits everything
        else, such as tombstones.
        """


def json_number(value: bytes, field: str = "") -> int:
    """The number in a JSON value, or in a field of it: the usual `number_of`."""
    found = json.loads(value)
    return int(found[field] if field else found)
