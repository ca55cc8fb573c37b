"""Tests of the settings: names on which Java and every replica must agree, and refusal of impossible values."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from herdmesh.configstore.effects.stores import open_store
from herdmesh.configstore.settings import ConfigStoreSettings
from herdmesh.rpc.errors import InvalidConfig


def test_identities_are_connects_own() -> None:
    settings = ConfigStoreSettings.load(
        [
            "--group-id",
            "g",
            "--config-storage-topic=t",
            "--config-storage-topic-configs",
            "min.insync.replicas=2, a=b=c",
        ]
    )
    topic = settings.topic_settings()
    assert topic.transactional_id == "connect-cluster-g"
    assert topic.election_group == "herdmesh-config-store-g"
    assert (topic.topic, topic.audit_topic, topic.partitions) == ("t", "t-audit", 1)
    assert topic.topic_configs == {"min.insync.replicas": "2", "a": "b=c"}


def test_client_configs_reach_the_clients_and_are_not_logged() -> None:
    settings = ConfigStoreSettings.load(["--kafka-client-configs", r"sasl.username=me,sasl.password=hid\,den"])
    configs = {"sasl.username": "me", "sasl.password": "hid,den"}
    assert settings.topic_settings().client_configs == configs
    assert "hid" not in f"{settings.redacted()} {settings!r} {settings.topic_settings()!r}"


def test_client_configs_unknown_to_kafka_clients_are_refused() -> None:
    settings = ConfigStoreSettings.load(["--kafka-client-configs", "no.such.setting=1"])
    with pytest.raises(InvalidConfig, match=r"kafka_client_configs.*no\.such\.setting"):
        open_store(settings)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--config-storage-topic-configs", "x"],
        ["--group-id="],
        ["--config-storage-topic", "   "],
        ["--config-storage-topic", "ünïcödé"],
        ["--config-storage-topic", "n" * 244],  # the audit topic's name would be too long
        ["--config-storage-replication-factor", "x"],
        [
            "--config-audit-retention-ms",
            "86400000",
        ],  # outcomes are kept for a day, so audit records must be kept longer
    ],
)
def test_wrong_settings_name_the_field(arguments: list[str]) -> None:
    with pytest.raises(ValidationError) as error:
        ConfigStoreSettings.load(arguments)
    assert "secret" not in str(error.value)
    assert error.value.errors()[0]["loc"][0] == arguments[0].lstrip("-").replace("-", "_").rstrip("=")


def test_the_environment_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERDMESH_CONFIG_STORAGE_TOPIC", "from-environment")
    monkeypatch.setenv("HERDMESH_MEMORY", "true")
    settings = ConfigStoreSettings.load([])
    assert (settings.config_storage_topic, settings.memory) == ("from-environment", True)


def test_the_audit_topic_keeps_records_longer_than_request_ids_are_valid() -> None:
    month = ConfigStoreSettings.load([]).topic_settings().audit_topic_configs
    assert month == {"retention.ms": "2592000000"}
    always = ConfigStoreSettings.load(["--config-audit-retention-ms", "-1"]).topic_settings()
    assert always.audit_topic_configs == {"retention.ms": "-1"}
