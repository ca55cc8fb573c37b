"""Identity of an errant record: the record that was read, or one that the task created; without a broker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_NOT_AVAILABLE, Message
from confluent_kafka.admin import AdminClient

from herdmesh.connect.chain.chain_config import sink_chain
from herdmesh.connect.errors import DataError
from herdmesh.connect.model.data import Header
from herdmesh.connect.model.schemas import INT64, STRING
from herdmesh.connect.spi.connector import SinkBatch
from herdmesh.connect.task_counts import ErrorCounts
from herdmesh.engine.bad_records.errant_records import ErrantRecords
from herdmesh.engine.bad_records.record_errors import SinkErrors
from herdmesh.engine.bad_records.tolerance import Counts, FailedRecords, error_settings
from libs.core.tests.engine.harness import make_spec
from libs.core.tests.engine.heard import Heard

CHAIN = sink_chain({"key.converter": "StringConverter", "value.converter": "LongConverter"})


class World:
    """A task's reporter, and the recorded failures."""

    def __init__(self) -> None:
        self.counts = Counts()
        self.heard = Heard()
        failed = FailedRecords(error_settings({"errors.tolerance": "all"}), self.counts, [self.heard])
        self.records = ErrantRecords(failed, lambda: None, CHAIN)

    def reported(self, batch: SinkBatch, index: int = 0) -> Message:
        self.records.report(batch, index, ValueError("x"))
        record = self.heard.failures[-1].record
        assert isinstance(record, Message)
        return record


def read(*offsets: int) -> list[Message]:
    """Tombstones, which are falsy in Python."""
    return [Message(topic="t", partition=1, offset=one, key=b"k", value=None) for one in offsets]


def given(offsets: Sequence[int], originals: Sequence[Message]) -> SinkBatch:
    count = len(offsets)
    return SinkBatch(
        "routed", 1, 3, 9, [None] * count, ["k"] * count, offsets, [7] * count, original_topic="t", originals=originals
    )


def test_an_errant_record_that_was_read_is_reported_as_that_message() -> None:
    world, originals = World(), read(3, 5, 6, 9)
    batch = given([3, 6], originals)
    assert world.reported(batch, 1) is originals[2]
    assert world.reported(replace(batch, values=["other", "values"], topic="made"), 0) is originals[0]
    with pytest.raises(IndexError):
        world.records.report(batch, 2, ValueError("x"))


def test_an_errant_record_created_by_the_task_is_written_by_the_converters() -> None:
    world, headers = World(), [Header("a", 1, INT64), Header("a", None)]
    batch = SinkBatch("made", 4, 0, 8, [2, -1], ["k", None], [0, 8], [None, 77], [headers, []], STRING, INT64)
    first, second = world.reported(batch), world.reported(batch, 1)
    assert (first.topic(), first.partition(), first.offset()) == ("made", 4, 0)
    assert (first.key(), first.value(), first.headers()) == (b"k", b"\0" * 7 + b"\2", [("a", b"1"), ("a", None)])
    assert first.timestamp()[0] == TIMESTAMP_NOT_AVAILABLE
    assert (second.offset(), second.key(), second.value()) == (8, None, b"\xff" * 8)
    assert second.timestamp() == (TIMESTAMP_CREATE_TIME, 77)
    assert not second.headers()
    moved = replace(given([3], read(3)), offsets=[4], values=[1], value_schema=INT64)
    assert world.reported(moved).value() == b"\0" * 7 + b"\1", "at an offset that was not read"


def test_an_errant_record_the_converters_cannot_write_raises_and_is_not_counted() -> None:
    world = World()
    with pytest.raises(DataError, match="Failed to serialize to long"):
        world.records.report(SinkBatch("made", 0, 0, 0, ["text"], [], [0], [], (), None, STRING), 0, ValueError("x"))
    with pytest.raises(ValueError, match="needs a topic"):
        world.records.report(SinkBatch("", 0, 0, 0, [1], [], [0], [], (), None, INT64), 0, ValueError("x"))
    assert (world.counts.so_far(), world.heard.failures, world.records.is_ending) == (ErrorCounts(), [], False)


def test_a_report_is_done_once_its_dead_letter_is_acknowledged_and_waiting_settles_it() -> None:
    """Only the waiting task itself can settle dead letters meanwhile; a report that the task cancelled is left out."""
    world, settled = World(), list[int]()
    batch = given([5], read(5))

    def settle() -> None:
        settled.append(len(world.heard.failures))
        world.records.complete_reports()

    world.records.flush_dead_letters = settle
    first, second, third = (world.records.report(batch, 0, ValueError("x")) for _ in range(3))
    assert third.cancel()
    assert not first.done()
    assert second.result() is None
    assert (first.done(), settled) == (True, [3])
    assert first.result() is None
    assert settled == [3]


def test_the_commit_that_waits_for_dead_letters_completes_their_reports() -> None:
    spec = make_spec("127.0.0.1:1", "c", "x:Y", {"topics": "t", "errors.tolerance": "all", "errors.log.enable": "true"})
    errors = SinkErrors(spec, cast("AdminClient", None), CHAIN)
    assert errors.reporter is not None
    told = errors.reporter.report(given([5], read(5)), 0, ValueError("x"))
    assert not told.done()
    errors.flush_dead_letters()
    assert told.done()
