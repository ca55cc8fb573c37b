"""Units: connectors and tasks, from the wanted state to the worker that runs each.

Owns the comparison of wanted and held (`lifecycle`), the rule between two owners: stop, acknowledge, start
(`handover`), task sets (`task_sets`), places (`placement`, which uses `assignment`), balance (`balance`), restarts
(`restarts`; the rule when a failed unit is restarted automatically is `model.restart_policy`), the statuses that the
leader itself writes (`leader_statuses`) and shares of rate limits (`rate_limits`).
"""

from herdmesh.herder.state.units import (
    balance,
    handover,
    leader_statuses,
    lifecycle,
    placement,
    rate_limits,
    restarts,
    task_sets,
)

__all__ = ["balance", "handover", "leader_statuses", "lifecycle", "placement", "rate_limits", "restarts", "task_sets"]
