"""Tests of each mutation's checks and records: existence, revisions, epochs, request ids, the audit record."""

from __future__ import annotations

import pytest

from herdmesh.configstore.state.mutations import (
    CommitTaskConfigs,
    DeleteConnector,
    LeaderToken,
    Mutation,
    PutConnectorConfig,
    PutLoggerLevel,
    PutSessionKey,
    PutTaskCount,
    RequestRestart,
    SetTargetState,
)
from herdmesh.configstore.state.requests import KEPT_MS, REMEMBERED_MS
from herdmesh.configstore.state.writes import WritePlan, plan
from herdmesh.connect.topics import audit_topic
from herdmesh.connect.topics.audit_topic import AuditRecord
from herdmesh.connect.topics.config_records import LoggerRecord, RestartRecord, SessionKeyRecord, TargetState
from herdmesh.connect.topics.config_topic import RECORD_BYTES_MAX
from herdmesh.rpc.errors import (
    ConnectorExists,
    ConnectorNotFound,
    InvalidConfig,
    RequestIdExpired,
    RequestIdUnknown,
    RequestInvalid,
    RevisionForeign,
    RevisionMismatch,
    StaleEpoch,
)
from herdmesh.topicstore.contract import Revision, StoredRecord
from tests.support.config_topic import AUDIT, STORE_ID, ConfigTopic, replay, revision

CONFIG = {"name": "c1", "k": None}


@pytest.fixture
def topic() -> ConfigTopic:
    """A topic with one connector c1."""
    made = ConfigTopic()
    made.write(PutConnectorConfig("c1", CONFIG))
    return made


def audit_of(topic: ConfigTopic) -> AuditRecord:
    """The last audit record of the topic."""
    found = next(record for record in reversed(topic.records) if record.topic == AUDIT)
    decoded = audit_topic.decode(found.key, found.value)
    assert isinstance(decoded, AuditRecord)
    return decoded


def test_the_response_distinguishes_create_and_update(topic: ConfigTopic) -> None:
    with pytest.raises(ConnectorExists):
        topic.write(PutConnectorConfig("c1", CONFIG, must_not_exist=True))
    with pytest.raises(ConnectorNotFound):
        topic.write(PutConnectorConfig("c2", {}, must_exist=True))
    with pytest.raises(RequestInvalid):
        topic.write(PutConnectorConfig("c2", {}, must_exist=True, must_not_exist=True))
    assert topic.write(PutConnectorConfig("c1", CONFIG, must_exist=True)).outcome == {"created": False}
    assert topic.write(PutConnectorConfig("c2", {}, must_not_exist=True)).outcome == {"created": True}


def test_an_equal_config_writes_nothing_when_only_a_change_is_wanted(topic: ConfigTopic) -> None:
    before, wanted = list(topic.records), PutConnectorConfig("c1", CONFIG, must_exist=True, only_if_changed=True)
    stored = revision(topic.connector("c1").config_revision)
    for expected in (None, stored):
        planned = topic.write(wanted, request_id="r1", expected_revision=expected)
        assert planned == WritePlan((), {"created": False, "unchanged": True})
    assert topic.records == before
    with pytest.raises(RevisionMismatch):
        topic.write(wanted, expected_revision=revision(999))
    with pytest.raises(RequestIdUnknown):
        topic.write(wanted, request_id="r1", retry_only=True)
    assert topic.write(PutConnectorConfig("c1", CONFIG)).records, "a write without the condition writes"


@pytest.mark.parametrize(
    "wanted",
    [
        PutConnectorConfig("c1", {**CONFIG, "k": "null"}, only_if_changed=True),
        PutConnectorConfig("c1", {"name": "c1"}, only_if_changed=True),
        PutConnectorConfig("c1", CONFIG, initial_target_state=TargetState.PAUSED, only_if_changed=True),
        PutConnectorConfig("c2", {"name": "c2"}, only_if_changed=True),
    ],
    ids=["another value", "a key less", "another state", "a new connector"],
)
def test_any_change_is_written_when_only_a_change_is_wanted(topic: ConfigTopic, wanted: PutConnectorConfig) -> None:
    planned = topic.write(wanted)
    assert planned.records
    assert "unchanged" not in planned.outcome
    assert topic.connector(wanted.connector).config == wanted.config


def test_the_name_in_a_config_must_be_the_connectors(topic: ConfigTopic) -> None:
    with pytest.raises(InvalidConfig) as refusal:
        topic.write(PutConnectorConfig("c2", {"name": "c1"}))
    assert refusal.value.violations[0].field == "name"
    with pytest.raises(RequestInvalid):
        topic.write(PutConnectorConfig("", {}))


