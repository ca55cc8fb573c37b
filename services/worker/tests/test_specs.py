"""What a run is told that its worker finds out: whether somebody else looks for new records while it is idle."""

from __future__ import annotations

import pytest

from herdmesh.connect.plugins import PluginRegistry
from herdmesh.worker.effects.specs import RunSpecs
from herdmesh.worker.settings import WorkerSettings
from herdmesh.worker.state.model import TaskSpec, UnitId

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
def test_a_sink_with_a_login_of_its_own_runs_on(config: dict[str, str], continuous: bool) -> None:
    """The idle watch asks with the worker's login, and may not see the sink's topics."""
    specs = RunSpecs(WorkerSettings(), PluginRegistry.discover())
    spec = specs.without_class(UnitId("c", 0), TaskSpec(dict(config), dict(config), 1))
    assert spec.continuous is continuous


@pytest.mark.parametrize(
    ("properties", "says"),
    [
        ("producer.linger.ms=soon,consumer.sasl.password=hush-hush", "producer.linger.ms: Not a number of type LONG"),
        ("consumer.sasl.password=hush-hush,=x", "this is not name=value,name=value"),
    ],
)
def test_a_worker_that_cannot_start_says_why_without_its_passwords(properties: str, says: str) -> None:
    with pytest.raises(ValueError, match=says) as refused:
        WorkerSettings(worker_properties=properties)  # pyright: ignore[reportArgumentType] - as text
    assert "hush-hush" not in str(refused.value)
