"""Well-known Protobuf messages of both directions, and the files that define them.

Owns their descriptors. Google's come from the packages that include them. No package includes Confluent's two files
(`confluent/meta.proto`, `confluent/type/decimal.proto`), so they are defined here, as far as Connect uses them.

Invariant: names and numbers are those of the original files.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, timestamp_pb2, wrappers_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from google.type import date_pb2, timeofday_pb2  # pyright: ignore[reportMissingTypeStubs]

from herdmesh.connect.model import DATE, DECIMAL, TIME, TIMESTAMP

DECIMAL_TYPE = "confluent.type.Decimal"
LOGICAL_TYPES = {
    DECIMAL_TYPE: DECIMAL,
    "google.type.Date": DATE,
    "google.type.TimeOfDay": TIME,
    "google.protobuf.Timestamp": TIMESTAMP,
}
"""Connect's logical type by full name."""
WRAPPERS = {
    f"google.protobuf.{name}Value": kind
    for name, kind in (
        ("Double", "FLOAT64"), ("Float", "FLOAT32"), ("Int64", "INT64"), ("UInt64", "INT64"), ("Int32", "INT32"),
        ("UInt32", "INT64"), ("Bool", "BOOLEAN"), ("String", "STRING"), ("Bytes", "BYTES"),
    )
}  # fmt: skip
"""Connect's type of the wrapped value by full name."""
META_FILE, META_FIELD, META_NUMBER = "confluent/meta.proto", "confluent.field_meta", 1088
DESCRIPTOR_FILE = "google/protobuf/descriptor.proto"
WRAPPERS_FILE = "google/protobuf/wrappers.proto"


@cache
def known_files() -> dict[str, FileDescriptorProto]:
    """Descriptors of the known files by path."""
    found = [_meta(), _decimal()]
    for module in (descriptor_pb2, timestamp_pb2, wrappers_pb2, date_pb2, timeofday_pb2):
        made = FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(made)
        found.append(made)
    return {one.name: one for one in found}


@cache
def known_types() -> dict[str, str]:
    """The path of the file of each message type, by full name."""
    return {f"{file.package}.{one.name}": path for path, file in known_files().items() for one in file.message_type}


def _decimal() -> FileDescriptorProto:
    made = FileDescriptorProto(name="confluent/type/decimal.proto", package="confluent.type", syntax="proto3")
    message = made.message_type.add(name="Decimal")
    for number, (name, kind) in enumerate(
        (
            ("value", FieldDescriptorProto.TYPE_BYTES),
            ("precision", FieldDescriptorProto.TYPE_UINT32),
            ("scale", FieldDescriptorProto.TYPE_INT32),
        ),
        1,
    ):
        message.field.add(name=name, number=number, type=kind, label=FieldDescriptorProto.LABEL_OPTIONAL)
    return made


def _meta() -> FileDescriptorProto:
    made = FileDescriptorProto(
        name=META_FILE, package="confluent", syntax="proto3", dependency=["google/protobuf/descriptor.proto"]
    )
    meta = made.message_type.add(name="Meta")
    text, message = FieldDescriptorProto.TYPE_STRING, FieldDescriptorProto.TYPE_MESSAGE
    one, many = FieldDescriptorProto.LABEL_OPTIONAL, FieldDescriptorProto.LABEL_REPEATED
    meta.field.add(name="doc", number=1, type=text, label=one)
    meta.field.add(name="params", number=2, type=message, label=many, type_name=".confluent.Meta.ParamsEntry")
    meta.field.add(name="tags", number=3, type=text, label=many)
    entry = meta.nested_type.add(name="ParamsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=text, label=one)
    entry.field.add(name="value", number=2, type=text, label=one)
    for of in ("File", "Message", "Field", "Enum", "EnumValue"):
        name = {"EnumValue": "enum_value"}.get(of, of.lower())
        made.extension.add(
            name=f"{name}_meta", number=META_NUMBER, type=message, label=one, type_name=".confluent.Meta",
            extendee=f".google.protobuf.{of}Options",
        )  # fmt: skip
    return made


@cache
def _meta_access() -> tuple[Any, Any]:
    """The class of field options that includes Confluent's extension, and the extension."""
    pool = DescriptorPool()
    for path in ("google/protobuf/descriptor.proto", META_FILE):
        pool.AddSerializedFile(known_files()[path].SerializeToString())
    options = GetMessageClass(pool.FindMessageTypeByName("google.protobuf.FieldOptions"))
    return options, pool.FindExtensionByName(META_FIELD)


def meta_of(options: bytes) -> dict[str, str]:
    """Connect's parameters in serialized field options; empty when there are none."""
    if not options:
        return {}
    kind, extension = _meta_access()
    return dict(kind.FromString(options).Extensions[extension].params)


def with_meta(parameters: Mapping[str, str]) -> bytes:
    """Serialized field options with these parameters."""
    kind, extension = _meta_access()
    made = kind()
    made.Extensions[extension].params.update(parameters)
    return made.SerializeToString()
