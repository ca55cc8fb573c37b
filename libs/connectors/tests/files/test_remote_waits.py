"""Test that each call of a remote file system is a wait
with its location, so that a hanging call is visible.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from herdmesh.connect.spi import waits
from herdmesh.connectors.files.remote_files import RemoteFiles

LOCATION = "s3://bucket/orders"


class Named:
    """A file system that checks the reported wait at each of its calls."""

    type_name = "s3"

    def __init__(self, folder: Path) -> None:
        self._system: Any = fs.SubTreeFileSystem(str(folder), fs.LocalFileSystem())
        self.calls: dict[str, str] = {}

    def __getattr__(self, name: str) -> Any:
        if name == "open_output_stream":
            return self._opened

        def call(*args: Any, **more: Any) -> Any:
            self.note(name)
            return getattr(self._system, name)(*args, **more)

        return call

    def _opened(self, *args: Any, **more: Any) -> Any:
        self.note("open_output_stream")
        return _Stream(self._system.open_output_stream(*args, **more), self)

    def note(self, name: str) -> None:
        wait = waits.current().shown()
        assert wait is not None, f"{name} is called, and nobody is told that it is waited for"
        assert wait.waits_for == LOCATION
        self.calls[name] = wait.message


class _Stream:
    def __init__(self, stream: Any, system: Named) -> None:
        self._stream, self._system = stream, system

    def __enter__(self) -> Any:
        return self._stream.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._system.note("close")
        self._stream.__exit__(*error)


def test_every_call_is_a_wait_with_its_location(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waits, "SHOWN_AFTER_S", 0.0)
    (tmp_path / ".staged").mkdir()
    system = Named(tmp_path)
    files = RemoteFiles(system, "", LOCATION, renames=False)
    with files.writing(".staged/a") as stream:
        stream.write(b"rows")
        assert waits.current().shown() is None, "what the task writes by itself is no wait"
    assert files.staged() == [".staged/a"]
    assert files.publish(".staged/a", "a")
    assert files.publish(".staged/a", "a")
    assert files.read("a") == b"rows"
    files.delete(".staged/a")
    assert not files.exists(".staged/a")
    assert system.calls == {
        "open_output_stream": "opening .staged/a",
        "close": "uploading the rest of .staged/a",
        "get_file_info": "looking for .staged/a",
        "copy_file": "publishing a",
        "open_input_stream": "reading a",
        "delete_file": "deleting .staged/a",
    }
    assert waits.current().shown() is None
