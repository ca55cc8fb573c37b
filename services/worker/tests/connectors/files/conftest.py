"""The S3 server of these tests, and a place of each kind. Owns nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from herdmesh.devstack.s3 import S3Server
from services.worker.tests.connectors.files.places import KINDS, Place, local_place, s3_place
from services.worker.tests.connectors.files.s3_server import BUCKET


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """`http://127.0.0.1:PORT` of the session's S3 server, which has the bucket `BUCKET`."""
    server = S3Server(tmp_path_factory.mktemp("s3"), buckets=[BUCKET])
    asyncio.run(server.start())
    try:
        yield server.endpoint
    finally:
        asyncio.run(server.stop())


def place_of(kind: str, request: pytest.FixtureRequest, folder: Path) -> Place:
    return s3_place(request.getfixturevalue("s3")) if kind == "s3" else local_place(folder / kind, kind)


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A folder of each kind that `staging` can publish in."""
    return place_of(request.param, request, tmp_path)


@pytest.fixture(params=["local", "s3"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A folder of each kind that a config can name."""
    return place_of(request.param, request, tmp_path)