def test_each_object_has_a_revision_of_its_own(topic: ConfigTopic) -> None:
    leader = topic.lead()
    at_first = topic.connector("c1").config_revision
    topic.write(CommitTaskConfigs("c1", [{}]), leader=leader)
    topic.write(SetTargetState("c1", TargetState.PAUSED))
    state = topic.connector("c1")
    assert state.config_revision == at_first  # neither write changed the config
    topic.write(SetTargetState("c1", TargetState.STARTED), expected_revision=revision(state.target_state_revision))
    topic.write(CommitTaskConfigs("c1", []), leader=leader, expected_revision=revision(state.tasks_revision))
    topic.write(PutConnectorConfig("c1", CONFIG), expected_revision=revision(state.config_revision))
    for mutation in (SetTargetState("c1", TargetState.PAUSED), CommitTaskConfigs("c1", []), DeleteConnector("c1")):
        with pytest.raises(RevisionMismatch) as refusal:
            topic.write(mutation, leader=leader, expected_revision=revision(at_first))
        assert refusal.value.actual_revision.startswith(f"{STORE_ID}@")
    topic.write(DeleteConnector("c1"), expected_revision=revision(topic.connector("c1").config_revision))
    with pytest.raises(RevisionMismatch) as refusal:
        topic.write(PutConnectorConfig("c1", CONFIG), expected_revision=revision(at_first))
    assert refusal.value.actual_revision == ""


def test_a_revision_survives_replay_and_is_refused_by_another_store(topic: ConfigTopic) -> None:
    assert replay(topic.records).connector("c1").config_revision == topic.connector("c1").config_revision
    with pytest.raises(RevisionForeign):
        topic.write(DeleteConnector("c1"), expected_revision=Revision("other", (1,)))


def test_tasks_are_committed_only_for_the_config_from_which_they_were_made(topic: ConfigTopic) -> None:
    leader = topic.lead()
    made_from = revision(topic.connector("c1").config_revision)
    topic.write(CommitTaskConfigs("c1", [{}], made_from), leader=leader)
    topic.write(PutConnectorConfig("c1", CONFIG))
    with pytest.raises(RevisionMismatch, match="was changed after"):
        topic.write(CommitTaskConfigs("c1", [{}], made_from), leader=leader)


def test_a_set_that_needs_no_fence_gets_its_count_in_the_same_transaction(topic: ConfigTopic) -> None:
    """The records are in Connect's order, so no reader that has the count sees the set as waiting for a fence."""
    leader = topic.lead()
    plan = topic.write(CommitTaskConfigs("c1", [{}, {}], fenced_generation=0), leader=leader)
    keys = [record.key.decode() for record in plan.records if record.topic != AUDIT]
    assert keys[:-1] == ["task-c1-0", "task-c1-1", "commit-c1", "tasks-fencing-c1"]
    for state in (topic.connector("c1"), replay(topic.records).connector("c1")):
        assert (state.task_count_record, state.pending_fencing, state.task_config_generation) == (2, False, 1)
        assert not state.foreign
    with pytest.raises(RevisionMismatch, match="another task set is in force"):
        topic.write(CommitTaskConfigs("c1", [{}], fenced_generation=0), leader=leader)
    assert len(topic.connector("c1").tasks) == 2
    topic.write(CommitTaskConfigs("c1", [{}]), leader=leader)
    assert topic.connector("c1").pending_fencing


@pytest.mark.parametrize(
    "mutation",
    [
        CommitTaskConfigs("c1", [{}]),
        PutTaskCount("c1", 1),
        RequestRestart(RestartRecord("c1", include_tasks=True, only_failed=False)),
        PutSessionKey(SessionKeyRecord(b"key", "HmacSHA256", 1)),
    ],
    ids=lambda mutation: type(mutation).__name__,
)
def test_writes_that_only_the_leader_may_do(topic: ConfigTopic, mutation: Mutation) -> None:
    with pytest.raises(RequestInvalid):
        topic.write(mutation)
    with pytest.raises(StaleEpoch):
        topic.write(mutation, leader=LeaderToken(1, "nobody"))
    first = topic.lead("first")
    topic.write(mutation, leader=first)
    topic.lead("second")
    with pytest.raises(StaleEpoch) as refusal:
        topic.write(mutation, leader=first)
    assert refusal.value.metadata == {"epoch": "2", "leader_id": "second"}
    with pytest.raises(StaleEpoch):
        topic.write(mutation, leader=LeaderToken(2, "first"))


