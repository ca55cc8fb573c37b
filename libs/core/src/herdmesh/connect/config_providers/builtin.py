"""Kafka's three config providers: File, Directory, EnvVar, with their params and texts
(docs/reference/connect/configs.md, section 8.4).

Owns the reading of their values. Unlike in Java, a path that is not allowed, or is no directory, is an error with the
fix and not a warning: a reference to it could not be resolved anyway.

Invariant: with `allowed.paths`, no file outside them is opened, even by a path with `..`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from herdmesh.connect.config_providers.base import ConfigData, ConfigProvider
from herdmesh.connect.errors import ConfigError
from herdmesh.connect.java import PropertiesError, parse_text

_ALLOWED = "allowed.paths"
_PATTERN = "allowlist.pattern"


class _AllowedPaths:
    """Folders and files that a provider may read. None given = all."""

    def __init__(self, params: Mapping[str, str]) -> None:
        text = params.get(_ALLOWED) or ""
        self._paths = [Path(os.path.normpath(one)) for one in text.split(",")] if text else []
        for path in self._paths:
            if not path.is_absolute():
                raise ConfigError(f"Path {path} is not absolute", field=_ALLOWED, fix="write an absolute path")
            if not path.exists():
                raise ConfigError(f"Path {path} does not exist", field=_ALLOWED, fix="create it, or leave it out")

    def checked(self, path: str) -> Path:
        """The path, normalised. Raises ConfigError for a path that is not allowed."""
        found = Path(os.path.normpath(path))
        if self._paths and not any(found.is_relative_to(one) for one in self._paths):
            raise ConfigError(f"the path {path} is not within {_ALLOWED}", fix=f"add it to {_ALLOWED}")
        return found


class FileConfigProvider(ConfigProvider):
    """Provider of the keys of a properties file: `${file:/run/secrets/db.properties:password}`."""

    def configure(self, params: Mapping[str, str]) -> None:
        """`allowed.paths`: absolute paths, comma separated."""
        self._allowed = _AllowedPaths(params)

    def get(self, path: str, keys: frozenset[str]) -> ConfigData:
        """Read the file again at each call."""
        if not path:
            return ConfigData({})
        file = self._allowed.checked(path)
        try:
            found = parse_text(file.read_text(encoding="utf-8"))
        except OSError as error:
            text = f"Could not read properties from file {path}: {error.strerror}"
            raise ConfigError(text, fix="put it on every worker's host, readable for the worker") from None
        except UnicodeDecodeError:
            raise ConfigError(f"Could not read properties from file {path}: it is not UTF-8") from None
        except PropertiesError as error:
            raise ConfigError(f"Could not read properties from file {path}: line {error.line}: {error}") from None
        return ConfigData({key: found[key].value for key in keys if key in found})


class DirectoryConfigProvider(ConfigProvider):
    """Provider of the files of a directory, each a key, as Kubernetes mounts secrets:
    `${directory:/run/secrets:password}`.
    """

    def configure(self, params: Mapping[str, str]) -> None:
        """`allowed.paths`: absolute paths, comma separated."""
        self._allowed = _AllowedPaths(params)

    def get(self, path: str, keys: frozenset[str]) -> ConfigData:
        """Read the files again at each call, whole and untrimmed."""
        if not path:
            return ConfigData({})
        folder = self._allowed.checked(path)
        if not folder.is_dir():
            raise ConfigError(
                f"Could not list directory {path}: it is not a directory", fix="name the directory of the files"
            )
        found: dict[str, str] = {}
        for key in keys:
            file = folder / key
            if key in (".", "..") or "/" in key or not file.is_file():
                continue
            try:
                found[key] = file.read_text(encoding="utf-8")
            except OSError as error:
                raise ConfigError(f"Could not read file {file}: {error.strerror}") from None
            except UnicodeDecodeError:
                raise ConfigError(f"Could not read file {file}: it is not UTF-8") from None
        return ConfigData(found)


class EnvVarConfigProvider(ConfigProvider):
    """Provider of variables of the worker's environment: `${env:DB_PASSWORD}`."""

    def configure(self, params: Mapping[str, str]) -> None:
        """`allowlist.pattern`: a regular expression that must match the whole name of a variable."""
        text = params.get(_PATTERN) or ".*"
        try:
            self._pattern = re.compile(text)
        except re.error as error:
            raise ConfigError(
                f"Invalid regex: {error}", field=_PATTERN, fix="write a regular expression of Python"
            ) from None

    def get(self, path: str, keys: frozenset[str]) -> ConfigData:
        """Read the current environment."""
        if path:
            text = f"Path is not supported for EnvVarConfigProvider, invalid value '{path}'"
            raise ConfigError(text, fix="write ${<provider>:<variable>}")
        return ConfigData({key: os.environ[key] for key in keys if key in os.environ and self._pattern.fullmatch(key)})


BUILTIN: Mapping[str, type[ConfigProvider]] = {
    name: cls
    for cls in (FileConfigProvider, DirectoryConfigProvider, EnvVarConfigProvider)
    for name in (
        f"org.apache.kafka.common.config.provider.{cls.__name__}",
        cls.__name__,
        cls.__name__.removesuffix("ConfigProvider"),
    )
}
"""Classes by Java's class name and its aliases."""
