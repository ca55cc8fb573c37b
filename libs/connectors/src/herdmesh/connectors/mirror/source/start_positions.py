"""Start positions of a mirror's task in the source's partitions, and the source offsets that it stores.

Owns the stored offset: MirrorMaker's own (`{"offset": 41}`, the last copied record), and `topic_id` beside it, Kafka's
id of the source topic, which Java's MirrorMaker ignores. By that id a deleted and recreated topic is distinguished from
the earlier one, whose offsets do not apply to its records. Owns the meaning of `auto.offset.reset` here. Reading:
`task`.

No two topics have the same id. So a topic that has the same id after records were read as before is the topic of these
records: `vouched` checks that before each commit.

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
"""How often a run asks whether its topics are still the same, at most."""
_IDS_SHARE: Final = 0.02
"""Of a run's time, so much goes into these questions at most."""
_VOUCH_S: Final = 5.0
"""How long a commit waits for an answer."""
_log = logging.getLogger(__name__)


class Places:
    """Of one task. `stored`: the offset stored of a partition. Raises OffsetsLost for one that is no mirror's."""

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
        #: of the topics as this run reads them.
        self._ids: dict[str, str] = {topic: one for (topic, _), (_, one) in self._stored.items() if one}
        self._ask_at_s = 0.0
        #: read since the ids were asked for.
        self._unvouched: set[str] = set()

    def begin(self) -> tuple[dict[PartitionId, int], dict[PartitionId, int]]:
        """The offset to read first in each partition that there is, and those that are to be stored at once, because
        they were chosen by the time of the question. Asks the source.

        Raises:
            RetriableError: it does not answer.
            TaskFailed: BAD_CONFIG, of `auto.offset.reset=none`.
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
        """Where `auto.offset.reset` begins in these, without those gone. Asks the source. Raises as `begin`."""
        asked = list(partitions)
        begins_ms = self._reset.begins_ms(int(time.time() * 1000))
        if self._reset.start is Start.EARLIEST or not asked:
            return dict.fromkeys(asked, BEGINNING)
        if self._reset.start is Start.NONE:
            raise no_offset(asked, f"the mirror of {self._source.name}")
        ends = self._source.ends(asked)
        return ends if begins_ms is None else ends | self._source.offsets_at(ends, begins_ms)

    def read_of(self, topic: str) -> None:
        """Records of it were read."""
        self._unvouched.add(topic)

    def vouched(self) -> bool:
        """Whether all records read so far are of the topics whose ids are stored with them. Asks the source of those
        topics that were read since it was last asked. True where it does not answer: it is asked again with the next
        records, and nothing is to stop while one broker is slow."""
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
        """The topics that are others than when this was asked last; and those of them of which records were read since,
        so that nobody knows which topic these are of. Seldom asked, unless there is a place `beyond` the end of a
        topic: all that was read of that one is of the topic before. Raises RetriableError."""
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
        """The task's."""
        return [one for one in self._stored if one[0] in topics]

    def offset(self, partition: PartitionId, copied: int) -> dict[str, Any]:
        """What is stored once the record at `copied` is."""
        topic_id = self._ids.get(partition[0])
        return {"offset": copied, "topic_id": topic_id} if topic_id else {"offset": copied}

    def _asked(self) -> dict[str, str]:
        begun_s = time.monotonic()
        found = self._source.topic_ids(self._topics)
        now_s = time.monotonic()
        self._ask_at_s = now_s + max(IDS_S, (now_s - begun_s) / _IDS_SHARE)
        return found


_MADE_AGAIN: Final = (
    "topic %s of the source cluster %s was deleted and made again: what was copied of it says nothing of its records, "
    "and it is begun anew, by auto.offset.reset"
)
_NOT_VOUCHED: Final = (
    "a commit goes on without knowing whether the topics that it has records of were made again; if one was, its "
    "records are copied from the first on all the same, and some of them twice"
)
_READ_OF_WHICH: Final = (
    "topic %s of the source cluster %s was deleted and made again while it was read: what was read of it and is not "
    "committed is given up, as nobody can say which of the two it is of, and the new topic is begun anew, by "
    "auto.offset.reset"
)


def _read(offset: Mapping[str, Any] | None) -> tuple[int | None, str]:
    """The last record copied, None = none was; and the id of its topic, "" = not known."""
    if offset is None:
        return None, ""
    copied, topic_id = offset.get("offset"), offset.get("topic_id")
    if isinstance(copied, bool) or not isinstance(copied, int):
        raise OffsetsLost(f"the stored offset {dict(offset)} is none of a mirror's: it needs a number 'offset'")
    return copied, topic_id if isinstance(topic_id, str) else ""
