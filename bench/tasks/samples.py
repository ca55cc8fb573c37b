"""The records that the cases read and write: bytes of topics, and batches that a chain makes from them.

Owns their content. Runs in an older tree too: it imports only what both have.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import cache
from typing import Any

from herdmesh.connect.chain.chain_config import sink_chain, source_chain
from herdmesh.connect.converters import make_converter
from herdmesh.connect.model.data import Batch, JavaDate, Struct
from herdmesh.connect.model.schemas import (
    BOOLEAN,
    FLOAT64,
    INT32,
    INT64,
    OPTIONAL_STRING,
    STRING,
    Schema,
    date_schema,
    decimal_schema,
    timestamp_schema,
)
from herdmesh.connect.spi.connector import SinkBatch

RECORDS = 500
"""Records of a batch, the default of a consumer's poll."""
TOPIC = "bench"
_START_MS = 1_700_000_000_000
_JSON = "org.apache.kafka.connect.json.JsonConverter"
_STRING = "org.apache.kafka.connect.storage.StringConverter"
_TRANSFORMS = "org.apache.kafka.connect.transforms."

FLAT = Schema(
    "STRUCT",
    name="bench.Flat",
    fields=[
        ("id", INT64), ("key", STRING), ("name", STRING), ("email", STRING), ("amount", FLOAT64), ("ok", BOOLEAN),
        ("note", OPTIONAL_STRING),
    ],
)  # fmt: skip
_INNER = Schema("STRUCT", name="bench.Inner", fields=[("x", INT32), ("y", OPTIONAL_STRING)])
RICH = Schema(
    "STRUCT",
    name="bench.Rich",
    fields=[
        ("id", INT64), ("name", OPTIONAL_STRING), ("price", decimal_schema(2)), ("day", date_schema()),
        ("at", timestamp_schema()), ("tags", Schema("ARRAY", value_schema=STRING)), ("inner", _INNER),
    ],
)  # fmt: skip
COLUMNS = Schema("STRUCT", name="bench.Columns", fields=[(one.name, one.schema) for one in RICH.fields[:-1]])
"""`RICH` without its struct, as a table has it."""


def _flat(number: int) -> list[Any]:
    key = str(uuid.UUID(int=number * 0x9E3779B97F4A7C15 % 2**128))
    note = None if number % 5 == 0 else "the quick brown fox"
    return [number, key, f"user{number % 1000}", f"user{number}@example.com", number * 0.01, number % 2 == 0, note]


def _rich(number: int) -> list[Any]:
    inner = Struct(_INNER, [number, None if number % 5 == 0 else "y"])
    name = None if number % 5 == 0 else f"name {number}"
    day, at = JavaDate(86_400_000 * (number % 20_000)), JavaDate(_START_MS + number)
    return [number, name, Decimal(number).scaleb(-2), day, at, ["a", f"b {number}"], inner]


def structs(schema: Schema, first: int = 0) -> list[Struct]:
    """A batch of structs."""
    make = _flat if schema is FLAT else _rich
    count = len(schema.fields)
    return [Struct(schema, make(number)[:count]) for number in range(first, first + RECORDS)]


def maps(*, nulls: bool = False) -> list[dict[str, Any]]:
    """Plain maps with a map and a list in them; `nulls`: a fifth of them has a null."""
    return [
        {"id": number, "name": f"name {number}", "price": number / 7, "ok": number % 2 == 0, "tags": ["a", "b"],
         "inner": {"x": number, "y": None if nulls and number % 5 == 0 else "t"}}
        for number in range(RECORDS)
    ]  # fmt: skip


def texts(*, quoted: bool = False) -> list[str]:
    """Plain texts; `quoted`: with quotes in them, like JSON in a text."""
    mark = '"' if quoted else ""
    return [f"{mark}a plain text of some length, number {number}{mark}" for number in range(RECORDS)]


def converter(kind: str, **settings: str) -> Any:
    """The converter with Connect's name; settings with `_` for the dots."""
    given = {f"value.converter.{name.replace('_', '.')}": value for name, value in settings.items()}
    return make_converter("value.converter", {"value.converter": kind, **given}, role="value")


def _json_bytes(values: Sequence[Any]) -> list[bytes]:
    return [json.dumps(one, separators=(",", ":")).encode() for one in values]


