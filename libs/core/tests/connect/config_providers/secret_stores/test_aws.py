"""AWS Secrets Manager as a config provider: `boto3` against `moto`'s server, which speaks the service's protocol."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest
from moto.server import ThreadedMotoServer

from herdmesh.connect.config_providers.resolver import ConfigProviders
from herdmesh.connect.errors import ConfigError
from libs.core.tests.connect.config_providers.secret_stores.local_https import LocalServer

CUSTENBORDER = "com.github.jcustenborder.kafka.config.aws.SecretsManagerConfigProvider"
CONFLUENT = "io.confluent.csid.config.provider.aws.SecretsManagerConfigProvider"
LENSES = "io.lenses.connect.secrets.providers.AWSSecretProvider"
MSK = "com.amazonaws.kafka.config.providers.SecretsManagerConfigProvider"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", 0)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(scope="module")
def versions(endpoint: str) -> list[str]:
    """Ids of the versions of `prod/db`, oldest first; the other secrets have one version each."""
    session: Any = import_module("botocore.session").Session()
    session.set_credentials("AKIATEST", "aws-secret-key")
    client = session.create_client("secretsmanager", region_name="eu-west-1", endpoint_url=endpoint)
    first = client.create_secret(Name="prod/db", SecretString='{"password":"old-password"}')["VersionId"]
    text = '{"password":"new-password","port":5432,"none":null}'
    second = client.put_secret_value(SecretId="prod/db", SecretString=text)["VersionId"]
    client.create_secret(Name="stagingdb", SecretString='{"password":"staging-password"}')
    client.create_secret(Name="bytes", SecretBinary=b'{"password":"binary-password"}')
    client.create_secret(Name="plain", SecretString="plain-password")
    return [first, second]


def providers(endpoint: str, cls: str = CONFLUENT, **params: str) -> ConfigProviders:
    given = {"aws.region": "eu-west-1", "aws.access.key": "AKIATEST", "aws.secret.key": "aws-secret-key"}
    given |= {"endpoint.override": endpoint, "retry.interval.seconds": "0", **params}
    worker = {"config.providers": "aws", "config.providers.aws.class": cls}
    return ConfigProviders.of(worker | {f"config.providers.aws.param.{name}": one for name, one in given.items()})


@pytest.mark.usefixtures("versions")
@pytest.mark.parametrize("cls", [CUSTENBORDER, CONFLUENT, LENSES, MSK, "SecretsManager"])
def test_a_json_secret_is_found_under_every_java_class_name(endpoint: str, cls: str) -> None:
    config = {"a": "${aws:prod/db:password}", "port": "${aws:prod/db:port}"}
    found = providers(endpoint, cls).resolve(config)
    assert (found.config, found.ttl_ms) == ({"a": "new-password", "port": "5432"}, 300_000)


def test_versions_prefixes_and_ttls(endpoint: str, versions: list[str]) -> None:
    older = providers(endpoint).resolve({"a": f"${{aws:prod/db?version={versions[0]}&ttl=9000:password}}"})
    assert (older.config, older.ttl_ms) == ({"a": "old-password"}, 9_000)
    staged = providers(endpoint).resolve({"a": "${aws:prod/db?version=AWSPREVIOUS:password}"})
    assert staged.config == {"a": "old-password"}
    kept = providers(endpoint, CUSTENBORDER, **{"secret.prefix": "prod", "secret.ttl.ms": "60000"})
    found = kept.resolve({"a": "${aws:db:password}"})
    assert (found.config, found.ttl_ms) == ({"a": "new-password"}, 60_000), "jcustenborder's prefix is a folder"
    joined = providers(endpoint, **{"secret.prefix": "staging"}).resolve({"a": "${aws:db:password}"})
    assert joined.config == {"a": "staging-password"}, "Confluent's is the beginning of the name"


@pytest.mark.usefixtures("versions")
def test_binary_secrets_and_secrets_of_one_text(endpoint: str) -> None:
    assert providers(endpoint).resolve({"a": "${aws:bytes:password}"}).config == {"a": "binary-password"}
    whole = providers(endpoint, **{"use.json": "false"}).resolve({"a": "${aws:plain:plain}"})
    assert whole.config == {"a": "plain-password"}
    lenses = providers(endpoint, LENSES, **{"secret.type": "string"}).resolve({"a": "${aws:plain:value}"})
    assert lenses.config == {"a": "plain-password"}
    left_out = providers(endpoint, MSK, NotFoundStrategy="ignore").resolve({"a": "${aws:nothing:b}"})
    assert left_out.config == {"a": ""}


@pytest.mark.usefixtures("versions")
def test_each_error_names_the_secret_the_cause_and_the_next_step(
    endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    for found, reference, why, fix in (
        (providers(endpoint), "nothing:a", "secret nothing: no secret has that name", "create nothing in the region"),
        (providers(endpoint), "plain:a", "secret plain: its value is not a JSON object", "use.json=false"),
        (providers(endpoint), "arn:aws:x", "an ARN is written with %3A", "correct the reference"),
        (
            providers(endpoint),
            "prod/db:password?version=1",
            "after the secret, not after the key",
            "prod/db?version=1",
        ),
        (providers(endpoint), "prod/db:user", "provider aws has no key user at prod/db", "add user at prod/db"),
        (providers(endpoint), "password", "it names no secret", "<secret>:<key>"),
        (providers(endpoint, **{"aws.region": ""}), "prod/db:a", "no region is set", "AWS_REGION"),
        (
            providers("http://127.0.0.1:9", **{"retry.count": "2"}),
            *("prod/db:a", 'connect to the endpoint URL: "http://127.0.0.1:9/" (2 tries)', "can reach AWS"),
        ),
    ):
        with pytest.raises(ConfigError) as raised:
            found.resolve({"db.password": f"${{aws:{reference}}}"})
        assert why in str(raised.value), str(raised.value)
        assert f"${{aws:{reference}}}" in str(raised.value)
        assert fix in raised.value.fix
        assert "plain-password" not in f"{raised.value} {raised.value.fix}"


@pytest.mark.parametrize(
    ("status", "code", "asked", "why"),
    [
        (400, "ThrottlingException", 3, "ThrottlingException"),
        (500, "InternalServiceError", 3, "InternalServiceError"),
        (400, "AccessDeniedException", 1, "access denied (AccessDeniedException)"),
        (400, "ExpiredTokenException", 1, "access denied (ExpiredTokenException)"),
        (400, "DecryptionFailure", 1, "its key cannot decrypt it"),
    ],
)
def test_only_transient_errors_are_retried(status: int, code: str, asked: int, why: str) -> None:
    """By codes of the service's reference that moto does not produce."""
    with LocalServer(lambda _: (status, {"__type": code, "Message": "as the test wants"})) as server:
        with pytest.raises(ConfigError) as raised:
            providers(server.url).resolve({"a": "${aws:prod/db:password}"})
        assert len(server.asked) == asked
    assert why in str(raised.value)
    assert raised.value.fix


def test_an_incomplete_login_is_refused_when_the_worker_starts(endpoint: str) -> None:
    with pytest.raises(ConfigError, match="both are needed for a login") as raised:
        providers(endpoint, **{"aws.secret.key": ""})
    assert raised.value.field == "config.providers.aws.param.aws.secret.key"
