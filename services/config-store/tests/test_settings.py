"""Settings: names that Java and every replica must agree on, and refusal of what cannot be meant."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from herdmesh.configstore.settings import ConfigStoreSettings


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


@pytest.mark.parametrize(
    "arguments",
    [["--config-storage-topic-configs", "x"], ["--group-id="], ["--config-storage-replication-factor", "x"]],
)
def test_wrong_settings_name_the_field(arguments: list[str]) -> None:
    with pytest.raises(ValidationError) as error:
        ConfigStoreSettings.load(arguments)
    assert error.value.errors()[0]["loc"][0] == arguments[0].lstrip("-").replace("-", "_").rstrip("=")


def test_the_environment_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERDMESH_CONFIG_STORAGE_TOPIC", "from-environment")
    monkeypatch.setenv("HERDMESH_MEMORY", "true")
    settings = ConfigStoreSettings.load([])
    assert (settings.config_storage_topic, settings.memory) == ("from-environment", True)
