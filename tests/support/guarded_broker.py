"""A broker with authentication and access rules, for tests of refusals; it also creates topics automatically.

Owns the broker, its users and the administrator's view of it: access rules, topics, their settings. Clients of the
plain listener (`bootstrap`) have all rights; users log in at `guarded` and have no rights until granted.

Invariant: every call returns after its change is in force on the broker.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from confluent_kafka.admin import (
    AclBinding,  # pyright: ignore[reportPrivateImportUsage]  # public by the client's documentation, here and below
    AclBindingFilter,  # pyright: ignore[reportPrivateImportUsage]
    AclOperation,  # pyright: ignore[reportPrivateImportUsage]
    AclPermissionType,  # pyright: ignore[reportPrivateImportUsage]
    AdminClient,
    AlterConfigOpType,  # pyright: ignore[reportPrivateImportUsage]
    ConfigEntry,  # pyright: ignore[reportPrivateImportUsage]
    ConfigResource,  # pyright: ignore[reportPrivateImportUsage]
    NewPartitions,  # pyright: ignore[reportPrivateImportUsage]
    NewTopic,  # pyright: ignore[reportPrivateImportUsage]
    ResourcePatternType,  # pyright: ignore[reportPrivateImportUsage]
    ResourceType,  # pyright: ignore[reportPrivateImportUsage]
)

from herdmesh.devstack.broker import QUICK_JVM, Broker
from herdmesh.devstack.ports import free_port

#: As many as the tests of one process may request, also where a group of them runs a second time.
_USERS = 64
_TIMEOUT_S = 45.0


class GuardedBroker:
    """One broker; `start` and `stop` it."""

    def __init__(self, data_dir: Path) -> None:
        port = free_port()
        users = " ".join(f'user_u{number}="secret-{number}"' for number in range(_USERS))
        login = f"org.apache.kafka.common.security.plain.PlainLoginModule required {users};"
        by_token = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
        self.guarded = f"127.0.0.1:{port}"
        self.broker = Broker(
            data_dir,
            port=0,
            jvm=QUICK_JVM,
            settings={
                "listeners": f"GUARDED://{self.guarded}",
                "advertised.listeners": f"GUARDED://{self.guarded}",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,GUARDED:SASL_PLAINTEXT",
                "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
                "listener.name.guarded.plain.sasl.jaas.config": login,
                # Kafka's own check of unsigned tokens: their owner, and their expiry.
                "listener.name.guarded.oauthbearer.sasl.jaas.config": f'{by_token} unsecuredLoginStringClaim_sub="b";',
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "super.users": "User:ANONYMOUS",
                # Kafka's default: a request for a topic by name creates it, unless the client prevents that.
                "auto.create.topics.enable": "true",
                "group.min.session.timeout.ms": "500",
            },
        )
        self._numbers = itertools.count()
        self._admin: Any = None

    async def start(self) -> None:
        await self.broker.start()
        self._admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 2})

    async def stop(self) -> None:
        await self.broker.stop()

    @property
    def bootstrap(self) -> str:
        """Address of the listener where everybody has all rights."""
        return self.broker.bootstrap

    def new_user(self) -> tuple[str, Mapping[str, str]]:
        """The name of a new user, and the client configs it logs in with."""
        number = next(self._numbers)
        if number >= _USERS:
            raise AssertionError(f"the broker knows {_USERS} users and all are taken: raise _USERS")
        return f"u{number}", {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": f"u{number}",
            "sasl.password": f"secret-{number}",
        }

    # Access rules. A resource is `topic:NAME`, `group:NAME` or `transactional_id:NAME`; a topic stands for every
    # topic whose name begins with it, so that a store's audit topic is covered.

    async def allow(self, user: str, resource: str, *operations: str) -> None:
        """Grant operations, named as Kafka does (`READ`)."""
        await self._rule(user, resource, AclPermissionType.ALLOW, operations)

    async def deny(self, user: str, resource: str, operation: str) -> None:
        """Refuse an operation, granted or not."""
        await self._rule(user, resource, AclPermissionType.DENY, [operation])

    async def relent(self, user: str, resource: str, operation: str) -> None:
        """Revoke a `deny`."""
        wanted = _filter(user, resource, AclPermissionType.DENY, operation)
        await _done(self._admin.delete_acls([wanted]))
        await self._until_in_force(wanted, False)

    async def allow_store(self, user: str, topic: str, transactional_id: str, *groups: str) -> None:
        """Grant everything a store needs; the first of `groups` is its election group, others it only reads."""
        await self.allow(user, f"topic:{topic}", "READ", "WRITE", "CREATE", "DESCRIBE_CONFIGS")
        await self.allow(user, f"transactional_id:{transactional_id}", "WRITE")
        for group in groups:
            await self.allow(user, f"group:{group}", "READ")

    async def _rule(self, user: str, resource: str, permission: Any, operations: Any) -> None:
        kind, name, pattern = _resource(resource)
        rules = [
            AclBinding(kind, name, pattern, f"User:{user}", "*", AclOperation[operation], permission)
            for operation in operations
        ]
        await _done(self._admin.create_acls(rules))
        for operation in operations:
            await self._until_in_force(_filter(user, resource, permission, operation), True)

    async def _until_in_force(self, wanted: Any, there: bool) -> None:
        """Wait until the broker's own copy of the rules has the change: the controller has it earlier."""
        async with asyncio.timeout(_TIMEOUT_S):
            while True:
                found = await asyncio.wrap_future(self._admin.describe_acls(wanted))
                if bool(found) is there:
                    return
                await asyncio.sleep(0.01)

    # Topics.

    async def create_topic(self, name: str, partitions: int = 1, **configs: str) -> None:
        """Create a topic; in configs, dots are written as underscores."""
        named = {key.replace("_", "."): value for key, value in configs.items()}
        await _done(self._admin.create_topics([NewTopic(name, partitions, 1, config=named)]))

    async def delete_topic(self, name: str) -> None:
        await _done(self._admin.delete_topics([name]))

    async def add_partitions(self, name: str, partitions: int) -> None:
        await _done(self._admin.create_partitions([NewPartitions(name, partitions)]))

    async def set_policy(self, name: str, policy: str) -> None:
        """Set `cleanup.policy` of a topic."""
        entry = ConfigEntry("cleanup.policy", policy, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=[entry])
        await _done(self._admin.incremental_alter_configs([resource]))
        asked = ConfigResource(ConfigResource.Type.TOPIC, name)
        async with asyncio.timeout(_TIMEOUT_S):
            # as with rules, the controller has it before the broker
            while True:
                (future,) = self._admin.describe_configs([asked]).values()
                if (await asyncio.wrap_future(future))["cleanup.policy"].value == policy:
                    return
                await asyncio.sleep(0.01)

    async def has_topic(self, name: str) -> bool:
        listed = await asyncio.to_thread(self._admin.list_topics, timeout=_TIMEOUT_S)
        return name in listed.topics


def _resource(text: str) -> tuple[Any, str, Any]:
    kind, _, name = text.partition(":")
    pattern = ResourcePatternType.PREFIXED if kind == "topic" else ResourcePatternType.LITERAL
    return ResourceType[kind.upper()], name, pattern


def _filter(user: str, resource: str, permission: Any, operation: str) -> Any:
    kind, name, pattern = _resource(resource)
    return AclBindingFilter(kind, name, pattern, f"User:{user}", "*", AclOperation[operation], permission)


async def _done(futures: Mapping[Any, Future[Any]]) -> None:
    async with asyncio.timeout(_TIMEOUT_S):
        await asyncio.gather(*(asyncio.wrap_future(future) for future in futures.values()))
