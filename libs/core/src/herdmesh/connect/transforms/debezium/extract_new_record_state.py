"""ExtractNewRecordState: turns a change event into the row that it describes (Debezium 3.6.1, and the delete settings
of older releases).

Owns the results for creates, updates, deletes, truncates and tombstones.

Invariant: the compiled path and the per-record path (`alone`) give equal results. Records that do not fit the schema of
the compiled loop's creates and updates take the per-record path.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from herdmesh.connect.config import RawConfig
from herdmesh.connect.errors import (
    ClassCastError,
    ConfigError,
    ConnectError,
    DataError,
    NullPointerError,
)
from herdmesh.connect.model import (
    OPTIONAL_STRING,
    STRING,
    Batch,
    Field,
    Header,
    Schema,
    SchemaBuilder,
    Struct,
    check_value,
    java_class,
)
from herdmesh.connect.transforms.base import Alone, Cells, Code, Column, Compiled, Diverged, Shape, Transformation
from herdmesh.connect.transforms.debezium import definitions
from herdmesh.connect.transforms.debezium.envelopes import (
    Found,
    Reference,
    find_all,
    is_envelope,
    known_field,
    required_struct,
    typed_field,
)
from herdmesh.connect.transforms.structs import checked_struct, emit_struct, field_value

_PLANS_MOST = 64
"""Size of the plan cache: as many schemas as Debezium caches."""
_DELETED = "__deleted"
_OLDER = ("drop.tombstones", "delete.handling.mode")
_MODES = {
    "drop": (True, "drop"),
    "tombstone": (True, "none"),
    "rewrite": (True, "rewrite"),
    "rewrite-with-tombstone": (False, "rewrite"),
    "delete-to-tombstone": (True, "tombstone"),
}
"""Whether tombstones are filtered, and the result of a delete, by delete.tombstone.handling.mode."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """Result schema for rows of one schema, and the event fields added to them."""

    after: Schema
    added: list[Found]


class ExtractNewRecordState(Transformation, Alone):
    """`io.debezium.transforms.ExtractNewRecordState`."""

    java_class = "io.debezium.transforms.ExtractNewRecordState"
    config_def = definitions.EXTRACT

    def configure(self, config: RawConfig) -> None:
        self._given = frozenset(name for name in config if config[name] is not None)
        super().configure(config)

    def _set_up(self, settings: dict[str, Any]) -> None:
        self._drop_tombstones, self._deletes = self._delete_mode(settings)
        self._rewrite = self._deletes == "rewrite"
        prefix: str = settings["add.fields.prefix"]
        self._fields = [Reference.of(prefix, one) for one in settings["add.fields"]]
        prefix = settings["add.headers.prefix"]
        self._headers = [Reference.of(prefix, one) for one in settings["add.headers"]]
        self._route: str | None = settings["route.by.field"] or None
        header: str | None = settings["drop.fields.header.name"]
        self._drop_header = header if header and header.strip() else None
        self._drop_from_key: bool = settings["drop.fields.from.key"]
        self._keep_compatible: bool = settings["drop.fields.keep.schema.compatible"]
        self._null_to_default: bool = settings["replace.null.with.default"]
        self._plans: dict[tuple[Schema, Schema], _Plan] = {}
        columns: set[Column] = {"value"}
        columns |= {"headers"} if self._headers or self._drop_header else set()
        columns |= {"topic"} if self._route else set()
        columns |= {"key"} if self._drop_header and self._drop_from_key else set()
        self.touches = frozenset(columns)

    def _delete_mode(self, settings: dict[str, Any]) -> tuple[bool, str]:
        older = [name for name in _OLDER if name in self._given]
        mode = "delete.tombstone.handling.mode"
        if not older:
            return _MODES[settings[mode].strip().lower()]
        if mode in self._given:
            message = f"It cannot be set together with {mode}, which replaced it"
            raise ConfigError.for_value(older[0], settings[older[0]], message, fix=f"leave {' and '.join(older)} out")
        drop: bool | None = settings["drop.tombstones"]
        return drop is not False, settings["delete.handling.mode"] or "drop"

    # The compiled path.

    def compile(self, shape: Shape) -> Compiled:
        schema = shape.value
        if schema is None or not is_envelope(schema):
            return Compiled(shape, self._emit_tombstone)
        try:
            before, after = known_field(schema, "before"), known_field(schema, "after")
            plan = self._plan(schema, after.schema)
            headers = find_all(self._headers, schema)
            typed_field(schema, "op", "STRING")
            routed = typed_field(after.schema, self._route, "STRING") if self._route else None
        except ConnectError:
            raise Diverged from None  # on the per-record path each record reports its own error
        structs = any(one.schema.type == "STRUCT" for one in plan.added)
        if self._drop_header or structs or after.schema.default is not None:
            raise Diverged

        def emit(code: Code) -> None:
            self._emit_row(code, before, after)
            if headers:
                made = ", ".join(
                    f"{code.bind(Header)}({one.name!r}, {one.expression('envelope')}, {code.bind(one.schema)})"
                    for one in headers
                )
                code.write("headers", f"[*{code.read('headers')}, {made}]")
            defaults = self._rewrite and self._null_to_default
            if routed is not None:
                code.line(f"to = row.values[{routed.index}]")
                if defaults and routed.schema.default is not None:
                    # Java adds the deletion mark of an existing row before it reads the row's topic, and of a deleted
                    # row after it.
                    code.line(f"if to is None and deleted == 'false': to = {code.bind(routed.schema.default)}")
                code.write("topic", f"to if to is not None and to.strip() else {code.read('topic')}")
            code.write("value", "row")
            values = [field_value(code, one, null_to_default=defaults) for one in after.schema.fields]
            values += ["deleted"] if self._rewrite else []
            emit_struct(code, "value", plan.after, [*values, *(one.expression("envelope") for one in plan.added)])

        return Compiled(shape.with_part("value", plan.after), emit)

    def _emit_row(self, code: Code, before: Field, after: Field) -> None:
        """Write the checks of an event. `envelope` becomes the event's list, `row` the struct to keep. A record without
        such a row is filtered, or takes the per-record path.
        """
        alone = f"raise {code.bind(Diverged)}"
        struct = code.bind(Struct)
        value = code.read("value")
        with code.block(f"if type({value}) is not {struct}"):
            if self._drop_tombstones:
                with code.block(f"if {value} is None"):
                    code.drop()
            code.line(alone)
        code.line(f"envelope = {value}.values")
        code.line(f"row = envelope[{after.index}]")
        if self._rewrite:
            code.line("deleted = 'false'")
        with code.block("if row is None"):
            if self._deletes == "drop":
                code.drop()
            else:
                code.line(f"row = envelope[{before.index}]")
                with code.block("if row is None"):  # a truncate event
                    code.drop()
                if self._rewrite and before.schema is after.schema:
                    code.line("deleted = 'true'")
                else:
                    code.line(alone)
        with code.block(f"if type(row) is not {struct}"):
            code.line(alone)

    def _emit_tombstone(self, code: Code) -> None:
        """Write the statements for values that are no change events: null is a tombstone, any other value passes."""
        with code.block(f"if {code.read('value')} is None"):
            if self._drop_tombstones:
                code.drop()
            elif self._headers:
                code.write("headers", f"{code.bind(self._with_headers)}({code.read('headers')}, None, None)")

    # The per-record path.

    def alone(self, cells: Cells, shape: Shape, batch: Batch, at: int) -> tuple[Cells, Shape] | None:
        key, value, topic, headers = cells[:4]
        schema = shape.value
        envelope = schema is not None and is_envelope(schema)
        if self._headers and (envelope or value is None):
            headers = self._with_headers(headers, value, schema)
        if value is None:
            return None if self._drop_tombstones else ((key, None, topic, headers, *cells[4:]), shape)
        if schema is None or not envelope:
            return cells, shape
        value = required_struct(value, schema, "field extraction")
        created, row_schema = _row_of(value, schema, "after")
        before, before_schema = (None, None) if created is not None else _row_of(value, schema, "before")
        if created is None and (before is None or self._deletes == "drop"):
            return None
        row = created
        if created is None:
            row, row_schema = self._deleted(before, before_schema, row_schema)
        elif self._rewrite and type(created) is Struct:
            row, row_schema = self._marked(created, created.schema, "false")
        if self._route:
            topic = self._routed(schema, before if created is None else row, topic, created is None)
        cells, shape = (key, row, topic, headers, *cells[4:]), shape.with_part("value", row_schema)
        if created is None:
            cells, shape = self._without_dropped(cells, shape)
            return (cells, shape) if cells[1] is None else self._with_fields(cells, shape, value, schema)
        return self._without_dropped(*self._with_fields(cells, shape, value, schema))

    def _deleted(self, before: Any, schema: Schema | None, after: Schema | None) -> tuple[Any, Schema | None]:
        """The result of a delete: value and schema."""
        if self._deletes == "tombstone":
            return None, None
        if self._deletes == "none":
            return None, after
        return self._marked(before, before.schema, "true") if type(before) is Struct else (before, schema)

    def _marked(self, row: Struct, schema: Schema, deleted: str) -> tuple[Struct, Schema]:
        """The row with the field that marks it as deleted or not deleted."""
        builder = SchemaBuilder.like(schema)
        for field in schema.fields:
            builder.field(field.name, field.schema)
        after = builder.field(_DELETED, OPTIONAL_STRING).build()
        values = [
            field.schema.default if one is None and self._null_to_default else one
            for field, one in zip(schema.fields, row.values, strict=True)
        ]
        return checked_struct(after, [*values, deleted]), after

    def _routed(self, schema: Schema, row: Any, topic: str | None, delete: bool) -> str | None:
        assert self._route is not None
        if delete:
            typed_field(schema, "before", "STRUCT")
        elif type(row) is not Struct:
            purpose = "Read record to set topic routing for CREATE / UPDATE"
            raise DataError(f"Only Struct objects supported for [{purpose}], found: {java_class(row)}")
        found: str | None = row.values[typed_field(row.schema, self._route, "STRING").index]
        return found if found is not None and found.strip() else topic

    def _with_fields(self, cells: Cells, shape: Shape, event: Struct, envelope: Schema) -> tuple[Cells, Shape]:
        key, row = cells[:2]
        row = required_struct(row, None, "source field insertion")
        typed_field(envelope, "op", "STRING")
        plan = self._plan_of(row.schema, envelope)
        values = list(row.values)
        for found in plan.added:
            value = found.value(event)
            if found.schema.type == "STRUCT":
                check_value(found.schema, value, found.name)
            values.append(value)
        made = checked_struct(plan.after, values)
        return (key, made, *cells[2:]), shape.with_part("value", plan.after)

    def _with_headers(self, headers: list[Header], event: Any, schema: Schema | None) -> list[Header]:
        """The headers with those of the event added; for a tombstone, with the operation."""
        if event is None or schema is None:
            return [*headers, *(Header(one.name, "d", STRING) for one in self._headers if one.field == "op")]
        if type(event) is not Struct:
            raise ClassCastError(f"a change event has to be a struct, found {java_class(event, schema)}")
        found = find_all(self._headers, schema)
        return [*headers, *(Header(one.name, one.value(event), one.schema) for one in found)]

    def _without_dropped(self, cells: Cells, shape: Shape) -> tuple[Cells, Shape]:
        """The record without the fields that its own header names."""
        key, value, topic, headers = cells[:4]
        named = next((one for one in headers if one.key == self._drop_header), None)
        if self._drop_header is None or named is None or named.value is None:
            return cells, shape
        given: object = named.value
        if not isinstance(given, list):
            raise ClassCastError(f"header {named.key} has to be a list of field names, found {java_class(given)}")
        names = cast("list[str]", given)
        if self._drop_from_key and key is not None:
            key, after = self._dropped(key, shape.key, names)
            shape = shape.with_part("key", after)
        value, after = self._dropped(value, shape.value, names)
        return (key, value, topic, headers, *cells[4:]), shape.with_part("value", after)

    def _dropped(self, value: Any, schema: Schema | None, names: list[str]) -> tuple[Any, Schema | None]:
        if schema is None and self._keep_compatible:
            raise NullPointerError("the record has no schema, so its optional fields are unknown")
        kept = schema.fields if schema is not None and schema.type == "STRUCT" else ()
        gone = {one.name for one in kept if one.name in names and (one.schema.optional or not self._keep_compatible)}
        if not gone or value is None or schema is None:
            return value, schema
        builder = SchemaBuilder.like(schema)
        values: list[Any] = []
        for field in schema.fields:
            if field.name not in gone:
                builder.field(field.name, field.schema)
                values.append(value.get(field.name))
        after = builder.build()
        return Struct(after, values), after

    # Plans, by schema.

    def _plan(self, envelope: Schema, row: Schema) -> _Plan:
        """The plan for rows of this schema in events of this schema, with the deletion mark when deletes are
        rewritten."""
        builder = SchemaBuilder.like(row)
        for field in row.fields:
            builder.field(field.name, field.schema)
        if self._rewrite:
            builder.field(_DELETED, OPTIONAL_STRING)
        return self._plan_of(builder.build(), envelope)

    def _plan_of(self, row: Schema, envelope: Schema) -> _Plan:
        found = self._plans.get((row, envelope))
        if found is not None:
            return found
        builder = SchemaBuilder.like(row)
        for field in row.fields:
            builder.field(field.name, field.schema)
        added = find_all(self._fields, envelope)
        for one in added:
            builder.field(one.name, one.schema)
        if len(self._plans) >= _PLANS_MOST:
            self._plans.clear()
        made = self._plans[row, envelope] = _Plan(builder.build(), added)
        return made


def _row_of(event: Struct, schema: Schema, name: str) -> tuple[Any, Schema]:
    """The value of the event's field of that name, and its schema."""
    field = known_field(schema, name)
    return event.get(name), field.schema
