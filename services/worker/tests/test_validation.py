"""A worker's validation of a config: Connect's result, our keys after it, our refusals on top, each with its fix."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from pydantic import SecretStr, ValidationError

from herdmesh.api.common.v1 import connector_pb2
from herdmesh.api.herder.v1 import config_messages_pb2
from herdmesh.api.worker.v1 import worker_service_pb2
from herdmesh.connect.config_providers.resolver import ConfigProviders
from herdmesh.connect.errors import ConfigError
from herdmesh.connect.plugins.plugin_registry import PluginRegistry, describe
from herdmesh.connectors.file_stream.sink.connector import FileStreamSink
from herdmesh.connectors.file_stream.source.connector import FileStreamSource
from herdmesh.connectors.mirror.source.connector import MirrorSourceConnector
from herdmesh.session.model import UnitId
from herdmesh.worker.effects.plugins import validation
from herdmesh.worker.effects.plugins.plugins import Found, Plugins
from herdmesh.worker.effects.runs.specs import RunSpecs
from herdmesh.worker.settings import WorkerSettings
from herdmesh.worker.state.model import TaskSpec
from tests.support import golden

REGISTRY = PluginRegistry(map(describe, (FileStreamSource, FileStreamSink, MirrorSourceConnector)))
SOURCE: dict[str, str | None] = {"name": "v", "connector.class": "FileStreamSource", "topic": "t", "file": "f"}
_MASK = "org.apache.kafka.connect.transforms.MaskField$Value"
_CAST = "org.apache.kafka.connect.transforms.Cast$Value"


def answered(config: Mapping[str, str | None], **settings: str) -> worker_service_pb2.ConfigValidation:
    worker = WorkerSettings(**settings).worker_config()  # pyright: ignore[reportArgumentType] - by name
    result = validation.validate(config, REGISTRY, worker, ConfigProviders.of(worker))
    for field in result.fields:
        assert len(field.errors) == len(field.fixes), field.name
    assert result.error_count == sum(len(field.errors) for field in result.fields)  # no override has two errors
    return result


def errors(result: worker_service_pb2.ConfigValidation) -> dict[str, list[str]]:
    return {field.name: list(field.errors) for field in result.fields if field.errors}


def test_our_keys_come_after_connects() -> None:
    result = answered(SOURCE)
    names = [field.name for field in result.fields]
    (recorded,) = (one for one in golden.own_lines("validate.jsonl") if one["id"] == "plain/validate/src-ok")
    connects = [one["value"]["name"] for one in recorded["response_body"]["configs"]]
    assert names[: len(connects)] == connects
    assert names[len(connects) :]
    assert all(name.startswith("herdmesh.") for name in names[len(connects) :])
    assert list(result.groups) == [*recorded["response_body"]["groups"], "Herdmesh"]
    assert errors(result) == {}


def test_connects_errors_are_unchanged_and_ours_are_added_at_other_keys() -> None:
    result = answered(
        {**SOURCE, "tasks.max": "0", "producer.override.bootstrap.servers": "e:1", "herdmesh.linger.ms": "x",
         "transforms": "a,b",
         "transforms.a.type": _CAST, "transforms.a.spec": "int8", "transforms.b.type": _CAST}
    )  # fmt: skip
    assert errors(result) == {
        "tasks.max": ["Invalid value 0 for configuration tasks.max: Value must be at least 1"],
        "producer.override.bootstrap.servers": [
            "Invalid value e:1 for configuration producer.override.bootstrap.servers: writing to another cluster than "
            "the workers' is not supported yet"
        ],
        "transforms.b.spec": [
            'Missing required configuration "transforms.b.spec" which has no default value.',
            "Must specify at least one field to cast.",
        ],
        "herdmesh.linger.ms": ["Invalid value x for configuration herdmesh.linger.ms: Not a number of type LONG",
                               "Invalid value null for configuration herdmesh.linger.ms: Value must be non-null"],
    }  # fmt: skip
    (field,) = (one for one in result.fields if one.name == "producer.override.bootstrap.servers")
    assert list(field.fixes) == ["leave it out"]


@pytest.mark.parametrize(
    ("change", "field", "says", "fix"),
    [
        ({"connector.class": "Nope"}, "connector.class", "matches Nope, available connectors are", "FileStreamSink"),
        ({"connector.class": None}, "connector.class", "contains no connector type", "name a connector's class"),
        ({"producer.override.linger.ms": "x"}, "producer.override.linger.ms", "Not a number of type LONG", "number"),
    ],
)
def test_where_connect_fails_the_error_is_at_its_key_and_other_keys_are_still_checked(
    change: dict[str, str | None], field: str, says: str, fix: str
) -> None:
    result = answered({**SOURCE, **change, "tasks.max": "0"})
    assert set(errors(result)) == {field, "tasks.max"}
    (wrong,) = (one for one in result.fields if one.name == field)
    (message,), (advice,) = wrong.errors, wrong.fixes
    assert says in message
    assert fix in advice


def test_topics_that_could_not_be_created_are_refused_before_a_task_starts() -> None:
    prefix = "topic.creation.default."
    good: dict[str, str | None] = {**SOURCE, f"{prefix}partitions": "-1", f"{prefix}replication.factor": "1"}
    assert errors(answered(good)) == {}
    assert errors(answered({**good, f"{prefix}partitions": "0"})) == {
        f"{prefix}partitions": [
            f"Invalid value 0 for configuration {prefix}partitions: Number of partitions must be positive, or -1 to "
            "use the broker's default"
        ]
    }
    assert list(errors(answered({**good, f"{prefix}replication.factor": "40000"}))) == [f"{prefix}replication.factor"]


def test_a_key_without_definition_has_no_type_and_secrets_are_masked() -> None:
    result = answered({**SOURCE, "producer.override.bogus": "x", "producer.override.ssl.key.password": "hush"})
    fields = {field.name: field for field in result.fields}
    assert (fields["producer.override.bogus"].type, fields["producer.override.bogus"].value) == ("", "x")
    assert fields["producer.override.ssl.key.password"].value == "[hidden]"
    assert "hush" not in str(result)


def test_the_workers_policy_decides_which_overrides_are_allowed() -> None:
    change = {"producer.override.linger.ms": "5", "producer.override.acks": "all"}
    assert errors(answered({**SOURCE, **change})) == {}
    policies = {
        "connector_client_config_override_policy": "Allowlist",
        "connector_client_config_override_allowlist": "retries, acks",
    }
    assert list(errors(answered({**SOURCE, **change}, **policies))) == ["producer.override.linger.ms"]
    with pytest.raises(ValueError, match="use one of All, None, Principal, Allowlist"):
        WorkerSettings(connector_client_config_override_policy="Some")


def test_a_task_with_overrides_its_worker_no_longer_allows_does_not_start() -> None:
    config: dict[str, str | None] = {
        **SOURCE,
        "producer.override.linger.ms": "5",
        "producer.override.sasl.mechanism": "PLAIN",
    }
    task = TaskSpec(config, {}, 1)
    unit = UnitId("v", 0)
    RunSpecs(WorkerSettings(), REGISTRY).without_class(unit, task)
    allowed = WorkerSettings(connector_client_config_override_policy="Principal")
    with pytest.raises(ConfigError, match="Client Config Overrides not allowed: producer") as denied:
        RunSpecs(allowed, REGISTRY).without_class(unit, task)
    assert denied.value.field == "producer.override.linger.ms"


def test_the_workers_converters_and_group_are_in_the_result() -> None:
    result = answered(SOURCE, key_converter="String")
    (field,) = (one for one in result.fields if one.name == "key.converter")
    assert field.default_value == "org.apache.kafka.connect.storage.StringConverter"
    sink = {"name": "v", "connector.class": "FileStreamSink", "topics": "t", "file": "f"}
    assert list(errors(answered(sink, group_id="connect-v"))) == ["name"]


def test_sources_that_keep_offsets_in_a_file_are_not_exactly_once() -> None:
    config = {**SOURCE, "exactly.once.support": "required"}
    assert errors(answered(config)) == {}
    assert errors(answered(config, offset_storage_file="/tmp/offsets")) == {
        "exactly.once.support": ["This worker does not have exactly-once source support enabled."]
    }


# --- plugins


def test_plugins_are_listed_as_connect_lists_them() -> None:
    kinds = ("SINK", "SOURCE", "TRANSFORMATION", "PREDICATE", "CONVERTER", "HEADER_CONVERTER")
    listed = [(one.kind, one.class_name, one.version) for one in Plugins(Found(REGISTRY)).all()]
    assert [kind for kind, _, _ in listed] == sorted(
        (kind for kind, _, _ in listed), key=[_kind(name) for name in kinds].index
    )
    (recorded,) = (one for one in golden.own_lines("validate.jsonl") if one["id"] == "plain/validate/src-pred-bad")
    offered = {one["value"]["name"]: one["value"]["recommended_values"] for one in recorded["response_body"]["configs"]}
    for kind, field in (
        ("TRANSFORMATION", "transforms.a.type"), ("PREDICATE", "predicates.p.type"), ("CONVERTER", "key.converter"),
        ("HEADER_CONVERTER", "header.converter"),
    ):  # fmt: skip
        assert [name for one, name, _ in listed if one == _kind(kind)] == offered[field]
    assert {version for _, _, version in listed} == {"4.3.1"}


def _kind(name: str) -> int:
    return connector_pb2.PluginKind.Value(f"PLUGIN_KIND_{name}")


@pytest.mark.parametrize(
    ("name", "first", "count"),
    [
        ("FileStreamSource", "file", 27),
        ("org.apache.kafka.connect.file.FileStreamSinkConnector", "file", 25),
        ("Json", "converter.type", 6),
        ("org.apache.kafka.connect.transforms.InsertField$Key", "topic.field", 7),
        ("TopicNameMatches", "pattern", 1),
        ("Filter", "", 0),
        ("Simple", "", 0),
    ],
)
def test_any_plugin_is_described_by_class_or_alias(name: str, first: str, count: int) -> None:
    """As many keys as Connect's `/connector-plugins/{name}/config` has; ours follow."""
    fields = [field for field in Plugins(Found(REGISTRY)).fields(name) if not field.name.startswith("herdmesh.")]
    assert len(fields) == count
    assert [field.name for field in fields][:1] == ([first] if first else [])
    assert not any(field.HasField("value") or field.errors for field in fields)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("nosuch", "Unknown plugin nosuch."),
        ("Cast$Value", "Unknown plugin Cast"),
        ("org.apache.kafka.connect.transforms.Cast", "Instantiation error"),
    ],
)
def test_describing_an_unknown_class_is_an_error(name: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as refused:
        Plugins(Found(REGISTRY)).fields(name)
    assert refused.value.fix


def test_validation_uses_only_the_class_in_the_config() -> None:
    """Java has another in its URL, and answers 400 where they differ."""
    for request in (config_messages_pb2.ValidateConfigRequest, worker_service_pb2.ValidateConfigRequest):
        assert [field.name for field in request.DESCRIPTOR.fields] == ["config"]
    for alias in ("FileStreamSource", "FileStreamSourceConnector", SOURCE["connector.class"]):
        assert answered({**SOURCE, "connector.class": alias}).class_name == alias


def test_validation_is_fast() -> None:
    """30 keys with 5 transformations: 1.7 ms here; the limit allows for a machine ten times slower."""
    config = dict(SOURCE)
    config["transforms"] = "a,b,c,d,e"
    for alias in "abcde":
        config |= {f"transforms.{alias}.type": _MASK, f"transforms.{alias}.fields": "x"}
    config |= {f"filler.{number}": "x" for number in range(30 - len(config))}
    assert len(config) == 30
    answered(config)  # definitions are read when first needed
    began = time.thread_time()
    for _ in range(10):
        answered(config)
    assert (time.thread_time() - began) / 10 < 0.025


def test_client_settings_without_effect_are_warnings_and_no_errors() -> None:
    result = answered({**SOURCE, "producer.override.acks": "1", "producer.override.liger.ms": "1"})
    assert errors(result) == {}
    told = {one.name: one.message for one in result.warnings}
    assert set(told) == {"producer.override.acks", "producer.override.liger.ms"}
    assert "always all" in told["producer.override.acks"]


def test_settings_that_a_connector_reports_without_effect_are_warnings() -> None:
    config = {
        "name": "m",
        "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
        "source.cluster.alias": "a",
        "source.cluster.bootstrap.servers": "127.0.0.1:1",
        "sync.topic.acls.enabled": "true",
        "topicz": "t",
    }
    result = answered(config)
    assert errors(result) == {}
    assert {one.name for one in result.warnings} == {"sync.topic.acls.enabled", "topicz"}
    wrong = answered({**config, "source.cluster.alias": ""})
    assert set(errors(wrong)) == {"source.cluster.alias"}


_SINK: dict[str, str | None] = {"name": "v", "connector.class": "FileStreamSink", "topics": "t", "file": "f"}
_BAD_OVERRIDES = {
    "consumer.override.auto.offset.reset": "bogus",
    "consumer.override.max.poll.interval.ms": "-1",
    "consumer.override.max.poll.records": "0",
    "consumer.override.group.id": "",
    "consumer.override.client.dns.lookup": "nowhere",
    "consumer.override.debug": "everything",
    "consumer.override.queued.min.messages": "-5",
    "producer.override.compression.type": "bogus",
    "producer.override.message.max.bytes": "1",
    "admin.override.client.dns.lookup": "nowhere",
}


def test_every_override_that_would_fail_a_run_is_refused_at_once() -> None:
    """I5, I6: the run's own functions read the settings and create the clients."""
    config = {**_SINK, "errors.deadletterqueue.topic.name": "d", **_BAD_OVERRIDES}
    assert set(errors(answered(config))) == set(_BAD_OVERRIDES)
    source = {key: value for key, value in _BAD_OVERRIDES.items() if not key.startswith("consumer.")}
    assert set(errors(answered({**SOURCE, **source}))) == set(source)


_SASL = {"security.protocol": "SASL_PLAINTEXT"}
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required username='a'"


@pytest.mark.parametrize(
    ("login", "names"),
    [
        ({"security.protocol": "SASL_SSL"}, "sasl.mechanism"),
        ({**_SASL, "sasl.mechanism": ""}, "sasl.mechanism"),
        ({**_SASL, "sasl.mechanism": "GSSAPI"}, "sasl.mechanism"),
        ({**_SASL, "sasl.mechanism": "bogus"}, "sasl.mechanism"),
        ({**_SASL, "sasl.mechanism": "PLAIN"}, "sasl.jaas.config"),
        ({**_SASL, "sasl.mechanism": "PLAIN", "sasl.jaas.config": ""}, "sasl.jaas.config"),
        ({**_SASL, "sasl.mechanism": "PLAIN", "sasl.jaas.config": "x"}, "sasl.jaas.config"),
        ({**_SASL, "sasl.mechanism": "PLAIN", "sasl.jaas.config": f"{_PLAIN};"}, "sasl.jaas.config"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-256"}, "sasl.jaas.config"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}, "sasl.oauthbearer.token.endpoint.url"),
        ({"security.protocol": "SSL", "ssl.truststore.location": "/nowhere/t.jks"}, "ssl.truststore.location"),
        ({"security.protocol": "SSL", "ssl.truststore.certificates": "x"}, "ssl.truststore.certificates"),
        ({"security.protocol": "bogus"}, "security.protocol"),
    ],
)
@pytest.mark.parametrize("client", ["consumer", "producer"])
def test_invalid_credentials_are_an_error_of_the_missing_or_wrong_key(
    client: str, login: dict[str, str], names: str
) -> None:
    """Together with all other errors."""
    config = _SINK if client == "consumer" else SOURCE
    overrides = {f"{client}.override.{name}": value for name, value in login.items()}
    told = errors(answered({**config, **overrides, f"{client}.override.client.dns.lookup": "nowhere"}))
    assert set(told) == {f"{client}.override.{names}", f"{client}.override.client.dns.lookup"}


def test_a_missing_file_of_credentials_is_a_warning(tmp_path: Path) -> None:
    there, absent, key = tmp_path / "there.pem", tmp_path / "no.pem", "consumer.override.ssl.truststore.location"
    there.write_text("-----BEGIN CERTIFICATE-----\n")
    base = {**_SINK, "consumer.override.security.protocol": "SSL", "consumer.override.ssl.truststore.type": "PEM"}
    (warned,) = answered({**base, key: str(absent)}).warnings
    assert warned.name == key
    assert warned.message == f"{key}: there is no file {absent} on this worker, so its tasks cannot connect"
    assert not answered({**base, key: str(there)}).warnings


@pytest.mark.parametrize("name", _BAD_OVERRIDES)
def test_each_bad_override_is_refused_by_its_own_name(name: str) -> None:
    config = {**_SINK, "errors.deadletterqueue.topic.name": "d", name: _BAD_OVERRIDES[name]}
    ((field, (text,)),) = errors(answered(config)).items()
    assert field == name
    assert name in text


@pytest.mark.parametrize(
    "good",
    [
        {"consumer.override.auto.offset.reset": "latest", "consumer.override.max.poll.interval.ms": "600000"},
        {"consumer.override.auto.offset.reset": "none"},
        {"consumer.override.auto.offset.reset": "by_duration:PT1H"},
        {"consumer.override.group.id": "ünïcödé", "consumer.override.fetch.min.bytes": "1"},
        {"consumer.override.security.protocol": "SASL_PLAINTEXT", "consumer.override.sasl.mechanism": "PLAIN",
         "consumer.override.sasl.jaas.config": 'org.apache.kafka.common.security.plain.PlainLoginModule required '
         'username="u" password="p";'},
    ],
    ids=range(5),
)  # fmt: skip
def test_overrides_that_a_run_accepts_are_valid(good: dict[str, str]) -> None:
    assert errors(answered({**_SINK, **good})) == {}


def test_an_unknown_worker_property_is_a_warning_with_its_name() -> None:
    given = "foo.bar=1,offset.flush.intervall.ms=5,rest.port=1,key.converter.schemas.enable=true,admin.retries=2"
    told = {one.field: one.fix for one in WorkerSettings(worker_properties=SecretStr(given)).warnings()}
    assert told["foo.bar"] == "leave it out"
    assert told["offset.flush.intervall.ms"] == "did you mean offset.flush.interval.ms?"
    assert {"rest.port", "foo.bar"} <= set(told)
    assert "key.converter.schemas.enable" not in told


@pytest.mark.parametrize("name", ["   ", "a b", "ü", "..", "n" * 250])
def test_an_invalid_topic_name_is_refused_when_a_service_starts(name: str) -> None:
    with pytest.raises(ValidationError, match="topic"):
        WorkerSettings(offset_storage_topic=name)


def test_misspelt_keys_are_named_beside_the_errors_of_a_config() -> None:
    """Nobody learns of them only once the errors are corrected."""
    sink = {"name": "v", "connector.class": "FileStreamSink", "topics": "t", "tasks.max": "two", "fil": "x"}
    result = answered({**sink, "errors.tolerence": "all"})
    assert "tasks.max" in errors(result)
    fixes = {one.name: one.fix for one in result.warnings}
    assert (fixes["fil"], fixes["errors.tolerence"]) == ("did you mean file?", "did you mean errors.tolerance?")


@pytest.mark.parametrize(
    "config",
    [
        {"connector.class": "FileStreamSink", "topics": "a", "file": "f"},
        {"connector.class": "FileStreamSink", "topics": "a", "tasks.max": "0", "errors.tolerence": "all"},
        {"connector.class": "FileStreamSink", "topics": "a", "consumer.override.fetch.min.bytes": "many"},
    ],
)
def test_a_verdict_alone_has_the_errors_and_warnings_of_the_whole_result(config: dict[str, str]) -> None:
    worker = WorkerSettings().worker_config()
    providers = ConfigProviders.of(worker)
    whole = validation.validate({"name": "a", **config}, REGISTRY, worker, providers)
    alone = validation.validate({"name": "a", **config}, REGISTRY, worker, providers, verdict_only=True)
    assert list(alone.fields) == [field for field in whole.fields if field.errors]
    assert len(alone.fields) < len(whole.fields)
    del whole.fields[:], alone.fields[:]
    assert alone == whole
