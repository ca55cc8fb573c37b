"""What a failed run reports: message, trace and error class of any exception.

Owns the one table that says which exceptions of Kafka's client, of the operating system and of the Connect library mean
what for restarts. Raises nothing itself.

Invariant: whatever is raised gets a non-empty one-line message and a class; an unknown exception is UNKNOWN and never
breaks the reporting.
"""

from __future__ import annotations

import traceback

from confluent_kafka import KafkaError, KafkaException

from herdmesh.connect.errors import ConfigError, ConnectError, DataError, RecordError
from herdmesh.engine.contract import ErrorClass
from herdmesh.engine.errors import TaskFailed

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


class _Login:
    """Whether a broker refused this process' login. Calls to Kafka only say that no broker could be reached; why not is
    told beside them, to a client's error callback. A process that executes runs executes one at a time; in any other
    nothing is noted, for there an answer would be about clients of many connectors."""

    def __init__(self) -> None:
        self.watched = False
        self.refused = ""


_login = _Login()


def watch_logins() -> None:
    """A run begins: nothing was refused yet."""
    _login.watched, _login.refused = True, ""


def note_error(error: KafkaError) -> None:
    """The error callback of a run's clients."""
    if _login.watched and error.code() in _LOGIN_CODES:
        _login.refused = " ".join(error.str().split())


def is_fenced(error: KafkaError) -> bool:
    """True when the broker says that another producer of our transactional id came after us.

    INVALID_PRODUCER_ID_MAPPING counts: a producer id that expired cannot prove that nobody came after.
    """
    return error.code() in _FENCED_CODES


def classify_kafka(error: KafkaError) -> ErrorClass:
    """The class of an error of Kafka's client. What is not known to be hopeless is worth a retry: brokers come back."""
    if is_fenced(error):
        return ErrorClass.FENCED
    if error.code() in _BAD_CONFIG_CODES:
        return ErrorClass.BAD_CONFIG
    if error.code() in _FATAL_CODES:
        return ErrorClass.FATAL
    return ErrorClass.RETRIABLE


def error_class(error: BaseException) -> ErrorClass:
    """What the restart policy does with this exception."""
    found = _class_alone(error)
    return ErrorClass.BAD_CONFIG if found is ErrorClass.RETRIABLE and _login.refused else found


def _class_alone(error: BaseException) -> ErrorClass:
    if isinstance(error, TaskFailed):
        return error.error_class
    if isinstance(error, KafkaException) and error.args and isinstance(error.args[0], KafkaError):
        return classify_kafka(error.args[0])
    if isinstance(error, ConfigError):
        return ErrorClass.BAD_CONFIG
    if isinstance(error, RecordError | DataError):
        return ErrorClass.FATAL
    if isinstance(error, PermissionError | FileNotFoundError | NotADirectoryError | IsADirectoryError):
        return ErrorClass.BAD_CONFIG
    if isinstance(error, OSError | BufferError | MemoryError):
        return ErrorClass.RETRIABLE
    return ErrorClass.UNKNOWN


def message_of(error: BaseException) -> str:
    """One line, never empty; names the type where the text alone would not say what it is."""
    text = " ".join(str(error).split())
    if isinstance(error, TaskFailed | ConnectError) and text:
        return text
    if isinstance(error, KafkaException) and error.args and isinstance(error.args[0], KafkaError):
        return f"Kafka: {error.args[0].str()} ({error.args[0].name()})"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def classify(error: BaseException) -> tuple[str, str, ErrorClass]:
    """Message, stack trace and class of what a run raised."""
    trace = "".join(traceback.format_exception(error))
    found, message = error_class(error), message_of(error)
    if found is ErrorClass.BAD_CONFIG and _login.refused and _class_alone(error) is ErrorClass.RETRIABLE:
        message = f"the broker refuses the login: {_login.refused}; {message}"
    return message, trace, found
