"""Validation equals Connect 4.3.1's: every definition of its classes, and the whole result of every recorded request.

The vectors (tests/golden/connect) come from the real classes and a live worker. Our own keys (`herdmesh.*`) and the
additional refusals of this release (`test_validation.py`) are not part of Connect's layer, which is compared here.

Some results cannot be compared as they are, each named in its test: requests whose body is no map of texts, which no
message of ours can carry; a Java NullPointerException; the mirror's differences
(`tests/support/mirror_differences.py`); and definitions that have no counterpart here: the worker's own settings, whose
names and defaults are compared where ours has them (cli/tests/standalone/test_connects_settings.py).
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from herdmesh.connect.clients.client_overrides import override_policy
from herdmesh.connect.config.config_def import ConfigDef
from herdmesh.connect.errors import ConfigError
from herdmesh.connect.java.properties_files import Property
from herdmesh.connect.plugins.builtin import builtin_classes
from herdmesh.connect.plugins.plugin_registry import PluginRegistry, describe
from herdmesh.connect.spi.connector import SourceConnector
from herdmesh.connect.spi.plugin_class import CONNECT_VERSION
from herdmesh.connect.validation.connector_config import Validation, validate_connector
from herdmesh.connect.validation.connector_keys import COMMON, SINK, SOURCE
from herdmesh.connect.validation.framework_keys import WorkerFacts
from herdmesh.connectors.file_stream.sink.connector import FileStreamSink
from herdmesh.connectors.file_stream.source.connector import FileStreamSource
from herdmesh.standalone.worker_properties import REQUIRED as REQUIRED_PROPERTIES
from herdmesh.standalone.worker_properties import plan_worker
from tests.support import golden, mirror_differences, validation_differences
from tests.support.validations import WORKERS as RECORDED_ON
from tests.support.validations import body_of, comparable, definition_of, digest, errors_of, our_answer

_JAVA_OBJECT = "@<hash>"
_OURS = {
    "ConnectorConfig": COMMON,
    "SinkConnectorConfig": SINK,
    "SourceConnectorConfig": SOURCE,
    FileStreamSource.class_name: FileStreamSource.config_def(),
    FileStreamSink.class_name: FileStreamSink.config_def(),
    **{
        one.class_name: ConfigDef(
            *(key for name, key in one.config_def().keys.items() if name not in mirror_differences.OWN)
        )
        for one in mirror_differences.CONNECTORS
    },
    **{one.name: one.definition for one in builtin_classes() if not one.abstract},
}


def by_owner(lines: list[golden.Line]) -> dict[str, list[golden.Line]]:
    found: dict[str, list[golden.Line]] = {}
    for line in lines:
        found.setdefault(line["owner"], []).append(line)
    return found


RECORDED = by_owner(golden.lines_or_own("configdef.jsonl"))


class Bare(SourceConnector):
    """A connector without keys of its own, which does nothing."""

    class_name = "bare"
    version = CONNECT_VERSION

    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef()

    def task_class(self) -> str:
        return "none:None"

    def task_configs(self, max_tasks: int) -> list[dict[str, str | None]]:
        return []


PLUGINS = PluginRegistry(map(describe, [FileStreamSource, FileStreamSink, *mirror_differences.CONNECTORS, Bare]))
_CONVERTERS = {
    **WorkerFacts().converters,
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
}
WORKERS = {
    "plain": WorkerFacts(_CONVERTERS, "gold-plain2", exactly_once=False),
    "eos": WorkerFacts(_CONVERTERS, "gold-eos", exactly_once=True),
    "alt": WorkerFacts(_CONVERTERS, "gold-alt", exactly_once=False, overrides=override_policy("None")),
}
"""The workers on which the vectors were recorded."""


# --- definitions


@pytest.mark.parametrize("owner", [owner for owner in RECORDED if owner in _OURS])
def test_definitions_are_declared_as_in_connect(owner: str) -> None:
    """All keys, in order, with their texts. Validators that are Java objects have no text to compare."""
    definition, recorded = _OURS[owner], RECORDED[owner]
    if owner in mirror_differences.NAMES:
        recorded = mirror_differences.wanted_definitions(recorded)
    assert [definition_of(key, key.name) for key in definition.keys.values()] == [
        {
            **{name: line[name] for name in ("name", "type", "required", "importance", "documentation", "group")},
            **{name: line[name] for name in ("width", "display_name", "dependents")},
            "default_value": line["default"],
            "order_in_group": line["order"],
        }
        for line in recorded
    ]
    for key, line in zip(definition.keys.values(), recorded, strict=True):
        if _JAVA_OBJECT not in (line["validator"] or ""):
            assert (key.validator.text if key.validator else None) == line["validator"], line["id"]


def test_we_define_all_recorded_classes_except_the_workers_settings() -> None:
    assert set(RECORDED) - set(_OURS) == set(validation_differences.WORKERS)
    assert sum(map(len, RECORDED.values())) == 629


@pytest.mark.parametrize("owner", validation_differences.WORKERS)
def test_every_setting_of_connects_worker_is_used_or_warned_about(owner: str) -> None:
    """A properties file sets each of them to its default: none is reported as unknown."""
    values = {line["name"]: line["default"] or "" for line in RECORDED[owner]}
    values.update(dict.fromkeys(REQUIRED_PROPERTIES, "x"))
    values.update({"key.converter": "String", "value.converter": "String"})
    plan = plan_worker("worker.properties", {name: Property(value, 1) for name, value in values.items()})
    assert [warning for warning in plan.warnings if "misspelt" in warning.message] == []


# --- results


@pytest.mark.parametrize("vector", golden.lines("validate.jsonl"), ids=lambda vector: vector["id"])
def test_results_equal_connects(vector: golden.Line) -> None:
    config, answer = validation_differences.properties(vector["request_body"]), vector["response_body"]
    if config is None:
        assert vector["status"] == 500  # Connect cannot read it either
        return
    result = result_of(config, WORKERS[vector["worker"]])
    if isinstance(result, ConfigError):
        assert vector["status"] in (400, 500)
        assert comparable(str(result)) in comparable(answer["message"])
        return
    if validation_differences.is_null_pointer(vector):
        # A bug of Java's: it fails over the version it has just refused. Here the request is refused by name, as
        # Connect does when the connector is created (golden rest vectors).
        assert [one.name for one in result.fields if one.value.problems] == [
            "connector.class",
            "connector.plugin.version",
        ]
        return
    assert vector["status"] == 200
    found = body_of(result)
    if mirror_differences.is_asked_for(vector):
        for own in found["configs"]:
            if own["value"]["name"] in mirror_differences.own_keys(config):
                own.pop("definition")  # of a key that Java's does not have
        plain = result_of({**config, "connector.class": Bare.class_name}, WORKERS[vector["worker"]])
        assert isinstance(plain, Validation)
        answer = mirror_differences.wanted_answer(answer, body_of(plain), config)
    assert found == answer


def beside() -> dict[str, list[golden.Line]]:
    """Answers of live 4.3.1 workers by the first part of their id, which names the varied setting."""
    found: dict[str, list[golden.Line]] = {}
    for line in Path(__file__).with_name("java_validations.jsonl").read_text("utf-8").splitlines():
        vector: golden.Line = json.loads(line)
        found.setdefault(vector["id"].partition("/")[0], []).append(vector)
    return found


@pytest.mark.parametrize("vectors", [pytest.param(vectors, id=name) for name, vectors in beside().items()])
def test_results_of_varied_configs_equal_connects(vectors: list[golden.Line]) -> None:
    """Configs with one or two varied settings (`tests/support/validations.py` has the workers that were queried);
    answers are kept as their errors and a digest of the whole.
    """
    for vector in vectors:
        _, worker = RECORDED_ON[vector["worker"]]
        answer = our_answer(vector["config"], worker)
        if isinstance(answer, ConfigError):
            assert comparable(str(answer)) in vector["message"], vector["id"]
            continue
        assert [list(one) for one in errors_of(answer)] == vector["errors"], vector["id"]
        assert (answer["error_count"], digest(answer)) == (vector["error_count"], vector["sha256"]), vector["id"]


def result_of(config: dict[str, str | None], worker: WorkerFacts) -> Validation | ConfigError:
    try:
        return validate_connector(config, PLUGINS, worker)
    except ConfigError as error:
        return error
