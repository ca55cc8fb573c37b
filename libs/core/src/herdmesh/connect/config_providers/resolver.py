"""Resolver of a worker's config references: `${provider:path:key}` (docs/reference/connect/configs.md, sections 8.1 to
8.3).

Owns the syntax, the provider instances, and the way back: resolved values in the result of an author's code are stored
as references. Java leaves an unresolvable reference as it is, and the connector then tries to log in with
`${file:...}`; here it is a ConfigError that names provider, path, key and the fix.

Invariant: every resolved value, and every password within a URL, is known to `redaction` before any caller gets it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from typing import cast

from herdmesh.connect.config import (
    LENGTH_MIN,
    TWINS,
    RawConfig,
    closest,
    keep_secret,
    loaded_entry,
    redacted,
    url_passwords,
)
from herdmesh.connect.config_providers.base import ENTRY_POINT_GROUP, ConfigData, ConfigProvider
from herdmesh.connect.config_providers.builtin import BUILTIN
from herdmesh.connect.config_providers.secret_stores import JAVA_NAMES, SHORT_NAMES, secret_store
from herdmesh.connect.errors import ConfigError

PROVIDERS = "config.providers"
TTL_MS = "ttl.ms"
_REFERENCE = re.compile(r"\$\{([^}:]*):(?:([^}:]*):)?([^}]*)\}")

Properties = dict[str, str | None]


@dataclass(frozen=True, slots=True)
class Reference:
    """One `${provider:path:key}`."""

    provider: str
    path: str
    key: str

    def __str__(self) -> str:
        return f"${{{self.provider}:{self.path + ':' if self.path else ''}{self.key}}}"


@dataclass(frozen=True, slots=True)
class Resolved:
    """A config without references, and facts about those that it had."""

    config: Properties
    raw: Mapping[str, str | None]
    secrets: frozenset[str] = frozenset()
    ttl_ms: int | None = None
    """Time for which the shortest-lived value is valid; None = no limit."""
    values: Mapping[Reference, str] = field(default_factory=dict[Reference, str])

    def put_back(self, made: RawConfig) -> Properties:
        """Put references in place of their values into a config that an author's code made from the resolved one.

        A value that equals the resolved value of the same key becomes the original text of that key. In other values
        each secret of 4 or more characters becomes its reference, longest first (short ones occur in every text).
        """
        longest_first = sorted(self.values.items(), key=lambda one: len(one[1]), reverse=True)
        found: Properties = {}
        for key, value in made.items():
            if value is not None and self.raw.get(key) != self.config.get(key) and value == self.config.get(key):
                found[key] = self.raw[key]
                continue
            text = None if value is None else str(value)
            for reference, secret in longest_first:
                if text is not None and len(secret) >= LENGTH_MIN:
                    text = text.replace(secret, str(reference))
            found[key] = text
        return found


class ConfigProviders:
    """The providers that a worker's properties name. As thread-safe as the providers are."""

    def __init__(self, providers: Mapping[str, ConfigProvider], ttls_ms: Mapping[str, int] | None = None) -> None:
        """`ttls_ms`: the validity period of a provider's values where the provider itself gives none, by provider."""
        self._providers = dict(providers)
        self._ttls_ms = dict(ttls_ms or {})

    @classmethod
    def of(cls, worker: RawConfig) -> ConfigProviders:
        """Create and configure the providers. Raises ConfigError whose `field` is the worker's property."""
        names = [name for name in str(worker.get(PROVIDERS) or "").split(",") if name]
        ttls_ms = {name: ttl_ms for name in names if (ttl_ms := _ttl_ms(name, worker)) is not None}
        return cls({name: _made(name, worker) for name in names}, ttls_ms)

    def close(self) -> None:
        """Close all providers."""
        for provider in self._providers.values():
            provider.close()

    def resolve(self, config: RawConfig) -> Resolved:
        """Replace every reference in every value. A replacement is not resolved again.

        Raises:
            ConfigError: a reference cannot be resolved; `field` is the key that has the reference. No text contains a
            value.
        """
        raw: Properties = {key: None if value is None else str(value) for key, value in config.items()}
        keep_secret(_in_urls(raw))  # also when a reference cannot be resolved
        found = self._found(raw)
        keep_secret(found.secrets)
        return found

    def unresolved(self, config: RawConfig) -> Resolved:
        """The config as it is written, for a config that could not be resolved. It is valid for the configured validity
        period of the providers that it names, because no provider gave one itself.
        """
        raw: Properties = {key: None if value is None else str(value) for key, value in config.items()}
        named = {reference.provider for value in raw.values() for reference in _references(value)}
        ttls = (ttl_ms for provider, ttl_ms in self._ttls_ms.items() if provider in named)
        return Resolved(raw, raw, _in_urls(raw), min(ttls, default=None))

    def _found(self, raw: Properties) -> Resolved:
        wanted: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
        for name, value in raw.items():
            for reference in _references(value):
                wanted[reference.provider, reference.path].setdefault(reference.key, name)
        if not wanted:
            return Resolved(raw, raw, _in_urls(raw))
        values: dict[Reference, str] = {}
        ttls: list[int] = []
        for (provider, path), keys in wanted.items():
            data = self._get(provider, path, keys)
            values |= {Reference(provider, path, key): data.data[key] for key in keys}
            ttl_ms = self._ttls_ms.get(provider) if data.ttl_ms is None else data.ttl_ms
            if ttl_ms is not None and ttl_ms >= 0:
                ttls.append(ttl_ms)
        resolved = {name: None if value is None else _replaced(value, values) for name, value in raw.items()}
        secrets = frozenset(values.values()) | {
            value for name, value in resolved.items() if value is not None and value != raw[name]
        }
        return Resolved(resolved, raw, secrets | _in_urls(resolved), min(ttls, default=None), values)

    def _get(self, provider: str, path: str, keys: Mapping[str, str]) -> ConfigData:
        """Read values from a provider. `keys` has the key of the config that first refers to each."""
        first = next(iter(keys))
        place, shown = keys[first], Reference(provider, path, first)
        found = self._providers.get(provider)
        if found is None:
            message = f"{place}: {shown} cannot be resolved: the workers have no config provider {provider}"
            fix = f"declare it in their {PROVIDERS}, with {PROVIDERS}.{provider}.class"
            raise ConfigError(message, field=place, fix=fix)
        try:
            data = _checked(found.get(path, frozenset(keys)), keys)
        except Exception as error:  # noqa: BLE001 - an author's provider may raise anything
            why = redacted(" ".join(str(error).split())) or type(error).__name__
            fix = error.fix if isinstance(error, ConfigError) else f"check the settings of provider {provider}"
            raise ConfigError(f"{place}: {shown} cannot be resolved: {why}", field=place, fix=fix) from None
        for key, at in keys.items():
            if key not in data.data:
                where = f" at {path}" if path else ""
                message = f"{at}: {Reference(provider, path, key)} cannot be resolved: provider {provider} has no key"
                fix = f"add {key}{where}, or correct the reference"
                raise ConfigError(f"{message} {key}{where}", field=at, fix=fix)
        return data


