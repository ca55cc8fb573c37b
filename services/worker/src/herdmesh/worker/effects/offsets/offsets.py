"""Offsets of a connector on request (KIP-875): read in any state, changed while the connector is stopped.

Owns the responses, and the write of a source's offsets: one transaction of the transactional id of the connector's task
0, all or nothing, so that a task that starts later, or another worker with the same request, fences an older write. The
offsets go to the offsets topic in Connect's bytes (`connect.offsets_topic`), or to the offsets file of standalone mode.
`sink_offsets` does the same for sinks.

A connector that does not exist yet gets its first offsets in the transaction that creates it. Such a change is only
prepared here: everything but the write is done, and the response has the records to write, for existing topics. The
transactional id is not kept: the service that writes the records must ensure that nobody else creates the connector
meanwhile. No transaction includes the offsets file of standalone mode, so there preparing means writing.

After taking over the id, the worker checks in the config topic that the connector still has no tasks, or does not
exist, as runs check their task set. Otherwise a worker that was frozen after it got the request would write offsets
under tasks that started meanwhile.

The calls block and run authors' code, so all but `read` and `alter` run in threads; a connector calls `committed` in a
thread of its own. Invariant: nothing is written, or returned for writing, before the connector's own `alter_offsets`
has agreed. Preparing and dry runs write nothing. In a dry run of a sink `alter_offsets` is not called, because it may
change offsets elsewhere.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from confluent_kafka import KafkaException

from herdmesh.connect.error_class import ErrorClass
from herdmesh.connect.errors import ConfigError, ConnectError
from herdmesh.connect.json_text import jackson
from herdmesh.connect.spi import PartitionId, SinkConnector, SourceConnector, checked_agreement, checked_places, waits
from herdmesh.connect.topics import offsets_topic
from herdmesh.engine.delivery import DeliveryFailures, producing
from herdmesh.engine.fencing import Fence, task_set_check
from herdmesh.engine.librdkafka import clients
from herdmesh.engine.runtime import RunSpec, TaskFailed, TaskKind, source_settings
from herdmesh.engine.source import SourceOffsets, stored_offsets
from herdmesh.rpc.properties import texts
from herdmesh.session.model import UnitId
from herdmesh.session.worker_commands import AlterOffsets, ReadOffsets
from herdmesh.worker.effects.offsets import sink_offsets
from herdmesh.worker.effects.offsets.offset_file import OffsetFile
from herdmesh.worker.effects.offsets.offset_forms import (
    OFFSETS_BYTES_MAX,
    OffsetsResult,
    Prepared,
    bounded,
    changed_message,
    object_of,
    source_offsets_json,
)
from herdmesh.worker.effects.offsets.offset_write_outcome import refuse_late, taking_over, writing
from herdmesh.worker.effects.runs import RunSpecs
from herdmesh.worker.state.model import Config, TaskSpec
from herdmesh.worker.threads import in_thread

_Records = dict[bytes, bytes | None]


class Offsets:
    """Reads and changes offsets for this worker's cluster."""

    def __init__(self, specs: RunSpecs, offset_file: OffsetFile | None) -> None:
        """`offset_file` has the offsets of sources in standalone mode; None = the offsets topic has them."""
        self._specs = specs
        self._offset_file = offset_file

    async def read(self, question: ReadOffsets) -> OffsetsResult:
        """All committed offsets; those of an open transaction are not waited for.

        Raises:
            ConfigError: the config cannot be used.
            TaskFailed: Kafka did not answer, or the offsets exceed OFFSETS_BYTES_MAX.
        """
        found = await in_thread("offsets", lambda: self._read_result(question))
        if found.byte_count > OFFSETS_BYTES_MAX:
            raise TaskFailed(
                f"the connector has {len(found.offsets)} offsets of {found.byte_count} bytes, and one response "
                f"holds at most {OFFSETS_BYTES_MAX}: read them from the offsets topic",
                ErrorClass.FATAL,
            )
        return found

    async def alter(self, question: AlterOffsets) -> OffsetsResult:
        """Change the offsets, or prepare the change, or, in a dry run, only check it. Returns the offsets after the
        change, or as they will be when the prepared records are written; after a reset, those before it.

        Raises:
            ConfigError, DataError: the offsets, or the config, cannot be used, with Connect's texts; or a change to
                prepare cannot be written together with the connector.
            TaskFailed: Kafka did not accept them, or another process owns the group or the id. `OutcomeUnknown`: the
                outcome is unknown.
            Exception: any error of the connector's own `alter_offsets`.
        """
        deadline_s = time.monotonic() + question.timeout_ms / 1000
        if self._offset_file is not None:  # applies to sinks, too: no store of a standalone worker writes to Kafka
            question = replace(question, prepare=False)
        if self._is_sink(texts(question.config)):
            return bounded(await in_thread("sink offsets", lambda: self._alter_sink(question, deadline_s)))
        if self._offset_file is None:
            return bounded(await in_thread("source offsets", lambda: self._alter_topic(question, deadline_s)))
        stored = self._offset_file.of(question.connector)
        change = await in_thread("source offsets", lambda: self._change(question, stored))
        agreed = await in_thread("source offsets", lambda: self._agree(question, change))
        if not question.dry_run:
            refuse_late(deadline_s, "the connector's alter_offsets")
            await self._offset_file.store(change.records)
        return bounded(change.result(agreed=agreed))

    def committed(
        self, connector: str, config: Config, partitions: Sequence[Mapping[str, Any] | None]
    ) -> list[Mapping[str, Any] | None]:
        """A source connector's committed offsets of these source partitions, None = none. Blocks.

        Raises:
            ConnectError: for a sink, or a config that cannot be used.
            TaskFailed: Kafka does not answer, or a stored value is not an offset.
        """
        if self._is_sink(config):
            raise ConnectError("a sink connector has no source offsets: those of its records are its consumer group's")
        if self._offset_file is not None:
            found = SourceOffsets(connector)
            for key, value in self._offset_file.of(connector).items():
                found.apply(key, value)
        else:
            found = self._read(self._spec_of(connector, config))
        return [found.committed_offset(partition) for partition in partitions]

    def _is_sink(self, config: Config) -> bool:
        return self._specs.plugin(config).connector.kind == TaskKind.SINK.value

    def _read_result(self, question: ReadOffsets) -> OffsetsResult:
        if not self._is_sink(texts(question.config)) and self._offset_file is not None:
            stored: Mapping[bytes, bytes] = self._offset_file.of(question.connector)
            return OffsetsResult(source_offsets_json(stored), self._note(question, stored))
        spec = self._spec(question)
        if spec.kind is TaskKind.SINK:
            return sink_offsets.read(spec)
        stored = self._read(spec).items()
        return OffsetsResult(source_offsets_json(stored), self._note(question, stored))

    def _note(self, question: ReadOffsets, stored: Mapping[bytes, bytes]) -> str:
        """The connector's note about these offsets."""
        committed = list(_pairs(stored))
        if not committed:
            return ""
        try:
            config, connector = self._source(question)
            return waits.one_line(str(connector.offsets_note(config, committed)))
        except Exception as error:  # noqa: BLE001 - an author's code may raise anything, and the offsets are returned anyway
            return waits.one_line(f"it is unknown now whether runs continue from these offsets: {error}")

    def _read(self, spec: RunSpec) -> SourceOffsets:
        settings = source_settings(spec)
        return stored_offsets.read(spec, settings, clients.admin(spec, settings.admin, for_worker=True), None)

    def _spec(self, question: AlterOffsets | ReadOffsets) -> RunSpec:
        return self._spec_of(question.connector, texts(question.config))

    def _spec_of(self, connector: str, config: Config) -> RunSpec:
        return self._specs.without_class(UnitId(connector, 0), TaskSpec(config, config, 1))

    def _alter_sink(self, question: AlterOffsets, deadline_s: float) -> OffsetsResult:
        named = sink_offsets.parsed(question)

        def agree(offsets: Mapping[PartitionId, int | None]) -> bool:
            config = self._specs.providers.resolve(texts(question.config)).config
            connector = self._specs.plugin(config).load()
            assert isinstance(connector, SinkConnector)
            return checked_agreement(connector.alter_offsets(config, offsets))

        return sink_offsets.change(self._claimed(question), question, named, agree, deadline_s)

    def _claimed(self, question: AlterOffsets) -> RunSpec:
        claim = self._specs.taskless(question.config_offset, question.incarnation)
        return replace(self._spec(question), claim=claim)

    def _alter_topic(self, question: AlterOffsets, deadline_s: float) -> OffsetsResult:
        # Refusals come before any request to Kafka; only resets and rewinds need the stored offsets first.
        by_stored = question.reset or question.rewind_to_ms is not None
        agreed = not by_stored and self._agree(question, _SourceChange(question, {}))
        spec = self._claimed(question)
        settings = source_settings(spec)
        admin = clients.admin(spec, settings.admin, for_worker=True)
        if question.dry_run:
            change = self._change(question, stored_offsets.read(spec, settings, admin, None).items())
            return change.result(agreed=self._agree(question, change) if by_stored else agreed)
        failures = DeliveryFailures()
        fence = Fence(clients.offsets_producer(spec, settings.producer, failures.add), spec.transactional_id)
        try:
            taking_over(fence, deadline_s)
            change = self._change(question, stored_offsets.read(spec, settings, admin, fence).items())
            if by_stored:
                agreed = self._agree(question, change)
            task_set_check.begin_check(spec, admin).verify()
            if question.prepare:  # the topics exist: reading with the fence creates them
                return replace(change.result(agreed=agreed), prepared=change.prepared(stored_offsets.topics(settings)))
            if change.records:
                with writing():
                    _write(fence, failures, stored_offsets.topics(settings), change.records)
        finally:
            fence.close()
        return change.result(agreed=agreed)

    def _agree(self, question: AlterOffsets, change: _SourceChange) -> bool:
        config, connector = self._source(question)
        return checked_agreement(connector.alter_offsets(config, change.offsets))

    def _source(self, question: AlterOffsets | ReadOffsets) -> tuple[Config, SourceConnector]:
        config = self._specs.providers.resolve(texts(question.config)).config
        connector = self._specs.plugin(config).load()
        assert isinstance(connector, SourceConnector)
        return config, connector

    def _change(self, question: AlterOffsets, stored: Mapping[bytes, bytes]) -> _SourceChange:
        """The change; for a rewind, only the connector knows which offsets it sets."""
        if question.rewind_to_ms is None:
            return _SourceChange(question, stored)
        if question.allow_forward:
            raise ConfigError("a source cannot be moved forward to a time: set its offsets")
        committed = list(_pairs(stored))
        config, connector = self._source(question)
        if not committed:
            raise ConfigError("the connector has no offsets, so there is nothing to rewind")
        back = checked_places(connector.offsets_at(config, question.rewind_to_ms, committed))
        if back is None:
            raise ConfigError(
                f"{connector.class_name} cannot be rewound to a time: with this config it does not know its "
                "position at that time; alter its offsets, or reset them to begin again"
            )
        change = _SourceChange(question, stored, back)
        if not change.records.keys() <= stored.keys():
            raise ConfigError(f"{connector.class_name} rewinds source partitions that have no offset: {list(back)}")
        return change


