"""Fast paths for reading and writing records against the reference paths: where both answer, they answer the same.

Inputs are those our writers produce, those Java produces, and others: duplicate members, numbers beyond 64 bits,
`1e999`, leading zeros, halves of surrogate pairs, other encodings, broken UTF-8, deep nesting, trailing content.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from herdmesh.connect.errors import DataError
from herdmesh.connect.json_text import jackson, jackson_reader
from herdmesh.connect.topics import config_topic, status_topic
from herdmesh.connect.topics.commit_scope import CommitScope
from herdmesh.connect.topics.config_records import ManifestRecord, task_config_digest
from tests.support.sizes import SOAKING, soak_or

_EXAMPLES = soak_or(100, 5_000)

_ODD = [
    '{"properties":{"a":"1","a":"2"}}',
    '{"properties":{"a":1},"properties":{"a":"2"}}',
    '{"properties":{"a":"1"},"properties":null}',
    '{"properties":{"a":' + "9" * 1_001 + '},"properties":{"a":"2"}}',
    '{"properties":{"' + "n" * 50_001 + '":"1"}}',
    '{"properties":{"a":"\\ud800"}}',
    '{"properties":{"a":"\\ud83d\\ude00"}}',
    '{"properties":{"a":"1"}} trailing',
    '{"properties":{"a":"1"}}{"properties":{}}',
    '{"properties":{"a":"1"},"more":[1,2]}',
    '\ufeff{"properties":{"a":"1"}}',
    '{"properties":{"a":"\x01"}}',
    '{"properties":' + '{"a":' * 1_001 + "1" + "}" * 1_001 + "}",
    '{"state":"RUNNING","worker_id":"w","generation":01}',
    '{"state":"RUNNING","worker_id":"w","generation":1e999}',
    '{"state":"RUNNING","worker_id":"w","generation":1.0}',
    '{"state":"RUNNING","worker_id":"w","generation":4294967297}',
    '{"state":"RUNNING","worker_id":"w","generation":18446744073709551617}',
    '{"state":"RUNNING","worker_id":"w","generation":true}',
    '{"state":"RUNNING","worker_id":null,"generation":-1,"trace":null,"version":null}',
    '{"state":"RUNNING","worker_id":"w","generation":1,"commit_scope":{"group":"g","topics":["t"],"topics":[]}}',
    '{"state":"RUNNING","worker_id":"w","generation":1,"commit_scope":{"group":"g","topics":["t"],"x":1e999}}',
    '{"state":"RUNNING","worker_id":"w","generation":1,"conditions":[{"type":"STALLED"}]}',
    '{"state":"running","worker_id":"w","generation":1}',
    '{"topic":{"name":"t","connector":"c","task":2147483648,"discoverTimestamp":9223372036854775808}}',
    '{"topic":{"name":"t","connector":"other","task":0,"discoverTimestamp":1}}',
    '{"incarnation":"i","applied_config":{"a":null},"task_count":1,"task_digests":["d"],"task_config_generation":1,'
    '"deleted":false,"config_digest":"x","revisions":{"config":1}}',
    '{"incarnation":"i","applied_config":{"a":1},"task_count":1,"task_digests":[1],"task_config_generation":1,'
    '"deleted":0,"config_digest":"x","revisions":{}}',
    '{"incarnation":"i","applied_config":null,"task_count":18446744073709551616,"task_digests":[],'
    '"task_config_generation":1,"deleted":true,"config_digest":"","revisions":{}}',
    "null",
    " ",
    "{",
]
_KEYS = [
    *(b"connector-c", b"task-c-0", b"task--1", b"task-1", b"task-x-1-", b"herdmesh-connector-c", b"target-state-c"),
    *(b"status-connector-c", b"status-connectorX", b"status-task-c-0", b"status-task-c-+1", b"status-task-0"),
    *(b"status-topic-t:connector-c", b"session-key", b"session-key-x", b"herdmesh-leader", b"connector", b"-", b""),
]

_text = st.one_of(st.text(), st.text(st.characters(max_codepoint=127)), st.text(st.characters(exclude_categories=())))
_scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.integers(-(2**70), 2**70), st.floats(), _text, st.just("RUNNING")
)
_values = st.recursive(_scalars, lambda inner: st.lists(inner) | st.dictionaries(_text, inner), max_leaves=8)
_names = st.sampled_from(
    [
        *("properties", "state", "worker_id", "generation", "trace", "version", "commit_scope", "worker_incarnation"),
        *("group", "topics"),
        *("topic", "name", "connector", "task", "discoverTimestamp", "incarnation", "applied_config", "task_count"),
        *("task_digests", "task_config_generation", "deleted", "config_digest", "revisions"),
    ]
)


@st.composite
def _documents(draw: st.DrawFn) -> bytes:
    """JSON like a record's value: known members with values of any type, duplicated members, then possibly cut,
    spliced or oddly encoded.
    """
    members = [
        f"{json.dumps(draw(_names))}:{json.dumps(draw(_values | st.dictionaries(_text, _scalars)))}"
        for _ in range(draw(st.integers(0, 9)))
    ]
    text = draw(st.sampled_from(_ODD)) if draw(st.booleans()) else "{" + ",".join(members) + "}"
    data = text.encode(draw(st.sampled_from(["utf-8"] * 8 + ["utf-16-le", "utf-16-be", "utf-32-be"])), "surrogatepass")
    if draw(st.integers(0, 3)) == 0:
        at = draw(st.integers(0, len(data)))
        data = data[:at] + draw(st.binary(max_size=3)) + data[at + draw(st.integers(0, 3)) :]
    return data


def _careful(data: bytes | None) -> Any:
    """`jackson.loads` by the reference reader alone."""
    if not data:
        return None
    try:
        return jackson_reader.read(data)
    except jackson_reader.JsonSyntaxError as error:
        raise DataError(jackson.INVALID_JSON) from error


def _nothing(*_: object) -> None:
    return None


def _refusal(_: object) -> Any:
    raise msgspec.ValidationError


def _outcome(read: Callable[[], Any]) -> str:
    try:
        return repr(read())  # repr, so that 1, True and 1.0 differ and NaN equals itself
    except DataError as error:
        return str(error)


@settings(max_examples=_EXAMPLES, deadline=None, derandomize=not SOAKING)
@given(_documents())
@example(b'{"properties":{"a":"\xff"}}')
@example(b"[-0.0,-0.00e3,-0,-0.5]")
@example(b'{"a":[' + b"[" * 1_001 + b"]" * 1_001 + b"]}")
@example(b'{"properties":{"a":"\xed\xa0\x80"}}')
def test_a_document_is_read_alike_by_either_reader(data: bytes) -> None:
    assert _outcome(lambda: jackson.loads(data)) == _outcome(lambda: _careful(data))
    assert _outcome(lambda: jackson.loads_many([data, data])) == _outcome(lambda: [_careful(data), _careful(data)])
    quick = jackson.loads_properties(data)
    if quick is not None:
        assert {"properties": quick} == _careful(data)


@settings(max_examples=_EXAMPLES, deadline=None, derandomize=not SOAKING)
@given(st.sampled_from(_KEYS), _documents() | st.none() | st.sampled_from(_ODD).map(lambda text: text.encode()))
def test_a_record_is_read_alike_member_by_member(key: bytes, value: bytes | None) -> None:
    for topic in (config_topic, status_topic):
        quick = topic.decode(key, value)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(jackson, "loads", _careful)
            patch.setattr(config_topic, "_plain_record", _nothing)
            patch.setattr(status_topic, "_plain_status", _nothing)
            patch.setattr(status_topic, "_decode_plain_topic", _refusal)
            assert repr(topic.decode(key, value)) == repr(quick)


@settings(max_examples=_EXAMPLES, deadline=None, derandomize=not SOAKING)
@given(_values)
def test_a_value_is_written_alike_by_either_writer(value: Any) -> None:
    quick = _outcome(lambda: jackson.dumps(value))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jackson, "_msgspec_may_write", _nothing)
        assert _outcome(lambda: jackson.dumps(value)) == quick


@settings(max_examples=_EXAMPLES, deadline=None, derandomize=not SOAKING)
@given(st.dictionaries(_text, _values | _text))
def test_a_digest_is_that_of_the_json_text_with_sorted_keys(config: dict[str, Any]) -> None:
    canonical = json.dumps(config, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    assert task_config_digest(config) == hashlib.sha256(canonical.encode("ascii")).hexdigest()


def test_ordinary_records_use_the_fast_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the properties above would compare the reference reader with itself."""

    def forbidden(_: object) -> Any:
        raise AssertionError("read the careful way")

    monkeypatch.setattr(jackson, "loads", forbidden)
    manifest = ManifestRecord("c", "i", {"a": "1", "b": None}, 1, ("d",), 1, False, "x", {"config": 7})
    for key, value in (
        config_topic.encode(config_topic.ConnectorRecord("c", {"a": "1", "b": None})),
        config_topic.encode(config_topic.TaskConfigRecord("c", 0, {"ä": "ö"})),
        config_topic.encode(manifest),
    ):
        assert config_topic.encode(config_topic.decode(key, value)) == (key, value)  # pyright: ignore[reportArgumentType]
    for status in (
        status_topic.ConnectorStatus("c", status_topic.State.FAILED, "w", 3, trace="at x\n\tat y", version="1"),
        status_topic.TaskStatus(
            "c", 1, status_topic.State.RUNNING, "w", 3, commit_scope=CommitScope("g", ("t",)), worker_incarnation="i"
        ),
        status_topic.TopicStatus("t", "c", 0, 1_700_000_000_000),
    ):
        assert status_topic.decode(*status_topic.encode(status)) == status
