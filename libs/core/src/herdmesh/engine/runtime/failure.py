"""Report of a failed run: message, trace and error class of any exception.

Owns the one table from exceptions of Kafka's client, of the operating system and of the Connect library to error
classes, which determine restarts. Raises nothing itself.

Invariant: every exception gets a non-empty one-line message and a class; an unknown exception is UNKNOWN and never
breaks the reporting.
"""

from __future__ import annotations

import traceback
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from herdmesh.connect.config import escaped, redacted
from herdmesh.connect.error_class import ErrorClass
from herdmesh.connect.errors import (
    ConfigError,
    ConnectError,
    DataError,
    RecordError,
    RetriableError,
    UnreachableError,
    error_text,
)
from herdmesh.engine.runtime.errors import TaskFailed

MESSAGE_CHARS_MAX, TRACE_CHARS_MAX = 8_000, 64_000
"""Limits of a failure's texts, because they go into a status, which is a Kafka record."""
_GROUP_SHOWN = 5
_FENCED_CODES = frozenset(
    (
        KafkaError._FENCED,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.INVALID_PRODUCER_ID_MAPPING,
        KafkaError.FENCED_INSTANCE_ID,
    )
)
_BAD_CONFIG_CODES = frozenset(
    (
        KafkaError._INVALID_ARG,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.SASL_AUTHENTICATION_FAILED,
    )
)
_LOGIN_CODES = frozenset((KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED))
_FATAL_CODES = frozenset((KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_RECORD))
#: No connection to a broker, for any call; or to a broker that has just started and does not know its groups and
#: transactions yet, as at the end of each outage.
_AWAY_CODES = frozenset(
    (
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
    )
)
#: No reply in time: from unreachable brokers, or from a busy one.
#: The last is a commit's error after undelivered records without a delivery report (`column_queue`).
_LATE_CODES = frozenset(
    (KafkaError._TIMED_OUT, KafkaError._TIMED_OUT_QUEUE, KafkaError._MSG_TIMED_OUT, KafkaError._INCONSISTENT)
)


class _Brokers:
    """Whether a broker refused this process' login, or none was reachable. Kafka calls themselves only report that
    there was no reply; the reason goes to a client's error callback. A process that executes runs executes one at a
    time. Any other process notes nothing, because its clients belong to many connectors.
    """

    def __init__(self) -> None:
        self.watched = False
        self.refused = ""
        self.away = False


_brokers = _Brokers()


def watch_brokers() -> None:
    """Reset the notes at the beginning of a run."""
    _brokers.watched, _brokers.refused, _brokers.away = True, "", False


def note_error(error: KafkaError) -> None:
    """The error callback of a run's clients."""
    if _brokers.watched and error.code() == KafkaError._ALL_BROKERS_DOWN:
        _brokers.away = True
    if _brokers.watched and error.code() in _LOGIN_CODES:
        _brokers.refused = " ".join(error.str().split())


def is_fenced(error: KafkaError) -> bool:
    """True when the broker reports that another producer took our transactional id over.

    INVALID_PRODUCER_ID_MAPPING counts: an expired producer id cannot prove that no other producer took over.
    """
    return error.code() in _FENCED_CODES


def classify_kafka(error: KafkaError) -> ErrorClass:
    """The class of an error of Kafka's client. An error that is not known to be permanent is worth a retry: brokers
    come back.
    """
    if is_fenced(error):
        return ErrorClass.FENCED
    if error.code() in _BAD_CONFIG_CODES:
        return ErrorClass.BAD_CONFIG
    if error.code() in _FATAL_CODES:
        return ErrorClass.FATAL
    return ErrorClass.RETRIABLE


def error_class(error: BaseException) -> ErrorClass:
    """The error class of an exception, for the restart policy."""
    found = _class_alone(error)
    if found is not ErrorClass.RETRIABLE:
        return found
    if isinstance(error, UnreachableError):
        return ErrorClass.UNREACHABLE
    if _brokers.refused:
        return ErrorClass.BAD_CONFIG
    return ErrorClass.UNREACHABLE if _is_away(error) else found


