"""Conversion of values between Connect and Protobuf messages, compiled once for each message.

Owns the functions, and the messages of logical types. Source: Confluent's `ProtobufData.toConnectData`,
`fromConnectData`, `DecimalUtils`.

Invariant: the input and output of the functions depend on schema and message alone; a part without conversion costs
nothing.
"""

from __future__ import annotations

import keyword
from collections.abc import Callable
from decimal import Context, Decimal
from typing import Any, cast

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message_factory import GetMessageClass

from herdmesh.connect.converters.protobuf.known_messages import LOGICAL_TYPES, WRAPPERS
from herdmesh.connect.converters.protobuf.options import ProtobufOptions, is_union
from herdmesh.connect.converters.protobuf.to_connect import (
    has_optional_keyword,
    is_map,
    is_proto3_optional,
    real_oneof,
    real_oneofs,
)
from herdmesh.connect.errors import DataError
from herdmesh.connect.java import DAY_MS, gregorian
from herdmesh.connect.model import (
    DATE,
    DECIMAL,
    TIME,
    JavaDate,
    Schema,
    Struct,
    big_endian,
    decimal_of,
    map_key,
    parts_of,
)

Change = Callable[[Any], Any]
_BITS = {"INT8": 8, "INT16": 16, "INT32": 32, "INT64": 64}
_WIDTHS = {
    **dict.fromkeys((FieldDescriptor.TYPE_UINT32, FieldDescriptor.TYPE_FIXED32), 0xFFFFFFFF),
    **dict.fromkeys((FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_FIXED64), 0xFFFFFFFFFFFFFFFF),
}
_SECONDS_MIN, _SECONDS_MAX = -62_135_596_800, 253_402_300_799
_YEAR_MAX = 292_278_994


# --- reading


def reader(message: Descriptor, options: ProtobufOptions, schema: Schema) -> Change:
    """Conversion from a message to a value of the schema that was converted from it."""
    return _Reading(options).message(schema, message)


