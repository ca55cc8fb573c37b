"""Views: connectors, tasks and workers as callers see them, and why each unit is where it is.

Owns the joined views (`views`), their one-line explanations (`explanations`) and the counts for metrics (`counts`).
Reads only.
"""

from herdmesh.herder.state.views import counts, views

__all__ = ["counts", "views"]
