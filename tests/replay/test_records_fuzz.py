"""Invalid bytes and invalid values through every converter: a value, or an error of that record, and nothing else.

Bytes: random ones, golden ones damaged, JSON that is nearly valid, envelopes whose schema is wrong somewhere.
Values: of random schemas, of another schema than the one they come with, and of none. Converters that need a registry
have tests of their own.
"""

from __future__ import annotations

import base64
import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pytest
from confluent_kafka import Message

from herdmesh.connect.chain import chain_config
from herdmesh.connect.converters import CONVERTERS, Converter, make_converter
from herdmesh.connect.converters.simple_header import SimpleHeaderConverter
from herdmesh.connect.errors import ConnectError
from herdmesh.connect.json_text import record_json
from herdmesh.connect.model.data import (
    Batch,
    BigInteger,
    Float32,
    Header,
    Int8,
    Int16,
    Int32,
    Int64,
    JavaDate,
    Struct,
)
from herdmesh.connect.model.schemas import DATE, DECIMAL, SCALE, TIME, TIMESTAMP, Schema
from herdmesh.engine.bad_records.tolerance import Counts, FailedRecords, SourceRecord, Tolerance, error_settings
from libs.core.tests.connect.golden_vectors import vectors
from tests.support.sizes import soak_or
from tests.support.tally import note

_TRIES = soak_or(1_000, 100_000)
_TOGETHER = 50
_HANGS_S = 30.0
_LOCAL = sorted({cls.__name__ for cls in CONVERTERS.values() if "schema.registry.url" not in cls.config_def.keys})
_CASES: dict[str, dict[str, str]] = {
    **{name: {} for name in _LOCAL},
    "JsonConverter without schemas": {"schemas.enable": "false"},
    "JsonConverter with numeric decimals": {"decimal.format": "NUMERIC", "replace.null.with.default": "false"},
}
_TOKENS = [
    *("{", "}", "[", "]", ":", ",", '"', "\\", "\\u", "d800", "-", "0", "1", "9" * 30, "1e", "e", "1e999", ".", "NaN"),
    *("null", "true", "fals", " ", "\n", '{"schema":', '"payload":', '"type":"struct"', '"fields":[', '"optional":'),
    *('{"type":"int8"}', '"int32"', '"field":"a"', '"name":"org.apache.kafka.connect.data.Decimal"', '"scale":"x"'),
    *('"version":', '"default":', '"parameters":{', '"items":', '"keys":', '"values":', "\u00e9", "\U0001f600", "\x00"),
]


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("name", _CASES)
def test_any_bytes_give_a_value_or_a_record_error(name: str) -> None:
    made = converter(name)
    outcomes = Counter[str]()
    block: list[tuple[bytes, Any]] = []
    for data in strings(random.Random(f"bytes {name}"), _TRIES):
        outcome, read = tried(lambda data=data: made.read(data), data)
        outcomes[outcome] += 1
        if read is None:
            continue
        schema, value = read
        text = record_json.value_to(value, schema)
        tried(lambda schema=schema, value=value: made.write(value, schema), data)
        block.append((data, text))
        if len(block) == _TOGETHER:
            schemas, values = made.read_many([one for one, _ in block])
            each = schemas if isinstance(schemas, list) else [schemas] * len(values)
            assert [record_json.value_to(value, schema) for value, schema in zip(values, each, strict=True)] == [
                text for _, text in block
            ]
            block.clear()
    assert sum(outcomes.values()) == _TRIES
    note(f"bytes into {name}", runs=1, operations=_TRIES, faults=outcomes)


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("name", _CASES)
def test_any_value_gives_bytes_or_a_record_error(name: str) -> None:
    made = converter(name)
    outcomes = Counter[str]()
    chance = random.Random(f"values {name}")
    for _ in range(_TRIES):
        schema, value = any_value(chance)
        outcome, written = tried(lambda value=value, schema=schema: made.write(value, schema), (schema, value))
        outcomes[outcome] += 1
        if outcome == "value":
            assert written is None or type(written) is bytes
            tried(lambda written=written: made.read(written), written)
    assert outcomes["value"]
    note(f"values into {name}", runs=1, operations=_TRIES, faults=outcomes)


