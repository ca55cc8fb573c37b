"""Connector and task properties between Python and the wire.

Owns the mapping of `common.v1.Properties`: text stays text, null is an unset kind, and any other JSON value (only
another program stores one) travels as its JSON text, wrapped in `JsonValue` on the Python side.

Invariant: `from_proto(to_proto(p)) == p`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from herdmesh.api.common.v1 import connector_pb2


@dataclass(frozen=True, slots=True)
class JsonValue:
    """A property whose stored value is neither text nor null: `text` is its JSON, for example `5` or `{"a":1}`."""

    text: str


PropertyValue = str | JsonValue | None


def to_proto(properties: Mapping[str, PropertyValue]) -> connector_pb2.Properties:
    """The message, one entry per property."""
    message = connector_pb2.Properties()
    for name, value in properties.items():
        entry = message.entries[name]  # a message map creates the entry on first access, so null needs no more
        if isinstance(value, JsonValue):
            entry.json = value.text
        elif value is not None:
            entry.text = value
    return message


def from_proto(message: connector_pb2.Properties) -> dict[str, PropertyValue]:
    """Properties sorted by name (a proto map has no order of its own)."""
    return {name: _value(message.entries[name]) for name in sorted(message.entries)}


def texts(properties: Mapping[str, PropertyValue]) -> dict[str, str | None]:
    """Properties as connector authors get them: JSON values of other programs become their JSON text."""
    return {name: value.text if isinstance(value, JsonValue) else value for name, value in properties.items()}


def _value(entry: connector_pb2.PropertyValue) -> PropertyValue:
    kind = entry.WhichOneof("kind")
    if kind is None:
        return None
    return entry.text if kind == "text" else JsonValue(entry.json)
