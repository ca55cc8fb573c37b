"""Errors of Kafka as errors of commands: cause, next step, exit code.

Owns the table from Kafka's error codes to reasons. The texts name the cluster, because a command finds its address in
several ways.
"""

from __future__ import annotations

from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException

from herdmesh.cli.errors import EXIT_CODES, EXIT_UNAVAILABLE, CommandError
from herdmesh.cli.kafka.access import KafkaAccess

UNREACHABLE: Final = frozenset(
    {
        KafkaError._TRANSPORT,  # pyright: ignore[reportPrivateUsage]  # librdkafka's local codes, here and below
        KafkaError._ALL_BROKERS_DOWN,  # pyright: ignore[reportPrivateUsage]
        KafkaError._RESOLVE,  # pyright: ignore[reportPrivateUsage]
        KafkaError._TIMED_OUT,  # pyright: ignore[reportPrivateUsage]
        KafkaError._MSG_TIMED_OUT,  # pyright: ignore[reportPrivateUsage]
    }
)
LOGIN: Final = frozenset(
    {
        KafkaError._AUTHENTICATION,  # pyright: ignore[reportPrivateUsage]
        KafkaError._SSL,  # pyright: ignore[reportPrivateUsage]
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.UNSUPPORTED_SASL_MECHANISM,
    }
)
MISSING: Final = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,  # pyright: ignore[reportPrivateUsage]
        KafkaError._UNKNOWN_PARTITION,  # pyright: ignore[reportPrivateUsage]
    }
)
_FORBIDDEN: Final = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
    }
)
_INVALID: Final = frozenset(
    {
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.INVALID_PARTITIONS,
        KafkaError.INVALID_REPLICATION_FACTOR,
        KafkaError.INVALID_CONFIG,
        KafkaError.INVALID_REQUEST,
        KafkaError.POLICY_VIOLATION,
        KafkaError._INVALID_ARG,  # pyright: ignore[reportPrivateUsage]
    }
)


def error_of(exception: KafkaException) -> KafkaError:
    """The client's error in its exception."""
    found: Any = exception.args[0] if exception.args else None
    return found if isinstance(found, KafkaError) else KafkaError(KafkaError.UNKNOWN, str(exception))


def failure(error: KafkaError, access: KafkaAccess, doing: str) -> CommandError:
    """The error of a command that failed while `doing` something."""
    code, text = error.code(), error.str() or str(error)
    if code in UNREACHABLE:
        return unreachable(access, text)
    if code in LOGIN:
        return login_failed(access, text)
    if code in MISSING:
        return CommandError(
            "TOPIC_NOT_FOUND", f"{doing}: {text}", "`herd topics list` lists the topics.", EXIT_CODES["TASK_NOT_FOUND"]
        )
    if code in _FORBIDDEN:
        next_step = "Grant the right to the user of --command-config, or log in as another."
        return CommandError("UNAUTHORIZED", f"{doing}: Kafka refused it: {text}", next_step, EXIT_UNAVAILABLE)
    if code == KafkaError.TOPIC_ALREADY_EXISTS:
        next_step = "`herd topics describe NAME` shows it; --if-not-exists accepts it."
        return CommandError("TOPIC_EXISTS", f"{doing}: {text}", next_step, EXIT_CODES["CONNECTOR_EXISTS"])
    if code in _INVALID:
        next_step = "Correct the option that the message names."
        return CommandError("REQUEST_INVALID", f"{doing}: Kafka refused it: {text}", next_step, 5)
    return CommandError("KAFKA", f"{doing}: {text} ({error.name()})", "The broker's log may have the cause.")


def unreachable(access: KafkaAccess, detail: str) -> CommandError:
    """The error of an address at which no broker answers."""
    return CommandError(
        "UNREACHABLE",
        f"no Kafka answers at {access.bootstrap_servers} (from {access.origin}): {detail}",
        "`herd up` starts the one of this folder; --bootstrap-servers HOST:PORT names another.",
        EXIT_UNAVAILABLE,
    )


def login_failed(access: KafkaAccess, detail: str) -> CommandError:
    """The error of a login, or of encryption, that the broker or the client refused."""
    next_step = "Correct security.protocol, sasl.* or ssl.* in that file."
    if not access.file:
        next_step = "Give --command-config a file with security.protocol and sasl.* or ssl.*, as Kafka's own tools do."
    return CommandError(
        "LOGIN_FAILED",
        f"Kafka at {access.bootstrap_servers} refused the connection of this client: {detail}",
        next_step,
        EXIT_UNAVAILABLE,
    )
