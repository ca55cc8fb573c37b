"""Wire messages as plain dictionaries, for `-o json` and the tables.

Owns the JSON shapes of the CLI. Connect's names are kept where Connect has the same field (`name`, `config`, `tasks`,
`state`, `worker_id`, `trace`). Invariants: one function per message, and tables read only these dictionaries; an enum
value that only a newer server knows is shown as UNKNOWN_<number>.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from herdmesh.api.common.v1 import connector_pb2 as common
from herdmesh.api.common.v1 import store_pb2
from herdmesh.api.herder.v1 import admin_messages_pb2 as admin
from herdmesh.api.herder.v1 import config_messages_pb2 as messages
from herdmesh.api.herder.v1 import connector_pb2 as herder
from herdmesh.api.worker.v1 import task_pb2
from herdmesh.api.worker.v1 import worker_service_pb2 as worker_service
from herdmesh.cli.display.hidden_secrets import hide
from herdmesh.connect.topics import lag
from herdmesh.rpc.enums import name_of

Json = dict[str, Any]


def run_state(value: common.RunState.ValueType) -> str:
    return name_of(common.RunState, value) or "UNASSIGNED"


def target_state(value: common.TargetState.ValueType) -> str:
    return name_of(common.TargetState, value)


def properties(message: common.Properties) -> Json:
    """A config as JSON: text, null, or the foreign value itself."""
    found: Json = {}
    for key, value in sorted(message.entries.items()):
        kind = value.WhichOneof("kind")
        found[key] = value.text if kind == "text" else json.loads(value.json) if kind == "json" else None
    return found


def status(message: herder.UnitStatus) -> Json:
    shown: Json = {"state": run_state(message.state), "worker_id": message.worker_id or None}
    if message.HasField("failure"):
        shown["error"] = message.failure.message
        shown["error_class"] = name_of(common.ErrorClass, message.failure.error_class)
        shown["trace"] = message.failure.trace or message.failure.message
    if message.conditions:
        shown["conditions"] = [_condition(one) for one in message.conditions]
    shown["generation"] = message.generation
    shown["start_count"] = message.start_count
    if message.HasField("since"):
        shown["since"] = message.since.ToJsonString()
    if message.HasField("auto_restart"):
        shown["auto_restart"] = _auto_restart(message.auto_restart)
    if message.explanation:
        shown["explanation"] = message.explanation
    if message.placed_because:
        shown["placed_because"] = message.placed_because
    if message.HasField("placed_time"):
        shown["placed_time"] = message.placed_time.ToJsonString()
    return shown


def _condition(message: common.Condition) -> Json:
    shown: Json = {"type": message.type, "message": message.message}
    if message.HasField("wait"):
        wait = message.wait
        shown["wait"] = {
            "waits_for": wait.waits_for,
            "message": wait.message or None,
            "since": wait.since.ToJsonString() if wait.HasField("since") else None,
            "tries": wait.tries,
            "next_time": wait.next_time.ToJsonString() if wait.HasField("next_time") else None,
        }
    return shown


def _auto_restart(message: herder.AutoRestart) -> Json:
    shown: Json = {"attempt": message.attempt, "attempts_max": message.attempts_max}
    shown["next_time"] = message.next_time.ToJsonString() if message.HasField("next_time") else None
    if message.HasField("last_failure"):
        shown["last_error"] = message.last_failure.message
        shown["error_class"] = name_of(common.ErrorClass, message.last_failure.error_class)
    return shown


def progress(message: task_pb2.TaskProgress) -> Json:
    shown: Json = {
        "activity": name_of(task_pb2.TaskActivity, message.activity),
        "records_in": message.records_in,
        "records_out": message.records_out,
        "records_dropped": message.records_dropped,
        "records_per_second": round(message.records_per_second, 1),
        "run_count": message.run_count,
        "pid": message.pid or None,
    }
    if message.errors.failures:
        shown["errors"] = _errors(message.errors)
    if message.partitions:
        shown["partitions"] = [
            {
                "topic": one.topic,
                "partition": one.partition,
                "committed_offset": one.committed_offset,
                "position": one.position,
                "end_offset": one.end_offset,
                "behind_records": lag.behind(one),
                "uncommitted_records": lag.uncommitted(one),
            }
            for one in message.partitions
        ]
        whole = lag.lag_of(message.partitions)
        shown |= {"behind_records": whole.behind, "uncommitted_records": whole.uncommitted}
    return shown


def _counts(message: task_pb2.TaskCounts) -> Json:
    """Counts of all tasks of a connector since it was created."""
    return {
        "records_in": message.records_in,
        "records_out": message.records_out,
        "records_dropped": message.records_dropped,
    }


def _errors(message: task_pb2.TaskErrors) -> Json:
    return {
        "failures": message.failures,
        "skipped": message.skipped,
        "retries": message.retries,
        "dead_letters": message.dead_letters,
        "dead_letters_failed": message.dead_letters_failed,
        "dead_letters_cut": message.dead_letters_cut,
        "last_time_ms": message.last_error_ms,
    }


def config(message: common.Properties, *, show_secrets: bool = False) -> Json:
    """A config as outputs show it: `****` in place of secrets, which names and values give away."""
    return properties(message) if show_secrets else hide(properties(message))


def task(message: herder.Task, *, show_secrets: bool = False) -> Json:
    shown: Json = {
        "id": message.id.task,
        **status(message.status),
        "config": config(message.config, show_secrets=show_secrets),
    }
    if message.HasField("progress"):
        shown["progress"] = progress(message.progress)
    return shown


def connector(message: herder.Connector, *, show_secrets: bool = False) -> Json:
    kind = name_of(common.ConnectorType, message.type).lower()
    return {
        "name": message.name,
        "type": kind or "unknown",
        "target_state": target_state(message.target_state),
        "connector": status(message.status),
        "tasks": [task(one, show_secrets=show_secrets) for one in message.tasks],
        "behind_records": message.behind_records if message.HasField("behind_records") else None,
        "uncommitted_records": message.uncommitted_records if message.HasField("uncommitted_records") else None,
        "counts": _counts(message.counts) if message.HasField("counts") else None,
        "config": config(message.config, show_secrets=show_secrets),
    }


def worker(message: herder.Worker) -> Json:
    return {
        "worker_id": message.worker_id,
        "state": name_of(herder.WorkerState, message.state),
        "address": message.address,
        "slots": message.slots,
        "slots_used": message.slots_used if message.HasField("slots_used") else None,
        "tasks_waiting_for_slot": message.tasks_waiting_for_slot
        if message.HasField("tasks_waiting_for_slot")
        else None,
        "reason": message.reason or None,
        "conditions": [{"type": one.type, "message": one.message} for one in message.conditions],
        "connectors": list(message.connectors),
        "tasks": [f"{one.connector}-{one.task}" for one in message.tasks],
    }


def worker_status(message: worker_service.GetWorkerStatusResponse) -> Json:
    """Release, disks and use of a worker's processes; `own` is None where the worker cannot measure it."""
    return {
        "version": message.version or None,
        "slots": message.slots,
        "own": _usage(message.own) if message.HasField("own") else None,
        "runs": [
            {"connector": one.task.connector, "task": one.task.task, "pid": one.pid, **_usage(one.usage)}
            for one in message.runs
        ],
        "disks": [
            {"path": one.path, "total_bytes": one.total_bytes, "free_bytes": one.free_bytes} for one in message.disks
        ],
    }


