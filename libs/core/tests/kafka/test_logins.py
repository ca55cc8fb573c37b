"""Amazon MSK's IAM login: its tokens by SigV4's own rules, and a real broker that accepts OAUTHBEARER tokens."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from moto.server import ThreadedMotoServer

from herdmesh.engine.librdkafka.clients import opened
from herdmesh.kafka import logins
from herdmesh.kafka.logins import ready
from tests.support.guarded_broker import GuardedBroker

_BROKER = "b-1.demo.abc123.c2.kafka.eu-central-1.amazonaws.com:9098"
_MODULE = "software.amazon.msk.auth.iam.IAMLoginModule required"
_KEY, _SECRET = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"


@pytest.fixture(autouse=True)
def _only_these_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", _KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", _SECRET)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / name))


def settings(servers: str = _BROKER, options: str = "") -> dict[str, Any]:
    return {
        "bootstrap.servers": servers,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "AWS_MSK_IAM",
        "sasl.jaas.config": f"{_MODULE}{options};",
    }


def token_of(config: Mapping[str, Any]) -> tuple[str, Mapping[str, str], float]:
    """Host, query and expiry time of the token."""
    found = ready(config)
    token, over_s = found["oauth_cb"](None)
    url = urlsplit(base64.urlsafe_b64decode(token + "==").decode())
    return url.netloc, dict(parse_qsl(url.query, keep_blank_values=True)), over_s


def signature_of(host: str, query: Mapping[str, str], secret: str) -> str:
    """SigV4 signature of a presigned GET, computed as AWS's reference describes it."""
    scope = query["X-Amz-Credential"].split("/", 1)[1]
    date, region, service, end = scope.split("/")
    signed = sorted((name, value) for name, value in query.items() if name not in ("X-Amz-Signature", "User-Agent"))
    canonical_query = "&".join(f"{quote(name, safe='-_.~')}={quote(value, safe='-_.~')}" for name, value in signed)
    body = hashlib.sha256(b"").hexdigest()
    canonical = "\n".join(("GET", "/", canonical_query, f"host:{host}", "", "host", body))
    to_sign = "\n".join(
        ("AWS4-HMAC-SHA256", query["X-Amz-Date"], scope, hashlib.sha256(canonical.encode()).hexdigest())
    )
    key = f"AWS4{secret}".encode()
    for part in (date, region, service, end):
        key = hmac.digest(key, part.encode(), "sha256")
    return hmac.digest(key, to_sign.encode(), "sha256").hex()


def test_a_token_is_a_request_to_msk_signed_with_the_key_of_the_environment() -> None:
    before = time.time()
    host, query, over_s = token_of(settings())
    assert host == "kafka.eu-central-1.amazonaws.com"
    assert query["Action"] == "kafka-cluster:Connect"
    assert query["X-Amz-Credential"].startswith(f"{_KEY}/")
    assert query["X-Amz-Credential"].endswith("/eu-central-1/kafka-cluster/aws4_request")
    assert query["X-Amz-Signature"] == signature_of(host, query, _SECRET)
    assert before + 890 < over_s < time.time() + 901, "15 minutes"


def test_the_client_gets_oauthbearer_and_none_of_the_java_settings() -> None:
    more = {"sasl.client.callback.handler.class": "software.amazon.msk.auth.iam.IAMClientCallbackHandler", "acks": "1"}
    found = ready({**settings(), **more})
    assert sorted(found) == ["acks", "bootstrap.servers", "oauth_cb", "sasl.mechanism", "security.protocol"]
    assert found["sasl.mechanism"] == "OAUTHBEARER"
    other = {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.method": "oidc"}
    assert ready(other) == other, "another login is left as it is"


@pytest.mark.parametrize(
    ("servers", "environment", "region"),
    [
        ("boot-x.c1.kafka-serverless.us-gov-west-1.amazonaws.com:9098", "eu-west-1", "us-gov-west-1"),
        ("b-1.x.kafka.cn-north-1.amazonaws.com.cn:9098", "", "cn-north-1"),
        ("kafka.internal.example.com:9098", "ap-south-1", "ap-south-1"),
    ],
)
def test_the_region_comes_from_the_broker_names_else_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, servers: str, environment: str, region: str
) -> None:
    if environment:
        monkeypatch.setenv("AWS_REGION", environment)
    _, query, _ = token_of(settings(servers))
    assert query["X-Amz-Credential"].split("/")[2] == region


