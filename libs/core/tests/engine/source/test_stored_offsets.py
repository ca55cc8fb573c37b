"""Records of an offsets topic that count as a connector's offsets (docs/reference/connect/offsets-topic.md, sections
1.1, 3 and 4).
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herdmesh.connect.error_class import ErrorClass
from herdmesh.connect.errors import DataError
from herdmesh.connect.topics import offsets_topic
from herdmesh.engine import TaskFailed, TaskKind
from herdmesh.engine.runtime.settings import source_settings
from herdmesh.engine.source.source_offsets import SourceOffsets
from herdmesh.engine.source.stored_offsets import topics
from libs.core.tests.engine.harness import make_spec

_connectors = st.sampled_from(["c", "c-1", "d"])
_partitions = st.none() | st.fixed_dictionaries({"p": st.integers(0, 2)})
_values = st.none() | st.fixed_dictionaries({"n": st.integers(0, 9)})


@given(st.lists(st.tuples(_connectors, _partitions, _values)))
def test_the_last_record_of_a_key_counts_and_null_deletes_it(
    records: list[tuple[str, dict[str, int] | None, dict[str, int] | None]],
) -> None:
    """The same over both topics: a record applied later counts, and records of other connectors do not."""
    offsets = SourceOffsets("c")
    wanted: dict[bytes, Any] = {}
    for connector, partition, value in records:
        key = offsets_topic.encode_key(connector, partition)
        offsets.apply(key, offsets_topic.encode_value(value))
        if connector == "c":
            wanted[key] = value
    found = {key: offsets_topic.decode_value(value) for key, value in offsets.items().items()}
    assert found == {key: value for key, value in wanted.items() if value is not None}
    for partition in (None, *({"p": number} for number in range(3))):
        key = offsets_topic.encode_key("c", partition)
        assert offsets.committed_offset(partition) == wanted.get(key)


@pytest.mark.parametrize("key", [None, b"", b"c", b"[]", b'["c"]', b'["c",5]', b'[null,{"p":1}]', b'["c",{"p":1},2]'])
def test_a_key_of_another_format_belongs_to_no_connector(key: bytes | None) -> None:
    offsets = SourceOffsets("c")
    offsets.apply(key, b'{"n":1}')
    assert offsets.items() == {}


@pytest.mark.parametrize("value", [b"[]", b"5", b"{bad", b'{"n":{"m":1}}'])
def test_an_unreadable_offset_is_an_error_and_not_a_missing_offset(value: bytes) -> None:
    """Connect ignores it, and its task begins from the start, which sends all records again."""
    offsets = SourceOffsets("c")
    offsets.apply(b'["c",{"p":1}]', value)
    with pytest.raises(TaskFailed, match=r"the stored offset of c for \{'p': 1\} cannot be read") as refused:
        offsets.committed_offset({"p": 1})
    assert refused.value.error_class is ErrorClass.FATAL


def test_a_partition_that_can_have_no_offset_is_refused() -> None:
    wrong: Any = {"p": [1]}
    with pytest.raises(DataError, match="Offsets may only contain primitive types as values"):
        SourceOffsets("c").committed_offset(wrong)


@pytest.mark.parametrize(
    ("own", "found"),
    [("", ["shared"]), ("shared", ["shared"]), ("own", ["shared", "own"]), (" own ", ["shared", "own"])],
)
def test_the_connectors_offsets_topic_is_read_over_the_workers(own: str, found: list[str]) -> None:
    config = {"offsets.storage.topic": own}
    spec = make_spec("b:1", "c", "x:Y", config, kind=TaskKind.SOURCE, offset_storage_topic="shared")
    assert topics(source_settings(spec)) == found
