"""AvroConverter and the registry's client, over HTTP.

Covers the wire format, subjects, registering and looking up, errors of the registry, cached schemas while it is
unreachable, and Avro both ways: random schemas, Confluent's documented schema texts, and random bytes. The registry is
the fake of `fake_registry`. Karapace has no distribution under its name in the package index (tried once, final); a
real Apicurio process is not run by these tests.
"""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from herdmesh.connect.chain.chain_config import sink_chain, source_chain
from herdmesh.connect.config.redaction import redacted
from herdmesh.connect.converters.avro.converter import COLUMNS_FROM
from herdmesh.connect.converters.avro.from_connect import avro_schema
from herdmesh.connect.converters.avro.options import AvroOptions
from herdmesh.connect.converters.avro.schemas import AvroTree, text_of
from herdmesh.connect.converters.avro.to_connect import connect_schema
from herdmesh.connect.converters.base import Converter
from herdmesh.connect.errors import ConfigError, DataError, RecordError, RetriableError
from herdmesh.connect.model.data import Batch, Float32, Header, Int32, Struct
from herdmesh.connect.model.schemas import (
    BYTES,
    INT32,
    INT64,
    OPTIONAL_INT64,
    OPTIONAL_STRING,
    STRING,
    Schema,
    decimal_schema,
    time_schema,
)
from herdmesh.connect.registry.client import RegistryClient
from herdmesh.connect.registry.settings import RegistrySettings
from herdmesh.connect.registry.wire import frame, schema_id_of
from herdmesh.connect.spi import waits
from herdmesh.connect.spi.waits import Wait
from libs.core.tests.connect.registry import typed_values
from libs.core.tests.connect.registry.fake_registry import FakeRegistry
from libs.core.tests.connect.registry.typed_values import EXAMPLES, plain, typed
from tests.support.sizes import soak_or

_topics = itertools.count()
FLIGHT = Schema("STRUCT", name="org.example.Flight", fields=[("id", INT64), ("to", OPTIONAL_STRING)])


@pytest.fixture(scope="module")
def shared() -> Iterator[FakeRegistry]:
    made = FakeRegistry()
    yield made
    made.stop()


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    made = FakeRegistry()
    yield made
    made.stop()


def converter(url: str, **more: Any) -> Converter:
    return typed_values.converter("AvroConverter", url, **more)


def flight(number: int, to: str | None = "OSL", schema: Schema = FLIGHT) -> Struct:
    return Struct(schema, [number, to])


def test_wire_format_and_read_back(registry: FakeRegistry) -> None:
    made = converter(registry.url).for_topic("flights")
    data = made.write(flight(7), FLIGHT)
    assert data == b"\0\0\0\0\x01" + b"\x0e" + b"\x02\x06OSL"
    schema, value = made.read(data)
    assert schema is FLIGHT.replace(version=1)
    assert (value.get("id"), value.get("to")) == (7, "OSL")
    assert (made.read(None), made.write(None, None)) == ((None, None), None)
    assert made.write(None, FLIGHT.replace(optional=True)) is None


def test_the_registered_schema_text(registry: FakeRegistry) -> None:
    converter(registry.url).for_topic("flights").write(flight(7), FLIGHT)
    status, said = registry.answer("GET", "/subjects/flights-value/versions/1", {})
    assert status == 200
    assert said["schema"] == (
        '{"type":"record","name":"Flight","namespace":"org.example","fields":[{"name":"id","type":"long"},'
        '{"name":"to","type":["null","string"],"default":null}],"connect.name":"org.example.Flight"}'
    )


@pytest.mark.parametrize(
    ("strategy", "subject"),
    [("TopicNameStrategy", "t-value"), ("RecordNameStrategy", "org.example.Flight"),
     ("io.confluent.kafka.serializers.subject.TopicRecordNameStrategy", "t-org.example.Flight")],
)  # fmt: skip
def test_subject_names(registry: FakeRegistry, strategy: str, subject: str) -> None:
    made = converter(registry.url, value_subject_name_strategy=strategy).for_topic("t")
    assert made.read(made.write(flight(1), FLIGHT))[1] == flight(1, schema=FLIGHT.replace(version=1))
    assert registry.answer("GET", f"/subjects/{subject}/versions/latest", {})[0] == 200
    key = converter(registry.url, role="key").for_topic("t")
    key.write(1, INT64)
    assert registry.answer("GET", "/subjects/t-key/versions/latest", {})[0] == 200


