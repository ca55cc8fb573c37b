"""Tests of the records that `herd produce` makes of files and options, without Kafka."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from herdmesh.cli.errors import CommandError
from herdmesh.cli.kafka.conversion import open_converters
from herdmesh.cli.kafka.given_records import GivenRecords, Outgoing, RecordOptions
from herdmesh.cli.kafka.options import ConverterOptions
from herdmesh.cli.transform.options import Direction, RecordForm

_SCHEMA = '{"type": "struct", "fields": [{"field": "id", "type": "int64"}, {"field": "item", "type": "string"}]}'


def made(folder: Path, data: bytes, converters: ConverterOptions | None = None, **options: Any) -> GivenRecords:
    """The records of one file; they are in `sent`."""
    (folder / "records").write_bytes(data)
    runner = None if converters is None else open_converters(converters, None, Direction.SOURCE)
    return GivenRecords("orders", RecordOptions(**options), runner)


def sent(folder: Path, given: GivenRecords) -> list[Outgoing]:
    """All records of the file that `made` wrote."""
    return [one for batch in given.batches([str(folder / "records")]) for one in batch]


def test_a_line_is_a_value_to_the_last_byte(tmp_path: Path) -> None:
    records = sent(tmp_path, made(tmp_path, b"plain \xff\r\n\n[1]\n"))
    assert [(one.key, one.value, one.partition) for one in records] == [
        (None, b"plain \xff\r", None),
        (None, b"", None),
        (None, b"[1]", None),
    ]
    assert records[2].source.endswith("records: line 3")


def test_objects_with_key_and_value_are_records_and_keep_what_they_give(tmp_path: Path) -> None:
    lines = (
        b'{"key": "a", "value": {"id": 1}, "partition": 1, "timestamp": 17, "headers": {"h": "x"}}\n'
        b'{"key": {"base64": "/w=="}, "value": null, "topic": "elsewhere", "offset": 9}\n'
    )
    given = made(tmp_path, lines, key="unused", partition=0, headers=["more=y"])
    first, second = sent(tmp_path, given)
    assert first == Outgoing(first.source, "orders", b"a", b'{"id":1}', [("h", b"x"), ("more", b"y")], 1, 17)
    assert (second.topic, second.key, second.value, second.partition) == ("orders", b"\xff", None, 0)
    assert given.form is RecordForm.RECORDS


def test_keys_come_from_a_separator_a_field_or_an_option(tmp_path: Path) -> None:
    split = made(tmp_path, b"a:1\nno key\nb:c:2\n", key_separator=":")
    assert [(one.key, one.value) for one in sent(tmp_path, split)] == [(b"a", b"1"), (b"b", b"c:2")]
    assert [text for _, text in split.refused] == ["no key: ':' is not in it"]
    by_field = made(tmp_path, b'{"id": 7}\n{"id": "x"}\n[]\n{"id": }\n', key_field="id")
    assert [one.key for one in sent(tmp_path, by_field)] == [b"7", b"x"]
    assert [where.rpartition(": ")[2] for where, _ in by_field.refused] == ["line 3", "line 4"]
    assert "its value is not JSON: Expecting value: line 1 column 8" in by_field.refused[1][1]
    assert [one.key for one in sent(tmp_path, made(tmp_path, b"1\n", key="all"))] == [b"all"]


def test_a_time_that_the_client_would_replace_by_the_present_one_is_refused(tmp_path: Path) -> None:
    given = made(tmp_path, b'{"value": "a", "timestamp": 0}\n{"value": "b", "timestamp": 1}\n')
    assert [(one.value, one.timestamp_ms) for one in sent(tmp_path, given)] == [(b"b", 1)]
    assert "timestamp 0" in given.refused[0][1]


def test_a_tombstone_and_a_null_marker_have_no_value(tmp_path: Path) -> None:
    (batch,) = GivenRecords("orders", RecordOptions(key="42", tombstone=True), None).batches([])
    assert [(one.key, one.value) for one in batch] == [(b"42", None)]
    marked = made(tmp_path, b"a=NULL\na=\n", key_separator="=", null_marker="NULL")
    assert [one.value for one in sent(tmp_path, marked)] == [None, b""]


def test_a_whole_file_is_one_record(tmp_path: Path) -> None:
    data = bytes(range(256))
    assert [one.value for one in sent(tmp_path, made(tmp_path, data, whole_files=True))] == [data]


def test_values_go_through_a_converter_under_a_schema(tmp_path: Path) -> None:
    (tmp_path / "schema.json").write_text(_SCHEMA)
    given = made(
        tmp_path,
        b'{"id": 1, "item": "apple"}\n{"id": 2}\n',
        ConverterOptions(value="JsonConverter"),
        value_schema=tmp_path / "schema.json",
        key_field="id",
        headers=["by=hand"],
    )
    (record,) = sent(tmp_path, given)
    document = json.loads(record.value or b"")
    assert document["payload"] == {"id": 1, "item": "apple"}
    assert [one["field"] for one in document["schema"]["fields"]] == ["id", "item"]
    assert (record.key, list(record.headers)) == (b"1", [("by", b"hand")])
    ((where, text),) = given.refused
    assert where.endswith("line 2")
    assert "required STRING" in text


@pytest.mark.parametrize(
    ("options", "files", "message"),
    [
        ({"tombstone": True}, [], "--tombstone needs --key"),
        ({"key": "a", "key_field": "b"}, [], "exclude one another"),
        ({"whole_files": True}, [], "--whole-files needs FILEs"),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    options: dict[str, Any], files: list[str], message: str
) -> None:
    with pytest.raises(CommandError, match=message):
        RecordOptions(**options).check(files)


def test_settings_of_converters_need_a_converter() -> None:
    with pytest.raises(CommandError, match="none is named"):
        ConverterOptions(settings=["value.converter.schemas.enable=false"]).check()
    with pytest.raises(CommandError, match="not a setting of a converter"):
        open_converters(
            ConverterOptions(value="JsonConverter", settings=["schemas.enable=false"]), None, Direction.SINK
        )
