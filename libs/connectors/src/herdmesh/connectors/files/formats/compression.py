"""Compression of a whole file, for formats that have none built in.

Owns nothing else. Invariant: the stream stays open, and the same content gives the same bytes.
"""

from __future__ import annotations

import gzip
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

_LEVEL = 6


@contextmanager
def compressed(stream: Any, compression: str) -> Generator[Any]:
    """Yield a stream that compresses its input with `gzip`, or `none`, into the given stream."""
    if compression == "none":
        yield stream
        return
    with gzip.GzipFile(filename="", mode="wb", compresslevel=_LEVEL, fileobj=stream, mtime=0) as out:
        yield out
