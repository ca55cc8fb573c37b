"""Tests of the settings of an existing Kafka cluster: the file of `--command-config`, its effect on each service."""

from __future__ import annotations

from pathlib import Path

import pytest

from herdmesh.devstack.errors import KafkaUnusable
from herdmesh.devstack.existing_kafka import ExistingKafka, fitting_replication_factor
from herdmesh.devstack.stack import topics_of
from herdmesh.devstack.supervisor import DetachedSettings
from herdmesh.rpc.settings import name_value_pairs

LOGIN = """\
security.protocol=SASL_PLAINTEXT
sasl.mechanism=PLAIN
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="a,b";
request.timeout.ms=5000
bootstrap.servers=other:9092
"""


@pytest.fixture
def login(tmp_path: Path) -> Path:
    path = tmp_path / "client.properties"
    path.write_text(LOGIN)
    return path


def test_stores_get_librdkafkas_names_and_workers_connects(login: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERDMESH_WORKER_PROPERTIES", "config.providers=env")
    monkeypatch.delenv("HERDMESH_KAFKA_CLIENT_CONFIGS", raising=False)
    kafka = ExistingKafka.of(" a:1, b:2", login)
    assert kafka.bootstrap == "a:1,b:2"
    found = kafka.environment()
    stores = name_value_pairs(found["HERDMESH_KAFKA_CLIENT_CONFIGS"])
    assert (stores["security.protocol"], stores["sasl.username"], stores["sasl.password"]) == (
        "SASL_PLAINTEXT",
        "u",
        "a,b",
    )
    worker = name_value_pairs(found["HERDMESH_WORKER_PROPERTIES"])
    assert worker["config.providers"] == "env"
    assert worker["sasl.jaas.config"].endswith('username="u" password="a,b";')


def test_settings_without_effect_are_named(login: Path) -> None:
    assert ExistingKafka.of("a:1", login).ignored == ("request.timeout.ms",)


def test_without_a_file_nothing_is_added() -> None:
    assert ExistingKafka.of("a:1", None).environment() == {}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "cannot be read: No such file"),
        ("a=\\u12", "line 1: malformed"),
        ("security.protocol=TLS", "security.protocol"),
        ("security.protocol=SSL\nssl.truststore.location=a.jks", "reads certificates as PEM"),
    ],
)
def test_an_unusable_file_is_refused(tmp_path: Path, text: str | None, says: str) -> None:
    path = tmp_path / "client.properties"
    if text is not None:
        path.write_text(text)
    with pytest.raises(KafkaUnusable, match=says):
        ExistingKafka.of("a:1", path)


def test_a_cluster_that_does_not_answer_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("herdmesh.devstack.existing_kafka._PATIENCE_S", 0.0)
    with pytest.raises(KafkaUnusable, match=r"no broker answers at 127\.0\.0\.1:9: .*correct --bootstrap-servers"):
        ExistingKafka.of("127.0.0.1:9", None).count_brokers()


def test_the_replication_factor_fits_the_cluster(kafka_bootstrap: str) -> None:
    brokers = ExistingKafka.of(kafka_bootstrap, None).count_brokers()
    assert (brokers, fitting_replication_factor(brokers)) == (1, 1)
    assert [fitting_replication_factor(count) for count in (2, 3, 9)] == [2, 3, 3]


def test_a_detached_supervisor_gets_the_settings_and_no_password(login: Path, tmp_path: Path) -> None:
    given = DetachedSettings(tmp_path, 2, 1, 1, "a:1", login, "team").arguments()
    assert given[-4:] == ["--bootstrap-servers", "a:1", "--command-config", str(login)]
    assert given[8:10] == ["--group-id", "team"]
    assert "a,b" not in " ".join(given)


def test_a_mesh_with_a_name_has_topics_of_its_own() -> None:
    assert sorted(topics_of("team").values()) == ["team-configs", "team-offsets", "team-status"]
