"""Tests that the cases run and the table shows the measurements. The speed itself is measured by the bench, not by a
test.
"""

from __future__ import annotations

import pytest

from bench.tasks.__main__ import Row
from bench.tasks.cases import cases

TRIED = (
    "JsonConverter reads maps", "AvroConverter writes rich structs", "FileStreamSource reads lines",
    "source chain: texts, HoistField, InsertField, JsonConverter", "chain: maps, InsertField",
    "FileStreamSink: maps with nulls, InsertField", "FileSink csv: rich structs", "HttpSink: texts with quotes",
)  # fmt: skip


def test_a_case_of_each_kind_runs() -> None:
    with cases() as found:
        assert set(TRIED) <= set(found)
        for name in TRIED:
            assert found[name](1) > 0


def test_a_row_compares_the_best_rounds() -> None:
    row = Row("a case", [2.0, 4.0, 3.0], [3.0, 3.0, 6.0])
    assert row.ratio == pytest.approx(1.5)
    assert row.text.split() == ["a", "case", "3.000", "2.000", "1.50", "(0.75", "to", "2.00)"]
    assert Row("a case", [2.0]).text.split() == ["a", "case", "2.000"]
