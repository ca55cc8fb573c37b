"""Protobuf schemas in the registry's form, `.proto` texts: compiling and writing.

Owns both directions, and the message indexes before each value: the position of a message in its file. protoc (package
grpcio-tools) compiles texts in a separate process, so that a text which crashes protoc breaks nothing else. Source of
the indexes: Confluent's `MessageIndexes`, "Wire format" in its documentation.

Invariant: `compiled(text_of(file))` has the messages of `file`; a text that is no schema is a DataError with protoc's
message.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from herdmesh.connect.converters.protobuf.known_messages import known_files, meta_of
from herdmesh.connect.errors import DataError
from herdmesh.scratch import ScratchFolder

_ROOT = "herdmesh_root.proto"
_PROTOC_S = 30.0
_INDEXES_MAX = 32
_TYPE_NAMES = {
    number: name.removeprefix("TYPE_").lower() for name, number in FieldDescriptorProto.Type.items()
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ProtobufFile:
    """Protobuf schema: its file, in a pool with all imported files."""

    pool: DescriptorPool
    file: FileDescriptorProto

    def message(self, indexes: Sequence[int]) -> Descriptor:
        """The message at these indexes. Raises DataError when there is none."""
        found: DescriptorProto | None = None
        names = [self.file.package] if self.file.package else []
        for index in indexes:
            among = _messages(self.file.message_type if found is None else found.nested_type)
            if not 0 <= index < len(among):
                raise DataError(f"No message at the place {list(indexes)} of the schema it names")
            found = among[index]
            names.append(found.name)
        return self.named(".".join(names))

    def named(self, name: str) -> Descriptor:
        """The message with that full name. Raises DataError when there is none."""
        try:
            return self.pool.FindMessageTypeByName(name)
        except KeyError as error:
            raise DataError(f"The schema has no message {name}") from error

    def indexes(self, name: str) -> list[int]:
        """The indexes of the message with that full name. Raises DataError when the file does not have it."""
        path = name.removeprefix(f"{self.file.package}.").split(".")
        among, found = self.file.message_type, list[int]()
        for part in path:
            messages = _messages(among)
            places = [at for at, one in enumerate(messages) if one.name == part]
            if not places:
                raise DataError(f"The schema has no message {name}")
            found.append(places[0])
            among = messages[places[0]].nested_type
        return found


def _messages(among: Sequence[DescriptorProto]) -> list[DescriptorProto]:
    return [one for one in among if not one.options.map_entry]  # protoc's map entries are not in the text


def encode_indexes(indexes: Sequence[int]) -> bytes:
    """The indexes in the form that comes before a value; the first message is one zero byte."""
    if list(indexes) == [0]:
        return b"\0"
    return b"".join(_zigzag(one) for one in (len(indexes), *indexes))


def decode_indexes(data: bytes, at: int) -> tuple[list[int], int]:
    """The indexes at that position, and the start of the payload. Raises DataError when the bytes are no indexes."""
    count, at = _unzigzag(data, at)
    if not 0 <= count <= _INDEXES_MAX:
        raise DataError(f"Not Protobuf of a registry's serializer: {count} message indexes")
    found: list[int] = []
    for _ in range(count):
        index, at = _unzigzag(data, at)
        found.append(index)
    return found or [0], at


def _zigzag(value: int) -> bytes:
    value <<= 1
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)


def _unzigzag(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 35, 7):
        if at >= len(data):
            raise DataError("Not Protobuf of a registry's serializer: it ends within the message indexes")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
    raise DataError("Not Protobuf of a registry's serializer: a message index without an end")


# --- texts


def compiled(text: str, used: Mapping[str, str] | None = None) -> ProtobufFile:
    """The schema of a text; `used` are the imported texts, by path. Raises DataError with protoc's message."""
    with ScratchFolder("herdmesh-proto-") as scratch:
        base = scratch.path
        for name, one in {**_known_texts(), **(used or {}), _ROOT: text}.items():
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts or not path.parts:
                raise DataError(f"Not a Protobuf schema: it imports {name!r}")
            (base / path).parent.mkdir(parents=True, exist_ok=True)
            (base / path).write_text(one, encoding="utf-8", errors="replace")
        out = base / "herdmesh.out"
        command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{base}", f"--descriptor_set_out={out}",
                   "--include_imports", _ROOT]  # fmt: skip
        try:
            done = subprocess.run(command, cwd=base, capture_output=True, timeout=_PROTOC_S, check=False)
        except subprocess.TimeoutExpired as error:
            raise DataError(f"Not a Protobuf schema: protoc took over {_PROTOC_S:.0f} s for it") from error
        if done.returncode != 0:
            words = done.stderr.decode(errors="replace").strip()
            raise DataError(f"Not a Protobuf schema: {words or f'protoc ended with {done.returncode}'}")
        files = FileDescriptorSet.FromString(out.read_bytes()).file
    pool = DescriptorPool()
    for file in files:
        pool.AddSerializedFile(file.SerializeToString())
    return ProtobufFile(pool, files[-1])


