"""Dead letters in a real queue: listed page by page, and replayed exactly once, whoever requests it how often."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest
from confluent_kafka import Message, Producer

from herdmesh.api.herder.v1 import admin_messages_pb2 as pb
from herdmesh.connect.error_class import ErrorClass
from herdmesh.connect.errors import ConfigError, DataError
from herdmesh.connect.model.data import Batch, Header, Int32
from herdmesh.connect.model.schemas import INT32, OPTIONAL_STRING
from herdmesh.connect.plugins.plugin_registry import PluginRegistry
from herdmesh.connect.topics.error_headers import ERROR_HEADER_PREFIX
from herdmesh.engine.bad_records.dead_letters import SourceDeadLetters
from herdmesh.engine.bad_records.tolerance import Counts, Failure, SourceRecord, error_settings
from herdmesh.engine.delivery.delivery_reports import DeliveryFailures
from herdmesh.engine.delivery.source_delivery import SourceDelivery
from herdmesh.engine.fencing.fence import Fence
from herdmesh.engine.librdkafka import clients
from herdmesh.engine.runtime.errors import TaskFenced
from herdmesh.engine.runtime.failure import classify
from herdmesh.kafka.checked_producer import CheckedProducer
from herdmesh.session.model import UnitId
from herdmesh.session.worker_commands import ListDeadLettersOnWorker, ReplayOnWorker
from herdmesh.worker.effects.dead_letters import queue_reader, replay
from herdmesh.worker.effects.dead_letters.replay import replay_spec
from herdmesh.worker.effects.dead_letters.requests import DeadLetters
from herdmesh.worker.effects.offsets.offset_file import OffsetFile
from herdmesh.worker.effects.runs.specs import RunSpecs
from herdmesh.worker.settings import WorkerSettings
from herdmesh.worker.state.dead_letter_headers import CUT, REPLAYED
from herdmesh.worker.state.model import Config, TaskSpec
from libs.core.tests.engine.harness import Kafka

pytestmark = pytest.mark.kafka
TEXT = "org.apache.kafka.connect.storage.StringConverter"
JSON = "org.apache.kafka.connect.json.JsonConverter"


@dataclass
class Here:
    """A worker, a sink `a` of topic `topic` (3 partitions), its queue, and hand-made dead letters in it."""

    kafka: Kafka
    specs: RunSpecs
    topic: str
    queue: str
    offset_file: OffsetFile | None = None
    name: str = "a"

    @property
    def config(self) -> Config:
        return {
            "name": self.name, "connector.class": "FileStreamSink", "topics": self.topic, "file": "/nowhere",
            "key.converter": TEXT, "value.converter": TEXT, "errors.deadletterqueue.topic.name": f" {self.queue} ",
        }  # fmt: skip

    def letters(
        self,
        *values: bytes | None,
        transactional_id: str = "",
        without: Sequence[str] = (),
        is_cut: bool = False,
        **errors: str,
    ) -> None:
        """Produce dead letters of offsets 100, 101, ... of the topic's partition 1, with a key and a time."""
        config: dict[str, Any] = {"bootstrap.servers": self.kafka.bootstrap}
        if transactional_id:
            config["transactional.id"] = transactional_id
        producer = Producer(config)
        if transactional_id:
            producer.init_transactions()
            producer.begin_transaction()
        for number, value in enumerate(values):
            told = {
                "topic": self.topic, "partition": "1", "offset": str(100 + number), "connector.name": self.name,
                "task.id": "0", "stage": "VALUE_CONVERTER", "class.name": JSON, "exception.message": "not JSON",
                "exception.class.name": "org.apache.kafka.connect.errors.DataException",
                "exception.stacktrace": "Trace\n\tat x\n", **errors,
            }  # fmt: skip
            headers: list[Any] = [("own", b"1"), ("none", None), *([(CUT, b"{}")] if is_cut else [])]
            headers += [
                (ERROR_HEADER_PREFIX + name.replace("_", "."), text)
                for name, text in told.items()
                if name not in without
            ]
            key = f"k{number}".encode()
            producer.produce(self.queue, value, key, partition=0, timestamp=1_700_000_000_000 + number, headers=headers)
        if transactional_id:
            producer.commit_transaction()
        producer.flush()
        self.kafka.settled(self.queue, 1)

    def list(self, **more: Any) -> pb.ListDeadLettersResponse:
        request = pb.ListDeadLettersRequest(name=self.name, **more)
        return asyncio.run(
            DeadLetters(self.specs, self.offset_file).listed(ListDeadLettersOnWorker(self.config, request))
        )

    def places(self, **more: Any) -> list[str]:
        return [f"{letter.partition}:{letter.offset}" for letter in self.list(**more).letters]

    def replay(self, *offsets: int, config: Config | None = None, **more: Any) -> pb.ReplayDeadLettersResponse:
        named = [pb.DeadLetter(partition=0, offset=offset) for offset in offsets]
        request = pb.ReplayDeadLettersRequest(name=self.name, letters=named, **more)
        question = ReplayOnWorker(config or self.config, request)
        return asyncio.run(DeadLetters(self.specs, self.offset_file).replayed(question))

    def put_back(self) -> list[Message]:
        """The records in the topic now, in the order of offsets."""
        return sorted(self.kafka.messages(self.topic, 3), key=lambda message: message.offset() or 0)


