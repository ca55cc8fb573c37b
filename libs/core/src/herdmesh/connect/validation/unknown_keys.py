"""Warnings about unknown keys of a connector's config, each with the reason and the key that was probably meant.

Owns the warnings for the framework's keys: converters, transformations, predicates, error handling, clients and
`herdmesh.*`. The connector warns about its own keys, and `clients.client_overrides` about client settings without
effect.

Connect ignores unknown keys, and so does Herdmesh, because existing configs must run unchanged: hence warnings.

Invariant: a key below one of the framework's prefixes is read, refused, or named here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from herdmesh.connect.clients import CLIENTS, client_keys
from herdmesh.connect.config import FieldViolation, RawConfig, closest
from herdmesh.connect.converters import REGISTERED
from herdmesh.connect.spi import PluginClass, PluginKind
from herdmesh.connect.validation.connector_keys import COMMON, DEAD_LETTERS, HERDMESH, SINK, SOURCE
from herdmesh.connect.validation.framework_keys import CONVERTER_KINDS

_LEAVE_OUT = "leave it out"
_STEP_KEYS = {
    "transforms": ("type", "plugin.version", "predicate", "negate"),
    "predicates": ("type", "plugin.version"),
}
_TRACING = "it is for OpenTelemetry's Java libraries"
_IGNORED: Mapping[str, Mapping[str, str]] = {
    "io.debezium.transforms.outbox.EventRouter": {
        "table.field.event.type": "neither Debezium nor Herdmesh reads it; use table.fields.additional.placement",
        "tracing.span.context.field": _TRACING,
        "tracing.operation.name": _TRACING,
        "tracing.with.context.field.only": _TRACING,
    },
    "io.debezium.transforms.ByLogicalTableRouter": {
        "logical.table.cache.size": "the cache has a fixed limit",
    },
}
"""Keys without effect here and the reason, by class that accepts them."""


def unknown(key: str, why: str, known: Iterable[str]) -> FieldViolation:
    """A warning about an unknown key."""
    meant = closest(key, known)
    return FieldViolation(key, f"{key} has no effect: {why}", f"did you mean {meant}?" if meant else _LEAVE_OUT)


def unread_keys(
    config: RawConfig, kind: PluginKind, own: Collection[str], find: Callable[[str], PluginClass | None]
) -> list[FieldViolation]:
    """Warnings for the framework's keys that nothing reads.

    Args:
        kind: of the connector.
        own: keys that the connector defines itself.
        find: the class of a name or an alias, as `KnownPlugins.class_named`.
    """
    of_kind = SOURCE if kind is PluginKind.SOURCE else SINK
    framework = {*COMMON.keys, *of_kind.keys, *HERDMESH.keys, *DEAD_LETTERS.keys}
    found: list[FieldViolation] = []
    for name in config:
        if name in own or name in framework:
            continue
        for prefix, what in (("errors.", "error handling"), ("herdmesh.", "Herdmesh")):
            if name.startswith(prefix):
                found.append(unknown(name, f"{what} has no such setting", framework))
    found += _of_converters(config, own, find)
    for field in _STEP_KEYS:
        found += _of_steps(field, config, own, find)
    return found


def workers_spelling(name: str, kind: PluginKind) -> Iterator[FieldViolation]:
    """Warnings about a client setting that has the form of a worker property."""
    client, _, setting = name.partition(".")
    if client not in CLIENTS or setting.startswith("override.") or setting not in client_keys(client).keys:
        return
    effect = f"{client}.override.{setting}"
    if client == "consumer" and kind is PluginKind.SOURCE:
        why = "a source connector reads nothing from Kafka, and settings of a worker's clients are the worker's"
        yield FieldViolation(name, f"{name} has no effect: {why}", _LEAVE_OUT)
    else:
        why = f"in a connector, settings of its {client} begin with {client}.override."
        yield FieldViolation(name, f"{name} has no effect: {why}", f"write {effect}")


def _of_converters(
    config: RawConfig, own: Collection[str], find: Callable[[str], PluginClass | None]
) -> Iterator[FieldViolation]:
    for field in CONVERTER_KINDS:
        prefix, class_name = f"{field}.", str(config.get(field) or "").strip()
        below = [key for key in config if key.startswith(prefix) and key not in COMMON.keys and key not in own]
        if not class_name:
            why = f"{field} is not set here, so the worker's is used, with the worker's options"
            yield from (FieldViolation(key, f"{key} has no effect: {why}", f"set {field} too") for key in below)
            continue
        cls = find(class_name)
        if cls is None or not cls.definition.keys:
            continue
        known = {f"{prefix}{key}" for key in (*cls.definition.keys, "plugin.version")}
        for key in below:
            if key in known or (cls.name in REGISTERED and not closest(key, known)):
                continue  # the registries' clients have hundreds of settings
            yield unknown(key, f"{cls.name.rpartition('.')[2]} has no such setting", known)


def _of_steps(
    field: str, config: RawConfig, own: Collection[str], find: Callable[[str], PluginClass | None]
) -> Iterator[FieldViolation]:
    """Warnings about keys of transformations, or of predicates."""
    aliases = [one for part in str(config.get(field) or "").split(",") if (one := part.strip())]
    for key in config:
        if not key.startswith(f"{field}.") or key in own:
            continue
        rest = key.removeprefix(f"{field}.")
        alias = max((one for one in aliases if rest.startswith(f"{one}.")), key=len, default="")
        if not alias:
            named = rest.partition(".")[0]
            meant = closest(named, aliases)
            why = f"{field} does not name {named}"
            fix = f"did you mean {field}.{meant}{rest.removeprefix(named)}?" if meant else f"add {named} to {field}"
            yield FieldViolation(key, f"{key} has no effect: {why}", fix)
            continue
        prefix = f"{field}.{alias}."
        cls = find(str(config.get(f"{prefix}type") or "").strip())
        if cls is None or not cls.definition.keys:
            continue
        known = {f"{prefix}{one}" for one in (*_STEP_KEYS[field], *cls.definition.keys)}
        if key not in known:
            yield unknown(key, f"{cls.name.rpartition('.')[2]} has no such setting", known)
        elif why := _IGNORED.get(cls.name, {}).get(key.removeprefix(prefix)):
            yield FieldViolation(key, f"{key} has no effect here: {why}", _LEAVE_OUT)
