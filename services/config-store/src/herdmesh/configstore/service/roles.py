"""Health by role: the role of this replica decides which of its services are SERVING.

Owns only the order of the two steps of a role change.

Invariant: the election runs before the leadership service turns SERVING, and that service turns NOT_SERVING as soon as
the replica stops writing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from herdmesh.configstore.effects.campaigns import Campaigns
from herdmesh.configstore.effects.stores import ConfigTopicStore
from herdmesh.topicstore import StoreRole

READ_SERVICE = "herdmesh.api.configstore.v1.ConfigReadService"
WRITE_SERVICE = "herdmesh.api.configstore.v1.ConfigWriteService"
LEADERSHIP_SERVICE = "herdmesh.api.configstore.v1.LeadershipService"


async def follow_roles(
    store: ConfigTopicStore, campaigns: Campaigns, set_serving: Callable[[str, bool], Awaitable[None]]
) -> None:
    """Follow the store's role until the store closes; then return, because a store that closed itself cannot be used
    again.
    """
    async for role in store.role_changes():
        campaigns.become(role)
        await set_serving(READ_SERVICE, role not in (StoreRole.REPLAYING, StoreRole.CLOSED))
        for name in (WRITE_SERVICE, LEADERSHIP_SERVICE):
            await set_serving(name, role is StoreRole.WRITER)
