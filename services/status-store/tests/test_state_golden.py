"""The recorded status topics of Java Connect 4.3.1, folded: after each scenario we hold what Connect's REST showed.

Left out of the comparison, because it is not in the status topic: `type` (the plugin's), `name`, HTTP status, and the
connectors that the config topic no longer has. Topic views are compared for the workers that track topics.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

import pytest

from herdmesh.connect import status_topic
from herdmesh.connect.status_topic import ConnectorStatus, TaskStatus, TopicStatus
from herdmesh.statusstore.state.statuses import StatusState, StoredStatus
from herdmesh.topicstore.contract import StoredRecord
from tests.support import golden

Json = dict[str, Any]

DUMP = golden.lines("status-topic.jsonl")
EXPECTED = golden.lines("expect.jsonl")


def _record(line: Json) -> StoredRecord:
    key, value = golden.key_and_value(line)
    return StoredRecord(line["topic"], line["partition"], line["offset"], key, value, line["timestamp"])


def _shown(stored: StoredStatus) -> Json:
    """As `GET /connectors/<c>/status` shows it: an absent trace is left out, an absent version is null."""
    status = stored.status
    shown: Json = {"state": status.state.value, "worker_id": status.worker_id, "version": status.version}
    if stored.task is not None:
        shown["id"] = stored.task
    if status.trace is not None:
        shown["trace"] = status.trace
    return shown


@pytest.mark.parametrize("worker", ["plain", "eos"])
def test_every_scenario_gives_connects_view(worker: str) -> None:
    state = StatusState()
    dump = [line for line in DUMP if line["worker"] == worker]
    statuses = topics = 0
    for expected in (line for line in EXPECTED if line["worker"] == worker):
        while dump and dump[0]["scenario"] == expected["scenario"]:
            state.apply(_record(dump.pop(0)))
        for path, view in expected["views"].items():
            if view["status"] != 200 or not path.endswith(("/status", "/topics")):
                continue
            name = unquote(path.split("/")[2])
            if path.endswith("/status"):
                statuses += 1
                connector = state.get(name, None)
                assert connector is not None, (expected["id"], name)
                assert _shown(connector) == view["body"]["connector"], (expected["id"], name)
                assert [_shown(task) for task in state.tasks_of(name)] == view["body"]["tasks"], (expected["id"], name)
            else:
                topics += 1
                named = [topic.topic for topic in state.topics_of(name)]
                assert named == sorted(view["body"][name]["topics"]), (expected["id"], name)
    assert not dump
    assert state.undecodable_count == 0
    assert statuses > 100
    assert topics > 100


def test_what_we_write_is_what_java_wrote() -> None:
    for line in DUMP:
        record = _record(line)
        decoded = status_topic.decode(record.key, record.value)
        if isinstance(decoded, ConnectorStatus | TaskStatus | TopicStatus):
            assert status_topic.encode(decoded) == (record.key, record.value), line["id"]
