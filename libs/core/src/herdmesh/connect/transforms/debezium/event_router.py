"""EventRouter: turns inserts into an outbox table into events, each in the topic that its row names (Debezium 3.6.1).

Owns the mapping from a row to topic, key, value, headers, partition and timestamp.

Invariant: the compiled path and the per-record path (`alone`) give equal results. Records whose result has no fixed
schema (fields beside the payload, an expanded payload, tombstones) take the per-record path.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import structlog

from herdmesh.connect.config import RawConfig
from herdmesh.connect.errors import (
    ConfigError,
    ConnectError,
    DataError,
    IllegalStateError,
    NullPointerError,
)
from herdmesh.connect.model import Batch, Field, Header, Headers, Schema, SchemaBuilder, Struct, java_class, java_text
from herdmesh.connect.transforms.base import Alone, Cells, Code, Column, Compiled, Diverged, Shape, Transformation
from herdmesh.connect.transforms.debezium.envelopes import is_envelope, known_field, required_struct, typed_field
from herdmesh.connect.transforms.debezium.event_router_definition import EVENT_ROUTER
from herdmesh.connect.transforms.debezium.json_payload import JsonPayload
from herdmesh.connect.transforms.kafka.regex_router import RegexRouter

_log = structlog.get_logger()
_DIVISORS: Final[Mapping[str, int]] = {
    "io.debezium.time.Timestamp": 1,
    "io.debezium.time.MicroTimestamp": 1_000,
    "io.debezium.time.NanoTimestamp": 1_000_000,
}
"""Divisor from a column's number to milliseconds, by schema name."""
_SCHEMAS_MOST = 1_000
"""Maximum number of cached value schemas."""


@dataclass(frozen=True, slots=True)
class _Additional:
    """Column that goes beside the payload, into a header or into the partition."""

    column: str
    place: str
    name: str

    @classmethod
    def of(cls, text: str) -> _Additional:
        parts = [part.strip() for part in text.split(":")]
        return cls(parts[0], parts[1].lower(), parts[-1] if len(parts) == 3 else parts[0])


