"""Codec of the config topic beyond the records of a healthy cluster: accepted and refused ones (config-topic 4, 11)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herdmesh.connect.topics import audit_topic, config_topic
from herdmesh.connect.topics.audit_topic import AuditRecord
from herdmesh.connect.topics.config_records import (
    CommitRecord,
    ConfigRecord,
    ConnectorRecord,
    EpochRecord,
    LoggerRecord,
    ManifestRecord,
    RestartRecord,
    SessionKeyRecord,
    TargetState,
    TargetStateRecord,
    TaskConfigRecord,
    TaskCountRecord,
    task_config_digest,
)
from herdmesh.connect.topics.decoding import Tombstone, Undecodable, Unknown

_REFUSED = object()

_CASES: list[tuple[str, bytes | None, Any]] = [
    # target state: a string in state.v2 decides alone; with anything else, state decides
    ("target-state-c", b'{"state":"PAUSED"}', TargetStateRecord("c", TargetState.PAUSED)),
    ("target-state-c", b'{"state":"PAUSED","state.v2":"STOPPED"}', TargetStateRecord("c", TargetState.STOPPED)),
    ("target-state-c", b'{"state":"PAUSED","state.v2":"stopped"}', _REFUSED),
    ("target-state-c", b'{"state":"PAUSED","state.v2":5}', TargetStateRecord("c", TargetState.PAUSED)),
    ("target-state-c", b'{"state":"PAUSED","state.v2":null,"x":1}', TargetStateRecord("c", TargetState.PAUSED)),
    ("target-state-c", b'{"state":5}', _REFUSED),
    ("target-state-c", None, Tombstone("target-state", "c")),
    ("target-state-c", b"", Tombstone("target-state", "c")),
    ("target-state-c", b" null ", Tombstone("target-state", "c")),
    # connector
    ("connector-a-b", b'{"properties":{"k":5,"n":null}}', ConnectorRecord("a-b", {"k": 5, "n": None})),
    ("connector-c", b'{"properties":[]}', _REFUSED),
    ("connector-c", b"[]", _REFUSED),
    ("connector-c", b"{bad", _REFUSED),
    ("connector-c", None, Tombstone("connector", "c")),
    ("connector-", b'{"properties":{}}', ConnectorRecord("", {})),
    # task keys
    ("task-x-+1", b'{"properties":{}}', TaskConfigRecord("x", 1, {})),
    ("task-x-01", b'{"properties":{}}', TaskConfigRecord("x", 1, {})),
    ("task-x-1-", b'{"properties":{}}', TaskConfigRecord("x", 1, {})),
    ("task-x-\u0663", b'{"properties":{}}', TaskConfigRecord("x", 3, {})),
    ("task-x--1", b'{"properties":{}}', TaskConfigRecord("x-", 1, {})),
    ("task--1", b'{"properties":{}}', TaskConfigRecord("", 1, {})),
    ("task-x-y", b'{"properties":{}}', _REFUSED),
    ("task-x", b'{"properties":{}}', _REFUSED),
    ("task-x-2147483648", b'{"properties":{}}', _REFUSED),
    ("task-x-1_0", b'{"properties":{}}', _REFUSED),
    ("task-x-1", None, _REFUSED),
    # counts are cut to 32 bits
    ("commit-c", b'{"tasks":4294967297}', CommitRecord("c", 1)),
    ("commit-c", b'{"tasks":2147483648}', CommitRecord("c", -2147483648)),
    ("commit-c", b'{"tasks":02}', CommitRecord("c", 2)),
    ("commit-c", b'{"tasks":1.0}', _REFUSED),
    ("commit-c", b'{"tasks":true}', _REFUSED),
    ("commit-c", b"{}", _REFUSED),
    ("commit-c", None, _REFUSED),
    ("tasks-fencing-c", b'{"task-count":6} trailing', TaskCountRecord("c", 6)),
    ("tasks-fencing-c", b'{"task-count":"6"}', _REFUSED),
    # flags default to false
    ("restart-connector-c", b'{"include-tasks":"yes"}', RestartRecord("c", include_tasks=False, only_failed=False)),
    ("restart-connector-c", b"5", _REFUSED),
    # session key
    ("session-key", b'{"key":"AQI=","algorithm":"a","creation-timestamp":5}', SessionKeyRecord(b"\x01\x02", "a", 5)),
    ("session-key", b'{"key":"AQI","algorithm":"a","creation-timestamp":5}', SessionKeyRecord(b"\x01\x02", "a", 5)),
    ("session-key", b'{"key":"","algorithm":"a","creation-timestamp":5}', _REFUSED),
    ("session-key", b'{"key":"*","algorithm":"a","creation-timestamp":5}', _REFUSED),
    ("session-key", b'{"key":"AQI=","algorithm":"a","creation-timestamp":5.0}', _REFUSED),
    ("logger-cluster-a.b", b'{"level":"DEBUG"}', LoggerRecord("a.b", "DEBUG")),
    ("logger-cluster-a.b", b'{"level":null}', _REFUSED),
    # records of Herdmesh
    ("herdmesh-connector-c", None, Tombstone("herdmesh-connector", "c")),
    ("herdmesh-connector-c", b'{"incarnation":"i"}', _REFUSED),
    ("herdmesh-leader", b'{"epoch":1}', _REFUSED),
    # unknown keys
    ("session-key-2", b"{}", Unknown("session-key-2")),
    ("herdmesh-leader-x", b"{}", Unknown("herdmesh-leader-x")),
    ("connector", b"{}", Unknown("connector")),
    ("other", b"{}", Unknown("other")),
]


@pytest.mark.parametrize(("key", "value", "expected"), _CASES)
def test_records_are_read_as_by_connect(key: str, value: bytes | None, expected: Any) -> None:
    record = config_topic.decode(key.encode(), value)
    if expected is _REFUSED:
        assert isinstance(record, Undecodable)
        assert record.reason
    else:
        assert record == expected


def test_a_refused_record_still_names_its_subject() -> None:
    # A commit for a connector without config clears it even when its value cannot be read
    # (docs/reference/connect/config-topic.md, section 4.4, step 1).
    assert config_topic.decode(b"commit-c", b"{bad") == Undecodable(
        "Converting byte[] to Kafka Connect data failed due to serialization error: ", "commit", "c"
    )
    assert config_topic.decode(None, b"{}") == Undecodable("the key is null")


def test_stopped_is_written_as_paused_for_old_workers() -> None:
    assert config_topic.encode(TargetStateRecord("c", TargetState.STOPPED)) == (
        b"target-state-c",
        b'{"state":"PAUSED","state.v2":"STOPPED"}',
    )


def test_the_digest_ignores_order_and_distinguishes_values() -> None:
    assert task_config_digest({"a": "1", "b": None}) == task_config_digest({"b": None, "a": "1"})
    assert task_config_digest({"a": "1"}) != task_config_digest({"a": None})
    assert len(task_config_digest({})) == 64


_names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
_properties = st.dictionaries(st.text(max_size=8), st.none() | st.text(max_size=12), max_size=5)
_int64 = st.integers(-(2**63), 2**63 - 1)
_int32 = st.integers(-(2**31), 2**31 - 1)
_records: st.SearchStrategy[ConfigRecord] = st.one_of(
    st.builds(ConnectorRecord, _names, _properties),
    st.builds(TargetStateRecord, _names, st.sampled_from(TargetState)),
    st.builds(TaskConfigRecord, _names, st.integers(0, 2**31 - 1), _properties),
    st.builds(CommitRecord, _names, _int32),
    st.builds(RestartRecord, _names, st.booleans(), st.booleans()),
    st.builds(TaskCountRecord, _names, _int32),
    st.builds(SessionKeyRecord, st.binary(min_size=1, max_size=40), _names, _int64),
    st.builds(LoggerRecord, _names, _names),
    st.builds(
        ManifestRecord,
        _names,
        st.text(max_size=8),
        st.none() | _properties,
        _int32,
        st.lists(st.text(max_size=6), max_size=3).map(tuple),
        _int64,
        st.booleans(),
        st.text(max_size=6),
        st.dictionaries(st.text(max_size=6), _int64, max_size=3),
        orphan_commit_offset=st.just(-1) | st.integers(0, 2**63 - 1),
    ),
    st.builds(EpochRecord, _int64, st.text(max_size=6), st.text(max_size=6), _int32),
)


@given(_records)
def test_every_record_survives_the_round_trip(record: ConfigRecord) -> None:
    assert config_topic.decode(*config_topic.encode(record)) == record


@given(st.binary(max_size=30), st.none() | st.binary(max_size=30))
def test_decoding_never_raises(key: bytes, value: bytes | None) -> None:
    for prefix in (b"", b"connector-", b"task-a-", b"herdmesh-connector-", b"session-key"):
        config_topic.decode(prefix + key, value)


_text = st.text(max_size=5)
_json = st.dictionaries(_text, st.none() | st.booleans() | _int64 | _text, max_size=3)


@given(st.builds(AuditRecord, _names, _text, _int64, _text, _text, _json, _json, _text, _text))
def test_audit_records_survive_the_round_trip(record: AuditRecord) -> None:
    assert audit_topic.decode(*audit_topic.encode(record)) == record


@pytest.mark.parametrize("value", [None, b"", b"{bad", b"[]", b'{"caller":"a"}'])
def test_foreign_audit_records_are_refused(value: bytes | None) -> None:
    assert isinstance(audit_topic.decode(b"id", value), Undecodable)
