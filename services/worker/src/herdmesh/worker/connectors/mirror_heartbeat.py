"""`MirrorHeartbeatConnector`: tells, again and again, that it lives and can write into the workers' cluster.

Owns the connector. Keys: `mirror_heartbeat_config`; the task, of which there is always one: `mirror_heartbeat_task`.

Invariant: a connector that is not to emit has no task.
"""

from __future__ import annotations

from collections.abc import Sequence

from herdmesh.sdk import Config, ConfigDef, FieldViolation
from herdmesh.worker.connectors.mirror_frame import EmittingConnector
from herdmesh.worker.connectors.mirror_heartbeat_config import KEYS, HeartbeatSettings, settings_of, warnings_of


class MirrorHeartbeatConnector(EmittingConnector[HeartbeatSettings]):
    """MirrorMaker 2's heartbeat connector, as far as docs/connectors/mirror.md says."""

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
        return "herdmesh.worker.connectors.mirror_heartbeat_task:MirrorHeartbeatTask"

    def task_configs(self, max_tasks: int) -> list[dict[str, str | None]]:
        return [] if self.settings.interval_s is None else [dict(self.config)]