def test_a_token_is_signed_as_the_configured_profile_and_role(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    text = "[connect]\naws_access_key_id = AKIDPROFILE\naws_secret_access_key = profile-secret\n"
    (tmp_path / "AWS_SHARED_CREDENTIALS_FILE").write_text(text)
    host, query, _ = token_of(settings(options=' awsProfileName="connect"'))
    assert query["X-Amz-Credential"].startswith("AKIDPROFILE/")
    assert query["X-Amz-Signature"] == signature_of(host, query, "profile-secret")
    server = ThreadedMotoServer("127.0.0.1", 0)
    server.start()
    try:
        address, port = server.get_host_and_port()
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", f"http://{address}:{port}")
        role = ' awsRoleArn="arn:aws:iam::123456789012:role/connect" awsStsRegion="eu-west-1" awsRoleSessionName="me"'
        _, query, _ = token_of(settings(options=role))
    finally:
        server.stop()
    assert query["X-Amz-Credential"].startswith("ASIA"), "credentials of STS"
    assert query["X-Amz-Security-Token"]


@pytest.mark.parametrize(
    ("options", "servers", "why"),
    [
        ("", _BROKER, "no AWS credentials"),
        (' awsProfileName="none"', _BROKER, "The config profile (none) could not be found"),
        ("", "kafka.example.com:9098", "set AWS_REGION where it runs"),
        (" awsProfilName=x", _BROKER, "did you mean awsProfileName?"),
    ],
)
def test_an_impossible_login_is_reported_when_the_client_is_created(
    monkeypatch: pytest.MonkeyPatch, options: str, servers: str, why: str
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(KafkaException) as raised:
        opened(AdminClient, "admin", settings(servers, options))
    error: KafkaError = raised.value.args[0]
    assert error.code() == KafkaError.SASL_AUTHENTICATION_FAILED
    assert why in error.str()


def test_unreachable_aws_is_retried_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", "http://127.0.0.1:9")
    role = ' awsRoleArn="arn:aws:iam::123456789012:role/connect" awsStsRegion="eu-west-1"'
    with pytest.raises(KafkaException, match="AWS was not reached") as raised:
        ready(settings(options=role))
    assert raised.value.args[0].code() == KafkaError._TRANSPORT


async def test_every_kind_of_client_logs_in_and_refreshes_its_tokens(
    guarded: GuardedBroker, tmp_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker accepts unsigned tokens that have not expired, so the signed token is put inside one that lives for 3
    s.
    """
    user, _ = guarded.new_user()
    topic = tmp_topic()
    await guarded.allow(user, f"topic:{topic}", "READ", "WRITE", "CREATE", "DESCRIBE")
    await guarded.allow(user, f"group:{topic}", "READ")
    made: list[str] = []
    third = threading.Event()
    tokens = logins._tokens  # pyright: ignore[reportPrivateUsage]

    def unsigned(*args: Any) -> Callable[[], tuple[str, float]]:
        make = tokens(*args)

        def token() -> tuple[str, float]:
            signed, _ = make()
            now = time.time()
            made.append(signed)
            if len(made) >= 7:  # the first tokens of three clients, then refreshed ones
                third.set()
            return ".".join((*map(_part, ({"alg": "none"}, {"sub": user, "iat": now, "exp": now + 3})), "")), now + 3

        return token

    monkeypatch.setattr(logins, "_tokens", unsigned)
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    config = {**settings(guarded.guarded), "security.protocol": "SASL_PLAINTEXT"}

    def run() -> list[bytes | None]:
        producer: Any = opened(Producer, "producer", config)
        producer.produce(topic, b"one")
        assert producer.flush(30) == 0
        consumer: Any = opened(Consumer, "consumer", {**config, "group.id": topic, "auto.offset.reset": "earliest"})
        consumer.subscribe([topic])
        admin: Any = opened(AdminClient, "admin", config)
        assert topic in admin.list_topics(timeout=30).topics
        found = [_next(consumer)]
        assert third.wait(30), "no token after the first"
        producer.produce(topic, b"two")
        assert producer.flush(30) == 0
        found.append(_next(consumer))
        consumer.close()
        return found

    assert await asyncio.to_thread(run) == [b"one", b"two"]
    assert all("X-Amz-Signature" in base64.urlsafe_b64decode(one + "==").decode() for one in made)


def _next(consumer: Any) -> bytes | None:
    until = time.monotonic() + 30
    while time.monotonic() < until:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            return message.value()
    return None


def _part(claims: Mapping[str, object]) -> str:
    return base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
