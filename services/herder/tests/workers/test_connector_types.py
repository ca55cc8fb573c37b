"""Connector types: source or sink, known without a worker too."""

from __future__ import annotations

import pytest

from herdmesh.connect.plugins.plugin_registry import PluginRegistry
from herdmesh.herder.state.memory import Member, new_memory
from herdmesh.herder.state.model import ConnectorEntry, ConnectorType, Plugin, PluginKind, Rules
from herdmesh.herder.state.model.requests import CreateConnector
from herdmesh.herder.state.workers import plugin_catalog
from herdmesh.session.model import Properties
from services.herder.tests.world import World


def _entry(class_name: str, *tasks: Properties) -> ConnectorEntry:
    return ConnectorEntry("a", config={"connector.class": class_name}, tasks=tasks)


def test_the_name_of_every_shipped_connector_gives_its_type() -> None:
    found = [plugin for plugin in PluginRegistry.discover().all() if plugin.kind in ("source", "sink")]
    assert len(found) >= 15
    for plugin in found:
        for name in (plugin.class_name, *plugin.aliases):
            assert plugin_catalog.type_by_name(name) is ConnectorType(plugin.kind.upper()), name


@pytest.mark.parametrize(
    ("class_name", "expected"),
    [
        ("io.confluent.connect.jdbc.JdbcSinkConnector", ConnectorType.SINK),
        ("io.debezium.connector.mysql.MySqlConnector", ConnectorType.SOURCE),
        ("io.debezium.connector.jdbc.JdbcSinkConnector", ConnectorType.SINK),
        ("org.apache.kafka.connect.mirror.MirrorCheckpointConnector", ConnectorType.SOURCE),
        ("com.example.sink.TableSource", ConnectorType.SOURCE),
        ("com.example.SourceToSinkConnector", ConnectorType.UNKNOWN),
        ("com.example.Mover", ConnectorType.UNKNOWN),
        ("", ConnectorType.UNKNOWN),
    ],
)
def test_an_unreported_class_is_known_by_its_name(class_name: str, expected: ConnectorType) -> None:
    assert plugin_catalog.type_of(new_memory(Rules()).fleet, _entry(class_name)) is expected


def test_a_class_with_a_neutral_name_is_known_by_its_stored_tasks() -> None:
    fleet = new_memory(Rules()).fleet
    known, unknown = (_entry("com.example.Mover", {"task.class": named}) for named in ("x.MoverSinkTask", None))
    assert plugin_catalog.type_of(fleet, known) is ConnectorType.SINK
    assert plugin_catalog.type_of(fleet, unknown) is ConnectorType.UNKNOWN


def test_a_workers_report_precedes_names_and_outlives_the_worker() -> None:
    mover = Plugin("com.example.MoverSink", ("Mover",), PluginKind.SOURCE, "1.0")
    world = World()
    world.lead()
    world.worker("w1", (mover,))
    world.ask(CreateConnector("a", {"connector.class": "Mover", "tasks.max": "1"}))
    world.kill("w1")
    world.advance(120_000)
    assert not world.herder.workers()
    view = world.herder.connector("a")
    assert view is not None
    assert view.type is ConnectorType.SOURCE


def test_reported_connector_types_outlive_the_leadership() -> None:
    memory = new_memory(Rules())
    mover = Plugin("com.example.MoverSink", ("Mover",), PluginKind.SOURCE, "1.0")
    memory.fleet.note_plugins(Member("w1", "life", "here:1", 8, (mover,), 1, 0, 0))
    memory.end_leadership()
    assert plugin_catalog.type_of(memory.fleet, _entry("Mover")) is ConnectorType.SOURCE
