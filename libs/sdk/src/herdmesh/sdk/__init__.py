"""The names that a connector author imports.

Owns nothing: re-exports the interfaces of `herdmesh.connect`, the staging of `herdmesh.engine`, and the additions of
the modules here. Beside it: `herdmesh.sdk.arrow` (needs pyarrow), `herdmesh.sdk.spark` (needs pyspark),
`herdmesh.sdk.validators` and `herdmesh.sdk.testing` (needs pytest). The names in `__all__` are public and frozen by a
test; all others may change in any version.
"""

from __future__ import annotations

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
from herdmesh.connect.config_providers import ConfigData, ConfigProvider
from herdmesh.connect.error_class import ErrorClass
from herdmesh.connect.errors import (
    ConfigError,
    ConnectError,
    DataError,
    RecordError,
    RetriableError,
    UnreachableError,
)
from herdmesh.connect.model import (
    ConnectRecord,
    Header,
    Headers,
    JavaDate,
    Schema,
    SchemaBuilder,
    Struct,
    date_schema,
    decimal_schema,
    time_schema,
    timestamp_schema,
)
from herdmesh.connect.spi import (
    Config,
    ConnectorContext,
    ErrantRecordReporter,
    OffsetMap,
    PartitionId,
    RecordConverter,
    RecordMetadata,
    RecordPredicate,
    RecordTransformation,
    SinkBatch,
    SinkConnector,
    SinkReading,
    SinkTask,
    SourceBatch,
    SourceConnector,
    SourceTask,
    SourceTaskContext,
    StagingSinkTask,
    TaskContext,
    TransactionContext,
    waits,
)
from herdmesh.engine.runtime import LedgerTaken, OffsetsLost, TaskFailed
from herdmesh.engine.sink import (
    Files,
    LedgerSinkTask,
    LocalFiles,
    Manifest,
    OpenFiles,
    SqlLedger,
    StagingFolder,
    publish,
)
from herdmesh.scratch import ScratchFolder
from herdmesh.sdk.asynchronous import AsyncRecordSinkTask, AsyncSinkTask, AsyncSourceTask
from herdmesh.sdk.grouping import group_partitions
from herdmesh.sdk.record_transactions import RecordTransactions
from herdmesh.sdk.records import RecordSinkTask, RecordSourceTask, SourceOffset, SourceRecord
from herdmesh.sdk.settings import Secret, Settings, setting

__all__ = [
    "REQUIRED",
    "AsyncRecordSinkTask",
    "AsyncSinkTask",
    "AsyncSourceTask",
    "Config",
    "ConfigData",
    "ConfigDef",
    "ConfigError",
    "ConfigKey",
    "ConfigProvider",
    "ConnectError",
    "ConnectRecord",
    "ConnectorContext",
    "DataError",
    "ErrantRecordReporter",
    "ErrorClass",
    "FieldViolation",
    "Files",
    "Header",
    "Headers",
    "Importance",
    "JavaDate",
    "LedgerSinkTask",
    "LedgerTaken",
    "LocalFiles",
    "Manifest",
    "OffsetMap",
    "OffsetsLost",
    "OpenFiles",
    "PartitionId",
    "Recommender",
    "RecordConverter",
    "RecordError",
    "RecordMetadata",
    "RecordPredicate",
    "RecordSinkTask",
    "RecordSourceTask",
    "RecordTransactions",
    "RecordTransformation",
    "RetriableError",
    "Schema",
    "SchemaBuilder",
    "ScratchFolder",
    "Secret",
    "Settings",
    "SinkBatch",
    "SinkConnector",
    "SinkReading",
    "SinkTask",
    "SourceBatch",
    "SourceConnector",
    "SourceOffset",
    "SourceRecord",
    "SourceTask",
    "SourceTaskContext",
    "SqlLedger",
    "StagingFolder",
    "StagingSinkTask",
    "Struct",
    "TaskContext",
    "TaskFailed",
    "TransactionContext",
    "Type",
    "UnreachableError",
    "Validator",
    "date_schema",
    "decimal_schema",
    "group_partitions",
    "publish",
    "setting",
    "time_schema",
    "timestamp_schema",
    "waits",
]
