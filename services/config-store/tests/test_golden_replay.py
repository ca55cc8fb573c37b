"""Replay of the config topics that a real Java cluster wrote, scenario by scenario, compared with the responses of its
REST API.

Compared, for every connector of `GET /connectors?expand=info`: its presence in the list, `config` and the task ids; for
every `GET /connectors/<n>/tasks`: ids and configs in order. The target state is compared with the connector's state
where that is RUNNING, PAUSED or STOPPED.

Not compared, because the config topic does not decide it: the states FAILED, UNASSIGNED and RESTARTING, traces, worker
ids, versions, the states of tasks, `/offsets` and `/topics`, and `type`, which depends on the plugin.
HERDMESH_GOLDEN_DIR names another recording.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

import pytest

from herdmesh.configstore.state.config import ConfigState
from herdmesh.configstore.state.connector import ConnectorState
from herdmesh.connect.topics.config_records import TargetState
from herdmesh.topicstore.contract import StoredRecord
from tests.support import golden
from tests.support.config_topic import compacted
from tests.support.golden import Line

_RUNNING = {"RUNNING": TargetState.STARTED, "PAUSED": TargetState.PAUSED, "STOPPED": TargetState.STOPPED}
_RECORDS = golden.lines("config-topic.jsonl")
_EXPECTED = golden.lines("expect.jsonl")
_WORKERS = list(dict.fromkeys(line["worker"] for line in _RECORDS))


def _stored(line: Line) -> StoredRecord:
    return StoredRecord("connect-configs", 0, line["offset"], *golden.key_and_value(line), line["timestamp"])


def _until(expected: Line) -> list[StoredRecord]:
    """The worker's records up to and including the scenario, with those of scenarios that have no view."""
    scenarios = [line["scenario"] for line in _EXPECTED if line["worker"] == expected["worker"]]
    so_far = set(scenarios[: scenarios.index(expected["scenario"]) + 1])
    lines = [line for line in _RECORDS if line["worker"] == expected["worker"]]
    last = max((number for number, line in enumerate(lines) if line["scenario"] in so_far), default=-1)
    return [_stored(line) for line in lines[: last + 1] if line["committed"]]


def _replay(records: list[StoredRecord]) -> ConfigState:
    state = ConfigState()
    for record in records:
        state.apply(record)
    return state


def _views(expected: Line) -> dict[str, Any]:
    """Bodies of the successful views by path."""
    return {path: view["body"] for path, view in expected["views"].items() if view["status"] == 200}


def _compare(connector: ConnectorState, listed: Line) -> None:
    info = listed["info"]
    assert connector.config == info["config"]
    assert [{"connector": connector.name, "task": task} for task in range(len(connector.tasks))] == info["tasks"]
    assert connector.foreign
    shown = listed["status"]["connector"]["state"] if "status" in listed else ""
    if shown in _RUNNING:
        assert connector.target_state is _RUNNING[shown], (connector.name, shown)


@pytest.mark.parametrize("expected", _EXPECTED, ids=lambda expected: expected["id"])
def test_every_scenario_reads_as_javas_rest_api_answered(expected: Line) -> None:
    if not _RECORDS:
        pytest.skip("this recording has no config-topic.jsonl")
    state = _replay(_until(expected))
    assert state.refused.count == 0
    for path, body in _views(expected).items():
        parts = path.removeprefix("GET ").split("?")[0].split("/")
        if len(parts) == 2:
            assert set(state.connectors) == set(body)
            for name, listed in body.items():
                _compare(state.connector(name), listed)
        elif parts[3:] == ["tasks"]:
            connector = state.connector(unquote(parts[2]))
            told = [
                {"id": {"connector": connector.name, "task": number}, "config": task.properties}
                for number, task in enumerate(connector.tasks)
            ]
            assert told == body


def test_the_recording_in_the_repository_is_complete() -> None:
    """Without this check the test above could pass by comparing nothing."""
    if golden.is_own():
        tasks = [path for expected in _EXPECTED for path in _views(expected) if path.endswith("/tasks")]
        assert (len(_EXPECTED), len(_RECORDS), len(tasks)) == (122, 235, 318)


@pytest.mark.parametrize("worker", _WORKERS)
def test_java_puts_every_config_back_after_compaction(worker: str) -> None:
    """Herdmesh keeps what Connect itself keeps: configs and target states never depend on compaction."""
    records = [_stored(line) for line in _RECORDS if line["worker"] == worker]
    whole = _replay(records)
    state = _replay(compacted(records, records[-1].offset + 1))
    assert {name: connector.config for name, connector in state.connectors.items()} == {
        name: connector.config for name, connector in whole.connectors.items()
    }
    assert whole.connectors
