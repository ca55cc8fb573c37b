"""Conversion from a Protobuf message to a Connect schema.

Owns the rules; the other direction is `from_connect`. Source: Confluent's `ProtobufData.toConnectSchema`.

A message that contains itself has no Connect schema here (schemas are immutable and interned, so none can contain
itself); it is refused by name.

Invariant: the fields of a struct are the message's oneofs, then its other fields, each in the file's order.
"""

from __future__ import annotations

from typing import Any, cast

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor, OneofDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from herdmesh.connect.converters.protobuf import options as names
from herdmesh.connect.converters.protobuf.known_messages import LOGICAL_TYPES, WRAPPERS, meta_of
from herdmesh.connect.converters.protobuf.options import ProtobufOptions
from herdmesh.connect.converters.registered_options import ANY_UNION, PRECISION
from herdmesh.connect.errors import DataError
from herdmesh.connect.model import DECIMAL, SCALE, Schema, SchemaType

_F = FieldDescriptor
_INT32 = {_F.TYPE_INT32: "int32", _F.TYPE_SINT32: "sint32", _F.TYPE_SFIXED32: "sfixed32"}
_INT64 = {
    _F.TYPE_INT64: "int64", _F.TYPE_UINT32: "uint32", _F.TYPE_FIXED32: "fixed32", _F.TYPE_UINT64: "uint64",
    _F.TYPE_SINT64: "sint64", _F.TYPE_FIXED64: "fixed64", _F.TYPE_SFIXED64: "sfixed64",
}  # fmt: skip
_OTHERS: dict[int, SchemaType] = {
    _F.TYPE_FLOAT: "FLOAT32", _F.TYPE_DOUBLE: "FLOAT64", _F.TYPE_BOOL: "BOOLEAN", _F.TYPE_STRING: "STRING",
    _F.TYPE_BYTES: "BYTES",
}  # fmt: skip
_LOGICAL_BASES: dict[str, SchemaType] = {"Date": "INT32", "Time": "INT32", "Timestamp": "INT64"}


def connect_schema(message: Descriptor, options: ProtobufOptions, version: int | None = None) -> Schema:
    """The Connect schema; for a wrapper that of its value where the options say so. Raises DataError when Connect has
    no such schema.
    """
    wrapped = WRAPPERS.get(message.full_name) if options.raw_wrappers else None
    made = Schema(wrapped) if wrapped is not None else _Reading(options).message(message)
    return made.replace(version=version) if version is not None else made


def real_oneofs(message: Descriptor) -> list[OneofDescriptor]:
    """The oneofs without those that protoc generates for fields labelled optional."""
    return [one for one in message.oneofs if not (len(one.fields) == 1 and is_proto3_optional(one.fields[0]))]


def real_oneof(field: FieldDescriptor) -> OneofDescriptor | None:
    """The field's oneof, without those that protoc generates."""
    return None if is_proto3_optional(field) else field.containing_oneof


def is_proto3_optional(field: FieldDescriptor) -> bool:
    """True for a field labelled optional in version 3, which protoc puts into a oneof."""
    oneof = field.containing_oneof
    return oneof is not None and len(oneof.fields) == 1 and oneof.name == f"_{field.name}"


def has_optional_keyword(field: FieldDescriptor) -> bool:
    """True for a field labelled optional, in version 3 or 2."""
    return is_proto3_optional(field) or (_is_proto2(field) and field.has_presence and field.containing_oneof is None
                                         and not field.is_required)  # fmt: skip


def is_map(field: FieldDescriptor) -> bool:
    """True when a repeated field has the entries of a map: a map, or messages with the name and fields of map
    entries."""
    if not field.is_repeated or field.message_type is None:
        return False
    fields = field.message_type.fields
    return (
        field.message_type.name.endswith("Entry")
        and [one.name for one in fields] == ["key", "value"]
        and not any(one.is_repeated for one in fields)
    )


def union_name(oneof: OneofDescriptor, options: ProtobufOptions) -> str:
    """The struct field for a oneof."""
    return f"{oneof.name}_{oneof.index}" if options.indexed_unions else oneof.name


