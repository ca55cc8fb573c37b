"""Dead letter queue: failed records, written to a topic of their own (docs/reference/connect/data-model.md, section
5.4).

`dead_letter` defines the content of a dead letter and how one that is too large is cut; `queue` owns the topic, the
sending by a producer, and the error of one that Kafka rejects; `sink` and `source` know when dead letters are safe.

Invariant: no offset is committed past a record whose dead letter is not in the topic, whole or cut. A dead letter that
Kafka rejects in every form fails the task with an error that names the record's place and the fix. Connect logs such a
dead letter and commits; the record is lost then (docs/reference/differences.md).
"""

from __future__ import annotations

from herdmesh.engine.bad_records.dead_letters.queue import make_topic, size_max
from herdmesh.engine.bad_records.dead_letters.sink import SinkDeadLetters
from herdmesh.engine.bad_records.dead_letters.source import SourceDeadLetters

__all__ = ["SinkDeadLetters", "SourceDeadLetters", "make_topic", "size_max"]
