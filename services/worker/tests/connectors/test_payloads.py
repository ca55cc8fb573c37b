"""Values under a schema in the files of sinks: JSON as JsonConverter writes payloads."""

from __future__ import annotations

from decimal import Decimal

from herdmesh.connect.data import JavaDate, Struct
from herdmesh.connect.schemas import INT32, OPTIONAL_STRING, STRING, Schema, date_schema, decimal_schema
from herdmesh.worker.connectors.payloads import lines_of, needs_writing, plain_of, texts_of

POINT = Schema("STRUCT", fields=[("x", INT32), ("note", OPTIONAL_STRING)])
ORDER = Schema(
    "STRUCT",
    optional=True,
    fields=[("id", INT32), ("at", date_schema()), ("price", decimal_schema(2)), ("where", POINT)],
)


def test_structs_are_objects_with_dates_and_decimals_as_connect_writes_them() -> None:
    order = Struct(ORDER, [7, JavaDate(86_400_000), Decimal("1.50"), Struct(POINT, [1, None])])
    assert texts_of([order, None], ORDER) == [
        b'{"id":7,"at":1,"price":1.50,"where":{"x":1,"note":null}}',
        b"null",
    ]
    assert lines_of([order, None], ORDER) == b"%b\nnull\n" % texts_of([order], ORDER)[0]
    assert plain_of([order], ORDER) == [{"id": 7, "at": 1, "price": 1.5, "where": {"x": 1, "note": None}}]


def test_what_is_plain_already_is_left_alone() -> None:
    assert not needs_writing(None)
    assert not needs_writing(STRING)
    assert needs_writing(POINT)
    assert needs_writing(decimal_schema(2))
