"""Messages between a worker and a plugin's process: JSON, each message whole in one write.

Owns the messages. The two ends are `effects.plugins.plugin_processes` and `plugin_process`. Nothing of Python's own
travels: what the plugin's classes are is told in words, so that none of them is ever made in the worker.
"""

from __future__ import annotations

from typing import Any

import msgspec

from herdmesh.connect.config import escaped, redacted
from herdmesh.connect.error_class import ErrorClass
from herdmesh.connect.errors import ConfigError, RetriableError, error_text
from herdmesh.connect.spi import shown
from herdmesh.engine.runtime import MESSAGE_CHARS_MAX, TaskFailed, classify, shortened


class Call(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Something to do. Answered by one `Answer` with its number."""

    number: int
    what: str
    entry: str
    """The plugin's class: `module:Class`."""
    instance: str = ""
    """The started instance to ask; "" = a new one, never started and then dropped."""
    arguments: tuple[Any, ...] = ()
    secrets: tuple[str, ...] = ()
    """What no text of the process may show while this is done."""


class ToldFailure(msgspec.Struct, frozen=True, kw_only=True):
    """What a call raised. `kind` is what it is raised as again: `config`, `retriable`, `import` or `failed`."""

    kind: str
    message: str
    field: str = ""
    fix: str = ""
    error_class: str = ""
    trace: str = ""


class Answer(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """What came of a call."""

    number: int
    value: Any = None
    failure: ToldFailure | None = None


class TasksOutdated(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A started instance wants its `task_configs` asked again."""

    instance: str


class Raised(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A started instance ends its connector as FAILED."""

    instance: str
    failure: ToldFailure


class WaitTold(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """What an instance that was started, or that is being started, waits for has changed."""

    instance: str
    waits_for: str = ""
    """"" = it waits no more."""
    message: str = ""
    since_ms: int = 0
    tries: int = 0
    next_ms: int = 0


class OffsetsWanted(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A started instance wants to know committed offsets. Answered by one `OffsetsTold` with its number."""

    instance: str
    number: int
    partitions: tuple[dict[str, Any] | None, ...]


class OffsetsTold(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """From the worker: the committed offsets, or why there are none."""

    number: int
    offsets: tuple[dict[str, Any] | None, ...] = ()
    failure: ToldFailure | None = None


def told_failure(error: BaseException) -> ToldFailure:
    """What was raised, without the secrets of this process."""
    message, trace, error_class = classify(error)
    if isinstance(error, ConfigError):
        text = shortened(redacted(error_text(error)), MESSAGE_CHARS_MAX)
        return ToldFailure(
            kind="config", message=escaped(text), field=told_text(error.field), fix=told_text(error.fix), trace=trace
        )
    kinds = {RetriableError: "retriable", ImportError: "import"}
    kind = next((kind for cls, kind in kinds.items() if isinstance(error, cls)), "failed")
    return ToldFailure(kind=kind, message=message, error_class=error_class.value, trace=trace)


def told_text(given: object) -> str:
    """A text that an author gave, or what is there in its place; None = \"\"."""
    if not given:
        return ""
    return escaped(shortened(redacted(given if isinstance(given, str) else shown(given)), MESSAGE_CHARS_MAX))


class TraceOfPlugin(Exception):
    """The trace of what was raised in the other process: the cause of what is raised here, and shown as such."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


def raised(failure: ToldFailure) -> Exception:
    """What to raise here for it."""
    error: Exception
    match failure.kind:
        case "config":
            error = ConfigError(failure.message, field=failure.field, fix=failure.fix)
        case "retriable":
            error = RetriableError(failure.message)
        case "import":
            error = ImportError(failure.message)
        case _:
            error = TaskFailed(failure.message, ErrorClass(failure.error_class))
    if failure.trace:
        error.__cause__ = TraceOfPlugin(failure.trace)
    return error


class ToldKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key of a connector's definition. Its rules stay where they are: they are asked by the key's name."""

    name: str
    type: str
    importance: str
    doc: str
    required: bool
    default: Any
    group: str | None
    order: int
    width: str
    display_name: str
    dependents: tuple[str, ...]
    rule: str | None
    """The validator's text, None = it has none."""
    refines: bool = False
    strict: bool = False
    recommends: bool = False


class ToldConnector(msgspec.Struct, frozen=True, kw_only=True):
    """A connector class, as far as a worker has to know it."""

    class_name: str
    aliases: tuple[str, ...]
    kind: str
    version: str
    java_task_class: str
    default_converters: dict[str, str]
    keys: tuple[ToldKey, ...]


class ToldAuthored(msgspec.Struct, frozen=True, kw_only=True):
    """A transformation, predicate or converter class, as far as a worker has to know it."""

    class_name: str
    aliases: tuple[str, ...]
    kind: str
    """Of the classes of `connect.authored` the one that it is."""
    version: str
    keys: tuple[ToldKey, ...]
