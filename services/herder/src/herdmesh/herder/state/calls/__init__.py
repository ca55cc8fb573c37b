"""Calls: callers' requests, from the request to its one answer.

Owns the stages and deadlines of calls (`calls`) and one module for each kind of request, such as `offset_changes` (a
worker carries the change out: `worker.effects.offsets`). Others use `calls`, the names of connectors
(`connector_names`), and the modules that take part in other events too: cluster logger levels (`loggers`), requested
restarts (`restart_requests`) and hedged commands (`hedged_commands`).
"""

from herdmesh.herder.state.calls import calls, connector_names, hedged_commands, loggers, restart_requests

__all__ = ["calls", "connector_names", "hedged_commands", "loggers", "restart_requests"]
