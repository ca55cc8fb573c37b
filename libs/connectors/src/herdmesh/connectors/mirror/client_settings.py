"""Settings of the mirror's Kafka clients, read from the key prefixes of Java's MirrorMaker.

Owns the prefixes and reading the keys with these prefixes. Translating a setting for librdkafka:
`connect.client_settings`. Creates a client only to check its settings (`engine.trial`).

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
"""Kinds of clients with a prefix without a side, which applies to both sides."""
_MAX = 50
"""Maximum number of wrong settings that are reported at once."""
Own = dict[str, tuple[str, str]]
"""Settings that a connector reads itself, with the key in the config."""


def prefixes_of(side: str, kind: str) -> tuple[str, ...]:
    """Return the prefixes of a client's settings; later ones win."""
    return f"{side}.cluster.", *((f"{kind}.",) if kind in _BOTH else ()), f"{side}.{kind}."


def client_of(
    side: str, kind: str, config: Config, declared: Collection[str], own_names: Collection[str] = ()
) -> tuple[ClientSettings, Own]:
    """Return the settings of a client of one of the clusters in librdkafka's terms. Warnings have the keys of the
    config; a key that several clients read has the warning of only one. Raises ConfigError whose field is the key.

    Args:
        declared: keys that the connector defines; they are no client settings although they begin like them.
        own_names: settings that must not reach the client.
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
    """Return every client setting with which a mirror's run would fail, under the keys of the config. Creates each
    client that has settings, without connecting it.

    Args:
        clusters: reads a config: the side and the settings of each cluster. Raises ConfigError.
    """
    left, found = dict(config), dict[str, ConfigError]()
    while len(found) < _MAX:
        try:
            for side, cluster in clusters(left):
                for one in _refused(side, cluster, left, declared, own_names):
                    found.setdefault(one.field, ConfigError(one.message, field=one.field, fix=one.fix))
        except ConfigError as error:
            if error.field in declared or error.field not in left:
                break  # not a client setting: reported elsewhere
            found[error.field] = error
            del left[error.field]  # find the other errors without it
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
    """Return whether this client reports the warnings about this key."""
    if full.startswith(f"{side}.{kind}."):
        return True
    teller = "consumer" if side == "source" else "admin"
    return kind == teller if full.startswith(f"{side}.cluster.") else side == "source"


def cluster_of(
    side: str, name: str, bootstrap: str, config: Config, declared: Collection[str], client_id: str
) -> tuple[Cluster, list[FieldViolation]]:
    """Return the settings of one of the clusters for offsets and groups,
    and their warnings. Raises ConfigError whose field is the key.
    """
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
