"""Connector files of standalone mode, in the forms of Connect 4's `connect-standalone`: `.properties`, or JSON as a
flat map or as `{"name", "config", "initial_state"}`.

Owns the reading of one file into a connector. As in Connect, the content decides the form of a file, not its name.
Validation is the worker's.

Invariant: every value is text or null, as Connect would pass it to the connector; a number keeps its digits.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from herdmesh.connect.java import PropertiesError, Property, parse
from herdmesh.standalone.errors import BadFiles, Problem

NAME = "name"
#: Connect says RUNNING for the state that our API and its config topic call STARTED; both are accepted.
_INITIAL_STATES = {"RUNNING": "STARTED", "STARTED": "STARTED", "PAUSED": "PAUSED", "STOPPED": "STOPPED"}


class _Number(str):
    """The original text of a JSON number."""


@dataclass(frozen=True, slots=True)
class ConnectorFile:
    """One connector to run. `lines` has the line of each key that was read from a properties file."""

    path: str
    name: str
    config: Mapping[str, str | None]
    initial_state: str = "STARTED"
    lines: Mapping[str, int] = field(default_factory=dict[str, int])

    def problem(self, key: str, message: str) -> Problem:
        """A problem of one of the connector's keys."""
        return Problem(self.path, self.lines.get(key, 0), key, message)


def read_properties(path: str) -> dict[str, Property]:
    """The properties of a file. Raises BadFiles for a file that cannot be read, or that Java would refuse."""
    try:
        return parse(_read(path))
    except PropertiesError as error:
        raise BadFiles([Problem(path, error.line, "", str(error))]) from None


def read_connectors(paths: Iterable[str]) -> list[ConnectorFile]:
    """The connectors of all files. Raises BadFiles with the problems of all of them."""
    found: list[ConnectorFile] = []
    problems: list[Problem] = []
    for path in paths:
        try:
            connector = read_connector(path)
        except BadFiles as bad:
            problems += bad.problems
            continue
        other = next((one for one in found if one.name == connector.name), None)
        if other is not None:
            message = f"Connector {connector.name} already exists: {other.path} has it; give one of them another name"
            problems.append(connector.problem(NAME, message))
        found.append(connector)
    if problems:
        raise BadFiles(problems)
    return found


def read_connector(path: str) -> ConnectorFile:
    """The connector of one file. Raises BadFiles."""
    data = _read(path)
    if data.lstrip(b" \t\r\n\xef\xbb\xbf").startswith(b"{") or path.endswith(".json"):
        return _from_json(path, data)
    properties = read_properties(path)
    if NAME not in properties:
        raise _bad(path, _NAME_MISSING.format(path))
    config = {key: one.value for key, one in properties.items()}
    lines = {key: one.line for key, one in properties.items()}
    return ConnectorFile(path, config[NAME], config, lines=lines)


def not_latin(path: str) -> Problem | None:
    """A warning about text that an editor wrote as UTF-8: Java, and so this reader, reads each byte of it as a
    character.
    """
    for number, line in enumerate(_read(path).splitlines(), 1):
        try:
            if not line.isascii() and line.lstrip()[:1] not in (b"#", b"!") and line.decode("utf-8"):
                message = "characters beyond ASCII are read as ISO-8859-1, as Java does; write them as \\uXXXX"
                return Problem(path, number, "", message)
        except UnicodeDecodeError:
            continue  # not UTF-8: the author used ISO-8859-1
    return None


_NAME_MISSING = "Connector configuration at '{}' is missing the mandatory 'name' configuration"


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise _bad(path, f"cannot be read: {error.strerror}") from None


def _from_json(path: str, data: bytes) -> ConnectorFile:
    try:
        document: Any = json.loads(data, parse_int=_Number, parse_float=_Number, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise BadFiles([Problem(path, error.lineno, "", f"not JSON: {error.msg}, column {error.colno}")]) from None
    except ValueError as error:
        raise _bad(path, f"not JSON: {error}") from None
    if not isinstance(document, dict):
        raise _bad(path, 'expected {"name": ..., "config": {...}} or a flat map of properties')
    members = cast("dict[str, Any]", document)
    if isinstance(members.get("config"), dict):
        return _from_request(path, members)
    config = _texts(path, members)
    name = config.get(NAME)
    if name is None:
        raise _bad(path, _NAME_MISSING.format(path))
    return ConnectorFile(path, name, config)


def _from_request(path: str, members: dict[str, Any]) -> ConnectorFile:
    config = _texts(path, members["config"])
    name = members.get(NAME)
    if config.get(NAME) is None:
        if not isinstance(name, str):
            raise _bad(path, _NAME_MISSING.format(path))
        config[NAME] = name
    elif config[NAME] != name:
        message = f"Connector name configuration in 'config' doesn't match the one specified in 'name' at '{path}'"
        raise BadFiles([Problem(path, 0, NAME, message)])
    wanted = members.get("initial_state")
    state = _INITIAL_STATES.get("RUNNING" if wanted is None else str(wanted).upper())
    if state is None:
        message = f"{wanted} is not an initial state; use one of RUNNING, PAUSED, STOPPED"
        raise BadFiles([Problem(path, 0, "initial_state", message)])
    return ConnectorFile(path, str(config[NAME]), config, state)


def _texts(path: str, members: dict[str, Any]) -> dict[str, str | None]:
    """The values as texts, converted as Jackson does."""
    found: dict[str, str | None] = {}
    for key, value in members.items():
        if isinstance(value, bool):
            found[key] = "true" if value else "false"
        elif value is None or isinstance(value, str):
            found[key] = None if value is None else str(value)
        else:
            raise BadFiles([Problem(path, 0, key, "a value is text, a number, true, false or null")])
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON value")


def _bad(path: str, message: str) -> BadFiles:
    return BadFiles([Problem(path, 0, "", message)])
