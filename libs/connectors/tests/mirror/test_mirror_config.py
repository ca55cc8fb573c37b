"""Tests of a mirror's names, filters, assignment of partitions and config, without Kafka."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herdmesh.connect.errors import ConfigError
from herdmesh.connectors.mirror import topic_naming
from herdmesh.connectors.mirror.checkpoint.connector import MirrorCheckpointConnector
from herdmesh.connectors.mirror.source.connector import MirrorSourceConnector
from herdmesh.connectors.mirror.source.settings import settings_of, warnings_of
from herdmesh.connectors.mirror.source.topic_settings import changes_of
from herdmesh.connectors.mirror.topic_naming import Naming, Selection

BASE = {"source.cluster.alias": "a", "target.cluster.alias": "b", "source.cluster.bootstrap.servers": "h:1"}
PARTITIONS = st.lists(
    st.tuples(st.from_regex(r"[a-zA-Z0-9._-]{1,9}", fullmatch=True), st.integers(0, 99)), unique=True, max_size=40
)


@pytest.mark.parametrize(
    ("topic", "copied"),
    [
        ("orders", True),
        ("a.orders", True),  # of a cluster before this one
        ("b.orders", False),
        ("c.b.orders", False),  # in a circle over a third cluster
        ("b", True),
        ("border.orders", True),
        ("__consumer_offsets", False),
        (".hidden", False),
        ("connect-internal", True),  # since KIP-1074
        ("a.checkpoints.internal", False),
        ("mm2-offset-syncs.b.internal", False),
        ("heartbeats", True),
        ("b.heartbeats", False),
        ("orders.replica", False),
    ],
)
def test_topics_from_the_target_and_internal_topics_are_never_copied(topic: str, copied: bool) -> None:
    assert settings_of(BASE).selection.has(topic) is copied


def test_names_and_regexes_select_and_excludes_win() -> None:
    chosen = settings_of({**BASE, "topics": "one, t.*", "topics.exclude": "two"}).selection
    assert [topic for topic in ("one", "one2", "two", "three", "heartbeats") if chosen.has(topic)] == [
        "one", "three", "heartbeats",
    ]  # fmt: skip
    none = settings_of({**BASE, "topics": "", "heartbeats.replication.enabled": "false"}).selection
    assert not any(map(none.has, ("one", "heartbeats")))


@pytest.mark.parametrize(
    ("policy", "separator", "remote", "heartbeats"),
    [
        ("org.apache.kafka.connect.mirror.DefaultReplicationPolicy", ".", "a.t", "a.heartbeats"),
        ("DefaultReplicationPolicy", "_", "a_t", "a_heartbeats"),
        ("org.apache.kafka.connect.mirror.IdentityReplicationPolicy", ".", "t", "a.heartbeats"),
    ],
)
def test_the_policy_names_the_copy(policy: str, separator: str, remote: str, heartbeats: str) -> None:
    config = {**BASE, "replication.policy.class": policy, "replication.policy.separator": separator}
    naming = settings_of(config).naming
    assert (naming.remote("t"), naming.remote("heartbeats")) == (remote, heartbeats)


def test_the_identity_policy_detects_cycles_only_for_heartbeats() -> None:
    naming = Naming("a", "b", keeps_names=True)
    assert not naming.is_cycle("b.orders")
    assert naming.is_cycle("b.heartbeats")


@given(PARTITIONS, st.integers(1, 9))
def test_partitions_are_divided_evenly_among_tasks(partitions: list[tuple[str, int]], tasks_max: int) -> None:
    dealt = topic_naming.split(partitions, tasks_max)
    assert sorted(one for task in dealt for one in task) == sorted(partitions)
    sizes = [len(task) for task in dealt]
    assert len(sizes) <= tasks_max
    assert all(sizes)
    assert not sizes or max(sizes) - min(sizes) <= 1
    assert [topic_naming.read(topic_naming.partitions_text(task)) for task in dealt] == dealt


def test_partitions_follow_the_counts_of_the_source() -> None:
    chosen = Selection(Naming("a", "b"), ("t.*",), (), heartbeats=False)
    assert chosen.partitions({"t2": 1, "t1": 2, "b.t": 9, "x": 3}) == [("t1", 0), ("t1", 1), ("t2", 0)]


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("source.cluster.alias", None, "Missing required configuration"),
        ("source.cluster.bootstrap.servers", "", "String must be non-empty"),
        ("replication.policy.class", "com.example.Mine", "only Kafka's own policies"),
        ("topics", "a[", "Invalid regex"),
        ("source.cluster.alias", "", "String must be non-empty"),
        ("replication.policy.separator", "", "without a separator, alias and topic"),
        ("replication.factor", "x", "Not a number"),
        ("replication.factor", "-2", "at least -1"),
        ("offset-syncs.topic.location", "moon", "source, target"),
        ("offset.lag.max", "-1", "at least 0"),
        ("metric.names.formats", "legacy,old", "legacy, new"),
        ("refresh.topics.interval.seconds", "0", "at least 1"),
        ("source.consumer.isolation.level", "dirty", "read_committed or read_uncommitted"),
        ("consumer.max.poll.records", "0", "1 or more"),
        ("source.consumer.auto.offset.reset", "never", "must be earliest, latest"),
        ("consumer.auto.offset.reset", "by_duration:1h", "ISO 8601 duration"),
        ("source.cluster.security.protocol", "TLS", "must be one of PLAINTEXT"),
        ("source.consumer.fetch.min.bytes", "many", "Not a number"),
    ],
)
def test_invalid_configs_are_refused_by_key(key: str, value: str | None, text: str) -> None:
    config = {name: one for name, one in {**BASE, key: value}.items() if one is not None}
    with pytest.raises(ConfigError, match=text) as caught:
        settings_of(config)
    assert caught.value.field == key
    assert str(caught.value).count("override") == 0


@pytest.mark.parametrize(("seconds", "refresh_s"), [("1", 1), ("-1", None)])
def test_a_negative_interval_disables_topic_discovery(seconds: str, refresh_s: int | None) -> None:
    """As in Java, whose scheduler skips a task with a negative interval."""
    assert settings_of({**BASE, "refresh.topics.interval.seconds": seconds}).refresh_s == refresh_s


def test_the_last_of_three_prefixes_wins_for_the_source_client() -> None:
    config = {
        **BASE,
        "source.cluster.fetch.min.bytes": "1",
        "consumer.fetch.min.bytes": "2",
        "source.consumer.fetch.min.bytes": "3",
        "consumer.max.poll.records": "7",
        "source.cluster.security.protocol": "SASL_PLAINTEXT",
        "source.cluster.sasl.mechanism": "PLAIN",
        "source.cluster.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="u" password="p";',
    }
    settings = settings_of(config)
    assert settings.source.consumer["fetch.min.bytes"] == "3"
    assert settings.batch_records == 7
    for client in (settings.source.consumer, settings.source.admin):
        assert (client["sasl.username"], client["sasl.password"]) == ("u", "p")
    assert not warnings_of({**config, "target.cluster.alias": "b"})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("sync.topic.configs.enabled", "true"),
        ("sync.topic.acls.interval.seconds", "60"),
        ("emit.offset-syncs.enabled", "true"),
        ("offset-syncs.topic.location", "target"),
        ("offset.lag.max", "5"),
        ("target.cluster.security.protocol", "PLAINTEXT"),
        ("producer.linger.ms", "5"),
        ("topic.filter.class", "com.example.Filter"),
        ("key.converter", "org.apache.kafka.connect.json.JsonConverter"),
        ("source.consumer.partition.assignment.strategy", "x"),
        ("source.consumer.fetch.mim.bytes", "1"),
        ("source.admin.retries", "3"),
        ("refresh.topic.enabled", "true"),
    ],
)
def test_every_key_without_effect_is_named_once(key: str, value: str) -> None:
    (warning,) = warnings_of({**BASE, "name": "m", "tasks.max": "1", key: value})
    assert warning.field == key
    assert key in warning.message
    assert warning.fix


def test_harmless_values_have_no_warning() -> None:
    quiet = {
        "sync.topic.configs.enabled": "false",
        "emit.offset-syncs.enabled": "false",
        "key.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
        "transforms": "r",
        "transforms.r.type": "org.apache.kafka.connect.transforms.RegexRouter",
        "producer.override.linger.ms": "5",
        "exactly.once.support": "required",
    }
    assert not warnings_of({**BASE, **quiet})


TARGET = {"target.cluster.bootstrap.servers": "h:2"}


@pytest.mark.parametrize(
    ("more", "topic", "brokers"),
    [
        ({}, "mm2-offset-syncs.b.internal", "h:1"),
        ({"offset-syncs.topic.location": "target"}, "mm2-offset-syncs.a.internal", "h:2"),
        ({"replication.policy.separator": "_"}, "mm2-offset-syncs_b_internal", "h:1"),
    ],
)
def test_offset_syncs_are_written_when_the_target_is_known(more: dict[str, str], topic: str, brokers: str) -> None:
    side = "target" if brokers == "h:2" else "source"
    config = {**BASE, **TARGET, **more, f"{side}.producer.compression.type": "zstd", "target.admin.client.id": "me"}
    syncs = settings_of(config).syncs
    assert syncs is not None
    assert (syncs.topic, syncs.kept_in.bootstrap_servers, syncs.target.bootstrap_servers) == (topic, brokers, "h:2")
    assert syncs.kept_in.producer["compression.type"] == "zstd"
    assert syncs.target.admin["client.id"] == "me"
    assert not warnings_of(config)
    other = "target" if side == "source" else "source"
    (warning,) = warnings_of({**config, f"{other}.producer.compression.type": "zstd"})
    assert warning.field == f"{other}.producer.compression.type"


@pytest.mark.parametrize(
    ("more", "blamed"),
    [
        ({"emit.offset-syncs.enabled": "false"}, []),
        ({"transforms": "x"}, ["transforms"]),
        ({"errors.tolerance": "all"}, ["errors.tolerance"]),
    ],
)
def test_offset_syncs_are_not_written_when_they_might_be_wrong(more: dict[str, str], blamed: list[str]) -> None:
    assert settings_of({**BASE, **TARGET, **more}).syncs is None
    assert [warning.field for warning in warnings_of({**BASE, **TARGET, **more})] == blamed
    alone = {**BASE, **TARGET, **more, "sync.topic.configs.enabled": "false"}  # then nothing queries the target
    assert [warning.field for warning in warnings_of(alone)] == [*blamed, "target.cluster.bootstrap.servers"]
    quiet = {**BASE, **more, "emit.offset-syncs.enabled": "false"}
    assert not warnings_of(quiet)


def test_copies_follow_topic_settings_when_the_target_is_known() -> None:
    settings = settings_of({**BASE, **TARGET, "sync.topic.configs.interval.seconds": "30"})
    assert settings.configs_s == 30
    assert settings.target is not None
    assert settings.target.bootstrap_servers == "h:2"
    assert settings_of(BASE).configs_s is None
    for more in ({"sync.topic.configs.enabled": "false"}, {"sync.topic.configs.interval.seconds": "-1"}):
        assert settings_of({**BASE, **TARGET, **more}).configs_s is None
        assert not warnings_of({**BASE, **TARGET, **more})
    (error,) = MirrorSourceConnector().validate({**BASE, **TARGET, "sync.topic.configs.interval.seconds": "0"})
    assert error.field == "sync.topic.configs.interval.seconds"
    (warning,) = warnings_of({**BASE, "sync.topic.configs.interval.seconds": "30"})
    assert "target.cluster.bootstrap.servers" in warning.message


def test_settings_are_changed_or_removed_except_excluded_ones() -> None:
    wanted = {"retention.ms": "5", "cleanup.policy": "compact", "min.insync.replicas": "2"}
    there = {"retention.ms": "7", "cleanup.policy": "compact", "segment.ms": "9", "unclean.leader.election.enable": "1"}
    excluded = r"min\.insync\.replicas|unclean.*"
    assert changes_of(wanted, there, excluded) == {"retention.ms": "5", "segment.ms": None}
    assert changes_of(wanted, wanted, excluded) == {}


@pytest.mark.parametrize(
    ("partition", "offset"),
    [
        (None, {"offset": 1}),
        ({"topic": "t", "partition": 0}, None),
        ({"cluster": "a", "topic": "t", "partition": -1}, None),
        ({"cluster": "a", "topic": "t", "partition": 0}, {"offset": -2}),
        ({"cluster": "a", "topic": "t", "partition": 0}, {"position": 1}),
    ],
)
def test_offsets_of_other_connectors_are_refused(
    partition: dict[str, object] | None, offset: dict[str, object] | None
) -> None:
    with pytest.raises(ConfigError):
        MirrorSourceConnector().alter_offsets(BASE, [(partition, offset)])
    right = {"cluster": "a", "topic": "t", "partition": 0}
    assert MirrorSourceConnector().alter_offsets(BASE, [(right, {"offset": 0}), (right, None)])


_BAD_CLIENTS = {
    "source.consumer.auto.offset.reset": "bogus",
    "consumer.max.poll.interval.ms": "-1",
    "source.consumer.group.id": "",
    "source.consumer.client.id": "\0",
    "source.cluster.client.dns.lookup": "nowhere",
    "source.admin.debug": "everything",
    "target.admin.debug": "everything",
    "source.producer.compression.type": "bogus",
    "consumer.fetch.min.bytes": "many",
    "source.consumer.reconnect.backoff.ms": "3000",
}


@pytest.mark.parametrize("key", _BAD_CLIENTS)
def test_each_failing_client_setting_is_refused_by_its_own_key(key: str) -> None:
    (found,) = MirrorSourceConnector().validate({**BASE, **TARGET, key: _BAD_CLIENTS[key]})
    assert (found.field, bool(found.fix)) == (key, True)
    assert key in str(found)
    assert "override" not in str(found)


def test_all_failing_client_settings_are_refused_at_once() -> None:
    found = MirrorSourceConnector().validate({**BASE, **TARGET, **_BAD_CLIENTS})
    assert {one.field for one in found} == set(_BAD_CLIENTS)
    config = {**BASE, **TARGET, "sync.group.offsets.enabled": "true", **_BAD_CLIENTS}
    assert {one.field for one in MirrorCheckpointConnector().validate(config)} == set(_BAD_CLIENTS)
