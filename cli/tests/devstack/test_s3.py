"""Test of a real S3-compatible server in a folder: objects after kill -9, logins, and the requests of our sinks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from herdmesh.devstack.errors import DevstackError
from herdmesh.devstack.s3 import ACCESS_KEY, SECRET_KEY, S3Server

_fs: Any = fs
PART_BYTES = 5 * 1024 * 1024


def client(server: S3Server, secret: str = SECRET_KEY) -> Any:
    return _fs.S3FileSystem(
        access_key=ACCESS_KEY, secret_key=secret, region="us-east-1", scheme="http",
        endpoint_override=server.endpoint.removeprefix("http://"), connect_timeout=5, request_timeout=30,
        retry_strategy=_fs.AwsStandardS3RetryStrategy(max_attempts=1),
    )  # fmt: skip


def write(system: Any, path: str, data: bytes) -> None:
    with system.open_output_stream(path, compression=None) as stream:
        stream.write(data)


def read(system: Any, path: str) -> bytes:
    with system.open_input_stream(path, compression=None) as stream:
        return stream.read()


async def test_acknowledged_objects_survive_a_kill(tmp_path: Path) -> None:
    server = S3Server(tmp_path, buckets=["lake"])
    with pytest.raises(DevstackError, match="was not started yet"):
        _ = server.endpoint
    await server.start()
    try:
        with pytest.raises(DevstackError, match="runs already"):
            await server.start()
        system, large = client(server), bytes(range(256)) * (2 * PART_BYTES // 256) + b"the last, short part"
        write(system, "lake/a/small", b"rows")
        write(system, "lake/a/large", large)
        system.copy_file("lake/a/large", "lake/b/copy")
        system.delete_file("lake/a/large")
        with pytest.raises(OSError, match="ACCESS_DENIED"):
            read(client(server, "another secret"), "lake/a/small")
        server.kill()
        assert not server.is_running()
        await server.start()
        system = client(server)
        found = system.get_file_info(_fs.FileSelector("lake", recursive=True))
        assert sorted(one.path for one in found if one.type == _fs.FileType.File) == ["lake/a/small", "lake/b/copy"]
        assert read(system, "lake/a/small") == b"rows"
        assert read(system, "lake/b/copy") == large
    finally:
        await server.stop()
    await server.stop()
    assert not server.is_running()
