"""`PostgresConnector`: captures the changes of a PostgreSQL database from its write-ahead log.

Owns the connector. Keys: `settings`. The task (always one) is in another module, `task`, so that a worker that only
validates does not connect.

Invariant: the changes of one database are read by one task, in the order of their commits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from herdmesh.connectors.common import ReadConnector
from herdmesh.connectors.postgres.cdc.events import VERSION
from herdmesh.connectors.postgres.cdc.position import read, source_partition
from herdmesh.connectors.postgres.cdc.settings import KEYS, PREFIX, CdcSettings, not_built, settings_of, warnings_of
from herdmesh.sdk import Config, ConfigDef, ConfigError, DataError, FieldViolation, SourceConnector


class PostgresCdcSource(ReadConnector[CdcSettings], SourceConnector):
    """Debezium's PostgreSQL connector, with the differences that docs/connectors/postgres-cdc.md lists."""

    class_name = "io.debezium.connector.postgresql.PostgresConnector"
    aliases = ("PostgresCdcSource", "PostgresConnector")
    version = VERSION
    java_task_class = "io.debezium.connector.postgresql.PostgresConnectorTask"

    @classmethod
    def config_def(cls) -> ConfigDef:
        return KEYS

    @classmethod
    def read(cls, config: Config) -> CdcSettings:
        return settings_of(config)

    def not_built(self, config: Config) -> list[ConfigError]:
        return not_built(config)

    def warnings(self, config: Config) -> Sequence[FieldViolation]:
        return warnings_of(config)

    def task_class(self) -> str:
        return "herdmesh.connectors.postgres.cdc.task:CdcSourceTask"

    def task_configs(self, max_tasks: int) -> list[dict[str, str | None]]:
        return [dict(self.config)]

    def exactly_once_support(self, config: Config) -> bool | None:
        """False if the slot is dropped between runs, because the changes made then are lost."""
        return self.answer_from(config, lambda settings: not settings.drops_slot)

    def alter_offsets(
        self, config: Config, offsets: Sequence[tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]]
    ) -> bool:
        expected = source_partition(str(config.get(PREFIX) or "").strip())
        for partition, offset in offsets:
            if partition != expected:
                shown = None if partition is None else dict(partition)
                raise ConfigError(
                    f"The source partition {shown} does not belong to this connector, whose only partition is "
                    f"{expected}",
                    field=PREFIX,
                )
            if offset is not None:
                try:
                    read(offset)
                except DataError as error:
                    raise ConfigError(str(error)) from error
        return True
