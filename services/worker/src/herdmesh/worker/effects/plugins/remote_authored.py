"""Transformations, predicates and converters of plugin folders, as the worker knows them: name, version and definition;
the plugin's process checks their settings.

Owns the classes that represent them in validation. Records never pass through these: a run imports the author's class
(`connect.authored.here`). The author's class is never imported here.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

import msgspec

from herdmesh.connect.config import ConfigDef
from herdmesh.connect.model import ConnectRecord, Schema
from herdmesh.connect.plugins import authored_class
from herdmesh.connect.spi import (
    AuthoredPlugin,
    Config,
    PluginClass,
    PluginImports,
    RecordConverter,
    RecordPredicate,
    RecordTransformation,
)
from herdmesh.worker.effects.plugins.plugin_processes import PluginProcess
from herdmesh.worker.effects.plugins.remote_connectors import DESCRIBED_TIMEOUT_S, definition_of
from herdmesh.worker.plugin_messages import AuthoredDescription

_ONLY_CHECKED: Final = "the class represents one of a plugin folder; here only its settings are checked"


class _Remote(AuthoredPlugin):
    process: ClassVar[PluginProcess]
    entry: ClassVar[str]
    definition: ClassVar[ConfigDef]

    @classmethod
    def config_def(cls) -> ConfigDef:
        return cls.definition

    def configure(self, config: Config) -> None:
        self.process.line().call("configure", self.entry, dict(config))


class _RemoteTransformation(_Remote, RecordTransformation):
    def apply(self, record: ConnectRecord) -> ConnectRecord | None:
        raise AssertionError(_ONLY_CHECKED)


class _RemotePredicate(_Remote, RecordPredicate):
    def test(self, record: ConnectRecord) -> bool:
        raise AssertionError(_ONLY_CHECKED)


class _RemoteConverter(_Remote, RecordConverter):
    def to_connect(self, topic: str, data: bytes | None) -> tuple[Schema | None, Any]:
        raise AssertionError(_ONLY_CHECKED)

    def from_connect(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        raise AssertionError(_ONLY_CHECKED)


_BASES: Final[dict[str, type[AuthoredPlugin]]] = {
    RecordTransformation.__name__: _RemoteTransformation,
    RecordPredicate.__name__: _RemotePredicate,
    RecordConverter.__name__: _RemoteConverter,
}


def remote_authored(process: PluginProcess, entry: str, version: str, imports: PluginImports) -> PluginClass:
    """The class at an entry point. Starts the plugin's process. `version` of its distribution, for a class without one.

    Raises any error of importing it.
    """
    told = msgspec.convert(
        process.line().call("describe_authored", entry, version, timeout_s=DESCRIBED_TIMEOUT_S),
        AuthoredDescription,
        strict=False,
    )
    attributes = {
        "__doc__": f"{told.class_name} {told.version}, in a plugin folder.",
        "__module__": __name__,
        "class_name": told.class_name,
        "aliases": told.aliases,
        "version": told.version,
        "process": process,
        "entry": entry,
        "definition": definition_of(told.keys, process, entry),
    }
    base = _BASES[told.kind]
    return authored_class(type(f"{base.__name__}({entry})", (base,), attributes), told.version, imports)
