"""Offsets of a sink, committed by its consumer group: read, and changed on request.

Owns the requests to the group and the change. Offsets that are set are committed in one transaction of the
transactional id of the connector's task 0, all or nothing. Offsets that are removed go in one request after it, and a
reset deletes the whole group. Where offsets are both set and removed, the transaction is first, because a fence can
refuse it; a failure after it is reported as an unknown outcome. A change that is only prepared does everything before
the transaction and returns its content, with the metadata of each offset. No transaction can remove an offset, so
preparing a removal is refused.

Departs from Connect: an offset must lie within its partition's records (unless `herdmesh.offsets.missing=reset`),
because a task would fail on it. A rewind moves no partition forward unless that is allowed. The metadata of the last
commit (the files it staged) is kept with the new offset, because the files may still have to be published. With a
client that cannot remove single offsets (`engine.librdkafka.delete_group_offsets`), only all offsets of a group can be
removed, and none beside one that is set.

The calls block and run authors' code. Invariant: nothing is written, or returned for writing, before the id is taken
over, the connector's own `alter_offsets` has agreed, and a check of the config topic after that has found no tasks. No
fence protects a removal. It therefore does not begin once the caller's deadline has passed, and is not retried without
another check of the config topic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec  # the package re-exports it, but not for type checkers

from herdmesh.connect.error_class import ErrorClass
from herdmesh.connect.errors import ConfigError
from herdmesh.connect.spi import PartitionId
from herdmesh.engine.fencing import Fence, GroupFinisher, task_set_check
from herdmesh.engine.librdkafka import clients, delete_group_offsets, group_offsets
from herdmesh.engine.runtime import ForeignMembers, ManifestInvalid, RunSpec, SinkSettings, TaskFailed, sink_settings
from herdmesh.engine.sink import earlier_topics_note, manifest, partitions
from herdmesh.kafka.groups import delete_group, find_coordinator
from herdmesh.kafka.listed_offsets import list_offsets
from herdmesh.session.worker_commands import AlterOffsets
from herdmesh.worker.effects.offsets.offset_forms import (
    LATER,
    OffsetsResult,
    Prepared,
    changed_message,
    sink_offsets,
    sink_offsets_json,
)
from herdmesh.worker.effects.offsets.offset_write_outcome import WriteProgress, refuse_late, taking_over, writing

_NOT_THERE: Final = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)
_MEMBERS: Final = (KafkaError.NON_EMPTY_GROUP, KafkaError.GROUP_SUBSCRIBED_TO_TOPIC)
_NAMED_MAX: Final = 20
"""Limit of partitions named in one message."""
_NOTHING_GONE: Final = "nothing was forgotten"
Agree = Callable[[Mapping[PartitionId, int | None]], bool]
"""Call of the connector's own `alter_offsets`: True = it has verified the offsets. Raises its refusal."""


def read(spec: RunSpec) -> OffsetsResult:
    """The offsets that the group has committed; empty when there is no group."""
    settings = sink_settings(spec)
    admin = clients.admin(spec, settings.access, for_worker=True)
    consumer = clients.consumer(spec, settings.group, settings.consumer, for_worker=True)
    try:
        found = clients.retried(lambda: group_offsets(consumer, admin, settings.group, clients.CALL_TIMEOUT_S))
        said = {one.partition: _topic_id(one.metadata) for one in found}
        now = partitions.topic_ids(admin, {topic for (topic, _), one in said.items() if one})
        earlier = [(topic, number) for (topic, number), one in said.items() if one and now.get(topic, one) != one]
        return OffsetsResult(
            sink_offsets_json({one.partition: one.offset for one in found}), earlier_topics_note(earlier)
        )
    finally:
        clients.close_in_background(consumer)


def parsed(question: AlterOffsets) -> dict[PartitionId, int | None]:
    """The offsets named in the request. Raises ConfigError, DataError with Connect's texts."""
    return sink_offsets(question.offsets)