class EventRouter(Transformation, Alone):
    """`io.debezium.transforms.outbox.EventRouter`."""

    java_class = "io.debezium.transforms.outbox.EventRouter"
    config_def = EVENT_ROUTER
    touches = frozenset[Column](("key", "value", "topic", "partition", "timestamp", "headers"))
    makes_times = True

    def configure(self, config: RawConfig) -> None:
        key = "table.fields.additional.placement"
        if config.get(key) == "":
            why = "A comma-separated list of valid String pairs or trios is expected but got: []"
            raise ConfigError.for_value(key, "", f"The '{key}' value is invalid: {why}", fix=f"leave {key} out")
        super().configure(config)

    def _set_up(self, settings: dict[str, Any]) -> None:
        self._id: str = settings["table.field.event.id"]
        self._key: str = settings["table.field.event.key"]
        self._payload: str = settings["table.field.event.payload"]
        self._time: str | None = settings["table.field.event.timestamp"]
        self._version: str | None = settings["table.field.event.schema.version"]
        self._route: str = settings["route.by.field"]
        self._router = RegexRouter()
        self._router.configure({name: settings[f"route.topic.{name}"] for name in ("regex", "replacement")})
        self._additional = [_Additional.of(one) for one in settings["table.fields.additional.placement"] or ()]
        self._ignore_missing = settings["table.field.additional.missing"].strip().lower() == "ignore"
        self._enveloped = any(one.place == "envelope" for one in self._additional)
        self._tombstones: bool = settings["route.tombstone.on.empty.payload"]
        self._invalid: str = settings["table.op.invalid.behavior"].strip().lower()
        self._json = None
        if settings["table.expand.json.payload"]:
            keep = settings["table.json.payload.null.behavior"].strip().lower() == "optional_bytes"
            adjustment = settings["field.name.adjustment.mode"].strip().lower()
            self._json = JsonPayload(keep_nulls=keep, adjustment=adjustment)
        self._schemas: dict[tuple[Schema | None, Schema, str | None, int | None], Schema] = {}

    # The compiled path.

    def compile(self, shape: Shape) -> Compiled:
        schema = shape.value
        if schema is None or not is_envelope(schema):
            return Compiled(shape, self._emit_tombstone)
        try:
            after = known_field(schema, "after")
            row = after.schema
            operation = typed_field(schema, "op", "STRING")
            event_id, key, payload = (_column(row, name) for name in (self._id, self._key, self._payload))
            route = typed_field(row, self._route, "STRING")
            time_ms = self._time_expression(schema, row)
            placed = [(one, _column(row, one.column)) for one in self._additional if self._has(row, one)]
            for one, field in placed:
                if one.place == "partition":
                    typed_field(row, field.name, "INT32")
        except ConnectError:
            raise Diverged from None  # on the per-record path each record reports its own error
        if self._enveloped or self._json is not None or row.default is not None:
            raise Diverged

        def emit(code: Code) -> None:
            alone = f"raise {code.bind(Diverged)}"
            self._emit_row(code, alone, operation, after)
            value = _value_of(code, payload)
            if self._tombstones:
                code.line(f"payload = {value}")
                code.line(f"if payload is None or type(payload) is str and not payload.strip({_BLANK!r}): {alone}")
            headers = [("id", event_id), *((one.name, field) for one, field in placed if one.place == "header")]
            made = ", ".join(
                f"{code.bind(Header)}({name!r}, {_value_of(code, field)}, {code.bind(field.schema)})"
                for name, field in headers
            )
            nulls = [f"row[{field.index}] is None" for _, field in headers if not field.schema.optional]
            if nulls:
                code.line(f"if {' or '.join(nulls)}: {alone}")
            code.line(f"if row[{route.index}] is None: {alone}")
            code.write("headers", f"[*{code.read('headers')}, {made}]")
            code.write("topic", f"{code.bind(self._router.routed)}(row[{route.index}])")
            partitions = [field for one, field in placed if one.place == "partition"]
            code.write("partition", f"row[{partitions[-1].index}]" if partitions else "None")
            code.write("timestamp", time_ms)
            code.write("key", _value_of(code, key))
            code.write("value", value)

        return Compiled(Shape(key.schema, payload.schema, shape.source), emit)

    def _emit_row(self, code: Code, alone: str, operation: Field, after: Field) -> None:
        """Write the checks of an event. `event` becomes the event's list, `row` the row's. A value that is no insert is
        filtered, or takes the per-record path.
        """
        struct = code.bind(Struct)
        value = code.read("value")
        with code.block(f"if {value} is None"):
            code.drop()
        code.line(f"if type({value}) is not {struct}: {alone}")
        code.line(f"event = {value}.values")
        code.line(f"op = event[{operation.index}]")
        with code.block("if op == 'd'"):
            code.drop()
        with code.block("if op == 'u'"):
            code.line(f"{code.bind(self._refuse_update)}({code.read('key')})")
            code.drop()
        code.line(f"if op is None: {alone}")
        code.line(f"row = event[{after.index}]")
        code.line(f"if type(row) is not {struct} or row.schema is not {code.bind(after.schema)}: {alone}")
        code.line("row = row.values")

    def _emit_tombstone(self, code: Code) -> None:
        """Write the statements for values that are no change events: null is filtered, any other value passes."""
        with code.block(f"if {code.read('value')} is None"):
            code.drop()

    def _time_expression(self, event: Schema, row: Schema) -> str:
        """Expression for the timestamp in milliseconds."""
        if self._time is None:
            return f"event[{typed_field(event, 'ts_ms', 'INT64').index}]"
        field = self._time_field(row)
        divisor = _divisor(field)
        own = f"row[{field.index}]"
        # Java's division rounds towards zero.
        text = own if divisor == 1 else f"({own} // {divisor} if {own} >= 0 else -(-{own} // {divisor}))"
        return f"({text} if {own} is not None else event[{typed_field(event, 'ts_ms', 'INT64').index}])"

    def _time_field(self, row: Schema) -> Field:
        assert self._time is not None
        field = row.field(self._time)
        if field is None:
            raise ConnectError(f"Unable to find timestamp field {self._time} in event")
        return typed_field(row, self._time, "INT64")

    def _has(self, row: Schema, one: _Additional) -> bool:
        return not self._ignore_missing or row.field(one.column) is not None

    def _refuse_update(self, key: Any) -> None:
        if self._invalid == "fatal":
            raise IllegalStateError(f"Unexpected update message received {java_text(key)}, fail.")
        tell = _log.warning if self._invalid == "warn" else _log.error
        tell("a row of the outbox table was updated, which is not an event; the update is left out")

    # The per-record path.

    def alone(self, cells: Cells, shape: Shape, batch: Batch, at: int) -> tuple[Cells, Shape] | None:
        key, event, _, headers, *_ = cells
        if event is None:
            return None
        if not is_envelope(shape.value):
            return cells, shape
        event = required_struct(event, shape.value, "Detect Debezium Operation")
        operation = event.get_typed("op", "STRING")
        if operation is None:
            raise NullPointerError("the change event has no operation")
        if operation == "d":
            return None
        if operation == "u":
            self._refuse_update(key)
            return None
        after = known_field(event.schema, "after")
        row = required_struct(event.values[after.index], after.schema, "Read Outbox Event")
        return self._event(event, row, headers, shape)

    def _event(self, event: Struct, row: Struct, headers: list[Header], shape: Shape) -> tuple[Cells, Shape]:
        schema = row.schema
        payload_field = schema.field(self._payload)
        if payload_field is None:
            raise ConnectError(f"Unable to find payload field {self._payload} in event")
        time_ms = self._time_of(event, row)
        event_id, payload = row.get(self._id), row.get(self._payload)
        made = Headers(headers).add("id", event_id, _column(schema, self._id).schema)
        payload, payload_schema = self._expanded(payload, payload_field.schema)
        topic: str | None = None
        value, value_schema = payload, payload_schema
        if self._enveloped:
            version = None if self._version is None else row.get_typed(self._version, "INT32")
            topic = row.get_typed(self._route, "STRING")
            value_schema = self._value_schema(payload_schema, schema, topic, version)
            value = Struct(value_schema).put("payload", payload)
        partition: int | None = None
        for one in self._additional:
            if not self._has(schema, one):
                continue
            if one.place == "envelope":
                value.put(one.name, row.get(one.column))
            elif one.place == "header":
                made.add(one.name, row.get(one.column), _column(schema, one.column).schema)
            else:
                partition = row.get_typed(one.column, "INT32")
        if self._tombstones and _is_empty(payload):
            value, value_schema = None, None
        key = row.get(self._key)
        topic = row.get_typed(self._route, "STRING")
        key_schema = _column(schema, self._key).schema
        cells = key, value, self._router.routed(topic), list(made), partition, time_ms
        return cells, Shape(key_schema, value_schema, shape.source)

    def _time_of(self, event: Struct, row: Struct) -> int | None:
        if self._time is not None:
            field = self._time_field(row.schema)
            own: int | None = row.values[field.index]
            if own is not None:
                divisor = _divisor(field)
                return own // divisor if own >= 0 else -(-own // divisor)
        return event.get_typed("ts_ms", "INT64")

    def _expanded(self, payload: Any, schema: Schema) -> tuple[Any, Schema]:
        if self._json is None or payload is None:
            return payload, schema
        if type(payload) is not str:
            _log.warning(
                "a payload that is not text cannot be expanded as JSON; it is passed on unchanged",
                found=java_class(payload),
            )
            return payload, schema
        try:
            made = self._json.expand(self._payload, payload)
        except ConnectError as error:
            _log.warning("a payload cannot be expanded as JSON; it is passed on as text", reason=str(error))
            return payload, schema
        return made, made.schema

    def _value_schema(self, payload: Schema, row: Schema, topic: str | None, version: int | None) -> Schema:
        known = payload, row, topic, version
        found = self._schemas.get(known)
        if found is not None:
            return found
        before, dot, last = (row.name or "").rpartition(".")
        builder = SchemaBuilder("STRUCT").name(f"{before}{dot}{topic}" + (f".{last}" if row.name is not None else ""))
        if version is not None:
            builder.version(version)
        builder.field("payload", payload)
        for one in self._additional:
            field = row.field(one.column)
            if one.place != "envelope" or (field is None and self._ignore_missing):
                continue
            if field is None:
                raise ConnectError(f"Unable to find field {one.column} in event")
            builder.field(one.name, field.schema)
        if len(self._schemas) >= _SCHEMAS_MOST:
            self._schemas.clear()
        made = self._schemas[known] = builder.build()
        return made


_BLANK = "".join(map(chr, range(33)))
"""Characters that Java's `trim` removes."""


def _is_empty(payload: Any) -> bool:
    return payload is None or (type(payload) is str and not payload.strip(_BLANK))


def _value_of(code: Code, field: Field) -> str:
    """Expression for a column's value, with its default in place of null."""
    text = f"row[{field.index}]"
    if field.schema.default is None:
        return text
    return f"({text} if {text} is not None else {code.bind(field.schema.default)})"


def _column(row: Schema, name: str) -> Field:
    field = row.field(name)
    if field is None:
        raise DataError(f"{name} is not a valid field name")
    return field


def _divisor(field: Field) -> int:
    name = field.schema.name
    if name is None:
        raise ConnectError(
            f"Unsupported field type {field.schema.type} (without logical schema name) for event timestamp"
        )
    divisor = _DIVISORS.get(name)
    if divisor is None:
        raise ConnectError(f"Unsupported field type {name} for event timestamp")
    return divisor
