"""Readiness of a store's process: the rule of its page `/readyz`, the same for both stores.

Owns the rule: ready while a service of the store serves, at least reads. A store whose broker is away keeps serving
reads, and stays ready; the reason then has the condition. Does not own which services serve (each store's roles).
"""

from __future__ import annotations

from typing import Any

from herdmesh.topicstore.contract import TopicStore
from herdmesh.topicstore.health import StoreCondition


def store_readiness(store: TopicStore[Any, Any], serving: bool) -> tuple[bool, str]:
    """Whether the store's process is ready, and the store's role and condition in one line."""
    role, health = f"role {store.role.value}", store.health
    if health.condition is StoreCondition.HEALTHY:
        return serving, role
    return serving, f"{role}; {health.condition.value}: {health.message}"
