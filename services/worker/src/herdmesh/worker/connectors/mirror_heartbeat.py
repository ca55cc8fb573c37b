"""`MirrorHeartbeatConnector`: tells, again and again, that it lives and can write into the workers' cluster.

Owns the connector. Keys: `mirror_heartbeat_config`; the task, of which there is always one: `mirror_heartbeat_task`.

Invariant: a connector that is not to emit has no task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from herdmesh.connect.config import ConfigDef, FieldViolation
from herdmesh.connect.connector import Config, SourceConnector
from herdmesh.connect.errors import ConfigError
from herdmesh.worker.connectors.frame import ReadConnector
from herdmesh.worker.connectors.mirror_config import CONVERTERS
from herdmesh.worker.connectors.mirror_heartbeat_config import KEYS, HeartbeatSettings, settings_of, warnings_of


class MirrorHeartbeatConnector(ReadConnector[HeartbeatSettings], SourceConnector):
    """MirrorMaker 2's heartbeat connector, as far as docs/connectors/mirror.md says."""

    class_name = "org.apache.kafka.connect.mirror.MirrorHeartbeatConnector"
    aliases = ("MirrorHeartbeat", "MirrorHeartbeatConnector")
    version = "4.3.1"
    java_task_class = "org.apache.kafka.connect.mirror.MirrorHeartbeatTask"
    default_converters = CONVERTERS

    @classmethod
    def config_def(cls) -> ConfigDef:
        return KEYS

    @classmethod
    def read(cls, config: Config) -> HeartbeatSettings:
        return settings_of(config)

    def warnings(self, config: Config) -> Sequence[FieldViolation]:
        return warnings_of(config)

    def task_class(self) -> str:
        return "herdmesh.worker.connectors.mirror_heartbeat_task:MirrorHeartbeatTask"

    def task_configs(self, max_tasks: int) -> list[dict[str, str | None]]:
        return [] if self.settings.interval_s is None else [dict(self.config)]

    def exactly_once_support(self, config: Config) -> bool | None:
        """A heartbeat, and when it was, are one transaction."""
        return True

    def alter_offsets(
        self, config: Config, offsets: Sequence[tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]]
    ) -> bool:
        for partition, offset in offsets:
            if offset is not None:
                _check(partition, offset)
        return True


def _check(partition: Mapping[str, Any] | None, offset: Mapping[str, Any]) -> None:
    if partition is None:
        raise ConfigError("Source partitions may not be null")
    for key in ("sourceClusterAlias", "targetClusterAlias"):
        if not isinstance(partition.get(key), str):
            raise ConfigError(f"The source partition {dict(partition)} needs a text under the key '{key}'")
    if offset.get("offset") != 0:
        raise ConfigError(f"The source offset {dict(offset)} needs 0 under the key 'offset': it is no place to go on")
