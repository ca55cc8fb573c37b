"""Tests of the output of `herd history` for one change."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from typer.testing import CliRunner

from herdmesh.api.common.v1 import revision_pb2
from herdmesh.api.configstore.v1 import config_read_service_pb2 as store
from herdmesh.cli.app import app
from herdmesh.cli.commands import history
from herdmesh.cli.display.changes import diff_lines, summary_of, view, with_values

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


def _config(number: int, *, redacted: tuple[str, ...] = (), changed: tuple[str, ...] = (), **values: str) -> Any:
    entry = store.HistoryEntry(operation="PutConnectorConfig", caller="ada@pc")
    entry.revision.CopyFrom(revision_pb2.Revision(store_id="s", next_offsets=[number]))
    for key, value in values.items():
        entry.config_after.entries[key].text = value
    entry.redacted_properties.extend(redacted)
    entry.changed_properties.extend(changed)
    return entry


def test_a_diff_has_old_and_new_values_and_no_secret() -> None:
    newest_first = [
        _config(4, redacted=("pw",), changed=("a", "b", "c", "pw"), a="2", c="new", pw="[redacted]"),
        store.HistoryEntry(operation="CommitTaskConfigs", caller="herder 31871c7a", task_count=1),
        _config(2, redacted=("pw",), changed=("a", "b", "pw"), a="1", b="old", pw="[redacted]"),
    ]
    shown = with_values([view(one) for one in newest_first])
    assert diff_lines(shown[0]) == ["  ~ a: 1 -> 2", "  - b: old", "  + c: new", "  ~ pw: **** -> ****"]
    assert shown[1]["diff"] == []
    assert diff_lines(shown[2]) == ["  + a: 1", "  + b: old", "  + pw: ****"], "a create adds all properties"


def test_a_value_that_became_a_secret_is_hidden_on_both_sides() -> None:
    newest_first = [_config(2, redacted=("x",), changed=("x",), x="[redacted]"), _config(1, changed=("x",), x="plain")]
    shown = with_values([view(one) for one in newest_first])
    assert diff_lines(shown[0]) == ["  ~ x: **** -> ****"]


def test_a_change_without_a_kept_earlier_config_names_its_keys() -> None:
    (shown,) = with_values([view(_config(9, changed=("a",), a="1", b="2"))])
    assert shown["diff"] is None
    assert diff_lines(shown) == ["  a (the earlier config is no longer kept)"]


def test_a_connector_that_is_created_again_is_compared_with_nothing() -> None:
    newest_first = [
        _config(3, changed=("a",), a="1"),
        store.HistoryEntry(deleted=True),
        _config(1, changed=("a",), a="1"),
    ]
    shown = with_values([view(one) for one in newest_first])
    assert diff_lines(shown[0]) == ["  + a: 1"]


async def test_changes_of_callers_are_listed_apart_from_the_steps_of_the_herder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept = [
        store.HistoryEntry(operation="CommitTaskConfigs", caller="herder 31871c7a", task_count=2),
        _config(3, changed=("a",), a="2"),
        store.HistoryEntry(operation="PutTaskCount", caller="herder 31871c7a", task_count=1),
        _config(1, changed=("a",), a="1"),
    ]

    async def entries(name: str, config_store: str | None) -> AsyncIterator[Any]:
        for one in kept:
            yield one

    monkeypatch.setattr(history, "history_entries", entries)

    async def run(*arguments: str) -> tuple[str, str]:
        done = await asyncio.to_thread(CliRunner().invoke, app, ["history", "orders", *arguments])
        assert done.exit_code == 0, done.output
        return done.stdout, done.stderr

    table, note = await run()
    assert [line.split()[1:3] for line in table.splitlines()[1:]] == [["ada@pc", "PutConnectorConfig"]] * 2
    assert "2 steps of the herder" in note
    table, note = await run("--all")
    assert (len(table.splitlines()), note) == (5, "")
    assert "herder" in table.splitlines()[1].split()
    listed = json.loads((await run("--diff", "-n", "1", "-o", "json"))[0])
    assert [one["diff"] for one in listed] == [[{"key": "a", "old": "1", "new": "2"}]]
