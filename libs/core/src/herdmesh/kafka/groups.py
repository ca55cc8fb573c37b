"""Safe admin requests about consumer groups, which survive brokers that do not answer in time.

librdkafka aborts the process by an assertion when a request times out before the group's coordinator is known, and the
coordinator is found seconds later, when the caller has continued (`rd_kafka_admin_coord_request`, 2.16.1; its issue
4605, docs/internals/bugs.md). So a query gets a timeout of an hour, and the caller stops waiting earlier: a late result
of a query does no harm. A late change could: it has its own timeout, and is sent only after a query has made the client
find the coordinator.

Owns that rule; `admin` is always an `AdminClient`. Invariant: nothing else in this project sends an admin client
a request about one group (tests/tidy checks it), except `engine.librdkafka.native_admin`, which keeps the rule by
itself.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any, Final

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException

from herdmesh.kafka.transient import UNANSWERED

QUESTION_S: Final = 3600.0
"""The longest timeout that librdkafka accepts."""


def describe_group(admin: Any, group: str, timeout_s: float) -> Any:
    """`AdminClient.describe_consumer_groups` for one group. Blocks.

    Raises:
        KafkaException: the broker's error; _TIMED_OUT when no broker answers.
    """
    asked: Future[Any] = admin.describe_consumer_groups([group], request_timeout=QUESTION_S)[group]
    try:
        return asked.result(timeout_s)
    except TimeoutError as late:
        text = f"no broker described group {group} within {timeout_s:g} s"
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, text)) from late


def delete_group(admin: Any, group: str, timeout_s: float) -> None:
    """Delete a group with all its offsets; call `find_coordinator` right before. Blocks. Raises KafkaException."""
    admin.delete_consumer_groups([group], request_timeout=timeout_s)[group].result()


def alter_group_offsets(admin: Any, wanted: ConsumerGroupTopicPartitions, timeout_s: float) -> Any:
    """`AdminClient.alter_consumer_group_offsets` for one group; call `find_coordinator` right before. Blocks. Raises
    KafkaException.
    """
    return admin.alter_consumer_group_offsets([wanted], request_timeout=timeout_s)[wanted.group_id].result()


def find_coordinator(admin: Any, group: str, timeout_s: float) -> None:
    """Make the client look up the group's coordinator. Blocks. Raises KafkaException, _TIMED_OUT when the lookup fails.
    Any other error about the group proves that the coordinator is known.
    """
    try:
        describe_group(admin, group, timeout_s)
    except KafkaException as error:
        if error.args[0].code() in UNANSWERED:
            raise