def change(
    spec: RunSpec, question: AlterOffsets, named: Mapping[PartitionId, int | None], agree: Agree, deadline_s: float
) -> OffsetsResult:
    """Change the group's offsets as requested, or prepare the change.

    Returns the offsets after the change, or, after a reset, those before it; of a prepared change, those after its
    write.

    Raises:
        ConfigError: an invalid partition or offset, or the removal of an offset in a change that is to be prepared.
        TaskFailed: Kafka did not accept them, or another process owns the group or the id. `OutcomeUnknown`: the
            outcome is unknown.
        Exception: any error of the connector's own `alter_offsets`.
    """
    settings = sink_settings(spec)
    admin = clients.admin(spec, settings.access, for_worker=True)
    _refuse_members(admin, settings.group)
    consumer = clients.consumer(spec, settings.group, settings.consumer, for_worker=True)
    try:
        before = _committed(consumer, admin, settings.group)
        wanted = _wanted(admin, consumer, settings, question, named, before)
        _check(admin, settings, wanted)
        _refuse_forward(question, before, wanted)
        work = _Change(spec, settings, admin, consumer, wanted, question)
        agreed, prepared = False, None
        if question.dry_run:
            _forgotten(settings.group, before, wanted)
        else:
            before, agreed, prepared = work.carry_out(before, agree, deadline_s)
    finally:
        consumer.close()
    after = {**before, **wanted}
    shown = before if question.reset else {partition: at for partition, at in after.items() if at is not None}
    message = changed_message(agreed=agreed, reset=question.reset, dry_run=question.dry_run)
    ahead = "" if question.rewind_to_ms is None else _ahead(before, wanted)
    return OffsetsResult(sink_offsets_json(shown), f"{message} (forward: {ahead})" if ahead else message, prepared)


@dataclass
class _Change:
    """One checked change of one group, and its clients."""

    spec: RunSpec
    settings: SinkSettings
    admin: AdminClient
    consumer: Consumer
    wanted: Mapping[PartitionId, int | None]
    question: AlterOffsets

    def carry_out(
        self, before: Mapping[PartitionId, int], agree: Agree, deadline_s: float
    ) -> tuple[dict[PartitionId, int], bool, Prepared | None]:
        """Write or prepare the change. Returns the offsets committed before, as the fence's owner reads them, whether
        the connector agreed, and the prepared records, None = they are written.
        """
        fence = Fence(clients.offsets_producer(self.spec, self.settings.access), self.spec.transactional_id)
        try:
            taking_over(fence, deadline_s)
            hung = GroupFinisher(self.spec, self.settings.consumer, self.settings.group, fence, self.admin)
            stable = partitions.committed(self.consumer, sorted({*before, *self.wanted}), hung)
            known = {partition: offset for partition, (offset, _) in stable.items() if offset is not None}
            _refuse_forward(self.question, known, self.wanted)
            if self.question.prepare:  # before `alter_offsets`, which may change offsets elsewhere
                _refuse_forgetting(self.settings.group, known, self.wanted)
            forgotten = _forgotten(self.settings.group, known, self.wanted)
            agreed = agree(self.wanted)
            self._require_unchanged()
            if forgotten:
                refuse_late(deadline_s, "the connector's alter_offsets, or Kafka,")
            entries = self._entries(stable)
            if self.question.prepare:
                return known, agreed, Prepared(group=self.settings.group, group_offsets=entries)
            written = [TopicPartition(*entry) for entry in entries]
            with writing() as progress:
                if written:
                    fence.commit_offsets(written, self.consumer.consumer_group_metadata())
                    progress.already = f"{len(written)} offsets of group {self.settings.group} are set"
                    # Kafka acknowledges the commit before the group has it: wait, so that the next read finds the
                    # offsets.
                    partitions.committed(self.consumer, [(one.topic, one.partition) for one in written], hung)
                if forgotten:
                    self._forget(forgotten, deadline_s, progress)
            return known, agreed, None
        finally:
            fence.close()

    def _entries(self, stable: Mapping[PartitionId, tuple[int | None, str]]) -> tuple[tuple[str, int, int, str], ...]:
        """The offsets to commit, with the metadata of the last commit; for a recreated topic, with the present topic
        id. A task ignores an offset whose metadata has the id of another topic.
        """
        said = {topic for (topic, _), (_, text) in stable.items() if manifest.topic_id_of(text)}
        ids = partitions.topic_ids(self.admin, said & {topic for topic, _ in self.wanted})
        return tuple(
            (topic, number, offset, _of_topic(stable[topic, number][1], ids.get(topic, "")))
            for (topic, number), offset in self.wanted.items()
            if offset is not None
        )

    def _require_unchanged(self) -> None:
        """Raise TaskFenced when, since this request, the connector got tasks or another change was begun."""
        task_set_check.begin_check(self.spec, self.admin, self.consumer).verify()

    def _forget(self, forgotten: Sequence[PartitionId], deadline_s: float, progress: WriteProgress) -> None:
        """Remove these offsets from the group, or delete it. The caller may send the request to another worker while
        Kafka does not answer this one; the config topic shows what that worker began.
        """
        group = self.settings.group
        whole = self.question.reset or not delete_group_offsets.is_possible()
        what = f"group {group} is deleted" if whole else f"{len(forgotten)} offsets of group {group} are deleted"
        before = progress.already and f"{progress.already}, and "
        tried = False

        def gone() -> None:
            nonlocal tried
            if tried:
                progress.already = f"{before}perhaps {what}"
            find_coordinator(self.admin, group, clients.CALL_TIMEOUT_S)
            if tried:
                self._require_unchanged()
            refuse_late(deadline_s, "Kafka", f"whether {what} is not known" if tried else _NOTHING_GONE)
            tried = True
            if whole:
                delete_group(self.admin, group, clients.CALL_TIMEOUT_S)
                return
            refused = delete_group_offsets.forget(self.admin, group, forgotten, clients.CALL_TIMEOUT_S)
            if refused:
                if len(refused) < len(forgotten):
                    progress.already = f"{before}{len(forgotten) - len(refused)} offsets of group {group} are deleted"
                raise KafkaException(next(iter(refused.values())))

        try:
            clients.retried(gone)
        except KafkaException as error:
            if error.args[0].code() in _MEMBERS:  # members joined meanwhile
                _refuse_members(self.admin, group)
            if error.args[0].code() != KafkaError.GROUP_ID_NOT_FOUND:
                raise


