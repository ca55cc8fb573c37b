"""Record formats of Connect's internal topics: configs, statuses, source offsets, and Herdmesh's audit topic.

Owns keys, values and the accept and refuse rules of each record kind, the standalone offsets file, topic names, and the
lag figures of a status. Owns no log and no state: those belong to the stores.

Invariant: a record that Connect writes is read and written back byte for byte.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from herdmesh.connect.exports import lazy_exports

if TYPE_CHECKING:
    from herdmesh.connect.topics.audit_topic import AuditRecord as AuditRecord
    from herdmesh.connect.topics.commit_scope import TOPICS_MAX as TOPICS_MAX
    from herdmesh.connect.topics.commit_scope import CommitScope as CommitScope
    from herdmesh.connect.topics.config_records import CommitRecord as CommitRecord
    from herdmesh.connect.topics.config_records import ConfigRecord as ConfigRecord
    from herdmesh.connect.topics.config_records import ConnectorRecord as ConnectorRecord
    from herdmesh.connect.topics.config_records import EpochRecord as EpochRecord
    from herdmesh.connect.topics.config_records import LoggerRecord as LoggerRecord
    from herdmesh.connect.topics.config_records import ManifestRecord as ManifestRecord
    from herdmesh.connect.topics.config_records import Properties as Properties
    from herdmesh.connect.topics.config_records import RestartRecord as RestartRecord
    from herdmesh.connect.topics.config_records import SessionKeyRecord as SessionKeyRecord
    from herdmesh.connect.topics.config_records import TargetState as TargetState
    from herdmesh.connect.topics.config_records import TargetStateRecord as TargetStateRecord
    from herdmesh.connect.topics.config_records import TaskConfigRecord as TaskConfigRecord
    from herdmesh.connect.topics.config_records import TaskCountRecord as TaskCountRecord
    from herdmesh.connect.topics.config_records import task_config_digest as task_config_digest
    from herdmesh.connect.topics.config_topic import RECORD_BYTES_MAX as RECORD_BYTES_MAX
    from herdmesh.connect.topics.decoding import Tombstone as Tombstone
    from herdmesh.connect.topics.decoding import Undecodable as Undecodable
    from herdmesh.connect.topics.decoding import Unknown as Unknown
    from herdmesh.connect.topics.decoding import key_text as key_text
    from herdmesh.connect.topics.error_headers import ERROR_HEADER_PREFIX as ERROR_HEADER_PREFIX
    from herdmesh.connect.topics.lag import NOT_KNOWN as NOT_KNOWN
    from herdmesh.connect.topics.lag import Lag as Lag
    from herdmesh.connect.topics.lag import lag_of as lag_of
    from herdmesh.connect.topics.lag import sum_of as sum_of
    from herdmesh.connect.topics.status_topic import Condition as Condition
    from herdmesh.connect.topics.status_topic import ConnectorStatus as ConnectorStatus
    from herdmesh.connect.topics.status_topic import State as State
    from herdmesh.connect.topics.status_topic import TaskStatus as TaskStatus
    from herdmesh.connect.topics.status_topic import TopicStatus as TopicStatus
    from herdmesh.connect.topics.topic_name import why_no_topic as why_no_topic
    from herdmesh.connect.topics.transaction_topic import java_partition as java_partition
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "audit_topic": ("AuditRecord",),
            "commit_scope": (
                "CommitScope",
                "TOPICS_MAX",
            ),
            "config_records": (
                "CommitRecord",
                "ConfigRecord",
                "ConnectorRecord",
                "EpochRecord",
                "LoggerRecord",
                "ManifestRecord",
                "Properties",
                "RestartRecord",
                "SessionKeyRecord",
                "TargetState",
                "TargetStateRecord",
                "TaskConfigRecord",
                "TaskCountRecord",
                "task_config_digest",
            ),
            "config_topic": ("RECORD_BYTES_MAX",),
            "decoding": (
                "Tombstone",
                "Undecodable",
                "Unknown",
                "key_text",
            ),
            "error_headers": ("ERROR_HEADER_PREFIX",),
            "lag": (
                "Lag",
                "NOT_KNOWN",
                "lag_of",
                "sum_of",
            ),
            "status_topic": (
                "Condition",
                "ConnectorStatus",
                "State",
                "TaskStatus",
                "TopicStatus",
            ),
            "topic_name": ("why_no_topic",),
            "transaction_topic": ("java_partition",),
        },
    )