def _usage(message: worker_service.ProcessUsage) -> Json:
    return {"cpu_ms": message.cpu_ms, "memory_bytes": message.memory_bytes}


def log_line(message: worker_service.LogLine) -> Json:
    """One log line of a worker; `connector` and `task` are None for lines about more than one."""
    return {
        "time": message.time.ToJsonString(),
        "connector": message.connector or None,
        "task": message.task if message.HasField("task") else None,
        "text": message.text,
    }


def config_field(message: worker_service.ConfigField) -> Json:
    """One key of a config definition."""
    return {
        "name": message.name,
        "type": message.type,
        "required": message.required,
        "default_value": message.default_value if message.HasField("default_value") else None,
        "importance": message.importance,
        "group": message.group or None,
        "documentation": message.documentation,
    }


def validation(message: worker_service.ConfigValidation) -> Json:
    """A validation result in the shape of Connect's REST API; each field has `fixes` next to `errors`."""
    return {
        "name": message.class_name,
        "error_count": message.error_count,
        "groups": list(message.groups),
        "configs": [
            {
                "definition": {
                    **config_field(one),
                    "width": one.width,
                    "display_name": one.display_name,
                    "dependents": list(one.dependents),
                    "order": one.order,
                }
                if one.type
                else None,
                "value": {
                    "name": one.name,
                    "value": one.value if one.HasField("value") else None,
                    "recommended_values": list(one.recommended_values),
                    "errors": list(one.errors),
                    "fixes": list(one.fixes),
                    "visible": one.visible,
                },
            }
            for one in message.fields
        ],
        "warnings": warnings(message.warnings),
    }


