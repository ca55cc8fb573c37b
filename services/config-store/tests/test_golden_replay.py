"""Replay of the config topics a real Java cluster wrote, scenario by scenario, against what its REST API then said.

Compared per connector: `config` and `tasks` of `GET /connectors?expand=info` and `GET /connectors/<n>/tasks`, and,
where the connector is neither FAILED nor UNASSIGNED, its state with the target state. `golden/expect-configs.jsonl`
holds exactly these parts of the recorded views. Left out, because the config topic does not decide them: statuses,
traces, offsets, topics, plugin types.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from herdmesh.configstore.state.config import ConfigState
from herdmesh.connect.config_records import TargetState
from herdmesh.topicstore.contract import StoredRecord
from tests.support.config_topic import compacted

_GOLDEN = Path(__file__).parent / "golden"
_RUNNING = {"RUNNING": TargetState.STARTED, "PAUSED": TargetState.PAUSED, "STOPPED": TargetState.STOPPED}


def _lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (_GOLDEN / name).read_text(encoding="utf-8").splitlines()]


_RECORDS = _lines("config-topic.jsonl")
_VIEWS = _lines("expect-configs.jsonl")


def _stored(line: dict[str, Any]) -> StoredRecord:
    value = None if line["value_b64"] is None else base64.b64decode(line["value_b64"])
    key = base64.b64decode(line["key_b64"])
    return StoredRecord("connect-configs", 0, line["offset"], key, value, line["timestamp"])


def _until(worker: str, view: str) -> list[StoredRecord]:
    """The worker's records up to and including the view's scenario."""
    scenarios = [line["scenario"] for line in _VIEWS if line["worker"] == worker]
    so_far = set(scenarios[: scenarios.index(view) + 1])
    return [_stored(line) for line in _RECORDS if line["worker"] == worker and line["scenario"] in so_far]


def _compare(state: ConfigState, expected: dict[str, Any]) -> None:
    assert set(state.connectors) == set(expected)
    for name, view in expected.items():
        connector = state.connector(name)
        assert connector.config == view["config"]
        assert [task.properties for task in connector.tasks] == view["tasks"]
        assert connector.foreign
        if view["state"] in _RUNNING:
            assert connector.target_state is _RUNNING[view["state"]], (name, view["state"])


@pytest.mark.parametrize("view", _VIEWS, ids=lambda view: view["id"])
def test_every_scenario_reads_as_java_answered(view: dict[str, Any]) -> None:
    state = ConfigState()
    for record in _until(view["worker"], view["scenario"]):
        state.apply(record)
    _compare(state, view["connectors"])
    assert state.refused.count == 0
    assert state.session_key is not None


@pytest.mark.parametrize("worker", ["plain", "eos"])
def test_java_puts_every_config_back_after_compaction(worker: str) -> None:
    """What Connect itself survives we survive: configs and target states never depend on compaction."""
    last = next(view for view in reversed(_VIEWS) if view["worker"] == worker)
    records = _until(worker, last["scenario"])
    state = ConfigState()
    for record in compacted(records, records[-1].offset + 1):
        state.apply(StoredRecord("connect-configs", 0, record.offset, record.key, record.value, record.timestamp_ms))
    for name, view in last["connectors"].items():
        assert state.connector(name).config == view["config"]
    assert set(state.connectors) == set(last["connectors"])
