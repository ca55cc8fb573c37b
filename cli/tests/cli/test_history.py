"""Tests of the output of `herd history` for one change."""

from __future__ import annotations

from typing import Any

import pytest

from herdmesh.api.common.v1 import revision_pb2
from herdmesh.api.configstore.v1 import config_read_service_pb2 as store
from herdmesh.cli.commands.history import summary_of, view

_EARLIER = revision_pb2.Revision(store_id="s", next_offsets=[7])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"restart": store.RestartAsked()}, "the connector"),
        ({"restart": store.RestartAsked(include_tasks=True)}, "the connector and its tasks"),
        (
            {"restart": store.RestartAsked(include_tasks=True, only_failed=True)},
            "the connector and its tasks, only failed ones",
        ),
        ({"restart": store.RestartAsked(task=0)}, "task 0"),
        ({"restored_revision": _EARLIER, "changed_properties": ["a"]}, "a; restored to 7"),
        ({"deleted": True}, "deleted"),
        ({}, "-"),
    ],
)
def test_the_summary_of_a_change(change: dict[str, Any], words: str) -> None:
    assert summary_of(view(store.HistoryEntry(**change))) == words


def test_the_json_of_a_change() -> None:
    restart = view(store.HistoryEntry(restart=store.RestartAsked(task=3)))
    assert restart["restart"] == {"task": 3, "include_tasks": False, "only_failed": False}
    assert restart["restored_revision"] is None
    restored = view(store.HistoryEntry(restored_revision=_EARLIER))
    assert (restored["restored_revision"], restored["restart"]) == ("s@7", None)