def _checked(answer: object, keys: Iterable[str]) -> ConfigData:
    """Check the result of an author's provider. It is read within the lookup, because later code does not expect it to
    raise. Raises TypeError for a value of another type, and any exception of the author's mapping.
    """
    if not isinstance(answer, ConfigData):
        raise TypeError(f"its get() returned a value of type {type(answer).__name__}, not ConfigData")
    values: dict[str, object] = {key: answer.data[key] for key in keys if key in answer.data}
    for key, value in values.items():
        if not isinstance(value, str):
            raise TypeError(f"its value of {key} is of type {type(value).__name__}, not str")
    ttl_ms = cast("object", answer.ttl_ms)
    if ttl_ms is not None and (isinstance(ttl_ms, bool) or not isinstance(ttl_ms, int)):
        raise TypeError(f"its ttl_ms is of type {type(ttl_ms).__name__}, not int or None")
    return ConfigData(cast("dict[str, str]", values), ttl_ms)


def has_reference(value: str | None) -> bool:
    """True for a value that contains a reference to a provider."""
    return value is not None and _REFERENCE.search(value) is not None


def _references(value: str | None) -> Iterable[Reference]:
    for match in _REFERENCE.finditer(value or ""):
        yield Reference(match[1], match[2] or "", match[3])


def _in_urls(config: Properties) -> frozenset[str]:
    """The passwords in URLs, whether written or resolved."""
    return frozenset[str]().union(*(url_passwords(value) for value in config.values() if value is not None))


def _replaced(value: str, values: Mapping[Reference, str]) -> str:
    return _REFERENCE.sub(lambda match: values[Reference(match[1], match[2] or "", match[3])], value)


def _ttl_ms(name: str, worker: RawConfig) -> int | None:
    """The validity period from a param that every provider has here, but not in Java: without it a file would be read
    only once.
    """
    full = f"{PROVIDERS}.{name}.param.{TTL_MS}"
    text = str(worker.get(full) or "").strip()
    if text and not text.isdecimal():
        raise ConfigError.for_value(full, text, "must be a number of milliseconds, 0 or more", fix="60000")
    return int(text) if text else None


def _made(name: str, worker: RawConfig) -> ConfigProvider:
    prefix = f"{PROVIDERS}.{name}."
    at = f"{prefix}class"
    written = str(worker.get(at) or "").strip()
    entries = {entry.name: entry for entry in metadata.entry_points(group=ENTRY_POINT_GROUP)}
    known = ", ".join(["File", "Directory", "EnvVar", *SHORT_NAMES, *sorted(entries)])
    if not written:
        raise ConfigError(f"{at} is missing", field=at, fix=f"write one of {known}")
    cls = BUILTIN.get(written) or secret_store(written)
    if cls is None and written in entries:
        loaded = loaded_entry(entries[written])
        if not (isinstance(loaded, type) and issubclass(loaded, ConfigProvider)):
            raise ConfigError(f"{at}: the entry point {written} is not a ConfigProvider", field=at)
        cls = loaded
    if cls is None:
        meant = closest(written, (*BUILTIN, *JAVA_NAMES, *entries))
        fix = f"did you mean {meant}? Known are {known}" if meant else f"use one of {known}"
        if twin := TWINS.get(written):
            fix = f"not supported here: {twin}"
        raise ConfigError(f"{at}: no config provider {written}", field=at, fix=fix)
    provider = cls()
    params = f"{prefix}param."
    given = {key.removeprefix(params): str(value) for key, value in worker.items() if key.startswith(params)}
    try:
        provider.configure(given)
    except ConfigError as error:
        full = f"{params}{error.field}" if error.field else at
        raise ConfigError(f"{full}: {error}", field=full, fix=error.fix) from None
    return provider
