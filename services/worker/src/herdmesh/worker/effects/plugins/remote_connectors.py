"""Proxies of connector classes whose code runs in a plugin's process: to the worker they are connectors like any other;
the author's code is called in its own process.

Owns the translation of each method to a call and back. The author's class is never imported here. Invariant: a started
instance sends all calls to the process in which it was started; after that process has died, calls raise and no new
process is started for them.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, cast

import msgspec

from herdmesh.connect.config import (
    REQUIRED,
    ConfigDef,
    ConfigKey,
    FieldViolation,
    Importance,
    Recommender,
    Type,
    Validator,
)
from herdmesh.connect.errors import ConfigError
from herdmesh.connect.spi import (
    Config,
    Connector,
    ConnectorKind,
    OffsetMap,
    PartitionId,
    SinkConnector,
    SourceConnector,
)
from herdmesh.worker.effects.plugins.plugin_processes import Line, PluginProcess
from herdmesh.worker.plugin_messages import ConnectorDescription, KeyDescription

DESCRIBED_TIMEOUT_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Remote:
    """One connector class of a plugin, and its process."""

    process: PluginProcess
    entry: str
    """The entry point's value."""
    definition: ConfigDef


def remote_class(process: PluginProcess, entry: str, version: str) -> type[Connector]:
    """The class at an entry point. Starts the plugin's process. `version` of its distribution, for a class without one.

    Raises any error of importing it, and ConfigError for a definition that cannot be transferred.
    """
    line = process.line()
    told = msgspec.convert(
        line.call("describe", entry, version, timeout_s=DESCRIBED_TIMEOUT_S), ConnectorDescription, strict=False
    )
    kind = ConnectorKind(told.kind)
    definition = definition_of(told.keys, process, entry)
    attributes = {
        "__doc__": f"{told.class_name} {told.version}, in a process of its own.",
        "__module__": __name__,
        "class_name": told.class_name,
        "aliases": told.aliases,
        "version": told.version,
        "java_task_class": told.java_task_class,
        "default_converters": told.default_converters,
        "remote": Remote(process, entry, definition),
    }
    base = RemoteSink if kind is ConnectorKind.SINK else RemoteSource
    return cast("type[Connector]", type(f"{base.__name__}({entry})", (base,), attributes))


class RemoteConnector(Connector):
    """Common base of source and sink proxies."""

    remote: ClassVar[Remote]
    _started: tuple[Line, str] | None = None
    """The connection to the process in which this instance was started, and the instance's name there."""

    @classmethod
    def config_def(cls) -> ConfigDef:
        """The definition at discovery; its rules are evaluated in the plugin's process."""
        return cls.remote.definition

    def validate(self, config: Config) -> Sequence[ConfigError]:
        """Validate in the plugin's process, where all methods below run, too."""
        return [ConfigError(message, field=field, fix=fix) for field, message, fix in self._call("validate", config)]

    def warnings(self, config: Config) -> Sequence[FieldViolation]:
        return [FieldViolation(field, message, fix) for field, message, fix in self._call("warnings", config)]

    def start(self, config: Config) -> None:
        self.config = dict(config)
        line, instance = self.remote.process.line(), uuid.uuid4().hex
        if self.context is not None:  # before the call: the instance may use its context during start
            line.lend(instance, self.context)
        try:
            line.call("start", self.remote.entry, dict(config), instance=instance)
        except BaseException:
            line.take_back(instance)
            raise
        self._started = line, instance

    def task_class(self) -> str:
        return str(self._call("task_class"))

    def task_configs(self, max_tasks: int) -> list[dict[str, str | None]]:
        return msgspec.convert(self._call("task_configs", max_tasks), list[dict[str, str | None]])

    def stop(self) -> None:
        """Stop the instance; do nothing if its process died, as it then holds nothing."""
        assert self._started is not None
        (line, instance), self._started = self._started, None
        line.take_back(instance)
        if line.alive:
            line.call("stop", self.remote.entry, instance=instance)

    def _call(self, what: str, *arguments: Any) -> Any:
        line, instance = self._started or (self.remote.process.line(), "")
        return line.call(what, self.remote.entry, *map(_plain, arguments), instance=instance)


class RemoteSource(RemoteConnector, SourceConnector):
    """Proxy of a source connector."""

    def exactly_once_support(self, config: Config) -> bool | None:
        return self._call("exactly_once_support", config)

    def can_define_transaction_boundaries(self, config: Config) -> bool | None:
        return self._call("can_define_transaction_boundaries", config)

    def alter_offsets(
        self, config: Config, offsets: Sequence[tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]]
    ) -> bool:
        return bool(self._call("alter_offsets", config, list(offsets)))

    def offsets_at(
        self, config: Config, time_ms: int, committed: Sequence[tuple[OffsetMap | None, OffsetMap]]
    ) -> Sequence[tuple[OffsetMap | None, OffsetMap | None]] | None:
        told = self._call("offsets_at", config, time_ms, list(committed))
        return None if told is None else [(partition, offset) for partition, offset in told]

    def offsets_note(self, config: Config, committed: Sequence[tuple[OffsetMap | None, OffsetMap]]) -> str:
        return self._call("offsets_note", config, list(committed))

    def sign(self, task_config: Config) -> str | None:
        return self._call("sign", task_config)


class RemoteSink(RemoteConnector, SinkConnector):
    """Proxy of a sink connector."""

    def alter_offsets(self, config: Config, offsets: Mapping[PartitionId, int | None]) -> bool:
        named = [(topic, partition, offset) for (topic, partition), offset in offsets.items()]
        return bool(self._call("alter_offsets", config, named))


def definition_of(keys: Iterable[KeyDescription], process: PluginProcess, entry: str) -> ConfigDef:
    """A definition whose rules are evaluated in the plugin's process."""
    return ConfigDef(*(_key(key, process, entry) for key in keys))


def _plain(argument: Any) -> Any:
    return dict(cast("Mapping[str, Any]", argument)) if isinstance(argument, Mapping) else argument


def _key(told: KeyDescription, process: PluginProcess, entry: str) -> ConfigKey:
    def asking(what: str) -> Callable[[str, Any], Any]:
        def ask(name: str, about: Any) -> Any:
            return process.line().call(what, entry, name, _plain(about))

        return ask

    rule = None
    if told.rule is not None:
        refine, strict = asking("refine") if told.refines else None, asking("strict") if told.strict else None
        rule = Validator(told.rule, asking("check"), refine, strict)
    recommender = Recommender(asking("values"), asking("visible")) if told.recommends else None
    default = REQUIRED if told.required else told.default
    return ConfigKey(
        told.name, Type(told.type), default, Importance(told.importance), told.doc, rule, told.group, told.order,
        told.width, told.display_name, told.dependents, recommender,
    )  # fmt: skip
