"""`herd up --bootstrap-servers --command-config` on a broker with TLS, with SASL PLAIN and with SASL SCRAM: topics,
services, a worker with its runs, `herd topics`, `produce`, `consume` and `doctor`, each with the same properties file.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import ipaddress
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,  # pyright: ignore[reportPrivateImportUsage]
    ScramMechanism,  # pyright: ignore[reportPrivateImportUsage]
    UserScramCredentialUpsertion,  # pyright: ignore[reportPrivateImportUsage]
)
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from herdmesh.devstack.broker import QUICK_JVM, Broker
from herdmesh.devstack.errors import KafkaUnusable
from herdmesh.devstack.existing_kafka import ExistingKafka
from herdmesh.devstack.layout import StackLayout
from herdmesh.devstack.ports import PortReservations, free_ports
from herdmesh.devstack.stack import Stack, StackSettings
from herdmesh.devstack.supervisor import stop_detached

pytestmark = [pytest.mark.own_broker, pytest.mark.slow, pytest.mark.timeout(240)]
WAIT_S = 90.0
LISTENERS = ("TLS", "PLAIN", "SCRAM")
USER, PASSWORD = "herd", "a,b c"  # a comma separates settings in the environment of the services
JAAS = "org.apache.kafka.common.security"
SERVICES = ("config-store", "status-store", "herder", "worker-1")


@dataclass(frozen=True)
class SecuredBroker:
    """A broker whose listeners but one need TLS, and two of those a login."""

    broker: Broker
    addresses: Mapping[str, str]
    authority: Path
    """The certificate with which clients check the broker's."""

    def properties(self, listener: str, folder: Path, password: str = PASSWORD) -> Path:
        """The file of `--command-config`, as Kafka's own tools take it."""
        lines = {
            "security.protocol": "SSL" if listener == "TLS" else "SASL_SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority),
        }
        if listener != "TLS":
            module = "plain.PlainLoginModule" if listener == "PLAIN" else "scram.ScramLoginModule"
            lines["sasl.mechanism"] = "PLAIN" if listener == "PLAIN" else "SCRAM-SHA-512"
            lines["sasl.jaas.config"] = f'{JAAS}.{module} required username="{USER}" password="{password}";'
        path = folder / f"{listener.lower()}.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        return path


def certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that signs itself: the file with its key, for the broker, and that without."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = signed.public_bytes(serialization.Encoding.PEM)
    plain = serialization.NoEncryption()
    secret = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    own, authority = folder / "broker.pem", folder / "ca.pem"
    own.write_bytes(secret + pem)
    authority.write_bytes(pem)
    return own, authority


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    folder = tmp_path_factory.mktemp("secured")
    own, authority = certificate(folder)
    addresses = {name: f"127.0.0.1:{port}" for name, port in zip(LISTENERS, free_ports(3), strict=True)}
    listeners = ",".join(f"{name}://{address}" for name, address in addresses.items())
    settings = {
        "listeners": listeners,
        "advertised.listeners": listeners,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,"
        "TLS:SSL,PLAIN:SASL_SSL,SCRAM:SASL_SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(own),
        "listener.name.plain.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.plain.plain.sasl.jaas.config": f"{JAAS}.plain.PlainLoginModule required "
        f'user_{USER}="{PASSWORD}";',
        "listener.name.scram.sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.scram.scram-sha-512.sasl.jaas.config": f"{JAAS}.scram.ScramLoginModule required;",
    }
    broker = Broker(folder / "kafka", port=0, settings=settings, jvm=QUICK_JVM)
    asyncio.run(broker.start())
    try:
        admin: Any = AdminClient({"bootstrap.servers": broker.bootstrap})
        added = UserScramCredentialUpsertion(
            USER, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), PASSWORD.encode()
        )
        admin.alter_user_scram_credentials([added])[USER].result(WAIT_S)
        yield SecuredBroker(broker, addresses, authority)
    finally:
        asyncio.run(broker.stop())


def herd(folder: Path, *arguments: str, stdin: str = "", code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "herdmesh.cli", *arguments],
        cwd=folder,
        env={
            **os.environ,
            "XDG_CONFIG_HOME": str(folder / "config"),
            "JDK_JAVA_OPTIONS": " ".join(QUICK_JVM),
        },
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def given(properties: Path) -> tuple[str, str]:
    return "--command-config", properties.name


