"""Base of secret store providers: retries, time limits, paths with options, JSON secrets, errors.

Owns the parts that the four stores share. Each store implements the login (`_open`), the reading of one secret
(`_read`) and the meaning of its library's errors (`_trouble`). Called in threads only, never on an event loop
(`worker.threads`).

A path may have options, as in Confluent's providers: `${vault:secret/db?version=3&ttl=60000:password}`; `%3A` in it is
a colon.

Invariant: no error contains a secret's value, and none is raised later than `tries` times timeout plus interval.
"""

from __future__ import annotations

import json
import threading
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from types import ModuleType
from typing import Any, ClassVar, TypeVar, cast
from urllib.parse import parse_qsl, unquote

import structlog

from herdmesh.connect.config_providers.base import ConfigData, ConfigProvider
from herdmesh.connect.config_providers.secret_stores.params import Params
from herdmesh.connect.errors import ConfigError
from herdmesh.connect.spi import waits

_T = TypeVar("_T")
_OPTIONS = ("ttl", "version", "projectid")
_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class SecretPath:
    """Path of a secret in a reference, with its options."""

    name: str
    version: str = ""
    """"" = the newest version."""
    ttl_ms: int | None = None
    project: str = ""


@dataclass(frozen=True, slots=True)
class Secret:
    """A store's content at a path: texts by key, or one text, which must be JSON."""

    values: Mapping[str, str] | str
    ttl_ms: int | None = None
    """The remaining time to live from the store."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """A library's error in terms that an operator knows."""

    why: str
    fix: str
    passes: bool = False
    """True when a retry may help."""


class SecretStore(ConfigProvider):
    """Base of a secret store. It creates its client at the first lookup, so that an unreachable store does not keep a
    worker from starting; it checks params and the library when it is configured.
    """

    title: ClassVar[str]
    extra: ClassVar[str]
    """The extra of the distribution herdmesh-core that includes the library."""
    libraries: ClassVar[tuple[str, ...]]
    known: ClassVar[frozenset[str]]
    passwords: ClassVar[frozenset[str]] = frozenset()

    def configure(self, params: Mapping[str, str]) -> None:
        """Read the params and import the library. Raises ConfigError naming the param, or the extra to install."""
        self._params = Params(params, self.known, self.passwords)
        self._patience = self._params.patience()
        self._ttl_ms = self._params.ttl_ms()
        self._closed = threading.Event()
        self._opening = threading.Lock()
        self._client: Any = None
        for library in self.libraries:
            self._library(library)
        self._configure(self._params)

    def get(self, path: str, keys: frozenset[str]) -> ConfigData:
        """The requested keys of the secret. Raises ConfigError that names the secret, the reason and the fix."""
        at = self._path(path, keys)
        secret = self._looked_up(at, keys)
        values = self._values(at, secret)
        ttl_ms = next((one for one in (at.ttl_ms, secret.ttl_ms, self._ttl_ms) if one is not None), None)
        return ConfigData({key: values[key] for key in keys if key in values}, ttl_ms)

    def _looked_up(self, at: SecretPath, keys: frozenset[str]) -> Secret:
        return self._tried(at, lambda: self._read(self._opened(), at, keys))

    def close(self) -> None:
        """Stop retries of lookups."""
        self._closed.set()

    @abstractmethod
    def _configure(self, params: Params) -> None:
        """Check the params. Raises ConfigError whose `field` is the param."""

    @abstractmethod
    def _open(self, timeout_s: float) -> Any:
        """Create a client that is logged in, each of whose calls ends within the time. Raises the errors of the
        library.
        """

    @abstractmethod
    def _read(self, client: Any, at: SecretPath, keys: frozenset[str]) -> Secret:
        """Make one attempt. Raises the errors of the library, or ConfigError, which is not retried."""

    @abstractmethod
    def _trouble(self, error: Exception, at: SecretPath) -> Trouble:
        """The meaning of an error. Its texts contain no value of a secret."""

    def _library(self, name: str) -> ModuleType:
        try:
            return import_module(name)
        except ImportError as error:
            message = f"{self.title} needs the package {name}, which cannot be imported ({error})"
            fix = f'pip install "herdmesh-core[{self.extra}]" on all worker hosts, and restart the workers'
            raise ConfigError(message, fix=fix) from None

    def _opened(self) -> Any:
        with self._opening:
            if self._client is None:
                self._client = self._open(self._patience.timeout_s)
            return self._client

    def _forget_client(self) -> None:
        with self._opening:
            self._client = None

    def _path(self, path: str, keys: frozenset[str]) -> SecretPath:
        name, _, options = path.partition("?")
        if not name:
            raise ConfigError("it names no secret", fix="write ${<provider>:<secret>:<key>}")
        wrong = next((key for key in keys if "?" in key and "=" in key), "")
        if wrong:
            fixed = f"{path}?{wrong.partition('?')[2]}:{wrong.partition('?')[0]}"
            raise ConfigError("options belong after the secret, not after the key", fix=f"write ${{...:{fixed}}}")
        found = SecretPath(unquote(name))
        for option, value in parse_qsl(options, keep_blank_values=True):
            match option.lower():
                case "version":
                    found = replace(found, version=value)
                case "projectid":
                    found = replace(found, project=value)
                case "ttl" if value.isdecimal():
                    found = replace(found, ttl_ms=int(value))
                case "ttl":
                    raise ConfigError(f"ttl={value} is not a number of milliseconds", fix="write ttl=60000")
                case _:
                    fix = f"write {', '.join(_OPTIONS)}, or leave it out"
                    raise ConfigError(f"unknown option {option}", fix=fix)
        return found

    def _tried(self, at: SecretPath, call: Callable[[], _T]) -> _T:
        """The result of the first successful attempt. Raises the error of the last attempt as ConfigError."""
        patience = self._patience
        with waits.on(self.title, f"secret {at.name}"):
            for attempt in range(1, patience.tries + 1):
                try:
                    return call()
                except ConfigError:
                    raise
                except Exception as error:  # noqa: BLE001 - a library may raise anything
                    found = self._trouble(error, at)
                    if not found.passes or attempt == patience.tries or self._closed.is_set():
                        tries = f" ({attempt} tries)" if attempt > 1 else ""
                        message = f"{self.title}, secret {at.name}: {found.why}{tries}"
                        raise ConfigError(message, fix=found.fix) from None
                    _log.warning("secret_store_tried_again", store=self.title, secret=at.name, error=found.why)
                self._closed.wait(patience.interval_s)
        raise AssertionError("the last try returns or raises")

    def _values(self, at: SecretPath, secret: Secret) -> Mapping[str, str]:
        if not isinstance(secret.values, str):
            return secret.values
        try:
            found: object = json.loads(secret.values)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            message = f"{self.title}, secret {at.name}: its value is not a JSON object"
            raise ConfigError(message, fix=f'store {{"<key>": "<value>"}}, {self._as_one_text(at)}')
        return texts_of(cast("Mapping[str, object]", found))

    def _as_one_text(self, at: SecretPath) -> str:
        return f"or set the param use.json=false and write the key {at.name}"


def texts_of(found: Mapping[str, object]) -> dict[str, str]:
    """Values as texts: other values as JSON, as in Confluent's providers, without nulls."""
    return {
        key: value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), ensure_ascii=False)
        for key, value in found.items()
        if value is not None
    }


def one_line(error: BaseException) -> str:
    """An error's text on one line, for a message."""
    return " ".join(str(error).split()) or type(error).__name__
