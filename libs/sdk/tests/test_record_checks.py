"""Records with invalid fields: each is refused with the name of the field and the record's source offset."""

from __future__ import annotations

from typing import Any

import pytest

from herdmesh.connect.errors import DataError
from herdmesh.sdk import Header, SourceBatch, SourceOffset, SourceRecord
from herdmesh.sdk.records import RecordQueue


def _record(**fields: Any) -> SourceRecord:
    given: dict[str, Any] = {
        "topic": "t",
        "value": 1,
        "source_partition": {"file": "a"},
        "source_offset": {"line": 7},
        **fields,
    }
    return SourceRecord(**given)


def _batches(*records: Any) -> list[SourceBatch]:
    queue = RecordQueue(remembers=False)
    queue.add(records)
    found = list[SourceBatch]()
    while (batch := queue.next()) is not None:
        found.append(batch)
    return found


@pytest.mark.parametrize("place", [0, 1])
def test_headers_that_are_no_sequence_are_refused_with_their_record(place: int) -> None:
    records = [_record(), _record()]
    records[place] = _record(headers=5)
    with pytest.raises(
        DataError, match=r"SourceRecord.headers is 5 \(int\): it must be .* source offset \{'line': 7\}"
    ):
        _batches(*records)


@pytest.mark.parametrize("given", [{"topic": "t"}, "line", 5, None, SourceRecord])
def test_object_that_is_no_record_is_named(given: Any) -> None:
    with pytest.raises(DataError, match="in the place of a record: give a SourceRecord or SourceOffset"):
        _batches(_record(), given)


def test_valid_fields_are_accepted() -> None:
    first = _record(partition=0, timestamp_ms=1, headers=(Header("a", None),))
    (batch,) = _batches(first, _record(partition=0))
    assert (list(batch.timestamps_ms), list(batch.headers)) == ([1, None], [[Header("a", None)], []])
    assert len(_batches(SourceOffset(None, {"line": 1}))) == 1
