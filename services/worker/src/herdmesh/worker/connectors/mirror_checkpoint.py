"""`MirrorCheckpointConnector`: tells where consumer groups of another Kafka cluster go on in the copies of its topics.

Owns the connector: which groups there are, who looks after which, and noticing new ones. Keys:
`mirror_checkpoint_config`; the task: `mirror_checkpoint_task`; the translation: `mirror_offsets`.

Invariant: the groups it deals out are those it last saw, so two task sets in a row differ only by what the source has
gained or lost.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from herdmesh.sdk import Config, ConfigDef, ConfigError, FieldViolation
from herdmesh.worker.connectors.common import Lookout
from herdmesh.worker.connectors.mirror_checkpoint_config import (
    ASSIGNED,
    KEYS,
    CheckpointSettings,
    client_problems_of,
    settings_of,
    warnings_of,
)
from herdmesh.worker.connectors.mirror_frame import EmittingConnector

_log = logging.getLogger(__name__)


class MirrorCheckpointConnector(EmittingConnector[CheckpointSettings]):
    """MirrorMaker 2's checkpoint connector, as far as docs/connectors/mirror.md says."""

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
        """Raises RetriableError while the source is away."""
        super().start(config)
        every_s = self.settings.refresh_s if self.settings.enabled else None
        self._groups = Lookout(
            "groups of the source to look after", self._look, every_s, self.context,
            nothing="groups, groups.exclude and topics",
        )  # fmt: skip

    def stop(self) -> None:
        self._groups.close()

    def task_class(self) -> str:
        return "herdmesh.worker.connectors.mirror_checkpoint_task:MirrorCheckpointTask"

    def task_configs(self, max_tasks: int) -> list[dict[str, str | None]]:
        groups = self._groups.found
        count = min(max_tasks, len(groups))
        return [
            {**self.config, ASSIGNED: ",".join(groups[task::count]), "task.index": str(task)} for task in range(count)
        ]

    def _look(self) -> list[str]:
        return _found(self.settings) if self.settings.enabled else []


def _found(settings: CheckpointSettings) -> list[str]:
    """Groups that have an offset of a topic that is copied. Raises RetriableError while the source is away."""
    found: list[str] = []
    for group in filter(settings.has_group, settings.source.groups()):
        if "," in group or group != group.strip():
            _log.warning("group %r is left out: a task's config, as Java has it, cannot name it", group)
        elif any(settings.selection.has(topic) for topic, _ in settings.source.group_offsets(group)):
            found.append(group)
    return found
