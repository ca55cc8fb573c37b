"""Two connectors for tests of validation, and helpers that read its result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from herdmesh.connect.config.config_def import REQUIRED, ConfigDef, ConfigKey, Importance, Type
from herdmesh.connect.config.validators import non_empty_string
from herdmesh.connect.errors import ConfigError
from herdmesh.connect.plugins.plugin_registry import PluginRegistry, describe
from herdmesh.connect.spi.connector import SinkConnector, SourceConnector
from herdmesh.connect.validation.connector_config import Validation, validate_connector
from herdmesh.connect.validation.framework_keys import WorkerFacts

_KEYS = ConfigDef(ConfigKey("path", Type.STRING, REQUIRED, Importance.HIGH, "Folder.", non_empty_string()))


class Sink(SinkConnector):
    class_name = "example.SinkConnector"
    aliases = ("ExampleSink",)
    version = "1"

    @classmethod
    def config_def(cls) -> ConfigDef:
        return _KEYS

    def validate(self, config: Any) -> Sequence[ConfigError]:
        if config["path"] == "/readonly":
            return [ConfigError.for_value("path", "/readonly", "not writable", fix="choose another folder")]
        return ()

    def task_class(self) -> str:
        return "example:Task"

    def task_configs(self, max_tasks: int) -> list[dict[str, str | None]]:
        return [dict(self.config) for _ in range(max_tasks)]


class Source(SourceConnector):
    """A source whose answers about transactions a test chooses."""

    class_name = "example.SourceConnector"
    aliases = ("ExampleSource",)
    version = "1"
    answers: ClassVar[dict[str, Callable[[], bool | None]]] = {"exactly_once": lambda: True, "boundaries": lambda: True}

    @classmethod
    def config_def(cls) -> ConfigDef:
        return _KEYS

    def exactly_once_support(self, config: Any) -> bool | None:
        return self.answers["exactly_once"]()

    def can_define_transaction_boundaries(self, config: Any) -> bool | None:
        return self.answers["boundaries"]()

    def task_class(self) -> str:
        return "example:Task"

    def task_configs(self, max_tasks: int) -> list[dict[str, str | None]]:
        return [dict(self.config)]


PLUGINS = PluginRegistry([describe(Sink), describe(Source)])
ABSENT = object()
SINK: dict[str, str | None] = {
    "name": "s",
    "connector.class": "ExampleSink",
    "tasks.max": "2",
    "topics": "a,b",
    "path": "/out",
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
    "errors.tolerance": "none",
    "some.unknown.key": "is ignored, as in Connect",
}
SOURCE: dict[str, str | None] = {"name": "s", "connector.class": "ExampleSource", "path": "/in"}


def changed(config: dict[str, str | None], change: dict[str, Any]) -> dict[str, Any]:
    """The config with the change applied; ABSENT removes a key."""
    return {key: value for key, value in {**config, **change}.items() if value is not ABSENT}


def problems(
    config: dict[str, str | None], change: dict[str, Any], worker: WorkerFacts | None = None
) -> list[tuple[str, str]]:
    """(key, message) of every problem, in the order of the result."""
    return told(validate_connector(changed(config, change), PLUGINS, worker))


def told(validation: Validation) -> list[tuple[str, str]]:
    """(key, message) of every problem."""
    return [(one.name, problem.message) for one in validation.fields for problem in one.value.problems]
