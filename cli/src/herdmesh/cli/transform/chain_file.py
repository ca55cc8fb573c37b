"""The configuration of a chain from a file: a connector's, in any of Connect's forms, or a worker's.

Owns the reading, and the resolution of references in it. `herdmesh.connect.chain.chain_config` has the meaning of the
keys.

Invariant: every value is text or null, as in a connector's configuration in Connect; a number keeps its digits.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

from herdmesh.cli.errors import EXIT_CODES, EXIT_USAGE, CommandError
from herdmesh.connect.config_providers import PROVIDERS, ConfigProviders
from herdmesh.connect.errors import ConfigError
from herdmesh.connect.java import PropertiesError, parse

Config = dict[str, str | None]
#: Keys of connectors and workers that define a chain, and the topics that name those of its records.
_CHAIN = ("key.converter", "value.converter", "header.converter", "transforms", "predicates", "topic")


class _Number(str):
    """The original text of a JSON number."""


def read_config(path: str) -> Config:
    """A connector's configuration: JSON (a flat object, {"name", "config"}, or a list with one of them) or properties.

    Raises CommandError with the file, the error and the correct form.
    """
    data = _read(path)
    if not data.lstrip(b" \t\r\n\xef\xbb\xbf").startswith((b"{", b"[")):
        return _properties(path, data)
    try:
        document: Any = json.loads(data, parse_int=_Number, parse_float=_Number)
    except json.JSONDecodeError as error:
        message = f"not JSON: {error.msg}, line {error.lineno}, column {error.colno}"
        raise _unusable(path, message, "Mend it there.") from None
    except ValueError as error:
        raise _unusable(path, f"not JSON: {error}", "Write it as UTF-8.") from None
    if isinstance(document, list):
        items = cast("list[Any]", document)
        if len(items) != 1:
            raise _unusable(path, f"{len(items)} connectors in it", "One chain at a time: leave one in the list.")
        document = items[0]
    if not isinstance(document, dict):
        raise _unusable(path, "no connector in it", 'Write {"name": ..., "config": {...}} or a flat config.')
    members = cast("dict[str, Any]", document)
    inner = members.get("config")
    given = cast("dict[str, Any]", inner) if isinstance(inner, dict) else members
    return {key: _text(path, key, value) for key, value in given.items()}


def read_worker(path: str) -> Config:
    """A worker's properties. Raises CommandError."""
    return _properties(path, _read(path))


def _text(path: str, key: str, value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return None if value is None else str(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    raise _unusable(path, f"{key} is a list or an object", 'Values are text, numbers, true, false or null: "a,b".')


def _properties(path: str, data: bytes) -> Config:
    try:
        return {key: one.value for key, one in parse(data).items()}
    except PropertiesError as error:
        raise _unusable(path, f"line {error.line}: {error}", "Mend it there.") from None


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise _unusable(path, f"cannot be read: {error.strerror}", "") from None


def _unusable(path: str, what: str, fix: str) -> CommandError:
    return CommandError("USAGE", f"{path}: {what}", fix, EXIT_USAGE)


def without_references(path: str, settings: Config, worker: Config) -> tuple[Config, Config]:
    """A connector's and a worker's keys of the chain, with references resolved by the worker's config providers. The
    other keys are unchanged: the target of their references may not be reachable here.

    Raises CommandError naming the key.
    """
    try:
        providers = ConfigProviders.of(worker)
        try:
            return _resolved(providers, settings), _resolved(providers, worker)
        finally:
            providers.close()
    except ConfigError as error:
        fix = error.fix or "Correct the key named above."
        if not worker.get(PROVIDERS):
            fix = f"Give --worker-config a file with {PROVIDERS}."
        raise CommandError("CONFIG_INVALID", f"{path}: {error}", fix, EXIT_CODES["CONFIG_INVALID"]) from None


def _resolved(providers: ConfigProviders, config: Config) -> Config:
    of_chain = {key: value for key, value in config.items() if key.startswith(_CHAIN)}
    return {**config, **providers.resolve(of_chain).config}
