"""Workers: the plugins each has, the commands each has open, and which of them take work.

Owns the plugin catalog (`plugin_catalog`), which workers can run a connector (`plugin_eligibility`), the commands under
way to workers (`commands`), draining and leaving workers (`drains`), and two living workers of one id
(`duplicate_ids`). Does not own which units they run (`units`), nor their sessions (`handlers.worker_sessions`).
"""

from herdmesh.herder.state.workers import commands, drains, duplicate_ids, plugin_catalog, plugin_eligibility

__all__ = ["commands", "drains", "duplicate_ids", "plugin_catalog", "plugin_eligibility"]
