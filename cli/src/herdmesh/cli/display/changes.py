"""Changes of a connector as its history has them: who made each, and the old and new values.

Owns the JSON view of a history entry, the author of a change (a caller, or the herder as a consequence), and the
comparison of two configs. Fetches and prints nothing. Invariant: a value that the history does not keep (a secret)
is shown as `REDACTED` on both sides, also where only the other side is redacted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from herdmesh.api.configstore.v1 import config_read_service_pb2 as store
from herdmesh.cli.display import views
from herdmesh.rpc import revisions

REDACTED: Final = "****"
#: Operations that a herder carries out by itself after a caller's change.
_BY_HERDER: Final = frozenset(("CommitTaskConfigs", "PutTaskCount"))
_HERDER: Final = "herder "


def view(entry: store.HistoryEntry) -> views.Json:
    """One change as JSON; fields that the change does not have are null."""
    return {
        "revision": revisions.to_text(revisions.from_proto(entry.revision)),
        "time": entry.time.ToJsonString(),
        "caller": entry.caller or None,
        "by": "herder" if is_by_herder(entry) else "caller",
        "operation": entry.operation,
        "request_id": entry.request_id or None,
        "config": views.properties(entry.config_after) if entry.HasField("config_after") else None,
        "redacted": list(entry.redacted_properties),
        "changed": list(entry.changed_properties),
        "target_state": views.target_state(entry.target_state_after) or None,
        "task_count": entry.task_count if entry.HasField("task_count") else None,
        "restart": _restart(entry.restart) if entry.HasField("restart") else None,
        "restored_revision": revisions.to_text(revisions.from_proto(entry.restored_revision)) or None,
        "deleted": entry.deleted,
    }


def is_by_herder(entry: store.HistoryEntry) -> bool:
    """True for a step of the herder, such as the commit of task configs after a user's change."""
    return entry.operation in _BY_HERDER or entry.caller.startswith(_HERDER)


def _restart(asked: store.RestartAsked) -> views.Json:
    return {
        "task": asked.task if asked.HasField("task") else None,
        "include_tasks": asked.include_tasks,
        "only_failed": asked.only_failed,
    }


def with_values(changes: Sequence[views.Json]) -> list[views.Json]:
    """The changes, newest first, each with `diff`: `key`, `old` and `new` of every property that it changed, null for
    a property that was not there. The oldest change whose earlier config is unknown has `diff` null.
    """
    found: list[views.Json] = []
    for at, change in enumerate(changes):
        earlier = next((one for one in changes[at + 1 :] if one["config"] is not None or one["deleted"]), None)
        found.append({**change, "diff": _diff(earlier, change)})
    return found


def _diff(earlier: views.Json | None, change: views.Json) -> list[views.Json] | None:
    if change["config"] is None:
        return []
    created = change["operation"] == "CreateConnector" or (earlier is not None and earlier["deleted"])
    # the first change of a connector names all its properties
    created = created or (earlier is None and set(change["changed"]) >= set(change["config"]))
    if earlier is None and not created:
        return None
    before: dict[str, Any] = {} if created or earlier is None else earlier["config"]
    hidden = {*change["redacted"], *(earlier["redacted"] if earlier is not None else ())}
    return [
        {"key": key, "old": _value(before, key, hidden), "new": _value(change["config"], key, hidden)}
        for key in change["changed"]
    ]


def _value(config: dict[str, Any], key: str, hidden: set[str]) -> Any:
    if key not in config:
        return None
    return REDACTED if key in hidden else config[key]


def diff_lines(change: views.Json) -> list[str]:
    """The lines of a change's `diff`: `+ key: value`, `- key: value`, `~ key: old -> new`."""
    if change["diff"] is None:
        return [f"  {', '.join(change['changed'])} (the earlier config is no longer kept)"]
    return [_line(one) for one in change["diff"]]


def _line(one: views.Json) -> str:
    if one["old"] is None and one["new"] is not None:
        return f"  + {one['key']}: {one['new']}"
    if one["new"] is None and one["old"] is not None:
        return f"  - {one['key']}: {one['old']}"
    return f"  ~ {one['key']}: {one['old']} -> {one['new']}"


def summary_of(one: views.Json) -> str:
    """The effect of a change, in a few words."""
    if one["deleted"]:
        return "deleted"
    parts = [", ".join(one["changed"])] if one["changed"] else []
    parts += [str(one["target_state"])] if one["target_state"] else []
    parts += [f"{one['task_count']} tasks"] if one["task_count"] is not None else []
    parts += [_what_restarted(one["restart"])] if one["restart"] is not None else []
    parts += (
        [f"restored to {one['restored_revision'].rpartition('@')[2]}"] if one["restored_revision"] is not None else []
    )
    return "; ".join(parts) or ("the same config" if one["config"] is not None else "-")


def _what_restarted(asked: views.Json) -> str:
    if asked["task"] is not None:
        return f"task {asked['task']}"
    what = "the connector and its tasks" if asked["include_tasks"] else "the connector"
    return f"{what}, only failed ones" if asked["only_failed"] else what
