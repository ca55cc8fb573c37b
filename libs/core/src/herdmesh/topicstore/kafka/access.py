"""The permissions that a store needs on a broker, and the error that names a missing one.

Owns the list of permissions and the wording of `NotAuthorized`: the refused operation, its resource, and the command
that grants it. Knows no client. The operations are Kafka's (KIP-11, KIP-98, KIP-430).
"""

from __future__ import annotations

from enum import Enum

from confluent_kafka import KafkaError

from herdmesh.topicstore.errors import NotAuthorized
from herdmesh.topicstore.settings import TopicSettings


class Need(Enum):
    """One permission: the action of the store, the kind of resource, the ACL operation, and the option that names the
    resource.
    """

    DESCRIBE_TOPIC = ("describe", "topic", "Describe", "--topic")
    CREATE_TOPIC = ("create", "topic", "Create", "--topic")
    DESCRIBE_TOPIC_CONFIGS = ("read the configs of", "topic", "DescribeConfigs", "--topic")
    READ_TOPIC = ("read from", "topic", "Read", "--topic")
    WRITE_TOPIC = ("write to", "topic", "Write", "--topic")
    JOIN_GROUP = ("join", "group", "Read", "--group")
    DESCRIBE_GROUP = ("describe", "group", "Describe", "--group")
    USE_TRANSACTIONAL_ID = ("use", "transactional id", "Write", "--transactional-id")


#: Error codes with which a broker denies permission, for any request.
REFUSALS = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    }
)


def refused(need: Need, name: str, settings: TopicSettings) -> NotAuthorized:
    """The error for a store without the permission `need` on the resource `name`."""
    operation, kind, acl_operation, option = need.value
    user = settings.client_configs.get("sasl.username", "USER")
    return NotAuthorized(
        operation,
        f"{kind} {name}",
        f"kafka-acls.sh --bootstrap-server {settings.bootstrap_servers} --add --allow-principal User:{user}"
        f" --operation {acl_operation} {option} {name}",
    )


def login_refused(reason: str, settings: TopicSettings) -> NotAuthorized:
    """The error for a failed authentication of this store."""
    return NotAuthorized(
        "log in to", f"Kafka at {settings.bootstrap_servers}", f"{reason}; correct kafka_client_configs"
    )
