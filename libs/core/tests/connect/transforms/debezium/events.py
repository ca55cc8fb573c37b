"""Change events as Debezium's transformations get them: the parts of the cases."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]


def field(name: str, kind: str, /, optional: bool = True, **more: Any) -> Json:
    """A field of a struct's schema."""
    return {"type": kind, "optional": optional, **more, "field": name}


def struct_of(name: str | None, fields: list[Json], optional: bool = False) -> Json:
    named = {} if name is None else {"name": name}
    return {"type": "struct", "fields": fields, "optional": optional, **named}


_SOURCE = [
    *(field(name, "string", optional=False) for name in ("version", "connector", "name")),
    field("ts_ms", "int64", optional=False),
    field("snapshot", "string", default="false"),
    *(field(name, "string", optional=False) for name in ("db", "schema", "table")),
    field("lsn", "int64"),
]


def envelope_of(row: list[Json], *, name: str = "shop.public.orders", transaction: bool = True) -> Json:
    block = [field("id", "string", False), field("total_order", "int64", False)]
    value = struct_of(f"{name}.Value", row, optional=True)
    return struct_of(
        f"{name}.Envelope",
        [
            {**value, "field": "before"},
            {**value, "field": "after"},
            {**struct_of("io.debezium.connector.postgresql.Source", _SOURCE), "field": "source"},
            *([{**struct_of("event.block", block, optional=True), "field": "transaction"}] if transaction else []),
            field("op", "string", optional=False),
            field("ts_ms", "int64"),
        ],
    )


_SOURCE_VALUE = {
    "version": "3.6.1.Final", "connector": "postgresql", "name": "shop", "ts_ms": 1700000000000, "snapshot": None,
    "db": "d", "schema": "public", "table": "orders", "lsn": 42,
}  # fmt: skip


def event_of(op: str, before: Json | None, after: Json | None, *, transaction: Json | None = None) -> Json:
    return {
        "before": before, "after": after, "source": _SOURCE_VALUE, "transaction": transaction, "op": op,
        "ts_ms": 1700000000123,
    }  # fmt: skip


KEY = struct_of("shop.public.orders.Key", [field("id", "int32", optional=False)])


def record_of(schema: Json | None, value: Any, **changes: Any) -> Json:
    return {
        "kind": "source", "topic": "shop.public.orders", "partition": None, "keySchema": KEY, "key": {"id": 1},
        "valueSchema": schema, "value": value, "timestamp": 1700000000456, "headers": [], **changes,
    }  # fmt: skip
