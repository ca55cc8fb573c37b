"""ProtobufConverter: the value is a Protobuf message, its file is in a registry.

Owns the way from a schema id and a message's position to a reader, and from a Connect schema to a writer. Texts:
`files`; schemas: `to_connect`, `from_connect`; values: `values`. Source: Confluent's `ProtobufConverter`,
`AbstractKafkaProtobufSerializer`, `AbstractKafkaProtobufDeserializer`.

Invariant: unreadable bytes and unwritable values are DataErrors, whatever is wrong with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from herdmesh.connect.converters import definitions
from herdmesh.connect.converters.protobuf.options import ProtobufOptions
from herdmesh.connect.converters.quick_checks import quick_check
from herdmesh.connect.converters.registered import UNFIT, MessageReader, MessageWriter, RegisteredConverter
from herdmesh.connect.errors import DataError
from herdmesh.connect.model import Schema, check_value
from herdmesh.connect.registry import HEAD_BYTES, RegisteredSchema, Remembered, frame, schema_id_of

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor

    from herdmesh.connect.converters.protobuf.files import ProtobufFile


class ProtobufConverter(RegisteredConverter):
    """`io.confluent.connect.protobuf.ProtobufConverter`."""

    java_class = "io.confluent.connect.protobuf.ProtobufConverter"
    config_def = definitions.PROTOBUF_CONVERTER
    kind = "PROTOBUF"

    def _set_up(self, settings: dict[str, Any]) -> None:
        self._options = ProtobufOptions.of(settings)
        self._files = Remembered[RegisteredSchema, "ProtobufFile"](settings["schemas.cache.config"])
        super()._set_up(settings)

    def _head(self, data: bytes) -> bytes:
        from herdmesh.connect.converters.protobuf.files import decode_indexes

        schema_id_of(data)
        return data[: decode_indexes(data, HEAD_BYTES)[1]]

    def _make_reader(self, head: bytes) -> MessageReader:
        from herdmesh.connect.converters.protobuf.files import decode_indexes
        from herdmesh.connect.converters.protobuf.to_connect import connect_schema

        found = self._found(head)
        message = self._file(found).message(decode_indexes(head, HEAD_BYTES)[0])
        version = self._version(found, message.full_name)
        return _ProtobufReader(message, self._options, connect_schema(message, self._options, version), len(head))

    def _file(self, found: RegisteredSchema) -> ProtobufFile:
        """The compiled file. It is compiled once for all its messages and topics, also when a message index leads
        nowhere.
        """
        from herdmesh.connect.converters.protobuf.files import compiled

        used = {reference.name: one.text for reference, one in self._used(found.references)}
        return self._files.get(found, lambda: compiled(found.text, used))

    def _make_writer(self, schema: Schema | None) -> MessageWriter:
        from herdmesh.connect.converters.protobuf.files import encode_indexes, in_pool, text_of
        from herdmesh.connect.converters.protobuf.from_connect import protobuf_file

        if schema is None:
            raise DataError(
                "A value without a schema cannot be written with ProtobufConverter. Use a converter or a source that "
                "gives it one."
            )
        proto, name = protobuf_file(schema, self._options)
        file = in_pool(proto)
        schema_id, instead = self._to_write(text_of(proto), name)
        if instead is not None:
            file = self._file(instead)
        head = frame(schema_id) + encode_indexes(file.indexes(name))
        return _ProtobufWriter(file.named(name), self._options, schema, head)


class _ProtobufReader:
    """Reader of messages of one type."""

    def __init__(self, message: Descriptor, options: ProtobufOptions, schema: Schema, head_bytes: int) -> None:
        from google.protobuf.message import DecodeError
        from google.protobuf.message_factory import GetMessageClass

        from herdmesh.connect.converters.protobuf.values import reader

        self.schema: Schema | None = schema
        self._name, self._head_bytes = message.full_name, head_bytes
        self._parse = GetMessageClass(message).FromString
        self._change = reader(message, options, schema)
        self._bad: tuple[type[Exception], ...] = (DecodeError, *UNFIT)

    def read_all(self, data: Sequence[bytes]) -> list[Any]:
        parse, change, at = self._parse, self._change, self._head_bytes
        try:
            return [change(parse(raw[at:])) for raw in data]
        except self._bad as error:
            raise DataError(f"Not Protobuf of the message {self._name}: {error}") from error


class _ProtobufWriter:
    """Writer of values of one Connect schema."""

    def __init__(self, message: Descriptor, options: ProtobufOptions, schema: Schema, head: bytes) -> None:
        from google.protobuf.message import EncodeError

        from herdmesh.connect.converters.protobuf.values import writer

        self._schema, self._head = schema, head
        self._fits = quick_check(schema)
        self._change = writer(message, options, schema)
        self._bad: tuple[type[Exception], ...] = (EncodeError, *UNFIT)

    def write_all(self, values: Sequence[Any]) -> list[bytes | None]:
        schema, head, fits, change = self._schema, self._head, self._fits, self._change
        made: list[bytes | None] = []
        try:
            for value in values:
                if value is None:
                    made.append(None)  # as in Confluent's converter, whatever the schema is
                    continue
                if not fits(value):
                    check_value(schema, value)
                made.append(head + change(value).SerializeToString())
        except self._bad as error:
            raise DataError(f"Not a value of {schema}: {type(error).__name__} {error}".rstrip()) from error
        return made