class _Reading:
    """Compiler of the functions that read."""

    def __init__(self, options: ProtobufOptions) -> None:
        self._options = options

    def message(self, schema: Schema, message: Descriptor) -> Change:
        logical = LOGICAL_TYPES.get(message.full_name)
        if logical is not None and schema.name == logical:
            return _READ_LOGICAL[logical]
        if schema.type != "STRUCT":  # a wrapper message
            return _wrapped(self._scalar(schema, message.fields_by_name["value"]))
        return self._struct(schema, message)

    def _struct(self, schema: Schema, message: Descriptor) -> Change:
        bound: dict[str, Any] = {"S": schema, "Struct": Struct, "U": [self._union(schema, one) for one in
                                 ([] if self._options.flat_unions else real_oneofs(message))]}  # fmt: skip
        parts: list[str] = [f"U[{at}](m)" for at in range(len(bound["U"]))]
        fields = [one for one in message.fields if real_oneof(one) is None]
        if self._options.flat_unions:
            fields = [*(one for oneof in real_oneofs(message) for one in oneof.fields), *fields]
        for at, field in enumerate(fields, len(parts)):
            parts.append(self._part(schema.fields[at].schema, field, f"f{at}", bound))
        return cast("Change", eval(f"lambda m: Struct(S, [{', '.join(parts)}])", bound))  # the source is generated

    def _part(self, schema: Schema, field: FieldDescriptor, name: str, bound: dict[str, Any]) -> str:
        """Expression for a field of the message `m`."""
        item = f"m.{field.name}"
        if keyword.iskeyword(field.name) or not field.name.isidentifier():
            item = f"getattr(m, {field.name!r})"
        change = self.field(schema, field)
        text = item
        if change is not None:
            bound[name] = change
            text = f"{name}({item})"
        whole = field.message_type is not None and not field.is_repeated
        labelled = is_proto3_optional(field) or (self._options.optional_proto2 and has_optional_keyword(field))
        if field.is_repeated or self._options.null_structs or not (whole or labelled or real_oneof(field) is not None):
            return text
        return f"({text} if m.HasField({field.name!r}) else None)"

    def _union(self, schema: Schema, oneof: Any) -> Change:
        place = next(one for one in schema.fields if set(one.schema.places) == {f.name for f in oneof.fields}
                     and is_union(one.schema))  # fmt: skip
        union = place.schema
        known = {one.name: (union.places[one.name], self.field(union.fields[union.places[one.name]].schema, one))
                 for one in oneof.fields}  # fmt: skip
        name, width = oneof.name, len(union.fields)

        def read(message: Any) -> Any:
            chosen = message.WhichOneof(name)
            if chosen is None:
                return None
            at, change = known[chosen]
            value = getattr(message, chosen)
            values: list[Any] = [None] * width
            values[at] = value if change is None else change(value)
            return Struct(union, values)

        return read

    def field(self, schema: Schema, field: FieldDescriptor) -> Change | None:
        """Conversion from the value of a field that is set to Connect's; None = they are the same."""
        if is_map(field) and schema.type == "MAP":
            return self._map(schema, field)
        if field.is_repeated:
            change = self._one(cast(Schema, schema.value_schema), field)
            return list if change is None else (lambda items: [change(one) for one in items])
        return self._one(schema, field)

    def _one(self, schema: Schema, field: FieldDescriptor) -> Change | None:
        if field.message_type is not None:
            return self.message(schema, field.message_type)
        if field.enum_type is not None:
            if schema.type != "STRING":
                return None
            symbols = {one.number: one.name for one in reversed(field.enum_type.values)}
            unknown = f"UNKNOWN_ENUM_VALUE_{field.enum_type.name}_"
            return lambda number: symbols.get(number) or f"{unknown}{number}"
        return self._scalar(schema, field)

    def _scalar(self, schema: Schema, field: FieldDescriptor) -> Change | None:
        if schema.type in ("INT8", "INT16") or (schema.type == "INT64" and _WIDTHS.get(field.type, 0) > 0xFFFFFFFF):
            half = 1 << _BITS[schema.type] - 1
            mask = 2 * half - 1
            return lambda value: (value + half & mask) - half
        return None

    def _map(self, schema: Schema, field: FieldDescriptor) -> Change:
        of_key, of_value = cast(Schema, schema.key_schema), cast(Schema, schema.value_schema)
        entry = cast(Descriptor, field.message_type)
        key = self._one(of_key, entry.fields_by_name["key"]) or _same
        value = self._one(of_value, entry.fields_by_name["value"]) or _same
        if entry.GetOptions().map_entry:
            return lambda items: {map_key(key(k)): value(v) for k, v in items.items()}
        if entry.fields_by_name["value"].has_presence and not self._options.null_structs:
            return lambda items: {
                map_key(key(one.key)): value(one.value) if one.HasField("value") else None for one in items
            }
        return lambda items: {map_key(key(one.key)): value(one.value) for one in items}


def _wrapped(change: Change | None) -> Change:
    return (lambda message: message.value) if change is None else (lambda message: change(message.value))


def _same(value: Any) -> Any:
    return value


def _read_decimal(message: Any) -> Decimal:
    if not message.value:
        raise DataError("A Decimal without a value: Zero length BigInteger")
    value = decimal_of(int.from_bytes(message.value, "big", signed=True), message.scale)
    if message.precision and len(value.as_tuple().digits) > message.precision:
        return Context(prec=message.precision, rounding="ROUND_HALF_UP").plus(value)
    return value


def _read_date(message: Any) -> JavaDate:
    year, month, day = message.year, message.month, message.day
    if 1 <= year <= _YEAR_MAX and 1 <= month <= 12:
        for julian in (False, True):
            fixed = gregorian.first_of_month(year, month, julian=julian) + day - 1
            found = gregorian.day_at(fixed)
            if (found.year, found.month, found.day) == (year, month, day):
                return JavaDate((fixed - gregorian.EPOCH) * DAY_MS)
    raise DataError(f"No day: year {year}, month {month}, day {day}")


