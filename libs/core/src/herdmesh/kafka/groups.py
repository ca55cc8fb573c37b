"""Safe admin requests about consumer groups, which survive brokers that do not answer in time.

librdkafka ends the process by an assertion when a request times out before it knows the group's coordinator, and then
learns of the coordinator seconds after the caller has gone on (`rd_kafka_admin_coord_request`, 2.16.1; its issue 4605,
docs/internals/bugs.md). So a query gets a timeout of an hour, and the caller stops waiting instead: a result that
nobody waits for does no harm. A change could, so long after: it has its own timeout, and is only sent once a query has
made the client find the coordinator.

Owns that rule; `admin` is an `AdminClient` in all of it. Invariant: nothing else in this project sends an admin client
a request about one group (tests/tidy checks it), except `engine.librdkafka.native_admin`, which keeps the rule by
itself.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any, Final

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException

QUESTION_S: Final = 3600.0
"""The longest that librdkafka takes."""
_UNANSWERED: Final = frozenset((KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN))


def describe_group(admin: Any, group: str, timeout_s: float) -> Any:
    """As `AdminClient.describe_consumer_groups` has it, of one group. Blocks.

    Raises:
        KafkaException: as Kafka answers; _TIMED_OUT when it does not.
    """
    asked: Future[Any] = admin.describe_consumer_groups([group], request_timeout=QUESTION_S)[group]
    try:
        return asked.result(timeout_s)
    except TimeoutError as late:
        text = f"no broker told of group {group} in {timeout_s:g} s"
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, text)) from late


def delete_group(admin: Any, group: str, timeout_s: float) -> None:
    """Have a group forgotten with all its offsets, just after `find_coordinator`. Blocks. Raises KafkaException."""
    admin.delete_consumer_groups([group], request_timeout=timeout_s)[group].result()


def alter_group_offsets(admin: Any, wanted: ConsumerGroupTopicPartitions, timeout_s: float) -> Any:
    """As `AdminClient.alter_consumer_group_offsets` has it, of one group, just after `find_coordinator`. Blocks. Raises
    KafkaException."""
    return admin.alter_consumer_group_offsets([wanted], request_timeout=timeout_s)[wanted.group_id].result()


def find_coordinator(admin: Any, group: str, timeout_s: float) -> None:
    """Have the client know who keeps a group. Blocks. Raises KafkaException, _TIMED_OUT when it does not learn that;
    whatever else is said of the group tells that it has."""
    try:
        describe_group(admin, group, timeout_s)
    except KafkaException as error:
        if error.args[0].code() in _UNANSWERED:
            raise
