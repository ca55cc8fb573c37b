"""Tests of reading and writing lines of files, without Kafka."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herdmesh.connect.errors import ConfigError
from herdmesh.connect.spi.connector import Config, SinkBatch, SourceTaskContext, TaskContext
from herdmesh.connectors.file_stream.sink.connector import FileStreamSink
from herdmesh.connectors.file_stream.sink.task import FileStreamSinkTask
from herdmesh.connectors.file_stream.source import task as file_stream_source_task
from herdmesh.connectors.file_stream.source.connector import FileStreamSource
from herdmesh.connectors.file_stream.source.task import FileStreamSourceTask, split_lines
from herdmesh.connectors.values import lines
from herdmesh.connectors.values.payloads import payloads
from herdmesh.engine.runtime.errors import OffsetsLost


def source(path: Path, position: int | None = None, more: Mapping[str, str] | None = None) -> FileStreamSourceTask:
    task = FileStreamSourceTask()
    offset = None if position is None else {"position": position}
    settings: Config = {"file": str(path), "topic": "t", **(more or {})}
    task.start(settings, SourceTaskContext("c", 0, 1, "run", lambda _partition: offset))
    return task


def everything(task: FileStreamSourceTask) -> tuple[list[Any], int | None]:
    """Return all present values, and the position after them."""
    values: list[Any] = []
    position = None
    while (batch := task.poll()) is not None:
        values.extend(batch.values)
        assert batch.source_offset is not None
        position = batch.source_offset["position"]
    return values, position


def test_complete_lines_are_sent_and_the_position_is_after_them(tmp_path: Path) -> None:
    path = tmp_path / "in.txt"
    path.write_bytes("é\r\ntwo\nthree\rhalf".encode())
    task = source(path)
    assert everything(task) == (["é", "two", "three"], len("é\r\ntwo\nthree\r".encode()))
    with path.open("ab") as file:
        file.write(b" done\n")
    assert everything(task) == (["half done"], path.stat().st_size)
    task.stop()


@pytest.mark.parametrize("data", ["\u00e9\n\nb\n", "a\r\nb\rc\r\r\n\n", "a\x0bb\x85\u2028c\n"])
def test_values_are_lines_without_line_ends(tmp_path: Path, data: str) -> None:
    path = tmp_path / "in.txt"
    path.write_bytes(b"bad \xe2\x82\n" + data.encode())
    values, position = everything(source(path))
    assert values == ["bad \ufffd", *re.split("\r\n|\r|\n", data)[:-1]]
    assert position == path.stat().st_size


@given(
    st.lists(st.sampled_from(["a", "bc", "", "é", "\ud55c", "\udcff", "\v", " "]), max_size=40),
    st.lists(st.sampled_from(["\n", "\n", "\r\n", "\r"]), min_size=40, max_size=40),
    st.integers(1, 5),
    st.integers(1, 8),
)
def test_every_line_is_sent_once_unchanged_for_any_read_and_batch_size(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], ends: list[str], read_bytes: int, batch: int
) -> None:
    path = tmp_path_factory.mktemp("lines") / "in.txt"
    data = [f"{line}{end}".encode("utf-8", "surrogateescape") for line, end in zip(lines, ends, strict=False)]
    path.write_bytes(b"".join(data) + b"half")
    at = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_stream_source_task, "READ_BYTES", read_bytes)
        task = source(path, more={"batch.size": str(batch)})
        for found in iter(task.poll, None):
            assert found.source_offset is not None
            begin, at = at, found.source_offset["position"]
            whole = path.read_bytes()[begin:at].replace(b"\r\n", b"\n").replace(b"\r", b"\n")
            assert list(found.values) == whole.decode("utf-8", "replace").split("\n")[:-1]
            assert 0 < len(found.values) <= batch
        task.stop()
    assert at == sum(map(len, data))


def test_a_source_continues_from_its_position(tmp_path: Path) -> None:
    path = tmp_path / "in.txt"
    path.write_text("a\nb\nc\n")
    task = source(path, position=2)
    assert everything(task) == (["b", "c"], 6)
    task.stop()


def test_batches_respect_the_maximum_and_have_their_own_offset(tmp_path: Path) -> None:
    path = tmp_path / "in.txt"
    path.write_text("".join(f"{number}\n" for number in range(10)))
    task = source(path, more={"batch.size": "4"})
    batches = list(iter(task.poll, None))
    assert [(len(batch), batch.source_offset) for batch in batches] == [
        (4, {"position": 8}), (4, {"position": 16}), (2, {"position": 20}),
    ]  # fmt: skip
    task.stop()


def test_a_missing_file_is_a_wait(tmp_path: Path) -> None:
    path = tmp_path / "later.txt"
    task = source(path)
    assert task.poll() is None
    path.write_text("now\n")
    assert everything(task) == (["now"], 4)
    task.stop()


def test_a_truncated_file_fails_or_is_read_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "in.txt"
    path.write_text("a\n")
    task = source(path, position=100)
    with pytest.raises(OffsetsLost, match="has 2 bytes, 100 were read before"):
        task.poll()
    task.stop()
    anew = source(path, position=100, more={"herdmesh.offsets.missing": "reset"})
    assert everything(anew) == (["a"], 2)
    anew.stop()


def test_a_position_of_the_wrong_type_is_refused(tmp_path: Path) -> None:
    task = FileStreamSourceTask()
    context = SourceTaskContext("c", 0, 1, "run", lambda _partition: {"position": "5"})
    with pytest.raises(ConfigError, match="Offset position is the incorrect type"):
        task.start({"file": str(tmp_path / "x"), "topic": "t"}, context)


def test_the_sign_changes_with_the_file(tmp_path: Path) -> None:
    connector, config = FileStreamSource(), {"file": str(tmp_path / "in.txt"), "topic": "t"}
    absent = connector.sign(config)
    (tmp_path / "in.txt").write_text("a\n")
    first = connector.sign(config)
    assert first == connector.sign(config)
    (tmp_path / "in.txt").write_text("a\nb\n")
    assert len({absent, first, connector.sign(config)}) == 3


@given(st.binary(max_size=30).map(lambda data: re.sub(rb"[^\r\n]", b"x", data)), st.integers(0, 30))
def test_lines_do_not_depend_on_the_read_size(data: bytes, at: int) -> None:
    first, left = split_lines(data[:at])
    second, rest = split_lines(left + data[at:])
    whole, remainder = split_lines(data)
    assert first + second == whole
    assert rest == remainder
    assert b"".join(whole) + remainder == data


def test_strings_are_written_unchanged_and_other_values_as_json() -> None:
    def lines_of(values: list[Any]) -> bytes:
        return lines.lines_of(values, None, payloads())

    assert lines_of([{"a": 1.0, "b": None}, {"é": [True]}]) == '{"a":1.0,"b":null}\n{"é":[true]}\n'.encode()
    assert lines_of(["té", None, 5, b"raw", {"a": 1}]) == 'té\nnull\n5\nraw\n{"a":1}\n'.encode()
    assert lines_of([{"lone": "\ud800"}]) == b'{"lone":"\\uD800"}\n'
    assert lines_of(["té", "", "a\nb", "lone \ud800"]) == "té\n\na\nb\nlone ?\n".encode()
    assert lines_of([]) == b""


@pytest.mark.parametrize("connector", [FileStreamSource(), FileStreamSink()])
def test_standard_streams_are_refused_by_the_field(connector: FileStreamSource | FileStreamSink) -> None:
    (problem,) = connector.validate({"topic": "t", "topics": "t"})
    assert problem.field == "file"
    with pytest.raises(ConfigError, match='"file"'):
        connector.start({"topic": "t", "topics": "t"})


def test_a_sink_file_must_be_writable(tmp_path: Path) -> None:
    connector = FileStreamSink()
    assert connector.validate({"file": str(tmp_path / "new.txt")}) == []
    for bad in (tmp_path, tmp_path / "no" / "file.txt"):
        (problem,) = connector.validate({"file": str(bad)})
        assert problem.field == "file"


def test_a_sink_on_a_pipe_can_flush_before_the_first_record(tmp_path: Path) -> None:
    """A pipe cannot be made durable: fsync fails with EINVAL, and the commit would fail the task."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    task = FileStreamSinkTask()
    try:
        task.start({"file": str(path)}, TaskContext("c", 0, 1, "connect-c", "run"))
        task.flush()
        task.put(SinkBatch("t", 0, 0, 1, ["a", "b"], [None, None], [0, 1], [None, None]))
        task.flush()
        assert os.read(reader, 100) == b"a\nb\n"
    finally:
        task.stop()
        os.close(reader)
