"""The config store in a story: its real servicers, plans and fold on a simulated life.

Owns the servicers of one life. How clients use them is `tests.support.config_register`.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

from herdmesh.configstore.effects.campaigns import Campaigns
from herdmesh.configstore.service import wire
from herdmesh.configstore.service.leadership import LeadershipServicer
from herdmesh.configstore.service.read import ConfigReadServicer
from herdmesh.configstore.service.write import ConfigWriteServicer
from herdmesh.configstore.state.config import ConfigState
from herdmesh.topicstore import Revision, Role, TopicSettings
from herdmesh.topicstore.core import TopicStoreCore
from tests.support.config_register import ConfigRegister
from tests.support.store_checks import FOREIGN_PREFIX

SETTINGS = TopicSettings(
    topic="configs",
    transactional_id="connect-cluster-sim",
    election_group="herdmesh-config-store-sim",
    audit_topic="configs-audit",
)


class ConfigServer:
    """The servicers of one life."""

    def __init__(self, store: TopicStoreCore[Any, Any], now_ms: Callable[[], int], fresh_id: Callable[[], str]) -> None:
        loop = asyncio.get_running_loop()
        self.campaigns = Campaigns(store, lambda: round(loop.time() * 1000))
        self.write = ConfigWriteServicer(store, SETTINGS.audit_topic, now_ms, fresh_id)
        self.read = ConfigReadServicer(store)
        self.leadership = LeadershipServicer(store, self.campaigns)

    def become(self, role: Role) -> None:
        self.campaigns.become(role)

    async def run(self) -> None:
        await self.campaigns.run()


class ConfigSide(ConfigRegister):
    """What a story needs to know of the config store; `StatusSide` is the other one."""

    settings = SETTINGS

    def __init__(self) -> None:
        super().__init__(SETTINGS.topic, "sim")
        self._ids = itertools.count(1)

    def initial(self) -> ConfigState:
        return ConfigState(SETTINGS.audit_topic)

    def server(self, store: TopicStoreCore[Any, Any], now_ms: Callable[[], int]) -> ConfigServer:
        return ConfigServer(store, now_ms, lambda: f"incarnation-{next(self._ids)}")

    def everything(self, state: ConfigState) -> Any:
        """All that callers can read of a state, to compare replicas by. What only Java wrote is left out: compaction
        may change what Connect's rules make of it (S11)."""
        ours = [connector.name for connector in state.stored() if not connector.name.startswith(FOREIGN_PREFIX)]
        response = wire.snapshot_head(state, Revision("sim", (0,)))
        response.connectors.extend(wire.entry(connector, "sim") for connector in wire.chosen(state, [*ours, "-"]))
        return response.SerializeToString(deterministic=True)
