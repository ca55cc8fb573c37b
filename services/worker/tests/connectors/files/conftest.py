"""The S3 server of these tests, and a place of each kind. Owns nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from services.worker.tests.connectors.files.places import KINDS, Place, local_place, s3_place
from services.worker.tests.connectors.files.s3_server import s3_server


@pytest.fixture(scope="session")
def s3() -> Iterator[str]:
    """`http://127.0.0.1:PORT` of the session's S3 server (moto)."""
    with s3_server() as address:
        yield address


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
