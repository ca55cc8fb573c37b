"""Writer of offset syncs, beside the records that a mirror's task copies.

Owns when the end of a copy is read, and the writing. Which syncs are due: `offset_translation.Syncing`.

There are a few reads and writes for each commit, and none for each record. They come after the commit, so a sync never
names a record that is not yet visible. Errors are logged, and copying continues.

A copy that was deleted and recreated is recognized by its topic id, which is read after each read of the end: when the
id is unchanged, the end belongs to this topic.

Invariant: a sync is written only for records whose transaction is committed, and for the copy that exists now.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from herdmesh.connectors.mirror.client_settings import TARGET_BOOTSTRAP
from herdmesh.connectors.mirror.cluster import COMPACTED, Writer
from herdmesh.connectors.mirror.offset_translation import Syncing
from herdmesh.connectors.mirror.source.settings import SyncSettings
from herdmesh.engine.runtime import kafka, progress_ticks
from herdmesh.sdk import ConfigError, PartitionId, RetriableError, SourceTaskContext, waits

_LOOK_S, _AWAY_S = 5.0, 60.0
_MARKER_S = 0.25
"""Maximum wait for the marker of a committed transaction; it takes a millisecond or two."""
_PAUSE_S = 0.002
_KNOWN_S, _KNOWN_PAUSE_S = 10.0, 0.02
_log = logging.getLogger(__name__)


class OffsetSyncs:
    """Offset syncs of one task. `remote`: function from a topic to its name at the target."""

    def __init__(self, settings: SyncSettings, remote: Callable[[str], str]) -> None:
        self._settings = settings
        self._remote = remote
        self._syncing = Syncing(settings.lag_max)
        self._writer: Writer | None = None
        self._partitions: list[PartitionId] = []
        #: ids of the copies, by source topic.
        self._ids: dict[str, str] = {}
        #: the last marker did not arrive in time, because another writer's transaction holds the copy's end back; do
        #: not wait at each commit.
        self._is_held = False
        #: time of the next attempt after the target did not respond: copying must not wait for it each time.
        self._ask_at_s = 0.0

    def begin(self, partitions: Iterable[PartitionId], context: SourceTaskContext) -> None:
        """Create the syncs' topic and read the ends of the copies;
        called before the first record, when the copies exist.
        """
        settings, self._partitions = self._settings, list(partitions)
        try:
            if settings.at_target:
                context.make_topic(settings.topic, 1, settings.replication_factor, COMPACTED)
            else:
                settings.kept_in.make_compacted_topic(settings.topic, settings.replication_factor)
            ends = self._first_ends(self._partitions)
            self._made_again(ends)
        except Exception as error:  # noqa: BLE001 - records are copied whatever the error is
            _log.warning(
                "no offset syncs are written until the task is restarted, so offsets of consumer groups are not "
                "translated: %s (check offset-syncs.topic.replication.factor and offset-syncs.topic.location, or set "
                "emit.offset-syncs.enabled=false)",
                error,
            )
            return
        self._syncing.begin(ends)

    def took(self, partition: PartitionId, count: int, last_upstream: int) -> None:
        """Note a batch that was handed over."""
        self._syncing.took(partition, count, last_upstream)

    def committed(self) -> None:
        """Note that all batches handed over are committed."""
        self._syncing.committed()
        self._tell()

    def close(self) -> None:
        """Write the remaining syncs of committed records."""
        self._tell()
        if self._writer is not None:
            self._writer.close()

    def _tell(self) -> None:
        if time.monotonic() < self._ask_at_s:
            return
        until_s = time.monotonic() + (0 if self._is_held else _MARKER_S)
        while due := self._syncing.partitions_due():
            try:
                ends = self._ends(due)
                if again := self._made_again(due):
                    self._syncing.made_again(self._ends(again))
                    continue
                if self._writer is None:
                    self._writer = self._settings.kept_in.writer(self._settings.topic)
            except RetriableError as error:
                _log.warning("cannot write offset syncs now, retrying later: %s", error)
                self._ask_at_s = time.monotonic() + _AWAY_S
                return
            for sync in self._syncing.syncs_due(ends):
                self._writer.write(sync.key(), sync.value())
            if time.monotonic() > until_s:
                break
            if self._syncing.partitions_due():
                time.sleep(_PAUSE_S)  # waits: no longer than `_MARKER_S`
        self._is_held = bool(self._syncing.partitions_due())

    def _first_ends(self, partitions: Sequence[PartitionId]) -> Mapping[PartitionId, int]:
        """Return the ends of copies, and wait until all brokers know the copies just created."""
        until_s = time.monotonic() + _KNOWN_S
        with waits.on(kafka(self._settings.target.bootstrap_servers), "requesting the end offsets of copies"):
            while True:
                try:
                    ends = self._ends(partitions)
                except RetriableError:
                    if time.monotonic() > until_s:
                        raise
                else:
                    if missing := [one for one in partitions if one not in ends]:
                        if time.monotonic() > until_s:
                            text = (
                                f"{TARGET_BOOTSTRAP} has no copy of {missing[0]}: check that it names the workers' "
                                "cluster"
                            )
                            raise ConfigError(text, field=TARGET_BOOTSTRAP)
                    else:
                        return ends
                progress_ticks.moved()
                time.sleep(_KNOWN_PAUSE_S)

    def _made_again(self, partitions: Iterable[PartitionId]) -> list[PartitionId]:
        """Return the task's partitions whose copies were recreated
        since the last call. Queries the topics of `partitions`.
        """
        topics = {self._remote(topic): topic for topic, _ in partitions}
        with waits.on(kafka(self._settings.target.bootstrap_servers), "requesting the topic ids of copies"):
            found = self._settings.target.topic_ids(topics, _LOOK_S)
        ids = {topics[copy]: one for copy, one in found.items()}
        again = {topic for topic, one in ids.items() if self._ids.get(topic, one) != one}
        self._ids |= ids
        for topic in sorted(again):
            _log.warning("the copy of topic %s was deleted and created again: its offset syncs start again", topic)
        return [one for one in self._partitions if one[0] in again]

    def _ends(self, partitions: Iterable[PartitionId]) -> Mapping[PartitionId, int]:
        """Return the ends of the copies, by source partition."""
        copies = {(self._remote(topic), number): (topic, number) for topic, number in partitions}
        with waits.on(kafka(self._settings.target.bootstrap_servers), "requesting the end offsets of copies"):
            ends = self._settings.target.ends(copies, _LOOK_S)
        return {copies[copy]: end for copy, end in ends.items()}
