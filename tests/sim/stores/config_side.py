"""The config store in a story: its real servicers, plans and fold on a simulated life.

Owns the servicers of one life. How clients use them is `tests.support.config_register`.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, TypeVar, cast

from google.protobuf.message import Message

from herdmesh.api.configstore.v1 import config_read_service_pb2 as pb
from herdmesh.configstore.effects.campaigns import Campaigns
from herdmesh.configstore.service import wire
from herdmesh.configstore.service.leadership import LeadershipServicer
from herdmesh.configstore.service.read import ConfigReadServicer
from herdmesh.configstore.service.write import ConfigWriteServicer
from herdmesh.configstore.state.config import ConfigState
from herdmesh.topicstore import Revision, StoreRole, TopicSettings
from herdmesh.topicstore.core import TopicStoreCore
from tests.support.config_register import ConfigRegister
from tests.support.store_checks import FOREIGN_PREFIX

SETTINGS = TopicSettings(
    topic="configs",
    transactional_id="connect-cluster-sim",
    election_group="herdmesh-config-store-sim",
    audit_topic="configs-audit",
)


_MessageT = TypeVar("_MessageT", bound=Message)


class _Read:
    """The reading servicer as a client sees it: it answers with bytes where many callers share them."""

    def __init__(self, store: TopicStoreCore[Any, Any]) -> None:
        self._servicer = ConfigReadServicer(store)

    async def GetSnapshot(self, request: pb.GetSnapshotRequest, context: Any) -> pb.GetSnapshotResponse:
        return _decoded(pb.GetSnapshotResponse, await self._servicer.GetSnapshot(request, context))

    async def Watch(self, request: pb.WatchRequest, context: Any) -> AsyncGenerator[pb.WatchResponse]:
        events = cast("AsyncGenerator[pb.WatchResponse]", self._servicer.Watch(request, context))
        async with aclosing(events):
            async for event in events:
                yield _decoded(pb.WatchResponse, event)


def _decoded(kind: type[_MessageT], answer: Any) -> _MessageT:
    return kind.FromString(answer) if isinstance(answer, bytes) else answer


class ConfigServer:
    """The servicers of one life."""

    def __init__(self, store: TopicStoreCore[Any, Any], now_ms: Callable[[], int], fresh_id: Callable[[], str]) -> None:
        loop = asyncio.get_running_loop()
        self.campaigns = Campaigns(store, lambda: round(loop.time() * 1000))
        self.write = ConfigWriteServicer(store, SETTINGS.audit_topic, now_ms, fresh_id)
        self.read = _Read(store)
        self.leadership = LeadershipServicer(store, self.campaigns)

    def become(self, role: StoreRole) -> None:
        self.campaigns.become(role)

    async def run(self) -> None:
        await self.campaigns.run()


class ConfigSide(ConfigRegister):
    """The config store's part of a story; `StatusSide` is the other one."""

    settings = SETTINGS

    def __init__(self) -> None:
        super().__init__(SETTINGS.topic, "sim")
        self._ids = itertools.count(1)

    def initial(self) -> ConfigState:
        return ConfigState(SETTINGS.audit_topic)

    def server(self, store: TopicStoreCore[Any, Any], now_ms: Callable[[], int]) -> ConfigServer:
        return ConfigServer(store, now_ms, lambda: f"incarnation-{next(self._ids)}")

    def everything(self, state: ConfigState) -> Any:
        """Everything callers can read of a state, to compare replicas by. Connectors that only Java wrote are left out:
        compaction may change their state under Connect's rules (S11).
        """
        ours = [connector.name for connector in state.stored() if not connector.name.startswith(FOREIGN_PREFIX)]
        response = wire.snapshot_head(state, Revision("sim", (0,)))
        response.connectors.extend(wire.entry(connector, "sim") for connector in wire.chosen(state, [*ours, "-"]))
        return response.SerializeToString(deterministic=True)
