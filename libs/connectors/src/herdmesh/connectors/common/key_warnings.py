"""Warnings about config keys that have no effect, each with its reason.

Owns finding such keys in a config. The keys of the Java connectors: `known_keys`; which keys a connector reads, the
connector passes in. Invariant: a key that neither the framework nor the connector reads has a warning.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from herdmesh.connect.spi import ConnectorKind
from herdmesh.connect.validation import COMMON, HERDMESH, SINK, SOURCE
from herdmesh.connectors.common.known_keys import unread
from herdmesh.sdk import Config, FieldViolation

#: Key prefixes that the framework reads for sources and sinks.
_OF_ALL = ("transforms.", "predicates.", "key.converter", "value.converter", "header.converter", "errors.",
           "producer.override.", "admin.override.", "herdmesh.")  # fmt: skip
"""Prefixes whose unknown keys `connect.unknown_keys` finds."""
_SHARED_PREFIXES = {
    ConnectorKind.SINK: (*_OF_ALL, "consumer.override."),
    ConnectorKind.SOURCE: (*_OF_ALL, "topic.creation."),
}


def warned_settings(
    config: Config,
    own: Collection[str],
    kind: ConnectorKind,
    without_effect: Mapping[str, tuple[str, tuple[str, ...]]] | None = None,
    prefixes: tuple[str, ...] = (),
    *,
    java: str = "",
    here: Callable[[str, str], str | None] = lambda _key, _value: None,
    foreign: Callable[[str], str | None] = lambda _key: None,
) -> list[FieldViolation]:
    """Return one warning for each key without effect: the connector's listed keys with their reason, and unknown keys.

    Args:
        own: keys that the connector or its tasks read.
        without_effect: keys of other connectors: the reason, and the values with which the key changes nothing.
        prefixes: prefixes of further keys that the connector reads.
        java: the definition in `known_keys` of the Java connector that this one replaces.
        here: the reason why a key with this value has no effect in this config; "" = it has one, None = undecided.
        foreign: the reason why an unknown key has no effect; None = look it up in `known_keys`.
    """
    of_kind = SOURCE if kind is ConnectorKind.SOURCE else SINK
    known = {*COMMON.keys, *of_kind.keys, *HERDMESH.keys, *own, "name"}
    found: list[FieldViolation] = []
    for name, value in config.items():
        text = (value or "").strip()
        if without_effect and name in without_effect:
            why, same = without_effect[name]
            if text not in same:
                found.append(no_effect(name, why))
        elif (why := here(name, text)) is not None:
            if why:
                found.append(no_effect(name, why))
        elif name not in known and not name.startswith((*_SHARED_PREFIXES[kind], *prefixes)):
            why = foreign(name)
            found.append(unread(name, java, known) if why is None else no_effect(name, why))
    return found


def no_effect(key: str, why: str, fix: str = "leave it out") -> FieldViolation:
    """Return the warning about one key."""
    return FieldViolation(key, f"{key} has no effect: {why}", fix)
