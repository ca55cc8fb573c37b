"""Exceptions of the Connect library, with Kafka Connect's names and texts.

Owns the classes. The engine decides what follows from them (tolerance, retries).

    ConnectError                     any error of this library
    +-- DataError                    bad data: a record that cannot be read, converted or transformed
    |   +-- SchemaBuilderError       a schema that cannot be built
    |   +-- SchemaProjectorError     a value that cannot be projected from one schema to another
    |   +-- InvalidRecordError       a record that Kafka refuses for its timestamp
    +-- RetriableError               may succeed when it is retried
    |   +-- UnreachableError         the other system does not answer
    +-- JavaRuntimeError             Java's own exceptions: NullPointerError, IllegalArgumentError, ...
    +-- ConfigError                  a config value that cannot be used; carries the key
    +-- SerializationError           a codec that cannot be set up or used
    +-- RecordTooLargeError          a record that Kafka refuses for its size
    +-- RecordError                  a record that failed in a chain; carries stage, step and coordinates

Invariant: every error that a user's config can cause carries the key to change.
"""

from __future__ import annotations

from typing import Final


class ConnectError(Exception):
    """Root of the tree (Java: `ConnectException`)."""

    java_class = "org.apache.kafka.connect.errors.ConnectException"


class DataError(ConnectError):
    """Data that cannot be read, converted or transformed (Java: `DataException`)."""

    java_class = "org.apache.kafka.connect.errors.DataException"


class SchemaBuilderError(DataError):
    """A schema that cannot be built (Java: `SchemaBuilderException`)."""

    java_class = "org.apache.kafka.connect.errors.SchemaBuilderException"


class SchemaProjectorError(DataError):
    """A value that cannot be projected (Java: `SchemaProjectorException`)."""

    java_class = "org.apache.kafka.connect.errors.SchemaProjectorException"


class InvalidRecordError(DataError):
    """A record that Kafka cannot store (Java: `InvalidRecordException`)."""

    java_class = "org.apache.kafka.common.InvalidRecordException"


class RetriableError(ConnectError):
    """An error that may pass when the call is retried (Java: `RetriableException`). Its text reaches the unit's status
    (`waits`)."""

    java_class = "org.apache.kafka.connect.errors.RetriableException"
    # The default for an author's subclass that does not call this `__init__`.
    waits_for: str = ""
    next_try_s: float | None = None
    tried: bool = True

    def __init__(self, *args: object, waits_for: str = "", next_try_s: float | None = None, tried: bool = True) -> None:
        """Args:
        args: the reason, as for any exception.
        waits_for: the thing waited for, by the name that an operator knows: `PostgreSQL db:5432`.
        next_try_s: seconds in which the code that raises makes no attempt; None = the engine decides.
        tried: False when no attempt was made this time, because `next_try_s` of an earlier error is not over.
        """
        super().__init__(*args)
        self.waits_for, self.next_try_s, self.tried = waits_for, next_try_s, tried


class UnreachableError(RetriableError):
    """The other system does not answer: it is down, starts again, or cannot be reached. Like any RetriableError, it is
    retried. A connector or task that fails with it is restarted for as long as the outage lasts: such a restart does
    not count as one of `herdmesh.restart.attempts.max`, because no restart makes the outage better or worse.
    """


class JavaRuntimeError(ConnectError):
    """An exception of Java's own classes that Connect does not wrap: there it is no ConnectException, but a failed
    record.
    """

    java_class = "java.lang.RuntimeException"


class NullPointerError(JavaRuntimeError):
    """Java: `NullPointerException`."""

    java_class = "java.lang.NullPointerException"


class IllegalArgumentError(JavaRuntimeError):
    """Java: `IllegalArgumentException`."""

    java_class = "java.lang.IllegalArgumentException"


class IllegalStateError(JavaRuntimeError):
    """Java: `IllegalStateException`."""

    java_class = "java.lang.IllegalStateException"


