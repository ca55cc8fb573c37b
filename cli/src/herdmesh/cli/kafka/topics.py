"""Topics of the cluster: creation, list, description, deletion.

Owns the replication factor that fits the cluster, and the topics that belong to a mesh, which are hidden and protected.
A mesh whose topics have other names than the default ones is not recognized.

Invariant: a topic that was reported as created has a leader for each partition, so that the next command can use it.
"""

from __future__ import annotations

import difflib
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from confluent_kafka.admin import (
    ConfigResource,  # pyright: ignore[reportPrivateImportUsage]  # public by the client's documentation, here and below
    ConfigSource,  # pyright: ignore[reportPrivateImportUsage]
    NewTopic,  # pyright: ignore[reportPrivateImportUsage]
    OffsetSpec,  # pyright: ignore[reportPrivateImportUsage]
    ResourceType,  # pyright: ignore[reportPrivateImportUsage]
)

from herdmesh.cli.display.views import Json
from herdmesh.cli.errors import EXIT_CODES, CommandError
from herdmesh.cli.kafka.admin import KafkaAdmin, partitions_of

#: As many as Kafka's production guides advise.
REPLICAS_USUAL: Final = 3
MESH_TOPICS: Final = frozenset({"connect-configs", "connect-configs-audit", "connect-status", "connect-offsets"})
_BROKERS_DEFAULT: Final = -1
_POLL_S: Final = 0.05


def is_internal(name: str) -> bool:
    """True for Kafka's own topics and for those in which a mesh keeps its state."""
    return name.startswith("__") or name in MESH_TOPICS


def create(
    admin: KafkaAdmin,
    names: Sequence[str],
    *,
    partitions: int | None,
    replication_factor: int | None,
    configs: Mapping[str, str],
    accept_existing: bool,
) -> list[Json]:
    """Create topics. `partitions` None = the broker's default; `replication_factor` None = 3, or one per broker of a
    smaller cluster. Raises CommandError at the first that is refused.
    """
    cluster = admin.metadata()
    brokers = len(cluster.brokers)
    if replication_factor is not None and replication_factor > brokers:
        raise CommandError(
            "REQUEST_INVALID",
            f"replication factor {replication_factor} needs {replication_factor} brokers, and this cluster has "
            f"{brokers}",
            f"Write --replication-factor {brokers}, or leave it out: it then fits the cluster.",
            EXIT_CODES["REQUEST_INVALID"],
        )
    fitting = replication_factor or min(REPLICAS_USUAL, brokers)
    new = [
        NewTopic(name, num_partitions=partitions or _BROKERS_DEFAULT, replication_factor=fitting, config=dict(configs))
        for name in names
    ]
    created: list[Json] = []
    for name, future in admin.client.create_topics(new, request_timeout=admin.timeout_s).items():
        try:
            admin.result(future, f"topic {name}")
            result = "created"
        except CommandError as error:
            if not (accept_existing and error.reason == "TOPIC_EXISTS"):
                raise
            result = "exists"
        found = _until_led(admin, name)
        replicas = len(next(iter(found.partitions.values())).replicas)
        created.append(
            {
                "result": result,
                "name": name,
                "partitions": len(found.partitions),
                "replication_factor": replicas,
                "brokers": brokers,
            }
        )
    return created


def _until_led(admin: KafkaAdmin, name: str) -> Any:
    """The topic's metadata once each partition has a leader: brokers learn of a new topic some time after the
    controller has acknowledged it.
    """
    deadline_s = time.monotonic() + admin.timeout_s
    while True:
        found = admin.metadata(name).topics[name]
        if found.error is None and found.partitions and all(one.leader >= 0 for one in found.partitions.values()):
            return found
        if time.monotonic() > deadline_s:
            text = f"topic {name} was created, and some of its partitions have no leader after {admin.timeout_s:g} s"
            raise CommandError("TIMEOUT", text, f"`herd topics describe {name}` shows them.", EXIT_CODES["TIMEOUT"])
        time.sleep(_POLL_S)


