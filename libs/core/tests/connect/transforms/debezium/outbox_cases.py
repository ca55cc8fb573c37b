"""Cases over which Debezium's EventRouter is recorded: events of outbox tables, and bad input."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from libs.core.tests.connect.transforms.debezium.events import Json, envelope_of, event_of, field, record_of, struct_of

_ROW = [
    field("id", "string", optional=False, name="io.debezium.data.Uuid"),
    field("aggregatetype", "string", optional=False),
    field("aggregateid", "string", optional=False),
    field("type", "string"),
    field("payload", "string", name="io.debezium.data.Json"),
    field("created_at", "int64", name="io.debezium.time.MicroTimestamp"),
    field("tenant", "string", default="none"),
    field("shard", "int32"),
    field("version", "int32", default=1),
]
_VALUE = {
    "id": "5d3c", "aggregatetype": "Order", "aggregateid": "10", "type": "OrderCreated", "payload": '{"a": 1}',
    "created_at": 1700000000123456, "tenant": "acme", "shard": 2, "version": 3,
}  # fmt: skip
_OUTBOX = "shop.public.outbox"


def _event(value: Json | None, *, row: list[Json] = _ROW, op: str = "c", name: str = _OUTBOX, **changes: Any) -> Json:
    before = value if op == "d" else None
    change = event_of(op, before, None if op == "d" else value)
    del change["transaction"]
    return record_of(envelope_of(row, name=name, transaction=False), change, **{"topic": _OUTBOX, **changes})


def _with(**changes: Any) -> Json:
    return {**_VALUE, **changes}


def _row(name: str, /, **changes: Any) -> list[Json]:
    return [{**one, **changes} if one["field"] == name else one for one in _ROW]


def _without(name: str) -> list[Json]:
    return [one for one in _ROW if one["field"] != name]


def _no_op() -> Json:
    given = _event(_VALUE)
    fields = [{**one, "optional": True} if one["field"] == "op" else one for one in given["valueSchema"]["fields"]]
    return {
        **given,
        "valueSchema": {**given["valueSchema"], "fields": fields},
        "value": {**given["value"], "op": None},
    }


def _records() -> list[Json]:
    header = {"key": "h", "schema": {"type": "string", "optional": False}, "value": "x"}
    text = {"type": "string", "optional": False}
    return [
        _event(_VALUE),
        _event(_with(payload=None, tenant=None, shard=None, version=None, created_at=None), headers=[header]),
        _event(_with(payload="  ", aggregatetype="", type=None), op="r"),
        _event(_with(payload=""), partition=7, timestamp=None),
        _event(_VALUE, op="u"),
        _event(_VALUE, op="d"),
        _event(None, op="t"),
        _event(None, op="m"),
        _no_op(),
        record_of(envelope_of(_ROW), None, topic=_OUTBOX),
        record_of(None, None),
        record_of(None, {"op": "c"}),
        record_of(text, "heartbeat"),
        record_of({**text, "name": "odd.Envelope"}, "odd"),
        record_of(struct_of("odd.Envelope", [field("op", "string", optional=False)]), {"op": "c"}),
        record_of(struct_of("odd.Envelope", [field("op", "int32", optional=False)]), {"op": 1}),
        _event(_VALUE, name="plain"),
        *(_event({k: v for k, v in _VALUE.items() if k != name}, row=_without(name)) for name in _VALUE),
        _event(_with(aggregateid=None), row=_row("aggregateid", optional=True, default="nobody")),
        _event(_with(aggregateid=12), row=_row("aggregateid", type="int32")),
        _event(_with(aggregatetype=None), row=_row("aggregatetype", optional=True)),
        _event(_with(aggregatetype=None), row=_row("aggregatetype", optional=True, default="Thing")),
        _event(_with(aggregatetype=5), row=_row("aggregatetype", type="int64")),
        _event(_with(id=None), row=_row("id", optional=True)),
        _event(_with(payload={"n": 1}), row=[{**struct_of(None, [field("n", "int32")], optional=True),
                                              "field": "payload"} if one["field"] == "payload" else one
                                             for one in _ROW]),
        _event(_with(created_at=1700000000123), row=_row("created_at", name="io.debezium.time.Timestamp")),
        _event(_with(created_at=-1700000000123), row=_row("created_at", name="io.debezium.time.NanoTimestamp")),
        _event(_with(created_at=1700000000123456789), row=_row("created_at", name="io.debezium.time.NanoTimestamp")),
        _event(_with(created_at=1700000000123), row=_row("created_at", name="org.apache.kafka.connect.data.Other")),
        _event(_with(created_at=1700000000123),
               row=[field("created_at", "int64") if one["field"] == "created_at" else one for one in _ROW]),
        _event(_with(created_at=17), row=_row("created_at", type="int32", name="io.debezium.time.Date")),
        _event(_with(shard="two"), row=_row("shard", type="string")),
        _event(_with(version="two"), row=[field("version", "string") if one["field"] == "version" else one
                                          for one in _ROW]),
    ]  # fmt: skip


_PLACE = "table.fields.additional.placement"
_MISSING = "table.field.additional.missing"
_TIME = "table.field.event.timestamp"
_EXPAND = {"table.expand.json.payload": "true"}
_TOMBSTONES = {"route.tombstone.on.empty.payload": "true"}

_BROAD: tuple[Mapping[str, str], ...] = (
    {},
    {_PLACE: "type:envelope,tenant:header:who,shard:partition", **_TOMBSTONES},
    {_PLACE: "type:header, tenant : header, shard:partition", _TIME: "created_at"},
    {_PLACE: "tenant:envelope:t", "table.field.event.schema.version": "version", _MISSING: "ignore"},
    {"table.op.invalid.behavior": "fatal", _PLACE: "type:header", **_TOMBSTONES, **_EXPAND},
)
"""Settings that run with every record."""
_NARROW: tuple[Mapping[str, str], ...] = (
    {"table.op.invalid.behavior": "error"},
    {"table.op.invalid.behavior": " Fatal "},
    {"table.op.invalid.behavior": "stop"},
    {"table.field.event.id": "type"},
    {"table.field.event.id": "nowhere"},
    {"table.field.event.key": "type"},
    {"table.field.event.key": "nowhere"},
    {"table.field.event.key": ""},
    {"table.field.event.type": "nowhere"},
    {"table.field.event.payload": "nowhere"},
    {"table.field.event.payload": "created_at"},
    {"table.field.event.payload": "type", **_EXPAND},
    {_TIME: "nowhere"},
    {_TIME: "type"},
    {_TIME: ""},
    {_PLACE: "nowhere:header"},
    {_PLACE: "nowhere:envelope"},
    {_PLACE: "nowhere:partition"},
    {_PLACE: "nowhere:header,nowhere:envelope:x,nowhere:partition", _MISSING: "ignore"},
    {_PLACE: "type:envelope,type:envelope"},
    {_PLACE: "type:envelope:payload"},
    {_PLACE: "type:header:id,id:header:id"},
    {_PLACE: "tenant:partition"},
    {_PLACE: "type"},
    {_PLACE: "a:b:c:d"},
    {_PLACE: "type:elsewhere"},
    {_PLACE: ""},
    {_PLACE: "type:ENVELOPE: kind ", "table.field.event.schema.version": "shard"},
    {"table.field.event.schema.version": "version"},
    {_PLACE: "type:envelope", "table.field.event.schema.version": "type"},
    {_PLACE: "type:envelope", "table.field.event.schema.version": "nowhere"},
    {_MISSING: "perhaps"},
    {"route.by.field": "type"},
    {"route.by.field": "nowhere"},
    {"route.by.field": "shard"},
    {"route.topic.replacement": "${routedByValue}.events"},
    {"route.topic.regex": "(.)rder", "route.topic.replacement": "$1-x"},
    {"route.topic.regex": "nothing", "route.topic.replacement": "x"},
    {"route.topic.regex": "(.", "route.topic.replacement": "x"},
    {"route.topic.replacement": "${other}"},
    {"route.topic.replacement": ""},
    {"route.tombstone.on.empty.payload": "maybe"},
    {"table.json.payload.null.behavior": "keep", **_EXPAND},
    {"tracing.span.context.field": "type", "tracing.operation.name": "x", "tracing.with.context.field.only": "true"},
    {**_EXPAND, "field.name.adjustment.mode": "odd"},
)


def _expanding() -> Iterator[tuple[Mapping[str, str], Json]]:
    keep = {"table.json.payload.null.behavior": "optional_bytes"}
    plain = [
        "{}", "[]", "[1]", '[{"a":1}]', '"text"', "12", "null", "true", " {}", "{", '{"a":1} x', '{"a":1}{"b":2}',
        '{"a":1,"b":"x","c":true,"d":1.5,"e":3000000000,"f":null}', '{"a":123456789012345678901}',
        '{"a":0.1,"b":1e3,"c":-0.0,"d":-0}', '{"a":{"b":{"c":null,"d":[]}}}', '{"a":[]}', '{"a":[1,2,3]}',
        '{"a":[1,3000000000]}', '{"a":[1,"x"]}', '{"a":[1,2.5]}', '{"a":[null,1,null]}', '{"a":[null]}',
        '{"a":[null,"x"]}',
        '{"a":[[1],[2]]}', '{"a":[[1],["x"]]}', '{"a":[[],[1]]}', '{"a":[{"b":1},{"b":2}]}', '{"a":[{"b":1},null]}',
        '{"a":[{"b":null},{"b":2}]}', '{"a":[{}]}', '{"a":1,"a":"two"}', '{"":1}', '{"a b":1,"c-d":{"1e":2}}',
        '{"\\u00e4":"\\ud83d\\ude00"}', '{"a":NaN}', "{'a':1}", '{"a":01}', '{"payload":{"payload":1}}',
        '{"a":true,"b":[true,false]}', '{"a":[1.5,2.5]}', '{"a":[3000000000,3000000001]}',
    ]  # fmt: skip
    for text in plain:
        yield _EXPAND, _event(_with(payload=text))
    for text in ('{"a":null}', '{"a":[null]}', '{"a":[{"b":null},{"b":"x"}]}', "[null]", '{"a":{"b":null}}'):
        yield {**_EXPAND, **keep}, _event(_with(payload=text))
    for text in ('{"a":1}', "[1]", "x", "", None):
        yield {**_EXPAND, _PLACE: "type:envelope", **_TOMBSTONES}, _event(_with(payload=text))
    for mode in ("avro", "avro_unicode", "none"):
        yield {**_EXPAND, "field.name.adjustment.mode": mode}, _event(_with(payload='{"a b":1,"c-d":{"1e":2},"ok":3}'))


def outbox_cases() -> Iterator[tuple[Mapping[str, str], Json]]:
    """Settings and record of every case."""
    records = _records()
    for config in _BROAD:
        for given in records:
            yield config, given
    for config in _NARROW:
        for given in records[:2]:
            yield config, given
    yield from _expanding()
