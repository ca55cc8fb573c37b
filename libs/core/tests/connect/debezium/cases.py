"""The cases that Debezium's transformations are recorded over: change events of a made-up table, and bad input."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

_PACKAGE = "io.debezium.transforms"
ROUTER = f"{_PACKAGE}.ByLogicalTableRouter"
EXTRACT = f"{_PACKAGE}.ExtractNewRecordState"
CLASSES = (EXTRACT, ROUTER)

Json = dict[str, Any]


def _field(name: str, kind: str, optional: bool = True, **more: Any) -> Json:
    return {"type": kind, "optional": optional, **more, "field": name}


def _struct(name: str | None, fields: list[Json], optional: bool = False) -> Json:
    named = {} if name is None else {"name": name}
    return {"type": "struct", "fields": fields, "optional": optional, **named}


_SOURCE = [
    *(_field(name, "string", optional=False) for name in ("version", "connector", "name")),
    _field("ts_ms", "int64", optional=False),
    _field("snapshot", "string", default="false"),
    *(_field(name, "string", optional=False) for name in ("db", "schema", "table")),
    _field("lsn", "int64"),
]
_NESTED = _struct("shop.Address", [_field("city", "string"), _field("zip", "int32", optional=False)], optional=True)
_ROW = [
    _field("id", "int32", optional=False),
    _field("name", "string"),
    _field("status", "string", default="new"),
    {**_NESTED, "field": "address"},
]


def _envelope(row: list[Json], *, name: str = "shop.public.orders", transaction: bool = True) -> Json:
    block = [_field("id", "string", False), _field("total_order", "int64", False)]
    value = _struct(f"{name}.Value", row, optional=True)
    return _struct(
        f"{name}.Envelope",
        [
            {**value, "field": "before"},
            {**value, "field": "after"},
            {**_struct("io.debezium.connector.postgresql.Source", _SOURCE), "field": "source"},
            *([{**_struct("event.block", block, optional=True), "field": "transaction"}] if transaction else []),
            _field("op", "string", optional=False),
            _field("ts_ms", "int64"),
        ],
    )


_SOURCE_VALUE = {
    "version": "3.6.1.Final", "connector": "postgresql", "name": "shop", "ts_ms": 1700000000000, "snapshot": None,
    "db": "d", "schema": "public", "table": "orders", "lsn": 42,
}  # fmt: skip
_A = {"id": 1, "name": "ada", "status": None, "address": {"city": "Ulm", "zip": 89073}}
_B = {"id": 1, "name": None, "status": "paid", "address": None}


def _change(op: str, before: Json | None, after: Json | None, *, transaction: Json | None = None) -> Json:
    return {
        "before": before, "after": after, "source": _SOURCE_VALUE, "transaction": transaction, "op": op,
        "ts_ms": 1700000000123,
    }  # fmt: skip


_KEY = _struct("shop.public.orders.Key", [_field("id", "int32", optional=False)])
_NAMES = {"type": "array", "items": {"type": "string", "optional": False}, "optional": False}


def _record(schema: Json | None, value: Any, **changes: Any) -> Json:
    return {
        "kind": "source", "topic": "shop.public.orders", "partition": None, "keySchema": _KEY, "key": {"id": 1},
        "valueSchema": schema, "value": value, "timestamp": 1700000000456, "headers": [], **changes,
    }  # fmt: skip


def _case(java: str, config: Mapping[str, str], given: Json) -> Json:
    text = json.dumps([config, given])
    known = hashlib.sha256(text.encode()).hexdigest()[:10]
    return {
        "id": f"d/{java.rpartition('.')[2]}/{known}",
        "transform": java,
        "config": dict(config),
        "input": given,
    }


def _extract_records() -> list[Json]:
    orders, plain = _envelope(_ROW), _envelope(_ROW, transaction=False)
    header = {"key": "gone", "schema": _NAMES, "value": ["name", "id", "status"]}
    other = {"key": "kept", "schema": {"type": "string", "optional": False}, "value": "x"}
    without = _struct("shop.public.orders.Envelope", [_field("op", "string", False)])
    text_after = _struct(
        "mongo.Envelope",
        [_field("before", "string"), _field("after", "string"), *_envelope(_ROW)["fields"][2:]],
    )
    no_transaction = {name: item for name, item in _change("c", None, _A).items() if name != "transaction"}
    return [
        _record(orders, _change("c", None, _A)),
        _record(orders, _change("r", None, _B, transaction={"id": "7:1", "total_order": 3})),
        _record(orders, _change("u", _A, _B), headers=[other, header]),
        _record(orders, _change("d", _A, None)),
        _record(orders, _change("d", _A, None), headers=[header]),
        _record(orders, _change("d", _B, None), keySchema=None, key=None),
        _record(orders, _change("t", None, None)),
        _record(orders, None),
        _record(None, None, headers=[other]),
        _record(None, {"op": "c", "after": {"id": "one"}}),
        _record({"type": "string", "optional": True}, "heartbeat"),
        _record(_struct("shop.Heartbeat", [_field("ts_ms", "int64")]), {"ts_ms": 1}),
        _record(plain, no_transaction),
        _record(without, {"op": "c"}),
        _record(text_after, _change("c", None, None) | {"after": "{}"}),
        _record({"type": "string", "optional": True, "name": "odd.Envelope"}, "odd"),
    ]


_EXTRACT_CONFIGS: tuple[Mapping[str, str], ...] = (
    {},
    *({"delete.tombstone.handling.mode": mode}
      for mode in ("drop", "tombstone", "rewrite", "rewrite-with-tombstone", "delete-to-tombstone")),
    {"add.fields": "op,table,source.ts_ms,ts_ms", "add.headers": "op, db"},
    {"add.fields": "op:OP,source.lsn:pos,snapshot", "add.fields.prefix": "", "add.headers": "version:v,total_order",
     "add.headers.prefix": "h_", "delete.tombstone.handling.mode": "rewrite"},
    {"add.fields": "transaction.id,total_order,id"},
    {"add.fields": "missing,source.missing,name"},
    {"add.fields": "nowhere.field"},
    {"add.fields": "op,op"},
    {"add.fields": "source"},
    {"add.headers": "source.name,op:o", "delete.tombstone.handling.mode": "rewrite-with-tombstone"},
    {"add.headers": "nowhere.field"},
    {"add.headers": "op", "delete.tombstone.handling.mode": "delete-to-tombstone"},
    {"route.by.field": "name"},
    {"route.by.field": "name", "delete.tombstone.handling.mode": "drop"},
    {"route.by.field": "name", "delete.tombstone.handling.mode": "rewrite"},
    {"route.by.field": "status"},
    {"route.by.field": "id"},
    {"route.by.field": "missing"},
    {"drop.fields.header.name": "gone"},
    {"drop.fields.header.name": "gone", "drop.fields.from.key": "true"},
    {"drop.fields.header.name": "gone", "drop.fields.from.key": "true", "drop.fields.keep.schema.compatible": "false"},
    {"drop.fields.header.name": "gone", "delete.tombstone.handling.mode": "rewrite", "add.fields": "op"},
    {"drop.fields.header.name": "gone", "delete.tombstone.handling.mode": "delete-to-tombstone"},
    {"drop.fields.header.name": "kept"},
    {"replace.null.with.default": "false", "delete.tombstone.handling.mode": "rewrite"},
    {"delete.tombstone.handling.mode": "sometimes"},
    {"add.fields": "a:b:c"},
    {"drop.fields.from.key": "perhaps"},
)  # fmt: skip


def cases() -> Iterator[Json]:
    """Every case of every class."""
    for config in _EXTRACT_CONFIGS:
        for given in _extract_records():
            yield _case(EXTRACT, config, given)
    for config in _ROUTER_CONFIGS:
        for given in _router_records():
            yield _case(ROUTER, config, given)


def _router_records() -> list[Json]:
    orders = _envelope(_ROW)
    text_rows = _struct(
        "mongo.Envelope",
        [_field("before", "string"), _field("after", "string"), *_envelope(_ROW)["fields"][2:]],
    )
    return [
        _record(orders, _change("c", None, _A)),
        _record(orders, _change("u", _A, _B)),
        _record(orders, _change("d", _B, None), topic="shard_2.orders"),
        _record(orders, _change("c", None, _A), keySchema=None, key=None),
        _record(orders, _change("c", None, _A), keySchema={"type": "string", "optional": False}, key="k"),
        _record(orders, None),
        _record(None, None),
        _record(_struct("shop.Heartbeat", [_field("ts_ms", "int64")]), {"ts_ms": 1}),
        _record(orders, _change("c", None, _A), topic="elsewhere"),
        _record(text_rows, _change("c", None, None) | {"after": "{}"}),
        _record(_struct("odd.Envelope", [_field("op", "string", False)]), {"op": "c"}),
    ]


_ROUTER_CONFIGS: tuple[Mapping[str, str], ...] = (
    {"topic.regex": "(.*)orders", "topic.replacement": "$1all"},
    {"topic.regex": "(.*)orders", "topic.replacement": "all.orders", "key.enforce.uniqueness": "false"},
    {"topic.regex": ".*orders", "topic.replacement": "all", "key.field.name": "from"},
    {"topic.regex": ".*orders", "topic.replacement": "all", "key.field.regex": "([^.]*)_(.*)\\.orders",
     "key.field.replacement": "$2"},
    {"topic.regex": ".*orders", "topic.replacement": ""},
    {"topic.regex": "(.*)orders", "topic.replacement": "$1"},
    {"topic.regex": "(.*", "topic.replacement": "x"},
    {"topic.regex": ".*", "topic.replacement": "x-$y"},
    {"topic.replacement": "x"},
    {"topic.regex": ".*", "topic.replacement": "all", "key.field.regex": ".*"},
    {"topic.regex": ".*orders", "topic.replacement": "all-1/x", "schema.name.adjustment.mode": "avro"},
    {"topic.regex": ".*orders", "topic.replacement": "all", "key.field.name": "id"},
)  # fmt: skip