def warnings(found: Iterable[worker_service.ConfigWarning]) -> list[Json]:
    """Settings that are accepted but do not have their effect."""
    return [{"name": one.name, "message": one.message, "fix": one.fix} for one in found]


def plan_step(message: messages.PlanStep) -> Json:
    return {
        "task": message.task if message.HasField("task") else None,
        "action": name_of(messages.PlanAction, message.action),
        "reason": message.reason,
    }


def logger(message: admin.LoggerEntry) -> Json:
    return {
        "worker_id": message.worker_id,
        "logger": message.logger,
        "level": message.level,
        "last_modified": message.modify_time.ToJsonString() if message.HasField("modify_time") else None,
    }


def plugin(message: common.Plugin) -> Json:
    return {
        "class": message.class_name,
        "type": name_of(common.PluginKind, message.kind).lower(),
        "version": message.version or None,
        "aliases": list(message.aliases),
    }


def refused_plugin(message: common.RefusedPlugin) -> Json:
    """A plugin that was found but cannot be used, in the shape of `plugin`: `class` is None, `type` is "refused"."""
    return {
        "class": None,
        "type": "refused",
        "version": None,
        "aliases": [],
        "folder": message.folder,
        "plugin": message.plugin or None,
        "why": message.why,
        "fix": message.fix,
        "workers": list(message.worker_ids),
    }


def cluster(message: admin.GetClusterResponse) -> Json:
    return {
        "cluster_id": message.cluster_id or None,
        "version": message.version,
        "leader": {"id": message.leader_id, "address": message.leader_address, "epoch": message.epoch},
        "start_count": message.start_count,
        "adopted_count": message.adopted_count,
        "workers": [worker(one) for one in message.workers],
    }


def store(message: store_pb2.StoreStatus) -> Json:
    """The condition of one replica of a store."""
    return {
        "role": name_of(store_pb2.StoreRole, message.role),
        "condition": name_of(store_pb2.StoreCondition, message.condition),
        "message": message.message,
        "since": message.since.ToJsonString(),
        "topic": message.topic,
        "version": message.version or None,
        "cluster_id": message.cluster_id or None,
        "undecodable_count": message.undecodable_count,
        "undecodable": [
            {
                "topic": one.topic,
                "partition": one.partition,
                "offset": one.offset,
                "key": one.key,
                "reason": one.reason,
            }
            for one in message.undecodable
        ],
    }


def store_silent(message: str) -> Json:
    """`store` for a replica that does not answer, in the same shape."""
    return {**store(store_pb2.StoreStatus()), "condition": "UNREACHABLE", "message": message, "since": ""}