def _read_time(message: Any) -> JavaDate:
    hours, minutes, seconds, nanos = message.hours, message.minutes, message.seconds, message.nanos
    if not (0 <= hours < 24 and 0 <= minutes < 60 and 0 <= seconds < 60 and 0 <= nanos < 1_000_000_000):
        raise DataError(f"No time of day: {hours}:{minutes}:{seconds} and {nanos} nanoseconds")
    return JavaDate(((hours * 60 + minutes) * 60 + seconds) * 1000 + nanos // 1_000_000)


def _read_timestamp(message: Any) -> JavaDate:
    _check_timestamp(message.seconds)
    if not 0 <= message.nanos < 1_000_000_000:
        raise DataError(f"Timestamp is not valid: {message.nanos} nanoseconds")
    return JavaDate(message.seconds * 1000 + message.nanos // 1_000_000)


def _check_timestamp(seconds: int) -> None:
    if not _SECONDS_MIN <= seconds <= _SECONDS_MAX:
        raise DataError(f"Timestamp is not valid: {seconds} seconds are not within the years 1 to 9999")


_READ_LOGICAL: dict[str, Change] = dict(
    zip(LOGICAL_TYPES.values(), (_read_decimal, _read_date, _read_time, _read_timestamp), strict=True)
)


# --- writing


def writer(message: Descriptor, options: ProtobufOptions, schema: Schema) -> Change:
    """Conversion from a value that fits the schema, and is not null, to a message."""
    return _Writing(options).message(schema, message)


class _Writing:
    """Compiler of the functions that write."""

    def __init__(self, options: ProtobufOptions) -> None:
        self._options = options

    def message(self, schema: Schema, message: Descriptor) -> Change:
        make = GetMessageClass(message)
        if message.full_name in LOGICAL_TYPES:
            if schema.name != LOGICAL_TYPES[message.full_name]:
                raise DataError(f"A value of {schema} cannot be written as {message.full_name}")
            return _written_logical(schema, make)
        if message.full_name in WRAPPERS and schema.type != "STRUCT":
            change = self._scalar(schema, message.fields_by_name["value"]) or _same
            return lambda value: make(value=change(value))
        if schema.type != "STRUCT":
            raise DataError(f"A value of {schema} cannot be written as the message {message.full_name}")
        return self._struct(schema, message, make)

    def _struct(self, schema: Schema, message: Descriptor, make: Any) -> Change:
        single: list[tuple[int, str, Change, Any]] = []
        unions: list[tuple[int, Change, Any]] = []
        for field in schema.fields:
            default = None if self._options.ignore_default else field.schema.default
            if is_union(field.schema):
                unions.append((field.index, self._union(field.schema, message), default))
                continue
            name = self._options.scrubbed(field.name)
            target = message.fields_by_name.get(name)
            if target is None:
                raise DataError(f"Cannot find field with name {name} in the message {message.full_name}")
            single.append((field.index, name, self.field(field.schema, target), default))

        def write(struct: Struct) -> Any:
            values, given = struct.values, dict[str, Any]()
            for at, name, change, default in single:
                value = values[at]
                if value is None:
                    value = default
                if value is not None:
                    given[name] = change(value)
            for at, change, default in unions:
                value = values[at]
                if value is None:
                    value = default
                if value is not None:
                    name, one = change(value)
                    given[name] = one
            return make(**given)

        return write

    def _union(self, schema: Schema, message: Descriptor) -> Change:
        known: list[tuple[int, str, Change, Any]] = []
        for field in schema.fields:
            name = self._options.scrubbed(field.name)
            target = message.fields_by_name.get(name)
            if target is None:
                raise DataError(f"Cannot find field with name {name} in the message {message.full_name}")
            default = None if self._options.ignore_default else field.schema.default
            known.append((field.index, name, self.field(field.schema, target), default))

        def write(struct: Struct) -> tuple[str, Any]:
            for at, name, change, default in known:
                value = struct.values[at]
                if value is None:
                    value = default
                if value is not None:
                    return name, change(value)
            raise DataError("Cannot find non-null field")

        return write

    def field(self, schema: Schema, field: FieldDescriptor) -> Change:
        """Conversion from a value that is not null to a value for the field."""
        if schema.type == "MAP":
            return self._map(schema, field)
        if schema.type == "ARRAY":
            if not field.is_repeated:
                raise DataError(f"A list cannot be written to the field {field.full_name}")
            change, not_null = self._one(cast(Schema, schema.value_schema), field), _not_null(field)
            return lambda items: [change(not_null(one)) for one in items]
        if field.is_repeated:
            raise DataError(f"A value of {schema} cannot be written to the repeated field {field.full_name}")
        return self._one(schema, field)

    def _one(self, schema: Schema, field: FieldDescriptor) -> Change:
        if field.message_type is not None:
            return self.message(schema, field.message_type)
        if field.enum_type is not None:
            return self._enum(schema, field)
        if schema.type == "STRUCT":
            raise DataError(f"A value of {schema} cannot be written to the field {field.full_name}")
        return self._scalar(schema, field) or _same

    def _enum(self, schema: Schema, field: FieldDescriptor) -> Change:
        if schema.type != "STRING":
            return _same
        prefix, parameters = f"{self._options.enum}.", schema.parameters or {}
        numbers = {key[len(prefix) :]: int(one) for key, one in parameters.items() if key.startswith(prefix)}
        numbers = {**{one.name: one.number for one in cast(Any, field.enum_type).values}, **numbers}

        def write(symbol: str) -> int:
            if symbol not in numbers:
                raise DataError(f"{symbol!r} is not a symbol of the enum {cast(Any, field.enum_type).full_name}")
            return numbers[symbol]

        return write

    def _scalar(self, schema: Schema, field: FieldDescriptor) -> Change | None:
        mask = _WIDTHS.get(field.type)
        if mask is not None:
            return lambda value: value & mask
        return bytes if schema.type == "BYTES" else None

    def _map(self, schema: Schema, field: FieldDescriptor) -> Change:
        entry = field.message_type
        if entry is None or not is_map(field):
            raise DataError(f"A map cannot be written to the field {field.full_name}")
        of_key, of_value = cast(Schema, schema.key_schema), cast(Schema, schema.value_schema)
        key = self._one(of_key, entry.fields_by_name["key"])
        value = self._one(of_value, entry.fields_by_name["value"])
        if entry.GetOptions().map_entry:
            not_null = _not_null(field)
            return lambda items: {key(not_null(k)): value(not_null(v)) for k, v in items.items()}
        make = GetMessageClass(entry)

        def one(k: Any, v: Any) -> Any:
            given = {} if k is None else {"key": key(k)}
            return make(**given) if v is None else make(**given, value=value(v))

        return lambda items: [one(k, v) for k, v in items.items()]


def _not_null(field: FieldDescriptor) -> Change:
    """Refuse null in a list or map of Protobuf, which cannot contain null."""
    message = f"The field {field.full_name} has a null in its list or map, which Protobuf cannot hold: remove it"

    def check(value: Any) -> Any:
        if value is None:
            raise DataError(message)
        return value

    return check


def _written_logical(schema: Schema, make: Any) -> Change:
    def decimal(value: Decimal) -> Any:
        unscaled, scale = parts_of(value)
        return make(value=big_endian(unscaled), precision=len(value.as_tuple().digits), scale=scale)

    def date(value: int) -> Any:
        days, rest = divmod(int(value), DAY_MS)
        if rest:
            raise DataError("Kafka Connect Date type should not have any time fields set to non-zero values.")
        day = gregorian.day_at(days + gregorian.EPOCH)
        if not 1 <= day.year < 1 << 31:
            raise DataError(f"A Date of the year {day.year} cannot be written as Protobuf")
        return make(year=day.year, month=day.month, day=day.day)

    def time(value: int) -> Any:
        if not 0 <= value <= DAY_MS:
            raise DataError("Time values must use number of millis greater than 0 and less than 86400000")
        seconds, millis = divmod(int(value) % DAY_MS, 1000)
        minutes, seconds = divmod(seconds, 60)
        hours, minutes = divmod(minutes, 60)
        return make(hours=hours, minutes=minutes, seconds=seconds, nanos=millis * 1_000_000)

    def timestamp(value: int) -> Any:
        seconds, millis = divmod(int(value), 1000)
        _check_timestamp(seconds)
        return make(seconds=seconds, nanos=millis * 1_000_000)

    return {DECIMAL: decimal, DATE: date, TIME: time}.get(cast(str, schema.name), timestamp)
