"""Memory of this process' commands to set log levels, so that each request is executed once.

Owns the revision of the newest level for the cluster, which hello has, and the loggers that the newest levels changed.
Pure; `run.loggers` has the levels themselves. The memory ends with the process, as the levels do.

Invariant: a level for the cluster that is not newer than the newest one received is not set, nor is one whose request
id was executed before, so that a repetition does not undo a later change.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from herdmesh.connect.errors import ConfigError
from herdmesh.session.worker_commands import SetLogger
from herdmesh.topicstore.contract import Revision

REMEMBERED_MAX: Final = 1_000


class Levels:
    """Memory of one process."""

    def __init__(self) -> None:
        #: revision of the newest level for the cluster; None = none was received.
        self.revision: Revision | None = None
        #: executed commands and the loggers they changed, by revision and by request id, oldest first.
        self._done: dict[Revision | str, tuple[SetLogger, Sequence[str]]] = {}

    def changed_before(self, question: SetLogger) -> Sequence[str] | None:
        """None when the command must be executed now; otherwise the loggers that it changed, empty when that is
        forgotten. Raises ConfigError for a request id that was used for another level.
        """
        known = self._done.get(question.request_id)
        if known is not None:
            first, changed = known
            if (first.logger, first.level) != (question.logger, question.level):
                raise ConfigError(
                    f"request id {question.request_id} was used for {first.logger}={first.level}",
                    field="request_id",
                    fix="repeat that request as it was, or give this one an id of its own",
                )
            return changed
        if question.revision is None or self.revision is None or not self.revision.includes(question.revision):
            return None
        return self._done.get(question.revision, (question, ()))[1]

    def carried_out(self, question: SetLogger, changed: Sequence[str]) -> None:
        """Record that the command was executed and changed these loggers."""
        if question.revision is not None:
            self.revision = question.revision
            self._done[question.revision] = (question, tuple(changed))
        if question.request_id:
            self._done[question.request_id] = (question, tuple(changed))
        while len(self._done) > REMEMBERED_MAX:
            del self._done[next(iter(self._done))]
