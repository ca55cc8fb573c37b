"""Leadership: queries about the current leadership, its generations, and the session key that a leader keeps valid.

Owns the queries whether this herder serves and for which workers it still waits (`leadership_queries`), the blocks of
generations (`generations`) and the key of Connect's internal requests (`session_keys`). Does not own the beginning and
the end of a leadership: they change everything else too, so they are in `handlers.leadership_changes`.
"""

from herdmesh.herder.state.leadership import generations, leadership_queries, session_keys

__all__ = ["generations", "leadership_queries", "session_keys"]
