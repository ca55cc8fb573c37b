"""Log of replayed dead letters (`state.dead_letter_replays` has the format), and its reader.

Owns two kinds of reads: a read-only one, and one by the owner of the replay's transactional id, which must see
everything that was ever committed under that id.

Invariant: after a take-over nothing that an earlier owner of the id replayed is missing here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from functools import partial
from typing import Final

from herdmesh.connect.topics import offsets_topic
from herdmesh.engine.fencing import Fence, OffsetsFinisher
from herdmesh.engine.librdkafka import clients, ensure_topic
from herdmesh.engine.runtime import RunSpec, TaskKind, access_of, offsets_topic_settings, source_settings
from herdmesh.engine.source import OpenTransactionScan, SourceOffsets, source_offsets
from herdmesh.topicstore.partitioner import partition_of
from herdmesh.worker.effects.dead_letters.queue_reader import TopicLog
from herdmesh.worker.state import dead_letter_replays
from herdmesh.worker.state.dead_letter_replays import Replays

_SETTLE_S: Final = 2.0
"""How long a read-only caller waits for an open transaction; one takes milliseconds, unless its owner died in it."""
_PAUSE_S: Final = 0.02


class Memory:
    """Replay log of one connector's queue."""

    def __init__(
        self, spec: RunSpec, log: TopicLog, in_file: Callable[[str], Mapping[bytes, bytes]] | None = None
    ) -> None:
        """`in_file` returns the offsets of a connector from the offsets file; None = they are in the offsets topic."""
        self._spec = spec
        self._log = log
        self._in_file = in_file
        self._owner = dead_letter_replays.owner(spec.connector)
        access = access_of(spec, "consumer", "producer")
        self._consumer = partial(clients.consumer, spec, f"connect-{spec.connector}", access)
        self._unstable = partial(self._consumer, isolation_level="read_uncommitted")
        own = source_settings(spec).offsets_topic if spec.kind is TaskKind.SOURCE else spec.offset_storage_topic
        self.topic: str | None = None if in_file is not None else own
        """The offsets topic; None = an offsets file."""

    def read(self) -> Replays:
        """The log, for a read-only caller. Raises ConfigError when there is no queue."""
        found = self._empty()
        offsets = SourceOffsets(self._owner)
        if self._in_file is not None:
            return self._with_offsets(found, self._of_file(self._in_file, offsets))
        assert self.topic is not None
        with closing(TopicLog(self._spec, self.topic)) as stored:
            count = stored.partition_counts([self.topic]).get(self.topic, 0)
            keys = [offsets_topic.encode_key(self._owner, found.source_partition(one)) for one in self._parts()]
            read = {partition_of(key, count): 0 for key in keys} if count else {}
            until_s = time.monotonic() + _SETTLE_S
            while read and self._read_on(stored, read, offsets) and time.monotonic() < until_s:
                time.sleep(_PAUSE_S)
        return self._with_offsets(found, offsets)

    def _read_on(self, stored: TopicLog, read: dict[int, int], offsets: SourceOffsets) -> bool:
        """Read partitions of the offsets topic from the last read position. Return True when more will follow: Kafka
        acknowledges a commit before its marker is in the topic, and a read after that must see the commit.
        """
        assert self.topic is not None
        for number, (beginning, end) in stored.ranges().items():
            if number in read:
                for message in stored.read(number, max(beginning, read[number]), end):
                    offsets.apply(message.key(), message.value())
                read[number] = end
        beyond = OpenTransactionScan(self.topic, self._owner, stored.admin, self._unstable)
        ends = beyond.ends(read)
        held = {number: end for number, end in read.items() if end < ends[number]}
        return bool(held and beyond.own_ends(held, ends))

    def read_fenced(self, fence: Fence) -> Replays:
        """The log after `fence` has taken over; creates the offsets topic when there is none."""
        found = self._empty()
        if self._in_file is not None:
            return self._with_offsets(found, self._of_file(self._in_file, SourceOffsets(self._owner)))
        assert self.topic is not None
        spec, topic, admin = self._spec, self.topic, self._log.admin
        ensure_topic(admin, topic, *offsets_topic_settings(spec))
        with closing(self._consumer()) as consumer:
            beyond = OpenTransactionScan(topic, self._owner, admin, self._unstable)
            hung = OffsetsFinisher(topic, self._owner, spec.transactional_id, fence, self._unstable)
            return self._with_offsets(found, source_offsets.read(consumer, topic, self._owner, beyond, hung))

    def records(self, found: Replays, partitions: Iterable[int]) -> dict[bytes, bytes | None]:
        """Log records (key and value) of these partitions and of the requests. Raises DataError."""
        offsets = SourceOffsets(self._owner)
        parts: list[int | None] = [None, *sorted(partitions)]
        return dict(offsets.record(found.source_partition(one), found.offset_of(one)) for one in parts)

    def _empty(self) -> Replays:
        return Replays(self._log.topic, self._log.topic_id())

    def _parts(self) -> list[int | None]:
        return [None, *range(self._log.partition_counts([self._log.topic]).get(self._log.topic, 0))]

    def _of_file(self, in_file: Callable[[str], Mapping[bytes, bytes]], offsets: SourceOffsets) -> SourceOffsets:
        for key, value in in_file(self._owner).items():
            offsets.apply(key, value)
        return offsets

    def _with_offsets(self, found: Replays, offsets: SourceOffsets) -> Replays:
        for part in self._parts():
            found.take(part, offsets.committed_offset(found.source_partition(part)))
        return found
