"""Removal of single offsets of a sink's group, beside others that are set or stay, and the errors where Kafka, the
fence or the connector does not allow it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from herdmesh.connect.errors import ConfigError, ConnectError
from herdmesh.connectors.file_stream.sink.connector import FileStreamSink
from herdmesh.engine.fencing.fence import Fence
from herdmesh.engine.librdkafka import clients, delete_group_offsets
from herdmesh.engine.runtime.errors import TaskFailed, TaskFenced
from herdmesh.session.model import UnitId
from herdmesh.worker.effects.offsets.offset_write_outcome import OutcomeUnknown
from herdmesh.worker.state.model import TaskSpec
from libs.core.tests.engine.harness import Kafka
from services.worker.tests.test_offsets import at, bench, sink


class TwoOffsets:
    """A sink whose group has 3 and 0 in the two partitions of a topic of four records and none."""

    def __init__(self, bootstrap: str, names: Callable[..., str], folder: Path) -> None:
        self.kafka, self.here = Kafka(bootstrap), bench(bootstrap)
        self.topic = self.kafka.create_topic(names())
        self.kafka.produce(self.topic, [b"x"] * 4, partition=0)
        self.config, self.group = sink(folder / "out", self.topic), f"connect-snk-{self.topic}"
        self.first, self.second = at(self.topic), at(self.topic, 1)
        self.here.alter(self.config, (self.first, {"kafka_offset": 3}), (self.second, {"kafka_offset": 0}))

    def take_over(self) -> None:
        """Take over the id as another owner."""
        spec = self.here.specs.without_class(UnitId(str(self.config["name"]), 0), TaskSpec(self.config, self.config, 1))
        other = Fence(clients.producer(spec, {}), spec.transactional_id)
        other.take_over()
        other.close()

    def committed(self) -> list[int]:
        return self.kafka.committed(self.group, (self.topic, 0), (self.topic, 1))


@pytest.mark.kafka
def test_single_offsets_are_removed_beside_others_that_are_set_or_stay(
    kafka_bootstrap: str, tmp_topic: Callable[..., str], tmp_path: Path
) -> None:
    two = TwoOffsets(kafka_bootstrap, tmp_topic, tmp_path)
    left = [(two.first, {"kafka_offset": 3})]
    assert two.here.change(two.config, (two.second, None), dry_run=True)[0] == left
    assert two.committed() == [3, 0]
    assert two.here.change(two.config, (two.second, None))[0] == two.here.read(two.config) == left
    assert two.here.change(two.config, (two.second, None))[0] == left, "what is forgotten stays so"
    now = [(two.second, {"kafka_offset": 0})]
    assert two.here.change(two.config, (two.first, None), *now)[0] == two.here.read(two.config) == now
    two.here.run(two.config)
    assert (tmp_path / "out").read_text().split() == ["x"] * 4, "a task begins anew there"


@pytest.mark.kafka
def test_a_fenced_change_neither_sets_nor_removes_offsets(
    kafka_bootstrap: str, tmp_topic: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two, commit = TwoOffsets(kafka_bootstrap, tmp_topic, tmp_path), Fence.commit_offsets

    def another_first(fence: Fence, offsets: Any, of: Any) -> None:
        two.take_over()
        commit(fence, offsets, of)

    monkeypatch.setattr(Fence, "commit_offsets", another_first)
    with pytest.raises(TaskFenced, match="another owner has taken over"):
        two.here.alter(two.config, (two.first, None), (two.second, {"kafka_offset": 0}))
    assert two.committed() == [3, 0]


@pytest.mark.kafka
def test_a_refused_removal_after_other_changes_has_an_unknown_outcome(
    kafka_bootstrap: str, tmp_topic: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two, forget = TwoOffsets(kafka_bootstrap, tmp_topic, tmp_path), delete_group_offsets.forget

    def refused(*_: Any) -> dict[Any, KafkaError]:
        return {(two.topic, 1): KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "not yours")}

    monkeypatch.setattr(delete_group_offsets, "forget", refused)
    with pytest.raises(OutcomeUnknown, match=f"1 offsets of group {two.group} are set, and then: .*not yours"):
        two.here.alter(two.config, (two.first, {"kafka_offset": 2}), (two.second, None))
    assert two.committed() == [2, 0]
    with pytest.raises(KafkaException, match="not yours"):
        two.here.alter(two.config, (two.second, None))

    def refused_in_part(admin: AdminClient, group: str, partitions: Any, timeout_s: float) -> dict[Any, KafkaError]:
        return forget(admin, group, partitions[:1], timeout_s) or refused()

    monkeypatch.setattr(delete_group_offsets, "forget", refused_in_part)
    with pytest.raises(OutcomeUnknown, match=f"1 offsets of group {two.group} are deleted, and then: "):
        two.here.alter(two.config, (two.first, None), (two.second, None))
    assert two.committed() == [-1001, 0]


@pytest.mark.kafka
def test_a_client_that_cannot_remove_single_offsets_removes_all_or_refuses(
    kafka_bootstrap: str, tmp_topic: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = TwoOffsets(kafka_bootstrap, tmp_topic, tmp_path)
    monkeypatch.setattr(delete_group_offsets, "is_possible", lambda: False)
    for dry_run in (True, False):
        for beside in ((), ((two.second, {"kafka_offset": 0}),)):
            with pytest.raises(ConfigError, match=f"cannot be deleted with this Kafka client .*{two.topic}-1"):
                two.here.change(two.config, (two.first, None), *beside, dry_run=dry_run)
    assert two.committed() == [3, 0]
    two.here.change(two.config, (two.first, None), (two.second, None))
    assert two.committed() == [-1001, -1001]


@pytest.mark.kafka
@pytest.mark.parametrize("reset", [True, False])
def test_no_offset_is_removed_from_a_group_that_gets_members_meanwhile(
    reset: bool, kafka_bootstrap: str, tmp_topic: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = TwoOffsets(kafka_bootstrap, tmp_topic, tmp_path)
    member = Consumer({"bootstrap.servers": kafka_bootstrap, "group.id": two.group, "enable.auto.commit": False})

    def joined(_self: FileStreamSink, _config: Any, _offsets: Any) -> bool:
        member.subscribe([two.topic])
        deadline_s = time.monotonic() + 60
        while not member.assignment():
            assert time.monotonic() < deadline_s, "it does not become a member"
            member.poll(0.1)
        return True

    monkeypatch.setattr(FileStreamSink, "alter_offsets", joined)
    try:
        with pytest.raises(TaskFailed, match="has live members") as refused:
            two.here.change(two.config, *(() if reset else ((two.second, None),)), reset=reset)
    finally:
        member.close()
    assert not isinstance(refused.value, OutcomeUnknown)
    assert two.committed() == [3, 0]


@pytest.mark.kafka
def test_alter_offsets_is_called_once_before_any_write_and_not_in_a_dry_run(
    kafka_bootstrap: str, tmp_topic: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may change offsets elsewhere when it is called."""
    two, asked = TwoOffsets(kafka_bootstrap, tmp_topic, tmp_path), list[Any]()

    def refuses(_self: FileStreamSink, config: Any, offsets: Any) -> bool:
        asked.append((config["name"], dict(offsets)))
        raise ConnectError("not now")

    monkeypatch.setattr(FileStreamSink, "alter_offsets", refuses)
    entries = (two.first, None), (two.second, {"kafka_offset": 0})
    two.here.change(two.config, *entries, dry_run=True)
    two.here.change(two.config, reset=True, dry_run=True)
    assert asked == []
    with pytest.raises(ConnectError, match="not now"):
        two.here.change(two.config, *entries)
    with pytest.raises(ConnectError, match="not now"):
        two.here.change(two.config, reset=True)
    name, first, second = two.config["name"], (two.topic, 0), (two.topic, 1)
    assert asked == [(name, {first: None, second: 0}), (name, {first: None, second: None})]
    assert two.committed() == [3, 0]
