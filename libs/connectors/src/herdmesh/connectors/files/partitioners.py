"""Partitioners: functions from records to subfolders.

Owns the partitioners and the folder names of values, in Hive's
form, so that Spark, Hive and Arrow read them back as columns.

    none     all in the folder itself
    kafka    partition=7/
    field    country=DE/city=Ulm/, from fields of the value; no value is __HIVE_DEFAULT_PARTITION__
    time     year=2026/month=11/day=22/hour=13/, from the record's time, the wall clock or a field

The field stays in the record; `fields` reads it with its schema. Names of time folders have Java's date patterns,
limited to `TIME_LETTERS`.

Invariants: equal values have equal folders; no folder is outside of its parent, whatever a record contains.
"""

from __future__ import annotations

import base64
import re
import time
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from math import gcd
from typing import Any, Protocol, cast

from herdmesh.connect.java import DateFormat, tokens_of
from herdmesh.connect.model import TIME, Float32, java_text
from herdmesh.connectors.files.fields import FieldReaders
from herdmesh.connectors.files.time_texts import YEAR_1_MS, date_text, milliseconds_of, offset_ms, zone_of
from herdmesh.sdk import DataError, JavaDate, Schema, SinkBatch

_DEBEZIUM = "io.debezium.time."
_DEBEZIUM_MS: Mapping[str, tuple[int, int]] = {
    f"{_DEBEZIUM}Date": (86_400_000, 1),
    f"{_DEBEZIUM}Timestamp": (1, 1),
    f"{_DEBEZIUM}MicroTimestamp": (1, 1_000),
    f"{_DEBEZIUM}NanoTimestamp": (1, 1_000_000),
}
"""By schema: factor and divisor that convert a number to milliseconds since 1970."""
_OF_NO_DAY = frozenset(
    (
        TIME,
        *(f"{_DEBEZIUM}{name}" for name in ("Time", "MicroTime", "NanoTime", "ZonedTime", "MicroDuration", "Interval")),
    )
)
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
FOLDER_BYTES_MAX = 250
"""Maximum bytes of one folder's name: file systems allow 255."""
TIME_LETTERS = frozenset("yYMdDHhmsSaE")
"""Pattern letters with the same meaning in Java's two kinds of patterns and in Joda's; Y is the year."""
_MINUTE_MS = 60_000
_FOLDERS_KEPT = 10_000
_ESCAPED = re.compile(r"""["#%'*/:=?\\\x00-\x1f\x7f{\[\]^]""")
"""Characters that Hive escapes in a folder's name."""
_WITH_OTHER_TEXTS = {float, Float32, Decimal}
"""Types whose equal values can have different texts."""
Placed = Sequence["str | DataError"]
"""For each record its folder, or the error why it has none."""


class Partitioner(Protocol):
    """Function from records to subfolders."""

    def folders(self, batch: SinkBatch) -> str | Placed:
        """Return the folder of all records, or of each; "" = none, else without slashes at its ends."""
        ...


class TogetherPartitioner:
    """`none`: no subfolders."""

    def folders(self, batch: SinkBatch) -> str:
        return ""


class KafkaPartitioner:
    """`kafka`: by the partition of the topic."""

    def folders(self, batch: SinkBatch) -> str:
        return f"partition={batch.partition}"


class FieldPartitioner:
    """`field`: by values of fields, in their order."""

    def __init__(self, fields: Sequence[str], *, defaults: bool = True) -> None:
        """`defaults`: read a null as the default of its schema, if there is one."""
        self._names = [_visible(escaped(name)) for name in fields]
        self._readers = FieldReaders(fields, defaults=defaults)

    def folders(self, batch: SinkBatch) -> Placed:
        readers = self._readers.under(batch.value_schema)
        columns = [[reader.read(value) for value in batch.values] for reader in readers]
        schemas = [reader.schema for reader in readers]
        # Equal values of different types (1, 1.0, True) have different folders, and so have 0.0 and -0.0, 1.0 and 1.00.
        told = [map(repr if _WITH_OTHER_TEXTS & set(map(type, column)) else type, column) for column in columns]
        keys = list(zip(*columns, *told, strict=True))
        try:
            known = {key: self._folder(key[: len(columns)], schemas) for key in dict.fromkeys(keys)}
        except TypeError:  # unhashable: an object or an array among the values
            return [self._folder(key[: len(columns)], schemas) for key in keys]
        return [known[key] for key in keys]

    def _folder(self, values: Sequence[Any], schemas: Sequence[Schema | None]) -> str | DataError:
        parts: list[str] = []
        for name, value, schema in zip(self._names, values, schemas, strict=True):
            text = _folder_text(value, schema)
            part = f"{name}={text}"
            if text is None or len(part.encode()) > FOLDER_BYTES_MAX:
                why = (
                    "is not a string, number or boolean" if text is None else f"is longer than {FOLDER_BYTES_MAX} bytes"
                )
                return DataError(f"the field {name} cannot name a folder: its value {why}")
            parts.append(part)
        return "/".join(parts)


