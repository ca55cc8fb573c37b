"""Leadership: what can be said of the current reign, its generations, and the session key that a leader keeps valid.

Owns the questions whether this herder serves and whom it still waits for (`leadership_queries`), the blocks of
generations (`generations`) and the key of Connect's internal requests (`session_keys`). Does not own how a reign begins
and ends: that changes everything else too, so it is `handlers.leadership_changes`.
"""

from herdmesh.herder.state.leadership import generations, leadership_queries, session_keys

__all__ = ["generations", "leadership_queries", "session_keys"]
