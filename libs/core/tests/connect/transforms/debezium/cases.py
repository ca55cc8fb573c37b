"""Cases over which Debezium's transformations are recorded: change events of an invented table, and bad input."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping

from libs.core.tests.connect.transforms.debezium.events import Json, envelope_of, event_of, field, record_of, struct_of
from libs.core.tests.connect.transforms.debezium.outbox_cases import outbox_cases

_PACKAGE = "io.debezium.transforms"
ROUTER = f"{_PACKAGE}.ByLogicalTableRouter"
EXTRACT = f"{_PACKAGE}.ExtractNewRecordState"
OUTBOX = f"{_PACKAGE}.outbox.EventRouter"
CLASSES = (EXTRACT, ROUTER, OUTBOX)

_NESTED = struct_of("shop.Address", [field("city", "string"), field("zip", "int32", optional=False)], optional=True)
_ROW = [
    field("id", "int32", optional=False),
    field("name", "string"),
    field("status", "string", default="new"),
    {**_NESTED, "field": "address"},
]


_A = {"id": 1, "name": "ada", "status": None, "address": {"city": "Ulm", "zip": 89073}}
_B = {"id": 1, "name": None, "status": "paid", "address": None}


_NAMES = {"type": "array", "items": {"type": "string", "optional": False}, "optional": False}


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
    orders, plain = envelope_of(_ROW), envelope_of(_ROW, transaction=False)
    header = {"key": "gone", "schema": _NAMES, "value": ["name", "id", "status"]}
    other = {"key": "kept", "schema": {"type": "string", "optional": False}, "value": "x"}
    without = struct_of("shop.public.orders.Envelope", [field("op", "string", False)])
    text_after = struct_of(
        "mongo.Envelope",
        [field("before", "string"), field("after", "string"), *envelope_of(_ROW)["fields"][2:]],
    )
    no_transaction = {name: item for name, item in event_of("c", None, _A).items() if name != "transaction"}
    return [
        record_of(orders, event_of("c", None, _A)),
        record_of(orders, event_of("r", None, _B, transaction={"id": "7:1", "total_order": 3})),
        record_of(orders, event_of("u", _A, _B), headers=[other, header]),
        record_of(orders, event_of("d", _A, None)),
        record_of(orders, event_of("d", _A, None), headers=[header]),
        record_of(orders, event_of("d", _B, None), keySchema=None, key=None),
        record_of(orders, event_of("t", None, None)),
        record_of(orders, None),
        record_of(None, None, headers=[other]),
        record_of(None, {"op": "c", "after": {"id": "one"}}),
        record_of({"type": "string", "optional": True}, "heartbeat"),
        record_of(struct_of("shop.Heartbeat", [field("ts_ms", "int64")]), {"ts_ms": 1}),
        record_of(plain, no_transaction),
        record_of(without, {"op": "c"}),
        record_of(text_after, event_of("c", None, None) | {"after": "{}"}),
        record_of({"type": "string", "optional": True, "name": "odd.Envelope"}, "odd"),
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
    {"route.by.field": "status", "delete.tombstone.handling.mode": "rewrite-with-tombstone"},
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
    for config, given in outbox_cases():
        yield _case(OUTBOX, config, given)


def _router_records() -> list[Json]:
    orders = envelope_of(_ROW)
    text_rows = struct_of(
        "mongo.Envelope",
        [field("before", "string"), field("after", "string"), *envelope_of(_ROW)["fields"][2:]],
    )
    return [
        record_of(orders, event_of("c", None, _A)),
        record_of(orders, event_of("u", _A, _B)),
        record_of(orders, event_of("d", _B, None), topic="shard_2.orders"),
        record_of(orders, event_of("c", None, _A), keySchema=None, key=None),
        record_of(orders, event_of("c", None, _A), keySchema={"type": "string", "optional": False}, key="k"),
        record_of(orders, None),
        record_of(None, None),
        record_of(struct_of("shop.Heartbeat", [field("ts_ms", "int64")]), {"ts_ms": 1}),
        record_of(orders, event_of("c", None, _A), topic="elsewhere"),
        record_of(text_rows, event_of("c", None, None) | {"after": "{}"}),
        record_of(struct_of("odd.Envelope", [field("op", "string", False)]), {"op": "c"}),
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
