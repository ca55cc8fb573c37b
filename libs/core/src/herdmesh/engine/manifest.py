"""The metadata text of a committed offset.

Owns one small JSON form: `{"herdmesh":1,"publish":"<the task's own text>"}`. Does not know what the task's text means.

Invariant: what `encode` returned for a text, `decode` gives back; text somebody else wrote as metadata decodes as "".
"""

from __future__ import annotations

import json
from typing import Any, cast

from herdmesh.engine.errors import ManifestInvalid

METADATA_BYTES_MAX = 4_096
"""The broker's default `offset.metadata.max.bytes`."""
_VERSION = 1


def encode(publish: str) -> str:
    """The offset metadata that carries a task's manifest; "" for "".

    Raises:
        ManifestInvalid: when the broker would refuse it for its length.
    """
    if not publish:
        return ""
    text = json.dumps({"herdmesh": _VERSION, "publish": publish}, separators=(",", ":"))
    if len(text.encode()) > METADATA_BYTES_MAX:
        raise ManifestInvalid(
            f"the manifest of a commit needs {len(text.encode())} bytes of offset metadata, "
            f"the broker keeps {METADATA_BYTES_MAX}; shorten the path of the target folder"
        )
    return text


def decode(metadata: str | None) -> str:
    """The task's manifest in offset metadata, "" when there is none of ours.

    Raises:
        ManifestInvalid: for metadata of a later version, which may name files this version would not publish.
    """
    if not metadata or not metadata.startswith("{"):
        return ""
    try:
        parsed: Any = json.loads(metadata)
    except ValueError:
        return ""
    if not isinstance(parsed, dict) or "herdmesh" not in parsed:
        return ""
    found = cast("dict[str, Any]", parsed)
    if found["herdmesh"] != _VERSION:
        raise ManifestInvalid(
            f"offset metadata of version {found['herdmesh']} was written by a newer Herdmesh: {metadata}"
        )
    return str(found.get("publish", ""))
