"""Session key part of a herder's memory: the key that the config store has, and the rotation under way.

Owns these values. Does not own when a key is due (`leadership.session_keys`).
"""

from __future__ import annotations

from dataclasses import dataclass

from herdmesh.herder.state.model import SessionKey
from herdmesh.topicstore.contract import Revision


@dataclass(slots=True)
class SessionKeyState:
    """Session key of one herder. The key outlives the leadership, a rotation does not."""

    key: SessionKey | None = None
    #: its end by our own clock; None = never.
    until_ms: int | None = None
    #: the revision of the last rotation of this leadership.
    written: Revision | None = None
    #: no rotation before this time.
    retry_ms: int = 0

    def set_key(self, key: SessionKey | None, until_ms: int | None) -> None:
        """The config store has this key; None = none."""
        self.key, self.until_ms = key, until_ms

    def note_written(self, revision: Revision | None) -> None:
        """A rotation was written at this revision."""
        self.written = revision

    def retry_from(self, retry_ms: int) -> None:
        """A rotation failed: the next one does not begin before `retry_ms`."""
        self.retry_ms = retry_ms

    def end_leadership(self) -> None:
        """Forget the rotation."""
        self.written, self.retry_ms = None, 0
