"""What a connector author imports.

Owns nothing: re-exports the interfaces of `herdmesh.connect` and the staging of `herdmesh.engine`. What is listed in
`__all__` is public and frozen by a test; all else may change in any version.
"""

from __future__ import annotations

from herdmesh.connect.config import REQUIRED, ConfigDef, ConfigKey, FieldViolation, Importance, Type
from herdmesh.connect.config_providers.base import ConfigData, ConfigProvider
from herdmesh.connect.connector import (
    Config,
    ConnectorContext,
    ErrantRecordReporter,
    PartitionId,
    SinkBatch,
    SinkConnector,
    SinkTask,
    SourceBatch,
    SourceConnector,
    SourceTask,
    SourceTaskContext,
    StagingSinkTask,
    TaskContext,
)
from herdmesh.connect.data import ConnectRecord, Schema
from herdmesh.connect.errors import ConfigError, ConnectError, DataError, RecordError, RetriableError
from herdmesh.engine.contract import ErrorClass
from herdmesh.engine.errors import OffsetsLost, TaskFailed
from herdmesh.engine.staging import Manifest, StagingFolder, publish

__all__ = [
    "REQUIRED",
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
    "Importance",
    "Manifest",
    "OffsetsLost",
    "PartitionId",
    "RecordError",
    "RetriableError",
    "Schema",
    "SinkBatch",
    "SinkConnector",
    "SinkTask",
    "SourceBatch",
    "SourceConnector",
    "SourceTask",
    "SourceTaskContext",
    "StagingFolder",
    "StagingSinkTask",
    "TaskContext",
    "TaskFailed",
    "Type",
    "publish",
]
