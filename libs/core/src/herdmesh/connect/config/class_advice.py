"""Replacement advice for unknown classes: what to write for a connector, transformation, predicate or converter of
another project that Herdmesh does not have.

Owns the list of widely used Java classes without a counterpart, the replacement for each, and the wording. Callers
pass the known names, so that no plugin is imported here.

Invariant: every class that an advice names exists (`test_class_advice.py`).
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping

from herdmesh.connect.config.spelling import closest

_OWN = "install a RecordTransformation of your own (docs/how-to/plugins.md)"
_DEBEZIUM = "io.debezium.transforms."
_CONFLUENT = "io.confluent.connect.transforms."
_AIVEN = "io.aiven.kafka.connect.transforms."
_COMMON = "com.github.jcustenborder.kafka.connect.transform.common."
_KAFKA = "org.apache.kafka.connect.transforms."
_JSON = "org.apache.kafka.connect.json.JsonConverter"
_BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
_CCOMPAT = "with the registry's address that speaks Confluent's API (/apis/ccompat/v7)"
_GLUE = "com.amazonaws.services.schemaregistry.kafkaconnect.AWSKafkaAvroConverter"
_PROVIDER = "org.apache.kafka.common.config.provider."
_TIMESCALE = "io.debezium.connector.postgresql.transforms.timescaledb.TimescaleDb"

TWINS: Mapping[str, str] = {
    f"{_DEBEZIUM}ContentBasedRouter": f"{_CONFLUENT}ExtractTopic$Value lets a field name the topic, and {_KAFKA}"
    "RegexRouter with a predicate renames topics; scripts do not run here",
    f"{_DEBEZIUM}Filter": f"{_CONFLUENT}Filter$Value takes a JSONPath condition; scripts do not run here",
    f"{_DEBEZIUM}UnwrapFromEnvelope": f"{_DEBEZIUM}ExtractNewRecordState is its new name",
    f"{_DEBEZIUM}HeaderToValue": _OWN,
    f"{_DEBEZIUM}ExtractChangedRecordState":
        f"{_DEBEZIUM}ExtractNewRecordState gives the row; reporting the changed fields is not supported",
    f"{_DEBEZIUM}ExtractSchemaToNewRecord":
        f"{_DEBEZIUM}ExtractNewRecordState gives the row; adding the source's schema is not supported",
    f"{_DEBEZIUM}TimezoneConverter": f"{_KAFKA}TimestampConverter$Value converts one field; {_OWN} for several",
    f"{_DEBEZIUM}SchemaChangeEventFilter": f"{_KAFKA}Filter with a predicate TopicNameMatches leaves out a topic",
    f"{_DEBEZIUM}partitions.PartitionRouting": f"{_DEBEZIUM}outbox.EventRouter takes the partition from a column; else "
    f"{_KAFKA}ValueToKey makes a key of the fields, which decides the partition",
    f"{_DEBEZIUM}tracing.ActivateTracingSpan": "leave it out: Herdmesh exports traces of its own",
    f"{_DEBEZIUM}openlineage.OpenLineage": "leave it out: lineage is not reported",
    f"{_DEBEZIUM}EnforceRecordSize": "raise max.request.size of producer.override, or " + _OWN,
    _TIMESCALE: f"{_DEBEZIUM}ByLogicalTableRouter brings the chunks' topics together; hypertables are not looked up",
    "io.debezium.connector.postgresql.transforms.DecodeLogicalDecodingMessageContent": _OWN,
    "io.debezium.connector.mongodb.transforms.ExtractNewDocumentState": "MongoDB's events are not supported; " + _OWN,
    "io.debezium.connector.mongodb.transforms.outbox.MongoEventRouter": f"{_DEBEZIUM}outbox.EventRouter takes the "
    "events of SQL databases",
    f"{_CONFLUENT}MessageTimestampRouter":
        f"{_KAFKA}TimestampRouter takes the record's time; a field's time is not supported",
    f"{_CONFLUENT}GzipDecompress": _OWN,
    f"{_AIVEN}ConcatFields": _OWN,
    f"{_AIVEN}ExtractTimestamp": _OWN,
    f"{_AIVEN}ExtractTopic": f"{_CONFLUENT}ExtractTopic with field= in place of field.name=",
    f"{_AIVEN}ExtractTopicFromSchemaName": _OWN,
    f"{_AIVEN}ExtractTopicFromValueSchema": _OWN,
    f"{_AIVEN}FilterByFieldValue": f"{_CONFLUENT}Filter with filter.condition=$[?(@.field == 'value')]",
    f"{_AIVEN}FilterByValue": f"{_CONFLUENT}Filter with a JSONPath condition",
    f"{_AIVEN}Hash": f"{_KAFKA}MaskField hides a field's value; {_OWN} for a hash",
    f"{_AIVEN}KeyToValue": _OWN,
    f"{_AIVEN}CaseTransform": _OWN,
    f"{_AIVEN}TombstoneHandler": f"{_CONFLUENT}TombstoneHandler with behavior=ignore for drop_silent, warn for "
    "drop_warn, fail for fail",
    f"{_COMMON}ExtractNestedField": f"{_KAFKA}ExtractField with field.syntax.version=V2 and field=outer.inner",
    f"{_COMMON}ExtractTimestamp": _OWN,
    f"{_COMMON}HeaderToField": _OWN,
    f"{_COMMON}PatternFilter": f"{_CONFLUENT}Filter with filter.condition=$[?(@.field =~ /pattern/)]",
    f"{_COMMON}PatternRename": f"{_KAFKA}ReplaceField with renames=old:new",
    f"{_COMMON}TopicNameToField": f"{_KAFKA}InsertField with topic.field",
    f"{_COMMON}TimestampNowField": f"{_KAFKA}InsertField with timestamp.field puts the record's time",
    f"{_COMMON}ChangeTopicCase": f"{_KAFKA}RegexRouter replaces parts of a topic; changing its case is not supported",
    f"{_COMMON}ChangeCase": f"{_KAFKA}ReplaceField with renames=OLD:old",
    f"{_COMMON}SchemaNameToTopic": _OWN,
    f"{_COMMON}SetNull": f"{_CONFLUENT}Drop makes a key or value null",
    f"{_COMMON}ToJSON": f"{_JSON} writes values as JSON",
    f"{_COMMON}ToLong": f"{_KAFKA}Cast with spec=field:int64",
    "com.github.cjmatta.kafka.connect.smt.InsertUuid": f"{_KAFKA}InsertField puts fixed values, offsets and times; "
    f"{_OWN} for others",
    "com.redhat.insights.expandjsonsmt.ExpandJSON": f"{_JSON} with schemas.enable=false reads JSON as a map; "
    f"{_DEBEZIUM}outbox.EventRouter expands an outbox table's payload",
    "org.apache.camel.kafkaconnector.transforms.SinkPojoToSchemaAndStructTransform": _OWN,
    "org.apache.camel.kafkaconnector.transforms.SourcePojoToSchemaAndStructTransform": _OWN,
    "org.apache.camel.kafkaconnector.transforms.PojoToSchemaAndStructTransform": _OWN,
    "org.apache.camel.kafkaconnector.transforms.CamelTypeConverterTransform": f"{_KAFKA}Cast changes a field's type",
    "io.debezium.converters.CloudEventsConverter": f"CloudEvents are not supported; {_JSON} writes the event itself",
    "io.debezium.converters.BinaryDataConverter": _BYTES,
    "io.debezium.converters.ByteBufferConverter": _BYTES,
    "io.debezium.converters.ByteArrayConverter": _BYTES,
    "io.apicurio.registry.utils.converter.AvroConverter": f"io.confluent.connect.avro.AvroConverter {_CCOMPAT}",
    "io.apicurio.registry.utils.converter.ExtJsonConverter": "io.confluent.connect.json.JsonSchemaConverter "
    f"{_CCOMPAT}",
    "io.apicurio.registry.utils.converter.ProtobufConverter": "io.confluent.connect.protobuf.ProtobufConverter "
    f"{_CCOMPAT}",
    _GLUE: "io.confluent.connect.avro.AvroConverter with a registry of Confluent's API; AWS Glue's is not supported",
    "com.blueapron.connect.protobuf.ProtobufConverter": "io.confluent.connect.protobuf.ProtobufConverter",
    "io.strimzi.kafka.KubernetesSecretConfigProvider": f"{_PROVIDER}DirectoryConfigProvider reads a mounted one",
    "io.strimzi.kafka.KubernetesConfigMapConfigProvider": f"{_PROVIDER}FileConfigProvider reads a mounted one",
    "io.strimzi.kafka.EnvVarConfigProvider": f"{_PROVIDER}EnvVarConfigProvider",
    "com.amazonaws.kafka.config.providers.SsmParamStoreConfigProvider": "SecretsManagerConfigProvider reads another "
    "store of AWS",
}  # fmt: skip
"""Replacement by Java class, without `$Key` and `$Value`."""

_PACKAGES: Mapping[str, str] = {
    "io.lenses.connect.smt.header.": "Lenses' transformations of headers are not supported; " + _OWN,
    "com.landoop.": "Landoop's transformations are not supported; " + _OWN,
    "org.apache.camel.kafkaconnector.": "Camel's classes are not supported; " + _OWN,
    _COMMON: "jcustenborder's transformations are not supported; " + _OWN,
    _AIVEN: "this one of Aiven's transformations is not supported; " + _OWN,
    _DEBEZIUM: "this one of Debezium's transformations is not supported; " + _OWN,
    _CONFLUENT: "this one of Confluent's transformations is not supported; " + _OWN,
}
"""Advice by the beginning of a class name, for classes without an entry in `TWINS`."""


_SPARK_JDBC = "SparkSink with spark.format=jdbc writes to other databases, SparkJdbcSource reads them, through Spark"
_FILES = "FileSink writes files to a folder, S3Sink to S3 and compatible stores, HdfsSink to Hadoop's file systems"
_QUEUES = "message queues are not supported"
_STORES = (
    "it is not supported; HttpSink sends records to HTTP services, SparkSink to targets that Spark has a format for"
)
_TOOLS = "it is a tool of Kafka's own tests; Datagen generates records, FileStreamSink writes them to a file"
#: Replacement by a part of a connector's class in lower case; the first part that the class contains decides.
_CONNECTORS: tuple[tuple[str, str], ...] = (
    ("debezium.connector.jdbc", "PostgresSink, with pk.mode, pk.fields, table.name.format and auto.create for "
     "primary.key.mode, primary.key.fields, collection.name.format and schema.evolution"),
    ("debezium",
     "change data capture is supported for PostgreSQL (PostgresCdcSource); SparkJdbcSource polls tables of other "
     "databases"),
    ("jdbc", f"PostgresSource and PostgresSink for PostgreSQL; {_SPARK_JDBC}"),
    ("s3source", "SparkStreamSource reads files that Spark reads"),
    ("s3", "S3Sink, under Confluent's name too (io.confluent.connect.s3.S3SinkConnector): s3.bucket.name, s3.region, "
     "format.class and flush.size"),
    ("hdfs", "HdfsSink"),
    ("gcs", f"the store is not supported; {_FILES}"),
    ("azure.blob", f"the store is not supported; {_FILES}"),
    ("datalake", f"the store is not supported; {_FILES}"),
    ("elasticsearch", "it is not supported; HttpSink sends records to a URL, such as an index's _doc"),
    ("opensearch", "it is not supported; HttpSink sends records to a URL, such as an index's _doc"),
    ("splunk", "it is not supported; HttpSink sends records to a URL, such as an event collector's"),
    ("snowflake",
     "it is not supported; SparkSink writes to targets that Spark has a format for, and S3Sink writes files to load"),
    ("bigquery",
     "it is not supported; SparkSink writes to targets that Spark has a format for, and S3Sink writes files to load"),
    ("redshift", "it is not supported; S3Sink writes files to load"),
    ("iceberg", "SparkSink with spark.format=iceberg"),
    ("delta", "SparkSink with spark.format=delta"),
    ("mongo", "it is not supported; SparkSink writes to targets that Spark has a format for"),
    ("cassandra", "it is not supported; SparkSink writes to targets that Spark has a format for"),
    ("clickhouse", f"it is not supported; {_SPARK_JDBC}"),
    ("replicator", "MirrorSource copies topics between clusters, with MirrorCheckpoint and MirrorHeartbeat"),
    ("http", "HttpSink; an HTTP source is not supported"),
    ("verifiable", _TOOLS),
    ("schemasource", _TOOLS),
    ("mocks", _TOOLS),
    ("sftp", f"the protocol is not supported; {_FILES}, and SparkStreamSource reads files that Spark reads"),
    ("ftp", f"the protocol is not supported; {_FILES}, and SparkStreamSource reads files that Spark reads"),
    *((part, _QUEUES) for part in (
        "rabbitmq", "activemq", "mqtt", "amqp", "jms", "ibmmq", "mqsource", "mqsink", "solace", "sqs", "kinesis",
        "pubsub", "eventhub", "servicebus", "pulsar", "nats",
    )),
    *((part, _STORES) for part in (
        "redis", "dynamodb", "cosmos", "couchbase", "neo4j", "influx", "hbase", "kudu", "prometheus", "datadog",
        "newrelic", "salesforce", "servicenow", "syslog", "lambda",
    )),
    ("spooldir", "SparkStreamSource reads files that Spark reads, FileStreamSource lines of one file"),
    ("filepulse", "SparkStreamSource reads files that Spark reads, FileStreamSource lines of one file"),
)  # fmt: skip


WRITE_YOUR_OWN = "write a connector of your own (docs/tutorials/connector.md)"


def _misspelt_connector(name: str, names: Iterable[str]) -> str:
    """The connector name that a misspelt one most likely means. The comparison leaves out packages and the words that
    all connectors have, which make unlike names look alike (`RabbitMQSourceConnector`, `JdbcSourceConnector`).
    """
    own = {_own_part(one): one for one in sorted(names, key=len, reverse=True)}
    found = closest(_own_part(name), own)
    return own[found] if found else ""


def _misspelt_class(class_name: str, part: str, known: Iterable[str]) -> str:
    """The class that was most likely meant, compared by its simple name, because packages are long and alike. The class
    may be in another package.
    """
    package = class_name.rpartition(".")[0]
    with_part = {one for one in known if part and one.partition("$")[2] == part}
    for names in (with_part, {one for one in known if "$" not in one}, set(known)):
        simple: dict[str, str] = {}
        for one in sorted(names, key=lambda one: (bool(package) == ("." in one), one.startswith(package))):
            simple[one.partition("$")[0].rpartition(".")[2]] = one
        if found := closest(class_name.rpartition(".")[2], simple):
            return simple[found]
    return ""


def _own_part(name: str) -> str:
    simple = name.rpartition(".")[2].lower()
    way = "sink" if "sink" in simple else "source" if "source" in simple else ""
    for word in ("connector", "sink", "source"):
        simple = simple.replace(word, "")
    return f"{simple} {way}" if len(simple) > 2 else name


_TYPO = 0.93
"""Cutoff for `difflib`: full class names may differ by a letter or two, but not by MySql and Postgres."""


def connector_advice(name: str, known: Iterable[str]) -> str:
    """Advice for an unknown `connector.class`; "" = no known class is similar.

    `known`: class names and aliases of all connectors.
    """
    names, small = sorted(known), name.lower()
    typo = difflib.get_close_matches(name, names, n=1, cutoff=_TYPO)
    found = "" if typo else next((text for part, text in _CONNECTORS if part in small), "")
    meant = typo[0] if typo else "" if found else _misspelt_connector(name, names)
    if meant:
        return f"did you mean {meant}?"
    if not found:
        return ""
    return f"{found}; or {WRITE_YOUR_OWN}"


def advice(name: str, known: Collection[str]) -> str:
    """The fix for an unknown class name; "" = no fix.

    Args:
        name: as in the config.
        known: the names that the key accepts: Java classes, and simple names without a package.
    """
    class_name, _, part = name.strip().partition("$")
    twin = TWINS.get(class_name)
    if twin is not None:
        return f"not supported here: {twin}"
    if name in known:
        return ""  # the name is known, but the caller did not find it
    both = [one for one in (f"{name}$Key", f"{name}$Value") if one in known]
    meant = " or ".join(both) or _misspelt_class(class_name, part, known)
    if meant:
        return f"did you mean {meant}?"
    other = next((text for package, text in _PACKAGES.items() if name.startswith(package)), None)
    if other is not None:
        return other
    names = dict.fromkeys(one.rpartition(".")[2] for one in known if "." in one)
    return f"use one of: {', '.join(names)} (or its Java class name)"
