"""Fixtures of these tests: the S3 server, the HDFS, and a folder of each kind. Owns nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from herdmesh.connectors.files.hadoop import shared_jvm
from herdmesh.devstack.hdfs import HdfsServer
from herdmesh.devstack.s3 import S3Server
from libs.connectors.tests.files.places import (
    KINDS,
    Place,
    hadoop_conf,
    hdfs_place,
    local_place,
    s3_place,
)
from libs.connectors.tests.files.s3_server import BUCKET


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield `http://127.0.0.1:PORT` of the session's S3 server, which has the bucket `BUCKET`."""
    server = S3Server(tmp_path_factory.mktemp("s3"), buckets=[BUCKET])
    asyncio.run(server.start())
    try:
        yield server.endpoint
    finally:
        asyncio.run(server.stop())


@pytest.fixture(scope="session")
def hadoop_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yield the local folder that `viewfs://tests/files` names for Hadoop's clients from here on."""
    patch = pytest.MonkeyPatch()
    conf = tmp_path_factory.mktemp("hadoop")
    seen = hadoop_conf(conf)
    patch.setenv("HADOOP_CONF_DIR", str(conf))
    yield seen
    shared_jvm().close()
    patch.undo()


@pytest.fixture(scope="session")
def hdfs(hadoop_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield `hdfs://127.0.0.1:PORT` of the session's HDFS."""
    server = HdfsServer(tmp_path_factory.mktemp("hdfs"))
    asyncio.run(server.start())
    try:
        yield server.url
    finally:
        asyncio.run(server.stop())


def place_of(kind: str, request: pytest.FixtureRequest, folder: Path) -> Place:
    if kind == "hdfs":
        return hdfs_place(request.getfixturevalue("hdfs"))
    return s3_place(request.getfixturevalue("s3")) if kind == "s3" else local_place(folder / kind, kind)


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Return a folder of each kind in which `staging` can publish."""
    return place_of(request.param, request, tmp_path)


@pytest.fixture(params=["local", "s3"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Return a folder of each kind that a config can name."""
    return place_of(request.param, request, tmp_path)
