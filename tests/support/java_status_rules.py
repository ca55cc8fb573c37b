"""Java's reading of the status topic, implemented a second time: an oracle for the status store's fold.

Owns docs/reference/connect/status-topic.md, section 5 and its last section, as `KafkaStatusBackingStore` has them.
Shares nothing with `herdmesh.statusstore` nor with the decoders of `herdmesh.connect`. Two rules are our store's and
marked where they are: the records of a deleted connector that stay because partitions are read in any order, and the
owners whose UNASSIGNED is never stale. `JavaStatuses(plain=True)` leaves them out and reads as the class does.
Invariant: `read` never raises; a record that Java ignores changes nothing and is reported as refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

from herdmesh.connect.model.java_values import utf8_text
from tests.support import java_json
from tests.support.java_config_rules import Ignored, int32, is_int, members, split_task_key, text

_STATES = ("UNASSIGNED", "RUNNING", "PAUSED", "FAILED", "DESTROYED", "RESTARTING", "STOPPED")
_SEPARATOR = ":connector-"
_Json = dict[str, Any]


@dataclass(frozen=True)
class Status:
    """A connector's or task's status as read; `ours` is the incarnation that only our workers write, "" in Java's."""

    state: str
    worker_id: str | None
    generation: int
    trace: str | None
    version: str | None
    ours: str
    timestamp_ms: int
    partition: int


@dataclass
class JavaStatuses:
    """The three tables of the class: by connector, by connector and task, by connector and topic."""

    plain: bool = False
    connectors: dict[str, Status] = field(default_factory=dict[str, Status])
    tasks: dict[str, dict[int, Status]] = field(default_factory=dict[str, dict[int, Status]])
    topics: dict[str, dict[str, tuple[str, str, int, int]]] = field(
        default_factory=dict[str, dict[str, tuple[str, str, int, int]]]
    )
    refused: int = 0

    def read(self, key: bytes, value: bytes | None, timestamp_ms: int, partition: int = 0) -> bool:
        """Read one record; False when Java ignores it as unreadable."""
        try:
            self._read(utf8_text(key), value, (timestamp_ms, partition))
        except (java_json.NotJson, Ignored):
            self.refused += 1
            return False
        return True

    def _read(self, key: str, value: bytes | None, place: tuple[int, int]) -> None:
        if key.startswith("status-connector-"):
            self._connector(key.removeprefix("status-connector-"), value, place)
        elif key.startswith("status-task-"):
            self._task(*split_task_key(key, 4), value, place)
        elif key.startswith("status-topic-"):
            self._topic(key.removeprefix("status-topic-"), value)
        else:
            raise Ignored(key)

    def _connector(self, name: str, value: bytes | None, place: tuple[int, int]) -> None:
        if not name:
            raise Ignored("no name")
        if value is not None:
            self.connectors[name] = _status(value, place)
            return
        self.connectors.pop(name, None)
        timestamp_ms, partition = place
        for number, task in list(self.tasks.get(name, {}).items()):
            # Our rule: a record of another partition with a time after the deletion belongs to the connector's next
            # life; with the same millisecond, if it is our writer's.
            older = task.timestamp_ms < timestamp_ms or (task.timestamp_ms == timestamp_ms and not task.ours)
            if self.plain or older or task.partition == partition:
                del self.tasks[name][number]

    def _task(self, name: str, number: int, value: bytes | None, place: tuple[int, int]) -> None:
        tasks = self.tasks.setdefault(name, {})
        if value is None:
            tasks.pop(number, None)
            return
        status, previous = _status(value, place), tasks.get(number)
        late = previous is not None and previous.state == "RUNNING" and previous.generation >= status.generation
        # Our rule: our writer had checked its records against all that was before them.
        if not late or status.state != "UNASSIGNED" or (status.ours and not self.plain):
            tasks[number] = status

    def _topic(self, rest: str, value: bytes | None) -> None:
        colon = rest.find(":")
        topic, name = rest[: max(colon, 0)], rest[colon + len(_SEPARATOR) :]
        if not topic or not name:
            raise Ignored("no topic or connector")
        if value is None:
            self.topics.get(name, {}).pop(topic, None)
            return
        said = members(members(java_json.read(value)).get("topic"))
        found = said.get("discoverTimestamp")
        if not is_int(found):
            raise Ignored("no time")
        self.topics.setdefault(name, {})[topic] = (
            text(said.get("name")),
            text(said.get("connector")),
            int32(said.get("task")),
            cast(int, found),
        )


def _status(value: bytes, place: tuple[int, int]) -> Status:
    said = members(java_json.read(value))
    state = said.get("state")
    if state not in _STATES:
        raise Ignored("no state")
    ours = said.get("worker_incarnation")
    return Status(
        state=text(state),
        worker_id=_text_or_null(said, "worker_id"),
        generation=int32(said.get("generation")),
        trace=_text_or_null(said, "trace"),
        version=_text_or_null(said, "version"),
        ours=ours if isinstance(ours, str) else "",
        timestamp_ms=place[0],
        partition=place[1],
    )


def _text_or_null(said: _Json, name: str) -> str | None:
    return None if said.get(name) is None else text(said.get(name))
