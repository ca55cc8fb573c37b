"""Bucket of these tests, and the tests' own client. The server is `devstack.s3`'s. Owns no test."""

from __future__ import annotations

from typing import Any

from pyarrow import fs

from herdmesh.devstack.s3 import ACCESS_KEY, SECRET_KEY

BUCKET = "herdmesh"
_fs: Any = fs


def keys_for(endpoint: str) -> dict[str, str]:
    """Return the settings with which `FileSink` reaches the server."""
    return {"s3.endpoint": endpoint, "aws.access.key.id": ACCESS_KEY, "aws.secret.access.key": SECRET_KEY}


def client(endpoint: str) -> Any:
    """Return a file system of the test's own."""
    scheme, _, address = endpoint.partition("://")
    return _fs.S3FileSystem(
        access_key=ACCESS_KEY, secret_key=SECRET_KEY, region="us-east-1", scheme=scheme, endpoint_override=address
    )
