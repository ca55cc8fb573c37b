"""Tests of `-o` of the commands that print records: every format, record by record."""

from __future__ import annotations

import csv
import json
from typing import Any

import pytest
import typer
import yaml
from hypothesis import given
from hypothesis import strategies as st

from herdmesh.cli.display.output import FORMATS, RECORD_FORMATS, Format
from herdmesh.cli.display.records import RecordPrinter
from herdmesh.connect.model import ConnectRecord, Header

RECORDS = [
    ConnectRecord("t", 1, b"k", b'{"a": 1}', 12, [Header("h", b"v")], offset=3),
    ConnectRecord("t", 1, None, b'line\nwith, quote"', None, [], offset=4),
]


def printed(output: str, records: Any = RECORDS, **options: Any) -> str:
    printer = RecordPrinter(Format.parse_of_records(output), headers=options.pop("headers", True), **options)
    return b"".join(line for record in records for line in printer.lines([record])).decode()


def test_each_format_prints_every_record_once() -> None:
    assert printed("table").splitlines() == [
        "TIME  RECORD  KEY  VALUE",
        '1970-01-01T00:00:00.012Z  1:3  k  {"a": 1}  [h=v]',
        '-  1:4  null  line\\nwith, quote"',
    ]
    assert printed("wide").splitlines()[1].split("  ")[1] == "t-1:3"
    assert [json.loads(line)["offset"] for line in printed("json").splitlines()] == [3, 4]
    assert [one["value"] for one in yaml.safe_load_all(printed("yaml"))] == ['{"a": 1}', 'line\nwith, quote"']
    assert printed("name") == "record/t-1:3\nrecord/t-1:4\n"
    assert printed("value") == '{"a": 1}\nline\nwith, quote"\n'
    assert printed("jsonpath={.offset}") == "3\n4\n"
    assert json.loads(printed("typed").splitlines()[0])["topic"] == "t"


def test_csv_has_the_same_columns_for_every_record() -> None:
    header, first, second = csv.reader(printed("csv").splitlines(keepends=True))
    assert header == ["topic", "partition", "offset", "timestamp", "key", "value", "headers"]
    assert first == ["t", "1", "3", "12", "k", '{"a": 1}', '[{"key": "h", "value": "v"}]']
    assert second == ["t", "1", "4", "", "", 'line\nwith, quote"', ""]


@pytest.mark.parametrize("output", ["table", "wide", "csv"])
def test_no_headers_leaves_out_the_line_of_column_names(output: str) -> None:
    assert printed(output).splitlines()[1:] == printed(output, headers=False).splitlines()


def test_value_and_typed_are_formats_of_records_alone() -> None:
    assert set(RECORD_FORMATS) - set(FORMATS) == {"value", "typed"}
    for name in ("value", "typed"):
        assert Format.parse_of_records(name).is_document
        with pytest.raises(typer.BadParameter):
            Format.parse(name)


@given(st.binary(max_size=20), st.none() | st.binary(max_size=20))
def test_no_control_character_of_a_record_reaches_the_terminal(value: bytes, key: bytes | None) -> None:
    (line,) = printed("table", [ConnectRecord("t", 0, key, value, None, [], offset=0)], headers=False).splitlines()
    assert line.isprintable()
