"""Errors of a worker, as types. Owns no mapping to gRPC: `herdmesh.rpc` does that for its own tree.

    WorkerError
    ├── SparkUnavailable   Spark did not start, or its JVM is gone; the process ends and its supervisor starts it anew
    ├── RunLost            a run's process ended without a last word (crash, kill -9, Spark failure): FAILED if it was
    │                      its own doing, else the task is run again
    ├── OffsetFileUnusable the file that keeps source offsets is locked, unreadable, or no offsets file
    └── PluginUnusable     a connector class was found but cannot be loaded or does not give its task class

Invariant: an error of an author's code is never one of these; it travels as a `Failure`, which is data.
"""

from __future__ import annotations


class WorkerError(Exception):
    """Base of all errors that a worker itself raises."""


class SparkUnavailable(WorkerError):
    """Spark did not start, or its JVM is gone."""


class RunLost(WorkerError):
    """A run ended without finishing or failing. `own_doing`: its code crashed the process or ended it, so the task is
    FAILED with this error; `trace`: the stack at that time, as far as known.
    """

    def __init__(self, message: str, *, own_doing: bool = False, trace: str = "") -> None:
        super().__init__(message)
        self.own_doing = own_doing
        self.trace = trace


class OffsetFileUnusable(WorkerError):
    """The offsets file cannot be used; the message has its name and the reason."""


class PluginUnusable(WorkerError):
    """A connector's class cannot be loaded or called; the message has the class and the cause."""
