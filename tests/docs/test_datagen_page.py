"""docs/connectors/datagen.md, equal to Datagen's output: its records, and the errors of a schema."""

from __future__ import annotations

import json
from importlib import import_module
from typing import Any, cast

import pytest

from herdmesh.connect.model.data import Struct
from herdmesh.connect.plugins.plugin_registry import PluginRegistry
from herdmesh.connect.spi.connector import Connector, SourceTask, SourceTaskContext
from tests.docs.blocks import blocks

CONFIG, RECORDS, SCHEMA, ERRORS = (block.text for block in blocks("docs/connectors/datagen.md"))


@pytest.fixture
def connector() -> Connector:
    return PluginRegistry.discover().find("Datagen").load()


def plain(value: object) -> object:
    """A struct as the JSON object that JsonConverter writes of it."""
    if not isinstance(value, Struct):
        return value
    return {field.name: plain(value.get(field.name)) for field in value.schema.fields}


def test_the_records_of_the_page_are_those_of_its_seed(connector: Connector) -> None:
    connector.start(json.loads(CONFIG))
    task_config, _ = connector.task_configs(2)
    module, _, name = connector.task_class().partition(":")
    task = cast("SourceTask", getattr(import_module(module), name)())
    context = SourceTaskContext("datagen", 0, 1, "run", lambda _partition: None, poll_records_max=lambda: 10)
    task.start(task_config, context)
    batch = task.poll()
    assert batch is not None
    made = dict(zip(cast("list[int]", batch.keys), map(plain, batch.values), strict=True))
    shown = {int(line[:1]): json.loads(line[1:]) for line in RECORDS.splitlines()}
    assert shown == {key: made[key] for key in shown}


@pytest.mark.parametrize(("properties", "shown"), list(zip(
    ({"regex": "hall-(?!9)[0-9]"}, {"iteration": {"start": 1}}), ERRORS.splitlines(), strict=True
)))  # fmt: skip
def test_the_errors_of_the_page_are_those_of_the_schema(
    connector: Connector, properties: dict[str, Any], shown: str
) -> None:
    schema = json.loads(SCHEMA)
    (place,) = [field for field in schema["fields"] if field["name"] == "place"]
    place["type"]["arg.properties"] = properties
    (error,) = connector.validate({"kafka.topic": "t", "schema.string": json.dumps(schema)})
    assert str(error) == shown
