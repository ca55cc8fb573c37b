"""Base classes of the mirror's three connectors, and the record batches of heartbeats and checkpoints.

Owns the checks of source partitions in users' requests, and the common base of
`MirrorHeartbeatConnector` and `MirrorCheckpointConnector`: they write records to
a topic of their own, and their source offset is not a position to resume from.

Invariant: such a record and its source offset are one transaction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from herdmesh.connect.model import BYTES
from herdmesh.connectors.common import ReadConnector
from herdmesh.connectors.mirror.cluster import COMPACTED
from herdmesh.connectors.mirror.keys import CONVERTERS
from herdmesh.sdk import Config, ConfigError, SourceBatch, SourceConnector, SourceTaskContext

S = TypeVar("S")


class MirrorConnector(ReadConnector[S], SourceConnector):
    """Base class of MirrorMaker 2's connectors, with the differences that docs/connectors/mirror.md lists."""

    version = "4.3.1"
    """The MirrorMaker version whose behaviour the connectors have."""
    default_converters = CONVERTERS

    @classmethod
    def client_problems(cls, config: Config) -> Sequence[ConfigError]:
        """Return errors of client settings with which a run would fail; called when a config is validated."""
        return ()

    def validate(self, config: Config) -> Sequence[ConfigError]:
        found = {one.field: one for one in (*super().validate(config), *self.client_problems(config))}
        return list(found.values())


class EmittingConnector(MirrorConnector[S]):
    """Base class of connectors that write records of their own: heartbeats or checkpoints."""

    partition_texts: ClassVar[tuple[str, ...]]
    """Keys of a source partition whose values are texts."""
    has_partition_number: ClassVar[bool] = False

    def exactly_once_support(self, config: Config) -> bool | None:
        """True, because a record and its source offset are one transaction."""
        return True

    def alter_offsets(
        self, config: Config, offsets: Sequence[tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]]
    ) -> bool:
        for partition, offset in offsets:
            if offset is None:
                continue
            check_partition(partition, self.partition_texts, numbered=self.has_partition_number)
            if offset.get("offset") != 0:
                text = (
                    f"The source offset {dict(offset)} needs 0 under the key 'offset': this connector has no positions"
                )
                raise ConfigError(text)
        return True


def check_partition(partition: Mapping[str, Any] | None, texts: Sequence[str], *, numbered: bool) -> None:
    """Check a source partition in a user's request: texts under these
    keys and, if `numbered`, a partition number. Raises ConfigError.
    """
    if partition is None:
        raise ConfigError("Source partitions may not be null")
    for key in texts:
        if not isinstance(partition.get(key), str):
            raise ConfigError(f"The source partition {dict(partition)} needs a string under the key '{key}'")
    number = partition.get("partition", -1) if numbered else 0
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        raise ConfigError(
            f"The source partition {dict(partition)} needs a number, 0 or more, under the key 'partition'"
        )


def make_topic(context: SourceTaskContext, topic: str, replication_factor: int, key: str) -> None:
    """Create the topic of the emitted records. `key`: the config key of its replication factor. Raises ConfigError."""
    try:
        context.make_topic(topic, 1, replication_factor, COMPACTED)
    except ConfigError as error:
        fix = "write at most the number of brokers in the workers' cluster, or -1 for its default"
        raise ConfigError(str(error), field=key, fix=fix) from error


def emitted_batch(
    topic: str, key: bytes, value: bytes, partition: Mapping[str, Any], offset: Mapping[str, Any], now_ms: int
) -> SourceBatch:
    """Return a batch of one record; `offset`: members of its source offset, beside the constant offset 0."""
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
