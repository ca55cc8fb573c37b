"""A store's replica as `common.v1.StoreStatus`: the response of `GetStoreStatus` of both stores.

Owns the conversion of role and health. The topic store decides on the condition. Imports the topic store, hence Kafka's
client; only the stores import this module.

Invariant: the status can be created in every role, also before a topic was opened and after the store closed.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from importlib import metadata
from typing import Any, Final

from herdmesh.api.common.v1 import revision_pb2, store_pb2
from herdmesh.rpc import revisions
from herdmesh.rpc.enums import WireEnum
from herdmesh.topicstore.contract import StoreRole, TopicStore
from herdmesh.topicstore.health import StoreCondition

_ROLES: Final = WireEnum(store_pb2.StoreRole, StoreRole)
_CONDITIONS: Final = WireEnum(store_pb2.StoreCondition, StoreCondition)


def store_status(
    store: TopicStore[Any, Any],
    undecodable_count: int,
    undecodable: Iterable[store_pb2.UndecodableRecord],
) -> store_pb2.StoreStatus:
    """`undecodable` are the latest of `undecodable_count` records, oldest first."""
    health = store.health
    status = store_pb2.StoreStatus(
        role=_ROLES.to_wire(store.role),
        condition=_CONDITIONS.to_wire(health.condition),
        message=health.message,
        topic=store.topic,
        cluster_id=store.cluster_id,
        undecodable_count=undecodable_count,
        undecodable=undecodable,
    )
    status.since.FromMilliseconds(health.since_ms)
    status.version = _release()
    status.report_time.GetCurrentTime()
    return status


@functools.cache
def _release() -> str:
    try:
        return metadata.version("herdmesh-core")
    except metadata.PackageNotFoundError:
        return ""


def meta_if_open(store: TopicStore[Any, Any]) -> revision_pb2.ResponseMeta | None:
    """The applied revision; None until the topic was opened."""
    return revisions.meta(store.revision) if store.revision.store_id else None
