"""Validating a connector's config with the plugins of this worker, as Connect's validation result.

Owns the shape of the result: every key of the definitions that apply, its value, its errors. What is wrong is decided
by `herdmesh.connect.connector_config` and the plugin. Calls authors' code, so it is called in a thread.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from herdmesh.api.common.v1 import connector_pb2
from herdmesh.api.worker.v1 import worker_service_pb2
from herdmesh.connect.config import REQUIRED, ConfigDef, ConfigKey, Type
from herdmesh.connect.connector import ConnectorKind
from herdmesh.connect.connector_config import validate_connector
from herdmesh.connect.connector_keys import COMMON, HERDMESH, SINK, SOURCE
from herdmesh.connect.errors import ConfigError
from herdmesh.connect.plugins import PluginDescriptor, PluginRegistry
from herdmesh.engine.contract import Properties

_SECRET = "[hidden]"


def validate(config: Properties, plugins: PluginRegistry, worker: Properties) -> worker_service_pb2.ConfigValidation:
    """Everything wrong with the config, by key. Raises what the author's `validate` raises beyond ConfigError."""
    name = (config.get("connector.class") or "").strip()
    plugin = _find(plugins, name)
    errors: dict[str, list[str]] = {}
    for violation in validate_connector(config, plugins, worker=worker):
        fix = violation.fix and f" ({violation.fix})"
        errors.setdefault(violation.field, []).append(f"{violation.message}{fix}")
    keys = list(_keys(plugin))
    # A key that no definition has (transforms.a.x, an unknown one) still gets its place, so that no error is lost.
    extra = [name for name in errors if name not in {key.name for key in keys}]
    result = worker_service_pb2.ConfigValidation(
        class_name=name,
        error_count=sum(len(found) for found in errors.values()),
        groups=list(dict.fromkeys(key.group for key in keys if key.group)),
        connector_type=_type(plugin),
    )
    result.fields.extend(_field(key, config, errors.get(key.name, [])) for key in keys)
    for name in extra:
        field = result.fields.add(name=name, type="STRING", importance="MEDIUM", width="NONE", order=-1, visible=True)
        field.errors.extend(errors[name])
        value = config.get(name)
        if value is not None:
            field.value = value
    return result


def _find(plugins: PluginRegistry, name: str) -> PluginDescriptor | None:
    try:
        return plugins.find(name)
    except ConfigError:
        return None


def _keys(plugin: PluginDescriptor | None) -> Iterable[ConfigKey]:
    shared = COMMON
    definitions: list[ConfigDef] = []
    if plugin is not None:
        shared = SINK if plugin.kind is ConnectorKind.SINK else SOURCE
        definitions.append(plugin.connector.config_def())
    seen: set[str] = set()
    for definition in (shared, HERDMESH, *definitions):
        for name, key in definition.keys.items():
            if name not in seen:
                seen.add(name)
                yield key


def _type(plugin: PluginDescriptor | None) -> connector_pb2.ConnectorType.ValueType:
    if plugin is None:
        return connector_pb2.CONNECTOR_TYPE_UNSPECIFIED
    sink = plugin.kind is ConnectorKind.SINK
    return connector_pb2.CONNECTOR_TYPE_SINK if sink else connector_pb2.CONNECTOR_TYPE_SOURCE


def _field(key: ConfigKey, config: Properties, errors: list[str]) -> worker_service_pb2.ConfigField:
    field = definition_field(key)
    value = config.get(key.name, field.default_value if field.HasField("default_value") else None)
    if value is not None:
        field.value = _SECRET if key.type is Type.PASSWORD else value
    field.errors.extend(errors)
    return field


def definition_field(key: ConfigKey) -> worker_service_pb2.ConfigField:
    """A key of a config definition, without a value."""
    return worker_service_pb2.ConfigField(
        name=key.name,
        type=key.type.name,
        required=key.required,
        default_value=None if key.default is REQUIRED else _text(key.default),
        importance=key.importance.name,
        documentation=key.doc,
        group=key.group or "",
        width=key.width,
        display_name=key.display_name,
        order=key.order,
        visible=True,
    )


def _text(value: Any) -> str | None:
    """A default as Connect writes it."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ",".join(str(one) for one in value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return str(value)
