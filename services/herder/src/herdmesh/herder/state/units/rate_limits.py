"""Rate limits of connectors: each task's share, so that all tasks together use the whole limit of their connector.

Owns the arithmetic, and the share that each worker was sent last. Does not know the limits themselves: a config may
have them as references, so every task reports its connector's limit with its use of it (`TaskProgress`).

The rule: every task of a connector gets the same level. Tasks that need less than the level use less, and the rest
raises the level for the others: at the level, the sum of the uses is the limit. A task that has not reported (it
starts, or its worker's stream is broken) is not counted; until it reports, it uses no more than an equal part of the
limit.

Invariant: a worker is sent a level only when it has tasks of the connector that use a limit, and again only when the
level has changed by more than `RESEND_CHANGE_MIN`.
"""

from __future__ import annotations

from collections.abc import Sequence

from herdmesh.herder.state.memory import (
    Connector,
    Fleet,
)
from herdmesh.herder.state.model import RateUse
from herdmesh.session.messages import SetRate

RESEND_CHANGE_MIN = 0.01


def level(uses: Sequence[RateUse]) -> float:
    """The most that each task may use per second; 0 = no task has reported a limit, so each uses an equal part."""
    if not uses:
        return 0.0
    limit = min(
        use.limit_per_second for use in uses
    )  # after a change of the config some tasks still report the old limit
    content = sorted(use.used_per_second for use in uses if not use.wants_more)
    count = len(uses)
    if len(content) == count:
        # No task needs more: the first that does may use the rest, besides the largest use so far.
        return max(limit / count, limit - sum(content[:-1]))
    left = limit
    for used in content:
        if used * count >= left:
            break
        left -= used
        count -= 1
    return max(0.0, left / count)


def share_limits(fleet: Fleet, connector: Connector) -> None:
    """Send the workers that run tasks of the connector the level, where it has changed."""
    progress = [unit.progress for unit in connector.units.values() if unit.progress is not None]
    records = level([one.records_rate for one in progress if one.records_rate is not None])
    bytes_ = level([one.bytes_rate for one in progress if one.bytes_rate is not None])
    workers = {
        unit.placement.worker_id
        for unit in connector.units.values()
        if unit.placement is not None and unit.progress is not None and unit.progress.is_limited
    }
    for worker_id in sorted(workers):
        member = fleet.members.get(worker_id)
        if member is None or not _differs(member.rates.get(connector.name), (records, bytes_)):
            continue
        if fleet.send_to(worker_id, SetRate(connector.name, records, bytes_)):
            member.rates[connector.name] = (records, bytes_)


def _differs(told: tuple[float, float] | None, now: tuple[float, float]) -> bool:
    if told is None:
        return True
    return any(abs(new - old) > RESEND_CHANGE_MIN * max(new, old) for new, old in zip(now, told, strict=True))
