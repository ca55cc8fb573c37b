"""Connector files: connectors read from JSON, YAML, properties files, folders and standard input.

Owns the forms of a file, and the checks that need no herder. Does not own the meaning of any key: a worker with the
plugin validates. The ending of a file's name decides its form (`.json`, `.yaml`, `.yml`, `.properties`); of any other
name, and of standard input, its content does. `.properties` are read as `herd run` reads them.

Invariant: values reach the herder as they are written. A number keeps its digits, and an unquoted `yes` or `1.10` of a
YAML file is text, because Connect's configs are texts.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from herdmesh.api.common.v1 import connector_pb2 as common
from herdmesh.cli.display.hidden_secrets import refuse_hidden
from herdmesh.cli.errors import EXIT_USAGE, CommandError
from herdmesh.connect.java import PropertiesError, parse

STANDARD_INPUT = "-"
ENDINGS = (".json", ".yaml", ".yml", ".properties")
_TRIMMED = "".join(map(chr, range(0x21)))
"""Characters that are removed from both ends of a new connector's name, as Java's `String.trim` does."""


class _Number(str):
    """The digits of a JSON number, as they are written."""


@dataclass(frozen=True, slots=True)
class ConnectorDocument:
    """One connector of a file, in the form of Connect's REST API. `initial_state` "" = not in the file."""

    name: str
    config: dict[str, Any]
    initial_state: str = ""


@dataclass(frozen=True, slots=True)
class GivenConnector:
    """A connector to be applied, and the file it comes from. `initial_state` "" = not in the file."""

    source: str
    name: str
    config: dict[str, Any]
    initial_state: str = ""

    @property
    def stored_name(self) -> str:
        """The name under which a herder creates it: without blanks around it."""
        return trimmed(self.name)


def trimmed(name: str) -> str:
    """A name as a create stores it."""
    return name.strip(_TRIMMED)


def read_all(
    sources: list[str], *, recursive: bool = False, with_state: bool = False
) -> tuple[list[GivenConnector], list[tuple[str, CommandError]]]:
    """The usable connectors of all files and folders, and the error of each other file.

    Args:
        sources: paths of files or folders; `-` is standard input.
        recursive: read the folders within folders too.
        with_state: an `initial_state` in a file is allowed.
    """
    given: list[GivenConnector] = []
    bad: list[tuple[str, CommandError]] = []
    seen: dict[str, str] = {}
    for source in _files_of(sources, recursive, bad):
        try:
            for one in read_documents(source):
                if one.initial_state and not with_state:
                    text = f'"initial_state" of {one.name} is for a connector that is new: use `herd create`'
                    raise unusable(source, text)
                to_properties(one.config)
                found = GivenConnector(source, one.name, one.config, one.initial_state)
                if found.stored_name in seen:
                    text = f"connector {found.stored_name} is in {shown_source(seen[found.stored_name])} too"
                    raise unusable(source, f"{text}: leave one of them out")
                seen[found.stored_name] = source
                given.append(found)
        except CommandError as error:
            bad.append((source, error))
    return given, bad


def _files_of(sources: list[str], recursive: bool, bad: list[tuple[str, CommandError]]) -> Iterator[str]:
    """Each file to read; `bad` gets the sources that have none."""
    for number, source in enumerate(sources):
        if source == STANDARD_INPUT:
            if source in sources[:number]:
                bad.append((source, unusable(source, "can be read once: give one -")))
                continue
        elif (folder := Path(source)).is_dir():
            pattern = "**/*" if recursive else "*"
            found = sorted(path for path in folder.glob(pattern) if _is_connector_file(path, folder))
            if not found:
                more = "" if recursive else "; -R reads the folders within it too"
                bad.append((source, unusable(source, f"no file in it ends with {', '.join(ENDINGS)}{more}")))
            yield from map(str, found)
            continue
        yield source


def _is_connector_file(path: Path, folder: Path) -> bool:
    hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
    return path.suffix.lower() in ENDINGS and not hidden and path.is_file()


def read_connectors(source: str) -> list[tuple[str, dict[str, Any]]]:
    """(name, config) of each connector in a file: one object or a list of them.

    Raises `CommandError` with the file and the error.
    """
    return [(one.name, one.config) for one in read_documents(source)]


