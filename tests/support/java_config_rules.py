"""Java's reading of the config topic, implemented a second time: an oracle for the config store's fold.

Owns docs/reference/connect/config-topic.md, sections 4 and 11, rule by rule, as `KafkaConfigBackingStore` has them: one
dict per map of that class. Shares nothing with `herdmesh.configstore` nor with the decoders of `herdmesh.connect`. It
knows no manifest: Java drops a key it does not know. Invariant: `read` never raises; a record that Java ignores changes
nothing and is reported as refused.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, field
from typing import Any, cast

from herdmesh.connect.model.java_values import utf8_text
from tests.support import java_json

_STATES = ("STARTED", "PAUSED", "STOPPED")
_BASE64 = re.compile(rb"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}(?:==)?|[A-Za-z0-9+/]{3}=?)?")
_Json = dict[str, Any]


class Ignored(Exception):
    """A record that Java logs and skips. Raised by the readers of keys and members below, which the other oracle uses
    too.
    """


@dataclass
class JavaConfigs:
    """The maps of `KafkaConfigBackingStore`. Offsets are those of the records to which a revision refers."""

    configs: dict[str, _Json] = field(default_factory=dict[str, _Json])
    config_offsets: dict[str, int] = field(default_factory=dict[str, int])
    target_states: dict[str, str] = field(default_factory=dict[str, str])
    target_state_offsets: dict[str, int] = field(default_factory=dict[str, int])
    task_counts: dict[str, int] = field(default_factory=dict[str, int])
    commit_offsets: dict[str, int] = field(default_factory=dict[str, int])
    task_configs: dict[str, dict[int, _Json]] = field(default_factory=dict[str, dict[int, _Json]])
    deferred: dict[str, dict[int, _Json]] = field(default_factory=dict[str, dict[int, _Json]])
    applied_configs: dict[str, _Json] = field(default_factory=dict[str, _Json])
    task_count_records: dict[str, int] = field(default_factory=dict[str, int])
    generations: dict[str, int] = field(default_factory=dict[str, int])
    pending_fencing: set[str] = field(default_factory=set[str])
    inconsistent: set[str] = field(default_factory=set[str])
    session_key: tuple[str, str, int] | None = None
    refused: int = 0

    def read(self, key: bytes, value: bytes | None, offset: int) -> bool:
        """Read one record; False when Java ignores it."""
        try:
            self._read(utf8_text(key), value, offset)
        except (java_json.NotJson, Ignored):
            self.refused += 1
            return False
        return True

    def tasks(self, name: str) -> dict[int, _Json]:
        """The configs of the task ids that `tasks(name)` lists; a number without a config is left out."""
        if name in self.inconsistent:
            return {}
        known = self.task_configs.get(name, {})
        return {task: known[task] for task in range(self.task_counts.get(name, 0)) if task in known}

    def _read(self, key: str, raw: bytes | None, offset: int) -> None:
        value = java_json.read(raw)
        if key.startswith("target-state-"):
            self._target_state(key.removeprefix("target-state-"), value, offset)
        elif key.startswith("connector-"):
            self._connector(key.removeprefix("connector-"), value, offset)
        elif key.startswith("task-"):
            self._task(key, value)
        elif key.startswith("commit-"):
            self._commit(key.removeprefix("commit-"), value, offset)
        elif key.startswith("restart-connector-"):
            members(value)
        elif key.startswith("tasks-fencing-"):
            name = key.removeprefix("tasks-fencing-")
            self.task_count_records[name] = int32(members(value).get("task-count"))
            self.pending_fencing.discard(name)
        elif key == "session-key":
            self._session_key(members(value))
        elif key.startswith("logger-cluster-"):
            text(members(value).get("level"))
        else:
            raise Ignored(key)

    def _target_state(self, name: str, value: Any, offset: int) -> None:
        if value is None:
            self.target_state_offsets.pop(name, None)
            self.target_states.pop(name, None)
            if name in self.configs:
                self.target_states[name] = "STARTED"
            return
        said = members(value)
        newer = said.get("state.v2")
        state = newer if isinstance(newer, str) else text(said.get("state"))
        if state not in _STATES:
            raise Ignored(state)
        self.target_states[name] = state
        self.target_state_offsets[name] = offset

    def _connector(self, name: str, value: Any, offset: int) -> None:
        if value is None:
            self._remove(name)
            return
        self.configs[name] = members(members(value).get("properties"))
        self.config_offsets[name] = offset
        self.target_states.setdefault(name, "STARTED")

    def _task(self, key: str, value: Any) -> None:
        name, task = split_task_key(key, 3)
        self.deferred.setdefault(name, {})[task] = members(members(value).get("properties"))

    def _commit(self, name: str, value: Any, offset: int) -> None:
        if name not in self.configs:
            self._remove(name)
            if value is None or not isinstance(value, dict) or not is_int(cast(_Json, value).get("tasks")):
                raise Ignored("no count, and no connector either")
            return
        count = int32(members(value).get("tasks"))
        waiting = self.deferred.get(name)
        if any(task not in (waiting or {}) for task in range(min(count, 1 + len(waiting or {})))):
            self.inconsistent.add(name)
        else:
            if waiting is not None:
                self.task_configs.setdefault(name, {}).update(waiting)
                self.generations[name] = self.generations.get(name, -1) + 1
            self.inconsistent.discard(name)
            self.applied_configs[name] = self.configs[name]
        if waiting is not None:
            self.deferred[name] = {}
        self.task_counts[name] = count
        self.commit_offsets[name] = offset
        self.pending_fencing.add(name)

    def _session_key(self, said: _Json) -> None:
        key = text(said.get("key"))
        encoded = key.encode("utf-8", "replace")
        if not encoded or not _BASE64.fullmatch(encoded):
            raise Ignored("no key")
        algorithm, created = text(said.get("algorithm")), said.get("creation-timestamp")
        if not isinstance(created, int) or isinstance(created, bool):
            raise Ignored("no time")
        self.session_key = key, algorithm, created

    def _remove(self, name: str) -> None:
        maps: tuple[dict[str, Any], ...] = (
            self.configs, self.config_offsets, self.task_counts, self.commit_offsets, self.task_configs, self.deferred,
            self.applied_configs,
        )  # fmt: skip
        for one in maps:
            one.pop(name, None)


def split_task_key(key: str, parts_min: int) -> tuple[str, int]:
    """Connector and number of a task's key, as Java's `split("-")` and `Integer.parseInt` give them."""
    parts = key.split("-")
    while parts and not parts[-1]:
        parts.pop()
    if len(parts) < parts_min:
        raise Ignored(key)
    return "-".join(parts[parts_min - 2 : -1]), _parse_int(parts[-1])


def _parse_int(text: str) -> int:
    digits = text[1:] if text[:1] in ("+", "-") else text
    values = [unicodedata.decimal(char, -1) if char <= "\uffff" else -1 for char in digits]
    if not values or -1 in values:
        raise Ignored(text)
    number = 0
    for value in values:
        number = 10 * number + value
    number = -number if text[0] == "-" else number
    if not -(2**31) <= number < 2**31:
        raise Ignored(text)
    return number


def members(value: Any) -> _Json:
    """A JSON object."""
    if not isinstance(value, dict):
        raise Ignored("no map")
    return cast(_Json, value)


def text(value: Any) -> str:
    """A JSON string."""
    if not isinstance(value, str):
        raise Ignored("no string")
    return value


def is_int(value: Any) -> bool:
    """True for a JSON integer, which Java reads as 64 bits."""
    return isinstance(value, int) and not isinstance(value, bool)


def int32(value: Any) -> int:
    """A JSON integer cut to 32 bits."""
    if not is_int(value):
        raise Ignored("no integer")
    return (int(value) + 2**31) % 2**32 - 2**31
