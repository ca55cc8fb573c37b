"""What is moved, and how: one job for each row of the table, with the config that both sides are given.

Owns the configs, the goals and what is not compared, with why. Knows neither side.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.records import workload

COPY_GOAL, TRANSFORM_GOAL = 2.0, 3.0
_TYPES = "org.apache.kafka.connect.transforms."
_JSON = "org.apache.kafka.connect.json.JsonConverter"
_STRING = "org.apache.kafka.connect.storage.StringConverter"

NOT_COMPARED = (
    ("topic -> topic, copied", "not built: there is no mirror connector of ours yet (issue 7)"),
    (
        "Avro -> file",
        "not built: Java would read with io.apicurio:apicurio-registry-utils-converter, Confluent's is not published",
    ),
)


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

    def config(self, file: Path, tasks: int) -> dict[str, str]:
        """The connector's config."""
        return {
            "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
            "tasks.max": str(tasks),
            "topics": self.topic,
            "file": str(file),
            "key.converter": _STRING,
            # what Java needs for its best figures
            "consumer.override.max.poll.records": "5000",
            **{f"value.converter{key}": value for key, value in self.converter.items()},
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
    """What the topic has of a line."""
    tasks: tuple[int, ...] = (1,)

    def config(self, file: Path, topic: str) -> dict[str, str]:
        """The connector's config. What the producer may gather is the same on both sides."""
        return {
            "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
            "tasks.max": "1",
            "topic": topic,
            "file": str(file),
            "key.converter": _STRING,
            "producer.override.compression.type": "lz4",
            "producer.override.batch.size": "262144",
            "producer.override.linger.ms": "5",
            **{f"value.converter{key}": value for key, value in self.converter.items()},
            **self.steps,
        }


Job = Sink | Source

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
)  # fmt: skip
