"""Settings of the mirror's Kafka clients, read from the key prefixes of Java's MirrorMaker.

Owns the prefixes and reading the keys below them. Translating a setting for librdkafka: `connect.client_settings`.
Creates a client only to check its settings (`engine.trial`).

    SIDE.cluster.*                    every client of that cluster; SIDE is source or target
    consumer.*, SIDE.consumer.*       clients that read records; the later prefix wins
    admin.*, SIDE.admin.*             clients that ask for topics, ends and groups
    SIDE.producer.*                   the producer of offset syncs

Invariant: a setting reaches its client, or is named in a warning once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace

from herdmesh.connect.clients import ClientSettings, client_settings
from herdmesh.connectors.mirror.cluster import Cluster
from herdmesh.engine.librdkafka import client_trial
from herdmesh.engine.runtime import ClientConfig
from herdmesh.engine.source import SourceCluster
from herdmesh.sdk import Config, ConfigError, FieldViolation

BOOTSTRAP, TARGET_BOOTSTRAP = "source.cluster.bootstrap.servers", "target.cluster.bootstrap.servers"
_BOTH = ("consumer", "admin")
"""Kinds whose settings have a prefix without a side, which counts for both."""
_MAX = 50
"""Wrong settings found at once, at most."""
Own = dict[str, tuple[str, str]]
"""Settings that a connector reads itself, with the key each was written as."""


def prefixes_of(side: str, kind: str) -> tuple[str, ...]:
    """Where the settings of a client are; the later win."""
    return f"{side}.cluster.", *((f"{kind}.",) if kind in _BOTH else ()), f"{side}.{kind}."


def client_of(
    side: str, kind: str, config: Config, declared: Collection[str], own_names: Collection[str] = ()
) -> tuple[ClientSettings, Own]:
    """A client of one of the clusters in librdkafka's words, with warnings under the keys that were written; those that
    several clients take are told of one alone. Raises ConfigError whose field is the key.

    Args:
        declared: keys that the connector defines, which are no client's though they begin like it.
        own_names: settings that are not to reach the client.
    """
    written: dict[str, str] = {}
    values: dict[str, str | None] = {}
    for prefix in prefixes_of(side, kind):
        for full, value in config.items():
            name = full.removeprefix(prefix)
            if full.startswith(prefix) and not name.startswith("override.") and full not in declared:
                written[name], values[name] = full, value
    own = {name: (written.pop(name), str(values.pop(name) or "").strip()) for name in own_names if name in written}
    under = f"{kind}.override."
    try:
        found = client_settings(kind, {}, {under + name: value for name, value in values.items()})
    except ConfigError as error:
        full = written.get(error.field.removeprefix(under), error.field)
        raise ConfigError(str(error).replace(error.field, full), field=full, fix=error.fix) from error
    said = [
        FieldViolation(full, one.message.replace(one.field, full), one.fix)
        for one in found.warnings
        if (full := written.get(one.field.removeprefix(under), one.field)) and _is_told(side, kind, full)
    ]
    origins = {name: written.get(full.removeprefix(under), full) for name, full in found.origins.items()}
    return ClientSettings(found.config, origins, found.engine, said), own


def client_problems(
    config: Config,
    declared: Collection[str],
    own_names: Collection[str],
    clusters: Callable[[Config], Iterable[tuple[str, SourceCluster | Cluster]]],
) -> list[ConfigError]:
    """Every client setting that a mirror would end with, under the keys that were written. Makes each client that
    something is set of, and connects none.

    Args:
        clusters: reads a config: the side of each cluster, and how it is reached. Raises ConfigError.
    """
    left, found = dict(config), dict[str, ConfigError]()
    while len(found) < _MAX:
        try:
            for side, cluster in clusters(left):
                for one in _refused(side, cluster, left, declared, own_names):
                    found.setdefault(one.field, ConfigError(one.message, field=one.field, fix=one.fix))
        except ConfigError as error:
            if error.field in declared or error.field not in left:
                break  # not a client's: told elsewhere
            found[error.field] = error
            del left[error.field]  # and whatever else is wrong shows without it
        else:
            break
    return list(found.values())


def _refused(
    side: str, cluster: SourceCluster | Cluster, config: Config, declared: Collection[str], own_names: Collection[str]
) -> Iterator[FieldViolation]:
    for kind in ("consumer", "admin") if isinstance(cluster, SourceCluster) else ("consumer", "admin", "producer"):
        given, _ = client_of(side, kind, config, declared, own_names if kind == "consumer" else ())

        def build(own: ClientConfig, kind: str = kind) -> ClientConfig:
            return replace(cluster, **{kind: own}).client_config(kind)

        yield from client_trial.refused(kind, given, build)


def _is_told(side: str, kind: str, full: str) -> bool:
    """Whether a warning of this key is this client's to give."""
    if full.startswith(f"{side}.{kind}."):
        return True
    teller = "consumer" if side == "source" else "admin"
    return kind == teller if full.startswith(f"{side}.cluster.") else side == "source"


def cluster_of(
    side: str, name: str, bootstrap: str, config: Config, declared: Collection[str], client_id: str
) -> tuple[Cluster, list[FieldViolation]]:
    """One of the clusters as offsets are dealt with, and what is to be warned of. Raises ConfigError whose field is the
    key."""
    found = {kind: client_of(side, kind, config, declared)[0] for kind in ("admin", "consumer", "producer")}
    cluster = Cluster(
        name=name,
        bootstrap_servers=bootstrap,
        admin=dict(found["admin"].config),
        consumer=dict(found["consumer"].config),
        producer=dict(found["producer"].config),
        client_id=client_id,
    )
    return cluster, [warning for one in found.values() for warning in one.warnings]
