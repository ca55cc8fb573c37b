"""A Spark session of a task's own, for connectors to targets and sources that only Spark can use.

Owns the session's JVM (`task_session`), the class-data archive with which every Spark of Herdmesh starts faster
(`class_archive`), and the filter of Py4J's log lines (`py4j_log`). The worker's own Spark, which runs the tasks, is
`herdmesh.worker.spark`. Needs pyspark (`herdmesh-sdk[spark]`), which `herdmesh.sdk` does not.
"""

from __future__ import annotations

from herdmesh.sdk.spark.task_session import (
    ERRORS,
    HOME_VARIABLE,
    JARS_VARIABLE,
    arrow_of,
    begin,
    cause_of,
    end,
    environment,
    errors_translated,
    has_failed,
    jars_folder,
    java_class,
    session_of,
)

__all__ = [
    "ERRORS",
    "HOME_VARIABLE",
    "JARS_VARIABLE",
    "arrow_of",
    "begin",
    "cause_of",
    "end",
    "environment",
    "errors_translated",
    "has_failed",
    "jars_folder",
    "java_class",
    "session_of",
]