def list_all(admin: KafkaAdmin, *, internal: bool) -> list[Json]:
    """All topics by name; `internal`: also those of Kafka and of the mesh. `records`: see `_spans`."""
    topics = admin.metadata().topics
    names = sorted(name for name in topics if internal or not is_internal(name))
    spans = _spans(admin, topics, names)
    found: list[Json] = []
    for name in names:
        parts = topics[name].partitions
        counts = [_count(spans[name, number]) for number in parts]
        found.append(
            {
                "name": name,
                "partitions": len(parts),
                "replication_factor": max((len(one.replicas) for one in parts.values()), default=0),
                "records": None if None in counts else sum(one for one in counts if one is not None),
                "internal": is_internal(name),
            }
        )
    return found


def describe(admin: KafkaAdmin, name: str) -> Json:
    """One topic: partitions with leader, replicas and offsets, and the configs that were set for it."""
    topics = known(admin, [name])
    spans = _spans(admin, topics, [name])
    resource = ConfigResource(ResourceType.TOPIC, name)
    (future,) = admin.client.describe_configs([resource], request_timeout=admin.timeout_s).values()
    entries: dict[str, Any] = admin.result(future, f"configs of {name}")
    partitions: list[Json] = []
    for number, one in sorted(topics[name].partitions.items()):
        first, end = spans[name, number]
        partitions.append(
            {
                "partition": number,
                "leader": one.leader if one.leader >= 0 else None,
                "replicas": list(one.replicas),
                "in_sync_replicas": list(one.isrs),
                "first_offset": first,
                "end_offset": end,
            }
        )
    return {
        "name": name,
        "replication_factor": max((len(one["replicas"]) for one in partitions), default=0),
        "partitions": partitions,
        "configs": {
            key: "****" if entry.is_sensitive else entry.value
            for key, entry in sorted(entries.items())
            if ConfigSource(entry.source) is ConfigSource.DYNAMIC_TOPIC_CONFIG
        },
    }


def delete(admin: KafkaAdmin, names: Sequence[str], *, accept_missing: bool) -> list[Json]:
    """Delete topics and wait until the cluster no longer lists them. Raises CommandError at the first refusal."""
    done: list[Json] = []
    for name, future in admin.client.delete_topics(list(names), request_timeout=admin.timeout_s).items():
        try:
            admin.result(future, f"topic {name}")
            result = "deleted"
        except CommandError as error:
            if not (accept_missing and error.reason == "TOPIC_NOT_FOUND"):
                raise
            result = "missing"
        deadline_s = time.monotonic() + admin.timeout_s
        while admin.metadata(name).topics[name].error is None and time.monotonic() < deadline_s:
            time.sleep(_POLL_S)
        done.append({"result": result, "name": name})
    return done


def known(admin: KafkaAdmin, names: Sequence[str]) -> Any:
    """Metadata of all topics. Raises CommandError when one of the named ones is missing, with names like it."""
    topics = admin.metadata().topics
    for name in names:
        if name in topics and topics[name].error is None:
            continue
        others = sorted(one for one in topics if not is_internal(one))
        near = difflib.get_close_matches(name, others, 3, 0.6)
        hint = f"did you mean {', '.join(near)}?" if near else f"there are: {', '.join(others[:10]) or 'none yet'}"
        raise CommandError(
            "TOPIC_NOT_FOUND",
            f"no topic {name} at {admin.access.bootstrap_servers}; {hint}",
            f"`herd topics create {name}` creates it; `herd topics list` lists the topics.",
            EXIT_CODES["TASK_NOT_FOUND"],
        )
    return topics


def _spans(
    admin: KafkaAdmin, topics: Any, names: Sequence[str]
) -> dict[tuple[str, int], tuple[int | None, int | None]]:
    """First offset and end of each partition; None without a leader. Their difference is the number of records, and
    more where records were compacted away or written in transactions, whose markers have offsets too.
    """
    partitions = partitions_of(topics, names)
    firsts = admin.offsets({one: OffsetSpec.earliest() for one in partitions}, topics)
    ends = admin.offsets({one: OffsetSpec.latest() for one in partitions}, topics)
    return {one: (firsts[one], ends[one]) for one in partitions}


def _count(span: tuple[int | None, int | None]) -> int | None:
    first, end = span
    return None if first is None or end is None else end - first