@pytest.mark.timeout(1_800)
def test_any_header_bytes_give_a_value_or_a_record_error() -> None:
    made = SimpleHeaderConverter()
    made.configure({}, "header")
    outcomes = Counter[str]()
    chance = random.Random("headers")
    for data in strings(chance, _TRIES):
        outcome, header = tried(lambda data=data: made.read_header("h", data), data)
        outcomes[f"read: {outcome}"] += 1
        if header is not None:
            record_json.value_to(header.value, header.schema)
        schema, value = any_value(chance)
        wanted = Header("h", value, schema)
        outcomes[f"written: {tried(lambda wanted=wanted: made.write_header(wanted), wanted)[0]}"] += 1
    note("headers both ways", runs=1, operations=2 * _TRIES, faults=outcomes)


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("name", _CASES)
def test_a_task_that_tolerates_all_errors_keeps_or_counts_every_record(name: str) -> None:
    """Through a sink's chain in batches, and through a source's, with the errors.tolerance a run has."""
    config = {f"value.converter.{key}": value for key, value in _CASES[name].items()}
    config |= {"key.converter": "StringConverter", "value.converter": name.split()[0], "transforms": "route"}
    config |= {
        "transforms.route.type": "RegexRouter",
        "transforms.route.regex": "t",
        "transforms.route.replacement": "u",
    }
    chance = random.Random(f"chains {name}")
    kept, skipped = sunk(config, list(strings(chance, _TRIES)))
    assert kept + skipped == _TRIES
    sent, refused = sourced(config, [any_value(chance) for _ in range(_TRIES)])
    assert sent + refused == _TRIES
    note(f"chains of {name}", runs=2, operations=2 * _TRIES, faults=Counter(sink=skipped, source=refused))


def sunk(config: dict[str, str], given: list[bytes]) -> tuple[int, int]:
    """How many of these values of topic `t` a sink's chain passes to its task, and how many it skips."""
    chain, counts, kept = chain_config.sink_chain(config), Counts(), 0
    tolerance = tolerant(counts, lambda batch, at: Message(topic="t", partition=0, offset=at, value=batch.values[at]))
    for start in range(0, len(given), _TOGETHER):
        part = given[start : start + _TOGETHER]
        batch = Batch("t", 0, [None] * len(part), part, range(len(part)), [0] * len(part))
        kept += sum(len(list(one.values)) for one in chain.run(batch, tolerance))
    assert counts.skipped == counts.errors
    return kept, counts.skipped


def sourced(config: dict[str, str], given: list[tuple[Schema | None, Any]]) -> tuple[int, int]:
    """How many of these values a source's chain passes to Kafka, one by one, and how many it skips."""
    chain, counts, sent = chain_config.source_chain(config), Counts(), 0
    tolerance = tolerant(counts, lambda batch, at: SourceRecord(batch, at, None, None))
    for schema, value in given:
        sent += sum(len(one.values) for one in chain.run(Batch("t", None, (), [value], value_schema=schema), tolerance))
    assert counts.skipped == counts.errors
    return sent, counts.skipped


def tolerant(counts: Counts, origin: Callable[[Batch, int], Message | SourceRecord]) -> Tolerance:
    """The error policy of `errors.tolerance=all` without reporters."""
    settings = error_settings({"errors.tolerance": "all"})
    return Tolerance(settings, FailedRecords(settings, counts, []), origin=origin, pause=lambda _seconds, _yields: None)


def converter(name: str) -> Converter:
    """The case's converter, configured."""
    settings = {f"value.converter.{key}": value for key, value in _CASES[name].items()}
    return make_converter("value.converter", {"value.converter": name.split()[0], **settings}, role="value")


def tried(call: Callable[[], Any], given: object) -> tuple[str, Any]:
    """`value` or `error`, and the result. Fails for any exception that is no record's, and for a call that takes too
    long.
    """
    begun_s = time.perf_counter()
    try:
        found = "value", call()
    except ConnectError:
        found = "error", None
    except BaseException as error:
        raise AssertionError(f"{type(error).__name__}: {error}; given {given!r}"[:2_000]) from error
    assert time.perf_counter() - begun_s < _HANGS_S, repr(given)[:2_000]
    return found


def strings(chance: random.Random, count: int) -> Iterator[bytes]:
    """Byte strings of four kinds, about as many of each; a few nested deeper than any stack."""
    golden = [base64.b64decode(one["input"]["b64"]) for one in vectors("converters.jsonl")
              if one["direction"] == "toConnectData" and one["input"] is not None]  # fmt: skip
    for number in range(count):
        if number % 500 == 499:
            deep = chance.choice([b"[", b'{"a":', b'{"schema":', b'{"schema":{"type":"array","items":', b"{a:"])
            yield deep * chance.choice([900, 5_000, 100_000])
        elif number % 4 == 3:
            yield _envelope(chance)
        elif number % 3 == 0:
            yield chance.randbytes(chance.choice([0, 1, 2, 4, 8, chance.randrange(64)]))
        elif number % 3 == 1:
            yield "".join(chance.choices(_TOKENS, k=chance.randrange(1, 16))).encode()
        else:
            yield _mended(chance, chance.choice(golden), chance.choice(golden))


