"""Configuration keys equal Connect's, and a bad configuration names every key at fault."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from herdmesh.connect.config import REQUIRED, ConfigDef, ConfigKey, Importance, Type, parse_value
from herdmesh.connect.connector import Connector, ConnectorKind
from herdmesh.connect.connector_config import validate_connector
from herdmesh.connect.connector_keys import COMMON, SINK, SOURCE
from herdmesh.connect.converters import CONVERTERS
from herdmesh.connect.errors import ConfigError
from herdmesh.connect.plugins import PluginRegistry, describe
from herdmesh.connect.transforms import TRANSFORMATIONS
from herdmesh.connect.validators import non_empty_string
from libs.core.tests.connect.golden_vectors import Vector, vectors

_JAVA_OBJECTS = "@<hash>"


def definition(owner: str) -> ConfigDef:
    own = {"ConnectorConfig": COMMON, "SinkConnectorConfig": SINK, "SourceConnectorConfig": SOURCE}
    if owner in own:
        return own[owner]
    return CONVERTERS[owner].config_def if owner in CONVERTERS else TRANSFORMATIONS[owner][0].config_def


@pytest.mark.parametrize("vector", vectors("configdef.jsonl"), ids=lambda vector: vector["id"])
def test_keys_are_declared_as_in_connect(vector: Vector) -> None:
    key = definition(vector["owner"]).keys[vector["name"]]
    assert key.type == vector["type"]
    assert key.required == vector["required"]
    assert shown(key.default) == vector["default"]
    assert key.importance == vector["importance"]
    assert (key.group, key.order, key.width) == (vector["group"], vector["order"], vector["width"])
    assert (key.display_name or key.name) == vector["display_name"]
    if _JAVA_OBJECTS not in (vector["validator"] or ""):  # plugin versions: one version of each exists here
        assert (key.validator.text if key.validator else None) == vector["validator"]


def test_no_key_is_ours_alone_among_connects() -> None:
    owners = {vector["owner"] for vector in vectors("configdef.jsonl")}
    for owner in owners:
        names = [vector["name"] for vector in vectors("configdef.jsonl") if vector["owner"] == owner]
        assert sorted(definition(owner).keys) == sorted(names), owner


def shown(default: Any) -> str | None:
    if default is REQUIRED or default is None:
        return None
    if isinstance(default, bool):
        return str(default).lower()
    return ",".join(default) if isinstance(default, list) else str(default)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]


class Sink(Connector):
    kind = ConnectorKind.SINK
    class_name = "example.SinkConnector"
    aliases = ("ExampleSink",)
    version = "1"

    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef(ConfigKey("path", Type.STRING, REQUIRED, Importance.HIGH, "Folder.", non_empty_string()))

    def validate(self, config: Any) -> Sequence[ConfigError]:
        if config["path"] == "/readonly":
            return [ConfigError.for_value("path", "/readonly", "not writable", fix="choose another folder")]
        return ()

    def task_class(self) -> str:
        return "example:Task"

    def task_configs(self, max_tasks: int) -> list[dict[str, str | None]]:
        return [dict(self.config) for _ in range(max_tasks)]


class Source(Sink):
    kind = ConnectorKind.SOURCE
    class_name = "example.SourceConnector"
    aliases = ("ExampleSource",)


PLUGINS = PluginRegistry([describe(Sink), describe(Source)])
GOOD: dict[str, str | None] = {
    "name": "s",
    "connector.class": "ExampleSink",
    "tasks.max": "2",
    "topics": "a,b",
    "path": "/out",
    "key.converter": "StringConverter",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
    "errors.tolerance": "none",
    "herdmesh.linger.ms": "100",
    "some.unknown.key": "is ignored, as in Connect",
}

_MISSING = object()


def violations_of(change: dict[str, Any]) -> list[tuple[str, str]]:
    config = {key: value for key, value in {**GOOD, **change}.items() if value is not _MISSING}
    return [(violation.field, violation.message) for violation in validate_connector(config, PLUGINS)]


def test_good_configs_have_no_violations() -> None:
    assert violations_of({}) == []
    assert violations_of({"connector.class": "example.SinkConnector", "topics": _MISSING, "topics.regex": "a.*"}) == []
    assert violations_of({"connector.class": "ExampleSource", "topics": _MISSING}) == []


_NUMBER = "Not a number of type INT"
_ONE_OF = "Must configure one of topics or topics.regex"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"name": _MISSING}, [("name", 'Missing required configuration "name" which has no default value.')]),
        ({"name": ""}, [("name", "Invalid value  for configuration name: String may not be empty")]),
        (
            {"connector.class": _MISSING},
            [("connector.class", 'Missing required configuration "connector.class" which has no default value.')],
        ),
        (
            {"connector.class": "Nope"},
            [
                (
                    "connector.class",
                    "Failed to find any class that implements Connector and which name matches Nope, "
                    "available connectors are: ExampleSink, ExampleSource",
                )
            ],
        ),
        (
            {"tasks.max": "0"},
            [("tasks.max", "Invalid value 0 for configuration tasks.max: Value must be at least 1")],
        ),
        ({"tasks.max": "abc"}, [("tasks.max", f"Invalid value abc for configuration tasks.max: {_NUMBER}")]),
        (
            {"tasks.max": "2147483648"},
            [("tasks.max", f"Invalid value 2147483648 for configuration tasks.max: {_NUMBER}")],
        ),
        (
            {"tasks.max": None},
            [("tasks.max", "Invalid value null for configuration tasks.max: Value must be non-null")],
        ),
        ({"topics": _MISSING}, [("topics", _ONE_OF), ("topics.regex", _ONE_OF)]),
        ({"topics": " "}, [("topics", _ONE_OF), ("topics.regex", _ONE_OF)]),
        ({"topics": "a,a"}, [("topics", "Configuration 'topics' values must not be duplicated.")]),
        (
            {"key.converter": "Nope"},
            [("key.converter", "Invalid value Nope for configuration key.converter: Class Nope could not be found.")],
        ),
        ({"path": "/readonly"}, [("path", "Invalid value /readonly for configuration path: not writable")]),
        ({"path": _MISSING}, [("path", 'Missing required configuration "path" which has no default value.')]),
        (
            {"errors.tolerance": "all"},
            [
                (
                    "errors.tolerance",
                    "Invalid value all for configuration errors.tolerance: skipping bad records is not built yet",
                )
            ],
        ),
        (
            {"errors.tolerance": "some"},
            [
                (
                    "errors.tolerance",
                    "Invalid value some for configuration errors.tolerance: String must be one of: none, all",
                )
            ],
        ),
        (
            {"herdmesh.linger.ms": "-1"},
            [
                (
                    "herdmesh.linger.ms",
                    "Invalid value -1 for configuration herdmesh.linger.ms: Value must be at least 0",
                )
            ],
        ),
    ],
)
def test_a_bad_config_names_the_key_in_connects_words(change: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    assert violations_of(change) == expected


def test_everything_wrong_is_found_at_once() -> None:
    change = {"tasks.max": "x", "topics.regex": "[", "value.converter": "Nope", "path": "", "predicates": "p"}
    fields = [field for field, _ in violations_of(change)]
    assert fields == ["tasks.max", "topics.regex", "value.converter", "predicates", "topics", "topics.regex", "path"]


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        (" TRUE ", Type.BOOLEAN, True),
        (" a ", Type.STRING, "a"),
        ("+5", Type.INT, 5),
        ("-32768", Type.SHORT, -32768),
        ("1e3", Type.DOUBLE, 1000.0),
        ("1.5f", Type.DOUBLE, 1.5),
        ("", Type.LIST, []),
        ("a , b,", Type.LIST, ["a", "b", ""]),
        (None, Type.INT, None),
        (5, Type.LONG, 5),
        ([1], Type.LIST, [1]),
    ],
)
def test_values_are_parsed_as_in_connect(text: Any, kind: Type, value: Any) -> None:
    assert parse_value("k", text, kind) == value


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("yes", Type.BOOLEAN, "Invalid value yes for configuration k: Expected value to be either true or false"),
        ("1_0", Type.INT, "Invalid value 1_0 for configuration k: Not a number of type INT"),
        ("32768", Type.SHORT, "Invalid value 32768 for configuration k: Not a number of type SHORT"),
        ("x", Type.DOUBLE, "Invalid value x for configuration k: Not a number of type DOUBLE"),
        (5, Type.STRING, "Invalid value 5 for configuration k: Expected value to be a string, but it was a number"),
        (True, Type.INT, "Invalid value true for configuration k: Expected value to be a int, but it was a boolean"),
    ],
)
def test_bad_values_are_refused_in_connects_words(text: Any, kind: Type, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_value("k", text, kind)
    assert str(refused.value) == message
    assert refused.value.field == "k"
