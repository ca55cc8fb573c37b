"""`MirrorSourceConnector`: copies topics of another Kafka cluster to the workers' cluster, byte by byte.

Owns finding partitions and assigning them to tasks, and the schedule of syncing
settings of copies (`topic_settings`). Keys: `settings`; names: `topic_naming`. The task
is in another module, `task`, so that a worker that only validates creates no client.

Invariant: the partitions assigned are those of the last discovery, so two consecutive task sets differ only by
partitions that the source has gained or lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from herdmesh.connectors.common import KeptSigns, Lookout, Repeated
from herdmesh.connectors.mirror import topic_naming
from herdmesh.connectors.mirror.base_connector import MirrorConnector, check_partition
from herdmesh.connectors.mirror.keys import ASSIGNED, KEYS
from herdmesh.connectors.mirror.source.settings import MirrorSettings, client_problems_of, settings_of, warnings_of
from herdmesh.connectors.mirror.source.topic_settings import keep_settings
from herdmesh.engine.sink import earlier_topics_note
from herdmesh.sdk import Config, ConfigDef, ConfigError, FieldViolation, OffsetMap, PartitionId

_signs = KeptSigns()


class MirrorSourceConnector(MirrorConnector[MirrorSettings]):
    """MirrorMaker 2's source connector, with the differences that docs/connectors/mirror.md lists."""

    class_name = "org.apache.kafka.connect.mirror.MirrorSourceConnector"
    aliases = ("MirrorSource", "MirrorSourceConnector")
    java_task_class = "org.apache.kafka.connect.mirror.MirrorSourceTask"

    @classmethod
    def config_def(cls) -> ConfigDef:
        return KEYS

    @classmethod
    def read(cls, config: Config) -> MirrorSettings:
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
        self._partitions = Lookout(
            "partitions of the source to copy", self._look, every_s, self.context, nothing="topics, topics.exclude"
        )
        self._keeping: Repeated | None = None
        if self.context is not None and self.settings.enabled and self.settings.configs_s is not None:
            doing = "changing settings of copies"
            waits = self.context.waits
            self._keeping = Repeated(doing, self._keep_settings, self.settings.configs_s, at_once=True, waits=waits)

    def stop(self) -> None:
        self._partitions.close()
        if self._keeping is not None:
            self._keeping.close()

    def task_class(self) -> str:
        return "herdmesh.connectors.mirror.source.task:MirrorSourceTask"

    def task_configs(self, max_tasks: int) -> list[dict[str, str | None]]:
        dealt = topic_naming.split(self._partitions.found, max_tasks)
        return [
            {**self.config, ASSIGNED: topic_naming.partitions_text(partitions), "task.index": str(task)}
            for task, partitions in enumerate(dealt)
        ]

    def exactly_once_support(self, config: Config) -> bool | None:
        """False if it reads records of transactions that may yet be aborted, as in Java."""
        return self.answer_from(config, lambda settings: settings.source.read_committed)

    def alter_offsets(
        self, config: Config, offsets: Sequence[tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]]
    ) -> bool:
        for partition, offset in offsets:
            check_partition(partition, ("cluster", "topic"), numbered=True)
            if offset is not None:
                _check_offset(offset)
        return True

    def offsets_at(
        self, config: Config, time_ms: int, committed: Sequence[tuple[OffsetMap | None, OffsetMap]]
    ) -> Sequence[tuple[OffsetMap | None, OffsetMap | None]] | None:
        """Compute offsets by the records' timestamps at the source. Offsets of another source's partitions stay."""
        settings = settings_of(config)
        known = {
            (partition["topic"], partition["partition"]): (partition, int(offset["offset"]))
            for partition, offset in committed
            if partition is not None and partition.get("cluster") == settings.naming.source
        }
        found = settings.source.offsets_at(known, time_ms)
        return [(known[one][0], {"offset": first - 1}) for one, first in found.items() if first - 1 < known[one][1]]

    def offsets_note(self, config: Config, committed: Sequence[tuple[OffsetMap | None, OffsetMap]]) -> str:
        """Name the offsets of topics that were deleted and recreated at the source."""
        settings = settings_of(config)
        of_source = {
            (partition["topic"], partition["partition"]): offset.get("topic_id")
            for partition, offset in committed
            if partition is not None and partition.get("cluster") == settings.naming.source
        }
        now = settings.source.topic_ids(topic for topic, _ in of_source)
        earlier = [one for one, topic_id in of_source.items() if topic_id and now.get(one[0], topic_id) != topic_id]
        return earlier_topics_note(earlier, f" in the source cluster {settings.naming.source}")

    def sign(self, task_config: Config) -> str | None:
        """Return the ends of the task's partitions at the source. Raises RetriableError while it is unreachable."""
        return _signs.of(task_config, lambda: _ends(task_config))

    def _keep_settings(self) -> None:
        assert self.settings.target is not None
        keep_settings(self.settings, self.settings.target)

    def _look(self) -> list[PartitionId]:
        settings = self.settings
        return settings.selection.partitions(settings.source.partition_counts()) if settings.enabled else []


def _ends(task_config: Config) -> str:
    """Return the ends with the ids of the topics: a recreated topic may have the same end as its predecessor."""
    source, owned = settings_of(task_config).source, topic_naming.read(task_config.get(ASSIGNED) or "")
    ids = source.topic_ids(topic for topic, _ in owned)
    ends = [f"{topic}-{number}:{end}" for (topic, number), end in sorted(source.ends(owned).items())]
    return " ".join([*ends, *(f"{topic}={one}" for topic, one in sorted(ids.items()))])


def _check_offset(offset: Mapping[str, Any]) -> None:
    number = offset.get("offset")
    if isinstance(number, bool) or not isinstance(number, int) or number < -1:
        raise ConfigError(
            f"The source offset {dict(offset)} needs a number, 0 or more, under the key 'offset': that of the "
            "last record copied, or -1 before the first"
        )
