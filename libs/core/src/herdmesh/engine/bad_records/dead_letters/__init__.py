"""Dead letter queue: failed records, written to a topic of their own (docs/reference/connect/data-model.md, section
5.4).

`letter` says what one is made of and how one that is too large is cut; `queue` owns the topic, handing letters to a
producer, and the error of one that is not taken; `sink` and `source` say when letters are safe.

Invariant: no offset is committed past a record whose letter is not in the topic, whole or cut. A letter that Kafka does
not take at all fails the task with an error that names the record's place and what to change. Connect logs such a
letter and commits; the record is lost then (docs/reference/differences.md).
"""

from __future__ import annotations

from herdmesh.engine.bad_records.dead_letters.queue import make_topic, size_max
from herdmesh.engine.bad_records.dead_letters.sink import SinkDeadLetters
from herdmesh.engine.bad_records.dead_letters.source import SourceDeadLetters

__all__ = ["SinkDeadLetters", "SourceDeadLetters", "make_topic", "size_max"]
