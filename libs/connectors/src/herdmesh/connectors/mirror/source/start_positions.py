"""Start positions of a mirror's task in the source's partitions, and the source offsets that it stores.

Owns the stored offset: MirrorMaker's own (`{"offset": 41}`, the last copied record), and
`topic_id` beside it, Kafka's id of the source topic, which Java's MirrorMaker ignores. By
that id a deleted and recreated topic is distinguished from the earlier one, whose offsets
do not apply to its records. Owns the meaning of `auto.offset.reset` here. Reading: `task`.

No two topics have the same id. So if the id is unchanged after records were read, the records belong to this topic:
`vouched` checks that before each commit.

Invariant: an offset of a recreated topic's predecessor is never used, and no offset is stored for records that may
belong to another topic than it names.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from herdmesh.connect.clients import OffsetReset, Start
from herdmesh.engine.sink import no_offset
from herdmesh.engine.source import BEGINNING, SourceCluster
from herdmesh.sdk import OffsetsLost, PartitionId, RetriableError

IDS_S: Final = 10.0
"""Minimum interval of a run's checks for recreated topics."""
_IDS_SHARE: Final = 0.02
"""Maximum share of a run's time that these checks may take."""
_VOUCH_S: Final = 5.0
"""Maximum wait of a commit for a response."""
_log = logging.getLogger(__name__)


class Places:
    """Positions of one task. `stored`: returns the stored offset of a
    partition. Raises OffsetsLost for an offset that is not a mirror's.
    """

    def __init__(
        self,
        source: SourceCluster,
        reset: OffsetReset,
        partitions: Iterable[PartitionId],
        stored: Callable[[PartitionId], Mapping[str, Any] | None],
    ) -> None:
        self._source = source
        self._reset = reset
        self._stored = {one: _read(stored(one)) for one in partitions}
        self._topics = sorted({topic for topic, _ in self._stored})
        #: ids of the topics that this run reads.
        self._ids: dict[str, str] = {topic: one for (topic, _), (_, one) in self._stored.items() if one}
        self._ask_at_s = 0.0
        #: topics that were read since their ids were last queried.
        self._unvouched: set[str] = set()

    def begin(self) -> tuple[dict[PartitionId, int], dict[PartitionId, int]]:
        """Return the first offset to read in each existing partition, and the offsets to store at once, because they
        depend on the time of this query. Queries the source.

        Raises:
            RetriableError: the source does not respond.
            TaskFailed: BAD_CONFIG, with `auto.offset.reset=none`.
        """
        self._ids |= self._asked()
        places, unknown = dict[PartitionId, int](), list[PartitionId]()
        for partition, (offset, topic_id) in self._stored.items():
            if offset is not None and topic_id in ("", self._ids.get(partition[0], topic_id)):
                places[partition] = offset + 1
                continue
            if offset is not None:
                _log.warning(_MADE_AGAIN, partition[0], self._source.name)
            unknown.append(partition)
        begun = self.anew(unknown)
        return places | begun, begun if self._reset.depends_on_time else {}

    def anew(self, partitions: Iterable[PartitionId]) -> dict[PartitionId, int]:
        """Return the start of these partitions by `auto.offset.reset`,
        without deleted ones. Queries the source. Raises like `begin`.
        """
        asked = list(partitions)
        begins_ms = self._reset.begins_ms(int(time.time() * 1000))
        if self._reset.start is Start.EARLIEST or not asked:
            return dict.fromkeys(asked, BEGINNING)
        if self._reset.start is Start.NONE:
            raise no_offset(asked, f"the mirror of {self._source.name}")
        ends = self._source.ends(asked)
        return ends if begins_ms is None else ends | self._source.offsets_at(ends, begins_ms)

    def read_of(self, topic: str) -> None:
        """Note that records of this topic were read."""
        self._unvouched.add(topic)

    def vouched(self) -> bool:
        """Return whether all records read so far belong to the topics whose ids are stored with them. Queries the
        source about the topics read since the last query. True if the source does not respond: the query is repeated
        with the next records, so that one slow broker does not stop the task.
        """
        if not self._unvouched:
            return True
        before = dict(self._ids)
        try:
            self._ids |= self._source.topic_ids(self._unvouched, _VOUCH_S)
        except RetriableError as error:
            _log.warning("%s: %s", _NOT_VOUCHED, error)
            return True
        again = {topic for topic in self._unvouched if self._is_another(topic, before)}
        self._unvouched.clear()
        for topic in sorted(again):
            _log.warning(_READ_OF_WHICH, topic, self._source.name)
        return not again

    def made_again(self, *, beyond: str = "") -> tuple[set[str], set[str]]:
        """Return the topics recreated since the last query, and those of them that were read since, whose records may
        belong to either topic. Queries at intervals, and at once if a position is beyond the end of the topic `beyond`:
        all records read from that one belong to its predecessor. Raises RetriableError.
        """
        if time.monotonic() < self._ask_at_s and not beyond:
            return set(), set()
        before = dict(self._ids)
        self._ids |= self._asked()
        again = {topic for topic in self._ids if self._is_another(topic, before)}
        unsure = again & self._unvouched - {beyond}
        self._unvouched.clear()
        for topic in sorted(again):
            _log.warning(_READ_OF_WHICH if topic in unsure else _MADE_AGAIN, topic, self._source.name)
        return again, unsure

    def _is_another(self, topic: str, before: Mapping[str, str]) -> bool:
        return before.get(topic, self._ids.get(topic)) != self._ids.get(topic)

    def partitions_of(self, topics: set[str]) -> list[PartitionId]:
        """Return the task's partitions of these topics."""
        return [one for one in self._stored if one[0] in topics]

    def offset(self, partition: PartitionId, copied: int) -> dict[str, Any]:
        """Return the offset to store once the record at `copied` is stored."""
        topic_id = self._ids.get(partition[0])
        return {"offset": copied, "topic_id": topic_id} if topic_id else {"offset": copied}

    def _asked(self) -> dict[str, str]:
        begun_s = time.monotonic()
        found = self._source.topic_ids(self._topics)
        now_s = time.monotonic()
        self._ask_at_s = now_s + max(IDS_S, (now_s - begun_s) / _IDS_SHARE)
        return found


_MADE_AGAIN: Final = (
    "topic %s of the source cluster %s was deleted and created again: the position in the old topic is discarded, and "
    "the new topic is copied from its start or end, by auto.offset.reset"
)
_NOT_VOUCHED: Final = (
    "the ids of the source's topics cannot be read, and the commit continues without them; if a topic was deleted and "
    "created again meanwhile, it is copied from its first record, and some records twice"
)
_READ_OF_WHICH: Final = (
    "topic %s of the source cluster %s was deleted and created again while it was read: uncommitted records are "
    "discarded, as they may be of either topic, and the new topic is copied from its start or end, by "
    "auto.offset.reset"
)


def _read(offset: Mapping[str, Any] | None) -> tuple[int | None, str]:
    """Parse a stored offset: the last copied record, None = none; and the id of its topic, "" = unknown."""
    if offset is None:
        return None, ""
    copied, topic_id = offset.get("offset"), offset.get("topic_id")
    if isinstance(copied, bool) or not isinstance(copied, int):
        raise OffsetsLost(f"the stored offset {dict(offset)} is not an offset of a mirror: it needs a number 'offset'")
    return copied, topic_id if isinstance(topic_id, str) else ""
