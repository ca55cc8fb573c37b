"""The jobs of the table: one for each row, with the config for both sides. Only the Avro converters differ, because
each side has a different one.

Owns the configs and the goals. Knows neither side.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urljoin

from bench.records import workload

COPY_GOAL, TRANSFORM_GOAL = 2.0, 3.0
_TYPES = "org.apache.kafka.connect.transforms."
_JSON = "org.apache.kafka.connect.json.JsonConverter"
_STRING = "org.apache.kafka.connect.storage.StringConverter"
_BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
#: The settings that Java needs for its best figures, and that are defaults in Herdmesh.
_TUNED_PRODUCER = {
    "producer.override.compression.type": "lz4",
    "producer.override.batch.size": "262144",
    "producer.override.linger.ms": "5",
}
_TUNED_POLL = "5000"

AVRO = "avro"


@dataclass(frozen=True, slots=True)
class Sink:
    """A topic into a file."""

    name: str
    figure: str
    topic: str
    goal: float
    converter: dict[str, str]
    steps: dict[str, str]
    expected: workload.Expected
    tasks: tuple[int, ...] = (1, 2)
    java_converter: dict[str, str] | None = None
    """Java's class where it has none of that name."""

    def config(self, file: Path, tasks: int, *, java: bool = False) -> dict[str, str]:
        """The connector's config, for that side."""
        converter = self.java_converter if java and self.java_converter else self.converter
        return {
            "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
            "tasks.max": str(tasks),
            "topics": self.topic,
            "file": str(file),
            "key.converter": _STRING,
            "consumer.override.max.poll.records": _TUNED_POLL,
            **{f"value.converter{key}": value for key, value in converter.items()},
            **self.steps,
        }


@dataclass(frozen=True, slots=True)
class Source:
    """A file into a topic of one partition: a file source has one task."""

    name: str
    figure: str
    goal: float
    converter: dict[str, str]
    steps: dict[str, str]
    form: Callable[[bytes], bytes]
    """The topic's content for a line."""
    tasks: tuple[int, ...] = (1,)
    tuned: bool = True
    """False: the config has no client settings, like most configs."""

    def config(self, file: Path, topic: str) -> dict[str, str]:
        """The connector's config. The producer's batch settings, where given, are the same on both sides."""
        return {
            "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
            "tasks.max": "1",
            "topic": topic,
            "file": str(file),
            "key.converter": _STRING,
            **(_TUNED_PRODUCER if self.tuned else {}),
            **{f"value.converter{key}": value for key, value in self.converter.items()},
            **self.steps,
        }


@dataclass(frozen=True, slots=True)
class Mirror:
    """A topic into a topic of the same broker, with unchanged keys, values and times."""

    name: str
    figure: str
    topic: str
    goal: float
    tasks: tuple[int, ...] = (1, 2)
    tuned: bool = True
    """As in a source."""

    def config(self, bootstrap: str, alias: str, tasks: int) -> dict[str, str]:
        """The connector's config; the copy is called `alias.topic`. Java's other functions than copying are switched
        off.
        """
        return {
            "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
            "tasks.max": str(tasks),
            "topics": self.topic,
            "source.cluster.alias": alias,
            "target.cluster.alias": "bench",
            "source.cluster.bootstrap.servers": bootstrap,
            "target.cluster.bootstrap.servers": bootstrap,
            "replication.factor": "1",
            "sync.topic.configs.enabled": "false",
            "sync.topic.acls.enabled": "false",
            "emit.offset-syncs.enabled": "false",
            "refresh.topics.enabled": "false",
            **({"source.consumer.max.poll.records": _TUNED_POLL, **_TUNED_PRODUCER} if self.tuned else {}),
            **dict.fromkeys(("key.converter", "value.converter", "header.converter"), _BYTES),
        }

    @staticmethod
    def copy_of(topic: str, alias: str) -> str:
        """The topic's name at the target by DefaultReplicationPolicy."""
        return f"{alias}.{topic}"


Job = Sink | Source | Mirror

_SINK_STEPS = {
    "transforms": "src,mask,ren",
    "transforms.src.type": f"{_TYPES}InsertField$Value",
    "transforms.src.static.field": "source",
    "transforms.src.static.value": "x",
    "transforms.mask.type": f"{_TYPES}MaskField$Value",
    "transforms.mask.fields": "email",
    "transforms.ren.type": f"{_TYPES}ReplaceField$Value",
    "transforms.ren.renames": "note:comment",
}
_SOURCE_STEPS = {
    "transforms": "hoist,src,ren",
    "transforms.hoist.type": f"{_TYPES}HoistField$Value",
    "transforms.hoist.field": "line",
    "transforms.src.type": f"{_TYPES}InsertField$Value",
    "transforms.src.static.field": "source",
    "transforms.src.static.value": "x",
    "transforms.ren.type": f"{_TYPES}ReplaceField$Value",
    "transforms.ren.renames": "line:text",
}
_PLAIN = {"": _JSON, ".schemas.enable": "false"}

JOBS: tuple[Job, ...] = (
    Sink("string", "string -> file", workload.JSON_TOPIC, COPY_GOAL, {"": _STRING}, {}, workload.record),
    Sink(
        "json", "JSON -> 3 transformations -> file", workload.JSON_TOPIC, TRANSFORM_GOAL, _PLAIN, _SINK_STEPS,
        workload.transformed,
    ),
    Sink(
        "schema", "JSON with schema -> 3 transformations -> file", workload.SCHEMA_TOPIC, TRANSFORM_GOAL,
        {"": _JSON, ".schemas.enable": "true"}, _SINK_STEPS, workload.transformed,
    ),
    Source("file", "file -> topic", COPY_GOAL, {"": _STRING}, {}, lambda line: line),
    Source("file-json", "file -> 3 transformations -> JSON -> topic", TRANSFORM_GOAL, _PLAIN, _SOURCE_STEPS,
           workload.hoisted),
    Mirror("mirror", "topic -> topic, copied", workload.JSON_TOPIC, COPY_GOAL),
)  # fmt: skip


def avro(registry: str) -> Sink:
    """The sink whose schema is in a registry; `registry` is the address of its Confluent API."""
    ours = {"": "io.confluent.connect.avro.AvroConverter", ".schema.registry.url": registry}
    java = {
        "": "io.apicurio.registry.utils.converter.AvroConverter",
        ".apicurio.registry.url": urljoin(registry, "/apis/registry/v2"),
        # four bytes of id after the first byte, as Confluent's
        ".apicurio.registry.as-confluent": "true",
        ".apicurio.registry.use-id": "contentId",
    }
    return Sink(AVRO, "Avro -> file", workload.AVRO_TOPIC, COPY_GOAL, ours, {}, workload.record, java_converter=java)
