"""Settings of the heartbeat connector, from MirrorMaker 2's keys, and a warning for each key without effect.

Owns the keys that the mirror's other connectors do not have, and the warnings. Shared keys: `keys`.

Invariant: a key is honoured, refused or named in a warning; none is ignored silently.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from herdmesh.connect.spi import ConnectorKind
from herdmesh.connectors.common import warned_settings
from herdmesh.connectors.mirror import keys
from herdmesh.connectors.mirror.checkpoint import settings as checkpoint_settings
from herdmesh.connectors.mirror.keys import INTERNAL_SEPARATOR, SOURCE_ALIAS, TARGET_ALIAS, check_interval
from herdmesh.connectors.mirror.source import settings as source_settings
from herdmesh.sdk import Config, ConfigDef, ConfigKey, FieldViolation, Importance, Type, Validator
from herdmesh.sdk.validators import at_least, non_empty_string

REPLICATION = "heartbeats.topic.replication.factor"
_EMIT, _EMIT_S = "emit.heartbeats.enabled", "emit.heartbeats.interval.seconds"
_LOW = Importance.LOW

KEYS = ConfigDef(
    *(keys.KEYS.keys[name] for name in (
        "enabled", SOURCE_ALIAS, TARGET_ALIAS, "admin.timeout.ms", "replication.policy.class",
        "replication.policy.separator", INTERNAL_SEPARATOR, "forwarding.admin.class", "metric.reporters")),
    ConfigKey(_EMIT, Type.BOOLEAN, True, _LOW, "Whether to emit heartbeats to target cluster."),
    ConfigKey(_EMIT_S, Type.LONG, 1, _LOW, "Frequency of heartbeats."),
    ConfigKey(REPLICATION, Type.SHORT, 3, _LOW, "Replication factor for heartbeats topic."),
)  # fmt: skip
"""MirrorMaker's keys, in its order."""
_RULES: Mapping[str, Validator] = {
    SOURCE_ALIAS: non_empty_string(),
    TARGET_ALIAS: non_empty_string(),
    REPLICATION: at_least(-1),
    _EMIT_S: Validator("not 0", check_interval),
}
"""Keys that MirrorMaker does not check when it validates a config."""
#: MirrorMaker's keys without effect: the reason, and the values for which no warning is due.
_WITHOUT_EFFECT: Mapping[str, tuple[str, tuple[str, ...]]] = {
    **{name: source_settings.WITHOUT_EFFECT[name] for name in (
        "admin.timeout.ms", "forwarding.admin.class", "metric.reporters", "add.source.alias.to.metrics",
    )},
    "enabled": (f"as in Java, heartbeats depend only on {_EMIT}", ("true",)),
}  # fmt: skip
_SOURCES_PREFIXES = ("source.", "consumer.", "admin.")


@dataclass(frozen=True, slots=True)
class HeartbeatSettings:
    """The parsed config of a heartbeat connector."""

    source: str
    target: str
    """Aliases of the clusters."""
    interval_s: int | None
    """Interval of heartbeats; None = no heartbeats."""
    replication_factor: int


def settings_of(config: Config) -> HeartbeatSettings:
    """Read the config. Raises ConfigError whose field is the key."""
    values = KEYS.parse(config)
    for key, rule in _RULES.items():
        rule.check(key, values[key])
    source_settings.naming_of(values)
    emits = values[_EMIT] and values[_EMIT_S] > 0
    interval_s = values[_EMIT_S] if emits else None
    return HeartbeatSettings(values[SOURCE_ALIAS], values[TARGET_ALIAS], interval_s, values[REPLICATION])


def warnings_of(config: Config) -> list[FieldViolation]:
    """Return a warning, with the reason, for every key without the effect that its value requests."""
    return [
        *source_settings.converter_warnings(config),
        *warned_settings(
            config, {*KEYS.keys, *source_settings.OF_TASKS}, ConnectorKind.SOURCE, _WITHOUT_EFFECT,
            source_settings.CONSUMERS, foreign=_foreign, java="mirror-heartbeat",
        ),
    ]  # fmt: skip


def _foreign(name: str) -> str | None:
    if (why := source_settings.to_target(name)) is not None:
        return why
    if name.startswith(_SOURCES_PREFIXES):
        return "a heartbeat connector does not read from the source cluster"
    is_others = name in keys.KEYS.keys or name in checkpoint_settings.KEYS.keys
    return "it is a setting of the mirror's other connectors" if is_others else None
