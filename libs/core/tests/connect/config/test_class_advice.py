"""Advice for a class that does not exist here: the class to write instead; and validation knows every class that
runs.
"""

from __future__ import annotations

import re

import pytest

from herdmesh.connect.config import class_advice
from herdmesh.connect.config.config_def import Type, parse_value
from herdmesh.connect.config_providers.resolver import BUILTIN, ConfigProviders
from herdmesh.connect.converters import CONVERTERS
from herdmesh.connect.errors import ConfigError
from herdmesh.connect.plugins.builtin import third_party_classes
from herdmesh.connect.plugins.plugin_registry import PluginRegistry
from herdmesh.connect.spi.plugin_class import PluginKind
from herdmesh.connect.transforms import TRANSFORMATIONS, make_transformation
from herdmesh.connect.transforms.predicates import PREDICATES
from herdmesh.connect.validation.unknown_keys import unread_keys

_PLUGINS = PluginRegistry([], third_party_classes())


@pytest.mark.parametrize("name", [one for one in (*TRANSFORMATIONS, *CONVERTERS, *PREDICATES) if "." in one])
def test_validation_knows_every_class_that_runs(name: str) -> None:
    found = _PLUGINS.class_named(name)
    assert found is not None
    assert (found.name, found.abstract) == (name, False)


def test_advice_names_only_classes_that_exist() -> None:
    known = {one.partition("$")[0] for one in (*TRANSFORMATIONS, *CONVERTERS, *PREDICATES, *BUILTIN)}
    named = {
        name.rstrip(".")
        for text in class_advice.TWINS.values()
        for name in re.findall(r"\b(?:io|org)\.(?:\w+\.)+[A-Z]\w+", text)
    }
    assert {name for name in named if _PLUGINS.class_named(name) is None and name not in known} == set()
    assert len(named) > 10


@pytest.mark.parametrize(
    ("field", "name", "fix"),
    [
        ("transforms.a.type", "io.debezium.transforms.ContentBasedRouter", "not supported here: .*ExtractTopic"),
        (
            "transforms.a.type",
            "io.aiven.kafka.connect.transforms.ExtractTopic$Value",
            "not supported here: .*in place of",
        ),
        ("transforms.a.type", "io.lenses.connect.smt.header.InsertWallclock", "Lenses' transformations"),
        ("transforms.a.type", "io.debezium.transforms.Brandnew", "Debezium's transformations is not supported"),
        (
            "transforms.a.type",
            "org.apache.kafka.connect.transforms.InsertFeild$Value",
            r"did you mean .*InsertField\$V",
        ),
        ("transforms.a.type", "io.confluent.connect.transforms.Flatten$Value", r"mean org.apache.*Flatten\$Value"),
        ("transforms.a.type", "io.confluent.connect.transforms.Filtr$Value", r"mean io.confluent.*Filter\$Value"),
        ("transforms.a.type", "com.mycompany.ReplaceFeild$Key", r"mean org.apache.*ReplaceField\$Key"),
        ("transforms.a.type", "io.aiven.kafka.connect.transforms.MakeTombstone", "^this one of Aiven's"),
        ("transforms.a.type", "ReplaceFeild$Value", r"mean .*ReplaceField\$Value"),
        ("value.converter", "org.apache.kafka.connect.converters.StringConverter", "mean .*storage.StringConverter"),
        ("value.converter", "io.confluent.connect.json.JsonConverter", "mean org.apache.kafka.*JsonConverter"),
        ("transforms.a.type", "RegexRouter$Value", "did you mean RegexRouter"),
        ("transforms.a.type", "Nope", "use one of: .*ValueToKey"),
        ("predicates.p.type", "TopicNameMatch", "did you mean TopicNameMatches"),
        ("value.converter", "io.apicurio.registry.utils.converter.AvroConverter", "ccompat"),
        (
            "header.converter",
            "org.apache.kafka.connect.storage.SimpelHeaderConverter",
            r"mean org.*\.SimpleHeader",
        ),
        ("key.converter", "org.apache.kafka.connect.storage.StringConvertor", "did you mean .*StringConverter"),
    ],
)
def test_an_unknown_class_is_answered_with_the_class_to_use(field: str, name: str, fix: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"Class {name} could not be found.")) as refused:
        parse_value(field, name, Type.CLASS, _PLUGINS)
    assert re.search(fix, refused.value.fix), refused.value.fix


