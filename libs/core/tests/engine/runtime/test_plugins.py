"""Lookup of connectors by name."""

from __future__ import annotations

from typing import ClassVar

import pytest

from herdmesh.connect.config.config_def import ConfigDef
from herdmesh.connect.errors import ConfigError
from herdmesh.connect.plugins.plugin_registry import PluginRegistry, describe
from herdmesh.connect.spi.connector import SinkConnector


class OneSink(SinkConnector):
    class_name = "example.OneSink"
    aliases: ClassVar[tuple[str, ...]] = ("One",)
    version = "1"

    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef()

    def task_class(self) -> str:
        return "example:Task"

    def task_configs(self, max_tasks: int) -> list[dict[str, str | None]]:
        return [{}]


class OtherSink(OneSink):
    class_name = "example.OtherSink"


def test_a_plugin_is_found_by_class_and_by_alias() -> None:
    registry = PluginRegistry([describe(OneSink)])
    assert registry.find("One") is registry.find("example.OneSink")
    assert isinstance(registry.find("One").load(), OneSink)


def test_an_unknown_class_is_an_error_of_its_field_that_lists_known_classes() -> None:
    with pytest.raises(ConfigError, match="available connectors are: One") as missing:
        PluginRegistry([describe(OneSink)]).find("Two")
    assert missing.value.field == "connector.class"


def test_two_plugins_may_not_claim_one_name() -> None:
    with pytest.raises(ValueError, match="are called One"):
        PluginRegistry([describe(OneSink), describe(OtherSink)])
