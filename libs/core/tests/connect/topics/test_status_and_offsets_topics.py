"""Codecs of the status and offsets topics beyond the records of a healthy cluster
(docs/reference/connect/status-topic.md, section 5; docs/reference/connect/offsets-topic.md, section 1).
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herdmesh.connect.errors import DataError
from herdmesh.connect.topics import offsets_topic, status_topic
from herdmesh.connect.topics.commit_scope import CommitScope
from herdmesh.connect.topics.decoding import Tombstone, Undecodable, Unknown
from herdmesh.connect.topics.offsets_topic import OffsetRecord
from herdmesh.connect.topics.status_topic import Condition, ConnectorStatus, State, TaskStatus, TopicStatus

_OK = b'{"state":"RUNNING","trace":null,"worker_id":"w:1","generation":3}'
_TOPIC = b'{"topic":{"name":"t","connector":"c","task":0,"discoverTimestamp":5}}'


@pytest.mark.parametrize(
    "key",
    [
        "status-connector-",
        "status-task-",
        "status-task-foo-source-#",
        "status-topic-",
        "status-topic-:connector-",
        "status-topic-foo-topic:",
        "status-topic-foo-topic:connector-",
    ],
)
def test_invalid_keys_are_refused(key: str) -> None:
    assert isinstance(status_topic.decode(key.encode(), _OK), Undecodable)


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"invalid",
        b"[]",
        b'{"state":"running","worker_id":"w","generation":1}',
        b'{"state":"RUNNING","worker_id":"w"}',
        b'{"state":"RUNNING","worker_id":"w","generation":1.0}',
        b'{"state":"RUNNING","worker_id":5,"generation":1}',
        b'{"state":"RUNNING","worker_id":"w","generation":1,"trace":5}',
        b'{"state":"RUNNING","worker_id":"w","generation":1,"version":5}',
    ],
)
def test_invalid_statuses_are_refused_and_an_empty_value_is_no_tombstone(value: bytes) -> None:
    for key in (b"status-connector-c", b"status-task-c-0"):
        assert isinstance(status_topic.decode(key, value), Undecodable)


def test_only_null_is_a_tombstone() -> None:
    assert status_topic.decode(b"status-connector-c", None) == Tombstone("status-connector", "c")
    assert status_topic.decode(b"status-task-a-b-+1", None) == Tombstone("status-task", "a-b", 1)
    topic = status_topic.decode(b"status-topic-t:connector-c:d", None)
    assert topic == Tombstone("status-topic", "c:d", topic="t")
    assert status_topic.encode(Tombstone("status-topic", "c:d", topic="t")) == (b"status-topic-t:connector-c:d", None)
    assert status_topic.decode(b"status-other", b"{}") == Unknown("status-other")


def test_a_missing_version_and_trace_are_null_and_more_members_are_ignored() -> None:
    value = b'{"state":"FAILED","worker_id":"w","generation":4294967297,"more":{}}'
    assert status_topic.decode(b"status-connector-c", value) == ConnectorStatus("c", State.FAILED, "w", 1)


@pytest.mark.parametrize("more", [b"", b',"conditions":[]'])
@pytest.mark.parametrize("worker", [b'"worker_id":null,', b""])
def test_a_worker_id_of_null_is_read_as_null(worker: bytes, more: bytes) -> None:
    value = b'{"state":"FAILED",' + worker + b'"generation":1' + more + b"}"
    assert status_topic.decode(b"status-connector-c", value) == ConnectorStatus("c", State.FAILED, None, 1)
    assert status_topic.decode(b"status-task-c-0", value) == TaskStatus("c", 0, State.FAILED, None, 1)
    assert status_topic.encode(TaskStatus("c", 0, State.FAILED, None, 1))[1] == (
        b'{"state":"FAILED","trace":null,"worker_id":null,"generation":1,"version":null}'
    )


def test_a_topic_status_is_filed_under_its_key() -> None:
    assert status_topic.decode(b"status-topic-t:connector-c", _TOPIC) == TopicStatus("t", "c", 0, 5)
    # The text of the separator is not checked, and the value may name something else.
    odd = status_topic.decode(b"status-topic-u:whatever__d", _TOPIC)
    assert odd == TopicStatus("u", "d", 0, 5, named_topic="t", named_connector="c")
    assert isinstance(status_topic.decode(b"status-topic-t:connector-c", b'{"topic":{"name":"t"}}'), Undecodable)


def test_our_members_come_after_version_and_only_when_set() -> None:
    plain = TaskStatus("c", 0, State.RUNNING, "w", 1, version="4.3.1")
    assert status_topic.encode(plain)[1] == (
        b'{"state":"RUNNING","trace":null,"worker_id":"w","generation":1,"version":"4.3.1"}'
    )
    full = TaskStatus(
        "c",
        0,
        State.RUNNING,
        "w",
        1,
        None,
        "4.3.1",
        (Condition("STALLED", "no progress", 7),),
        CommitScope("connect-c", ("t", "u")),
        "i-1",
    )
    assert status_topic.encode(full)[1] == (
        b'{"state":"RUNNING","trace":null,"worker_id":"w","generation":1,"version":"4.3.1",'
        b'"conditions":[{"type":"STALLED","message":"no progress","since_ms":7}],'
        b'"commit_scope":{"group":"connect-c","topics":["t","u"]},"worker_incarnation":"i-1"}'
    )
    assert status_topic.decode(*status_topic.encode(full)) == full


@pytest.mark.parametrize(
    ("member", "read"),
    [
        ('{"group":"g","topics":["t"]}', CommitScope("g", ("t",))),
        ('{"group":"","topics":[]}', CommitScope("", ())),
        ('{"group":"g","topics":["t"],"more":1}', CommitScope("g", ("t",))),
        ('{"group":"g","topics":["t",null]}', None),
        *((bad, None) for bad in ("true", "null", "[]", '"t"', "{}", '{"group":null,"topics":[]}', '{"group":"g"}')),
    ],
)
def test_an_unreadable_commit_scope_means_no_commit(member: str, read: CommitScope | None) -> None:
    value = f'{{"state":"RUNNING","worker_id":"w","generation":1,"commit_scope":{member}}}'
    status = TaskStatus("c", 0, State.RUNNING, "w", 1, commit_scope=read)
    assert status_topic.decode(b"status-task-c-0", value.encode()) == status


def test_destroyed_is_written_as_a_tombstone() -> None:
    assert status_topic.encode(ConnectorStatus("c", State.DESTROYED, "w", 1)) == (b"status-connector-c", None)


_text = st.text(max_size=10)
_int32 = st.integers(-(2**31), 2**31 - 1)
_states = st.sampled_from([state for state in State if state is not State.DESTROYED])
_conditions = st.lists(st.builds(Condition, _text, _text, st.integers(0, 2**62)), max_size=2).map(tuple)
_names = st.lists(_text, max_size=3).map(tuple)
_scopes = st.builds(CommitScope, _text, _names, _names)
_more = (_text, _int32, st.none() | _text, st.none() | _text, _conditions, st.none() | _scopes, _text)


@given(
    st.builds(ConnectorStatus, st.text(st.characters(exclude_categories=["Cs"]), min_size=1), _states, *_more)
    | st.builds(
        TaskStatus,
        st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
        st.integers(0, 2**31 - 1),
        _states,
        *_more,
    )
)
def test_statuses_survive_the_round_trip(status: ConnectorStatus | TaskStatus) -> None:
    assert status_topic.decode(*status_topic.encode(status)) == status


@pytest.mark.parametrize(
    ("offset", "message"),
    [
        ([], "Offsets must be specified as a Map"),
        ({5: 1}, "Offsets may only use String keys"),
        ({"a": []}, "Offsets may only contain primitive types as values, but field a contains ARRAY"),
        ({"a": {}}, "Offsets may only contain primitive types as values, but field a contains MAP"),
    ],
)
def test_offsets_hold_primitives_only(offset: Any, message: str) -> None:
    with pytest.raises(DataError) as refused:
        offsets_topic.encode_value(offset)
    assert str(refused.value) == message


def test_offsets_are_written_as_java_writes_them() -> None:
    assert offsets_topic.encode_key("c", {"b": 1.0, "a": 1e300}) == b'["c",{"b":1.0,"a":1.0E300}]'
    assert (
        offsets_topic.encode_value({"x": b"\x01", "n": None, "f": float("nan")}) == b'{"x":"AQ==","n":null,"f":"NaN"}'
    )
    assert offsets_topic.encode_key("c", None) == b'["c",null]'


@pytest.mark.parametrize("key", [None, b"", b"{}", b"[]", b'["c"]', b'["c",{},1]', b"[1,{}]", b'["c",5]', b"{bad"])
def test_keys_that_are_no_partition_are_refused(key: bytes | None) -> None:
    assert isinstance(offsets_topic.decode(key, b"{}"), Undecodable)


_json_values = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=8)
_values = _json_values | st.floats(allow_nan=False, allow_infinity=False)
_offsets = st.dictionaries(st.text(max_size=8), _values, max_size=4)


def test_offsets_without_a_json_form_come_back_as_texts() -> None:
    given = OffsetRecord("c", {"at": b"\x01"}, {"x": b"\x01\x02", "f": float("inf"), "n": 7, "r": 7.0})
    found = offsets_topic.decode(*offsets_topic.encode(given))
    assert found == OffsetRecord("c", {"at": "AQ=="}, {"x": "AQI=", "f": "Infinity", "n": 7, "r": 7.0})
    assert isinstance(found, OffsetRecord)
    assert [type(value) for value in (found.offset or {}).values()] == [str, str, int, float]


@given(st.builds(OffsetRecord, _text, st.none() | _offsets, st.none() | _offsets))
def test_offsets_survive_the_round_trip(record: OffsetRecord) -> None:
    assert offsets_topic.decode(*offsets_topic.encode(record)) == record
