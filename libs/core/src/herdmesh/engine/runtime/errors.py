"""Errors of the record loop.

Owns the tree below. What a failure means for restarts is its `error_class`; `engine.runtime.failure` classifies
foreign errors.

    TaskFailed                a run that ended with an error; carries an ErrorClass
    +-- TaskFenced            another owner initialised the task's transactional id
    +-- OffsetsLost           committed offsets are missing or out of range (DATA_LOSS)
    +-- ForeignMembers        the consumer group has live members, named in the message
    +-- ManifestInvalid       offset metadata that cannot be read or would not fit
    +-- LedgerTaken           a row of the target's ledger is another owner's

Invariant: the message is one line that says what failed, where, and what to change if that is known.
"""

from __future__ import annotations

from herdmesh.connect.error_class import ErrorClass


class TaskFailed(Exception):
    """A run ended with an error.

    Args:
        message: one line: what failed, where, and the fix if known.
        error_class: decides what the restart policy does.
    """

    def __init__(self, message: str, error_class: ErrorClass = ErrorClass.UNKNOWN) -> None:
        super().__init__(message, error_class)
        self.message = message
        self.error_class = error_class

    def __str__(self) -> str:
        return self.message


class TaskFenced(TaskFailed):
    """Another owner took over. Not a failure of the task: whoever hears it stops and publishes nothing more."""

    def __init__(self, message: str) -> None:
        super().__init__(message, ErrorClass.FENCED)

    def __reduce__(self) -> tuple[type[TaskFenced], tuple[str]]:
        return type(self), (self.message,)


class OffsetsLost(TaskFailed):
    """Committed offsets, or what they name, are gone. A human decides, or `herdmesh.offsets.missing=reset`."""

    def __init__(self, message: str) -> None:
        super().__init__(message, ErrorClass.DATA_LOSS)

    def __reduce__(self) -> tuple[type[OffsetsLost], tuple[str]]:
        return type(self), (self.message,)


class ForeignMembers(TaskFailed):
    """Somebody else consumes with the task's group. Retried: they may leave."""

    def __init__(self, group: str, members: list[str]) -> None:
        shown = ", ".join(members)
        super().__init__(
            f"the consumer group {group} has live members: {shown}; stop them, or set consumer.override.group.id",
            ErrorClass.RETRIABLE,
        )
        self.group = group
        self.members = members

    def __reduce__(self) -> tuple[type[ForeignMembers], tuple[str, list[str]]]:
        return type(self), (self.group, self.members)


class ManifestInvalid(TaskFailed):
    """Offset metadata that cannot be read, or would exceed what the broker keeps."""

    def __init__(self, message: str) -> None:
        super().__init__(message, ErrorClass.FATAL)

    def __reduce__(self) -> tuple[type[ManifestInvalid], tuple[str]]:
        return type(self), (self.message,)


class LedgerTaken(TaskFailed):
    """A row of the target's ledger is another owner's, and nothing was written. The fence tells whether that owner is a
    later run of the task: the loop asks it, and raises TaskFenced then. Else retried: the next run claims the row."""

    def __init__(self, message: str) -> None:
        super().__init__(message, ErrorClass.RETRIABLE)

    def __reduce__(self) -> tuple[type[LedgerTaken], tuple[str]]:
        return type(self), (self.message,)