@pytest.fixture
def here(kafka_bootstrap: str, tmp_topic: Callable[..., str]) -> Here:
    kafka = Kafka(kafka_bootstrap)
    settings = WorkerSettings(
        bootstrap_servers=kafka_bootstrap,
        group_id=tmp_topic("cluster"),
        offset_storage_topic=tmp_topic("offsets"),
        offset_storage_partitions=2,
        offset_storage_replication_factor=1,
    )
    topic, queue = kafka.create_topic(tmp_topic(), 3), kafka.create_topic(tmp_topic("dlq"), 1)
    return Here(kafka, RunSpecs(settings, PluginRegistry.discover()), topic, queue)


def headers_of(message: Message) -> Sequence[Any]:
    return cast("Sequence[Any]", message.headers() or [])


# --- listing


def test_a_dead_letter_has_all_fields_and_a_brief_one_those_of_a_list(here: Here) -> None:
    here.letters(b"\xff\x00", None)
    reply = here.list()
    tombstone, letter = reply.letters
    assert (reply.topic, reply.next_page_token) == (here.queue, "")
    assert (letter.partition, letter.offset, letter.key, letter.value) == (0, 0, b"k0", b"\xff\x00")
    assert (tombstone.HasField("value"), tombstone.key, letter.replayed) == (False, b"k1", False)
    assert letter.time.ToMilliseconds() == 1_700_000_000_000
    assert [(one.name, one.value, one.HasField("value")) for one in letter.headers] == [
        ("own", b"1", True),
        ("none", b"", False),
    ]
    assert letter.error_headers[f"{ERROR_HEADER_PREFIX}topic"] == here.topic
    assert letter.error_headers[f"{ERROR_HEADER_PREFIX}exception.stacktrace"] == "Trace\n\tat x\n"
    brief = here.list(view=pb.DEAD_LETTER_VIEW_BRIEF).letters[1]
    assert brief.error_headers[f"{ERROR_HEADER_PREFIX}stage"] == "VALUE_CONVERTER"
    assert (brief.key, brief.value, list(brief.headers)) == (b"", b"", [])
    assert f"{ERROR_HEADER_PREFIX}exception.stacktrace" not in brief.error_headers


