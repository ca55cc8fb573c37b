"""`HttpSink`: sends records as HTTP requests, at least once and in the order of each partition.

Owns the connector. Keys: `keys`. The task is in another module,
`task`, so that a worker need not import an HTTP client.

Invariant: the task can read every config that `validate` accepts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from herdmesh.connectors.common import ReadConnector
from herdmesh.connectors.http.keys import AIVENS, CONFLUENTS, KEYS
from herdmesh.connectors.http.settings import HttpSettings, not_built, settings_of, warnings_of
from herdmesh.sdk import Config, ConfigDef, ConfigError, FieldViolation, PartitionId, SinkConnector


class HttpSink(ReadConnector[HttpSettings], SinkConnector):
    """Aiven's and Confluent's HTTP sinks, with the differences that docs/connectors/http-sink.md lists."""

    class_name = "herdmesh.HttpSink"
    aliases = (
        "HttpSink",
        "HttpSinkConnector",
        AIVENS,
        CONFLUENTS,
    )
    version = "0.1.0"
    process_reuse = True

    @classmethod
    def config_def(cls) -> ConfigDef:
        return KEYS

    @classmethod
    def read(cls, config: Config) -> HttpSettings:
        return settings_of(config)

    def not_built(self, config: Config) -> list[ConfigError]:
        return not_built(config)

    def warnings(self, config: Config) -> Sequence[FieldViolation]:
        return warnings_of(config)

    def task_class(self) -> str:
        return "herdmesh.connectors.http.task:HttpSinkTask"

    def task_configs(self, max_tasks: int) -> list[dict[str, str | None]]:
        return [dict(self.config) for _ in range(max_tasks)]

    def alter_offsets(self, config: Config, offsets: Mapping[PartitionId, int | None]) -> bool:
        return True  # the sink has no offsets beside those of its consumer group
