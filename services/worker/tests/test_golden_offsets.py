"""The recorded offsets topics of Java Connect 4.3.1: read here, they give what Connect's REST showed after each
scenario; and the same requests, sent to us, put the same records into the same partitions.

Records of Connect's tasks are produced as they were; changes by its REST API are requested from our worker again. A
request whose lines are not in the dump (Connect refused it, or there was nothing to do) is left out.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import unquote

import pytest
from confluent_kafka import Producer

from herdmesh.connect.plugins.plugin_registry import PluginRegistry
from herdmesh.connect.topics import config_topic, offsets_topic
from herdmesh.connect.topics.config_records import ConnectorRecord
from herdmesh.engine.librdkafka.topic_creation import ensure_topic
from herdmesh.engine.source.source_offsets import SourceOffsets
from herdmesh.session.model import OffsetEntry
from herdmesh.session.worker_commands import AlterOffsets, ReadOffsets
from herdmesh.topicstore.partitioner import partition_of
from herdmesh.worker.effects.offsets.offset_forms import source_offsets_json
from herdmesh.worker.effects.offsets.offsets import Offsets
from herdmesh.worker.effects.runs.specs import RunSpecs
from herdmesh.worker.settings import WorkerSettings
from libs.core.tests.engine.harness import Kafka
from tests.support import golden

Json = dict[str, Any]

PARTITIONS = 5  # as in the recorded clusters
DUMP = golden.lines("offsets-topic.jsonl")
EXPECTED = golden.lines_or_own("expect.jsonl")
WORKERS = sorted({line["worker"] for line in DUMP})
_OWN_TOPIC = "offsets.storage.topic"


def _configs(worker: str) -> dict[str, dict[str, str | None]]:
    """The last config of each connector."""
    found: dict[str, dict[str, str | None]] = {}
    for line in golden.lines_or_own("config-topic.jsonl"):
        record = config_topic.decode(*golden.key_and_value(line))
        if line["worker"] == worker and isinstance(record, ConnectorRecord):
            found[record.connector] = dict(record.properties)
    return found


def _of(worker: str) -> list[Json]:
    return [line for line in DUMP if line["worker"] == worker]


def _shared_topic(worker: str) -> str:
    """The worker's own offsets topic, which belongs to no connector."""
    own = {config.get(_OWN_TOPIC) for config in _configs(worker).values()}
    (topic,) = {line["topic"] for line in _of(worker)} - own
    return str(topic)


def _scenarios(worker: str) -> Iterator[tuple[Json, list[Json]]]:
    """Expected view of each scenario of the worker, and its lines."""
    dump, applied = _of(worker), 0
    for expected in (one for one in EXPECTED if one["worker"] == worker):
        last = max((at for at, line in enumerate(dump) if line["scenario"] == expected["scenario"]), default=-1)
        yield expected, dump[applied : last + 1]
        applied = max(applied, last + 1)
    assert applied == len(dump), "a scenario of the dump is not in expect.jsonl"


def _offset_views(expected: Json) -> Iterator[tuple[str, list[Json]]]:
    """Connector and offsets of each source whose offsets were read."""
    for path, view in expected["views"].items():
        shown = view["body"].get("offsets") if view["status"] == 200 and path.endswith("/offsets") else None
        if shown is not None and not any("kafka_topic" in one["partition"] for one in shown):
            yield unquote(path.split("/")[2]), shown


def _sorted(entries: list[Any]) -> list[str]:
    return sorted(json.dumps(one, sort_keys=True) for one in entries)


@pytest.mark.parametrize("worker", WORKERS)
def test_every_scenario_gives_connects_view(worker: str) -> None:
    shared, configs = _shared_topic(worker), _configs(worker)
    read: dict[str, list[Json]] = {}
    seen = 0
    for expected, lines in _scenarios(worker):
        for line in lines:
            read.setdefault(line["topic"], []).append(line)
        for name, shown in _offset_views(expected):
            offsets = SourceOffsets(name)
            for topic in dict.fromkeys((shared, configs.get(name, {}).get(_OWN_TOPIC) or shared)):
                for line in read.get(topic, []):
                    offsets.apply(*golden.key_and_value(line))
            told = source_offsets_json(offsets.items())
            found = [{"partition": json.loads(where), "offset": json.loads(offset)} for where, offset in told]
            assert _sorted(found) == _sorted(shown), (expected["id"], name)
            seen += len(shown)
    assert seen > 30 or not golden.is_own()


