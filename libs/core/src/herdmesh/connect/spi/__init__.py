"""Plugin interfaces: what authors of connectors, transformations, predicates and converters implement and call.

Owns the interfaces, the checks of what an author's code returns, plugin classes as data, and the wait reasons that a
task shows. Finds and loads no plugin (`plugins`) and runs none (`herdmesh.engine`). `herdmesh.sdk` re-exports the
public names.

Invariant: imports `config` and `model` alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from herdmesh.connect.exports import lazy_exports

if TYPE_CHECKING:
    from herdmesh.connect.spi.author_checks import checked_agreement as checked_agreement
    from herdmesh.connect.spi.author_checks import checked_answer as checked_answer
    from herdmesh.connect.spi.author_checks import checked_class as checked_class
    from herdmesh.connect.spi.author_checks import checked_definition as checked_definition
    from herdmesh.connect.spi.author_checks import checked_error as checked_error
    from herdmesh.connect.spi.author_checks import checked_list as checked_list
    from herdmesh.connect.spi.author_checks import checked_manifests as checked_manifests
    from herdmesh.connect.spi.author_checks import checked_methods as checked_methods
    from herdmesh.connect.spi.author_checks import checked_offsets as checked_offsets
    from herdmesh.connect.spi.author_checks import checked_places as checked_places
    from herdmesh.connect.spi.author_checks import checked_task_class as checked_task_class
    from herdmesh.connect.spi.author_checks import checked_task_configs as checked_task_configs
    from herdmesh.connect.spi.author_checks import shown as shown
    from herdmesh.connect.spi.connector import SINK_TASK_CLASS as SINK_TASK_CLASS
    from herdmesh.connect.spi.connector import TASK_CLASS as TASK_CLASS
    from herdmesh.connect.spi.connector import TASK_PUT as TASK_PUT
    from herdmesh.connect.spi.connector import Config as Config
    from herdmesh.connect.spi.connector import Connector as Connector
    from herdmesh.connect.spi.connector import ConnectorContext as ConnectorContext
    from herdmesh.connect.spi.connector import ConnectorKind as ConnectorKind
    from herdmesh.connect.spi.connector import ErrantRecordReporter as ErrantRecordReporter
    from herdmesh.connect.spi.connector import OffsetMap as OffsetMap
    from herdmesh.connect.spi.connector import PartitionId as PartitionId
    from herdmesh.connect.spi.connector import SinkBatch as SinkBatch
    from herdmesh.connect.spi.connector import SinkConnector as SinkConnector
    from herdmesh.connect.spi.connector import SinkTask as SinkTask
    from herdmesh.connect.spi.connector import SourceBatch as SourceBatch
    from herdmesh.connect.spi.connector import SourceConnector as SourceConnector
    from herdmesh.connect.spi.connector import SourceTask as SourceTask
    from herdmesh.connect.spi.connector import SourceTaskContext as SourceTaskContext
    from herdmesh.connect.spi.connector import StagingSinkTask as StagingSinkTask
    from herdmesh.connect.spi.connector import TaskContext as TaskContext
    from herdmesh.connect.spi.custom_plugins import GROUPS as GROUPS
    from herdmesh.connect.spi.custom_plugins import AuthoredPlugin as AuthoredPlugin
    from herdmesh.connect.spi.custom_plugins import FindAuthored as FindAuthored
    from herdmesh.connect.spi.custom_plugins import RecordConverter as RecordConverter
    from herdmesh.connect.spi.custom_plugins import RecordPredicate as RecordPredicate
    from herdmesh.connect.spi.custom_plugins import RecordTransformation as RecordTransformation
    from herdmesh.connect.spi.custom_plugins import entries as entries
    from herdmesh.connect.spi.custom_plugins import here as here
    from herdmesh.connect.spi.plugin_class import PluginClass as PluginClass
    from herdmesh.connect.spi.plugin_class import PluginDescriptor as PluginDescriptor
    from herdmesh.connect.spi.plugin_class import PluginImports as PluginImports
    from herdmesh.connect.spi.plugin_class import PluginKind as PluginKind
    from herdmesh.connect.spi.sink_requests import SinkReading as SinkReading
    from herdmesh.connect.spi.source_transactions import RecordMetadata as RecordMetadata
    from herdmesh.connect.spi.source_transactions import TransactionContext as TransactionContext
    from herdmesh.connect.spi.waits import RUN_SLOT as RUN_SLOT
    from herdmesh.connect.spi.waits import SHOWN_AFTER_S as SHOWN_AFTER_S
    from herdmesh.connect.spi.waits import WAITING as WAITING
    from herdmesh.connect.spi.waits import Absent as Absent
    from herdmesh.connect.spi.waits import Standing as Standing
    from herdmesh.connect.spi.waits import Wait as Wait
    from herdmesh.connect.spi.waits import Waits as Waits
    from herdmesh.connect.spi.waits import entered as entered
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "author_checks": (
                "checked_agreement",
                "checked_answer",
                "checked_class",
                "checked_definition",
                "checked_error",
                "checked_list",
                "checked_manifests",
                "checked_methods",
                "checked_offsets",
                "checked_places",
                "checked_task_class",
                "checked_task_configs",
                "shown",
            ),
            "connector": (
                "Config",
                "Connector",
                "ConnectorContext",
                "ConnectorKind",
                "ErrantRecordReporter",
                "OffsetMap",
                "PartitionId",
                "SINK_TASK_CLASS",
                "SinkBatch",
                "SinkConnector",
                "SinkTask",
                "SourceBatch",
                "SourceConnector",
                "SourceTask",
                "SourceTaskContext",
                "StagingSinkTask",
                "TASK_CLASS",
                "TASK_PUT",
                "TaskContext",
            ),
            "custom_plugins": (
                "AuthoredPlugin",
                "FindAuthored",
                "GROUPS",
                "RecordConverter",
                "RecordPredicate",
                "RecordTransformation",
                "entries",
                "here",
            ),
            "plugin_class": (
                "PluginClass",
                "PluginDescriptor",
                "PluginImports",
                "PluginKind",
            ),
            "sink_requests": ("SinkReading",),
            "source_transactions": (
                "RecordMetadata",
                "TransactionContext",
            ),
            "waits": (
                "Absent",
                "RUN_SLOT",
                "SHOWN_AFTER_S",
                "Standing",
                "WAITING",
                "Wait",
                "Waits",
                "entered",
            ),
        },
    )
