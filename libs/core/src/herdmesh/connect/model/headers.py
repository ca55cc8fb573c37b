"""Record headers with Connect's operations (`ConnectHeaders`; docs/reference/connect/data-model.md, section 2.4), in
order.

Owns the rules for adding a header, and the search, selection and removal of headers by name. A chain and a batch carry
plain lists of `Header`; this class is such a list.

Invariant: a header that `add` accepted has a value of the class that its schema's type or logical type requires;
elements of a list, map or struct are not checked, as in Connect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from herdmesh.connect.errors import DataError, NullPointerError
from herdmesh.connect.model import schemas
from herdmesh.connect.model.checks import fits
from herdmesh.connect.model.data import Header, JavaDate, Struct
from herdmesh.connect.model.java_values import java_text
from herdmesh.connect.model.logical import parts_of, to_internal
from herdmesh.connect.model.schemas import Schema


class Headers(list[Header]):
    """A list of headers. Two are equal when they have equal headers in the same order."""

    def add(self, key: str, value: Any, schema: Schema | None = None) -> Headers:
        """Add a header; returns the headers. A struct without a schema gets its own. Raises DataError when the value
        does not fit the schema, and NullPointerError without a key.
        """
        if key is None:  # pyright: ignore[reportUnnecessaryComparison] - reported as in Connect
            raise NullPointerError("Null header keys are not permitted")
        if schema is not None:
            if value is None and not schema.optional:
                raise DataError(f"A null value requires an optional schema but was {schema}")
            plain = schema.replace(name=None)  # under a logical name the class of the base type passes too
            if value is not None and not fits(schema, value) and not fits(plain, value):
                raise DataError(f"The value {java_text(value)} is not compatible with the schema {schema}")
        elif isinstance(value, Struct):
            schema = value.schema
        self.append(Header(key, value, schema))
        return self

    def add_string(self, key: str, value: str | None) -> Headers:
        """Add a text; None has the optional schema."""
        return self.add(key, value, schemas.OPTIONAL_STRING if value is None else schemas.STRING)

    def add_bytes(self, key: str, value: bytes | None) -> Headers:
        """Add bytes; None has the optional schema."""
        return self.add(key, value, schemas.OPTIONAL_BYTES if value is None else schemas.BYTES)

    def add_boolean(self, key: str, value: bool) -> Headers:
        """Add a boolean."""
        return self.add(key, value, schemas.BOOLEAN)

    def add_byte(self, key: str, value: int) -> Headers:
        """Add an INT8. Raises DataError beyond 8 bits; the next three raise it beyond their own sizes."""
        return self.add(key, value, schemas.INT8)

    def add_short(self, key: str, value: int) -> Headers:
        """Add an INT16."""
        return self.add(key, value, schemas.INT16)

    def add_int(self, key: str, value: int) -> Headers:
        """Add an INT32."""
        return self.add(key, value, schemas.INT32)

    def add_long(self, key: str, value: int) -> Headers:
        """Add an INT64."""
        return self.add(key, value, schemas.INT64)

    def add_float(self, key: str, value: float) -> Headers:
        """Add a FLOAT32."""
        return self.add(key, value, schemas.FLOAT32)

    def add_double(self, key: str, value: float) -> Headers:
        """Add a FLOAT64."""
        return self.add(key, value, schemas.FLOAT64)

    def add_list(self, key: str, value: Sequence[Any] | None, schema: Schema) -> Headers:
        """Add a list. None is a header without schema, whatever `schema` is. Raises DataError when the schema is not an
        ARRAY.
        """
        return self._add_of_type(key, value, schema, "ARRAY")

    def add_map(self, key: str, value: Mapping[Any, Any] | None, schema: Schema) -> Headers:
        """Add a map. None is a header without schema, whatever `schema` is. Raises DataError when the schema is not a
        MAP.
        """
        return self._add_of_type(key, value, schema, "MAP")

    def add_struct(self, key: str, value: Struct | None) -> Headers:
        """Add a struct with its schema. The struct may be incomplete. None is a header without schema."""
        return self.add(key, value)

    def add_decimal(self, key: str, value: Decimal | None) -> Headers:
        """Add a Decimal of the value's own scale; None is a header without schema."""
        return self.add(key, value, None if value is None else schemas.decimal_schema(parts_of(value)[1]))

    def add_date(self, key: str, value: JavaDate | None) -> Headers:
        """Add a Date. None is accepted, though the schema is not optional. Raises DataError for a value with a time of
        day.
        """
        return self._add_moment(key, value, schemas.date_schema())

    def add_time(self, key: str, value: JavaDate | None) -> Headers:
        """Add a Time. None is accepted, though the schema is not optional. Raises DataError for a value with a date."""
        return self._add_moment(key, value, schemas.time_schema())

    def add_timestamp(self, key: str, value: JavaDate | None) -> Headers:
        """Add a Timestamp. None is accepted, though the schema is not optional."""
        return self._add_moment(key, value, schemas.timestamp_schema())

    def _add_of_type(self, key: str, value: Any, schema: Schema, wanted: str) -> Headers:
        if value is None:
            return self.add(key, None)
        if schema is None:  # pyright: ignore[reportUnnecessaryComparison] - reported as in Connect
            raise NullPointerError(f"a header of a value of type {wanted} has a schema of it: give one")
        if schema.type != wanted:
            raise DataError(f"Expecting {wanted} but instead found {schema.type}")
        return self.add(key, value, schema)

    def _add_moment(self, key: str, value: JavaDate | None, schema: Schema) -> Headers:
        if value is not None:
            to_internal(schema, value)
            return self.add(key, value, schema)
        self.add(key, None)  # checks the key
        self[-1] = Header(key, None, schema)
        return self

    def last_with_name(self, key: str) -> Header | None:
        """The last header of that name; None when there is none."""
        return next((one for one in reversed(self) if one.key == key), None)

    def all_with_name(self, key: str) -> list[Header]:
        """All headers of that name, in order."""
        return [one for one in self if one.key == key]

    def drop(self, key: str) -> Headers:
        """Remove every header of that name. (Connect's name for this is `remove`, which a Python list has for something
        else.)
        """
        self[:] = [one for one in self if one.key != key]
        return self

    def retain_latest(self, key: str | None = None) -> Headers:
        """Remove all but the last header of each name, or of one name. The last one stays at its position."""
        last = {one.key: at for at, one in enumerate(self)}
        self[:] = [one for at, one in enumerate(self) if last[one.key] == at or (key is not None and one.key != key)]
        return self

    def apply(self, change: Callable[[Header], Header | None], key: str | None = None) -> Headers:
        """Replace each header, or each of one name, by the result of `change`; None removes it."""
        made = (change(one) if key is None or one.key == key else one for one in self)
        self[:] = [one for one in made if one is not None]
        return self