def test_each_record_is_reproduced_byte_for_byte_in_javas_partition() -> None:
    assert len(DUMP) == 34 or not golden.is_own()
    for line in DUMP:
        key, value = golden.key_and_value(line)
        assert key is not None
        decoded = offsets_topic.decode(key, value)
        assert isinstance(decoded, offsets_topic.OffsetRecord), line["id"]
        made = SourceOffsets(decoded.connector).record(decoded.partition, decoded.offset)
        assert made == (key, value), line["id"]
        assert partition_of(key, PARTITIONS) == line["partition"], line["id"]


@pytest.mark.kafka
@pytest.mark.parametrize("worker", WORKERS)
def test_the_same_requests_give_the_same_records(
    worker: str, kafka_bootstrap: str, tmp_topic: Callable[..., str]
) -> None:
    kafka, shared, configs = Kafka(kafka_bootstrap), _shared_topic(worker), _configs(worker)
    ours = {topic: tmp_topic("offsets") for topic in {line["topic"] for line in _of(worker)}}
    for topic in ours.values():
        ensure_topic(kafka.admin, topic, PARTITIONS, 1, {"cleanup.policy": "compact"})
    settings = WorkerSettings(
        bootstrap_servers=kafka_bootstrap,
        offset_storage_topic=ours[shared],
        offset_storage_partitions=PARTITIONS,
        offset_storage_replication_factor=1,
    )
    here = Offsets(RunSpecs(settings, PluginRegistry.discover()), None)
    producer = Producer({
        "bootstrap.servers": kafka_bootstrap, "transactional.id": ours[shared], "partitioner": "murmur2_random",
    })  # fmt: skip
    producer.init_transactions(30)
    asked = 0
    for expected, lines in _scenarios(worker):
        requests = [step for step in expected["steps"] if _changes(step, configs)] if lines else []
        for step in requests:
            asyncio.run(here.alter(_question(step, configs, ours)))
            asked += 1
        if lines and not requests:
            producer.begin_transaction()
            for line in lines:
                key, value = golden.key_and_value(line)
                producer.produce(ours[line["topic"]], value, key)
            producer.commit_transaction(30)
    for topic, name in ours.items():
        wanted: dict[tuple[int, bytes | None], list[bytes | None]] = {}
        for line in (line for line in _of(worker) if line["topic"] == topic):
            key, value = golden.key_and_value(line)
            wanted.setdefault((line["partition"], key), []).append(value)
        found: dict[tuple[int, bytes | None], list[bytes | None]] = {}
        for message in kafka.messages(name, PARTITIONS):
            found.setdefault((message.partition() or 0, message.key()), []).append(message.value())
        assert found == wanted, topic
    for name, shown in _offset_views([one for one in EXPECTED if one["worker"] == worker][-1]):
        told = asyncio.run(here.read(ReadOffsets(name, _with_topic(configs[name], ours))))
        found_now = [{"partition": json.loads(where), "offset": json.loads(offset)} for where, offset in told.offsets]
        assert _sorted(found_now) == _sorted(shown), name
    assert asked >= 3 or not golden.is_own()


def _changes(step: Json, configs: dict[str, dict[str, str | None]]) -> bool:
    """True for a request that changes a source's offsets."""
    if step.get("method") not in ("PATCH", "DELETE") or not step["path"].endswith("/offsets"):
        return False
    config = configs.get(unquote(step["path"].split("/")[2]), {"topics": "of nobody"})
    return not {"topics", "topics.regex"} & config.keys()


def _question(step: Json, configs: dict[str, dict[str, str | None]], ours: dict[str, str]) -> AlterOffsets:
    name = unquote(step["path"].split("/")[2])
    body: Json = step["body"] or {}
    offsets: list[Json] = body.get("offsets", [])
    entries = tuple(
        OffsetEntry(json.dumps(one["partition"]), None if one["offset"] is None else json.dumps(one["offset"]))
        for one in offsets
    )
    return AlterOffsets(
        name, _with_topic(configs[name], ours), entries, reset=step["method"] == "DELETE", timeout_ms=30_000
    )


def _with_topic(config: dict[str, str | None], ours: dict[str, str]) -> dict[str, str | None]:
    own = config.get(_OWN_TOPIC)
    return config if own is None else {**config, _OWN_TOPIC: ours.get(own, own)}
