"""Tests of configs that `SparkJdbcSource` refuses before it starts,
of warnings, and of dividing tables among tasks. Needs no Spark.
"""

from __future__ import annotations

import json

import pytest

from herdmesh.connect.config_providers.resolver import ConfigProviders
from herdmesh.connect.errors import ConfigError
from herdmesh.connect.plugins.plugin_registry import PluginRegistry
from herdmesh.connectors.postgres.source.connector import PostgresSourceConnector
from herdmesh.connectors.spark.jdbc_source.connector import JdbcSource
from herdmesh.connectors.spark.jdbc_source.settings import settings_of, topic_name
from herdmesh.session.model import UnitId
from herdmesh.worker.effects.plugins import validation
from herdmesh.worker.effects.plugins.task_configs import planned_task_configs
from herdmesh.worker.effects.runs.specs import RunSpecs
from herdmesh.worker.settings import WorkerSettings
from herdmesh.worker.state.model import TaskSpec


def config(**more: str | None) -> dict[str, str | None]:
    """Return a valid config; names have `_` for dots."""
    full: dict[str, str | None] = {
        "connection.url": "jdbc:mysql://db:3306/shop", "connection.user": "reader", "connection.password": "hunter22",
        "mode": "incrementing", "incrementing.column.name": "id", "table.whitelist": "orders", "topic.prefix": "shop-",
        **{name.replace("_", "."): value for name, value in more.items()},
    }  # fmt: skip
    return {name: value for name, value in full.items() if value is not None}


@pytest.mark.parametrize(
    ("field", "value", "more"),
    [
        ("connection.url", "jdbc:postgresql://db/shop", {}),
        ("connection.url", "postgresql://db/shop", {}),
        ("connection.url", "mysql://db/shop", {}),
        ("connection.url", "jdbc:mysql://db/shop?password=hunter22", {}),
        ("connection.url", "jdbc:sqlserver://db;user=a;password=hunter22", {}),
        ("connection.url", "jdbc:mysql://root:hunter22@db/shop", {}),
        ("connection.url", "jdbc:oracle:thin:scott/hunter22@//db:1521/shop", {}),
        ("table.whitelist", None, {}),
        ("table.whitelist", "orders; DROP TABLE orders", {}),
        ("table.blacklist", "secrets", {}),
        ("table.include.list", "shop[.].*", {}),
        ("query", "SELECT 1", {}),
        ("incrementing.column.name", None, {}),
        ("timestamp.column.name", None, {"mode": "timestamp"}),
        ("timestamp.column.name", None, {"mode": "timestamp+incrementing"}),
        ("spark.option.dbtable", "orders", {}),
        ("spark.option.password", "hunter22", {}),
        ("topic.prefix", "a/", {}),
        ("topic.prefix", "..", {"query": "SELECT 1 AS id", "table.whitelist": ""}),
    ],
)
def test_invalid_configs_are_refused_by_field(field: str, value: str | None, more: dict[str, str]) -> None:
    (problem,) = JdbcSource().validate(
        config(**{**{name.replace(".", "_"): one for name, one in more.items()}, field.replace(".", "_"): value})
    )
    assert problem.field == field
    assert problem.fix
    assert "hunter22" not in f"{problem}{problem.fix}"


@pytest.mark.parametrize(
    "url",
    [
        "jdbc:mysql://db:3306/shop?useCursorFetch=true", "jdbc:sqlserver://db:1433;databaseName=shop",
        "jdbc:sqlite:/a.db", "jdbc:oracle:thin:@//db:1521/shop", "jdbc:oracle:thin:@db:1521:shop",
        "jdbc:db2://db:50000/shop",
    ],
)  # fmt: skip
def test_urls_of_other_databases_are_accepted(url: str) -> None:
    assert not JdbcSource().validate(config(connection_url=url))
    assert settings_of(config(connection_url=url)).options == {"url": url, "user": "reader", "password": "hunter22"}


def test_no_text_shows_the_password() -> None:
    assert "hunter22" not in repr(settings_of(config()))


JAVA_NAMES = (
    "io.confluent.connect.jdbc.JdbcSourceConnector", "io.aiven.connect.jdbc.JdbcSourceConnector",
    "JdbcSourceConnector", "JdbcSource",
)  # fmt: skip


