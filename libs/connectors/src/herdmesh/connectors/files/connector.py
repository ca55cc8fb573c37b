"""`FileSink`: writes records as files to a folder, each record exactly once.

Owns the connector. Its keys: `settings`. Its task is in another
module, `task`, so that a worker need not import pyarrow.

Invariant: a folder that is not writable is an error of the field `directory` before the connector starts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from herdmesh.connectors.files import key_warnings, settings
from herdmesh.connectors.files.locations import DIRECTORY, Access, Location, problem_of
from herdmesh.sdk import Config, ConfigDef, ConfigError, FieldViolation, PartitionId, SinkConnector


class FileSink(SinkConnector):
    """`FileSink`: one file per partition, subfolder and commit."""

    class_name = "herdmesh.FileSink"
    aliases = ("FileSink", "FileSinkConnector")
    version = "0.1.0"
    process_reuse = True
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
        return True  # the sink has no offsets beside those of its consumer group


def problems_of(keys: ConfigDef, config: Config) -> list[ConfigError]:
    """Return the errors that the key definitions cannot find: conflicting keys, and a folder that is not writable."""
    try:
        values = keys.parse(config)
    except ConfigError:
        return []  # the definition reports these errors
    found: list[ConfigError] = []
    try:
        settings.check(values)
    except ConfigError as problem:
        found.append(problem)
    if not any(problem.field != settings.COMPRESSION for problem in found):  # with other errors the folder is unknown
        problem = problem_of(values[DIRECTORY], Access.of(values))
        found += [problem] if problem else []
    return found
