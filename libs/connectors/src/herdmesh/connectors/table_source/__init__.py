"""Sources of tables, with the keys and offsets of Confluent's
JDBC source: the shared part of `postgres` and `spark`.

Owns the shared settings (`settings`), the connector's and the task's base classes (`connector`, `task`), offsets
(`offsets`) and relations (`relation`). Knows no database.
"""

from __future__ import annotations

from herdmesh.connectors.table_source.connector import TableSource
from herdmesh.connectors.table_source.offsets import QUERY_PARTITION, TablePlace, table_partition
from herdmesh.connectors.table_source.relation import Relation
from herdmesh.connectors.table_source.settings import Mode, TableSettings
from herdmesh.connectors.table_source.task import TableProgress, TableSourceTask

__all__ = [
    "QUERY_PARTITION",
    "Mode",
    "Relation",
    "TablePlace",
    "TableProgress",
    "TableSettings",
    "TableSource",
    "TableSourceTask",
    "table_partition",
]
