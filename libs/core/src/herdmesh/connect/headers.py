"""The headers of a record, in order, with Connect's operations on them (`ConnectHeaders`; reference data-model 2.4).

Owns what may be added and how headers of one name are found, kept and left out. A plain list of `Header`s is what a
chain and a batch carry; this is one.

Invariant: a header that `add` took has a value of the class its schema's type or logical type wants; what is inside a
list, map or struct is not looked at, as in Connect.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from herdmesh.connect.checks import fits
from herdmesh.connect.data import Header
from herdmesh.connect.errors import DataError, NullPointerError
from herdmesh.connect.javavalues import java_text
from herdmesh.connect.schemas import Schema


class Headers(list[Header]):
    """A list of headers. Two are equal when they have equal headers in the same order."""

    def add(self, key: str, value: Any, schema: Schema | None = None) -> Headers:
        """One more header; returns the headers. Raises DataError when the value does not fit the schema, and
        NullPointerError without a key."""
        if key is None:  # pyright: ignore[reportUnnecessaryComparison] - told as Connect tells it
            raise NullPointerError("Null header keys are not permitted")
        if schema is not None:
            if value is None and not schema.optional:
                raise DataError(f"A null value requires an optional schema but was {schema}")
            plain = schema.replace(name=None)  # a logical name takes the class of its base too
            if value is not None and not fits(schema, value) and not fits(plain, value):
                raise DataError(f"The value {java_text(value)} is not compatible with the schema {schema}")
        self.append(Header(key, value, schema))
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
