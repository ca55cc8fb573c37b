"""Log levels that this process was told to set, remembered so that each request is carried out once.

Owns the revision of the newest level for the cluster, which hello tells, and what the newest levels changed. Pure; the
levels themselves are `run.loggers`'. All of it ends with the process, as the levels do.

Invariant: a level for the cluster that is not newer than the newest one told is not carried out, nor is a request whose
id was, so that a repeat takes nothing back that was set since.
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
        #: of the newest level for the cluster; None = none was told.
        self.revision: Revision | None = None
        #: what was carried out and the loggers it changed, by revision and by request id, oldest first.
        self._done: dict[Revision | str, tuple[SetLogger, Sequence[str]]] = {}

    def changed_before(self, question: SetLogger) -> Sequence[str] | None:
        """None when it is to be carried out now; otherwise the loggers it changed when it was, none where that is
        forgotten. Raises ConfigError for a request id that was used for another level."""
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
        """It was, and these are the loggers it changed."""
        if question.revision is not None:
            self.revision = question.revision
            self._done[question.revision] = (question, tuple(changed))
        if question.request_id:
            self._done[question.request_id] = (question, tuple(changed))
        while len(self._done) > REMEMBERED_MAX:
            del self._done[next(iter(self._done))]