def _folder_text(value: Any, schema: Schema | None) -> str | None:
    """Return a value as folder text; None = the value cannot name a folder."""
    if value is None or value == "":
        return NO_VALUE
    if isinstance(value, JavaDate):
        return escaped(date_text(value, None if schema is None else schema.name))
    if isinstance(value, bytes | bytearray | memoryview):
        return escaped(base64.b64encode(cast("bytes", value)).decode())
    if isinstance(value, str | int | float | Decimal):
        return escaped(java_text(value, schema))
    return None


def escaped(text: str) -> str:
    """Escape the text as part of a folder's name, like Hive: `a/b` is `a%2Fb`."""
    plain = text.encode("utf-8", "replace").decode()  # a lone surrogate has no UTF-8
    return _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", plain)


def _visible(folder: str) -> str:
    """Escape the dot at the beginning of a folder's name, which would hide the folder or name a parent."""
    return f"%2E{folder[1:]}" if folder.startswith(".") else folder


def topic_folder(topic: str) -> str | DataError:
    """Return the folder of a topic, whose name may be anything after a transformation: always one folder, never hidden,
    and directly in its parent.
    """
    name = _visible(escaped(topic)) or NO_VALUE
    if len(name.encode()) > FOLDER_BYTES_MAX:
        return DataError(f"the topic {topic[:80]}... cannot name a folder: it is longer than {FOLDER_BYTES_MAX} bytes")
    return name