def test_pages_go_back_from_the_newest_and_are_stable_when_dead_letters_arrive(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_reader, "_WINDOW_FIRST", 4)
    here.letters(*(b"%d" % number for number in range(7)), transactional_id=here.queue)
    here.letters(b"other", connector_name="b")  # after a transaction marker, and of another connector
    first = here.list(page_size=3)
    assert [letter.offset for letter in first.letters] == [6, 5, 4]
    here.letters(b"new")
    second = here.list(page_size=3, page_token=first.next_page_token)
    third = here.list(page_size=3, page_token=second.next_page_token)
    assert [letter.offset for letter in (*second.letters, *third.letters)] == [3, 2, 1, 0]
    assert third.next_page_token == ""
    assert here.places(page_size=2) == ["0:9", "0:6"]
    with pytest.raises(ConfigError, match="is not a page token"):
        here.list(page_token="x")


def test_a_page_is_bounded_by_its_bytes_and_its_scan_budget(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    here.letters(*(bytes(1_000) for _ in range(6)))
    here.letters(b"x", b"y", connector_name="b")
    monkeypatch.setattr(queue_reader, "PAGE_BYTES", 3_000)
    monkeypatch.setattr(queue_reader, "WINDOW_BYTES", 3_000)
    found, token, pages = list[int](), "", 0
    while pages == 0 or token:
        reply = here.list(page_token=token)
        found += [letter.offset for letter in reply.letters]
        token, pages = reply.next_page_token, pages + 1
    assert found == [5, 4, 3, 2, 1, 0]
    assert pages >= 3
    monkeypatch.setattr(queue_reader, "SCAN_RECORDS_MAX", 1)
    monkeypatch.setattr(queue_reader, "_WINDOW_FIRST", 2)
    empty = here.list()
    assert (list(empty.letters), empty.next_page_token != "") == ([], True)
    assert here.list(page_token=empty.next_page_token).letters[0].offset == 5


def test_dead_letters_are_listed_by_filter_and_by_place(here: Here) -> None:
    here.letters(b"a")
    here.letters(b"b", stage="TASK_PUT", exception_message="Duplicate key")
    here.letters(b"c", connector_name="b")
    here.letters(b"d", without=("connector.name", "topic", "stage"))
    assert here.places() == ["0:3", "0:1", "0:0"]
    assert here.places(stage="task_put") == ["0:1"]
    assert here.places(error="duplicate") == ["0:1"]
    named = [pb.DeadLetterPlace(partition=part, offset=offset) for part, offset in ((0, 1), (0, 2), (0, 99), (7, 0))]
    assert here.places(places=named) == ["0:1"]


def test_a_missing_queue_gives_an_error_with_the_next_step(here: Here) -> None:
    dead = DeadLetters(here.specs, None)
    request = pb.ListDeadLettersRequest(name="a")
    without: Config = {**here.config, "errors.deadletterqueue.topic.name": ""}
    with pytest.raises(ConfigError, match="it has no dead letter queue: set errors"):
        asyncio.run(dead.listed(ListDeadLettersOnWorker(without, request)))
    here.queue += "-nowhere"
    with pytest.raises(ConfigError, match="a task creates it when it starts"):
        here.list()


# --- replay


def test_all_dead_letters_are_replayed_once_to_their_partition_and_leave_the_list(here: Here) -> None:
    here.letters(b"v0", None, transactional_id=here.queue)
    here.letters(b"other", connector_name="b")
    reply = here.replay(request_id="r1")
    assert (reply.replayed_count, list(reply.refused), reply.next_page_token) == (2, [], "")
    assert [(one.place.offset, one.topic, one.partition) for one in reply.replayed] == [
        (0, here.topic, 1),
        (1, here.topic, 1),
    ]
    first, second = here.put_back()
    assert (first.partition(), first.key(), first.value(), second.value()) == (1, b"k0", b"v0", None)
    assert first.timestamp()[1] == 1_700_000_000_000
    assert headers_of(first) == [("own", b"1"), ("none", None), (REPLAYED, f"{here.queue}-0@0".encode())]
    assert here.places() == []
    assert [letter.replayed for letter in here.list(include_replayed=True).letters] == [True, True]
    # a repeated request has the same outcome, also when dead letters arrived meanwhile; a new request replays the new
    # ones
    here.letters(b"v2")
    assert here.replay(request_id="r1").replayed_count == 2
    assert here.replay(request_id="r2").replayed_count == 1
    assert [message.value() for message in here.put_back()] == [b"v0", None, b"v2"]


def test_named_dead_letters_are_replayed_all_or_none_and_not_twice_without_again(here: Here) -> None:
    here.letters(*(b"v%d" % number for number in range(4)))
    here.letters(b"other", connector_name="b")
    for wrong, why in (
        ((1, 9), "0:9: there is no such dead letter"),
        ((1, 4), "0:4: it is a dead letter of connector b"),
    ):
        with pytest.raises(ConfigError, match=f"nothing was replayed: {why}"):
            here.replay(*wrong)
    assert here.replay(2, 0).replayed_count == 2
    assert here.places() == ["0:3", "0:1"]
    with pytest.raises(ConfigError, match="0:2: it was replayed before; --again"):
        here.replay(2, 3)
    assert here.replay(2, again=True).replayed_count == 1
    assert here.replay().replayed_count == 2
    assert sorted(message.value() or b"" for message in here.put_back()) == [b"v0", b"v1", b"v2", b"v2", b"v3"]
    assert here.replay(again=True).replayed_count == 4


def test_a_dry_run_of_a_replay_reports_and_changes_nothing(here: Here) -> None:
    here.letters(b"v0")
    here.letters(b"v1", partition="7")
    reply = here.replay(dry_run=True)
    assert [(one.place.offset, one.HasField("partition")) for one in reply.replayed] == [(0, True), (1, False)]
    assert here.places() == ["0:1", "0:0"]
    assert here.put_back() == []


def test_a_truncated_dead_letter_is_replayed_from_its_original_record(here: Here) -> None:
    """The first by its place; the second one's record is gone from the topic; the third has an edited value from a
    file.
    """
    here.kafka.produce(here.topic, [b"whole"], partition=1, key=b"whole key", headers=[("mine", b"2")])
    [record] = here.put_back()
    assert (record.partition(), record.offset()) == (1, 0)
    here.letters(b"who", offset="0", is_cut=True)
    here.letters(b"gon", offset="7", is_cut=True)
    assert [one.cut for one in here.list().letters] == [True, True]
    reply = here.replay()
    [refused] = reply.refused
    assert (reply.replayed_count, refused.place.offset) == (1, 1)
    assert "-1 has no record at offset 7 (any more): replay it from a file" in refused.reason
    again = here.put_back()[1]
    assert (again.partition(), again.key(), again.value()) == (1, b"whole key", b"whole")
    assert headers_of(again) == [("mine", b"2"), (REPLAYED, f"{here.queue}-0@0".encode())]
    [given] = here.list().letters
    given.value, given.mended = b"mine", True
    request = pb.ReplayDeadLettersRequest(name="a", letters=[given])
    with pytest.raises(ConfigError, match=r"were cut: write the whole ones into the file and remove the header"):
        asyncio.run(DeadLetters(here.specs, None).replayed(ReplayOnWorker(here.config, request)))
    del given.headers[[one.name for one in given.headers].index(CUT)]
    request = pb.ReplayDeadLettersRequest(name="a", letters=[given])
    asyncio.run(DeadLetters(here.specs, None).replayed(ReplayOnWorker(here.config, request)))
    assert here.put_back()[-1].value() == b"mine"


def test_a_mended_dead_letter_is_replayed_with_its_new_content(here: Here) -> None:
    here.letters(b"bad", without=("connector.name", "topic", "partition"))
    given = pb.DeadLetter(partition=0, offset=0, value=b"good", mended=True)
    given.headers.add(name="x", value=b"y")
    with pytest.raises(ConfigError, match="its original topic is unknown"):
        here.replay(0)
    given.error_headers[f"{ERROR_HEADER_PREFIX}topic"] = here.topic
    request = pb.ReplayDeadLettersRequest(name="a", letters=[given])
    asyncio.run(DeadLetters(here.specs, None).replayed(ReplayOnWorker(here.config, request)))
    (message,) = here.put_back()
    assert (message.key(), message.value()) == (None, b"good")
    assert headers_of(message) == [("x", b"y"), (REPLAYED, f"{here.queue}-0@0".encode())]


def test_dead_letters_that_cannot_be_replayed_stay_and_block_no_other(
    here: Here, tmp_topic: Callable[..., str]
) -> None:
    small = here.kafka.create_topic(tmp_topic("small"), 1, **{"max.message.bytes": "500"})
    topics: Config = {**here.config, "topics": f"{here.topic},{small},gone"}
    here.letters(b"v0")
    here.letters(random.Random(1).randbytes(2_000), topic=small, partition="0")
    here.letters(b"v2", topic="elsewhere")
    here.letters(b"v3", topic="gone")
    here.letters(b"v4")
    reply = here.replay(config=topics)
    reasons = {one.place.offset: one.reason for one in reply.refused}
    assert reply.replayed_count == 2
    assert "Kafka refuses it" in reasons[1]
    assert reasons[2] == "a does not read elsewhere (any more)"
    assert reasons[3] == "topic gone does not exist (any more)"
    assert here.places() == ["0:3", "0:2", "0:1"]
    assert [message.value() for message in here.put_back()] == [b"v0", b"v4"]
    assert here.replay(config=topics).replayed_count == 0


def test_a_replay_in_steps_ends_at_the_offsets_of_its_begin(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "STEP_LETTERS_MAX", 2)
    here.letters(*(b"v%d" % number for number in range(5)))
    first = here.replay(request_id="1")
    assert (first.replayed_count, first.next_page_token) == (2, "0:2;0:5")
    assert here.replay(request_id="1") == pb.ReplayDeadLettersResponse(
        replayed_count=2, next_page_token=first.next_page_token
    )
    here.letters(b"late")
    token, count = first.next_page_token, 2
    while token:
        reply = here.replay(page_token=token)
        token, count = reply.next_page_token, count + reply.replayed_count
    assert count == 5
    assert here.places() == ["0:5"]


def test_a_fenced_replay_produces_nothing(here: Here) -> None:
    here.letters(b"v0")
    spec = here.specs.without_class(UnitId("a", 0), TaskSpec(here.config, here.config, 1))
    spec = replay_spec(replace(spec, bootstrap_servers=here.kafka.bootstrap))
    stale = Fence(clients.producer(spec, {}), spec.transactional_id)
    stale.take_over()
    stale.begin()
    stale.producer.produce(here.topic, b"stale", partition=1)
    assert here.replay().replayed_count == 1
    with pytest.raises(TaskFenced):
        stale.commit()
    stale.close()
    assert [message.value() for message in here.put_back()] == [b"v0"]


async def _both(here: Here) -> list[pb.ReplayDeadLettersResponse | BaseException]:
    """The same replay on two workers at once, as when one was frozen and another got the request."""
    question = ReplayOnWorker(here.config, pb.ReplayDeadLettersRequest(name="a", request_id="r"))
    workers = [DeadLetters(here.specs, None), DeadLetters(here.specs, None)]
    return await asyncio.gather(*(worker.replayed(question) for worker in workers), return_exceptions=True)


def test_two_workers_at_once_replay_every_dead_letter_once(here: Here) -> None:
    values = [b"v%d" % number for number in range(50)]
    here.letters(*values)
    found = asyncio.run(_both(here))
    told = [one.replayed_count for one in found if not isinstance(one, BaseException)]
    assert set(told) == {50}
    cut_off = [one for one in found if isinstance(one, BaseException)]
    assert [classify(error)[2] for error in cut_off] in ([], [ErrorClass.FENCED], [ErrorClass.RETRIABLE]), cut_off
    assert [message.value() for message in here.put_back()] == values


def test_a_dead_letter_duplicated_by_a_crash_is_replayed_once(here: Here) -> None:
    here.letters(b"v0")
    here.letters(b"v0")
    here.letters(b"v1")
    assert here.replay().replayed_count == 3
    assert here.places() == []
    assert [message.value() for message in here.put_back()] == [b"v0", b"v1"]


def test_a_recreated_queue_has_no_replay_log(here: Here) -> None:
    here.letters(b"v0")
    assert here.replay().replayed_count == 1
    here.kafka.admin.delete_topics([here.queue])[here.queue].result()
    here.kafka.create_topic(here.queue, 1)
    here.letters(b"v1")
    assert here.places() == ["0:0"]


def test_a_standalone_workers_replay_log_is_in_its_offsets_file(here: Here, tmp_path: Path) -> None:
    here.letters(b"v0", b"v1")
    here.offset_file = OffsetFile(str(tmp_path / "offsets"))
    here.offset_file.open()
    try:
        assert here.replay(1, request_id="r").replayed_count == 1
        assert here.places() == ["0:0"]
        assert here.replay(1, request_id="r").replayed_count == 1
        assert here.replay().replayed_count == 1
    finally:
        here.offset_file.close()
    assert [message.value() for message in here.put_back()] == [b"v1", b"v0"]


def test_a_sources_dead_letter_passes_the_present_chain(here: Here) -> None:
    """Dead letters as a source's run writes them (`engine.bad_records.dead_letters`), of three records; two are good by
    now, and the third once it is mended.
    """
    config: Config = {
        "name": "a", "connector.class": "FileStreamSource", "topic": here.topic, "file": "/nowhere",
        "key.converter": TEXT, "value.converter": JSON, "value.converter.schemas.enable": "false",
        "errors.deadletterqueue.topic.name": here.queue, "errors.deadletterqueue.context.headers.enable": "true",
        "transforms": "n", "transforms.n.spec": "int32",
        "transforms.n.type": "org.apache.kafka.connect.transforms.Cast$Value",
    }  # fmt: skip
    spec = here.specs.without_class(UnitId("a", 0), TaskSpec(config, config, 1))
    written = SourceDeadLetters(spec, error_settings(config), Counts(), lambda: 1_000_000)
    headers = [[Header("h", Int32(7), INT32)], [], []]
    batch = Batch(
        here.topic, 2, ["k", None, None], ["17", "many", None], timestamps_ms=[1_700_000_000_000, None, None],
        key_schema=OPTIONAL_STRING, value_schema=OPTIONAL_STRING, headers=headers,
    )  # fmt: skip
    for at in range(3):
        failure = Failure("TRANSFORMATION", "Cast", DataError("bad"), SourceRecord(batch, at, None, None))
        written.report(failure)
    producer = clients.opened(CheckedProducer, "producer", {"bootstrap.servers": here.kafka.bootstrap})
    written.send(SourceDelivery(Fence(producer, "")), DeliveryFailures())
    producer.flush()
    assert here.places(stage="transformation") == ["0:2", "0:1", "0:0"]
    reply = here.replay(config=config)
    assert reply.replayed_count == 2
    assert "TRANSFORMATION" in reply.refused[0].reason
    first, null = here.put_back()
    assert (first.partition(), first.key(), first.value(), null.value()) == (2, b"k", b"17", b"null")
    assert first.timestamp()[1] == 1_700_000_000_000
    assert headers_of(first) == [("h", b"7"), (REPLAYED, f"{here.queue}-0@0".encode())]
    assert here.places() == ["0:1"]
    mended = here.list().letters[0]
    mended.value, mended.mended = b'{"schema":null,"payload":18}', True
    request = pb.ReplayDeadLettersRequest(name="a", letters=[mended])
    reply = asyncio.run(DeadLetters(here.specs, None).replayed(ReplayOnWorker(config, request)))
    assert (reply.replayed_count, list(reply.refused)) == (1, [])
    assert [message.value() for message in here.put_back()][-1] == b"18"
    assert here.places() == [], "none left"
