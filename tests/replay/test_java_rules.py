"""The oracle of Java's rules, against the records and views of the real Java; then our fold against the oracle."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

import pytest

from herdmesh.topicstore.contract import StoredRecord
from tests.support import golden
from tests.support.config_world import Replica, follows_java
from tests.support.golden import Line

_RECORDS = [line for line in golden.lines("config-topic.jsonl") if line["committed"]]
_EXPECTED = golden.lines("expect.jsonl")
_WORKERS = list(dict.fromkeys(line["worker"] for line in _RECORDS))


def _views(expected: Line) -> list[tuple[list[str], Any]]:
    """Path and body of the successful views."""
    return [
        (path.removeprefix("GET /").split("?")[0].split("/"), view["body"])
        for path, view in expected["views"].items()
        if view["status"] == 200
    ]


def test_there_is_a_recording() -> None:
    assert _WORKERS or not golden.is_own()


@pytest.mark.parametrize("worker", _WORKERS)
def test_the_oracle_reads_as_java_showed_and_our_fold_reads_as_the_oracle(worker: str) -> None:
    replica, shown = Replica(), 0
    records = [line for line in _RECORDS if line["worker"] == worker]
    for expected in (line for line in _EXPECTED if line["worker"] == worker):
        while records and records[0]["scenario"] == expected["scenario"]:
            line = records.pop(0)
            key, value = golden.key_and_value(line)
            replica.read(StoredRecord("connect-configs", 0, line["offset"], key, value, line["timestamp"]))
        java = replica.java
        for name in replica.touched:
            follows_java(replica.state.connector(name), replica)
        for path, body in _views(expected):
            if path == ["connectors"]:
                assert set(java.configs) == set(body)
                for name, listed in body.items():
                    shown += 1
                    assert java.configs[name] == listed["info"]["config"]
                    assert list(java.tasks(name)) == [task["task"] for task in listed["info"]["tasks"]]
            elif path[2:] == ["tasks"]:
                assert list(java.tasks(unquote(path[1])).values()) == [task["config"] for task in body]
    assert replica.java.refused == 0
    assert shown > 100 or not golden.is_own()