class _Reading:
    """Conversion of one schema, with the messages that enclose the current field."""

    def __init__(self, options: ProtobufOptions) -> None:
        self._options = options
        self._within: list[str] = []

    def message(self, message: Descriptor) -> Schema:
        full = message.full_name
        if full in self._within:
            raise DataError(f"The Protobuf message {full} contains itself: such schemas have no Connect schema here")
        self._within.append(full)
        fields: list[tuple[str, Schema]] = []
        for oneof in real_oneofs(message):
            if self._options.flat_unions:
                fields += [(field.name, self.field(field, member=True)) for field in oneof.fields]
            else:
                fields.append((union_name(oneof, self._options), self._union(oneof)))
        fields += [(one.name, self.field(one)) for one in message.fields if real_oneof(one) is None]
        self._within.pop()
        return Schema("STRUCT", name=full if self._options.enhanced else message.name, fields=fields)

    def _union(self, oneof: OneofDescriptor) -> Schema:
        fields = [(field.name, self.field(field, member=True)) for field in oneof.fields]
        if self._options.general_sums:
            return Schema("STRUCT", True, oneof.name, parameters={ANY_UNION: oneof.name}, fields=fields)
        name = oneof.full_name if self._options.enhanced else oneof.name
        return Schema("STRUCT", True, f"{names.UNION}.{name}", fields=fields)

    def field(self, field: FieldDescriptor, *, member: bool = False) -> Schema:
        """The schema of a field; `member`: the field is in a oneof."""
        options = self._options
        base = self._base(field)
        if field.is_repeated and base.type != "MAP":
            base = Schema("ARRAY", True, value_schema=base.replace(optional=True))
        optional, parameters = base.optional, dict(base.parameters or {})
        if member:
            optional = True
            if options.wrappers and field.message_type is not None and field.message_type.full_name in WRAPPERS:
                parameters[names.WRAPPER] = "true"
        elif options.optional_label:
            optional = optional or has_optional_keyword(field)
        elif not options.wrappers:
            optional = True
        parameters[names.TAG] = str(field.number)
        return base.replace(optional=optional, parameters=parameters)

    def _base(self, field: FieldDescriptor) -> Schema:
        kind = field.type
        if kind in _INT32:
            narrow = meta_of(field.GetOptions().SerializeToString()).get(names.CONNECT_TYPE)
            if narrow in ("int8", "int16"):
                return Schema(narrow.upper())
            return Schema("INT32", parameters=_typed(_INT32[kind], "int32"))
        if kind in _INT64:
            return Schema("INT64", parameters=_typed(_INT64[kind], "int64"))
        if kind in _OTHERS:
            return Schema(_OTHERS[kind])
        if field.enum_type is not None:
            return self._enum(field)
        if field.message_type is None or kind != _F.TYPE_MESSAGE:
            raise DataError(f"Unknown Connect schema type for the field {field.full_name}: groups are not read")
        return self._of_message(field, field.message_type).replace(optional=True)

    def _of_message(self, field: FieldDescriptor, message: Descriptor) -> Schema:
        logical = LOGICAL_TYPES.get(message.full_name)
        if logical == DECIMAL:
            return _decimal(meta_of(field.GetOptions().SerializeToString()))
        if logical is not None:
            return Schema(_LOGICAL_BASES[logical.rpartition(".")[2]], name=logical, version=1)
        if self._options.wrappers and message.full_name in WRAPPERS:
            return Schema(WRAPPERS[message.full_name])
        if not is_map(field):
            return self.message(message)
        key, value = message.fields
        name = (message.full_name if self._options.enhanced else message.name).removesuffix("Entry")
        return Schema("MAP", name=_snake(name), key_schema=self.field(key), value_schema=self.field(value))

    def _enum(self, field: FieldDescriptor) -> Schema:
        enum = cast(EnumDescriptor, field.enum_type)
        parameters = {self._options.enum: enum.name}
        parameters |= {f"{self._options.enum}.{one.name}": str(one.number) for one in enum.values}
        name = enum.full_name if self._options.enhanced else enum.name
        return Schema("INT32" if self._options.int_enums else "STRING", True, name, parameters=parameters)


def _typed(kind: str, plain: str) -> dict[str, str] | None:
    return None if kind == plain else {names.TYPE: kind}


def _decimal(meta: dict[str, str]) -> Schema:
    scale, precision = meta.get("scale", "0"), meta.get("precision")
    parameters = {SCALE: scale if scale.lstrip("-").isdecimal() else "0"}
    if precision is not None and precision.isdecimal():
        parameters[PRECISION] = precision
    return Schema("BYTES", name=DECIMAL, version=1, parameters=parameters)


def _is_proto2(field: FieldDescriptor) -> bool:
    text: bytes = cast(Any, field).file.serialized_pb  # files without a syntax are of version 2
    return FileDescriptorProto.FromString(text).syntax in ("", "proto2")


def _snake(name: str) -> str:
    """`ABc` as `a_bc`, as Guava's CaseFormat writes it."""
    return "".join(f"_{c.lower()}" if c.isupper() and at and name[at - 1] != "." else c.lower() if c.isupper() else c
                   for at, c in enumerate(name))  # fmt: skip
