"""Task of `MirrorHeartbeatConnector`: writes one small record at each interval.

Owns when a heartbeat is due, and its bytes (Java: `Heartbeat`). Source partitions have MirrorMaker's form
(`Heartbeat.connectPartition`); offsets have its `{"offset": 0}`, and the time of the last heartbeat beside it, so that
runs in quick succession do not write more heartbeats.

Invariant: two heartbeats are at least an interval apart, in one run or in two, unless the clock was set back.
Heartbeats missed while no run was active are not made up for.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from herdmesh.connectors.mirror import base_connector
from herdmesh.connectors.mirror.heartbeat.settings import REPLICATION, settings_of
from herdmesh.connectors.mirror.offset_translation import text_bytes
from herdmesh.connectors.mirror.topic_naming import HEARTBEATS
from herdmesh.sdk import Config, SourceBatch, SourceTask, SourceTaskContext

_VERSION = 0
"""Version of a heartbeat's value."""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A heartbeat of the mirror from one cluster to another, with its time."""

    source: str
    target: str
    """Aliases of the clusters."""
    timestamp_ms: int

    def key(self) -> bytes:
        """Return the key of the heartbeat's record."""
        return text_bytes(self.source) + text_bytes(self.target)

    def value(self) -> bytes:
        """Return the value of the heartbeat's record."""
        return struct.pack(">hq", _VERSION, self.timestamp_ms)


class MirrorHeartbeatTask(SourceTask):
    """Emits heartbeats. Creates their topic at the first poll."""

    def start(self, config: Config, context: SourceTaskContext) -> None:
        self._settings = settings_of(config)
        self._context = context
        self._interval_s = self._settings.interval_s or 0
        self._has_topic = False
        self._partition = {
            "sourceClusterAlias": self._settings.source,
            "targetClusterAlias": self._settings.target,
        }
        wait_ms = _wait_ms(context.committed_offset(self._partition), self._interval_s * 1000)
        self._due_s = time.monotonic() + wait_ms / 1000

    def poll(self) -> SourceBatch | None:
        if not self._has_topic:
            base_connector.make_topic(self._context, HEARTBEATS, self._settings.replication_factor, REPLICATION)
            self._has_topic = True
        now_s, now_ms = time.monotonic(), _now_ms()
        if now_s < self._due_s:
            return None
        self._due_s = now_s + self._interval_s
        one = Heartbeat(self._settings.source, self._settings.target, now_ms)
        return base_connector.emitted_batch(
            HEARTBEATS, one.key(), one.value(), self._partition, {"timestamp": now_ms}, now_ms
        )

    def wake_after_ms(self) -> int:
        """Return the time until the next heartbeat is due."""
        return max(1, int((self._due_s - time.monotonic()) * 1000))


def _wait_ms(offset: Mapping[str, Any] | None, interval_ms: int) -> int:
    """Return how long a run waits for its first heartbeat; a last heartbeat in the future counts as none."""
    last_ms = (offset or {}).get("timestamp")
    now_ms = _now_ms()
    if isinstance(last_ms, bool) or not isinstance(last_ms, int) or last_ms > now_ms:
        return 0
    return max(0, last_ms + interval_ms - now_ms)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
