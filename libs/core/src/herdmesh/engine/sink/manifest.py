"""Metadata text of a committed offset.

Owns one small JSON form: `{"herdmesh":1,"publish":"<the task's own text>","topic":"<Kafka's id of the topic>"}`, with
only the members that have a value. Does not interpret the task's text.

Invariant: `decode` returns the text that was passed to `encode`; metadata written by another program decodes as "".
"""

from __future__ import annotations

import json
from typing import Any, cast

from herdmesh.engine.runtime import ManifestInvalid

METADATA_BYTES_MAX = 4_096
"""The broker's default `offset.metadata.max.bytes`."""
_VERSION = 1


def encode(publish: str, topic_id: str = "") -> str:
    """The offset metadata with a task's manifest and the topic's id; "" for neither. The id is omitted if the manifest
    leaves no room for it.

    Raises:
        ManifestInvalid: when the broker would refuse it for its length.
    """
    if not (publish or topic_id):
        return ""
    text = _text(publish, topic_id)
    if topic_id and len(text.encode()) > METADATA_BYTES_MAX:
        text = _text(publish, "")
    if len(text.encode()) > METADATA_BYTES_MAX:
        raise ManifestInvalid(
            f"the manifest of a commit needs {len(text.encode())} bytes of offset metadata, "
            f"the broker keeps {METADATA_BYTES_MAX}; shorten the path of the target folder"
        )
    return text


def topic_id_of(metadata: str | None) -> str:
    """The id of the topic that the offset was committed for, "" if the metadata has none. Raises as `decode`."""
    return _member(metadata, "topic")


def decode(metadata: str | None) -> str:
    """The task's manifest in offset metadata, "" when there is none of ours.

    Raises:
        ManifestInvalid: for metadata of a later version, which may name files that this version would not publish.
    """
    return _member(metadata, "publish")


def _text(publish: str, topic_id: str) -> str:
    members = {"publish": publish, "topic": topic_id}
    said = {name: text for name, text in members.items() if text}
    return json.dumps({"herdmesh": _VERSION, **said}, separators=(",", ":"))


def _member(metadata: str | None, name: str) -> str:
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
    return str(found.get(name, ""))
