"""`Datagen`: generates records from an Avro schema, the same records for the same seed.

Owns the connector. Its keys: `settings`; the task: `task`; schemas: `avro_schema`.

Invariant: a task can start with every config that `validate` accepts, provided that the schema's file is readable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from herdmesh.connectors.common import topic_problems, warned_settings
from herdmesh.connectors.datagen.settings import ITERATION, KEYS, TASK_ID, TIMEOUT_MS, TOPIC, settings_of
from herdmesh.sdk import Config, ConfigDef, ConfigError, FieldViolation, SourceConnector


class Datagen(SourceConnector):
    """Confluent's datagen, with the differences that docs/connectors/datagen.md lists."""

    class_name = "io.confluent.kafka.connect.datagen.DatagenConnector"
    aliases = ("Datagen", "DatagenConnector")
    version = "0.1.0"
    java_task_class = "io.confluent.kafka.connect.datagen.DatagenTask"
    process_reuse = True

    @classmethod
    def config_def(cls) -> ConfigDef:
        return KEYS

    def validate(self, config: Config) -> Sequence[ConfigError]:
        from herdmesh.connectors.datagen.task import columns_for  # imports numpy, which only runs need otherwise

        try:
            columns_for(settings_of(config), 0, 0)
        except ConfigError as error:
            return [error, *topic_problems(config, TOPIC)]
        return topic_problems(config, TOPIC)

    def warnings(self, config: Config) -> Sequence[FieldViolation]:
        found = warned_settings(config, {*KEYS.keys, TASK_ID}, self.kind, java="datagen")
        if (config.get(TIMEOUT_MS) or "").strip():
            message = f"{TIMEOUT_MS} has no effect: the schema already limits the time to generate a record"
            found.append(FieldViolation(TIMEOUT_MS, message, "leave it out"))
        return found

    def start(self, config: Config) -> None:
        settings_of(config)
        super().start(config)

    def task_class(self) -> str:
        return "herdmesh.connectors.datagen.task:DatagenTask"

    def task_configs(self, max_tasks: int) -> list[dict[str, str | None]]:
        return [{**self.config, TASK_ID: str(task)} for task in range(max_tasks)]

    def exactly_once_support(self, config: Config) -> bool | None:
        return True

    def alter_offsets(
        self, config: Config, offsets: Sequence[tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]]
    ) -> bool:
        for partition, offset in offsets:
            _require_number(partition, TASK_ID, "source partition")
            if offset is not None:
                _require_number(offset, ITERATION, "source offset")
        return True


def _require_number(given: Mapping[str, Any] | None, key: str, what: str) -> None:
    number = (given or {}).get(key)
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        raise ConfigError(f"The {what} {dict(given or {})} needs a number, 0 or more, under the key '{key}'")