def _envelope(chance: random.Random) -> bytes:
    """JSON with a schema of which one or two parts are another's."""
    schema = record_json.schema_to(_schema(chance, 2)) or {}
    nodes = [
        schema,
        *schema.get("fields", ()),
        *(schema[name] for name in ("items", "keys", "values") if name in schema),
    ]
    for node in chance.choices(nodes, k=chance.randrange(3)):
        node[chance.choice(["type", "name", "default", "items", "fields", "parameters", "optional", "version"])] = (
            chance.choice([None, 1, 1.5, "x", "array", "struct", "map", [], {}, [1], {"scale": "x"}, DECIMAL, DATE])
        )
    payload = chance.choice([None, 1, -(2**40), 1.5, "x", True, [], {}, [[1]], {"a": 1}, "AQ=="])
    return json.dumps({"schema": schema, "payload": payload}).encode()


def _mended(chance: random.Random, data: bytes, other: bytes) -> bytes:
    for _ in range(chance.randrange(1, 4)):
        at = chance.randrange(len(data) + 1)
        to = min(len(data), at + chance.choice([0, 1, 4, 30]))
        token = chance.choice(_TOKENS).encode()
        data = data[:at] + chance.choice([b"", chance.randbytes(1), token, other[at:], data[at:to] * 2]) + data[to:]
    return data


_PLAIN = ["INT8", "INT16", "INT32", "INT64", "FLOAT32", "FLOAT64", "BOOLEAN", "STRING", "BYTES"]
_LOGICAL = [(DECIMAL, "BYTES"), (DATE, "INT32"), (TIME, "INT32"), (TIMESTAMP, "INT64")]


def any_value(chance: random.Random) -> tuple[Schema | None, Any]:
    """A value under its schema, under another, or under none."""
    schema = _schema(chance, 3)
    value = _value(chance, schema if chance.randrange(4) else _schema(chance, 2))
    return (None if chance.randrange(5) == 0 else schema), value


def _schema(chance: random.Random, depth: int) -> Schema:
    optional = chance.randrange(2) == 0
    kind: str = chance.choice([*_PLAIN, "LOGICAL", *(["ARRAY", "MAP", "STRUCT"] * 2 if depth else [])])
    if kind == "LOGICAL":
        name, kind = chance.choice(_LOGICAL)
        scale = {SCALE: chance.choice(["0", "2", "-3", "40"])} if name == DECIMAL else None
        return Schema(kind, optional, name, 1, parameters=scale)
    if kind == "ARRAY":
        return Schema("ARRAY", optional, value_schema=_schema(chance, depth - 1))
    if kind == "MAP":
        return Schema("MAP", optional, key_schema=_schema(chance, 0), value_schema=_schema(chance, depth - 1))
    if kind == "STRUCT":
        names = chance.sample(["a", "b", "", "é\ud83d", 'q"', "\x00"], chance.randrange(4))
        return Schema("STRUCT", optional, fields=[(name, _schema(chance, depth - 1)) for name in names])
    return Schema(kind, optional, "n" if chance.randrange(3) == 0 else None)


def _value(chance: random.Random, schema: Schema) -> Any:
    if chance.randrange(12) == 0:
        return chance.choice(_ODD)
    kind = schema.type
    if schema.name == DECIMAL:
        return Decimal(chance.choice(["0", "1.50", "-12345678901234567890.123", "1E+9", "1E-9"]))
    if schema.name in (DATE, TIME, TIMESTAMP):
        return JavaDate(chance.choice([0, 86_400_000, -1, chance.randrange(-(2**63), 2**63)]))
    if kind in ("ARRAY", "MAP"):
        assert schema.value_schema is not None
        items = [_value(chance, schema.value_schema) for _ in range(chance.randrange(4))]
        if kind == "ARRAY":
            return items
        return {chance.choice(["k", "é", 1, 2.5, True, b"x", None]): item for item in items}
    if kind == "STRUCT":
        return Struct(schema, [_value(chance, field.schema) for field in schema.fields])
    if kind.startswith("INT"):
        half = 2 ** (int(kind[3:]) - 1)
        return chance.choice([0, half - 1, -half, half, chance.randrange(-half, half)])
    if kind.startswith("FLOAT"):
        return chance.choice([0.0, -0.0, 1.5, 1e300, float("nan"), float("-inf"), chance.uniform(-1e9, 1e9)])
    if kind == "BOOLEAN":
        return chance.randrange(2) == 0
    return chance.choice(["", "text", "\ud800", "é\U0001f600\x00"]) if kind == "STRING" else chance.randbytes(5)


_ODD: list[Any] = [
    *(
        None,
        True,
        0,
        2**70,
        -(2**63),
        1.5,
        float("inf"),
        "",
        "\udfff",
        b"",
        b"\xff",
        memoryview(b"mv"),
        [],
        {},
        [[None]],
    ),
    *(Int8(1), Int16(1), Int32(1), Int64(1), Float32(1.5), BigInteger(10**30), Decimal("NaN"), Decimal("Infinity")),
    *(JavaDate(0), {None: 1}, {1: 2, "1": 3}, {b"b": []}, record_json.JavaObject("java.net.URI", "x:y"), object()),
]
