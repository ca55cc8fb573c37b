"""JsonSchemaConverter: the value is JSON, its JSON Schema is in a registry.

Owns the way from a schema id to a reader and from a Connect schema to a writer. Schemas: `tree`, `to_connect`,
`from_connect`; values: `values`, and where only plain values can occur, JsonConverter's fast paths `json.decoders`,
`json.encoders`. Source: Confluent's `JsonSchemaConverter`, `AbstractKafkaJsonSchemaSerializer`,
`AbstractKafkaJsonSchemaDeserializer`.

Invariant: unreadable bytes and unwritable values are DataErrors; the result does not depend on the fast or reference
path.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from herdmesh.connect.converters import definitions
from herdmesh.connect.converters.json.decoders import Decoder, Unusual
from herdmesh.connect.converters.json.encoders import Encoder
from herdmesh.connect.converters.json.encoders import Unusual as UnusualValue
from herdmesh.connect.converters.json_schema.options import JsonSchemaOptions
from herdmesh.connect.converters.json_schema.tree import JsonTree
from herdmesh.connect.converters.json_schema.values import Values, is_plain
from herdmesh.connect.converters.registered import MessageReader, MessageWriter, RegisteredConverter
from herdmesh.connect.errors import DataError
from herdmesh.connect.json_text import Missing, jackson
from herdmesh.connect.model import Schema, check_value
from herdmesh.connect.registry import HEAD_BYTES, frame


class JsonSchemaConverter(RegisteredConverter):
    """`io.confluent.connect.json.JsonSchemaConverter`."""

    java_class = "io.confluent.connect.json.JsonSchemaConverter"
    config_def = definitions.JSON_SCHEMA_CONVERTER
    kind = "JSON"

    def _set_up(self, settings: dict[str, Any]) -> None:
        self._options = JsonSchemaOptions.of(settings)
        super()._set_up(settings)

    def _make_reader(self, head: bytes) -> MessageReader:
        from herdmesh.connect.converters.json_schema.to_connect import connect_schema

        found = self._found(head)
        used = {reference.name: schema.text for reference, schema in self._used(found.references)}
        tree = JsonTree(found.text, used)
        version = self._version(found, _title(tree))
        return _JsonReader(connect_schema(tree, self._options, version), self._options)

    def _make_writer(self, schema: Schema | None) -> MessageWriter:
        from herdmesh.connect.converters.json_schema.from_connect import json_schema

        if schema is None:
            raise DataError(
                "A value without a schema cannot be written with JsonSchemaConverter. Use a converter or a source that "
                "gives it one, or JsonConverter with schemas.enable=false."
            )
        text = json_schema(schema, self._options)
        schema_id, _ = self._to_write(text, _title(JsonTree(text)))
        return _JsonWriter(schema, self._options, frame(schema_id))


class _JsonReader:
    """Reader of messages of one schema."""

    def __init__(self, schema: Schema, options: JsonSchemaOptions) -> None:
        self.schema: Schema | None = schema
        self._of = schema
        self._values = Values(options)
        self._decoder: Decoder | None = None
        if is_plain(schema):
            try:
                self._decoder = Decoder(schema, replace_null=True)
            except Unusual:
                pass  # the reference path reads them one by one

    def read_all(self, data: Sequence[bytes]) -> Sequence[Any]:
        payloads = [raw[HEAD_BYTES:] for raw in data]
        if self._decoder is not None:
            try:
                return self._decoder.read_all(payloads)
            except Unusual:
                pass
        return [self._careful(payload) for payload in payloads]

    def _careful(self, payload: bytes) -> Any:
        try:
            node = jackson.loads_node(payload)
            if isinstance(node, Missing):
                raise DataError("No JSON follows the schema id")
            return self._values.read(self._of, node)
        except RecursionError as error:
            raise DataError("JSON that is nested too deeply") from error


class _JsonWriter:
    """Writer of values of one Connect schema."""

    def __init__(self, schema: Schema, options: JsonSchemaOptions, head: bytes) -> None:
        self._schema, self._head = schema, head
        self._values = Values(options)
        self._encoder: Encoder | None = None
        if is_plain(schema):
            try:
                self._encoder = Encoder(schema, self._values.texts)
            except UnusualValue:
                pass  # the reference path writes them one by one

    def write_all(self, values: Sequence[Any]) -> list[bytes | None]:
        head = self._head
        if self._encoder is not None:
            try:
                return [head + payload for payload in self._encoder.write_all(values)]
            except UnusualValue:
                pass
        return [self._careful(value) for value in values]

    def _careful(self, value: Any) -> bytes | None:
        if value is not None:
            check_value(self._schema, value)
        try:
            text = self._values.text(self._schema, value)
        except RecursionError as error:
            raise DataError("A value that is nested too deeply") from error
        return None if text is None else self._head + text.encode()


def _title(tree: JsonTree) -> str | None:
    """The full name for the record strategies: the title, as in Confluent's `JsonSchema.name()`."""
    title = tree.root.members.get("title")
    return title if isinstance(title, str) else None
