"""Run settings that the worker determines: whether a run may stay warm, and whether the idle watch finds new records
for its task.
"""

from __future__ import annotations

import pytest

from herdmesh.connect.errors import ConfigError
from herdmesh.connect.plugins.plugin_registry import PluginRegistry
from herdmesh.session.model import UnitId
from herdmesh.worker.effects.runs.specs import RunSpecs
from herdmesh.worker.settings import WorkerSettings
from herdmesh.worker.state.model import TaskSpec

LOGIN = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": "p"}
SINK = {"connector.class": "FileStreamSink", "topics": "t", "file": "f"}
SOURCE = {"connector.class": "FileStreamSource", "topic": "t", "file": "f"}


def under(prefix: str, config: dict[str, str]) -> dict[str, str]:
    return {prefix + name: value for name, value in config.items()}


@pytest.mark.parametrize(
    ("config", "continuous"),
    [
        (SINK, False),
        ({**SINK, "herdmesh.trigger": "continuous"}, True),
        ({**SINK, **under("consumer.override.", LOGIN)}, True),
        ({**SINK, "consumer.override.fetch.min.bytes": "1"}, False),
        ({**SOURCE, **under("producer.override.", LOGIN)}, False),
    ],
)
def test_a_sink_with_its_own_credentials_runs_continuously(config: dict[str, str], continuous: bool) -> None:
    """The idle watch has the worker's credentials, and may not see the sink's topics."""
    specs = RunSpecs(WorkerSettings(), PluginRegistry.discover())
    spec = specs.without_class(UnitId("c", 0), TaskSpec(dict(config), dict(config), 1))
    assert spec.continuous is continuous


@pytest.mark.parametrize("config", [SINK, SOURCE])
def test_a_tasks_transactional_id_is_connects_whatever_its_config_has(config: dict[str, str]) -> None:
    """`<group>-<connector>-<task>`: Java's workers fence by it, and are fenced."""
    specs = RunSpecs(WorkerSettings(group_id="mesh"), PluginRegistry.discover())
    own = config | under("producer.override.", {"transactional.id": "mine", "enable.idempotence": "false"})
    given = TaskSpec(dict(own), {**own, "transactional.id": "mine"}, 4)
    assert specs.without_class(UnitId("a-b c", 3), given).transactional_id == "mesh-a-b c-3"
    assert specs.run_spec(UnitId("a-b c", 3), given, "run", None).transactional_id == "mesh-a-b c-3"


@pytest.mark.parametrize(
    ("settings", "config", "stays"),
    [
        ({}, SINK, True),
        ({}, SOURCE, True),
        ({}, {**SINK, "herdmesh.linger.ms": "5000"}, False),
        ({"warm_runs_max": 0}, SINK, False),
        ({"spark_master": "spark://cluster:7077"}, SINK, False),
        ({"spark_master": "spark://cluster:7077", "warm_runs_max": 1}, SINK, True),
    ],
)
def test_a_run_stays_warm_unless_the_worker_forbids_it_or_its_connector_sets_linger_ms(
    settings: dict[str, object], config: dict[str, str], stays: bool
) -> None:
    specs = RunSpecs(WorkerSettings.model_validate(settings), PluginRegistry.discover())
    assert specs.without_class(UnitId("c", 0), TaskSpec(dict(config), dict(config), 1)).stays_warm is stays


@pytest.mark.parametrize(
    ("settings", "config", "bound"),
    [
        ({}, SINK, 0),
        ({"memory_max": "1GB"}, SINK, 1 << 30),
        ({"memory_max": "1GB"}, {**SINK, "herdmesh.memory.max": "256m"}, 256 << 20),
        ({"spark_master": "local[4]"}, {**SINK, "herdmesh.memory.max": "256m"}, 256 << 20),
        ({"spark_master": "spark://cluster:7077"}, SINK, 0),
    ],
)
def test_a_connectors_memory_limit_overrides_its_workers(
    settings: dict[str, object], config: dict[str, str], bound: int
) -> None:
    specs = RunSpecs(WorkerSettings.model_validate(settings), PluginRegistry.discover())
    assert specs.without_class(UnitId("c", 0), TaskSpec(dict(config), dict(config), 1)).memory_max_bytes == bound


@pytest.mark.parametrize(
    ("master", "written", "says"),
    [
        ("", "lots", "must be a size such as 512MB"),
        ("", "1MB", "128MB or more"),
        ("spark://cluster:7077", "1GB", "runs are on the machines of spark://cluster:7077"),
    ],
)
def test_an_unenforceable_memory_limit_of_a_connector_is_refused(master: str, written: str, says: str) -> None:
    specs = RunSpecs(WorkerSettings(spark_master=master), PluginRegistry.discover())
    config = {**SINK, "herdmesh.memory.max": written}
    with pytest.raises(ConfigError, match=says) as refused:
        specs.without_class(UnitId("c", 0), TaskSpec(dict(config), dict(config), 1))
    assert refused.value.field == "herdmesh.memory.max"


@pytest.mark.parametrize("settings", [{"memory_max": "lots"}, {"memory_max": "1GB", "spark_master": "yarn"}])
def test_an_unenforceable_memory_limit_of_a_worker_is_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="memory"):
        WorkerSettings.model_validate(settings)


def test_at_most_half_of_the_slots_and_four_may_be_warm() -> None:
    assert [WorkerSettings(slots=slots).warm_count() for slots in (1, 2, 6, 8, 64)] == [0, 1, 3, 4, 4]


@pytest.mark.parametrize(
    ("properties", "says"),
    [
        ("producer.linger.ms=soon,consumer.sasl.password=hush-hush", "producer.linger.ms: Not a number of type LONG"),
        ("consumer.sasl.password=hush-hush,=x", "it is not of the form name=value,name=value"),
    ],
)
def test_the_error_of_a_worker_that_cannot_start_has_no_passwords(properties: str, says: str) -> None:
    with pytest.raises(ValueError, match=says) as refused:
        WorkerSettings(worker_properties=properties)  # pyright: ignore[reportArgumentType] - as text
    assert "hush-hush" not in str(refused.value)


def test_worker_properties_without_effect_give_warnings() -> None:
    ours = "config.storage.retention.ms=1,metrics.context.team=a,offset.storage.cleanup.policy=delete"
    used = "offset.storage.min.insync.replicas=1,consumer.fetch.min.bytes=5,key.converter.schemas.enable=true"
    settings = WorkerSettings(
        worker_properties=f"{ours},consumer.fetch.min.bites=1,{used}"  # pyright: ignore[reportArgumentType] - as text
    )
    assert [one.field for one in settings.warnings()] == [
        "consumer.fetch.min.bites", "config.storage.retention.ms", "metrics.context.team",
        "offset.storage.cleanup.policy",
    ]  # fmt: skip
    assert all("has no effect" in one.message for one in settings.warnings())
    assert WorkerSettings().warnings() == []