def test_a_record_name_strategy_needs_a_record(registry: FakeRegistry) -> None:
    made = converter(registry.url, value_subject_name_strategy="RecordNameStrategy").for_topic("t")
    with pytest.raises(DataError, match="must only be a record schema"):
        made.write(1, INT64)


def test_a_schema_costs_requests_only_once(registry: FakeRegistry) -> None:
    made = converter(registry.url).for_topic("t")
    data = made.write_many([flight(n) for n in range(500)], FLIGHT)
    assert len(registry.requests) == 1
    schemas, values = made.read_many(data)
    assert schemas is FLIGHT.replace(version=1)
    assert [one.get("id") for one in values] == list(range(500))
    assert len(registry.requests) == 3


def test_messages_of_two_schemas_and_tombstones_are_read_together(registry: FakeRegistry) -> None:
    """Enough of each for the columnar reader, and in their order."""
    made = converter(registry.url).for_topic("t")
    wider = Schema("STRUCT", name=FLIGHT.name, fields=[("id", INT64), ("to", OPTIONAL_STRING), ("km", OPTIONAL_INT64)])
    data: list[bytes | None] = []
    for number in range(3 * COLUMNS_FROM):
        data += [made.write(flight(number), FLIGHT), None, made.write(Struct(wider, [number, None, 7]), wider)]
    schemas, values = made.read_many(data)
    assert list(zip(cast("list[Any]", schemas), values, strict=True)) == [made.read(raw) for raw in data]
    assert made.read_many([None, None])[1] == [None, None]


def test_one_bad_message_among_many_is_the_only_one_that_fails(registry: FakeRegistry) -> None:
    """The other messages of its batch are read."""
    chain = sink_chain({"value.converter": "AvroConverter", "value.converter.schema.registry.url": registry.url,
                        "key.converter": "StringConverter"})  # fmt: skip
    made = converter(registry.url).for_topic("t")
    data = list(made.write_many([flight(number) for number in range(3 * COLUMNS_FROM)], FLIGHT))
    data[40] = (data[40] or b"")[:-1]
    with pytest.raises(RecordError, match="Not Avro of the schema it names") as raised:
        chain.run(Batch("t", 0, (), data, range(len(data))))
    assert raised.value.offset == 40
    chain.close()


def test_known_schemas_are_used_while_the_registry_is_unreachable(registry: FakeRegistry) -> None:
    made = converter(registry.url).for_topic("t")
    data = made.write(flight(1), FLIGHT)
    made.read(data)
    registry.failing = 503
    assert made.read(made.write(flight(2), FLIGHT))[1].get("id") == 2
    with pytest.raises(RetriableError, match="may succeed later"):
        made.write(1, INT64)
    registry.failing = None
    with pytest.raises(DataError, match="not compatible"):
        made.write(1, INT64)


def test_second_address_answers_for_the_first(registry: FakeRegistry) -> None:
    gone = FakeRegistry()
    gone.stop()
    made = converter(f"{gone.url},{registry.url}/").for_topic("t")
    assert made.write(flight(1), FLIGHT) is not None
    with pytest.raises(RetriableError, match=r"cannot be reached .*Check schema\.registry\.url"):
        converter(gone.url).for_topic("t").write(flight(1), FLIGHT)


def test_retries_are_bounded(registry: FakeRegistry) -> None:
    registry.failing = 500
    made = converter(registry.url, max_retries="2", retries_wait_ms="1").for_topic("t")
    with pytest.raises(RetriableError):
        made.write(flight(1), FLIGHT)
    assert len(registry.requests) == 3


