"""Conversion from a Connect schema to a Protobuf schema.

Owns the rules; the other direction is `to_connect`. Source: Confluent's `ProtobufData.fromConnectSchema`,
`messageDefinitionFromConnectSchema`, `fieldDefinitionFromConnectSchema`, `dataTypeFromConnectSchema`.

Differences from Confluent's converter: defaults are not written (version 3 of Protobuf has none), the fields of a union
without tags get the next free ones, and two different messages of one name are refused, where Confluent's uses the
first for both.

Invariant: equal Connect schemas give equal files.
"""

from __future__ import annotations

from typing import cast

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto

from herdmesh.connect.converters.protobuf import options as names
from herdmesh.connect.converters.protobuf.known_messages import (
    LOGICAL_TYPES,
    META_FILE,
    WRAPPERS_FILE,
    known_files,
    known_types,
    with_meta,
)
from herdmesh.connect.converters.protobuf.options import ProtobufOptions, is_enum, is_union
from herdmesh.connect.converters.registered_options import ANY_UNION, PRECISION
from herdmesh.connect.errors import DataError
from herdmesh.connect.model import LOGICAL, SCALE, Schema

FILE_NAME = "herdmesh.proto"
_SCALARS = {
    "INT8": "int32", "INT16": "int32", "INT32": "int32", "INT64": "int64", "FLOAT32": "float", "FLOAT64": "double",
    "BOOLEAN": "bool", "STRING": "string", "BYTES": "bytes",
}  # fmt: skip
_WRAPPERS = {
    "int32": "Int32", "sint32": "Int32", "sfixed32": "Int32", "int64": "Int64", "sint64": "Int64", "sfixed64": "Int64",
    "uint32": "UInt32", "fixed32": "UInt32", "uint64": "UInt64", "fixed64": "UInt64", "float": "Float",
    "double": "Double", "bool": "Bool", "string": "String", "bytes": "Bytes",
}  # fmt: skip
_NUMBERS = {name.removeprefix("TYPE_").lower(): number for name, number in FieldDescriptorProto.Type.items()}
_ONE, _MANY = FieldDescriptorProto.LABEL_OPTIONAL, FieldDescriptorProto.LABEL_REPEATED
_CONNECT_TYPES = {"INT8": "int8", "INT16": "int16"}


def protobuf_file(schema: Schema, options: ProtobufOptions) -> tuple[FileDescriptorProto, str]:
    """The file, and the full name of the message in it. Raises DataError when Protobuf has no such schema."""
    if schema.type in _SCALARS and schema.name not in LOGICAL:
        file = FileDescriptorProto()
        file.CopyFrom(known_files()[WRAPPERS_FILE])
        return file, f"google.protobuf.{_WRAPPERS[_SCALARS[schema.type]]}Value"
    if schema.type != "STRUCT" or is_union(schema):
        raise DataError(
            f"Unsupported root schema of type {schema.name or schema.type}: a Protobuf value is a message. Put it into "
            "a struct (HoistField)."
        )
    return _Writing(options).file(schema)


