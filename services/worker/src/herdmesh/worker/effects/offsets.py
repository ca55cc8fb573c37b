"""Writing a connector's offsets for somebody who asks (KIP-875), all of them or none.

Owns reading the JSON forms, with Connect's texts for what is wrong with them, and the write: one transaction of the
transactional id of the connector's task 0, so that a task that starts afterwards, or another worker that is asked the
same, cuts an older write off. A source's offsets go to the offsets topic in Connect's bytes (`connect.offsets_topic`),
or to the offsets file of standalone mode; a sink's are its group's committed offsets.

Once the id is taken over the config topic is asked whether the connector still is not there, as runs ask for their task
set: a worker that was frozen when it was asked would else write under the tasks of the connector that came meanwhile.

Departs from Connect: a sink's offset must lie within its partition's records (unless `herdmesh.offsets.missing=reset`),
because a task would fail on it; and Kafka's Python client cannot forget one partition's offset of many.

Blocks and calls authors' code, so all but `alter` runs in threads. Invariant: nothing is written before the connector's
own `alter_offsets` has agreed.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, cast

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition

from herdmesh.connect import jackson, offsets_topic
from herdmesh.connect.connector import PartitionId, SinkConnector, SourceConnector
from herdmesh.connect.errors import ConfigError, DataError
from herdmesh.engine import claims, clients, partitions, source_offsets
from herdmesh.engine.contract import ErrorClass, RunSpec, TaskKind
from herdmesh.engine.errors import TaskFailed
from herdmesh.engine.fence import Fence
from herdmesh.engine.settings import SinkSettings, offsets_topic_settings, sink_settings, source_settings
from herdmesh.engine.source import DeliveryFailures
from herdmesh.worker.effects.offset_file import OffsetFile
from herdmesh.worker.effects.specs import RunSpecs
from herdmesh.worker.effects.threads import in_thread
from herdmesh.worker.state.model import TaskSpec, UnitId
from herdmesh.worker.state.questions import AlterOffsets

_TOPIC: Final = "kafka_topic"
_PARTITION: Final = "kafka_partition"
_OFFSET: Final = "kafka_offset"
_COMPACTED: Final = {"cleanup.policy": "compact"}
_NOT_THERE: Final = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)
_BEGIN_TIMEOUT_S: Final = 15.0
"""A write that could not take over for so long is given up: whoever asked has given up too, and may have gone on."""


class Offsets:
    """Writes offsets for this worker's cluster."""

    def __init__(self, specs: RunSpecs, offset_file: OffsetFile | None) -> None:
        """`offset_file` holds the offsets of sources in standalone mode; None = the offsets topic does."""
        self._specs = specs
        self._offset_file = offset_file

    async def alter(self, question: AlterOffsets) -> None:
        """Write the offsets.

        Raises:
            ConfigError, DataError: the offsets, or the config, cannot be used; with Connect's texts.
            TaskFailed: Kafka did not take them, or somebody else owns the group or the id.
            Exception: what the connector's own `alter_offsets` raises.
        """
        given_up_s = time.monotonic() + _BEGIN_TIMEOUT_S
        if self._specs.plugin(question.config).connector.kind == TaskKind.SINK.value:
            await in_thread("sink offsets", lambda: self._alter_sink(question, given_up_s))
            return
        records = await in_thread("source offsets", lambda: self._source_records(question))
        if self._offset_file is not None:
            await self._offset_file.store(records)
        else:
            await in_thread("source offsets", lambda: _write_records(self._spec(question), records, given_up_s))

    def _spec(self, question: AlterOffsets) -> RunSpec:
        task = TaskSpec(question.config, question.config, 1)
        spec = self._specs.without_class(UnitId(question.connector, 0), task)
        return replace(spec, claim=self._specs.absence(question.config_offset))

    def _source_records(self, question: AlterOffsets) -> dict[bytes, bytes | None]:
        offsets = [(_object(partition), _object(offset)) for partition, offset in question.offsets]
        records = {
            offsets_topic.encode_key(question.connector, partition): offsets_topic.encode_value(offset)
            for partition, offset in offsets
        }
        config = self._specs.providers.resolve(question.config).config
        connector = self._specs.plugin(config).load()
        assert isinstance(connector, SourceConnector)
        connector.alter_offsets(config, offsets)
        return records

    def _alter_sink(self, question: AlterOffsets, given_up_s: float) -> None:
        offsets = dict(_sink_offset(partition, offset) for partition, offset in question.offsets)
        config = self._specs.providers.resolve(question.config).config
        connector = self._specs.plugin(config).load()
        assert isinstance(connector, SinkConnector)
        connector.alter_offsets(config, offsets)
        _write_group(self._spec(question), offsets, given_up_s)


def _object(text: str | None) -> Mapping[str, Any] | None:
    """A JSON object, None for null. Raises DataError."""
    value = None if text is None else jackson.loads(text.encode())
    if value is not None and not isinstance(value, dict):
        raise DataError(f"partitions and offsets are JSON objects or null, and this is neither: {text}")
    return cast("Mapping[str, Any] | None", value)


