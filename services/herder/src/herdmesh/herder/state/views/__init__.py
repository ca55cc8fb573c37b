"""Views: connectors, tasks and workers as callers see them, and why each unit is where it is.

Owns the joined views (`views`) and their one-line explanations (`explanations`). Reads only.
"""

from herdmesh.herder.state.views import views

__all__ = ["views"]
