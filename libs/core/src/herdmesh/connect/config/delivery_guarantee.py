"""Delivery guarantee of a source: `herdmesh.delivery.guarantee` (ADR 0012), at least once or exactly once.

Owns the key, its values and the keys that contradict it, for validation and for runs alike. The engine delivers
accordingly (`herdmesh.engine.delivery.source_delivery`).

Invariant: at least once applies only when the user requested it, and never beside a key that requests exactly once.
"""

from __future__ import annotations

from herdmesh.connect.config.config_def import FieldViolation, RawConfig

GUARANTEE = "herdmesh.delivery.guarantee"
EXACTLY_ONCE, AT_LEAST_ONCE = "exactly_once", "at_least_once"
#: Settings that need transactions of records, and the replacement for each.
_MORE = (
    ("exactly.once.support", "required", "exactly.once.support=requested"),
    ("transaction.boundary", "connector", "transaction.boundary=poll or interval"),
)


def is_at_least_once(config: RawConfig) -> bool:
    """True when the connector's config requests at-least-once delivery."""
    return _text(config, GUARANTEE) == AT_LEAST_ONCE


def contradictions(config: RawConfig, *, is_source: bool) -> list[FieldViolation]:
    """Contradictions between at-least-once delivery and the rest of the config; empty when it is not requested."""
    if not is_at_least_once(config):
        return []
    if not is_source:
        message = (
            f"{GUARANTEE}={AT_LEAST_ONCE} is for sources only: the delivery guarantee of a sink is that of its "
            "connector"
        )
        return [FieldViolation(GUARANTEE, message, "leave it out, or choose a connector with the guarantee you need")]
    return [
        FieldViolation(
            GUARANTEE,
            f"{GUARANTEE}={AT_LEAST_ONCE} contradicts {key}={value}, which needs the records in transactions",
            f"leave {GUARANTEE} out, or write {instead}",
        )
        for key, value, instead in _MORE
        if _text(config, key).lower() == value
    ]


def _text(config: RawConfig, key: str) -> str:
    value = config.get(key)
    return value.strip() if isinstance(value, str) else ""
