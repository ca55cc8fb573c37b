"""Messages between a worker and a plugin's process: JSON, each message whole in one write.

Owns the messages. The two ends are `effects.plugins.plugin_processes` and `plugin_process`. No pickled object is sent:
the plugin's classes are described in plain data, so that none of them is ever instantiated in the worker.
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
    """A call. The reply is one `Answer` with its number."""

    number: int
    what: str
    entry: str
    """The plugin's class: `module:Class`."""
    instance: str = ""
    """The started instance to call; "" = a temporary one that is never started."""
    arguments: tuple[Any, ...] = ()
    secrets: tuple[str, ...] = ()
    """Secrets that the process redacts in all texts during the call."""


class CallFailure(msgspec.Struct, frozen=True, kw_only=True):
    """Error of a call. `kind` decides which error is raised again: `config`, `retriable`, `import` or `failed`."""

    kind: str
    message: str
    field: str = ""
    fix: str = ""
    error_class: str = ""
    trace: str = ""


class Answer(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Result of a call."""

    number: int
    value: Any = None
    failure: CallFailure | None = None


class TasksOutdated(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Request of a started instance to have its `task_configs` called again."""

    instance: str


class Raised(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Error with which a started instance ends its connector as FAILED."""

    instance: str
    failure: CallFailure


class WaitChanged(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A changed wait of an instance that was started, or is being started."""

    instance: str
    waits_for: str = ""
    """"" = the wait is over."""
    message: str = ""
    since_ms: int = 0
    tries: int = 0
    next_ms: int = 0


class OffsetsWanted(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Request of a started instance for committed offsets. The reply is one `CommittedOffsets` with its number."""

    instance: str
    number: int
    partitions: tuple[dict[str, Any] | None, ...]


class CommittedOffsets(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Reply of the worker: the committed offsets, or the reason why there are none."""

    number: int
    offsets: tuple[dict[str, Any] | None, ...] = ()
    failure: CallFailure | None = None


def failure_of(error: BaseException) -> CallFailure:
    """The message of an error, with the secrets of this process redacted."""
    message, trace, error_class = classify(error)
    if isinstance(error, ConfigError):
        text = shortened(redacted(error_text(error)), MESSAGE_CHARS_MAX)
        return CallFailure(
            kind="config",
            message=escaped(text),
            field=author_text(error.field),
            fix=author_text(error.fix),
            trace=trace,
        )
    kinds = {RetriableError: "retriable", ImportError: "import"}
    kind = next((kind for cls, kind in kinds.items() if isinstance(error, cls)), "failed")
    return CallFailure(kind=kind, message=message, error_class=error_class.value, trace=trace)


def author_text(given: object) -> str:
    """A text from an author's code, or a description of the value that is there instead; None = \"\"."""
    if not given:
        return ""
    return escaped(shortened(redacted(given if isinstance(given, str) else shown(given)), MESSAGE_CHARS_MAX))


class TraceOfPlugin(Exception):
    """Trace from the other process, shown as the cause of the error raised here."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


def raised(failure: CallFailure) -> Exception:
    """The error to raise here."""
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


class KeyDescription(msgspec.Struct, frozen=True, kw_only=True):
    """A key of a connector's definition. Its rules stay in the plugin's process and are called by the key's name."""

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
    """The validator's text, None = no validator."""
    refines: bool = False
    strict: bool = False
    recommends: bool = False


class ConnectorDescription(msgspec.Struct, frozen=True, kw_only=True):
    """Description of a connector class, as far as a worker needs it."""

    class_name: str
    aliases: tuple[str, ...]
    kind: str
    version: str
    java_task_class: str
    default_converters: dict[str, str]
    keys: tuple[KeyDescription, ...]


class AuthoredDescription(msgspec.Struct, frozen=True, kw_only=True):
    """Description of a transformation, predicate or converter class, as far as a worker needs it."""

    class_name: str
    aliases: tuple[str, ...]
    kind: str
    """Its base class in `connect.authored`."""
    version: str
    keys: tuple[KeyDescription, ...]
