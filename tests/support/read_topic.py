"""A reader of all committed records of a topic that has one partition, for tests that compare a topic with a copy.

Owns the consumer and its end. Decodes nothing.

Invariant: every committed record from the beginning to the end is returned once, in order.
"""

from __future__ import annotations

from confluent_kafka import Consumer, Message, TopicPartition

from herdmesh.topicstore.contract import StoredRecord


def committed_records(bootstrap: str, topic: str, wait_s: float, *, named: str = "") -> list[StoredRecord]:
    """The records, without their times. A broker that is silent for `wait_s` seconds fails the test.

    Args:
        named: the topic name put on the records; empty = its name.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "looker",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    found: list[StoredRecord] = []
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        while True:
            message: Message | None = consumer.poll(wait_s)
            assert message is not None
            if message.error() is not None:
                if message.partition() is None:
                    continue  # the error is about a broker, which the client retries
                return found
            offset = message.offset()
            assert offset is not None
            found.append(StoredRecord(named or topic, 0, offset, message.key(), message.value(), 0))
    finally:
        consumer.close()
