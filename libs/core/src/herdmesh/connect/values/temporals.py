"""Dates and times in header text: `2019-08-23`, `14:34:54.346Z`, `2019-08-23T14:34:54.346Z`.

Owns the three forms, in both directions, in UTC. Parsing and formatting of one form: `java.simple_date_format`.

Invariant: a text's length decides which form it may be; within it parsing is as lenient as Java's SimpleDateFormat.
"""

from __future__ import annotations

from herdmesh.connect.java import DAY_MS, DateFormat
from herdmesh.connect.model import JavaDate, Schema, date_schema, time_schema, timestamp_schema

_DATE = DateFormat("yyyy-MM-dd")
_TIME = DateFormat("HH:mm:ss.SSS'Z'")
_TIMESTAMP = DateFormat("yyyy-MM-dd'T'HH:mm:ss.SSS'Z'")
_BY_LENGTH: dict[int, tuple[DateFormat, Schema]] = {
    10: (_DATE, date_schema()), 13: (_TIME, time_schema()), 24: (_TIMESTAMP, timestamp_schema()),
}  # fmt: skip


def read_temporal(text: str) -> tuple[Schema, JavaDate] | None:
    """The date, time or timestamp in a text, and its schema; None = the text is none of them. Colons may be escaped."""
    text = text.replace("\\:", ":")
    form = _BY_LENGTH.get(len(text))
    found = None if form is None else form[0].parse(text)
    return None if form is None or found is None else (form[1], JavaDate(found[0]))


def temporal_text(value: JavaDate) -> str:
    """The text of a date: a time when it is before 1970-01-02, a day when it is midnight, else a timestamp."""
    if value < DAY_MS:
        return _TIME.format(int(value))
    return (_TIMESTAMP if int(value) % DAY_MS else _DATE).format(int(value))
