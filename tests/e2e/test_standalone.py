"""`herd run` with Connect's own sample files: lines flow from file to topic to file, through a kill -9."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from herdmesh.connect import offsets_file
from tests.support.standalone import herd_run, until_lines, write_samples

pytestmark = [pytest.mark.kafka, pytest.mark.spark]
SOURCE, SINK = "local-file-source", "local-file-sink"
KEY = b'["local-file-source",{"filename":"test.txt"}]'


def test_connects_samples_run_and_go_on_after_a_kill(
    kafka_bootstrap: str, tmp_topic: Callable[..., str], tmp_path: Path
) -> None:
    files = write_samples(tmp_path, kafka_bootstrap, tmp_topic())
    source, sink, offsets = tmp_path / "test.txt", tmp_path / "test.sink.txt", tmp_path / "connect.offsets"
    source.write_text("".join(f"line {number}\n" for number in range(100)))
    with herd_run(tmp_path, files) as first:
        first.until_running(SOURCE, SINK)
        until_lines(sink, 100)
        with source.open("a") as more:
            more.writelines(f"line {number}\n" for number in range(100, 200))
        until_lines(sink, 200)
        first.kill()
    with source.open("a") as more:
        more.writelines(f"line {number}\n" for number in range(200, 300))
    with herd_run(tmp_path, files) as second:
        second.until_running(SOURCE, SINK)
        lines = until_lines(sink, 300)
        assert second.stop() == 0
    assert sorted(set(lines)) == sorted(f"line {number}" for number in range(300)), "nothing is lost"
    stored = offsets_file.decode(offsets.read_bytes())
    assert stored == {KEY: b'{"position":%d}' % source.stat().st_size}
    # It went on from the file: the second run did not begin anew.
    assert len(lines) < 600
