"""`FileSink`: writes records as files to a folder, each record exactly once.

Owns the connector. Its keys: `settings`; its task: `task`, so that a worker need not import pyarrow.

Invariant: a folder that cannot be written is an error of the field `directory` before the connector starts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from herdmesh.connectors.files import key_warnings, settings
from herdmesh.connectors.files.locations import DIRECTORY, Access, Location, problem_of
from herdmesh.sdk import Config, ConfigDef, ConfigError, FieldViolation, PartitionId, SinkConnector


class FileSink(SinkConnector):
    """One file per partition, subfolder and commit."""

    class_name = "herdmesh.FileSink"
    aliases = ("FileSink", "FileSinkConnector")
    version = "0.1.0"
    _keys: ClassVar[ConfigDef] = settings.KEYS

    @classmethod
    def config_def(cls) -> ConfigDef:
        return cls._keys

    def validate(self, config: Config) -> Sequence[ConfigError]:
        return problems_of(self._keys, config)

    def warnings(self, config: Config) -> Sequence[FieldViolation]:
        return [*key_warnings.unused(config), *key_warnings.unknown(config, self._keys.keys)]

    def start(self, config: Config) -> None:
        settings.check(self._keys.parse(config))
        super().start(config)

    def task_class(self) -> str:
        return "herdmesh.connectors.files.task:FileSinkTask"

    def task_configs(self, max_tasks: int) -> list[dict[str, str | None]]:
        folder = Location.parse((self.config[DIRECTORY] or "").strip()).text
        return [{**self.config, DIRECTORY: folder} for _ in range(max_tasks)]

    def alter_offsets(self, config: Config, offsets: Mapping[PartitionId, int | None]) -> bool:
        return True  # the group's are all it has


def problems_of(keys: ConfigDef, config: Config) -> list[ConfigError]:
    """What the definition does not see: keys that clash, and a folder that cannot be written."""
    try:
        values = keys.parse(config)
    except ConfigError:
        return []  # told by the definition
    found: list[ConfigError] = []
    try:
        settings.check(values)
    except ConfigError as problem:
        found.append(problem)
    if not any(problem.field != settings.COMPRESSION for problem in found):  # else nobody knows which folder
        problem = problem_of(values[DIRECTORY], Access.of(values))
        found += [problem] if problem else []
    return found
