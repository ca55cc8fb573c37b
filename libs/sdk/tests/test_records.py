"""Tasks of single records: their batches, the order of records, and the records that are reported as committed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from herdmesh.connect.model.schemas import INT64, STRING
from herdmesh.sdk import (
    AsyncRecordSinkTask,
    Config,
    ConnectRecord,
    Header,
    RecordMetadata,
    RecordSinkTask,
    RecordSourceTask,
    RetriableError,
    Schema,
    SinkBatch,
    SourceBatch,
    SourceOffset,
    SourceRecord,
    SourceTaskContext,
    TaskContext,
)

Script = list[SourceRecord | SourceOffset | Exception | None]
"""Entries that a source returns: records and offsets; None ends a generator, and so does an error."""
SCHEMAS = (None, Schema("STRING"))


class ScriptedTask(RecordSourceTask):
    """Returns each entry of a script once."""

    def __init__(self, script: Script) -> None:
        self.script = list(script)
        self.committed: list[Any] = []

    def poll_records(self) -> Iterable[SourceRecord | SourceOffset]:
        while self.script:
            entry = self.script.pop(0)
            if entry is None:
                return
            if isinstance(entry, Exception):
                raise entry
            yield entry

    def commit_records(self, records: Sequence[SourceRecord]) -> None:
        self.committed += [record.value for record in records]


def context(records_max: int = 3) -> SourceTaskContext:
    return SourceTaskContext("c", 0, 1, "run", lambda _partition: None, poll_records_max=lambda: records_max)


def started(script: Script, records_max: int = 3) -> ScriptedTask:
    task = ScriptedTask(script)
    task.start({}, context(records_max))
    return task


def record(value: int, **more: Any) -> SourceRecord:
    given: dict[str, Any] = {"source_partition": {"file": "a"}, "source_offset": {"line": value}, **more}
    return SourceRecord("t", value, **given)


def polled(task: ScriptedTask) -> list[SourceBatch]:
    """All batches of a script, as the loop gets them: it polls again after None and after a retriable error."""
    batches: list[SourceBatch] = []
    while True:
        try:
            batch = task.poll()
        except RetriableError:
            continue
        if batch is not None:
            batches.append(batch)
        elif not task.script:
            return batches


def made(topic: str, partition: int | None, schema: Schema | None, source: float, more: Mapping[str, Any]) -> Any:
    return SourceRecord(topic, 0, {"source": source}, {}, value_schema=schema, partition=partition, **more)


RECORDS = st.builds(
    made,
    st.sampled_from("tu"),
    st.sampled_from((None, 0, 1)),
    st.sampled_from(SCHEMAS),
    st.sampled_from((1, 1.0, True)),
    st.fixed_dictionaries(
        {},
        optional={
            "key": st.just("k"),
            "key_schema": st.just(STRING),
            "timestamp_ms": st.just(7),
            "headers": st.just([Header("h", 1)]),
        },
    ),
)


OFFSETS = st.builds(SourceOffset, st.fixed_dictionaries({"source": st.sampled_from((1, 1.0))}), st.just(None))


def in_order(entries: Iterable[Any]) -> list[Any]:
    """Numbers of records, and offsets; of consecutive offsets of one partition only the last."""
    found: list[Any] = []
    for one in entries:
        if isinstance(one, int):
            found.append(one)
        else:
            offset = repr(one.source_partition), one.source_offset["at"]
            if found and isinstance(found[-1], tuple) and found[-1][0] == offset[0]:
                found.pop()
            found.append(offset)
    return found


@given(st.lists(RECORDS | OFFSETS | st.none() | st.builds(RetriableError), max_size=40), st.integers(1, 5))
def test_offsets_without_records_keep_their_place_among_records(script: Script, records_max: int) -> None:
    given_in_order = [entry for entry in script if isinstance(entry, SourceRecord | SourceOffset)]
    for number, one in enumerate(given_in_order):
        one.source_offset = {"at": number}
        if isinstance(one, SourceRecord):
            one.value = number
    task = started(script, records_max)
    batches = polled(task)
    left = in_order(entry for batch in batches for entry in (batch.values or [batch]))
    records = [one for one in given_in_order if isinstance(one, SourceRecord)]
    assert left == in_order(one.value if isinstance(one, SourceRecord) else one for one in given_in_order)
    assert all(batch.source_offset == {"at": batch.values[-1]} for batch in batches if len(batch))
    task.commit()
    assert task.committed == [one.value for one in records], "nobody hears of a record that there was not"


@given(st.lists(RECORDS | st.none() | st.builds(RetriableError), max_size=40), st.integers(1, 5))
def test_every_record_is_sent_once_in_order_despite_nones_and_errors(script: Script, records_max: int) -> None:
    wanted = [entry for entry in script if isinstance(entry, SourceRecord)]
    for number, one in enumerate(wanted):
        one.value, one.source_offset = number, {"at": number}
    batches = polled(started(script, records_max))
    assert [value for batch in batches for value in batch.values] == list(range(len(wanted)))
    assert all(len(batch) <= records_max for batch in batches)
    for batch in batches:
        records: list[SourceRecord] = [wanted[value] for value in batch.values]
        assert batch.source_offset == {"at": batch.values[-1]}
        for one in records:
            assert (one.topic, one.partition, one.value_schema) == (batch.topic, batch.partition, batch.value_schema)
            assert repr(one.source_partition) == repr(batch.source_partition)
            assert one.key_schema is batch.key_schema
        keys: Sequence[Any] = batch.keys or [None] * len(batch)
        assert list(keys) == [one.key for one in records]
        assert batch.keys or batch.key_schema is None, "null under a schema is not always nothing"
        times: Sequence[int | None] = batch.timestamps_ms or [None] * len(batch)
        assert list(times) == [one.timestamp_ms for one in records]
        nobodys: list[Any] = [[]] * len(batch)
        headers: Sequence[Any] = batch.headers or nobodys
        assert list(headers) == [list(one.headers) for one in records]


def test_records_before_an_error_are_sent_before_it_is_raised() -> None:
    """The author's position has moved past them, so a discarded record would be lost."""
    task = started([record(1), record(2), OSError("gone"), record(3)])
    batch = task.poll()
    assert batch is not None
    assert list(batch.values) == [1, 2]
    with pytest.raises(OSError, match="gone"):
        task.poll()
    batch = task.poll()
    assert batch is not None
    assert list(batch.values) == [3]


