"""Reference pages of the gRPC contracts: services, messages and enums with the comments of protos/.

Owns the form of these pages, one for each package. The texts are the contracts' own comments, read by protoc.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
    ServiceDescriptorProto,
)

PROTOS = Path(__file__).resolve().parents[1] / "protos"
FOLDER = "docs/reference/grpc"
_OURS = ".herdmesh.api."
#: Field numbers of descriptors, which form the path to a comment.
(
    _FILE_MESSAGE,
    _FILE_ENUM,
    _FILE_SERVICE,
    _MESSAGE_FIELD,
    _MESSAGE_NESTED,
    _MESSAGE_ENUM,
    _SERVICE_METHOD,
    _ENUM_VALUE,
) = (*(4, 5, 6, 2, 3, 4, 2, 2),)
_SCALARS = {number: name.removeprefix("TYPE_").lower() for name, number in FieldDescriptorProto.Type.items()}
_INTRODUCTIONS = {
    "herder": (
        "Herder",
        "`ConnectorService` is the public interface: what `herd` calls, and what a program of yours calls. "
        "`WorkerSessionService` is how workers get their work.",
    ),
    "configstore": (
        "Config store",
        "Connector configs, target states, task sets, history, and the election of the leading herder.",
    ),
    "statusstore": ("Status store", "The state of connectors and tasks, topics in use, and the leases of workers."),
    "worker": ("Worker", "What runs say to their worker, and what a task is given."),
    "common": ("Common messages", "Messages and reasons that several services share."),
}


def pages() -> dict[str, str]:
    """Path below the repository -> text, of all pages of the contracts."""
    contracts = _read()
    return {f"{FOLDER}/{package}.md": _Page(package, contracts).text() for package in _INTRODUCTIONS}


def _read() -> list[FileDescriptorProto]:
    contracts = sorted(str(path.relative_to(PROTOS)) for path in PROTOS.rglob("*.proto"))
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "contracts"
        includes = [f"-I{PROTOS}", f"-I{files('grpc_tools') / '_proto'}"]
        arguments = ["--include_source_info", f"--descriptor_set_out={output}", *includes, *contracts]
        subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *arguments], check=True)
        return list(FileDescriptorSet.FromString(output.read_bytes()).file)


class _Page:
    """One package's page."""

    def __init__(self, package: str, contracts: list[FileDescriptorProto]) -> None:
        self._package = package
        self._files = [one for one in contracts if one.package.startswith(f"herdmesh.api.{package}.")]

    def text(self) -> str:
        title, introduction = _INTRODUCTIONS[self._package]
        lines = [f"# {title}", "", introduction, ""]
        names = sorted(one.name for one in self._files)
        lines += ["Generated from the comments of the contracts (`python -m website --pages`):", ""]
        lines += [*(f"- `protos/{name}`" for name in names), ""]
        for contract in self._files:
            for at, service in enumerate(contract.service):
                lines += self._service(contract, service, (_FILE_SERVICE, at))
        messages = [line for contract in self._files for line in self._messages(contract)]
        return "\n".join([*lines, *(["## Messages", "", *messages] if messages else [])]).rstrip() + "\n"

    def _service(
        self, contract: FileDescriptorProto, service: ServiceDescriptorProto, path: tuple[int, ...]
    ) -> Iterator[str]:
        comments = _comments(contract)
        yield from (f"## {service.name}", "", _sentence(service.name, comments.get(path, "")), "")
        yield from ("| Call | Request | Response | |", "|---|---|---|---|")
        for at, method in enumerate(service.method):
            request = ("stream of " if method.client_streaming else "") + self._type(method.input_type)
            response = ("stream of " if method.server_streaming else "") + self._type(method.output_type)
            about = _cell(_sentence(method.name, comments.get((*path, _SERVICE_METHOD, at), "")))
            yield f"| `{method.name}` | {request} | {response} | {about} |"
        yield ""

    def _messages(self, contract: FileDescriptorProto) -> Iterator[str]:
        comments = _comments(contract)
        for at, message in enumerate(contract.message_type):
            yield from self._message(message, message.name, (_FILE_MESSAGE, at), comments)
        for at, enum in enumerate(contract.enum_type):
            yield from _enum(enum, enum.name, (_FILE_ENUM, at), comments)

    def _message(
        self, message: DescriptorProto, name: str, path: tuple[int, ...], comments: dict[tuple[int, ...], str]
    ) -> Iterator[str]:
        yield from (f"### {name}", "", _sentence(message.name, comments.get(path, "")), "")
        if message.field:
            yield from ("| Field | Type | |", "|---|---|---|")
            for at, field in enumerate(message.field):
                about = _cell(_sentence(field.name, comments.get((*path, _MESSAGE_FIELD, at), "")))
                yield f"| `{field.name}` | {self._field_type(message, field)} | {about} |"
            yield ""
        for at, nested in enumerate(message.nested_type):
            if not nested.options.map_entry:
                yield from self._message(nested, f"{name}.{nested.name}", (*path, _MESSAGE_NESTED, at), comments)
        for at, enum in enumerate(message.enum_type):
            yield from _enum(enum, f"{name}.{enum.name}", (*path, _MESSAGE_ENUM, at), comments)

    def _field_type(self, message: DescriptorProto, field: FieldDescriptorProto) -> str:
        for nested in message.nested_type:
            if nested.options.map_entry and field.type_name.endswith(f".{message.name}.{nested.name}"):
                key, value = nested.field
                return f"map of {self._bare(key)} to {self._bare(value)}"
        name = self._bare(field)
        if field.label == FieldDescriptorProto.LABEL_REPEATED:
            return f"repeated {name}"
        if field.proto3_optional:
            return f"optional {name}"
        return (
            f"{name}, one of `{message.oneof_decl[field.oneof_index].name}`" if field.HasField("oneof_index") else name
        )

    def _bare(self, field: FieldDescriptorProto) -> str:
        return self._type(field.type_name) if field.type_name else f"`{_SCALARS[field.type]}`"

    def _type(self, name: str) -> str:
        """A link to the description of a message of ours; the plain name of another type."""
        if not name.startswith(_OURS):
            return f"`{name.removeprefix('.')}`"
        package, _, rest = name.removeprefix(_OURS).partition(".")
        short = rest.partition(".")[2]
        page = "" if package == self._package else f"{package}.md"
        return f"[{short}]({page}#{short.lower().replace('.', '')})"


def _enum(
    enum: EnumDescriptorProto, name: str, path: tuple[int, ...], comments: dict[tuple[int, ...], str]
) -> Iterator[str]:
    yield from (f"### {name}", "", _sentence(enum.name, comments.get(path, "")), "", "| Value | |", "|---|---|")
    for at, value in enumerate(enum.value):
        about = _cell(_sentence(value.name, comments.get((*path, _ENUM_VALUE, at), "")))
        yield f"| `{value.name}` = {value.number} | {about} |"
    yield ""


def _comments(contract: FileDescriptorProto) -> dict[tuple[int, ...], str]:
    return {tuple(one.path): one.leading_comments.strip() for one in contract.source_code_info.location}


def _sentence(name: str, comment: str) -> str:
    """The comment as a sentence of its own: its subject stands beside it, in code where the comment names it."""
    text = " ".join(comment.split())
    if text.startswith(name):
        return f"`{name}`{text[len(name) :]}"
    return text[:1].upper() + text[1:]


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
