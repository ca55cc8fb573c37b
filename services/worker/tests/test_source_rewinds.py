"""Rewind of a stopped source to a time, with the positions that its connector returns, in the offsets topic and in the
file of a standalone worker. Each connector that supports it has its own test.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from herdmesh.connect.config.config_def import ConfigDef
from herdmesh.connect.errors import ConfigError
from herdmesh.connect.spi.connector import Config, SourceConnector
from herdmesh.connectors.file_stream.source.connector import FileStreamSource
from herdmesh.worker import plugin_process
from herdmesh.worker.effects.offsets.offset_file import OffsetFile
from herdmesh.worker.effects.plugins import remote_connectors
from herdmesh.worker.effects.plugins.plugin_processes import PluginProcess
from herdmesh.worker.effects.plugins.remote_connectors import RemoteSource
from services.worker.tests.test_offsets import NOWHERE, bench, source


def test_a_source_without_offsets_at_is_not_rewound(tmp_path: Path) -> None:
    """Nor is one moved forward, or one without offsets."""
    file = OffsetFile(str(tmp_path / "offsets"))
    file.open()
    try:
        here, config = bench(NOWHERE), source(tmp_path / "a")
        here.offset_file = file
        with pytest.raises(ConfigError, match="has no offsets, so there is nothing to rewind"):
            here.change(config, rewind_to_ms=5)
        here.change(config, ({"filename": "a"}, {"position": 3}))
        with pytest.raises(ConfigError, match="FileStreamSourceConnector cannot be rewound to a time"):
            here.change(config, rewind_to_ms=5)
        with pytest.raises(ConfigError, match="a source cannot be moved forward to a time"):
            here.change(config, rewind_to_ms=5, allow_forward=True)
    finally:
        file.close()


@pytest.mark.kafka
@pytest.mark.parametrize("kept_in", ["topic", "file"])
def test_a_source_is_rewound_to_the_positions_its_connector_returns(
    kept_in: str,
    tmp_path: Path,
    tmp_topic: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    """Its `alter_offsets` checks them as it does a user's; a dry run has the same result."""
    asked: list[tuple[int, Any]] = []

    def offsets_at(_self: FileStreamSource, _config: Any, time_ms: int, committed: Any) -> Any:
        asked.append((time_ms, committed))
        if time_ms == 9:
            return [({"filename": "stranger"}, None)]
        return [(partition, {"position": time_ms}) for partition, _ in committed if partition["filename"] == "b"]

    monkeypatch.setattr(FileStreamSource, "offsets_at", offsets_at)
    a, b = ({"filename": "a"}, {"position": 30}), ({"filename": "b"}, {"position": 40})
    back = ({"filename": "b"}, {"position": 5})
    file = OffsetFile(str(tmp_path / "offsets"))
    file.open()
    try:
        if kept_in == "file":
            here = bench(NOWHERE)
            here.offset_file = file
        else:
            here = bench(request.getfixturevalue("kafka_bootstrap"), tmp_topic("offsets"))
        config = source(tmp_path / "a")
        here.change(config, a, b)
        assert here.change(config, rewind_to_ms=5, dry_run=True)[0] == [a, back]
        assert here.read(config) == [a, b]
        assert here.change(config, rewind_to_ms=5)[0] == here.read(config) == [a, back]
        with pytest.raises(ConfigError, match="should be a non-negative value"):
            here.change(config, rewind_to_ms=-1)
        with pytest.raises(ConfigError, match="rewinds source partitions that have no offset"):
            here.change(config, rewind_to_ms=9)
        assert here.read(config) == [a, back]
    finally:
        file.close()
    assert asked[:2] == [(5, [a, b]), (5, [a, b])]


class Remembering(SourceConnector):
    """Source of a plugin folder that knows its earlier positions, but not before 5."""

    class_name, version = "org.example.Remembering", "1"

    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef()

    def task_class(self) -> str:
        return "m:T"

    def task_configs(self, max_tasks: int) -> list[dict[str, str | None]]:
        return []

    def offsets_at(self, config: Config, time_ms: int, committed: Any) -> Any:
        assert config["x"] == "y"
        return None if time_ms < 5 else [(partition, {"n": offset["n"] - 1}) for partition, offset in committed]


class Line:
    """A plugin's process, in this one; everything passes through JSON as on the way there."""

    def line(self) -> Line:
        return self

    def call(self, what: str, _entry: str, *arguments: Any, instance: str = "") -> Any:
        given = msgspec.json.decode(msgspec.json.encode(arguments), type=tuple[Any, ...])
        return msgspec.json.decode(msgspec.json.encode(plugin_process.call_method(Remembering(), what, given)))


def test_a_plugin_folders_connector_is_called_in_its_process_for_a_rewind() -> None:
    class Remote(RemoteSource):
        remote = remote_connectors.Remote(cast("PluginProcess", Line()), "m:C", ConfigDef())

    committed = [({"p": 1}, {"n": 7}), (None, {"n": 3})]
    assert Remote().offsets_at({"x": "y"}, 5, committed) == [({"p": 1}, {"n": 6}), (None, {"n": 2})]
    assert Remote().offsets_at({"x": "y"}, 4, committed) is None
