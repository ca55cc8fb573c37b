"""JsonConverter: the value is JSON, in Connect's numbers and Jackson's bytes; with `schemas.enable`, in an envelope.

Owns the settings, the envelope `{"schema":...,"payload":...}`, the rules about null, and the caches: one reader for
each schema part, one writer for each schema. Reading and writing: `nodes`, `texts`, and the fast paths `decoders`,
`encoders`; schemas themselves: `schemas`.

Invariant: a JSON `null` is a value when read (None) and a tombstone when written without a schema, as in Connect; the
result does not depend on the fast or reference path, nor on the caches.
"""

from __future__ import annotations

import re
import sys
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Generic, TypeVar, cast

import msgspec

from herdmesh.connect.converters import definitions
from herdmesh.connect.converters.base import Converter, Schemas
from herdmesh.connect.converters.json import schemas
from herdmesh.connect.converters.json.decoders import Decoder, Unusual
from herdmesh.connect.converters.json.encoders import Encoder
from herdmesh.connect.converters.json.encoders import Unusual as UnusualValue
from herdmesh.connect.converters.json.nodes import value_of
from herdmesh.connect.converters.json.texts import Texts
from herdmesh.connect.errors import DataError
from herdmesh.connect.json_text import jackson
from herdmesh.connect.model import Schema

_ENVELOPE_NEEDED = (
    'JsonConverter with schemas.enable requires "schema" and "payload" fields and may not contain additional fields. '
    "If you are trying to deserialize plain JSON data, set schemas.enable=false in your converter configuration."
)
_BAD_CONTENT = "Failed to parse schema in converter config due to serialization error: "
_COMPILED_AFTER = 16  # values of one schema; compiling costs as much as some hundred values on the reference path
_ENVELOPE_OVERHEAD = 32  # bytes around schema and payload, too few for a second schema or payload member
_PAYLOAD_FOLLOWS = re.compile(rb'"payload"[ \t\r\n]*:[ \t\r\n]*\Z')
_CLOSING = ord("}")
_PREFIXES = 4  # cached envelope prefixes; as many schemas may alternate in a topic at full speed