def read_documents(source: str) -> list[ConnectorDocument]:
    """Each connector of a file. Raises the errors of `read_connectors`."""
    data = _read(source)
    form = Path(source).suffix.lower() if source != STANDARD_INPUT else ""
    if form == ".properties":
        found: list[Any] = [_properties(source, data)]
    elif form in (".yaml", ".yml"):
        found = _yaml(source, data)
    elif form == ".json" or data.lstrip(b" \t\r\n\xef\xbb\xbf").startswith((b"{", b"[")):
        found = [_json(source, data)]
    else:
        found = _yaml_or_properties(source, data)
    items: list[Any] = []
    for document in found:
        items += cast("list[Any]", document) if isinstance(document, list) else [document]
    if not items:
        raise unusable(source, "no connector in it")
    return [_connector(source, item) for item in items]


def read_json(source: str) -> Any:
    """The JSON in a file, or (`-`) on standard input. Raises CommandError with the file's name."""
    return _json(source, _read(source), keep_digits=False)


def _read(source: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if source == STANDARD_INPUT else Path(source).read_bytes()
    except OSError as error:
        raise unusable(source, f"cannot be read: {error.strerror}") from None


def _json(source: str, data: bytes, *, keep_digits: bool = True) -> Any:
    number = _Number if keep_digits else None
    try:
        return json.loads(data, parse_int=number, parse_float=number, parse_constant=_no_constant)
    except ValueError as error:  # also a text that is not UTF-8
        raise unusable(source, f"not JSON: {error}") from None


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON value")


def _properties(source: str, data: bytes) -> dict[str, str]:
    try:
        return {key: one.value for key, one in parse(data).items()}
    except PropertiesError as error:
        raise unusable(source, f"line {error.line}: {error}") from None


def _yaml(source: str, data: bytes) -> list[Any]:
    """The documents of a YAML file, those that are empty left out."""
    from herdmesh.cli.batch.yaml_text import YamlError, load_all

    try:
        return [one for one in load_all(data) if one is not None]
    except YamlError as error:
        raise unusable(source, f"not YAML: {error}") from None


def _yaml_or_properties(source: str, data: bytes) -> list[Any]:
    """Properties are one text to YAML, or no YAML at all."""
    try:
        found = _yaml(source, data)
    except CommandError:
        found = []
    if found and all(isinstance(one, dict | list) for one in found):
        return found
    properties = _properties(source, data)
    if "connector.class" not in properties and "name" not in properties:
        raise unusable(source, "expected JSON, YAML or properties of a connector")
    return [properties]


def _connector(source: str, item: Any) -> ConnectorDocument:
    if not isinstance(item, dict):
        raise unusable(source, 'expected {"name": ..., "config": {...}} or a flat config')
    fields = cast("dict[str, Any]", item)
    inner = fields.get("config")
    config = cast("dict[str, Any]", inner) if isinstance(inner, dict) else fields
    name = fields.get("name", config.get("name"))
    if not isinstance(name, str) or not trimmed(name):
        raise unusable(source, 'no "name": add one beside "config" or inside it')
    _check_text(f'"name" of {name!r}', name)
    if "connector.class" not in config:
        raise unusable(source, 'no "connector.class": name the class of the connector')
    refuse_hidden(config)
    state = fields.get("initial_state") if config is not fields else None
    return ConnectorDocument(name, config, "" if state is None else str(state))


def to_properties(config: dict[str, Any]) -> common.Properties:
    """A config for the wire. Numbers and booleans become text, as Connect's REST API has it; null stays null."""
    entries: dict[str, common.PropertyValue] = {}
    for key, value in config.items():
        _check_text(repr(key), key)
        if isinstance(value, str):
            _check_text(key, value)
        if value is None:
            entries[key] = common.PropertyValue()
        elif isinstance(value, str):
            entries[key] = common.PropertyValue(text=value)
        elif isinstance(value, bool | int | float):
            entries[key] = common.PropertyValue(text=json.dumps(value))
        else:
            raise CommandError("CONFIG_INVALID", f"{key}: values are text, numbers, true, false or null", exit_code=5)
    return common.Properties(entries=entries)


def _check_text(what: str, text: str) -> None:
    """Raises CommandError for half a character (an escape such as \\ud800 alone), which no topic can hold."""
    if not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text):
        message = f"{what} has half of a character (a lone surrogate, as \\ud800): write both halves or leave it out"
        raise CommandError("CONFIG_INVALID", message.encode(errors="backslashreplace").decode(), exit_code=5)


def unusable(source: str, what: str) -> CommandError:
    """The error of a file that cannot be used, with the reason."""
    return CommandError("USAGE", f"{shown_source(source)}: {what}", exit_code=EXIT_USAGE)


def shown_source(source: str) -> str:
    """A file as messages name it."""
    return "standard input" if source == STANDARD_INPUT else source