def _is_away(error: BaseException) -> bool:
    """True when the error behind it is that no broker of the cluster answered, or no other system."""
    cause = error.__cause__ or error.__context__
    if isinstance(error, UnreachableError):
        return True
    if isinstance(error, KafkaException) and error.args and isinstance(error.args[0], KafkaError):
        code = error.args[0].code()
        return code in _AWAY_CODES or (code in _LATE_CODES and _brokers.away)
    return cause is not None and _is_away(cause)


def _class_alone(error: BaseException) -> ErrorClass:
    if isinstance(error, TaskFailed):
        return error.error_class
    if isinstance(error, KafkaException) and error.args and isinstance(error.args[0], KafkaError):
        return classify_kafka(error.args[0])
    if isinstance(error, ConfigError):
        return ErrorClass.BAD_CONFIG
    if isinstance(error, RecordError) and isinstance(error.cause, ConfigError):
        return ErrorClass.BAD_CONFIG
    if isinstance(error, RecordError | DataError):
        return ErrorClass.FATAL
    if isinstance(error, PermissionError | FileNotFoundError | NotADirectoryError | IsADirectoryError):
        return ErrorClass.BAD_CONFIG
    if isinstance(error, RetriableError | OSError | BufferError | MemoryError):
        return ErrorClass.RETRIABLE
    return ErrorClass.UNKNOWN


def message_of(error: BaseException) -> str:
    """One line, never empty; names the type if the text alone is not clear, and the exceptions in a group."""
    text = " ".join(error_text(error).split())
    text += _within(error)
    if isinstance(error, TaskFailed | ConnectError) and text:
        return text
    if isinstance(error, KafkaException) and error.args and isinstance(error.args[0], KafkaError):
        return f"Kafka: {error.args[0].str()} ({error.args[0].name()})"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _within(error: Any) -> str:
    """The exceptions in a group, or "" for any other exception."""
    if not issubclass(type(error), BaseExceptionGroup):
        return ""
    return f": {'; '.join(map(message_of, error.exceptions[:_GROUP_SHOWN]))}"


def shortened(text: str, characters: int) -> str:
    """The beginning and the end of a text that is longer than `characters`: an error may contain a whole response."""
    if len(text) <= characters:
        return text
    left, half = len(text) - characters, characters // 2
    return f"{text[:half]} ... ({left} characters left out) ... {text[-half:]}"


def _trace_of(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(error))
    except BaseException as other:  # noqa: BLE001 - as `error_text`
        return f"{message_of(error)} (its stack trace cannot be formatted: {type(other).__name__})"


def classify(error: BaseException) -> tuple[str, str, ErrorClass]:
    """Message, stack trace and class of a run's exception, without the secrets that this process has resolved."""
    found, message = error_class(error), message_of(error)
    trace = _trace_of(error)
    if found is ErrorClass.BAD_CONFIG and _brokers.refused and _class_alone(error) is ErrorClass.RETRIABLE:
        message = f"the broker refuses the login: {_brokers.refused}; {message}"
    # Redact before shortening: half a secret would not be recognised.
    shown = shortened(redacted(message), MESSAGE_CHARS_MAX), shortened(redacted(trace), TRACE_CHARS_MAX)
    return escaped(shown[0]), escaped(shown[1]), found


@contextmanager
def as_exceptions() -> Generator[None]:
    """Convert an author's exceptions outside of `Exception`, so that they end no process and no event loop: SystemExit
    (`sys.exit`), KeyboardInterrupt, GeneratorExit and the like become a TaskFailed that names them.
    """
    try:
        yield
    except Exception:
        raise
    except BaseException as error:
        raise TaskFailed(message_of(error), ErrorClass.UNKNOWN) from error