def _topic_id(text: str) -> str:
    """Id of the topic for which an offset with this metadata was committed; "" = unknown."""
    try:
        return manifest.topic_id_of(text)
    except ManifestInvalid:
        return ""


def _of_topic(text: str, topic_id: str) -> str:
    """The metadata with this topic id; unchanged if either id is "" (unknown)."""
    said = manifest.topic_id_of(text)
    return manifest.encode(manifest.decode(text), topic_id) if said and topic_id not in ("", said) else text


def _committed(consumer: Consumer, admin: AdminClient, group: str) -> dict[PartitionId, int]:
    found = clients.retried(lambda: group_offsets(consumer, admin, group, clients.CALL_TIMEOUT_S))
    return {one.partition: one.offset for one in found}


def _wanted(
    admin: AdminClient,
    consumer: Consumer,
    settings: SinkSettings,
    question: AlterOffsets,
    named: Mapping[PartitionId, int | None],
    before: Mapping[PartitionId, int],
) -> dict[PartitionId, int | None]:
    if question.reset:
        return dict.fromkeys(before)
    if question.rewind_to_ms is None:
        return dict(named)
    found = partitions.owned_partitions(consumer, settings, 0, 1).partitions
    if not found:
        raise ConfigError("the connector's topics do not exist, so there is nothing to rewind", field="topics")
    return _offsets_at(admin, found, question.rewind_to_ms)


def _offsets_at(admin: AdminClient, asked: Iterable[PartitionId], time_ms: int) -> dict[PartitionId, int | None]:
    """The offset of each partition's first record at or after this time; the end offset where there is none."""
    listed = [TopicPartition(topic, number) for topic, number in asked]

    def answered(spec: Any, of: list[TopicPartition]) -> dict[PartitionId, int]:
        found = list_offsets(admin, dict.fromkeys(of, spec), timeout_s=clients.CALL_TIMEOUT_S)
        return {(one.topic, one.partition): future.result().offset for one, future in found.items()}

    starts = clients.retried(lambda: answered(OffsetSpec.for_timestamp(time_ms), listed))
    later = [one for one in listed if starts[one.topic, one.partition] < 0]
    if later:
        starts |= clients.retried(lambda: answered(OffsetSpec.latest(), later))
    return dict(starts)


