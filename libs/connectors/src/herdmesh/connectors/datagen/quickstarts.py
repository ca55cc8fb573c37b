"""Sample schemas by name: `quickstart=users` and others.

Owns the schemas and their key fields. The field names are those of Confluent's samples; values and ranges are our own.

Invariant: `avro_schema` accepts each of them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_2026_MS, _2027_MS = 1_767_225_600_000, 1_798_761_600_000


@dataclass(frozen=True, slots=True)
class Quickstart:
    """A schema's JSON, and the key field unless `schema.keyfield` names another."""

    schema: str
    key: str


def _type(kind: str, **properties: Any) -> dict[str, Any]:
    return {"type": kind, "arg.properties": properties}


def _text(pattern: str) -> dict[str, Any]:
    return _type("string", regex=pattern)


def _record(name: str, **fields: Any) -> dict[str, Any]:
    return {
        "type": "record", "name": name, "namespace": "herdmesh.datagen",
        "fields": [{"name": field, "type": kind} for field, kind in fields.items()],
    }  # fmt: skip


_TIME = _type("long", range={"min": _2026_MS, "max": _2027_MS})

QUICKSTARTS: Mapping[str, Quickstart] = {
    "users": Quickstart(
        json.dumps(_record(
            "users",
            registertime=_TIME,
            userid=_text("User_[1-9][0-9]?"),
            regionid=_text("Region_[1-9]"),
            gender=_type("string", options=["FEMALE", "MALE", "OTHER"]),
        )),
        "userid",
    ),
    "pageviews": Quickstart(
        json.dumps(_record(
            "pageviews",
            viewtime=_type("long", iteration={"start": _2026_MS, "step": 10}),
            userid=_text("User_[1-9][0-9]?"),
            pageid=_text("Page_[1-9][0-9]"),
        )),
        "userid",
    ),
    "orders": Quickstart(
        json.dumps(_record(
            "orders",
            ordertime=_TIME,
            orderid=_type("long", iteration={"start": 0}),
            itemid=_text("Item_[1-9][0-9]{0,2}"),
            orderunits=_type("double", range={"min": 0.1, "max": 10.0}),
            address=_record(
                "address", city=_text("City_[1-9][0-9]?"), state=_text("State_[1-9][0-9]?"),
                zipcode=_type("int", range={"min": 10_000, "max": 100_000}),
            ),
        )),
        "orderid",
    ),
    "stock_trades": Quickstart(
        json.dumps(_record(
            "stock_trades",
            side=_type("string", options=["BUY", "SELL"]),
            quantity=_type("int", range={"min": 1, "max": 5_000}),
            symbol=_type("string", options=["ALFA", "BRVO", "CHRL", "DLTA", "ECHO", "FOXT", "GOLF", "HOTL"]),
            price=_type("int", range={"min": 100, "max": 100_000}),
            account=_text("[A-Z]{3}[0-9]{3}"),
            userid=_text("User_[1-9][0-9]?"),
        )),
        "symbol",
    ),
}  # fmt: skip