@pytest.mark.spark
def test_a_mesh_moves_records_with_tls_and_scram(secured: SecuredBroker, tmp_path: Path) -> None:
    """The password has a comma and a blank. Commands in the folder, and by the context elsewhere, log in with the file
    that `herd up` was given.
    """
    StackLayout(tmp_path / ".herd").choose_ports(SERVICES, PortReservations(), usual=False)
    properties = secured.properties("SCRAM", tmp_path)
    servers = ("--bootstrap-servers", secured.addresses["SCRAM"], *given(properties))
    try:
        state = json.loads(herd(tmp_path, "up", "--detach", *servers, "--group-id", "scram", "-o", "json"))
        assert [one["state"] for one in state["services"]] == ["serving"] * 5
        assert state["command_config"] == str(properties)
        assert not any("without effect" in one for one in state["notices"])
        herd(tmp_path, "topics", "create", "orders")
        herd(tmp_path, "produce", "orders", stdin="one\ntwo\n")
        config = {
            "name": "out",
            "connector.class": "FileStreamSink",
            "topics": "orders",
            "file": str(tmp_path / "out"),
            "errors.tolerance": "all",
            "errors.deadletterqueue.topic.name": "refused",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
        }
        (tmp_path / "out.json").write_text(json.dumps(config))
        herd(tmp_path, "apply", "-f", "out.json", "--wait")
        until_it_has(tmp_path / "out", "one\ntwo\n")
        elsewhere = tmp_path / "elsewhere"
        (elsewhere / "config").mkdir(parents=True)
        (elsewhere / "config" / "herdmesh").symlink_to(tmp_path / "config" / "herdmesh")
        named = ("--context", state["context"])
        assert "refused" in herd(elsewhere, *named, "topics", "list"), "the worker made it with its own login"
        assert "two" in herd(elsewhere, *named, "consume", "orders", "-n", "2")
        found = json.loads(herd(tmp_path, "doctor", "-o", "json"))
        assert (found["healthy"], found["findings"]) == (True, [])
        assert any(secured.addresses["SCRAM"] in one for one in found["checked"])
        assert "stopped" in herd(tmp_path, "down")
    finally:
        asyncio.run(stop_detached(tmp_path / ".herd"))
    for log in StackLayout(tmp_path / ".herd").logs():
        with contextlib.suppress(FileNotFoundError):
            assert PASSWORD not in log.read_text(), log


def until_it_has(path: Path, text: str) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not (path.is_file() and path.read_text() == text):
        assert time.monotonic() < deadline_s
        time.sleep(0.1)


async def test_stores_and_herder_serve_with_a_plain_login(secured: SecuredBroker, tmp_path: Path) -> None:
    kafka = ExistingKafka.of(secured.addresses["PLAIN"], secured.properties("PLAIN", tmp_path))
    stack = Stack(StackSettings(tmp_path / "data", workers=0, usual_ports=False, kafka=kafka, group_id="plain"))
    try:
        await stack.start()
        assert {one.state for one in stack.state.services} == {"serving"}
    finally:
        await stack.stop()


def test_topics_are_made_with_tls_alone(secured: SecuredBroker, tmp_path: Path) -> None:
    properties = secured.properties("TLS", tmp_path)
    herd(tmp_path, "topics", "create", "t", "--bootstrap-servers", secured.addresses["TLS"], *given(properties))
    assert ExistingKafka.of(secured.addresses["TLS"], properties).count_brokers() == 1


def test_a_wrong_password_ends_the_start_with_the_brokers_reason(
    secured: SecuredBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("herdmesh.devstack.existing_kafka._PATIENCE_S", 0.0)
    kafka = ExistingKafka.of(secured.addresses["SCRAM"], secured.properties("SCRAM", tmp_path, "wrong"))
    with pytest.raises(KafkaUnusable, match=r"no broker answers at .*[Aa]uthentication.*sasl\.\* of --command-config"):
        kafka.count_brokers()


def test_a_client_without_tls_is_refused_with_a_hint(secured: SecuredBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("herdmesh.devstack.existing_kafka._PATIENCE_S", 0.0)
    with pytest.raises(KafkaUnusable, match=r"no broker answers at .*security\.protocol"):
        ExistingKafka.of(secured.addresses["TLS"], None).count_brokers()