class NumberFormatError(IllegalArgumentError):
    """Java: `NumberFormatException`."""

    java_class = "java.lang.NumberFormatException"


class IndexOutOfBoundsError(JavaRuntimeError):
    """Java: `IndexOutOfBoundsException`."""

    java_class = "java.lang.IndexOutOfBoundsException"


class ClassCastError(JavaRuntimeError):
    """Java: `ClassCastException`."""

    java_class = "java.lang.ClassCastException"


class SerializationError(ConnectError):
    """A codec that cannot be set up or used (Java: `SerializationException`)."""

    java_class = "org.apache.kafka.common.errors.SerializationException"


class RecordTooLargeError(ConnectError):
    """A record that Kafka refuses for its size (Java: `RecordTooLargeException`)."""

    java_class = "org.apache.kafka.common.errors.RecordTooLargeException"


class ConfigError(ConnectError):
    """A configuration that cannot be used (Java: `ConfigException`).

    Args:
        message: Connect's text, complete.
        field: the configuration key to change, "" when no single key is at fault.
        fix: what to write instead, "" when the message says it.
    """

    java_class = "org.apache.kafka.common.config.ConfigException"
    # The default for an author's subclass that does not call this `__init__`.
    field: str = ""
    fix: str = ""

    def __init__(self, message: str, *, field: str = "", fix: str = "") -> None:
        super().__init__(message)
        self.field = field
        self.fix = fix

    @classmethod
    def for_value(cls, field: str, value: object, message: str, *, fix: str = "") -> ConfigError:
        """Connect's wording: `Invalid value <v> for configuration <name>: <message>`
        (docs/reference/connect/configs.md; docs/reference/connect/data-model.md, section 4.1)."""
        shown = "null" if value is None else _java_text(value)
        suffix = f": {message}" if message else ""
        return cls(f"Invalid value {shown} for configuration {field}{suffix}", field=field, fix=fix)


OF_RECORD: Final = "Error in stage "
"""Begins the text of every `RecordError`, by which a herder knows a failure that one record caused."""


class RecordError(ConnectError):
    """A record that failed in a chain, with everything needed to find it.

    `stage` is one of Connect's stage names (`KEY_CONVERTER`, `VALUE_CONVERTER`, `TRANSFORMATION`, ...), `step` the
    alias and class of the converter or transformation, and topic, partition, offset the record's coordinates (None
    when the record has none, as a source record). The cause is chained.
    """

    def __init__(
        self, stage: str, step: str, topic: str | None, partition: int | None, offset: int | None, cause: BaseException
    ) -> None:
        where = f"topic '{topic}'"
        if partition is not None:
            where += f", partition {partition}"
        if offset is not None:
            where += f", offset {offset}"
        super().__init__(f"{OF_RECORD}{stage} ({step}) for the record at {where}: {text_with_cause(cause)}")
        self.stage = stage
        self.step = step
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.cause = cause


def error_text(error: BaseException) -> str:
    """The text of an error; if `str` fails, the reason. Never raises, although an author's `__str__` may raise
    anything, even SystemExit.
    """
    try:
        return str(error)
    except BaseException as other:  # noqa: BLE001 - as above
        return f"its text cannot be formatted: {type(other).__name__}"


def text_with_cause(error: BaseException) -> str:
    """The text of an error. Some of Connect's texts end with a colon, where Java's log goes on with the cause: the
    cause's text follows here too.
    """
    text, cause = error_text(error), error.__cause__
    if cause is None or not text.rstrip().endswith(":"):
        return text
    return f"{text.rstrip()} {error_text(cause)}"


def class_name_of(error: BaseException) -> str:
    """The class name for users: Java's where the error stands for a Java class, else Python's full name."""
    java_class = getattr(error, "java_class", None)
    if java_class is not None:
        return java_class
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _java_text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        items: list[object] = list(value)  # pyright: ignore[reportUnknownArgumentType]
        return "[" + ", ".join(_java_text(item) for item in items) + "]"
    return str(value)