def _sink_offset(partition_json: str, offset_json: str | None) -> tuple[PartitionId, int | None]:
    """A sink's partition and offset, None = forget it. Raises ConfigError with Connect's text."""
    partition, offset = _object(partition_json), _object(offset_json)
    if partition is None:
        raise ConfigError("The partition for a sink connector offset cannot be null or missing")
    if _TOPIC not in partition or _PARTITION not in partition:
        raise ConfigError(
            f"The partition for a sink connector offset must contain the keys '{_TOPIC}' and '{_PARTITION}'"
        )
    if partition[_TOPIC] is None:
        raise ConfigError("Kafka topic names must be valid strings and may not be null")
    if partition[_PARTITION] is None:
        raise ConfigError("Kafka partitions must be valid numbers and may not be null")
    found = (str(partition[_TOPIC]), _whole(partition[_PARTITION], "partition", 31))
    if offset is None:
        return found, None
    if _OFFSET not in offset:
        raise ConfigError(f"The offset for a sink connector should either be null or contain the key '{_OFFSET}'")
    number = _whole(offset[_OFFSET], "offset", 63)
    if number < 0:
        raise ConfigError(f"The offset for a sink connector must not be negative: {number}")
    return found, number


def _whole(value: object, what: str, bits: int) -> int:
    text = str(value)
    if not isinstance(value, bool) and text.removeprefix("+").removeprefix("-").isdecimal():
        number = int(text)
        if -(1 << bits) <= number < 1 << bits:
            return number
    raise ConfigError(
        f"Failed to parse the following Kafka {what} value in the provided offsets: '{text}'. {what.capitalize()} "
        "values for sink connectors need to be integers."
    )


def _write_records(spec: RunSpec, records: Mapping[bytes, bytes | None], given_up_s: float) -> None:
    settings = source_settings(spec)
    count, replication_factor = offsets_topic_settings(spec)
    admin = clients.admin(spec, settings.admin)
    topics = (
        [settings.offsets_topic] if settings.offsets_copy is None else [settings.offsets_topic, settings.offsets_copy]
    )
    for topic in topics:
        source_offsets.ensure_topic(admin, topic, count, replication_factor, _COMPACTED)
    failures = DeliveryFailures()
    fence = Fence(clients.producer(spec, settings.producer, failures.add), spec.transactional_id)
    try:
        _take_over(fence, given_up_s)
        claims.ask(spec, admin).verify()
        fence.begin()
        for key, value in records.items():
            for topic in topics:
                fence.producer.produce(topic, value, key)
        try:
            fence.commit()
        except (TaskFailed, KafkaException):
            failures.raise_first()  # says more than the transaction's own error
            raise
    finally:
        fence.close()


def _write_group(spec: RunSpec, offsets: Mapping[PartitionId, int | None], given_up_s: float) -> None:
    settings = sink_settings(spec)
    admin = clients.admin(spec, settings.access)
    partitions.refuse_members(admin, settings.group)
    wanted = {partition: offset for partition, offset in offsets.items() if offset is not None}
    consumer = clients.consumer(spec, settings.group, settings.consumer)
    try:
        _check(admin, settings, wanted)
        fence = Fence(clients.producer(spec, settings.access), spec.transactional_id)
        try:
            _take_over(fence, given_up_s)
            claims.ask(spec, admin, consumer).verify()
            if len(wanted) < len(offsets):
                _forget(admin, settings.group, offsets)
            if wanted:
                written = [TopicPartition(topic, number, offset) for (topic, number), offset in wanted.items()]
                fence.commit_offsets(written, consumer.consumer_group_metadata())
        finally:
            fence.close()
    finally:
        consumer.close()


def _take_over(fence: Fence, given_up_s: float) -> None:
    fence.take_over()
    if time.monotonic() > given_up_s:
        raise TaskFailed("Kafka answered too late; nothing was written", ErrorClass.RETRIABLE)


def _check(admin: Any, settings: SinkSettings, wanted: Mapping[PartitionId, int]) -> None:
    """Raise ConfigError for a partition that is not there, or an offset that a task would fail on."""
    try:
        ranges = partitions.ranges(admin, {partition: (offset, "") for partition, offset in wanted.items()})
    except KafkaException as error:
        cause: KafkaError = error.args[0]
        if cause.code() not in _NOT_THERE:
            raise
        named = ", ".join(f"{topic}-{number}" for topic, number in sorted(wanted))
        raise ConfigError(f"not all of these partitions exist: {named}; create their topics first") from error
    if settings.reset_missing:
        return
    for (topic, number), known in sorted(ranges.items()):
        if not known.beginning <= wanted[topic, number] <= known.end:
            raise ConfigError(
                f"offset {wanted[topic, number]} of {topic}-{number} is outside of its records {known.beginning} to "
                f"{known.end}: the task would fail"
            )


def _forget(admin: Any, group: str, offsets: Mapping[PartitionId, int | None]) -> None:
    """Delete the group when everything it has is to be forgotten or written anew. Raises ConfigError otherwise."""
    request = [ConsumerGroupTopicPartitions(group)]
    known = clients.retried(lambda: admin.list_consumer_group_offsets(request)[group].result())
    committed = {(one.topic, one.partition) for one in known.topic_partitions if one.offset >= 0}
    forgotten = {partition for partition, offset in offsets.items() if offset is None}
    if not committed & forgotten:
        return
    others = sorted(f"{topic}-{number}" for topic, number in committed - set(offsets))
    if others:
        raise ConfigError(
            f"offsets of single partitions cannot be forgotten while group {group} has others ({', '.join(others)}): "
            "give each of them an offset, or null"
        )
    clients.retried(lambda: admin.delete_consumer_groups([group])[group].result())
