"""Contract of the registry's REST API: the same cases against the fake and, in a soak run, a real registry.

The real one is Apicurio Registry's Confluent-compatible API (`ccompat/v7`), the process of `real_registry`. Not tried:
Confluent's own registry and Karapace, which neither Maven Central nor the Python package index has.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

from herdmesh.connect.config.config_def import ConfigDef
from herdmesh.connect.errors import DataError
from herdmesh.connect.model.data import JavaDate, Struct
from herdmesh.connect.model.schemas import (
    INT8,
    INT64,
    OPTIONAL_STRING,
    STRING,
    Schema,
    decimal_schema,
    timestamp_schema,
)
from herdmesh.connect.registry.client import NewSchema, NotRegistered, Reference, RegistryClient
from herdmesh.connect.registry.settings import REGISTRY_KEYS, registry_settings
from libs.core.tests.connect.registry.fake_registry import FakeRegistry
from libs.core.tests.connect.registry.typed_values import converter, plain
from tests.support.real_registry import real_registry
from tests.support.sizes import soak_or

_numbers = itertools.count()
FLIGHT = Schema("STRUCT", name="org.example.Flight", fields=[
    ("id", INT64), ("to", OPTIONAL_STRING), ("fare", decimal_schema(2)), ("n", INT8), ("at", timestamp_schema()),
    ("tags", Schema("MAP", name="tags", key_schema=STRING, value_schema=STRING)),
    ("legs", Schema("ARRAY", value_schema=Schema("STRUCT", name="Leg", fields=[("port", STRING)]))),
])  # fmt: skip


@pytest.fixture(scope="module", params=["fake", "real"][: soak_or(1, 2)])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "real":
        if shutil.which("mvn") is None:
            pytest.skip("a real registry is fetched with Maven (mvn), which is not installed")
        with real_registry() as address:
            yield address
        return
    made = FakeRegistry()
    yield made.url
    made.stop()


@pytest.fixture
def client(url: str) -> Iterator[RegistryClient]:
    made = RegistryClient(registry_settings(ConfigDef(*REGISTRY_KEYS).parse({"schema.registry.url": url})))
    yield made
    made.close()


def fresh() -> str:
    """An unused subject."""
    return f"contract-{os.getpid()}-{next(_numbers)}"


def record(name: str, **fields: Any) -> NewSchema:
    made = [{"name": field, **(kind if isinstance(kind, dict) else {"type": kind})} for field, kind in fields.items()]
    return NewSchema(json.dumps({"type": "record", "name": name, "fields": made}))


def test_a_schema_is_registered_once(client: RegistryClient) -> None:
    subject, schema = fresh(), record("A", x="int")
    first = client.register(subject, schema, normalize=False)
    assert client.register(subject, schema, normalize=False) == first
    found = client.registered(subject, schema, normalize=False)
    assert (found.id, found.version, found.subject) == (first, 1, subject)
    assert json.loads(client.schema_by_id(first, subject).text) == json.loads(schema.text)
    latest = client.version(subject, "latest")
    assert (latest.id, latest.version) == (first, 1)


def test_versions_count_up(client: RegistryClient) -> None:
    subject = fresh()
    client.register(subject, record("B", x="int"), normalize=False)
    wider = record("B", x="int", y={"type": "int", "default": 1})
    second = client.register(subject, wider, normalize=False)
    assert (client.version(subject, "latest").id, client.version(subject, 2).id) == (second, second)
    assert json.loads(client.version(subject, 1).text)["fields"] == [{"name": "x", "type": "int"}]


def test_missing_subjects_versions_and_ids_are_errors(client: RegistryClient) -> None:
    subject = fresh()
    for ask in (
        lambda: client.registered(subject, record("C", x="int"), normalize=False),
        lambda: client.version(subject, "latest"),
        lambda: client.schema_by_id(2_000_000_000, subject),
    ):
        with pytest.raises(NotRegistered, match="not registered"):
            ask()
    client.register(subject, record("C", x="int"), normalize=False)
    with pytest.raises(NotRegistered):
        client.registered(subject, record("C", x="string"), normalize=False)
    with pytest.raises(DataError, match="version 7"):
        client.version(subject, 7)


def test_an_incompatible_schema_is_refused(client: RegistryClient) -> None:
    subject, other = fresh(), record("D", x="int", y="int")
    client.register(subject, record("D", x="int"), normalize=False)
    assert client.incompatible(subject, "latest", record("D", x="long")) is None
    assert client.incompatible(subject, "latest", other) is not None
    with pytest.raises(DataError, match=f"subject '{subject}': the schema is not compatible"):
        client.register(subject, other, normalize=False)


def test_an_invalid_schema_is_refused(client: RegistryClient) -> None:
    with pytest.raises(DataError, match="refused"):
        client.register(fresh(), NewSchema("{"), normalize=False)


def test_schema_references_are_resolved(client: RegistryClient, url: str) -> None:
    port, topic = fresh(), fresh()
    client.register(port, record("Port", code="string"), normalize=False)
    leg = NewSchema(record("Leg", at="Port").text, references=(Reference("Port", port, 1),))
    schema_id = client.register(f"{topic}-value", leg, normalize=False)
    found = client.schema_by_id(schema_id, f"{topic}-value")
    assert found.references == leg.references
    assert [one.name for one, _ in client.all_references(found.references)] == ["Port"]
    made = converter("AvroConverter", url).for_topic(topic)
    assert plain(made.read(schema_id.to_bytes(5, "big") + b"\x06OSL")[1]) == [["OSL"]]


@pytest.mark.parametrize("name", ["AvroConverter", "JsonSchemaConverter", "ProtobufConverter"])
def test_each_format_survives_the_round_trip(url: str, name: str) -> None:
    topic = fresh()
    value: list[Any] = [7, "OSL", Decimal("1.50"), -3, 1_700_000_000_000, {"k": "v"}, [["OSL"], ["BGO"]]]
    values: list[Any] = [
        *value[:6],
        [Struct(Schema("STRUCT", name="Leg", fields=[("port", STRING)]), one) for one in value[6]],
    ]
    values[4] = JavaDate(value[4])
    made = converter(name, url).for_topic(topic)
    data = made.write(Struct(FLIGHT, values), FLIGHT)
    schema, read = converter(name, url).for_topic(topic).read(data)
    assert plain(read) == value
    assert schema is not None
    assert schema.version == 1
    looks = converter(name, url, auto_register_schemas="false").for_topic(topic)
    assert looks.write(Struct(FLIGHT, values), FLIGHT) == data
    latest = converter(name, url, auto_register_schemas="false", use_latest_version="true").for_topic(topic)
    assert latest.write(Struct(FLIGHT, values), FLIGHT) == data
    chosen = converter(
        name, url, auto_register_schemas="false", use_schema_id=str(int.from_bytes((data or b"")[1:5], "big"))
    )
    assert chosen.for_topic(topic).write(Struct(FLIGHT, values), FLIGHT) == data
