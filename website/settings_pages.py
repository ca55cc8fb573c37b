"""Reference pages of configuration: the settings of the services, and the keys of connectors.

Owns the form of these pages. The texts are the definitions' own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib.metadata import entry_points
from typing import Any, cast

from pydantic_core import PydanticUndefined

from herdmesh.configstore.settings import ConfigStoreSettings
from herdmesh.connect.config.config_def import REQUIRED, ConfigDef, ConfigKey, Type
from herdmesh.connect.spi.connector import SinkConnector
from herdmesh.connect.validation.connector_keys import HERDMESH, SINK, SOURCE
from herdmesh.herder.settings import HerderSettings
from herdmesh.rpc.settings import ServiceSettings
from herdmesh.statusstore.settings import StatusStoreSettings
from herdmesh.worker.settings import WorkerSettings

SERVICES, CONNECTORS = "docs/reference/service-settings.md", "docs/reference/connector-keys.md"
_WRITTEN = "`python -m website --pages` writes this page from the code; a test compares."
_SETTINGS: dict[str, type[ServiceSettings]] = {
    "Worker": WorkerSettings,
    "Herder": HerderSettings,
    "Config store": ConfigStoreSettings,
    "Status store": StatusStoreSettings,
}


def pages() -> dict[str, str]:
    """Path below the repository -> text."""
    return {SERVICES: "\n".join(_services()), CONNECTORS: "\n".join(_connectors())}


def _services() -> Iterator[str]:
    yield from ("# Settings of the services", "", _WRITTEN, "")
    yield "Each setting is a flag (`--session-timeout-ms 6000`) and an environment variable"
    yield "(`HERDMESH_SESSION_TIMEOUT_MS`). A flag goes before the variable, the variable before the file that"
    yield "`HERDMESH_ENV_FILE` names, the file before the default."
    for title, settings in _SETTINGS.items():
        yield from ("", f"## {title}", "", "| Setting | Default | Meaning |", "|---|---|---|")
        for name, field in settings.model_fields.items():
            default, about = _default(field.default, field.default_factory), _cell(field.description or "")
            yield f"| `HERDMESH_{name.upper()}` | {default} | {about} |"
    yield ""


def _default(default: Any, factory: Any) -> str:
    if factory is not None:
        return "depends on the machine"
    if default is PydanticUndefined:
        return "required"
    text = str(cast("object", default)).strip("*")
    return f"`{text}`" if text else "empty"


def _connectors() -> Iterator[str]:
    yield from ("# Keys of connectors", "", _WRITTEN, "")
    yield "The keys that every connector has come first, then the keys of each connector that ships. `herd validate`"
    yield "says what is wrong with a config. Keys of the Java connectors of these names: [known keys](known-keys.md)."
    sources, sinks = SOURCE.keys, SINK.keys
    yield from _table(
        "Every connector", "Kafka Connect's keys.", [key for name, key in sources.items() if name in sinks]
    )
    yield from _table("Every connector: Herdmesh's keys", "", HERDMESH.keys.values())
    yield from _table("Every source", "", [key for name, key in sources.items() if name not in sinks])
    yield from _table("Every sink", "", [key for name, key in sinks.items() if name not in sources])
    for name, connector in sorted(_shipped().items()):
        kind = "A sink" if issubclass(connector, SinkConnector) else "A source"
        definition = cast("ConfigDef", connector.config_def())
        own = [key for key in definition.keys.values() if key.name not in {**sources, **sinks}]
        yield from _table(name, f"{kind}; its class name is `{connector.class_name}`.", own)
    yield ""


def _shipped() -> dict[str, Any]:
    """The connectors of the distributions of this repository, by name."""
    return {
        one.name: one.load()
        for one in entry_points(group="herdmesh.connectors")
        if one.dist is not None and one.dist.name in ("herdmesh-connectors", "herdmesh-worker")
    }


def _table(title: str, about: str, keys: Iterable[ConfigKey]) -> Iterator[str]:
    yield from ("", f"## {title}", "")
    if about:
        yield from (about, "")
    yield from ("| Key | Type | Default | Importance | Meaning |", "|---|---|---|---|---|")
    for key in keys:
        kind, importance = key.type.value.lower(), key.importance.value.lower()
        yield f"| `{key.name}` | {kind} | {_key_default(key)} | {importance} | {_cell(key.doc)} |"


def _key_default(key: ConfigKey) -> str:
    default = cast("object", key.default)
    if default is REQUIRED:
        return "required"
    if default is None or default in ("", []):
        return "none"
    if key.type is Type.BOOLEAN:
        return f"`{str(default).lower()}`"
    text = ",".join(map(str, cast("list[object]", default))) if isinstance(default, list) else str(default)
    return f"`{_cell(text)}`"


def _cell(text: str) -> str:
    return " ".join(text.replace("<code>", "`").replace("</code>", "`").replace("|", "\\|").split())