def in_pool(file: FileDescriptorProto) -> ProtobufFile:
    """The schema of a file that imports only known files. Raises DataError when the file is invalid."""
    pool = DescriptorPool()
    try:
        for known in _needed(file):
            pool.AddSerializedFile(known.SerializeToString())
        if not any(known.name == file.name for known in _needed(file)):
            pool.AddSerializedFile(file.SerializeToString())
        if file.message_type:
            pool.FindFileByName(file.name)
    except (TypeError, KeyError, DecodeError) as error:
        raise DataError(f"No Protobuf schema can be made of it: {error}") from error
    return ProtobufFile(pool, file)


def _needed(file: FileDescriptorProto) -> list[FileDescriptorProto]:
    """The known files that it imports, each before the files that import it."""
    known = known_files()
    found: dict[str, FileDescriptorProto] = {}

    def gather(paths: Sequence[str]) -> None:
        for path in paths:
            if path in known and path not in found:
                gather(known[path].dependency)
                found[path] = known[path]

    gather([*file.dependency, file.name])
    return list(found.values())


def _known_texts() -> dict[str, str]:
    """Texts of the known files that protoc does not include."""
    return {name: text_of(file) for name, file in known_files().items() if not name.startswith("google/protobuf/")}


def text_of(file: FileDescriptorProto) -> str:
    """The `.proto` text, version 3, of a file from `protobuf.from_connect` or of a known file."""
    lines = ['syntax = "proto3";']
    if file.package:
        lines.append(f"package {file.package};")
    lines += ["", *(f'import "{path}";' for path in file.dependency)]
    for message in file.message_type:
        lines += ["", *_message(message, "")]
    for extension in file.extension:
        lines += ["", f"extend {extension.extendee} {{", f"  {_field(extension)}", "}"]
    return "\n".join(lines) + "\n"


def _message(message: DescriptorProto, indent: str) -> Iterator[str]:
    yield f"{indent}message {message.name} {{"
    within = indent + "  "
    maps = {one.name: one for one in message.nested_type if one.options.map_entry}
    for field in message.field:
        if not field.HasField("oneof_index") or field.proto3_optional:
            yield within + _field(field, maps.get(field.type_name.rpartition(".")[2]))
    for at, oneof in enumerate(message.oneof_decl):
        members = [one for one in message.field if one.HasField("oneof_index") and one.oneof_index == at]
        if any(one.proto3_optional for one in members):
            continue  # generated by protoc for a field labelled optional
        yield f"{within}oneof {oneof.name} {{"
        yield from (f"{within}  {_field(one)}" for one in members)
        yield within + "}"
    for nested in message.nested_type:
        if not nested.options.map_entry:
            yield ""
            yield from _message(nested, within)
    for enum in message.enum_type:
        yield f"{within}enum {enum.name} {{"
        if len({one.number for one in enum.value}) < len(enum.value):
            yield f"{within}  option allow_alias = true;"
        yield from (f"{within}  {one.name} = {one.number};" for one in enum.value)
        yield within + "}"
    yield indent + "}"


def _field(field: FieldDescriptorProto, entry: DescriptorProto | None = None) -> str:
    label = ""
    kind = _type_name(field)
    if entry is not None:
        kind = f"map<{_type_name(entry.field[0])}, {_type_name(entry.field[1])}>"
    elif field.label == FieldDescriptorProto.LABEL_REPEATED:
        label = "repeated "
    elif field.proto3_optional:
        label = "optional "
    params = meta_of(field.options.SerializeToString())
    options = ""
    if params:
        pairs = ", ".join(f"{{ key: {_quoted(key)}, value: {_quoted(value)} }}" for key, value in params.items())
        options = f" [(confluent.field_meta) = {{ params: [{pairs}] }}]"
    return f"{label}{kind} {field.name} = {field.number}{options};"


def _type_name(field: FieldDescriptorProto) -> str:
    return field.type_name or _TYPE_NAMES[field.type]


def _quoted(text: Any) -> str:
    escaped = "".join(c if c.isprintable() and c not in '"\\' else f"\\u{ord(c):04x}" for c in text)
    return f'"{escaped}"'
