"""Params of a secret store: typed parsing under all names that Java's providers use, and their errors.

Owns the params that all stores share: attempts, timeouts, and the validity period of a value. An unknown param is
logged, as in Java.

Invariant: a value of a password param is known to `redaction` once the params are created.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import structlog

from herdmesh.connect.config import keep_secret
from herdmesh.connect.errors import ConfigError
from herdmesh.connect.validation import unknown

TTL_MS = "ttl.ms"
_TTLS = ("secret.ttl.ms", "vault.secret.minimum.ttl.ms", "secret.default.ttl")
_TRIES, _RETRIES = "retry.count", "vault.max.retries"
_INTERVAL_S, _INTERVAL_MS = "retry.interval.seconds", "vault.retry.interval.ms"
_TIMEOUT_S = "timeout.seconds"
_POLLING, _POLLING_S = "polling.enabled", "polling.interval.seconds"
_SHARED = frozenset(
    (*_TTLS, TTL_MS, _TRIES, _RETRIES, _INTERVAL_S, _INTERVAL_MS, _TIMEOUT_S, _POLLING, _POLLING_S, "thread.count")
)
_TRIES_MAX = 20
_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Patience:
    """Attempts and time limits of a lookup."""

    tries: int
    interval_s: float
    timeout_s: float
    """Time limit of one attempt."""


class Params:
    """Values of `config.providers.<name>.param.*`, without the prefix."""

    def __init__(self, given: Mapping[str, str], known: Collection[str], passwords: Collection[str]) -> None:
        """`known` are a store's own params; `passwords` those whose values no text may show."""
        self._given = {name: value.strip() for name, value in given.items() if value.strip()}
        keep_secret(self._given[name] for name in passwords if name in self._given)
        for name in self._given:
            if name not in known and name not in _SHARED:
                told = unknown(name, "the config provider has no such param", {*known, *_SHARED})
                _log.warning("config_provider_param_unknown", param=name, error=str(told.message), fix=told.fix)

    def __contains__(self, name: str) -> bool:
        return name in self._given

    def text(self, *names: str, default: str = "") -> str:
        """The value of the first of these params that is set."""
        return next((self._given[name] for name in names if name in self._given), default)

    def needed(self, *names: str, why: str) -> str:
        """As `text`. Raises ConfigError when none is set."""
        found = self.text(*names)
        if not found:
            raise ConfigError(f"is missing: {why}", field=names[0], fix=f"set {' or '.join(names)}")
        return found

    def flag(self, *names: str, default: bool) -> bool:
        """A boolean param. Raises ConfigError for a value that is neither true nor false."""
        text = self.text(*names).lower()
        if text and text not in ("true", "false"):
            name = next(name for name in names if name in self._given)
            raise ConfigError.for_value(name, text, "must be true or false", fix=str(default).lower())
        return text == "true" if text else default

    def number(self, *names: str, default: int, least: int = 0) -> int:
        """A number param. Raises ConfigError for a value that is no whole number, or less than `least`."""
        text = self.text(*names)
        if not text:
            return default
        name = next(name for name in names if name in self._given)
        if not text.isdecimal() or int(text) < least:
            raise ConfigError.for_value(name, text, f"must be a whole number, {least} or more", fix=str(default))
        return int(text)

    def one_of(self, allowed: Mapping[str, str], *names: str, default: str) -> str:
        """The entry of `allowed` for the value, ignoring case. Raises ConfigError that names all allowed values."""
        text = self.text(*names, default=default)
        folded = {name.lower(): value for name, value in allowed.items()}
        if text.lower() not in folded:
            name = next((name for name in names if name in self._given), names[0])
            raise ConfigError.for_value(name, text, f"must be one of {', '.join(allowed)}", fix=default)
        return folded[text.lower()]

    def ttl_ms(self) -> int | None:
        """Validity period of a secret when the store gives none; None = no limit, or the value of `ttl.ms`."""
        if TTL_MS in self._given:
            return None
        if any(name in self._given for name in _TTLS):
            return self.number(*_TTLS, default=0) or None  # 0 means never in Lenses' provider
        if not self.flag(_POLLING, default=True):
            return None
        return self.number(_POLLING_S, default=300, least=1) * 1_000

    def patience(self) -> Patience:
        """Attempts and time limits. The number of attempts is bounded, whatever the config requests."""
        tries = self.number(_TRIES, default=self.number(_RETRIES, default=2) + 1)
        interval_s = self.number(_INTERVAL_MS, default=1_000) / 1_000
        if _INTERVAL_S in self._given:
            interval_s = self.number(_INTERVAL_S, default=1)
        timeout_s = self.number(_TIMEOUT_S, default=10, least=1)
        return Patience(min(max(tries, 1), _TRIES_MAX), float(interval_s), float(timeout_s))