class _Writing:
    """Construction of one file."""

    def __init__(self, options: ProtobufOptions) -> None:
        self._options = options
        self._unnamed = 0
        self._file = FileDescriptorProto(name=FILE_NAME, syntax="proto3")
        self._known: dict[str, Schema] = {}

    def file(self, schema: Schema) -> tuple[FileDescriptorProto, str]:
        """The file for a struct, and its message's full name."""
        parts = [self._options.scrubbed(part) for part in self._named(schema.name).split(".")]
        self._file.package = ".".join(parts[:-1])
        full = ".".join(parts)
        self._message(self._file.message_type.add(name=parts[-1]), schema, full)
        return self._file, full

    def _named(self, name: str | None) -> str:
        if name:
            return name
        self._unnamed += 1
        return f"{names.DEFAULT_NAME}{self._unnamed}"

    def _simple(self, name: str | None) -> str:
        return self._options.scrubbed(self._named(name).rpartition(".")[2])

    def _message(self, made: DescriptorProto, schema: Schema, full: str) -> None:
        self._known[full] = schema.replace(optional=False, default=None)
        used = {
            _tag(one)
            for field in schema.fields
            for one in (
                field.schema,
                *((member.schema for member in field.schema.fields) if is_union(field.schema) else ()),
            )
        }
        index = 1
        for field in schema.fields:
            number = _tag(field.schema)
            if number is None:
                number, index = index, index + 1
            if is_union(field.schema):
                self._union(made, field.schema, full, used)
            else:
                self._field(made, field.schema, self._options.scrubbed(field.name), number, full)
            used.add(number)

    def _union(self, made: DescriptorProto, schema: Schema, full: str, used: set[int | None]) -> None:
        parameters = schema.parameters or {}
        if self._options.general_sums and ANY_UNION in parameters:
            name = parameters[ANY_UNION]
        else:
            name = self._simple((schema.name or "").removeprefix(f"{names.UNION}."))
        place = len(made.oneof_decl)
        made.oneof_decl.add(name=name)
        for field in schema.fields:
            number = _tag(field.schema)
            if number is None:
                number = max((one for one in used if one is not None), default=0) + 1
                number = max(number, len(schema.fields) + len(made.field) + 1)
            used.add(number)
            one = self._field(made, field.schema, self._options.scrubbed(field.name), number, full, member=True)
            one.oneof_index = place

    def _field(
        self, made: DescriptorProto, schema: Schema, name: str, number: int, full: str, *, member: bool = False
    ) -> FieldDescriptorProto:
        item = cast(Schema, schema.value_schema) if schema.type == "ARRAY" else schema
        if item.type == "ARRAY" or (item is not schema and (item.type == "MAP" or is_union(item))):
            raise DataError(f"Array cannot be nested: the field {name} has lists within a list. Put them into structs.")
        if member and schema.type in ("ARRAY", "MAP"):
            raise DataError(f"The field {name} of a union is a list or map, which Protobuf's oneof cannot have")
        parameters: dict[str, str] = {}
        kind = self._type(made, item, name, full, parameters, member=member)
        many = schema.type in ("ARRAY", "MAP")
        one = made.field.add(name=name, number=number, label=_MANY if many else _ONE)
        if kind in _NUMBERS:
            one.type = _NUMBERS[kind]
        else:
            one.type = FieldDescriptorProto.TYPE_ENUM if self._is_enum(item) else FieldDescriptorProto.TYPE_MESSAGE
            one.type_name = kind
        if parameters:
            one.options.MergeFromString(with_meta(parameters))
            self._imports(META_FILE)
        if self._options.optional_label and schema.optional and not many and not member:
            one.proto3_optional = True
            one.oneof_index = len(made.oneof_decl)
            made.oneof_decl.add(name=f"_{name}")
        return one

    def _type(
        self, made: DescriptorProto, schema: Schema, field: str, full: str, parameters: dict[str, str], *, member: bool
    ) -> str:
        """The name of a scalar type, or the full name of a message or enum, with a leading dot."""
        logical = next((kind for kind, name in LOGICAL_TYPES.items() if name == schema.name), None)
        if logical is not None:
            own = schema.parameters or {}
            for key, there in ((PRECISION, "precision"), (SCALE, "scale")):
                if key in own and schema.type == "BYTES":
                    parameters[there] = own[key]
            return self._imported(logical)
        if self._is_enum(schema):
            return self._enum(made, schema, full)
        if schema.type == "STRUCT":
            name = self._simple(schema.name)
            return self._nested(made, schema, f"{name}Message" if name == field else name, full)
        if schema.type == "MAP":
            return self._map(made, schema, full)
        if schema.type in _CONNECT_TYPES:
            parameters[names.CONNECT_TYPE] = _CONNECT_TYPES[schema.type]
        scalar = (schema.parameters or {}).get(names.TYPE, _SCALARS[schema.type])
        if scalar not in _WRAPPERS:
            raise DataError(f"The parameter {names.TYPE} of the field {field} is not a Protobuf type: {scalar}")
        marked = (schema.parameters or {}).get(names.WRAPPER, "").lower() == "true"
        if self._options.wrappers and schema.optional and (marked or not member):
            return self._imported(f"google.protobuf.{_WRAPPERS[scalar]}Value")
        return scalar

    def _is_enum(self, schema: Schema) -> bool:
        return is_enum(schema) and schema.name not in LOGICAL

    def _nested(self, made: DescriptorProto, schema: Schema, name: str, full: str) -> str:
        within = f"{full}.{name}"
        before = self._known.get(within)
        if before is not None:
            if before is not schema.replace(optional=False, default=None):
                raise DataError(
                    f"Two schemas are called {name}: Protobuf needs a distinct name for each. Rename one "
                    "(SetSchemaMetadata)."
                )
            return f".{within}"
        self._message(made.nested_type.add(name=name), schema, within)
        return f".{within}"

    def _map(self, made: DescriptorProto, schema: Schema, full: str) -> str:
        name = f"{_camel(self._simple(schema.name))}Entry"
        within = f"{full}.{name}"
        before = self._known.get(within)
        if before is not None:
            if Schema.inner(before) != Schema.inner(schema):
                raise DataError(f"Two kinds of maps are called {name}: give them names")
            return f".{within}"
        self._known[within] = schema
        entry = made.nested_type.add(name=name)
        self._field(entry, cast(Schema, schema.key_schema), "key", 1, within)
        self._field(entry, cast(Schema, schema.value_schema), "value", 2, within)
        if any(one.label == _MANY for one in entry.field):
            raise DataError("A map of lists or maps cannot be written as Protobuf: put them into structs")
        return f".{within}"

    def _enum(self, made: DescriptorProto, schema: Schema, full: str) -> str:
        parameters, prefix = schema.parameters or {}, f"{self._options.enum}."
        name = self._simple(parameters.get(self._options.enum) or schema.name)
        if all(one.name != name for one in made.enum_type):
            enum = made.enum_type.add(name=name)
            for key, number in parameters.items():
                if key.startswith(prefix):
                    if not number.lstrip("-").isdecimal():
                        raise DataError(f"The symbol {key} of an enum has no number but {number!r}")
                    enum.value.add(name=key[len(prefix) :], number=int(number))
            if not enum.value:
                raise DataError(f"The enum {name} has no symbols")
        return f".{full}.{name}"

    def _imported(self, kind: str) -> str:
        self._imports(known_types()[kind])
        return f".{kind}"

    def _imports(self, path: str) -> None:
        if path not in self._file.dependency:
            self._file.dependency.append(path)


def _tag(schema: Schema) -> int | None:
    text = (schema.parameters or {}).get(names.TAG)
    if text is None:
        return None
    if not text.isdecimal():
        raise DataError(f"The parameter {names.TAG} is not a number: {text!r}")
    return int(text)


def _camel(name: str) -> str:
    """`a_b` as `AB`, as Guava's CaseFormat writes it; names without an underscore stay."""
    return "".join(part[:1].upper() + part[1:].lower() for part in name.split("_")) if "_" in name else name
