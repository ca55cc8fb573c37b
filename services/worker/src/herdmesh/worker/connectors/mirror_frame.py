"""What the mirror's connectors are made of, beside `common`.

Owns what is asked of a source partition that a user names, and what `MirrorHeartbeatConnector` and
`MirrorCheckpointConnector` are alike in: they tell something, in records of their own in a topic of their own, and
their source offset is no place to go on at.

Invariant: such a record, and the offset that says it was told, are one transaction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from herdmesh.connect.schemas import BYTES
from herdmesh.sdk import Config, ConfigError, SourceBatch, SourceConnector, SourceTaskContext
from herdmesh.worker.connectors.common import ReadConnector
from herdmesh.worker.connectors.mirror_config import CONVERTERS
from herdmesh.worker.effects.mirror_cluster import COMPACTED

S = TypeVar("S")


class TellingConnector(ReadConnector[S], SourceConnector):
    """A connector of MirrorMaker 2's that tells something, as far as docs/connectors/mirror.md says."""

    version = "4.3.1"
    default_converters = CONVERTERS
    partition_texts: ClassVar[tuple[str, ...]]
    """Keys of a source partition under which there is a text."""
    has_partition_number: ClassVar[bool] = False

    def exactly_once_support(self, config: Config) -> bool | None:
        """What is told, and that it was, are one transaction."""
        return True

    def alter_offsets(
        self, config: Config, offsets: Sequence[tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]]
    ) -> bool:
        for partition, offset in offsets:
            if offset is None:
                continue
            check_partition(partition, self.partition_texts, numbered=self.has_partition_number)
            if offset.get("offset") != 0:
                text = f"The source offset {dict(offset)} needs 0 under the key 'offset': it is no place to go on"
                raise ConfigError(text)
        return True


def check_partition(partition: Mapping[str, Any] | None, texts: Sequence[str], *, numbered: bool) -> None:
    """Raises ConfigError unless it has texts under these keys, and, `numbered`, the number of a partition."""
    if partition is None:
        raise ConfigError("Source partitions may not be null")
    for key in texts:
        if not isinstance(partition.get(key), str):
            raise ConfigError(f"The source partition {dict(partition)} needs a text under the key '{key}'")
    number = partition.get("partition", -1) if numbered else 0
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        raise ConfigError(
            f"The source partition {dict(partition)} needs a number, 0 or more, under the key 'partition'"
        )


def make_topic(context: SourceTaskContext, topic: str, replication_factor: int, key: str) -> None:
    """The topic of what is told. `key`: of the config, that says the replication factor. Raises ConfigError."""
    try:
        context.make_topic(topic, 1, replication_factor, COMPACTED)
    except ConfigError as error:
        fix = "write as many as the workers' cluster has brokers at most, or -1 for its default"
        raise ConfigError(str(error), field=key, fix=fix) from error


def told(
    topic: str, key: bytes, value: bytes, partition: Mapping[str, Any], offset: Mapping[str, Any], now_ms: int
) -> SourceBatch:
    """One record; `offset`: what is to be remembered of it, besides that it is no place."""
    return SourceBatch(
        topic,
        [value],
        partition,
        {"offset": 0, **offset},
        keys=[key],
        timestamps_ms=[now_ms],
        key_schema=BYTES,
        value_schema=BYTES,
        partition=0,
    )
