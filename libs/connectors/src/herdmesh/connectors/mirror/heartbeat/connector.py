"""`MirrorHeartbeatConnector`: writes heartbeats, which show that it runs and can write to the workers' cluster.

Owns the connector. Keys: `settings`; the task (always one): `task`.

Invariant: a connector with heartbeats switched off has no task.
"""

from __future__ import annotations

from collections.abc import Sequence

from herdmesh.connectors.mirror.base_connector import EmittingConnector
from herdmesh.connectors.mirror.heartbeat.settings import KEYS, HeartbeatSettings, settings_of, warnings_of
from herdmesh.sdk import Config, ConfigDef, FieldViolation


class MirrorHeartbeatConnector(EmittingConnector[HeartbeatSettings]):
    """MirrorMaker 2's heartbeat connector, with the differences that docs/connectors/mirror.md lists."""

    class_name = "org.apache.kafka.connect.mirror.MirrorHeartbeatConnector"
    aliases = ("MirrorHeartbeat", "MirrorHeartbeatConnector")
    java_task_class = "org.apache.kafka.connect.mirror.MirrorHeartbeatTask"
    partition_texts = ("sourceClusterAlias", "targetClusterAlias")

    @classmethod
    def config_def(cls) -> ConfigDef:
        return KEYS

    @classmethod
    def read(cls, config: Config) -> HeartbeatSettings:
        return settings_of(config)

    def warnings(self, config: Config) -> Sequence[FieldViolation]:
        return warnings_of(config)

    def task_class(self) -> str:
        return "herdmesh.connectors.mirror.heartbeat.task:MirrorHeartbeatTask"

    def task_configs(self, max_tasks: int) -> list[dict[str, str | None]]:
        return [] if self.settings.interval_s is None else [dict(self.config)]
