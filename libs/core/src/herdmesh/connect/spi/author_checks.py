"""Checks of an author's plugin class: its attributes, its methods, and the values that its methods return.

Owns the error messages: each names the attribute or method, the value found, and the value expected. The worker adds
its own keys to task configs after these checks.

Invariant: a value that passes can be sent to a worker, stored and shown.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar, cast

from herdmesh.connect.config import ConfigDef, escaped, is_encodable
from herdmesh.connect.errors import ConfigError, ConnectError, error_text

T = TypeVar("T")


def checked_methods(cls: Any) -> None:
    """Check that a class can be instantiated and that its methods are of the expected kind.

    Raises ConfigError for a missing method, and for an overridden method that is a coroutine or a generator where
    Herdmesh makes a plain call: the body would never run, and its work would count as done.
    """
    missing = sorted(getattr(cls, "__abstractmethods__", ()))
    if missing:
        raise ConfigError(f"{cls.__name__} has no {', '.join(missing)}: define it, or name another class")
    bases: list[type] = [*reversed(cls.__mro__)]
    ours = {
        name: method
        for base in bases
        if base.__module__.startswith("herdmesh.")
        for name, method in vars(base).items()
        if inspect.isfunction(method) and not name.startswith("_")
    }
    for name, method in ours.items():
        written, returns = getattr(cls, name), str(method.__annotations__.get("return", ""))
        is_coroutine = inspect.iscoroutinefunction(written) or inspect.isasyncgenfunction(written)
        if is_coroutine and not (inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method)):
            raise ConfigError(f"{cls.__name__}.{name} is a coroutine, which nobody awaits: write def, without async")
        if inspect.isgeneratorfunction(written) and not any(one in returns for one in _ITERATED):
            raise ConfigError(f"{cls.__name__}.{name} is a generator, which nobody iterates: write it without yield")


_ITERATED = ("Iter", "Sequence", "list", "Generator")
"""Return types whose callers iterate the result."""


def checked_class(cls: Any) -> None:
    """Run `checked_methods`, then check the attributes of a connector, transformation, predicate or converter class.
    Raises ConfigError for the first invalid attribute.
    """
    checked_methods(cls)
    name = getattr(cls, "class_name", None)
    if not isinstance(name, str) or not name.strip() or not is_encodable(name):
        raise ConfigError(f"{cls.__name__}.class_name is {shown(name)}: give it a name, as org.example.{cls.__name__}")
    aliases = cls.aliases
    if isinstance(aliases, str) or not isinstance(aliases, Iterable):
        raise ConfigError(f'{cls.__name__}.aliases is {shown(aliases)}: write a tuple of strings, as ("{name}",)')
    for alias in cast("Iterable[Any]", aliases):
        if not isinstance(alias, str) or not alias.strip() or not is_encodable(alias):
            raise ConfigError(f"{cls.__name__}.aliases has {shown(alias)}: write a tuple of strings")
    version = getattr(cls, "version", None)
    if version is not None and (not isinstance(version, str) or not is_encodable(version)):
        raise ConfigError(f'{cls.__name__}.version is {shown(version)}: write a string, as "1.0"')


def checked_definition(cls: Any) -> ConfigDef:
    """Return the class's `config_def()`. Raises ConfigError when the result is not a ConfigDef, and any error of
    `config_def` itself.
    """
    made: Any = cls.config_def()
    if not isinstance(made, ConfigDef):
        raise ConfigError(f"{cls.__name__}.config_def returned {shown(made)}: return a ConfigDef")
    return made


def checked_task_class(made: Any) -> str:
    """Return the result of `task_class`. Raises ConfigError when it is not a text."""
    if isinstance(made, type):
        raise ConfigError(f'task_class returned a class: return its name, "{made.__module__}:{made.__qualname__}"')
    if not isinstance(made, str) or not made.strip() or not is_encodable(made):
        raise ConfigError(f"task_class returned {shown(made)}: return the text module:Class of the task")
    return made


def checked_list(method: str, made: Any, of: type[T]) -> list[T]:
    """Return the result of `validate` or `warnings` as a list. Raises ConfigError when an item is not of class `of`."""
    if isinstance(made, str | bytes | Mapping) or not isinstance(made, Iterable):
        raise ConfigError(f"{method} returned {shown(made)}: return a list of {of.__name__}, [] when nothing is wrong")
    found = list(cast("Iterable[Any]", made))
    for one in found:
        if not isinstance(one, of):
            raise ConfigError(f"{method} returned a list with {shown(one)}: return a list of {of.__name__}")
        texts = {name: getattr(one, name) for name in ("field", "message", "fix") if hasattr(one, name)}
        for name, text in texts.items():
            if not isinstance(text, str):
                raise ConfigError(f"{method} returned a {of.__name__} whose {name} is {shown(text)}: write a string")
    return found


def checked_agreement(made: Any) -> bool:
    """Return the result of `alter_offsets`. Raises ConfigError unless it is True or False; a method without a `return`
    statement gives None, which is refused.
    """
    if not isinstance(made, bool):
        raise ConfigError(f"alter_offsets returned {shown(made)}: return True, or False if it cannot judge them")
    return made


def checked_places(made: Any) -> list[tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]] | None:
    """Return the result of `offsets_at`. Raises ConfigError unless it is None or a list of pairs of source partition
    and offset.
    """
    if made is None:
        return None
    found: list[tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]] = []
    is_list = isinstance(made, Iterable) and not isinstance(made, str | bytes | Mapping)
    given: list[Any] = [*cast("Iterable[Any]", made)] if is_list else [made]
    for one in given:
        pair = tuple(cast("Iterable[Any]", one)) if is_list and isinstance(one, tuple | list) else ()
        if len(pair) != 2 or not all(part is None or isinstance(part, Mapping) for part in pair):
            raise ConfigError(
                f"offsets_at returned {shown(made)}: return a list of (source partition, source offset), or None"
            )
        found.append((pair[0], pair[1]))
    return found


def checked_offsets(method: str, made: Any) -> Mapping[tuple[str, int], int]:
    """Return the result of `pre_commit`. Raises ConfigError unless it has a whole number for each (topic,
    partition)."""
    _check_by_partition(method, made, int, "whole numbers, the next offset to read")
    return made


def checked_manifests(method: str, made: Any) -> Mapping[tuple[str, int], str]:
    """Return the result of `stage`. Raises ConfigError unless it has a text for each (topic, partition)."""
    _check_by_partition(method, made, str, "strings, the manifest of the staged records")
    return made


def _check_by_partition(method: str, made: Any, of: type, values: str) -> None:
    wanted = f"return a dict of (topic, partition) to {values}; {{}} for none"
    if not isinstance(made, Mapping):
        raise ConfigError(f"{method} returned {shown(made)}: {wanted}")
    for key, value in cast("Mapping[Any, Any]", made).items():
        pair = cast("tuple[Any, ...]", key) if isinstance(key, tuple) else ()
        if len(pair) != 2 or not (isinstance(pair[0], str) and type(pair[1]) is int):
            raise ConfigError(f"{method} returned a dict with the key {shown(key)}: {wanted}")
        if type(value) is not of:
            raise ConfigError(f"{method} returned {shown(value)} for {shown(key)}: {wanted}")


def checked_error(given: Any) -> Exception:
    """Return the error given to `ConnectorContext.raise_error`, or a ConfigError that describes a value that is no
    exception.
    """
    if isinstance(given, Exception):
        return given
    if isinstance(given, BaseException):
        found = ConnectError(f"{type(given).__name__}: {error_text(given)}")
        found.__cause__ = given
        return found
    return ConfigError(f"raise_error was given {shown(given)}: give it an exception")


def checked_answer(method: str, made: Any) -> bool | None:
    """Return the result of a method that returns True, False or None. Raises ConfigError for anything else."""
    if made is not None and not isinstance(made, bool):
        raise ConfigError(f"{method} returned {shown(made)}: return True, False or None")
    return made


def checked_task_configs(made: Any) -> list[dict[str, str | None]]:
    """Return the result of `task_configs` as a list of plain dicts. Raises ConfigError that names the task and the key
    for a value that cannot be stored as text.
    """
    if isinstance(made, str | bytes | Mapping) or not isinstance(made, Iterable):
        raise ConfigError(f"task_configs returned {shown(made)}: return a list with a dict for each task")
    return [_checked(number, one) for number, one in enumerate(cast("Iterable[Any]", made))]


def _checked(number: int, config: Any) -> dict[str, str | None]:
    if not isinstance(config, Mapping):
        raise ConfigError(f"the config of task {number} is {shown(config)}: return a dict of strings for each task")
    found: dict[str, str | None] = {}
    for key, value in cast("Mapping[Any, Any]", config).items():
        if not isinstance(key, str):
            raise ConfigError(f"the config of task {number} has the key {shown(key)}: keys are text")
        if not is_encodable(key):
            raise ConfigError(f"the config of task {number} has the key {shown(key)}, which has {_HALF}")
        if value is not None and not isinstance(value, str):
            raise ConfigError(
                f"the config of task {number} has {shown(value)} for {key}: values are text or None",
                field=key,
                fix=f"write str(...) for {key} in task_configs",
            )
        if value is not None and not is_encodable(value):
            raise ConfigError(
                f"the config of task {number} has a string for {key} with {_HALF}: {escaped(value[:100])}",
                field=key,
                fix="such a string cannot be stored: encode it, as base64 or with escapes",
            )
        found[key] = value
    return found


_HALF = "half of a surrogate pair"
_SHOWN_MAX = 100


def shown(value: Any) -> str:
    """Text of a value of any type for a message, followed by its class. Never raises, even when `repr` does."""
    try:
        text = repr(value)
    except Exception as error:  # noqa: BLE001 - an author's code may raise anything
        text = f"one whose repr raises {type(error).__name__}"
    cut = text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}..."
    return f"{escaped(cut)} ({type(value).__name__})"