class _SourceChange:
    """A change of a source's offsets. `stored`: the present ones, in the bytes of the offsets topic."""

    def __init__(
        self,
        question: AlterOffsets,
        stored: Mapping[bytes, bytes],
        back: Sequence[tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]] = (),
    ) -> None:
        """`back`: the offsets that a rewind sets. Raises DataError with Connect's text."""
        self._question = question
        self._stored = stored
        #: the offsets as passed to the connector's `alter_offsets`.
        self.offsets: list[tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]] = []
        #: records of the change, by key; None removes an offset.
        self.records: _Records = {}
        if question.reset:
            # Keys are the stored bytes: another writer may order the members of a key differently.
            self.records = dict.fromkeys(stored)
            self.offsets = [(_partition(key), None) for key in stored]
            return
        asked = [(object_of(partition), object_of(offset)) for partition, offset in question.offsets]
        self.offsets = asked if question.rewind_to_ms is None else list(back)
        for partition, offset in self.offsets:
            key = offsets_topic.encode_key(question.connector, partition)
            self.records[key] = offsets_topic.encode_value(offset)

    def result(self, *, agreed: bool) -> OffsetsResult:
        """The offsets after the change, or, for a reset, before it."""
        question = self._question
        now = {key: value for key, value in {**self._stored, **self.records}.items() if value is not None}
        message = changed_message(agreed=agreed, reset=question.reset, dry_run=question.dry_run)
        return OffsetsResult(source_offsets_json(self._stored if question.reset else now), message)

    def prepared(self, topics: Sequence[str]) -> Prepared:
        """The records of the change, in each of the topics."""
        return Prepared(tuple((topic, key, value) for topic in topics for key, value in self.records.items()))


def _pairs(stored: Mapping[bytes, bytes]) -> Iterator[tuple[Mapping[str, Any] | None, Mapping[str, Any]]]:
    """The stored offsets, decoded; unreadable ones are left out, as in responses."""
    for key, value in sorted(stored.items()):
        decoded = offsets_topic.decode(key, value)
        if isinstance(decoded, offsets_topic.OffsetRecord) and decoded.offset is not None:
            yield decoded.partition, decoded.offset


def _partition(key: bytes) -> Mapping[str, Any] | None:
    decoded = offsets_topic.decode_key(key)
    assert isinstance(decoded, tuple), f"{jackson.loads(key)} is not a key of this connector"
    return decoded[1]


def _write(fence: Fence, failures: DeliveryFailures, topics: list[str], records: Mapping[bytes, bytes | None]) -> None:
    fence.begin()
    try:
        for topic in topics:
            producing.produce_all(fence.producer, topic, records)
        fence.commit()
    except (TaskFailed, KafkaException):
        failures.raise_first()  # more specific than the transaction's own error
        raise
