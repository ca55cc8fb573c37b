"""ByLogicalTableRouter: routes change events of several tables to one topic (Debezium 3.6.1).

Owns the topic, the schema names that follow from it, and the key's field that names a row's table. Never compiled: the
schemas of the result depend on the record's topic.

Invariant: a record whose topic the expression does not match as a whole passes unchanged.
"""

from __future__ import annotations

import re
from typing import Any

from herdmesh.connect.errors import ConfigError, NullPointerError
from herdmesh.connect.java import Replacement, compiled, syntax_error
from herdmesh.connect.model import STRING, Batch, Schema, SchemaBuilder, Struct
from herdmesh.connect.transforms.base import Alone, Cells, Column, Compiled, Diverged, Shape, Transformation
from herdmesh.connect.transforms.debezium import definitions
from herdmesh.connect.transforms.debezium.envelopes import is_envelope, required_struct
from herdmesh.connect.transforms.structs import checked_struct

_NOT_AVRO = re.compile(r"^[^A-Za-z_]|[^A-Za-z0-9_.]")
_PURPOSE = "Updating schema"
_MADE_MOST = 1_000
"""Maximum number of cached schemas."""


class ByLogicalTableRouter(Transformation, Alone):
    """`io.debezium.transforms.ByLogicalTableRouter`."""

    java_class = "io.debezium.transforms.ByLogicalTableRouter"
    config_def = definitions.ROUTER
    touches = frozenset[Column](("key", "value", "topic"))

    def _set_up(self, settings: dict[str, Any]) -> None:
        self._topic = _rule(settings, "topic.regex", "topic.replacement")
        self._identifier = None
        if (settings["key.field.regex"] or "").strip():
            self._identifier = _rule(settings, "key.field.regex", "key.field.replacement")
        self._field: str | None = settings["key.field.name"] if settings["key.enforce.uniqueness"] else None
        self._avro: bool = settings["schema.name.adjustment.mode"] == "avro"
        self._keys: dict[tuple[Schema, str], Schema] = {}
        self._envelopes: dict[tuple[Schema, str], Schema] = {}

    def compile(self, shape: Shape) -> Compiled:
        raise Diverged

    def alone(self, cells: Cells, shape: Shape, batch: Batch, at: int) -> tuple[Cells, Shape] | None:
        key, value, topic = cells[:3]
        if topic is None:
            raise NullPointerError("the record has no topic")
        to = _replaced(self._topic, topic)
        if not to:
            return cells, shape
        key_schema = None
        if key is not None:
            key, key_schema = self._key(required_struct(key, shape.key, _PURPOSE), topic, to)
        shape = shape.with_part("key", key_schema)
        if value is not None and is_envelope(shape.value):
            value = self._event(required_struct(value, shape.value, _PURPOSE), to)
            shape = shape.with_part("value", value.schema)
        return (key, value, to, *cells[3:]), shape

    def _key(self, key: Struct, topic: str, to: str) -> tuple[Struct, Schema]:
        schema = self._keys.get((key.schema, to))
        if schema is None:
            builder = _like(key.schema, self._named(f"{to}.Key"))
            for field in key.schema.fields:
                builder.field(field.name, field.schema)
            if self._field is not None:
                builder.field(self._field, STRING)
            schema = _keep(self._keys, (key.schema, to), builder.build())
        values = list(key.values)
        if self._field is not None:
            identifier = None if self._identifier is None else _replaced(self._identifier, topic)
            values.append(topic if identifier is None else identifier)
        return checked_struct(schema, values), schema

    def _event(self, event: Struct, to: str) -> Struct:
        schema = self._envelopes.get((event.schema, to))
        if schema is None:
            schema = _keep(self._envelopes, (event.schema, to), self._envelope(event.schema, to))
        values: list[Any] = []
        for field in schema.fields:
            value = event.get(field.name)
            if field.name in ("before", "after") and value is not None:
                value = checked_struct(field.schema, list(required_struct(value, field.schema, _PURPOSE).values))
            values.append(value)
        return checked_struct(schema, values)

    def _envelope(self, old: Schema, to: str) -> Schema:
        row = old.field("before") or old.field("after")
        if row is None:
            raise NullPointerError("the change event has neither a field before nor a field after")
        rows = _like(row.schema, self._named(f"{to}.Value"))
        for field in row.schema.fields:
            rows.field(field.name, field.schema)
        after = rows.build()
        builder = _like(old, self._named(f"{to}.Envelope"))
        for field in old.fields:
            builder.field(field.name, after if field.name in ("before", "after") else field.schema)
        return builder.build()

    def _named(self, name: str) -> str:
        return _NOT_AVRO.sub("_", name) if self._avro else name


_Rule = tuple[Any, Replacement]


def _rule(settings: dict[str, Any], expression: str, replacement: str) -> _Rule:
    pattern, text = settings[expression], settings[replacement]
    for key, value in ((expression, pattern), (replacement, text)):
        if not value:
            raise ConfigError.for_value(key, value, "A value is required", fix=f"set {key}")
    wrong = syntax_error(pattern)
    if wrong is not None:
        raise ConfigError.for_value(expression, pattern, f"Not a regular expression: {wrong}", fix="correct it")
    made = compiled(pattern)
    return made, Replacement(text, made)


def _replaced(rule: _Rule, text: str) -> str | None:
    """The text with the rule applied; None = the expression does not match the whole text."""
    pattern, replacement = rule
    return None if pattern.fullmatch(text) is None else replacement.first(text)


def _like(schema: Schema, name: str) -> SchemaBuilder:
    """Builder with the attributes of the schema, under another name and without fields."""
    builder = SchemaBuilder.like(schema.replace(name=None, version=schema.version)).name(name)
    return builder.optional() if schema.optional else builder


def _keep(made: dict[tuple[Schema, str], Schema], key: tuple[Schema, str], schema: Schema) -> Schema:
    if len(made) >= _MADE_MOST:
        made.clear()
    made[key] = schema
    return schema
