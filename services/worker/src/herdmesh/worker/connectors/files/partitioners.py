"""Which subfolder a record's file is in.

Owns the partitioners and how values become folder names: as Hive writes them, so that Spark, Hive and Arrow read them
back as columns.

    none     all in the folder itself
    kafka    partition=7/
    field    country=DE/city=Ulm/, from fields of the value; no value is __HIVE_DEFAULT_PARTITION__
    time     year=2026/month=11/day=22/hour=13/, from the record's time, the wall clock or a field

The field is not taken out of the record. Dates are those of Java's patterns, as far as `TIME_LETTERS` goes.

Invariant: equal values have equal folders.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from math import gcd
from typing import Any, Protocol, cast
from zoneinfo import ZoneInfo

from herdmesh.connect.connector import SinkBatch
from herdmesh.connect.errors import DataError
from herdmesh.connect.simpledateformat import DateFormat, tokens_of

NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
FOLDER_BYTES_MAX = 250
"""Of one folder's name: file systems take 255."""
TIME_LETTERS = frozenset("yYMdDHhmsSaE")
"""Letters of a pattern whose meaning is the same in Java's two kinds of patterns and in Joda's; Y is the year."""
_MINUTE_MS = 60_000
_FOLDERS_KEPT = 10_000
_ESCAPED = re.compile(r"""["#%'*/:=?\\\x00-\x1f\x7f{\[\]^]""")
"""What Hive escapes in a folder's name."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Placed = Sequence["str | DataError"]
"""A record's folder each, or why it has none."""


class Partitioner(Protocol):
    """Finds the subfolder of each record."""

    @property
    def needs_rows(self) -> bool:
        """True = `folders` is to be given values as plain Python."""
        ...

    def folders(self, batch: SinkBatch, rows: Sequence[Any]) -> str | Placed:
        """The folder of all records, or of each; "" = none, else without slashes at its ends."""
        ...


class TogetherPartitioner:
    """`none`."""

    needs_rows = False

    def folders(self, batch: SinkBatch, rows: Sequence[Any]) -> str:
        return ""


class KafkaPartitioner:
    """`kafka`: by the partition of the topic."""

    needs_rows = False

    def folders(self, batch: SinkBatch, rows: Sequence[Any]) -> str:
        return f"partition={batch.partition}"


class FieldPartitioner:
    """`field`: by values of fields, in their order."""

    needs_rows = True

    def __init__(self, fields: Sequence[str]) -> None:
        self._fields = [(escaped(name), field_reader(name)) for name in fields]

    def folders(self, batch: SinkBatch, rows: Sequence[Any]) -> Placed:
        columns = [[read(row) for row in rows] for _, read in self._fields]
        # Equal values of other types (1, 1.0, True) have other folders.
        keys = [(*values, *map(type, values)) for values in zip(*columns, strict=True)]
        try:
            known = {key: self._folder(key[: len(columns)]) for key in dict.fromkeys(keys)}
        except TypeError:  # an object or an array among them
            return [self._folder(key[: len(columns)]) for key in keys]
        return [known[key] for key in keys]

    def _folder(self, values: Sequence[Any]) -> str | DataError:
        parts: list[str] = []
        for (name, _), value in zip(self._fields, values, strict=True):
            text = _folder_text(value)
            part = f"{name}={text}"
            if text is None or len(part.encode()) > FOLDER_BYTES_MAX:
                why = "is no text, number or boolean" if text is None else f"needs over {FOLDER_BYTES_MAX} bytes"
                return DataError(f"the field {name} cannot name a folder: its value {why}")
            parts.append(part)
        return "/".join(parts)


def _folder_text(value: Any) -> str | None:
    """None = a value that cannot name a folder."""
    if value is None or value == "":
        return NO_VALUE
    if isinstance(value, bool):
        return "true" if value else "false"
    return escaped(str(value)) if isinstance(value, str | int | float | Decimal) else None


def escaped(text: str) -> str:
    """The text as part of a folder's name, as Hive writes it: `a/b` is `a%2Fb`."""
    plain = text.encode("utf-8", "replace").decode()  # a lone surrogate has no UTF-8
    return _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", plain)


def field_reader(name: str) -> Callable[[Any], Any]:
    """Reads a field of a plain value: of this very name, or `a.b` within objects; None = there is none."""
    path = name.split(".")

    def read(row: Any) -> Any:
        if not isinstance(row, dict):
            return None
        found: Any = cast("dict[str, Any]", row)
        if name in found:
            return found[name]
        for part in path:
            if not isinstance(found, dict):
                return None
            found = cast("dict[str, Any]", found).get(part)
        return found

    return read