class _Parts(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """Envelope whose members are not parsed yet."""

    schema: msgspec.Raw
    payload: msgspec.Raw


_decode_parts = msgspec.json.Decoder(_Parts).decode


_K = TypeVar("_K")
_V = TypeVar("_V")


class _Remembered(Generic[_K, _V]):
    """Cache of the most recently used entries; always empty when the size is not positive."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._items: OrderedDict[_K, _V] = OrderedDict()

    def __len__(self) -> int:
        return len(self._items)

    def get(self, key: _K) -> _V | None:
        """The cached value; None = not in the cache."""
        found = self._items.get(key)
        if found is not None:
            self._items.move_to_end(key)
        return found

    def put(self, key: _K, value: _V) -> None:
        """Add an entry, and evict the least recently used one when the cache is full."""
        self._items[key] = value
        if len(self._items) > self._size:
            self._items.popitem(last=False)


class JsonConverter(Converter):
    """`org.apache.kafka.connect.json.JsonConverter` (docs/reference/connect/transforms-converters.md, section 4)."""

    java_class = "org.apache.kafka.connect.json.JsonConverter"
    config_def = definitions.JSON_CONVERTER

    def _set_up(self, settings: dict[str, Any]) -> None:
        self._schemas: bool = settings["schemas.enable"]
        self.is_static = not self._schemas
        self._replace_null: bool = settings["replace.null.with.default"]
        self._texts = Texts(settings["decimal.format"].upper() == "NUMERIC", self._replace_null)
        self._readers = _Remembered[bytes, _Reader](settings["schemas.cache.size"])
        self._writers = _Remembered[Schema, _Writer](settings["schemas.cache.size"])
        self._recent: tuple[tuple[bytes, _Reader], ...] = ()
        schema = self._content_schema(settings["schema.content"])
        self._content = None if schema is None else _Reader(schema, replace_null=self._replace_null)

    def _content_schema(self, content: str | None) -> Schema | None:
        """The schema of all messages. Raises DataError when the text is no schema, even where it is not used."""
        if not content:
            return None
        try:
            node = jackson.loads_node(content.encode("utf-8", "surrogatepass"))
        except DataError as error:
            raise DataError(_BAD_CONTENT) from error
        return schemas.schema_of(node, replace_null=self._replace_null)

    def remembered(self) -> tuple[int, int]:
        """Number of cached readers and of cached writers."""
        return len(self._readers), len(self._writers)

    # --- reading

    def read(self, data: bytes | None, /) -> tuple[Schema | None, Any]:
        if data is None:
            return None, None
        if not self._schemas:
            return None, jackson.loads(data)
        if self._content is not None:
            return self._content.schema, self._content.read_whole(data)
        found = self._begun(data) or self._opened(data)
        if found is not None:
            reader, payload = found
            try:
                return reader.schema, reader.read_all((payload,))[0]
            except Unusual:
                pass
        return self._read_envelope(data)

    def read_many(self, data: Sequence[bytes | None], /) -> tuple[Schemas, Sequence[Any]]:
        if not self._schemas:
            return None, jackson.loads_many(data)
        first = data[0] if data else None
        if first is None:
            return super().read_many(data)
        if self._content is not None:
            reader, payloads = self._content, [raw for raw in data if raw]
        else:
            if not any(first.startswith(prefix) for prefix, _ in self._recent):
                self.read(first)
            if not self._recent:
                return super().read_many(data)
            prefix, reader = next((known for known in self._recent if first.startswith(known[0])), self._recent[0])
            at = len(prefix)
            payloads = [raw[at:-1] for raw in data if raw and raw.startswith(prefix) and raw[-1] == _CLOSING]
        if len(payloads) == len(data):
            try:
                return reader.schema, reader.read_all(payloads)
            except Unusual:
                pass  # one of them is unusual: the loop finds it, and reads the others on the fast path again
        return super().read_many(data)

    def _begun(self, data: bytes) -> tuple[_Reader, bytes] | None:
        """The reader and the presumed payload of an envelope that begins like an earlier one."""
        for prefix, reader in self._recent:
            if data.startswith(prefix) and data[-1] == _CLOSING:
                return reader, data[len(prefix) : -1]
        return None

    def _opened(self, data: bytes) -> tuple[_Reader, bytes] | None:
        """The reader and the payload of an envelope whose schema part is cached."""
        try:
            parts = _decode_parts(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None
        schema, payload = bytes(parts.schema), bytes(parts.payload)
        reader = self._readers.get(schema)
        if reader is None or len(data) - len(schema) - len(payload) > _ENVELOPE_OVERHEAD:
            return None
        self._remember_prefix(data, payload, reader)
        return reader, payload

    def _read_envelope(self, data: bytes) -> tuple[Schema | None, Any]:
        """Read any envelope on the reference path."""
        node = jackson.loads_node(data)
        if not isinstance(node, dict):
            raise DataError(_ENVELOPE_NEEDED)
        members = cast("dict[str, Any]", node)
        if members.keys() != {"schema", "payload"}:
            raise DataError(_ENVELOPE_NEEDED)
        reader = self._reader_of(members["schema"], data)
        return reader.schema, value_of(reader.schema, members["payload"], replace_null=self._replace_null)

    def _reader_of(self, node: Any, data: bytes) -> _Reader:
        """The reader of a schema part, cached by its bytes where they can be isolated."""
        try:
            parts = _decode_parts(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            schema = schemas.schema_of(node, replace_null=self._replace_null)
            return _Reader(schema, replace_null=self._replace_null)
        raw, payload = bytes(parts.schema), bytes(parts.payload)
        reader = self._readers.get(raw)
        if reader is None:
            schema = schemas.schema_of(node, replace_null=self._replace_null)
            reader = _Reader(schema, replace_null=self._replace_null)
            self._readers.put(raw, reader)
        if len(data) - len(raw) - len(payload) <= _ENVELOPE_OVERHEAD:
            self._remember_prefix(data, payload, reader)
        return reader

    def _remember_prefix(self, data: bytes, payload: bytes, reader: _Reader) -> None:
        """Cache the envelope's prefix, because the next record may begin with it: any value between this prefix and a
        closing brace is the payload.
        """
        prefix = data[: -len(payload) - 1]
        if data.endswith(payload + b"}") and _PAYLOAD_FOLLOWS.search(prefix):
            others = [known for known in self._recent if known[0] != prefix]
            self._recent = ((prefix, reader), *others[: _PREFIXES - 1])

    # --- writing

    def write(self, value: Any, schema: Schema | None, /) -> bytes | None:
        if schema is None:
            if value is None:
                return None
            return b'{"schema":null,"payload":%b}' % jackson.dumps(value) if self._schemas else jackson.dumps(value)
        return self._writer(schema).write_all((value,))[0]

    def write_many(self, values: Sequence[Any], schema: Schema | None, /) -> Sequence[bytes | None]:
        if schema is None:
            return super().write_many(values, None)
        return cast("list[bytes | None]", self._writer(schema).write_all(values))

    def lines(self, values: Sequence[Any], schema: Schema) -> bytes:
        """The payloads of values under a schema, without envelopes, each followed by a line feed and with no line feed
        inside. Raises DataError with Connect's text.
        """
        return self._writer(schema).lines(values)

    def _writer(self, schema: Schema) -> _Writer:
        writer = self._writers.get(schema)
        if writer is None:
            writer = _Writer(schema, self._texts, envelope=self._schemas)
            self._writers.put(schema, writer)
        return writer


class _Reader:
    """Reader of payloads of one schema (None = schemaless); compiled after a few values."""

    def __init__(self, schema: Schema | None, *, replace_null: bool) -> None:
        self.schema = schema
        self._replace_null = replace_null
        self._decoder: Decoder | None = None
        self._until_compiled = _COMPILED_AFTER

    def read_all(self, payloads: Sequence[bytes]) -> Sequence[Any]:
        """The value of each payload. Raises Unusual when one of them is no payload, or needs the reference path."""
        if self.schema is None:
            values = jackson.loads_plain(payloads)
            if values is None:
                raise Unusual
            return values
        if self._decoder is None:
            self._until_compiled -= len(payloads)
            if self._until_compiled > 0:
                raise Unusual
            self._until_compiled = sys.maxsize  # compiling is tried once, also for a schema without a fast path
            self._decoder = Decoder(self.schema, replace_null=self._replace_null)
        return self._decoder.read_all(payloads)

    def read_whole(self, data: bytes) -> Any:
        """The value of a message that is only a payload."""
        try:
            return self.read_all((data,))[0]
        except Unusual:
            return value_of(self.schema, jackson.loads_node(data), replace_null=self._replace_null)


class _Writer:
    """Writer of values of one schema; compiled after a few values."""

    def __init__(self, schema: Schema, texts: Texts, *, envelope: bool) -> None:
        self._schema, self._texts = schema, texts
        described = schemas.text_of(schema, texts.default) if envelope else ""
        self._head = f'{{"schema":{described},"payload":'.encode() if envelope else b""
        self._tail = b"}" if envelope else b""
        self._encoder: Encoder | None = None
        self._until_compiled = _COMPILED_AFTER

    def write_all(self, values: Sequence[Any]) -> list[bytes]:
        """The bytes of each. Raises DataError with Connect's text."""
        head, tail = self._head, self._tail
        payloads = self.lines(values).split(b"\n")
        payloads.pop()
        return [b"%b%b%b" % (head, payload, tail) for payload in payloads] if head else payloads

    def lines(self, values: Sequence[Any]) -> bytes:
        """The payloads alone, each followed by a line feed and with no line feed inside. Raises DataError with
        Connect's text.
        """
        lines = self._quickly(values)
        return b"".join([b"%b\n" % self._carefully(value) for value in values]) if lines is None else lines

    def _quickly(self, values: Sequence[Any]) -> bytes | None:
        try:
            if self._encoder is None:
                self._until_compiled -= len(values)
                if self._until_compiled > 0:
                    return None
                self._until_compiled = sys.maxsize
                self._encoder = Encoder(self._schema, self._texts)
            return self._encoder.lines(values)
        except UnusualValue:
            return None

    def _carefully(self, value: Any) -> bytes:
        return self._texts.text(self._schema, value).encode()
