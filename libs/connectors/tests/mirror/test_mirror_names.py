"""Tests of topic names against recorded results of MirrorMaker's own policies and connector."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from herdmesh.connectors.mirror.source.settings import settings_of

RECORDED = [
    json.loads(line) for line in (Path(__file__).parent / "mirror_names/recorded.jsonl").read_text().splitlines()
]


def _called(vector: dict[str, Any]) -> str:
    return "-".join(value for name, value in sorted(vector["config"].items()) if name.startswith("replication"))


@pytest.mark.parametrize("vector", RECORDED, ids=_called)
def test_names_match_the_java_classes(vector: dict[str, Any]) -> None:
    settings = settings_of(vector["config"])
    naming, wrong = settings.naming, list[Any]()
    assert (naming.offset_syncs(at_target=False), naming.checkpoints()) == (
        vector["offset_syncs"], vector["checkpoints"],
    )  # fmt: skip
    for topic, *theirs in vector["names"]:
        ours = [
            naming.remote(topic), naming.is_heartbeats(topic), naming.is_internal(topic), naming.is_cycle(topic),
            settings.selection.has(topic),
        ]  # fmt: skip
        if ours != theirs:
            wrong.append((topic, ours, theirs))
    assert not wrong
