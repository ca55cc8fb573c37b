"""One class in several versions: which one is found, and the error for a missing version (KIP-891)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herdmesh.connect.config.config_def import ConfigDef, ConfigKey, Importance, Type
from herdmesh.connect.errors import ConfigError
from herdmesh.connect.plugins.plugin_registry import PluginRegistry, describe
from herdmesh.connect.spi.connector import Connector, SinkConnector
from herdmesh.connect.validation.connector_config import validate_connector

VERSION = "connector.plugin.version"


def sink(version: str, name: str = "org.example.Many", alias: str = "Many") -> type[Connector]:
    class Many(SinkConnector):
        class_name = name
        aliases = (alias,)

        @classmethod
        def config_def(cls) -> ConfigDef:
            return ConfigDef(ConfigKey(f"since.{cls.version}", Type.STRING, "", Importance.LOW, "Its own."))

        def task_class(self) -> str:
            return "nowhere:Task"

        def task_configs(self, max_tasks: int) -> list[dict[str, str | None]]:
            return []

    Many.version = version
    return Many


def registry(*versions: str) -> PluginRegistry:
    return PluginRegistry([describe(sink(version)) for version in versions])


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (None, "10.0"), ("latest", "10.0"), ("2.0", "2.0"), ("2", "2.0"), ("[1.0]", "1.0"), ("[1.0,2.0]", "2.0"),
        ("[1.0,2.0)", "1.0"), ("(,10.0)", "2.0"), ("[2.5,)", "10.0"), ("[1.0],[2.0]", "2.0"),
    ],
)  # fmt: skip
def test_the_latest_requested_version_is_found_in_any_order(wanted: str | None, found: str) -> None:
    for versions in (("10.0", "1.0", "2.0"), ("2.0", "10.0", "1.0")):
        plugins = registry(*versions)
        for name in ("Many", "org.example.Many"):
            assert plugins.find(name, wanted).version == found
    assert plugins.versions("Many") == ["1.0", "2.0", "10.0"]


NUMBERS = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=6, unique=True)


@given(numbers=NUMBERS, low=st.tuples(st.integers(0, 20), st.integers(0, 20)))
def test_a_range_finds_its_greatest_version_and_nothing_else(
    numbers: list[tuple[int, int]], low: tuple[int, int]
) -> None:
    plugins = registry(*(f"{major}.{minor}" for major, minor in numbers))
    within = [one for one in numbers if low <= one]
    wanted = f"[{low[0]}.{low[1]},)"
    if within:
        assert plugins.find("Many", wanted).version == "{}.{}".format(*max(within))
        return
    with pytest.raises(ConfigError) as missing:
        plugins.find("Many", wanted)
    assert missing.value.field == VERSION
    assert all(f"{major}.{minor}" in str(missing.value) for major, minor in numbers)


def test_a_missing_version_is_an_error_of_its_field_that_lists_the_existing_ones() -> None:
    plugins = registry("2.0", "1.0")
    config = {"name": "a", "connector.class": "Many", "topics": "t", VERSION: "3.0"}
    text = "Plugin org.example.Many not found that matches the version range [3.0,3.0], available versions: [1.0, 2.0]"
    result = validate_connector(config, plugins)
    assert {one.name: [p.message for p in one.value.problems] for one in result.fields if one.value.problems} == {
        "connector.class": [text], VERSION: [text],
    }  # fmt: skip
    field = result.field_named(VERSION)
    assert field is not None
    assert [problem.fix for problem in field.value.problems] == ["leave the version out, or write 1.0 or 2.0"]
    assert list(field.value.recommended) == ["1.0", "2.0"]
    with pytest.raises(ConfigError, match="available versions") as missing:
        plugins.find("Many", "3.0")
    assert (missing.value.field, str(missing.value)) == (VERSION, text)
    with pytest.raises(ConfigError, match="Unbounded range") as unread:
        plugins.find("Many", "[3.0")
    assert unread.value.field == VERSION


@pytest.mark.parametrize(("wanted", "key"), [("1.0", "since.1.0"), (None, "since.2.0")])
def test_a_config_is_validated_by_the_version_it_names(wanted: str | None, key: str) -> None:
    config = {"name": "a", "connector.class": "Many", "topics": "t", VERSION: wanted}
    if wanted is None:
        del config[VERSION]
    result = validate_connector(config, registry("1.0", "2.0"))
    assert result.error_count == 0
    assert [one.name for one in result.fields if one.name.startswith("since.")] == [key]
    field = result.field_named(VERSION)
    assert field is not None
    assert field.key is not None
    assert (list(field.value.recommended), field.key.default) == (["1.0", "2.0"], "2.0")


def test_all_versions_are_listed_oldest_first_and_each_once() -> None:
    mine = [one for one in registry("10.0", "9.0").all() if one.class_name == "org.example.Many"]
    assert [one.version for one in mine] == ["9.0", "10.0"]
    with pytest.raises(ValueError, match=r"are called org\.example\.Many"):
        registry("1.0", "1.0.0")
    with pytest.raises(ValueError, match="are called Many"):
        PluginRegistry([describe(sink("1")), describe(sink("2", "org.example.Other"))])