def _refuse_members(admin: AdminClient, group: str) -> None:
    try:
        partitions.refuse_members(admin, group)
    except ForeignMembers as error:
        raise TaskFailed(
            f"{error}. Either its tasks have not stopped completely yet or another consumer uses its group; repeat the "
            "request once they have left",
            ErrorClass.BAD_CONFIG,
        ) from error


def _check(admin: AdminClient, settings: SinkSettings, wanted: Mapping[PartitionId, int | None]) -> None:
    """Raise ConfigError for a partition that does not exist, or an offset that a task would fail on."""
    given = {partition: offset for partition, offset in wanted.items() if offset is not None}
    try:
        ranges = partitions.ranges(admin, {partition: (offset, "") for partition, offset in given.items()})
    except KafkaException as error:
        cause: KafkaError = error.args[0]
        if cause.code() not in _NOT_THERE:
            raise
        named = ", ".join(f"{topic}-{number}" for topic, number in sorted(given))
        raise ConfigError(f"not all of these partitions exist: {named}; create their topics first") from error
    if settings.reset_missing:
        return
    for (topic, number), known in sorted(ranges.items()):
        if not known.beginning <= given[topic, number] <= known.end:
            raise ConfigError(
                f"offset {given[topic, number]} of {topic}-{number} is outside of its records {known.beginning} to "
                f"{known.end}: the task would fail"
            )


def _refuse_forward(
    question: AlterOffsets, committed: Mapping[PartitionId, int], wanted: Mapping[PartitionId, int | None]
) -> None:
    """Raise ConfigError for a rewind that would skip unread records, unless that is allowed."""
    ahead = "" if question.rewind_to_ms is None or question.allow_forward else _ahead(committed, wanted)
    if ahead:
        raise ConfigError(
            f"by this time a rewind would go forward, past records that were not read yet: {ahead}; name an earlier "
            "time, or allow it with allow_forward (`herd offsets rewind --allow-forward`)",
            field="time",
        )


def _ahead(committed: Mapping[PartitionId, int], wanted: Mapping[PartitionId, int | None]) -> str:
    """The partitions that would move forward, from where to where; "" = none."""
    found = [
        f"{topic}-{number} is at {committed[topic, number]} and goes to {offset}"
        for (topic, number), offset in sorted(wanted.items())
        if offset is not None and offset > committed.get((topic, number), offset)
    ]
    more = len(found) - _NAMED_MAX
    return ", ".join(found[:_NAMED_MAX]) + (f", and {more} more" if more > 0 else "")


def _refuse_forgetting(group: str, committed: Iterable[PartitionId], wanted: Mapping[PartitionId, int | None]) -> None:
    """Raise ConfigError when the change removes committed offsets."""
    known = set(committed)
    found = sorted(partition for partition, offset in wanted.items() if offset is None and partition in known)
    if found:
        named = ", ".join(f"{topic}-{number}" for topic, number in found[:_NAMED_MAX])
        raise ConfigError(
            f"group {group} has offsets that are to be deleted ({named}), which cannot be part of the write that "
            f"creates the connector: {LATER}; or set each to where it is to begin"
        )


def _forgotten(
    group: str, committed: Iterable[PartitionId], wanted: Mapping[PartitionId, int | None]
) -> list[PartitionId]:
    """The partitions with committed offsets to remove. Raises ConfigError where the client can only remove all offsets
    together, and some are to remain.
    """
    known = set(committed)
    found = sorted(partition for partition, offset in wanted.items() if offset is None and partition in known)
    stay = known.union(wanted).difference(partition for partition, offset in wanted.items() if offset is None)
    if found and stay and not delete_group_offsets.is_possible():
        others = ", ".join(f"{topic}-{number}" for topic, number in sorted(stay)[:_NAMED_MAX])
        raise ConfigError(
            f"offsets of single partitions cannot be deleted with this Kafka client while group {group} has, or is "
            f"given, others ({others}): set each to where it is to begin, or reset them all"
        )
    return found
