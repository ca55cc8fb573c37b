"""Custom transformations, predicates and converters: found by entry points, validated like Connect's own, and run in a
chain with them.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from herdmesh.connect.chain import chain_config
from herdmesh.connect.config.redaction import redacted, secrets_of_one_answer
from herdmesh.connect.errors import ConfigError, RecordError
from herdmesh.connect.model.data import Batch, Header, Struct
from herdmesh.connect.plugins.builtin import installed_classes
from herdmesh.connect.plugins.plugin_registry import PluginRegistry, describe
from herdmesh.connect.spi import custom_plugins
from herdmesh.connect.spi.plugin_class import PluginKind
from herdmesh.connect.validation.connector_config import validate_connector
from herdmesh.engine.bad_records.tolerance import executing_class
from libs.core.tests.connect.example_plugins import Sink
from tests.support.plugin_environments import Environment

MODULE = """
from herdmesh.connect.spi.custom_plugins import RecordConverter, RecordPredicate, RecordTransformation
from herdmesh.connect.config.config_def import ConfigDef, ConfigKey, Importance, Type
from herdmesh.connect.model.data import Header, Struct
from herdmesh.connect.errors import ConfigError, DataError
from herdmesh.connect.model.schemas import SchemaBuilder, STRING

class Numbered(RecordTransformation):
    class_name, aliases = "org.example.Numbered", ("Numbered",)
    closed = []

    @classmethod
    def config_def(cls):
        return ConfigDef(ConfigKey("by", Type.INT, 1, Importance.LOW, "Factor."),
                         ConfigKey("key", Type.PASSWORD, None, Importance.LOW, "Nobody's."),
                         ConfigKey("kind", Type.STRING, "map", Importance.LOW, "What comes out."))

    def configure(self, config):
        found = self.config_def().parse(config)
        self.by, self.kind = found["by"], found["kind"]
        if self.by == 0:
            raise ConfigError("by nothing", field="by", fix="1")

    def apply(self, record):
        number = record.value["n"] * self.by
        if number < 0:
            raise ValueError("below zero")
        if number == 13:
            return None
        if self.kind == "struct" and number % 2:
            record.value_schema = SchemaBuilder("STRUCT").field("odd", STRING).build()
            record.value = Struct(record.value_schema).put("odd", str(number))
        elif self.kind == "time":
            record.timestamp_ms = 1 + record.offset
        elif self.kind == "partition":
            record.partition = 9
        else:
            record.value = {"n": number, "from": record.topic}
        record.topic = "big" if number > 100 else record.topic
        record.headers = [*record.headers, Header("seen", str(record.offset))]
        return record

    def close(self):
        self.closed.append(self.by)

class Keyed(RecordPredicate):
    class_name, aliases = "org.example.Keyed", ("Keyed",)
    def test(self, record):
        return record.key is not None and record.offset != 12

class Reversed(RecordConverter):
    class_name, aliases = "org.example.Reversed", ("Reversed",)
    def configure(self, config):
        self.role = config["converter.type"]
    def to_connect(self, topic, data):
        if data == b"bad":
            raise DataError("cannot be turned round")
        return None, None if data is None else {"n": int(data[::-1]), "role": self.role, "of": topic}
    def from_connect(self, topic, schema, value):
        return None if value is None else f"{topic}:{value['n']}"[::-1].encode()
"""
NAMED = {
    "transformations": ["N = steps:Numbered"],
    "predicates": ["K = steps:Keyed"],
    "converters": ["R = steps:Reversed"],
}
STEP = {
    "key.converter": "StringConverter",
    "value.converter": "JsonConverter",
    "value.converter.schemas.enable": "false",
    "transforms": "number",
    "transforms.number.type": "Numbered",
}


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Environment]:
    environment = Environment(tmp_path / "plugins").install("steps", "1.5", {"steps.py": MODULE}, **NAMED)
    monkeypatch.setattr(sys, "path", [str(environment.packages), *sys.path])
    importlib.invalidate_caches()
    yield environment
    for name in ("steps", "steps_gone", "steps_none"):
        sys.modules.pop(name, None)


def batch(*values: bytes | None, keys: tuple[bytes | None, ...] = ()) -> Batch:
    return Batch("t", 3, keys or [b"k"] * len(values), values, range(10, 10 + len(values)), [7] * len(values))


def told(made: list[Batch]) -> list[tuple[Any, ...]]:
    return [
        (one.topic, value, one.offsets[at], [header.value for header in one.headers[at]] if one.headers else [])
        for one in made
        for at, value in enumerate(one.values)
    ]


def test_records_go_through_a_custom_step_between_connects_own() -> None:
    """It changes topic and headers, or filters records; Connect's steps before and after it work as always."""
    config = {
        **STEP,
        "transforms": "before,number,after",
        "transforms.number.by": "2",
        "transforms.before.type": "org.apache.kafka.connect.transforms.ReplaceField$Value",
        "transforms.before.renames": "m:n",
        "transforms.after.type": "org.apache.kafka.connect.transforms.RegexRouter",
        "transforms.after.regex": "(.*)",
        "transforms.after.replacement": "$1-new",
    }
    chain = chain_config.sink_chain(config)
    made = chain.run(batch(b'{"m":1}', b'{"m":6.5}', b'{"m":60}'))
    assert told(made) == [
        ("t-new", {"n": 2, "from": "t"}, 10, ["10"]), ("big-new", {"n": 120, "from": "t"}, 12, ["12"]),
    ]  # fmt: skip
    chain.close()
    assert sys.modules["steps"].Numbered.closed == [2]


