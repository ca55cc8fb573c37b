"""What an author's `task_configs` may return: a list of maps from text to text or None.

Owns the refusal that names task and key. What is added to task configs is the worker's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from herdmesh.connect.errors import ConfigError
from herdmesh.connect.escaping import escaped, is_encodable


def checked_task_configs(made: Any) -> list[dict[str, str | None]]:
    """The same as plain dicts. Raises ConfigError naming task and key of what is no text that can be stored."""
    if isinstance(made, str | bytes | Mapping) or not isinstance(made, Iterable):
        raise ConfigError(f"task_configs returned {_shown(made)}: return a list with a dict for each task")
    return [_checked(number, one) for number, one in enumerate(cast("Iterable[Any]", made))]


def _checked(number: int, config: Any) -> dict[str, str | None]:
    if not isinstance(config, Mapping):
        raise ConfigError(f"the config of task {number} is {_shown(config)}: return a dict of texts for each task")
    found: dict[str, str | None] = {}
    for key, value in cast("Mapping[Any, Any]", config).items():
        if not isinstance(key, str):
            raise ConfigError(f"the config of task {number} has the key {_shown(key)}: keys are text")
        if not is_encodable(key):
            raise ConfigError(f"the config of task {number} has the key {_shown(key)}, which has {_HALF}")
        if value is not None and not isinstance(value, str):
            raise ConfigError(
                f"the config of task {number} has {_shown(value)} for {key}: values are text or None",
                field=key,
                fix=f"write str(...) for {key} in task_configs",
            )
        if value is not None and not is_encodable(value):
            raise ConfigError(
                f"the config of task {number} has a text for {key} with {_HALF}: {escaped(value[:100])}",
                field=key,
                fix="such text cannot be stored: encode it, as base64 or with escapes",
            )
        found[key] = value
    return found


_HALF = "half of a surrogate pair"


def _shown(value: Any) -> str:
    return f"{escaped(repr(value)[:100])} ({type(value).__name__})"