def test_generations_never_repeat(topic: ConfigTopic) -> None:
    blocks: list[range] = []
    for _ in range(3):
        topic.lead()
        leadership = replay(topic.records).leadership
        assert leadership is not None
        blocks.append(range(leadership.generation_first, leadership.generation_limit))
    assert [len(block) for block in blocks] == [1000] * 3
    assert [block.start for block in blocks] == [1, 1001, 2001]
    topic.raw("herdmesh-leader", {"epoch": 2, "leader_id": "x", "leader_address": "y", "next_generation": 5})
    assert topic.state.leadership is not None
    assert topic.state.leadership.epoch == 3  # an epoch never decreases, whoever wrote the record


def test_missing_connectors_and_odd_values(topic: ConfigTopic) -> None:
    leader = topic.lead()
    absent: list[Mutation] = [
        DeleteConnector("c2"),
        SetTargetState("c2", TargetState.PAUSED),
        CommitTaskConfigs("c2", []),
        RequestRestart(RestartRecord("c2", include_tasks=False, only_failed=False)),
    ]
    for mutation in absent:
        with pytest.raises(ConnectorNotFound):
            topic.write(mutation, leader=leader)
    odd: list[Mutation] = [
        PutTaskCount("c1", -1),
        PutLoggerLevel(LoggerRecord("", "INFO")),
        PutSessionKey(SessionKeyRecord(b"", "HmacSHA256", 1)),
    ]
    for mutation in odd:
        with pytest.raises(RequestInvalid):
            topic.write(mutation, leader=leader)


def test_a_too_large_record_is_refused_before_the_group_commit(topic: ConfigTopic) -> None:
    with pytest.raises(InvalidConfig, match="bytes as a record"):
        topic.write(PutConnectorConfig("c1", {"k": "x" * RECORD_BYTES_MAX}))


def test_a_retry_gets_the_first_outcome(topic: ConfigTopic) -> None:
    create = PutConnectorConfig("c2", {}, must_not_exist=True)
    first = topic.write(create, request_id="r1")
    topic.write(DeleteConnector("c2"))
    for state in (topic.state, replay(topic.records)):
        again = plan(state, create, topic.context(create, request_id="r1"))
        assert again.records == ()
        assert again.outcome == first.outcome == {"created": True}
    with pytest.raises(RequestInvalid):
        topic.write(DeleteConnector("c1"), request_id="r1")


def test_a_retry_is_recognized_before_every_other_check(topic: ConfigTopic) -> None:
    delete = DeleteConnector("c1")
    topic.write(delete, request_id="r1", expected_revision=revision(topic.connector("c1").config_revision))
    assert topic.write(delete, request_id="r1", expected_revision=revision(1)).records == ()


def test_old_request_ids_are_refused_and_not_applied_again(topic: ConfigTopic) -> None:
    pause = SetTargetState("c1", TargetState.PAUSED)
    topic.write(pause, request_id="r1")
    topic.now_ms += KEPT_MS
    assert topic.write(pause, request_id="r1").records == ()
    topic.now_ms += 1
    with pytest.raises(RequestIdExpired):
        topic.write(pause, request_id="r1")


def test_kept_requests_are_bounded_in_time() -> None:
    topic = ConfigTopic()
    for number in range(600):
        topic.write(PutConnectorConfig("c1", {}), request_id=f"old-{number}")
    topic.now_ms += REMEMBERED_MS + 1
    for number in range(600):
        topic.write(PutConnectorConfig("c1", {}), request_id=f"new-{number}")
    requests = topic.state.requests
    assert not requests.is_known("old-0")
    assert all(requests.is_known(f"new-{number}") for number in range(600))


def test_the_audit_record_has_caller_and_change_and_no_secret() -> None:
    topic = ConfigTopic()
    config = {
        "name": "c1", "db.password": "hunter2", "api.key": "k", "key.converter": "x", "user": "u",
        "sasl.jaas.config": "${file:/a:b}", "token": None,
    }  # fmt: skip
    topic.write(PutConnectorConfig("c1", config), request_id="r1", caller="ann")
    audit = audit_of(topic)
    assert (audit.request_id, audit.caller, audit.operation, audit.connector) == (
        "r1", "ann", "PutConnectorConfig", "c1",
    )  # fmt: skip
    assert audit.changes["config"] == {
        **config, "db.password": "[redacted]", "api.key": "[redacted]",
    }  # fmt: skip
    assert topic.connector("c1").config == config


def test_unreadable_audit_records_are_counted(topic: ConfigTopic) -> None:
    topic.state.apply(StoredRecord(AUDIT, 0, 99, b"r", b"[]", 0))
    assert topic.state.refused.latest[0].topic == AUDIT