class TimePartitioner:
    """`time`: by a time of each record, rounded down to a duration, in a time zone."""

    def __init__(self, pattern: str, duration_ms: int, zone: str, times: RecordTimes) -> None:
        """`pattern` has passed `pattern_problem`, `zone` is a name of the time zone database."""
        self._format = DateFormat(_years_of_era(pattern))
        self._duration_ms = duration_ms
        self._zone = ZoneInfo(zone)
        self._times = times
        # Within a minute no zone changes (none has since 1972), so one minute, or one duration in it, is one folder.
        self._grain_ms = duration_ms if zone == "UTC" else gcd(duration_ms, _MINUTE_MS)
        self._folders: dict[int, str | DataError] = {}

    @property
    def needs_rows(self) -> bool:
        return self._times.needs_rows

    def folders(self, batch: SinkBatch, rows: Sequence[Any]) -> Placed:
        times = self._times.of(batch, rows)
        if isinstance(times, int):
            return [self._folder(times)] * len(batch)
        if any(type(one) is not int for one in times):
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
        try:
            at = _EPOCH + timedelta(milliseconds=time_ms)
            offset = at.astimezone(self._zone).utcoffset() or timedelta()
        except OverflowError:
            return DataError(f"the time {time_ms} is not in the years 1 to 9999")
        local_ms = time_ms + int(offset.total_seconds()) * 1000
        return self._format.format(local_ms // self._duration_ms * self._duration_ms)


def _years_of_era(pattern: str) -> str:
    """Java's SimpleDateFormat takes Y for the year of a week; here, as with Joda, it is the year."""
    return "".join(
        "'" + literal.replace("'", "''") + "'" if not letter else ("y" if letter == "Y" else letter) * count
        for letter, count, literal in tokens_of(pattern)
    )


def pattern_problem(pattern: str) -> str:
    """What is wrong with a pattern of folders, "" = nothing. Raises IllegalArgumentError as Java does."""
    strange = {letter for letter, _, _ in tokens_of(pattern) if letter} - TIME_LETTERS
    if strange:
        return (
            f"the letters {', '.join(sorted(strange))} are not for folders; these are: {''.join(sorted(TIME_LETTERS))}"
        )
    shown = DateFormat(_years_of_era(pattern)).format(0)
    if any(part in ("", ".", "..") for part in shown.split("/")):
        return f"it makes the folder {shown!r}"
    return ""


class RecordTimes(Protocol):
    """Where a record's time comes from; times are milliseconds since the epoch."""

    @property
    def needs_rows(self) -> bool:
        """As of `Partitioner`."""
        ...

    def of(self, batch: SinkBatch, rows: Sequence[Any]) -> int | Sequence[int | DataError]:
        """One time for all, or each record's, or why it has none."""
        ...


class WallClock:
    """When the record is written."""

    needs_rows = False

    def of(self, batch: SinkBatch, rows: Sequence[Any]) -> int:
        return time.time_ns() // 1_000_000


class KafkaTimes:
    """The record's time in Kafka."""

    needs_rows = False

    def of(self, batch: SinkBatch, rows: Sequence[Any]) -> Sequence[int | DataError]:
        times = batch.timestamps_ms
        if None not in times:
            return cast("Sequence[int]", times)
        return [DataError("the record has no time") if one is None else one for one in times]


class FieldTimes:
    """A field of the value: milliseconds since the epoch, or a date in ISO 8601 (UTC where it names no zone)."""

    needs_rows = True

    def __init__(self, field: str) -> None:
        self._field = field
        self._read = field_reader(field)

    def of(self, batch: SinkBatch, rows: Sequence[Any]) -> Sequence[int | DataError]:
        return [self._time(self._read(row)) for row in rows]

    def _time(self, value: Any) -> int | DataError:
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        if isinstance(value, str):
            try:
                at = datetime.fromisoformat(value)
            except ValueError:
                pass
            else:
                since = (at if at.tzinfo else at.replace(tzinfo=UTC)) - _EPOCH
                return (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000
        return DataError(
            f"the field {self._field} has no time: milliseconds since 1970 or a date as 2026-11-22T13:00:00Z"
        )


TIMES: Mapping[str, Callable[[str], RecordTimes]] = {
    "Record": lambda _field: KafkaTimes(),
    "Wallclock": lambda _field: WallClock(),
    "RecordField": FieldTimes,
}
"""By the names of `timestamp.extractor`."""
