"""Record headers with Connect's operations (`ConnectHeaders`; docs/reference/connect/data-model.md, section 2.4), in
order.

Owns what may be added, and how headers of one name are found, retained and removed. A chain and a batch carry plain
lists of `Header`; this class is such a list.

Invariant: a header that `add` accepted has a value of the class that its schema's type or logical type wants; elements
of a list, map or struct are not checked, as in Connect.
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
        """One more header; returns the headers. A struct without a schema has its own. Raises DataError when the value
        does not fit the schema, and NullPointerError without a key."""
        if key is None:  # pyright: ignore[reportUnnecessaryComparison] - told as Connect tells it
            raise NullPointerError("Null header keys are not permitted")
        if schema is not None:
            if value is None and not schema.optional:
                raise DataError(f"A null value requires an optional schema but was {schema}")
            plain = schema.replace(name=None)  # a logical name takes the class of its base too
            if value is not None and not fits(schema, value) and not fits(plain, value):
                raise DataError(f"The value {java_text(value)} is not compatible with the schema {schema}")
        elif isinstance(value, Struct):
            schema = value.schema
        self.append(Header(key, value, schema))
        return self

    def add_string(self, key: str, value: str | None) -> Headers:
        """A text; None has the optional schema."""
        return self.add(key, value, schemas.OPTIONAL_STRING if value is None else schemas.STRING)

    def add_bytes(self, key: str, value: bytes | None) -> Headers:
        """Bytes; None has the optional schema."""
        return self.add(key, value, schemas.OPTIONAL_BYTES if value is None else schemas.BYTES)

    def add_boolean(self, key: str, value: bool) -> Headers:
        """True or false."""
        return self.add(key, value, schemas.BOOLEAN)

    def add_byte(self, key: str, value: int) -> Headers:
        """An INT8. Raises DataError beyond 8 bits; so do the next three beyond theirs."""
        return self.add(key, value, schemas.INT8)

    def add_short(self, key: str, value: int) -> Headers:
        """An INT16."""
        return self.add(key, value, schemas.INT16)

    def add_int(self, key: str, value: int) -> Headers:
        """An INT32."""
        return self.add(key, value, schemas.INT32)

    def add_long(self, key: str, value: int) -> Headers:
        """An INT64."""
        return self.add(key, value, schemas.INT64)

    def add_float(self, key: str, value: float) -> Headers:
        """A FLOAT32."""
        return self.add(key, value, schemas.FLOAT32)

    def add_double(self, key: str, value: float) -> Headers:
        """A FLOAT64."""
        return self.add(key, value, schemas.FLOAT64)

    def add_list(self, key: str, value: Sequence[Any] | None, schema: Schema) -> Headers:
        """A list. None is a header without schema, whatever the schema. Raises DataError when that is none of lists."""
        return self._add_of_type(key, value, schema, "ARRAY")

    def add_map(self, key: str, value: Mapping[Any, Any] | None, schema: Schema) -> Headers:
        """A map. None is a header without schema, whatever the schema. Raises DataError when that is none of maps."""
        return self._add_of_type(key, value, schema, "MAP")

    def add_struct(self, key: str, value: Struct | None) -> Headers:
        """A struct, which need not be whole, with its schema; None is a header without schema."""
        return self.add(key, value)

    def add_decimal(self, key: str, value: Decimal | None) -> Headers:
        """A Decimal of the value's own scale; None is a header without schema."""
        return self.add(key, value, None if value is None else schemas.decimal_schema(parts_of(value)[1]))

    def add_date(self, key: str, value: JavaDate | None) -> Headers:
        """A Date. None is taken, though the schema is not optional. Raises DataError when there is a time in it."""
        return self._add_moment(key, value, schemas.date_schema())

    def add_time(self, key: str, value: JavaDate | None) -> Headers:
        """A Time. None is taken, though the schema is not optional. Raises DataError when there is a date in it."""
        return self._add_moment(key, value, schemas.time_schema())

    def add_timestamp(self, key: str, value: JavaDate | None) -> Headers:
        """A Timestamp. None is taken, though the schema is not optional."""
        return self._add_moment(key, value, schemas.timestamp_schema())

    def _add_of_type(self, key: str, value: Any, schema: Schema, wanted: str) -> Headers:
        if value is None:
            return self.add(key, None)
        if schema is None:  # pyright: ignore[reportUnnecessaryComparison] - told as Connect tells it
            raise NullPointerError(f"a header of a value of type {wanted} has a schema of it: give one")
        if schema.type != wanted:
            raise DataError(f"Expecting {wanted} but instead found {schema.type}")
        return self.add(key, value, schema)

    def _add_moment(self, key: str, value: JavaDate | None, schema: Schema) -> Headers:
        if value is not None:
            to_internal(schema, value)
            return self.add(key, value, schema)
        self.add(key, None)  # looks at the key
        self[-1] = Header(key, None, schema)
        return self

    def last_with_name(self, key: str) -> Header | None:
        """The last header of that name, None when there is none."""
        return next((one for one in reversed(self) if one.key == key), None)

    def all_with_name(self, key: str) -> list[Header]:
        """All headers of that name, in order."""
        return [one for one in self if one.key == key]

    def drop(self, key: str) -> Headers:
        """Leave out every header of that name (`remove`, which a list has for something else)."""
        self[:] = [one for one in self if one.key != key]
        return self

    def retain_latest(self, key: str | None = None) -> Headers:
        """Of each name, or of that one, leave only the last header, where it stands."""
        last = {one.key: at for at, one in enumerate(self)}
        self[:] = [one for at, one in enumerate(self) if last[one.key] == at or (key is not None and one.key != key)]
        return self

    def apply(self, change: Callable[[Header], Header | None], key: str | None = None) -> Headers:
        """Each header, or each of that name, becomes what `change` returns; None leaves it out."""
        made = (change(one) if key is None or one.key == key else one for one in self)
        self[:] = [one for one in made if one is not None]
        return self