def test_schemas_follow_the_results_of_a_custom_step_record_by_record() -> None:
    made = chain_config.sink_chain({**STEP, "transforms.number.kind": "struct"}).run(
        batch(b'{"n":1}', b'{"n":2}', b'{"n":3}')
    )
    assert [(one.value_schema is not None, len(one.values)) for one in made] == [(True, 1), (False, 1), (True, 1)]
    first = made[0].values[0]
    assert isinstance(first, Struct)
    assert first.get("odd") == "1"


def test_an_error_of_a_custom_step_is_a_record_failure_and_forbidden_changes_are_refused() -> None:
    chain = chain_config.sink_chain(STEP)
    with pytest.raises(RecordError, match=r"transformation 'number' \(org\.example\.Numbered\).*below zero") as failed:
        chain.run(batch(b'{"n":1}', b'{"n":-1}'))
    assert "offset 11" in str(failed.value)
    with pytest.raises(RecordError, match="changed the partition or offset that a sink's record was read from"):
        chain_config.sink_chain({**STEP, "transforms.number.kind": "partition"}).run(batch(b'{"n":1}'))


def test_a_custom_step_may_change_timestamps_and_a_sources_partition() -> None:
    (made,) = chain_config.sink_chain({**STEP, "transforms.number.kind": "time"}).run(batch(b'{"n":1}', b'{"n":2}'))
    assert list(made.timestamps_ms) == [1 + offset for offset in made.offsets]
    given = Batch("t", None, [], [{"n": 1}, {"n": 2}])
    (raw,) = chain_config.source_chain({**STEP, "transforms.number.kind": "partition"}).run(given)
    assert (raw.partition, len(raw.values)) == (9, 2)


@pytest.mark.parametrize(("negate", "changed"), [("false", [10]), ("true", [11, 12])])
def test_a_custom_predicate_sees_the_whole_record(negate: str, changed: list[int]) -> None:
    config = {
        **STEP,
        "transforms.number.predicate": "keyed",
        "transforms.number.negate": negate,
        "predicates": "keyed",
        "predicates.keyed.type": "org.example.Keyed",
    }
    made = chain_config.sink_chain(config).run(batch(b'{"n":1}', b'{"n":2}', b'{"n":3}', keys=(b"k", None, b"k")))
    assert [offset for _, value, offset, _ in told(made) if "from" in value] == changed
    assert len(told(made)) == 3
    # with a step that is Connect's own, too
    config |= {"transforms.number.type": "org.apache.kafka.connect.transforms.HoistField$Value",
               "transforms.number.field": "from"}  # fmt: skip
    made = chain_config.sink_chain(config).run(batch(b'{"n":1}', b'{"n":2}', b'{"n":3}', keys=(b"k", None, b"k")))
    assert [offset for _, value, offset, _ in told(made) if "from" in value] == changed


def test_a_custom_converter_reads_and_writes_with_its_topic() -> None:
    config = {"key.converter": "StringConverter", "value.converter": "Reversed", "header.converter": "Simple"}
    made = chain_config.sink_chain(config).run(batch(b"21", None))
    assert [value for _, value, _, _ in told(made)] == [{"n": 12, "role": "value", "of": "t"}, None]
    with pytest.raises(RecordError, match=r"VALUE_CONVERTER.*org\.example\.Reversed.*cannot be turned round"):
        chain_config.sink_chain(config).run(batch(b"21", b"bad"))
    source = chain_config.source_chain(
        {**config, "transforms": "n", "transforms.n.type": "Numbered", "transforms.n.by": "7"}
    )
    [one] = source.run(Batch("t", None, (), [{"n": 2}], headers=[[Header("h", "x")]]))
    assert (one.values, one.headers) == ([b"41:t"], [[("h", b"x"), ("seen", b"None")]])