@pytest.mark.parametrize("name", JAVA_NAMES)
def test_a_java_class_name_selects_the_connector_by_the_url(name: str) -> None:
    """For all requests to a worker: validation, plan, version, tasks and the places of their modules."""
    registry = PluginRegistry.discover()
    specs = RunSpecs(WorkerSettings(), registry)
    java = {"name": "c", "connector.class": name, **config(table_whitelist="orders,shop.items")}
    worker = WorkerSettings().worker_config()
    told = validation.validate(java, registry, worker, ConfigProviders.of(worker))
    assert (told.error_count, told.class_name) == (0, name)
    assert "spark.memory" in {field.name for field in told.fields}
    assert [one.name for one in told.warnings] == ["connector.class", "table.whitelist", "mode"]
    assert "SparkJdbcSource" in told.warnings[0].message
    assert "(orders)" in told.warnings[1].message
    (task,) = planned_task_configs(specs, java, 1)
    assert json.loads(task["tables"] or "") == ["orders", "shop.items"]
    assert task["task.class"] == "io.confluent.connect.jdbc.source.JdbcSourceTask"
    run = specs.run_spec(UnitId("c", 0), TaskSpec(java, task, 1), "run", None)
    assert run.task_class == JdbcSource().task_class()
    assert specs.version(java) == JdbcSource.version
    postgres = {**java, "connection.url": "jdbc:postgresql://db/shop"}
    assert specs.plugin(postgres).connector is PostgresSourceConnector
    assert validation.validate(postgres, registry, worker, ConfigProviders.of(worker)).error_count == 0


def test_a_java_class_name_refuses_what_spark_cannot_do_under_its_keys() -> None:
    registry, worker = PluginRegistry.discover(), WorkerSettings().worker_config()
    java = {"name": "c", "connector.class": JAVA_NAMES[0], **config(table_whitelist=None, schema_pattern="shop")}
    told = validation.validate(java, registry, worker, ConfigProviders.of(worker))
    assert {field.name: field.errors for field in told.fields if field.errors} == {
        "schema.pattern": ["schema.pattern is not supported: this connector does not discover tables"],
        "table.whitelist": ["table.whitelist: there is nothing to read"],
    }


def test_a_connector_of_one_database_refuses_the_others() -> None:
    registry = PluginRegistry.discover()
    named = config(connector_class="PostgresSource")
    assert registry.serving("PostgresSource", named) == "PostgresSource"
    (problem,) = PostgresSourceConnector().validate(named)
    assert problem.field == "connection.url"
    assert "SparkJdbcSource" in problem.fix
    (back,) = JdbcSource().validate(config(connection_url="jdbc:postgresql://db/shop"))
    assert "PostgresSource" in back.fix


def test_aivens_initial_timestamp_is_obeyed() -> None:
    found = settings_of(config(mode="timestamp", timestamp_column_name="t", timestamp_initial_ms="1700000000000"))
    assert found.initial_us == 1_700_000_000_000_000


def test_keys_without_effect_have_warnings() -> None:
    full = config(
        mode="bulk", spark_option_useSSL="true", numeric_mapping="best_fit", dialect_name="", batch_max_row="1"
    )
    assert not JdbcSource().validate(full)
    assert [one.field for one in JdbcSource().warnings(full)] == ["numeric.mapping", "batch.max.row"]


def test_modes_that_miss_late_commits_have_a_warning() -> None:
    (warning,) = JdbcSource().warnings(config(mode="incrementing"))
    assert (warning.field, "committed after one with a higher number" in warning.message) == ("mode", True)


def test_tables_are_divided_among_tasks_and_a_query_has_one_task() -> None:
    connector = JdbcSource()
    connector.start(config(table_whitelist="a, shop.b,c, a"))
    dealt = [json.loads(one["tables"] or "") for one in connector.task_configs(2)]
    assert dealt == [["a", "shop.b"], ["c"]]
    assert len(connector.task_configs(9)) == 3
    connector.start(config(table_whitelist=None, query="SELECT * FROM a"))
    assert ["tables" in one for one in connector.task_configs(9)] == [False]


def test_all_modes_but_bulk_are_exactly_once() -> None:
    assert JdbcSource().exactly_once_support(config()) is True
    assert JdbcSource().exactly_once_support(config(mode="bulk")) is False
    assert JdbcSource().exactly_once_support(config(mode="sideways")) is None


def test_offsets_of_other_connectors_are_refused() -> None:
    good = ({"protocol": "1", "table": "orders"}, {"incrementing": 7})
    assert JdbcSource().alter_offsets(config(), [good, ({"query": "query"}, None)])
    with pytest.raises(ConfigError):
        JdbcSource().alter_offsets(config(), [({"file": "orders"}, {"position": 7})])


@pytest.mark.parametrize(
    ("table", "name"), [("orders", "orders"), ("shop.orders", "orders"), ('"My shop"."Order lines"', "Order lines")]
)
def test_a_topic_has_the_tables_name(table: str, name: str) -> None:
    assert topic_name(table) == name
