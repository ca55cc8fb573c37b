"""`MirrorCheckpointConnector`: writes checkpoints, the offsets
of the source's consumer groups in the copied topics.

Owns finding the groups and assigning them to tasks. Keys:
`settings`; the task: `task`; the translation: `offset_translation`.

Invariant: the groups assigned are those of the last discovery, so two consecutive task sets differ only by groups that
the source has gained or lost.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from herdmesh.connectors.common import Lookout
from herdmesh.connectors.mirror.base_connector import EmittingConnector
from herdmesh.connectors.mirror.checkpoint.settings import (
    ASSIGNED,
    KEYS,
    CheckpointSettings,
    client_problems_of,
    settings_of,
    warnings_of,
)
from herdmesh.sdk import Config, ConfigDef, ConfigError, FieldViolation

_log = logging.getLogger(__name__)


class MirrorCheckpointConnector(EmittingConnector[CheckpointSettings]):
    """MirrorMaker 2's checkpoint connector, with the differences that docs/connectors/mirror.md lists."""

    class_name = "org.apache.kafka.connect.mirror.MirrorCheckpointConnector"
    aliases = ("MirrorCheckpoint", "MirrorCheckpointConnector")
    java_task_class = "org.apache.kafka.connect.mirror.MirrorCheckpointTask"
    partition_texts = ("group", "topic")
    has_partition_number = True

    @classmethod
    def config_def(cls) -> ConfigDef:
        return KEYS

    @classmethod
    def read(cls, config: Config) -> CheckpointSettings:
        return settings_of(config)

    @classmethod
    def client_problems(cls, config: Config) -> Sequence[ConfigError]:
        return client_problems_of(config)

    def warnings(self, config: Config) -> Sequence[FieldViolation]:
        return warnings_of(config)

    def start(self, config: Config) -> None:
        """Raises RetriableError while the source is unreachable."""
        super().start(config)
        every_s = self.settings.refresh_s if self.settings.enabled else None
        self._groups = Lookout(
            "consumer groups to replicate", self._look, every_s, self.context,
            nothing="groups, groups.exclude and topics",
        )  # fmt: skip

    def stop(self) -> None:
        self._groups.close()

    def task_class(self) -> str:
        return "herdmesh.connectors.mirror.checkpoint.task:MirrorCheckpointTask"

    def task_configs(self, max_tasks: int) -> list[dict[str, str | None]]:
        groups = self._groups.found
        count = min(max_tasks, len(groups))
        return [
            {**self.config, ASSIGNED: ",".join(groups[task::count]), "task.index": str(task)} for task in range(count)
        ]

    def _look(self) -> list[str]:
        return _found(self.settings) if self.settings.enabled else []


def _found(settings: CheckpointSettings) -> list[str]:
    """Return the groups with an offset in a copied topic.
    Raises RetriableError while the source is unreachable.
    """
    found: list[str] = []
    for group in filter(settings.has_group, settings.source.groups()):
        if "," in group or group != group.strip():
            _log.warning(
                "group %r is skipped: its name cannot be written in a task config, whose format is Java's", group
            )
        elif any(settings.selection.has(topic) for topic, _ in settings.source.group_offsets(group)):
            found.append(group)
    return found
