"""Secrets behind a config's references in exported traces and metrics, and in the log of a traced run that fails with
one: none appears. (Topics, answers and pages: `test_secrets`.)
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from libs.core.tests.engine.harness import Kafka
from tests.support.collector import collector
from tests.support.standalone import herd_run, until_lines, write_samples

pytestmark = [pytest.mark.spark, pytest.mark.slow]
FOLDER, FIELD, NUMBER = "Kq8-hushed-folder", "Kq8-hushed-field", "987654321988"
SECRETS = (FOLDER, FIELD, NUMBER)
PROVIDERS = "config.providers=file\nconfig.providers.file.class=File\n"
SINK = """\
name={name}
connector.class=FileStreamSink
topics={name}
file={folder}/${{file:{secrets}:folder}}/out.txt
transforms=pick
transforms.pick.type=org.apache.kafka.connect.transforms.ExtractField$Value
transforms.pick.field=${{file:{secrets}:field}}
consumer.override.connections.max.idle.ms=${{file:{secrets}:number}}
"""


def _with_field(field: str) -> bytes:
    """A record of one field, with its schema: one without the field that the sink picks ends its task by that name."""
    schema = {"type": "struct", "optional": False, "fields": [{"field": field, "type": "string", "optional": False}]}
    return json.dumps({"schema": schema, "payload": {field: "picked"}}).encode()


def _config(folder: Path, bootstrap: str, topic: str) -> list[str]:
    """The files of `herd run`: the sample's worker with a config provider, and a sink that needs all three secrets to
    work.
    """
    worker, *_ = write_samples(folder, bootstrap, topic)
    (folder / worker).write_text((folder / worker).read_text() + PROVIDERS)
    secrets = folder / "secrets.properties"
    secrets.write_text(f"folder={FOLDER}\nfield={FIELD}\nnumber={NUMBER}\n")
    (folder / FOLDER).mkdir()
    (folder / "sink.properties").write_text(SINK.format(name=topic, folder=folder, secrets=secrets))
    return [worker, "sink.properties"]


def test_a_run_that_fails_with_a_secret_in_its_error_exports_none(
    kafka_bootstrap: str, tmp_topic: Callable[..., str], tmp_path: Path
) -> None:
    kafka = Kafka(kafka_bootstrap)
    topic = kafka.create_topic(tmp_topic(), 1)
    files = _config(tmp_path, kafka_bootstrap, topic)
    traced = {"OTEL_BSP_SCHEDULE_DELAY": "100", "OTEL_METRIC_EXPORT_INTERVAL": "500", "HERDMESH_LOG_LEVEL": "info"}

    def failed(said: list[dict[str, Any]]) -> bool:
        return any(one.get("name") == topic and one.get("tasks") == ["FAILED"] for one in said)

    kafka.produce(topic, [_with_field(FIELD)], key=None)
    with (
        collector() as exported,
        herd_run(tmp_path, files, **traced, OTEL_EXPORTER_OTLP_ENDPOINT=exported.endpoint) as running,
    ):
        assert until_lines(tmp_path / FOLDER / "out.txt", 1) == ["picked"], "the run has the values"
        kafka.produce(topic, [_with_field("another")], key=None)
        running.until("FAILED", failed)
        exported.until("the error of a run", lambda: any("Unknown field: ***" in one.error for one in exported.spans))
        before = exported.exports_of_metrics
        exported.until("metrics after that", lambda: exported.exports_of_metrics >= before + 2)
        running.interrupt()
    assert {"run", "batch"} <= {one.name for one in exported.spans if one.attributes.get("herdmesh.connector") == topic}
    assert {"herdmesh_task_behind_records", "kafka_connect_task_error_metrics_record_errors_total"} <= exported.metrics
    log = (tmp_path / "run.log").read_text()
    assert "Unknown field: ***" in log
    assert "instead of ***" in log, "a limit that is brought within bounds is told with its value"
    texts = {"log": log, "output": json.dumps(running.said), "exports": "\n".join(exported.texts())}
    assert topic in texts["exports"]
    assert [(secret, where) for where, text in texts.items() for secret in SECRETS if secret in text] == []
