"""Errors of the record loop.

Owns the tree below. `error_class` determines the restart policy's reaction; `engine.runtime.failure` classifies the
exceptions of other libraries.

    TaskFailed                a run that ended with an error; carries an ErrorClass
    +-- TaskFenced            another owner initialised the task's transactional id
    +-- OffsetsLost           committed offsets are missing or out of range (DATA_LOSS)
    +-- ForeignMembers        the consumer group has live members, named in the message
    +-- ManifestInvalid       offset metadata that cannot be read or would not fit
    +-- LedgerTaken           a row of the target's ledger belongs to another owner

Invariant: the message is one line with the failure, its place, and the fix if that is known.
"""

from __future__ import annotations

from herdmesh.connect.error_class import ErrorClass


class TaskFailed(Exception):
    """A run ended with an error.

    Args:
        message: one line: failure, place, and the fix if known.
        error_class: determines the reaction of the restart policy.
    """

    def __init__(self, message: str, error_class: ErrorClass = ErrorClass.UNKNOWN) -> None:
        super().__init__(message, error_class)
        self.message = message
        self.error_class = error_class

    def __str__(self) -> str:
        return self.message


class TaskFenced(TaskFailed):
    """Another owner took over. Not a failure of the task: the process that gets this error stops and publishes nothing
    more.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message, ErrorClass.FENCED)

    def __reduce__(self) -> tuple[type[TaskFenced], tuple[str]]:
        return type(self), (self.message,)


class OffsetsLost(TaskFailed):
    """Committed offsets, or files that they name, are gone. An operator decides, or
    `herdmesh.offsets.missing=reset`."""

    def __init__(self, message: str) -> None:
        super().__init__(message, ErrorClass.DATA_LOSS)

    def __reduce__(self) -> tuple[type[OffsetsLost], tuple[str]]:
        return type(self), (self.message,)


class ForeignMembers(TaskFailed):
    """Another program consumes with the task's group. Retried, because its members may leave."""

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
    """Offset metadata that cannot be read, or would exceed the broker's limit."""

    def __init__(self, message: str) -> None:
        super().__init__(message, ErrorClass.FATAL)

    def __reduce__(self) -> tuple[type[ManifestInvalid], tuple[str]]:
        return type(self), (self.message,)


class LedgerTaken(TaskFailed):
    """A row of the target's ledger belongs to another owner, and nothing was written. The loop checks the fence: if
    that owner is a later run of the task, it raises TaskFenced. Else retried: the next run claims the row.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message, ErrorClass.RETRIABLE)

    def __reduce__(self) -> tuple[type[LedgerTaken], tuple[str]]:
        return type(self), (self.message,)
