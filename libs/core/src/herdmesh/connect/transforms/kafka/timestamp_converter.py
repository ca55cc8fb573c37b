"""TimestampConverter: converts a time from one form to another (docs/reference/connect/transforms-converters.md,
section 2.14).

Owns the five forms and the conversion between any two.

Invariant: every conversion goes through milliseconds since the epoch, so finer parts are lost; the result has the
target's type, whatever the source was.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from herdmesh.connect.errors import ConfigError, ConnectError, DataError, IllegalArgumentError, NullPointerError
from herdmesh.connect.java import DAY_MS, UTC, DateFormat, Zone
from herdmesh.connect.model import (
    DATE,
    INT64,
    STRING,
    TIME,
    TIMESTAMP,
    Int64,
    JavaDate,
    Schema,
    SchemaBuilder,
    Struct,
    date_schema,
    java_class,
    time_schema,
    timestamp_schema,
    type_of,
)
from herdmesh.connect.transforms.base import Code, PartTransformation, Shape
from herdmesh.connect.transforms.kafka import definitions
from herdmesh.connect.transforms.structs import emit_struct, field_value, require

_PER_MILLISECOND = {"microseconds": 1000, "nanoseconds": 1_000_000}
_LOGICAL = {TIMESTAMP: "Timestamp", DATE: "Date", TIME: "Time"}
_SCHEMAS = {"string": STRING, "unix": INT64, "Date": date_schema(), "Time": time_schema(),
            "Timestamp": timestamp_schema()}  # fmt: skip

_Convert = Callable[[Any], Any]


class TimestampConverter(PartTransformation):
    """`org.apache.kafka.connect.transforms.TimestampConverter`."""

    java_class = "org.apache.kafka.connect.transforms.TimestampConverter"
    purpose = "converting timestamp formats"
    null_passes = False
    config_def = definitions.TIMESTAMP_CONVERTER
    keeps_json = True

    def _set_up(self, settings: dict[str, Any]) -> None:
        self._field: str | None = settings["field"]
        self._target: str = settings["target.type"]
        self._precision: str = settings["unix.precision"]
        self._null_to_default: bool = settings["replace.null.with.default"]
        pattern: str | None = settings["format"]
        blank = pattern is None or not pattern.strip()
        if self._target == "string" and blank:
            message = "TimestampConverter requires format option to be specified when using string timestamps"
            raise ConfigError(message, field="format", fix="set format")
        self._format: DateFormat | None = None
        if pattern is not None and not blank:
            try:
                self._format = DateFormat(pattern)
            except IllegalArgumentError as error:
                message = (
                    f"Invalid value java.lang.IllegalArgumentException: {error} for configuration TimestampConverter "
                    f"requires a SimpleDateFormat-compatible pattern for string timestamps: {pattern}"
                )
                raise ConfigError(message, field="format", fix="write a pattern of SimpleDateFormat") from error

        self._write = self._writer()

    def emit_schemaless(self, code: Code) -> None:
        part = code.read(self.part)
        with code.block(f"if {part} is not None"):
            if self._field is None:
                code.line(f"{code.bind(_no_field)}()")
            elif not self._field:
                code.write(self.part, f"{code.bind(self._any)}({part})")
            else:
                with self.map_only(code) as name:
                    field = f"{name}[{self._field!r}]"
                    code.line(f"{field} = {code.bind(self._any)}({name}.get({self._field!r}))")

    def _any(self, value: Any) -> Any:
        """Convert a schemaless value, by its class."""
        kind = type_of(value)
        if value is None:
            return None
        if kind is JavaDate:
            source = "Timestamp"
        elif kind is int or kind is Int64:
            source = "unix"
        elif kind is str:
            source = "string"
        else:
            raise DataError(f"TimestampConverter does not support class {java_class(value)} objects as timestamps")
        return self._from(source, value, None)

    def for_schema(self, schema: Schema, shape: Shape) -> tuple[Schema, Callable[[Code], None]]:
        if self._field is None:
            _no_field()
        if not self._field:
            return self._for_whole(schema)
        fields = schema.fields
        builder = SchemaBuilder.like(schema)
        for field in fields:
            target = _SCHEMAS[self._target].replace(optional=field.schema.optional)
            builder.field(field.name, target if field.name == self._field else field.schema)
        if schema.optional:
            builder.optional()
        after = builder.build()
        convert = self._field_convert(schema)
        if schema.default is not None:
            after = after.replace(default=self._converted(schema.default, after, convert))

        def emit(code: Code) -> None:
            with code.block(f"if {code.read(self.part)} is not None"):
                self.struct_only(code, schema)
                values = [
                    f"{code.bind(convert)}(x)"
                    if field.name == self._field
                    else field_value(code, field, null_to_default=self._null_to_default)
                    for field in fields
                ]
                emit_struct(code, self.part, after, values)

        return after, emit

    def _for_whole(self, schema: Schema) -> tuple[Schema, Callable[[Code], None]]:
        source = _source_of(schema)

        def convert(value: Any) -> Any:
            return self._from(source, value, schema)

        def emit(code: Code) -> None:
            with code.block(f"if {code.read(self.part)} is not None"):
                code.write(self.part, f"{code.bind(convert)}({self.part})")

        return _SCHEMAS[self._target].replace(optional=schema.optional), emit

    def reads_struct(self, schema: Schema) -> bool:
        return bool(self._field)

    def other(self, value: Any, schema: Schema) -> None:
        if value is not None:
            super().other(value, schema)

    def _field_convert(self, schema: Schema) -> _Convert:
        """A function from a struct's values to the converted field."""
        field = schema.field(self._field or "")
        if field is None:
            return lambda values: None  # unused
        inner = field.schema
        default = inner.default if self._null_to_default else None

        def convert(values: list[Any]) -> Any:
            value = values[field.index]
            if value is None:
                value = default
            source = _source_of(inner)
            return None if value is None else self._from(source, value, inner)

        return convert

    def _converted(self, value: Struct, after: Schema, convert: _Convert) -> Struct:
        made: list[Any] = []
        for field in after.fields:
            item = convert(value.values) if field.name == self._field else value.values[field.index]
            made.append(field.schema.default if item is None and self._null_to_default else item)
            if not field.schema.optional:
                require(field, made[-1])
        return Struct(after, made)

    def _from(self, source: str, value: Any, schema: Schema | None) -> Any:
        zone = UTC
        kind = type_of(value)
        if source == "string":
            if kind is not str:
                raise _unexpected("string timestamp", "String", value, schema)
            milliseconds, zone = self._parsed(value)
        elif source == "unix":
            if kind is not Int64 and (kind is not int or (schema is not None and schema.type != "INT64")):
                raise _unexpected("Unix timestamp", "Long", value, schema)
            milliseconds = self._milliseconds_of(value)
        else:
            if kind is not JavaDate:
                raise _unexpected(source, "java.util.Date", value, schema)
            milliseconds = int(value)
        return self._write(milliseconds, zone)

    def _parsed(self, text: str) -> tuple[int, Zone]:
        if self._format is None:
            raise NullPointerError("no format is set to read text with")
        found = self._format.parse(text)
        if found is None:
            raise DataError(
                f"Could not parse timestamp: value ({text}) does not match pattern ({self._format.pattern})"
            )
        return found

    def _writer(self) -> Callable[[int, Zone], Any]:
        """A function from milliseconds to the target type."""
        match self._target:
            case "string":
                assert self._format is not None
                return self._format.format
            case "unix" if self._precision == "seconds":
                return lambda milliseconds, zone: _divided(milliseconds, 1000)
            case "unix":
                by = _PER_MILLISECOND.get(self._precision, 1)
                return lambda milliseconds, zone: _bounded(milliseconds * by)
            case "Date":
                return lambda milliseconds, zone: JavaDate((milliseconds // DAY_MS * DAY_MS + 2**63) % 2**64 - 2**63)
            case "Time":
                return lambda milliseconds, zone: JavaDate(milliseconds % DAY_MS)
            case _:
                return lambda milliseconds, zone: JavaDate(milliseconds)

    def _milliseconds_of(self, unix: int) -> int:
        if self._precision == "seconds":
            return _bounded(unix * 1000)
        return _divided(unix, _PER_MILLISECOND.get(self._precision, 1))


def _source_of(schema: Schema) -> str:
    """The form of values under a schema."""
    logical = _LOGICAL.get(schema.name or "")
    if logical is not None:
        return logical
    if schema.type == "STRING":
        return "string"
    if schema.type == "INT64":
        return "unix"
    raise ConnectError(f"Schema {schema} does not correspond to a known timestamp type format")


def _unexpected(what: str, wanted: str, value: Any, schema: Schema | None) -> DataError:
    return DataError(f"Expected {what} to be a {wanted}, but found class {java_class(value, schema)}")


def _divided(value: int, by: int) -> int:
    """Division that rounds towards zero, as in Java."""
    return value // by if value >= 0 else -(-value // by)


def _bounded(value: int) -> int:
    """The value clamped to the range of a long, as `TimeUnit` converts."""
    return max(-(2**63), min(2**63 - 1, value))


def _no_field() -> None:
    raise NullPointerError('Cannot invoke "String.isEmpty()" because "this.config.field" is null')
