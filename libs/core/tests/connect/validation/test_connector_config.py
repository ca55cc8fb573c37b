"""Validation of a whole connector config by Connect's rules, with connectors of our own: rules between keys, and every
problem at once.

`services/worker/tests/test_golden_validation.py` tests that the result equals Java's for Connect's own connectors.
"""

from __future__ import annotations

from typing import Any

import pytest

from herdmesh.connect.clients.client_overrides import override_policy
from herdmesh.connect.errors import ConfigError
from herdmesh.connect.validation.connector_config import validate_connector
from herdmesh.connect.validation.framework_keys import WorkerFacts
from libs.core.tests.connect.example_plugins import ABSENT, PLUGINS, SINK, SOURCE, Source, problems

_PACKAGE = "org.apache.kafka.connect.transforms."


def test_valid_configs_have_no_problems() -> None:
    assert problems(SINK, {}) == []
    assert problems(SINK, {"connector.class": "example.SinkConnector", "topics": ABSENT, "topics.regex": "a.*"}) == []
    assert problems(SOURCE, {}) == []


_ONE_OF = "Must configure one of topics or topics.regex"
_NULL = "Null value can not be supplied as the configuration value."


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"name": ABSENT}, [("name", 'Missing required configuration "name" which has no default value.')]),
        ({"name": " "}, [("name", "Invalid value  for configuration name: String may not be empty")]),
        (
            {"name": "a\x07b"},
            [
                (
                    "name",
                    "Invalid value a\x07b for configuration name: String may not contain control sequences but had the "
                    "following ASCII chars: 7",
                )
            ],
        ),
        (
            {"tasks.max": "2147483648"},
            [
                ("tasks.max", "Invalid value 2147483648 for configuration tasks.max: Not a number of type INT"),
                ("tasks.max", "Invalid value null for configuration tasks.max: Value must be non-null"),
            ],
        ),
        ({"some.unknown.key": None}, [("some.unknown.key", _NULL)]),
        ({"topics": ABSENT}, [("topics", _ONE_OF), ("topics.regex", _ONE_OF)]),
        ({"topics": "a,a"}, [("topics", "Configuration 'topics' values must not be duplicated.")]),
        ({"path": ABSENT}, [("path", 'Missing required configuration "path" which has no default value.')]),
    ],
)
def test_an_invalid_config_names_the_key_with_connects_message(
    change: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    assert problems(SINK, change) == expected


def test_every_problem_is_found_at_once() -> None:
    change = {"tasks.max": "0", "topics.regex": "[", "value.converter": "Nope", "path": "", "transforms": "t"}
    fields = [field for field, _ in problems(SINK, change)]
    assert fields == ["tasks.max", "value.converter", "topics", *["topics.regex"] * 2, "transforms.t.type", "path"]


@pytest.mark.parametrize(
    ("change", "field", "message"),
    [
        ({"connector.class": ABSENT}, "connector.class", "contains no connector type"),
        (
            {"connector.class": "Nope"},
            "connector.class",
            "Failed to find any class that implements Connector and which name matches Nope, available connectors are: "
            "ExampleSink, ExampleSource",
        ),
        ({"connector.plugin.version": "[1"}, "connector.plugin.version", "Unbounded range: [1"),
        (
            {"consumer.override.max.poll.records": "many"},
            "consumer.override.max.poll.records",
            "Invalid value many for configuration max.poll.records: Not a number of type INT",
        ),
        (
            {"topics": ABSENT, "topics.regex": "(", "errors.deadletterqueue.topic.name": "d"},
            "topics.regex",
            "Unclosed group near index 1",
        ),
    ],
)
def test_where_connect_fails_the_key_at_fault_is_named(change: dict[str, Any], field: str, message: str) -> None:
    with pytest.raises(ConfigError) as failed:
        problems(SINK, change)
    assert failed.value.field == field
    assert message in str(failed.value)


def test_a_missing_version_of_the_connector_hides_all_other_problems() -> None:
    text = "Plugin example.SinkConnector not found that matches the version range [2,2], available versions: [1]"
    found = problems(SINK, {"connector.plugin.version": "2", "topics": ABSENT})
    assert found == [("connector.class", text), ("connector.plugin.version", text)]


def test_repeated_aliases_name_one_transformation_and_add_its_keys_to_the_result() -> None:
    change = {"transforms": "a,b,a", "transforms.a.type": f"{_PACKAGE}HoistField$Key", "transforms.b.type": "Nope"}
    result = validate_connector({**SINK, **change}, PLUGINS)
    names = [one.name for one in result.fields if one.name.startswith("transforms.")]
    assert names == [
        *("transforms.a.type", "transforms.a.plugin.version", "transforms.a.field"),
        *("transforms.a.negate", "transforms.a.predicate", "transforms.b.type", "transforms.b.plugin.version"),
    ]
    assert [group for group in result.groups if ":" in group] == ["Transforms: a", "Transforms: b"]


# --- rules of sinks


def test_a_sink_whose_name_gives_the_workers_group_is_refused() -> None:
    worker = WorkerFacts(group_id="connect-s")
    assert problems(SINK, {}, worker) == [
        ("name", "Consumer group for sink connector named s conflicts with Connect worker group connect-s")
    ]
    assert problems(SINK, {"name": "t"}, worker) == []
    assert problems(SOURCE, {}, worker) == []


def test_a_sink_that_sets_the_workers_group_is_refused_at_that_key_alone() -> None:
    worker = WorkerFacts(group_id="connect-s")
    change = {"consumer.override.group.id": "connect-s"}
    assert problems(SINK, change, worker) == [
        ("consumer.override.group.id", "Consumer group connect-s conflicts with Connect worker group connect-s")
    ]


# --- exactly-once sources

_REQUIRED = {"exactly.once.support": "required"}


def support(answer: Any, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], worker: WorkerFacts) -> list[str]:
    monkeypatch.setitem(Source.answers, "exactly_once", answer)
    found = problems(SOURCE, change, worker)
    assert {field for field, _ in found} <= {"exactly.once.support"}
    return [message for _, message in found]


