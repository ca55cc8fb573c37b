"""A column of structs: its behaviour for readers, and its release with the last reader."""

from __future__ import annotations

import gc
import weakref

import pytest

from herdmesh.connect.model.data import Struct
from herdmesh.connect.model.schemas import INT64, STRING, Schema
from herdmesh.connect.model.struct_column import StructColumn

PAIR = Schema("STRUCT", fields=[("id", INT64), ("to", STRING)])


@pytest.mark.parametrize("read", [False, True])
def test_a_column_is_freed_without_a_garbage_collection(read: bool) -> None:
    """A run collects after 20,000 objects, and a batch of a thousand records under a schema is only a few objects."""
    column = StructColumn(PAIR, [[1, 2], ["a", "b"]], 2)
    if read:
        assert list(column) == [Struct(PAIR, [1, "a"]), Struct(PAIR, [2, "b"])]
    gone = weakref.ref(column)
    gc.disable()
    try:
        del column
        assert gone() is None
    finally:
        gc.enable()


def test_structs_once_read_override_the_columns() -> None:
    column = StructColumn(PAIR, [[1], ["a"]], 1)
    assert column.fields == [[1], ["a"]]
    column[0].values[0] = 7
    assert (column.fields, column[0].values) == (None, [7, "a"])
    assert list(StructColumn(Schema("STRUCT"), [], 2)) == [Struct(Schema("STRUCT"), [])] * 2