def test_an_abstract_transformation_is_answered_with_its_two_classes() -> None:
    name = "org.apache.kafka.connect.transforms.InsertField"
    assert re.match(r"did you mean .*InsertField\$Key or", _PLUGINS.class_advice("transforms.a.type", name))


def test_a_transformation_that_no_chain_can_build_gets_the_same_advice() -> None:
    with pytest.raises(ConfigError, match="could not be found") as refused:
        make_transformation("transforms.a.type", "io.debezium.transforms.HeaderToValue")
    assert "RecordTransformation" in refused.value.fix


def test_unread_keys_of_a_transformation_are_reported() -> None:
    config = {
        "transforms": "o,d", "transforms.o.type": "EventRouter", "transforms.o.tracing.operation.name": "x",
        "transforms.o.route.by.field": "kind", "transforms.o.route.by.feild": "kind",
        "transforms.d.type": "io.confluent.connect.transforms.Drop$Value", "transforms.d.schema.behaviour": "retain",
    }  # fmt: skip
    found = unread_keys(config, PluginKind.SOURCE, (), _PLUGINS.class_named)
    assert [(one.field, one.fix) for one in found] == [
        ("transforms.o.tracing.operation.name", "leave it out"),
        ("transforms.o.route.by.feild", "did you mean transforms.o.route.by.field?"),
        ("transforms.d.schema.behaviour", "did you mean transforms.d.schema.behavior?"),
    ]
    assert "OpenTelemetry" in found[0].message


def test_an_unsupported_config_provider_is_answered_with_the_supported_ones() -> None:
    worker = {"config.providers": "k", "config.providers.k.class": "io.strimzi.kafka.KubernetesSecretConfigProvider"}
    with pytest.raises(ConfigError, match="no config provider") as refused:
        ConfigProviders.of(worker)
    assert "DirectoryConfigProvider" in refused.value.fix


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("io.debezium.connector.mysql.MySqlConnector", "change data capture is supported for PostgreSQL"),
        ("io.debezium.connector.jdbc.JdbcSinkConnector", "PostgresSink, with pk.mode"),
        ("io.debezium.connector.postgresql.PostgresConnecter", "did you mean io.debezium.connector.postgresql.Postg"),
        ("io.aiven.kafka.connect.s3.AivenKafkaConnectS3SinkConnector", "S3Sink, under Confluent's name too"),
        ("io.confluent.connect.elasticsearch.ElasticsearchSinkConnector", "it is not supported; HttpSink"),
        ("com.snowflake.kafka.connector.SnowflakeSinkConnector", "it is not supported; SparkSink"),
        ("com.wepay.kafka.connect.bigquery.BigQuerySinkConnector", "it is not supported; SparkSink"),
        ("io.confluent.connect.rabbitmq.RabbitMQSourceConnector", "message queues are not supported"),
        ("io.confluent.connect.jms.JmsSourceConnector", "message queues are not supported"),
        ("io.confluent.connect.mqtt.MqttSourceConnector", "message queues are not supported"),
        ("com.ibm.eventstreams.connect.mqsource.MQSourceConnector", "message queues are not supported"),
        ("io.confluent.connect.activemq.ActiveMQSourceConnector", "message queues are not supported"),
        ("io.confluent.connect.sftp.SftpSinkConnector", "the protocol is not supported; FileSink"),
        ("com.github.jcustenborder.kafka.connect.redis.RedisSinkConnector", "it is not supported; HttpSink"),
        ("io.confluent.connect.syslog.SyslogSourceConnector", "it is not supported; HttpSink"),
        ("org.apache.kafka.connect.tools.VerifiableSinkConnector", "it is a tool of Kafka's own tests; Datagen"),
        ("org.apache.kafka.connect.tools.SchemaSourceConnector", "it is a tool of Kafka's own tests; Datagen"),
        ("io.confluent.connect.zendesk.ZendeskSourceConnector", ""),
        ("PostgreSource", ""),
        ("PostgreSink", "did you mean PostgresSink?"),
        ("com.example.Unheard", ""),
    ],
)
def test_an_unknown_connector_is_answered_with_its_replacement(name: str, fix: str) -> None:
    known = ("PostgresSink", "HttpSink", "io.debezium.connector.postgresql.PostgresConnector", "JdbcSinkConnector")
    found = class_advice.connector_advice(name, known)
    assert found.startswith(fix)
    assert bool(found) is bool(fix)