def raise_it() -> bool | None:
    raise ValueError(" the author's words ")


def test_required_exactly_once_passes_when_worker_and_connector_support_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert support(lambda: True, monkeypatch, _REQUIRED, WorkerFacts()) == []


def test_required_exactly_once_of_a_connector_without_support(monkeypatch: pytest.MonkeyPatch) -> None:
    assert support(lambda: False, monkeypatch, _REQUIRED, WorkerFacts()) == [
        "The connector does not support exactly-once semantics with the provided configuration."
    ]


def test_required_exactly_once_of_a_connector_that_does_not_declare_support(monkeypatch: pytest.MonkeyPatch) -> None:
    (message,) = support(lambda: None, monkeypatch, _REQUIRED, WorkerFacts())
    assert message.startswith("The connector does not implement the API required for preflight validation")
    assert 'use the value "requested"' in message


def test_required_exactly_once_of_a_connector_that_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    assert support(raise_it, monkeypatch, _REQUIRED, WorkerFacts()) == [
        "An unexpected error occurred during validation: the author's words"
    ]


def test_required_exactly_once_on_a_worker_without_support(monkeypatch: pytest.MonkeyPatch) -> None:
    assert support(lambda: True, monkeypatch, _REQUIRED, WorkerFacts(exactly_once=False)) == [
        "This worker does not have exactly-once source support enabled."
    ]


def test_an_unknown_level_of_exactly_once_support_is_the_only_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    assert support(raise_it, monkeypatch, {"exactly.once.support": "bogus"}, WorkerFacts(exactly_once=False)) == [
        "Invalid value bogus for configuration exactly.once.support: String must be one of (case insensitive): "
        "REQUIRED, REQUESTED"
    ]