class TimePartitioner:
    """`time`: by a time of each record, rounded down to a duration, in a time zone."""

    def __init__(self, pattern: str, duration_ms: int, zone: str, times: RecordTimes) -> None:
        """`pattern` must have passed `pattern_problem`, and `zone_of` must accept `zone`."""
        self._format = DateFormat(_years_of_era(pattern))
        self._duration_ms = duration_ms
        self._zone = zone_of(zone)
        self._times = times
        # No zone changes its offset within a minute (none has since 1972), so one minute, or one duration in it, is one
        # folder.
        self._grain_ms = duration_ms if zone == "UTC" else gcd(duration_ms, _MINUTE_MS)
        self._folders: dict[int, str | DataError] = {}

    def folders(self, batch: SinkBatch) -> Placed:
        times = self._times.of(batch)
        if isinstance(times, int):
            return [self._folder(times)] * len(batch)
        if any(isinstance(one, DataError) for one in times):
            return [self._folder(one) if isinstance(one, int) else one for one in times]
        whole = cast("Sequence[int]", times)
        grain = self._grain_ms
        if min(whole) // grain == max(whole) // grain:
            return [self._folder(whole[0])] * len(whole)
        grains = [one // grain for one in whole]
        known = {one: self._folder(one * grain) for one in set(grains)}
        return [known[one] for one in grains]

    def _folder(self, time_ms: int) -> str | DataError:
        grain = time_ms // self._grain_ms
        found = self._folders.get(grain)
        if found is None:
            if len(self._folders) >= _FOLDERS_KEPT:
                self._folders.clear()
            found = self._folders[grain] = self._made(time_ms)
        return found

    def _made(self, time_ms: int) -> str | DataError:
        if time_ms < YEAR_1_MS:
            return DataError(f"the time {time_ms} is before the year 1, which a folder name cannot express")
        local_ms = time_ms + offset_ms(self._zone, time_ms)
        return self._format.format(local_ms // self._duration_ms * self._duration_ms).strip("/")


def _years_of_era(pattern: str) -> str:
    """Replace Y by the year. In Java's SimpleDateFormat it is the week year; here, as with Joda, it is the year."""
    return "".join(
        "'" + literal.replace("'", "''") + "'" if not letter else ("y" if letter == "Y" else letter) * count
        for letter, count, literal in tokens_of(pattern)
    )


def pattern_problem(pattern: str) -> str:
    """Return the problem of a folder pattern, "" = none. Raises IllegalArgumentError as Java does."""
    strange = {letter for letter, _, _ in tokens_of(pattern) if letter} - TIME_LETTERS
    if strange:
        return (
            f"the pattern letters {', '.join(sorted(strange))} are not supported in folder names; supported: "
            f"{''.join(sorted(TIME_LETTERS))}"
        )
    shown = shown_folder(pattern)
    if any(not part or part.startswith(".") for part in shown.split("/")):
        return f"it would create the folder {shown!r}"
    return ""


def shown_folder(pattern: str) -> str:
    """Return the folder for the beginning of 1970. Raises IllegalArgumentError as Java does."""
    return DateFormat(_years_of_era(pattern)).format(0).strip("/")


class RecordTimes(Protocol):
    """Source of records' times, in milliseconds since the epoch."""

    def of(self, batch: SinkBatch) -> int | Sequence[int | DataError]:
        """Return one time for all records, or each record's time or the error why it has none."""
        ...


class WallClock:
    """Time at which the record is written."""

    def of(self, batch: SinkBatch) -> int:
        return time.time_ns() // 1_000_000


class KafkaTimes:
    """Time of the record in Kafka."""

    def of(self, batch: SinkBatch) -> Sequence[int | DataError]:
        times = batch.timestamps_ms
        if None not in times:
            return cast("Sequence[int]", times)
        return [DataError("the record has no timestamp") if one is None else one for one in times]


class FieldTimes:
    """A field of the value: a Date or Timestamp (also Debezium's), milliseconds since the epoch, or a date in ISO 8601
    (in UTC without a zone).
    """

    def __init__(self, field: str, defaults: bool = True) -> None:
        self._field = field
        self._readers = FieldReaders((field,), defaults=defaults)

    def of(self, batch: SinkBatch) -> Sequence[int | DataError]:
        (reader,) = self._readers.under(batch.value_schema)
        schema = reader.schema
        kind = None if schema is None else schema.name
        if kind is not None and kind in _OF_NO_DAY:
            name = kind.rpartition(".")[2]
            problem = DataError(
                f"the field {self._field} is a {name}, which has no date; name a Date or Timestamp field"
            )
            return [problem] * len(batch)
        if schema is not None and schema.type == "FLOAT32":
            return [self._no_time()] * len(batch)
        times = [reader.read(value) for value in batch.values]
        if schema is not None and kind is not None and kind in _DEBEZIUM_MS and schema.type in ("INT32", "INT64"):
            factor, divisor = _DEBEZIUM_MS[kind]
            return [one * factor // divisor if isinstance(one, int) else self._no_time() for one in times]
        return [self._time(one) for one in times]

    def _time(self, value: Any) -> int | DataError:
        if isinstance(value, int) and not isinstance(value, bool):
            return int(value)
        if isinstance(value, str) and (found := milliseconds_of(value)) is not None:
            return found
        if isinstance(value, float) and value.is_integer() and not isinstance(value, Float32):
            return int(value)  # JSON's 1.7e12; a float32 has too few digits for a time
        return self._no_time()

    def _no_time(self) -> DataError:
        return DataError(
            f"the field {self._field} is not a timestamp: write milliseconds since 1970 or a date such as "
            "2026-11-22T13:00:00Z"
        )


TIMES: Mapping[str, Callable[[str, bool], RecordTimes]] = {
    "Record": lambda _field, _defaults: KafkaTimes(),
    "Wallclock": lambda _field, _defaults: WallClock(),
    "RecordField": FieldTimes,
}
"""Sources of times, by their names in `timestamp.extractor`."""
