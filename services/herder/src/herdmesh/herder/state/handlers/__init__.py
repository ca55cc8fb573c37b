"""Handlers: the changes that each source of events makes, one module for each.

Owns the reactions to the config watch (`config_events`), the status watch (`status_events`), results of writes
(`write_results`), workers' sessions (`worker_sessions`) and changes of leadership (`leadership_changes`). Does not own
the rules they apply: those are in the rooms below. `machine` dispatches to these modules.
"""

from herdmesh.herder.state.handlers import (
    config_events,
    leadership_changes,
    status_events,
    worker_sessions,
    write_results,
)

__all__ = ["config_events", "leadership_changes", "status_events", "worker_sessions", "write_results"]