def boundary(answer: Any, monkeypatch: pytest.MonkeyPatch, value: str = "Connector") -> list[str]:
    monkeypatch.setitem(Source.answers, "boundaries", answer)
    found = problems(SOURCE, {"transaction.boundary": value})
    assert {field for field, _ in found} <= {"transaction.boundary"}
    return [message for _, message in found]


def test_a_transaction_boundary_that_the_connector_defines(monkeypatch: pytest.MonkeyPatch) -> None:
    assert boundary(lambda: True, monkeypatch) == []


def test_a_transaction_boundary_that_the_connector_cannot_define(monkeypatch: pytest.MonkeyPatch) -> None:
    (message,) = boundary(lambda: False, monkeypatch)
    assert message.startswith("The connector does not support connector-defined transaction boundaries")
    (message,) = boundary(lambda: None, monkeypatch)
    assert message.startswith("This connector has returned a null value from its canDefineTransactionBoundaries")


def test_a_transaction_boundary_of_a_connector_that_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    assert boundary(raise_it, monkeypatch) == ["An unexpected error occurred during validation: the author's words"]


def test_an_unknown_transaction_boundary_is_the_only_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    assert boundary(raise_it, monkeypatch, "x") == [
        "Invalid value x for configuration transaction.boundary: String must be one of (case insensitive): INTERVAL, "
        "POLL, CONNECTOR"
    ]


# --- client overrides


@pytest.mark.parametrize(
    ("policy", "allowed"),
    [
        ("All", ["linger.ms", "bogus", "sasl.mechanism", "security.protocol", "sasl.jaas.config", "acks"]),
        ("None", []),
        ("Principal", ["sasl.mechanism", "security.protocol", "sasl.jaas.config"]),
        ("Allowlist", ["linger.ms", "acks"]),
        ("org.apache.kafka.connect.connector.policy.NoneConnectorClientConfigOverridePolicy", []),
    ],
)
def test_the_override_policy_decides_which_client_settings_are_allowed(policy: str, allowed: list[str]) -> None:
    worker = WorkerFacts(overrides=override_policy(policy, ["linger.ms", "acks"]))
    options = ["linger.ms", "bogus", "sasl.mechanism", "security.protocol", "sasl.jaas.config", "acks"]
    found = problems(SOURCE, {f"producer.override.{name}": "1" for name in options}, worker)
    short = policy.rpartition(".")[2].removesuffix("ConnectorClientConfigOverridePolicy")
    assert sorted(found) == sorted(
        (
            f"producer.override.{name}",
            f"The '{short}' policy does not allow '{name}' to be overridden in the connector configuration.",
        )
        for name in options
        if name not in allowed
    )


def test_an_unknown_override_policy_is_refused() -> None:
    with pytest.raises(ConfigError, match="no such policy") as refused:
        override_policy("Some")
    assert refused.value.field == "connector.client.config.override.policy"
    assert "Allowlist" in refused.value.fix


def test_only_overrides_of_clients_the_connector_uses_are_checked() -> None:
    worker = WorkerFacts(overrides=override_policy("None"), exactly_once=False)
    change = {"consumer.override.a": "1", "producer.override.a": "1", "admin.override.a": "1"}

    def fields(config: dict[str, str | None], more: dict[str, str]) -> list[str]:
        return [field for field, _ in problems(config, {**change, **more}, worker)]

    every = ["producer.override.a", "consumer.override.a", "admin.override.a"]
    assert fields(SOURCE, {}) == every[:1]
    assert fields(SOURCE, {"topic.creation.default.partitions": "1"}) == [every[0], every[2]]
    assert fields(SOURCE, {"offsets.storage.topic": "o"}) == every
    assert fields(SINK, {}) == every[1:2]
    assert fields(SINK, {"errors.deadletterqueue.topic.name": "d"}) == every