@pytest.mark.parametrize(
    ("status", "retry_after", "pauses_s"), [(503, "", [1, 2]), (429, "4", [4, 4]), (503, "60", [9, 9])]
)
def test_a_busy_registry_is_retried_after_its_retry_after_header_and_reported_as_busy(
    registry: FakeRegistry, status: int, retry_after: str, pauses_s: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within `retries.max.wait.ms`; after that the run keeps waiting (`errors.retry.timeout`)."""
    monkeypatch.setattr(waits, "SHOWN_AFTER_S", 0.0)
    client = RegistryClient(RegistrySettings((registry.url,), retries=2, max_wait_ms=9_000))
    paused = list[tuple[float, Wait | None]]()

    class Stop(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            paused.append((timeout or 0, waits.current().shown()))
            return False

    monkeypatch.setattr(client, "_stop", Stop())
    registry.failing, registry.retry_after = status, retry_after
    with pytest.raises(RetriableError, match=rf"HTTP {status}") as raised:
        client.schema_by_id(1, "t")
    assert raised.value.waits_for == f"schema registry {registry.url}"
    assert raised.value.next_try_s == (float(retry_after) if retry_after else None)
    assert [pause_s for pause_s, _ in paused] == pauses_s
    for tries, (_, shown) in enumerate(paused, 1):
        assert shown is not None
        assert (shown.waits_for, shown.tries) == (raised.value.waits_for, tries)
        assert f"HTTP {status}" in shown.message
        assert shown.next_ms
    client.close()


def test_credentials_are_sent(registry: FakeRegistry) -> None:
    registry.user = "ann:s3cret"
    with pytest.raises(ConfigError, match="not authenticated") as raised:
        converter(registry.url).for_topic("t").write(flight(1), FLIGHT)
    assert raised.value.field == "basic.auth.user.info"
    told = converter(registry.url, basic_auth_credentials_source="USER_INFO", basic_auth_user_info="ann:s3cret")
    assert told.for_topic("t").write(flight(1), FLIGHT)
    within = converter(registry.url.replace("//", "//ann:s3cret@"))
    assert within.for_topic("t").write(flight(1), FLIGHT)
    registry.user, registry.failing = None, 500
    with pytest.raises(RetriableError) as failed:
        within.for_topic("u").write(flight(1), FLIGHT)
    assert "s3cret" not in str(failed.value)
    assert redacted("ann:s3cret, or s3cret alone") == "***, or *** alone"


def test_an_unknown_id_and_foreign_bytes_are_errors(registry: FakeRegistry) -> None:
    made = converter(registry.url).for_topic("t")
    with pytest.raises(DataError, match="schema id 9: not registered"):
        made.read(frame(9) + b"x")
    with pytest.raises(DataError, match="magic byte 123"):
        made.read(b'{"a":1}')
    with pytest.raises(DataError, match="No schema id: 2 bytes"):
        made.read(b"\0\0")


def test_auto_registration_can_be_switched_off(registry: FakeRegistry) -> None:
    looks = converter(registry.url, auto_register_schemas="false").for_topic("t")
    with pytest.raises(DataError, match=r"subject 't-value': not registered.*auto\.register\.schemas=true"):
        looks.write(flight(1), FLIGHT)
    converter(registry.url).for_topic("t").write(flight(1), FLIGHT)
    assert schema_id_of(looks.write(flight(1), FLIGHT) or b"") == 1


def test_the_latest_version_can_be_used(registry: FakeRegistry) -> None:
    wider = FLIGHT.replace(fields=[("id", INT64), ("to", OPTIONAL_STRING), ("seats", OPTIONAL_INT64)])
    converter(registry.url).for_topic("t").write(Struct(wider, [1, "a", 2]), wider)
    strict = {"auto_register_schemas": "false", "use_latest_version": "true"}
    made = converter(registry.url, **strict).for_topic("t")
    assert made.read(made.write(flight(3), FLIGHT))[1].values == [3, "OSL", None]
    other = Schema("STRUCT", name="org.example.Flight", fields=[("id", STRING)])
    with pytest.raises(DataError, match=r"Incompatible schema: the latest version 1 of subject 't-value'"):
        made.write(Struct(other, ["x"]), other)


def test_schema_references_are_resolved(registry: FakeRegistry) -> None:
    port = '{"type":"record","name":"Port","namespace":"org.example","fields":[{"name":"code","type":"string"}]}'
    registry.answer("POST", "/subjects/port/versions", {"schema": port})
    reference = {"name": "org.example.Port", "subject": "port", "version": 1}
    leg = '{"type":"record","name":"Leg","namespace":"org.example","fields":[{"name":"at","type":"Port"}]}'
    said = registry.answer("POST", "/subjects/t-value/versions", {"schema": leg, "references": [reference]})[1]
    _, value = converter(registry.url).for_topic("t").read(frame(said["id"]) + b"\x06OSL")
    assert value.get("at").get("code") == "OSL"


def test_schemas_of_confluents_documentation_are_mapped_alike(registry: FakeRegistry) -> None:
    """As `AvroData` maps them: enum, real union, fixed decimal, map with other keys, docs, defaults."""
    text: Any = {"type": "record", "name": "R", "namespace": "a.b", "doc": "of records", "fields": [
        {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["X", "Y"]}},
        {"name": "u", "type": ["null", "int", "string", {"type": "record", "name": "S", "fields": list[Any]()}]},
        {"name": "d", "type": {"type": "fixed", "name": "F", "size": 4, "logicalType": "decimal", "scale": 2,
                               "precision": 9}},
        {"name": "n", "type": "int", "default": 3, "doc": "of fields"},
    ]}  # fmt: skip
    schema = connect_schema(AvroTree(json.dumps(text)), AvroOptions())
    assert schema is not None
    assert schema.name == "a.b.R"
    e, u, d, n = (field.schema for field in schema.fields)
    prefix = "io.confluent.connect.avro."
    assert e.parameters == {f"{prefix}Enum": "a.b.E", f"{prefix}Enum.X": "X", f"{prefix}Enum.Y": "Y"}
    assert (u.name, u.optional, [f.name for f in u.fields]) == (f"{prefix}Union", True, ["int", "string", "S"])
    assert d.parameters == {"scale": "2", "connect.decimal.precision": "9", "connect.fixed.size": "4"}
    assert (n.default, n.parameters) == (3, {f"{prefix}field.default": "true"})
    assert schema.parameters == {f"{prefix}record.doc": "of records", f"{prefix}field.doc.n": "of fields"}
    said = registry.answer("POST", "/subjects/t-value/versions", {"schema": json.dumps(text)})[1]
    made = converter(registry.url).for_topic("t")
    _, value = made.read(frame(said["id"]) + b"\x02" + b"\x04\x04hi" + b"\xff\xff\xff\x85" + b"\x06")
    assert (value.get("e"), value.get("u").values) == ("Y", [None, "hi", None])
    assert (value.get("d"), value.get("n")) == (Decimal("-1.23"), 3)


def test_a_recursive_record_is_refused_by_name() -> None:
    text = {"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]}
    with pytest.raises(DataError, match="L contains itself"):
        connect_schema(AvroTree(json.dumps(text)), AvroOptions())


def test_values_without_a_schema(registry: FakeRegistry) -> None:
    made = converter(registry.url).for_topic("t")
    value = {"a": [1, 2.5, "x", b"y", True, None], "b": {"c": Int32(3), "d": Float32(0.5)}}
    assert made.read(made.write(value, None)) == (None, value)


def test_invalid_converter_settings_are_refused() -> None:
    for options, field in (
        ({"schema.registry.url": "registry:8081"}, "schema.registry.url"),
        ({"value_subject_name_strategy": "Mine"}, "value.subject.name.strategy"),
        ({"basic_auth_credentials_source": "USER_INFO"}, "basic.auth.user.info"),
    ):
        with pytest.raises(ConfigError) as raised:
            converter(options.pop("schema.registry.url", "http://127.0.0.1:1"), **options)
        assert raised.value.field == f"value.converter.{field}"


@settings(max_examples=soak_or(60, 3_000), **EXAMPLES)
@given(st.data())
def test_written_values_are_read_back(shared: FakeRegistry, data: st.DataObject) -> None:
    schema, values = data.draw(typed(other_keys=False))
    value = data.draw(values)
    made = one_for_all(shared).for_topic(f"t{next(_topics)}")
    raw = made.write(value, schema)
    read_schema, read = made.read(raw)
    assert made.write(read, read_schema) is not None
    tree = AvroTree(text_of(avro_schema(schema, AvroOptions())))
    assert connect_schema(tree, AvroOptions()) is schema
    assert read_schema is schema.replace(version=1 if schema.version is None else schema.version)
    assert plain(read) == plain(value)


_made: dict[str, Converter] = {}


def one_for_all(registry: FakeRegistry) -> Converter:
    """One registry for all records, as a task has."""
    return _made.setdefault(registry.url, converter(registry.url))


@settings(max_examples=soak_or(200, 20_000), **EXAMPLES)
@given(st.binary(max_size=40))
def test_random_bytes_are_a_value_or_a_data_error(shared: FakeRegistry, payload: bytes) -> None:
    made = one_for_all(shared).for_topic("fuzz")
    wide = Schema("STRUCT", name="W", fields=[
        ("a", Schema("ARRAY", value_schema=STRING)), ("m", Schema("MAP", key_schema=INT32, value_schema=BYTES)),
        ("d", decimal_schema(1)), ("t", time_schema(optional=True)), ("x", OPTIONAL_INT64),
    ])  # fmt: skip
    head = made.write(Struct(wide, [[], {}, Decimal("1.0"), None, None]), wide) or b""
    for data in (payload, head[:5] + payload, bytes(5) + payload):
        try:
            made.read(data)
        except DataError:
            continue


def test_a_chosen_schema_id_is_used(registry: FakeRegistry) -> None:
    wider = FLIGHT.replace(fields=[("id", INT64), ("to", OPTIONAL_STRING), ("seats", OPTIONAL_INT64)])
    converter(registry.url).for_topic("t").write(Struct(wider, [1, "a", 2]), wider)
    chosen = {"auto_register_schemas": "false", "use_schema_id": "1"}
    made = converter(registry.url, **chosen).for_topic("t")
    assert made.read(made.write(flight(3), FLIGHT))[1].values == [3, "OSL", None]
    with pytest.raises(DataError, match=r"Schema id 1 .* is not registered under subject 'other-value'"):
        converter(registry.url, **chosen).for_topic("other").write(flight(3), FLIGHT)
    loose = converter(registry.url, **chosen, id_compatibility_strict="false").for_topic("other")
    assert schema_id_of(loose.write(flight(3), FLIGHT) or b"") == 1


def test_tls_material_is_read_from_pem(registry: FakeRegistry, tmp_path: Path) -> None:
    store = {"schema_registry_ssl_truststore_location": str(tmp_path / "ca")}
    with pytest.raises(ConfigError, match=r"a PEM file here") as raised:
        converter(registry.url, **store)
    assert "keytool" in raised.value.fix
    made = converter(registry.url.replace("http:", "https:"), **store, schema_registry_ssl_truststore_type="PEM")
    with pytest.raises(ConfigError, match=r"schema\.registry\.ssl\.truststore\.location cannot be used"):
        made.for_topic("t").write(flight(1), FLIGHT)


def test_requests_go_through_the_proxy(registry: FakeRegistry) -> None:
    """The fake acts as the proxy: it accepts the absolute URLs that a proxy gets."""
    host, port = registry.url.removeprefix("http://").split(":")
    made = converter("http://registry.invalid", proxy_host=host, proxy_port=port).for_topic("t")
    assert made.read(made.write(flight(1), FLIGHT))[1].get("id") == 1
    assert registry.requests[0].startswith("POST http://registry.invalid/subjects/t-value")
    with pytest.raises(ConfigError, match=r"proxy\.host needs a port"):
        converter("http://registry.invalid", proxy_host=host)


def test_the_client_is_closed_with_its_chain(registry: FakeRegistry) -> None:
    root = converter(registry.url)
    made = root.for_topic("t")
    data = made.write(flight(1), FLIGHT)
    made.read(data)
    root.close()
    assert made.read(made.write(flight(2), FLIGHT))[1].get("id") == 2
    with pytest.raises(RetriableError):
        made.write(1, INT64)


def test_records_survive_a_source_chain_and_a_sink_chain(registry: FakeRegistry) -> None:
    """A source's records to two topics, transformed in between, and back in a sink: the topic's subject each time."""
    config = {
        "key.converter": "Avro", "key.converter.schema.registry.url": registry.url,
        "value.converter": "Avro", "value.converter.schema.registry.url": registry.url,
        "transforms": "r", "transforms.r.type": "org.apache.kafka.connect.transforms.ReplaceField$Value",
        "transforms.r.renames": "to:via",
    }  # fmt: skip
    source, sink = source_chain(config), sink_chain({**config, "transforms": ""})
    for topic in ("a", "b"):
        given = Batch(topic, None, [1, 2], [flight(1), flight(2)], key_schema=INT64, value_schema=FLIGHT,
                      headers=[[Header("h", "x", STRING)], []])  # fmt: skip
        (written,) = source.run(given)
        (read,) = sink.run(replace(written, partition=0, offsets=[0, 1]))
        assert (list(read.keys), [one.get("via") for one in read.values]) == ([1, 2], ["OSL", "OSL"])
        assert [[one.value for one in headers] for headers in read.headers] == [["x"], []]
        with pytest.raises(RecordError, match=f"topic '{topic}', partition 0, offset 7: Unknown magic byte"):
            sink.run(Batch(topic, 0, [None], [b"{...}"], offsets=[7]))
    subjects = {one.split("/")[2].split("?")[0] for one in registry.requests if "/subjects/" in one}
    assert subjects == {f"{topic}-{part}" for topic in "ab" for part in ("key", "value")}
    source.close()
    sink.close()