def test_invalid_settings_and_versions_are_reported_with_their_key() -> None:
    find = chain_config.violations
    assert find(STEP) == []
    converter = "value.converter"
    found = find({**STEP, "transforms.number.by": "0", converter: "Nobodys"})
    assert [(one.field, one.message) for one in found] == [
        (
            "value.converter",
            "Invalid value Nobodys for configuration value.converter: Class Nobodys could not be found.",
        ),
        ("transforms.number.by", "by nothing"),
    ]
    (wrong,) = find({**STEP, "transforms.number.plugin.version": "[2,)"})
    assert (wrong.field, "is not there in version [2,): there is 1.5" in wrong.message) == (
        "transforms.number.plugin.version", True,
    )  # fmt: skip
    assert find({**STEP, "transforms.number.plugin.version": "1.5"}) == []
    (kind,) = find({**STEP, "transforms.number.type": "Keyed"})
    assert kind.field == "transforms.number.type"


def test_custom_plugins_are_listed_and_validated_like_connects_own() -> None:
    registry = PluginRegistry([describe(Sink)], installed_classes())
    listed = [
        (one.class_name, one.kind, one.version) for one in registry.all() if one.class_name.startswith("org.example")
    ]
    assert listed == [
        ("org.example.Numbered", PluginKind.TRANSFORMATION, "1.5"),
        ("org.example.Keyed", PluginKind.PREDICATE, "1.5"),
        ("org.example.Reversed", PluginKind.CONVERTER, "1.5"),
        ("org.example.Reversed", PluginKind.HEADER_CONVERTER, "1.5"),
    ]
    config = {"name": "s", "connector.class": "ExampleSink", "topics": "t", "path": "/p", **STEP}
    result = validate_connector({**config, "transforms.number.by": "many"}, registry)
    by, version = result.field_named("transforms.number.by"), result.field_named("transforms.number.plugin.version")
    assert by is not None
    assert version is not None
    assert [one.message for one in by.value.problems] == [
        "Invalid value many for configuration transforms.number.by: Not a number of type INT"
    ]
    assert version.value.recommended == ["1.5"]


def test_passwords_of_a_custom_step_appear_in_no_text_and_a_dead_letter_names_its_class() -> None:
    with secrets_of_one_answer():
        chain_config.transformations({**STEP, "transforms.number.key": "swordfish-7"})
        assert redacted("it is swordfish-7") == "it is ***"
    _, value, _ = chain_config.converters({"key.converter": "Reversed", "value.converter": "org.example.Reversed"})
    assert executing_class(value) == "org.example.Reversed"


def test_a_custom_plugin_cannot_take_the_name_of_a_connect_class(installed: Environment) -> None:
    text = MODULE.replace('"org.example.Keyed", ("Keyed",)', '"org.example.Keyed", ("RecordIsTombstone",)')
    (installed.packages / "steps.py").write_text(text)
    with pytest.raises(ValueError, match=r"org\.example\.Keyed is called RecordIsTombstone, and so is another plugin"):
        PluginRegistry([describe(Sink)], installed_classes())
    chain = chain_config.transformations(
        {"transforms": "n", "transforms.n.type": "Numbered", "transforms.n.predicate": "p", "predicates": "p",
         "predicates.p.type": "RecordIsTombstone"}
    )  # fmt: skip
    assert type(chain[0].predicate).__name__ == "RecordIsTombstone"


def test_a_plugin_that_cannot_be_imported_does_not_hide_the_others(
    installed: Environment, caplog: pytest.LogCaptureFixture
) -> None:
    installed.install("gone", "1", {"steps_gone.py": "import no_such_module\n"}, transformations=["B = steps_gone:B"])
    assert custom_plugins.here("Numbered", None) is not None
    assert "B = steps_gone:B cannot be imported" in caplog.text
    installed.install("none", "1", {"steps_none.py": "Other = dict\n"}, predicates=["O = steps_none:Other"])
    with pytest.raises((TypeError, ImportError)):
        custom_plugins.entries()
    with pytest.raises(ConfigError):
        custom_plugins.here("Numbered", "(1.5,)")