def _enveloped(schema: Schema, first: int = 0) -> list[bytes]:
    made = converter(_JSON, schemas_enable="true")
    return [made.write(one, schema) for one in structs(schema, first)]


@cache
def raw(form: str) -> list[bytes]:
    """A batch of a topic's values: `texts`, `quoted`, `maps`, `nulls`, `flat`, `rich` or `columns`, the last three with
    their schema."""
    match form:
        case "texts" | "quoted":
            return [one.encode() for one in texts(quoted=form == "quoted")]
        case "maps" | "nulls":
            return _json_bytes(maps(nulls=form == "nulls"))
        case _:
            return _enveloped({"flat": FLAT, "rich": RICH, "columns": COLUMNS}[form])


def rows(schema: Schema, first: int) -> list[bytes]:
    """The same, numbered from `first` on."""
    return _enveloped(schema, first)


STEPS: Mapping[str, Mapping[str, str]] = {
    "InsertField": {"type": f"{_TRANSFORMS}InsertField$Value", "static.field": "from", "static.value": "bench"},
    "ReplaceField": {"type": f"{_TRANSFORMS}ReplaceField$Value", "renames": "name:label", "exclude": "price,amount"},
    "MaskField": {"type": f"{_TRANSFORMS}MaskField$Value", "fields": "name"},
    "Cast": {"type": f"{_TRANSFORMS}Cast$Value", "spec": "id:string"},
    "Cast to float": {"type": f"{_TRANSFORMS}Cast$Value", "spec": "id:float64"},
    "ExtractField": {"type": f"{_TRANSFORMS}ExtractField$Value", "field": "name"},
    "HoistField": {"type": f"{_TRANSFORMS}HoistField$Value", "field": "row"},
    "Flatten": {"type": f"{_TRANSFORMS}Flatten$Value"},
    "RegexRouter": {"type": f"{_TRANSFORMS}RegexRouter", "regex": "b(.*)", "replacement": "x$1"},
    "TimestampRouter": {"type": f"{_TRANSFORMS}TimestampRouter", "topic.format": "${topic}-${timestamp}"},
    "InsertHeader": {"type": f"{_TRANSFORMS}InsertHeader", "header": "h", "value.literal": "v"},
    "ValueToKey": {"type": f"{_TRANSFORMS}ValueToKey", "fields": "id"},
}


def _config(kind: str, *steps: str) -> dict[str, str]:
    """The config of a chain. `kind`: `string`, or `json` with schemas or `plain` JSON without."""
    config = {
        "key.converter": _STRING, "value.converter": _STRING if kind == "string" else _JSON,
        "transforms": ",".join(f"t{at}" for at in range(len(steps))),
    }  # fmt: skip
    if kind != "string":
        config["value.converter.schemas.enable"] = "false" if kind == "plain" else "true"
    for at, step in enumerate(steps):
        config |= {f"transforms.t{at}.{name}": value for name, value in STEPS[step].items()}
    return config


def chain(form: str, *steps: str) -> Any:
    """The chain of a sink whose topic has that form, with these steps."""
    kind = "string" if form in ("texts", "quoted") else "plain" if form in ("maps", "nulls") else "json"
    return sink_chain(_config(kind, *steps))


def chain_of_source(kind: str, *steps: str) -> Any:
    """The chain of a source whose converter is `string`, `plain` or `json`."""
    return source_chain(_config(kind, *steps))


def read(values: Sequence[bytes], first: int = 0) -> Batch:
    """A batch as it is read from Kafka."""
    count = len(values)
    return Batch(TOPIC, 0, [b"%d" % at for at in range(first, first + count)], values, range(first, first + count),
                 [_START_MS] * count)  # fmt: skip


def given(made: Any, values: Sequence[bytes], first: int = 0) -> list[SinkBatch]:
    """The batches that the chain gives to a task for these values."""
    return [
        SinkBatch(
            one.topic, 0, one.offsets[0], one.offsets[-1], one.values, one.keys, one.offsets, one.timestamps_ms,
            one.headers, one.key_schema, one.value_schema, TOPIC,
        )
        for one in made.run(read(values, first))
    ]  # fmt: skip