def test_only_records_handed_to_the_loop_are_reported_as_committed() -> None:
    """Two batches are polled at once, and the loop commits between them."""
    task = started([record(1), record(2, partition=1)])
    assert task.poll() is not None
    task.commit()
    assert task.committed == [1]
    assert task.poll() is not None
    task.commit()
    task.commit()
    assert task.committed == [1, 2]


class PlacingTask(ScriptedTask):
    """Wants to be notified of each record's position; raises for the second."""

    def start(self, config: Config, context: SourceTaskContext) -> None:
        super().start(config, context)
        self.places: list[tuple[Any, RecordMetadata | None]] = []

    def commit_record(self, record: SourceRecord, metadata: RecordMetadata | None) -> None:
        self.places.append((record.value, metadata))
        if len(self.places) == 2:
            raise ValueError("in commit_record")


def test_task_that_overrides_the_method_is_notified_of_each_record_position_in_order(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Also for batches that are reported in parts, as where a transaction ends within one. Other tasks have no records
    reported.
    """
    assert not started([]).wants_metadata()
    task = PlacingTask([record(1), record(2), record(3), record(4, partition=1)])
    task.start({}, context(10))
    assert task.wants_metadata()
    first, second = polled(task)
    places = [RecordMetadata("t", 0, at, 0) for at in range(2)]
    task.commit_batch(first, places)
    task.commit_batch(first, [None])
    task.commit_batch(second, places[:1])
    assert task.places == [(1, places[0]), (2, places[1]), (3, None), (4, places[0])]
    assert "the task failed in commit_record" in caplog.text
    task.commit()
    assert task.committed == [1, 2, 3, 4]


def test_a_poll_has_a_remainder_until_all_its_records_are_handed_to_the_loop() -> None:
    """All records of a list are one transaction with `transaction.boundary=poll`; of a generator, the records drawn at
    once.
    """

    class Listing(RecordSourceTask):
        def poll_records(self) -> Sequence[SourceRecord | SourceOffset]:
            return [record(1), record(2, partition=1), record(3), record(4), SourceOffset({"file": "a"}, {"line": 9})]

    listing = Listing()
    for task, wanted in (
        (listing, [True, True, True, True, False]),
        (started([record(1), record(2, partition=1), record(3, partition=1), record(4)]), [True, False, False]),
    ):
        task.start({}, context(3))
        rests: list[bool] = []
        while len(rests) < len(wanted) and task.poll() is not None:
            rests.append(task.has_rest())
        assert rests == wanted


def test_an_offset_after_its_record_does_not_end_the_reading() -> None:
    """A source may return each page's offset after the page's records: the next page comes with the next poll."""
    pages = [[record(1), record(2), SourceOffset({"file": "a"}, {"line": 2})], [record(3)]]

    class Paging(RecordSourceTask):
        def poll_records(self) -> Sequence[SourceRecord | SourceOffset]:
            return pages.pop(0) if pages else []

    task = Paging()
    task.start({}, context(10))
    found: list[tuple[list[Any], bool]] = []
    while (batch := task.poll()) is not None:
        found.append((list(batch.values), task.has_rest()))
    assert found == [([1, 2], False), ([3], False)]


def test_an_endless_generator_is_drawn_from_only_as_needed() -> None:
    asked: list[int] = []

    class Endless(RecordSourceTask):
        def poll_records(self) -> Iterable[SourceRecord]:
            number = 0
            while True:
                number += 1
                asked.append(number)
                yield record(number)

    task = Endless()
    task.start({}, context(4))
    assert [len(task.poll() or ()) for _ in range(3)] == [4, 4, 4]
    assert len(asked) == 12


def test_a_start_without_super_is_reported_with_the_call_that_is_missing() -> None:
    class Forgetful(ScriptedTask):
        def start(self, config: Config, context: SourceTaskContext) -> None:
            return

    with pytest.raises(RuntimeError, match=r"Forgetful\.start has to call super\(\)\.start\(config, context\)"):
        Forgetful([]).poll()


class Reports:
    """A reporter that records its calls."""

    def __init__(self) -> None:
        self.seen: list[tuple[SinkBatch, int, str]] = []

    def report(self, batch: SinkBatch, index: int, error: BaseException) -> Future[None]:
        self.seen.append((batch, index, str(error)))
        return Future()

    def flush_dead_letters(self) -> None:
        return


class PickySink(RecordSinkTask):
    """Reports every value that is no number as an errant record."""

    def start(self, config: Config, context: TaskContext) -> None:
        super().start(config, context)
        self.records: list[ConnectRecord] = []

    def put_records(self, records: Sequence[ConnectRecord]) -> None:
        for one in records:
            if isinstance(one.value, int):
                self.records.append(one)
            else:
                self.report(one, ValueError(f"no number: {one.value}"))

    def flush(self) -> None:
        return


class AwaitingPickySink(AsyncRecordSinkTask):
    """The same in coroutines."""

    async def start_async(self, config: Config, context: TaskContext) -> None:
        await super().start_async(config, context)
        self.records: list[ConnectRecord] = []

    async def put_records_async(self, records: Sequence[ConnectRecord]) -> None:
        for one in records:
            if isinstance(one.value, int):
                self.records.append(one)
            else:
                self.report(one, ValueError(f"no number: {one.value}"))

    async def flush_async(self) -> None:
        return


def sink_batch(values: Sequence[Any]) -> SinkBatch:
    count = len(values)
    return SinkBatch("t", 1, 5, 5 + count, values, ["k"] * count, list(range(5, 5 + count)), [7] * count)


def test_a_sink_gets_records_with_their_positions() -> None:
    task = PickySink()
    task.start({}, TaskContext("c", 0, 1, "connect-c", "run"))
    task.put(sink_batch([10, 11]))
    found = [(one.topic, one.partition, one.offset, one.key, one.value, one.timestamp_ms) for one in task.records]
    assert found == [("t", 1, 5, "k", 10, 7), ("t", 1, 6, "k", 11, 7)]
    task.put(replace(sink_batch([12]), topic="routed", original_topic="t"))
    assert [(one.topic, one.original_topic) for one in task.records] == [("t", "t"), ("t", "t"), ("routed", "t")]
    with pytest.raises(ValueError, match="no number: x"):
        task.put(sink_batch(["x"]))


@pytest.mark.parametrize("sink", [PickySink, AwaitingPickySink])
def test_an_errant_record_is_reported_with_its_own_position_among_equal_records(
    sink: type[PickySink | AwaitingPickySink],
) -> None:
    reports, task = Reports(), sink()
    task.start({}, TaskContext("c", 0, 1, "connect-c", "run", reports))
    batch = sink_batch([1, "x", "x", 2])
    task.put(batch)
    task.stop()
    assert [one.value for one in task.records] == [1, 2]
    assert [(index, text) for _, index, text in reports.seen] == [(1, "no number: x"), (2, "no number: x")]
    assert all(given is batch for given, _, _ in reports.seen)


def test_a_changed_record_reported_later_is_reported_as_it_was_read() -> None:
    reports, task = Reports(), PickySink()
    task.start({}, TaskContext("c", 0, 1, "connect-c", "run", reports))
    first = sink_batch([1, 2])
    task.put(first)
    task.put(sink_batch([3]))
    changed = msgspec.structs.replace(task.records[1], topic="elsewhere", value="made of 2")
    task.report(changed, ValueError("late"))
    [(batch, index, text)] = reports.seen
    assert (batch is first, index, text) == (True, 1, "late")


def test_a_record_created_by_the_task_is_reported_as_created() -> None:
    reports, task = Reports(), PickySink()
    task.start({}, TaskContext("c", 0, 1, "connect-c", "run", reports))
    task.put(sink_batch([1]))
    given = task.records[0]
    headers = [Header("h", 1, INT64)]
    copied = ConnectRecord("t", 1, "k", 1, 7, headers, STRING, INT64, 5)
    assert ConnectRecord("t", 1, "k", 1, 7, [], None, None, 5) == given, "a record made anew is no other for its origin"
    for made in (copied, ConnectRecord("bare")):
        task.report(made, ValueError("made"))
    assert [batch for batch, _, _ in reports.seen] == [
        SinkBatch("t", 1, 5, 5, [1], ["k"], [5], [7], [headers], STRING, INT64),
        SinkBatch("bare", -1, -1, -1, [None], [None], [-1], [None], [[]]),
    ]
    assert not any(len(batch.originals) or index for batch, index, _ in reports.seen)


def test_partitions_that_differ_in_bytes_share_no_batch() -> None:
    partitions: list[Mapping[str, Any]] = [{"a": 1, "b": 2}, {"b": 2, "a": 1}, {"a": 1.0, "b": 2}]
    task = started([record(number, source_partition=one) for number, one in enumerate(partitions)])
    assert [batch.source_partition for batch in polled(task)] == partitions
