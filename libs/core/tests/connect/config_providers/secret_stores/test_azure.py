"""Azure Key Vault as config providers: Azure's libraries against local servers of the documented REST APIs.

The login is Azure's own as well: the vault's challenge, then client credentials at a local authority.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from herdmesh.connect.config_providers.resolver import ConfigProviders
from herdmesh.connect.errors import ConfigError
from libs.core.tests.connect.config_providers.secret_stores.local_https import Answer, LocalServer, Request, certificate

CUSTENBORDER = "com.github.jcustenborder.kafka.config.azure.KeyVaultConfigProvider"
CONFLUENT = "io.confluent.csid.config.provider.azure.KeyVaultConfigProvider"
LENSES = "io.lenses.connect.secrets.providers.AzureSecretProvider"
_TENANT = "27e831e4-5cff-4143-b612-64de151b2f3e"


class Azure:
    """A vault and its authority on one address; `fails` = so many requests to the vault are answered with that
    error.
    """

    def __init__(self, own: Path) -> None:
        self.secrets: dict[str, list[tuple[str, dict[str, Any]]]] = {
            "db": [('{"password":"old-password"}', {}), ('{"password":"new-password","port":5432}', {})],
            "prod-db": [('{"password":"prefixed-password"}', {})],
            "plain": [("plain-password", {})],
            "encoded": [("ZGVjb2RlZC1wYXNzd29yZA==", {"tags": {"file-encoding": "base64"}})],
            "broken": [("not base64!", {"tags": {"file-encoding": "base64"}})],
            "file": [("x", {"tags": {"file-encoding": "utf-8_file"}})],
            "ends": [('{"password":"ending-password"}', {"attributes": {"exp": int(time.time()) + 100}})],
        }
        self.fails: list[int] = []
        self.server = LocalServer(self._answer, own)

    def _answer(self, request: Request) -> Answer:
        url = self.server.url
        if request.path.endswith("/.well-known/openid-configuration"):
            names = ("authorization_endpoint", "token_endpoint", "issuer")
            return 200, {name: f"{url}/{_TENANT}/oauth2/v2.0/{name.partition('_')[0]}" for name in names}
        if request.path.endswith("/oauth2/v2.0/token"):
            if request.form.get("client_secret") != "azure-client-secret":
                why = "AADSTS7000215: Invalid client secret provided. Trace ID: 1"
                return 401, {"error": "invalid_client", "error_description": why, "error_codes": [7000215]}
            return 200, {"access_token": "azure-token", "expires_in": 3_600, "token_type": "Bearer"}
        if request.headers.get("authorization") != "Bearer azure-token":
            challenge = f'Bearer authorization="{url}/{_TENANT}", resource="https://vault.azure.net"'
            return 401, {"error": {"code": "Unauthorized"}}, {"WWW-Authenticate": challenge}
        if self.fails:
            return self.fails.pop(0), {"error": {"code": "Test", "message": "as the test wants"}}
        _, _, name, *version = request.path.rstrip("/").split("/")
        found = self.secrets.get(name, [])
        wanted = int(version[0]) if version else len(found)
        if not 0 < wanted <= len(found):
            return 404, {"error": {"code": "SecretNotFound", "message": f"({name}) was not found"}}
        value, more = found[wanted - 1]
        return 200, {"value": value, "id": f"{url}/secrets/{name}/{wanted}", "attributes": {"enabled": True}, **more}


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certificate(tmp_path_factory.mktemp("azure"))


@pytest.fixture
def azure(own: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Azure]:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(own))
    found = Azure(own)
    monkeypatch.setenv("AZURE_AUTHORITY_HOST", found.server.url)
    with found.server:
        yield found


def providers(azure: Azure, cls: str = CONFLUENT, **params: str) -> ConfigProviders:
    if cls == LENSES:
        names = ("azure.tenant.id", "azure.client.id", "azure.secret.id")
    else:
        names = ("tenant.id", "client.id", "client.secret")
        params = {"vault.url": azure.server.url, "credential.type": "ClientSecret", **params}
    login = dict(zip(names, (_TENANT, "client-1", "azure-client-secret"), strict=True))
    given = {**login, "retry.interval.seconds": "0", **params}
    worker = {"config.providers": "az", "config.providers.az.class": cls}
    return ConfigProviders.of(worker | {f"config.providers.az.param.{name}": one for name, one in given.items()})


@pytest.mark.parametrize("cls", [CUSTENBORDER, CONFLUENT, "KeyVault"])
def test_a_json_secret_is_found_under_every_java_class_name(azure: Azure, cls: str) -> None:
    found = providers(azure, cls).resolve({"a": "${az:db:password}", "port": "${az:db:port}"})
    assert (found.config, found.ttl_ms) == ({"a": "new-password", "port": "5432"}, 300_000)


@pytest.mark.parametrize(
    ("reference", "params", "value"),
    [
        ("db?version=1:password", {}, "old-password"),
        ("db:password", {"secret.prefix": "prod-"}, "prefixed-password"),
        ("db:password", {"prefix": "prod-"}, "prefixed-password"),
        ("plain:plain", {"use.json": "false"}, "plain-password"),
    ],
)
def test_paths_and_params_select_the_secret(azure: Azure, reference: str, params: dict[str, str], value: str) -> None:
    assert providers(azure, **params).resolve({"a": f"${{az:{reference}}}"}).config == {"a": value}


def test_the_expiry_of_a_secret_limits_its_ttl(azure: Azure) -> None:
    ttl_ms = providers(azure).resolve({"a": "${az:ends:password}"}).ttl_ms
    assert ttl_ms is not None
    assert 50_000 < ttl_ms <= 100_000
    assert providers(azure).resolve({"a": "${az:ends?ttl=7000:password}"}).ttl_ms == 7_000


def test_lenses_provider_reads_a_path_as_vault_and_a_key_as_secret(
    azure: Azure, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A path cannot contain the port's colon, so it is written as %3A, as in Java's."""
    vault = azure.server.url.removeprefix("https://").replace(":", "%3A")
    config = {"a": f"${{az:{vault}:plain}}", "b": f"x${{az:{vault}:encoded}}"}
    assert providers(azure, LENSES).resolve(config).config == {"a": "plain-password", "b": "xdecoded-password"}
    for key, why in (("broken", "not base64 of a string"), ("file", "means a file"), ("none", "no such secret")):
        with pytest.raises(ConfigError, match=why) as raised:
            providers(azure, LENSES).resolve({"a": f"${{az:{vault}:{key}}}"})
        assert raised.value.fix


def test_only_transient_errors_are_retried(azure: Azure) -> None:
    azure.fails = [503, 429]
    assert providers(azure).resolve({"a": "${az:db:password}"}).config == {"a": "new-password"}
    azure.fails = [500] * 9
    with pytest.raises(ConfigError, match=r"it answered 500 \(3 tries\)"):
        providers(azure).resolve({"a": "${az:db:password}"})
    assert len(azure.fails) == 6


def test_each_error_names_the_secret_the_cause_and_the_next_step(azure: Azure) -> None:
    def told(reference: str, wanted: str, fix: str, fails: list[int], **params: str) -> None:
        azure.fails = fails
        with pytest.raises(ConfigError) as raised:
            providers(azure, **params).resolve({"db.password": f"${{az:{reference}}}"})
        assert wanted in str(raised.value)
        assert f"${{az:{reference}}}" in str(raised.value)
        assert fix in raised.value.fix
        shown = f"{raised.value} {raised.value.fix}"
        assert "plain-password" not in shown
        assert "wrong-secret" not in shown

    told("none:a", "secret none: the vault has no such secret", "create it", [])
    told("db?version=9:a", "no such secret, version 9", "correct the reference", [])
    told("plain:a", "its value is not a JSON object", "use.json=false", [])
    told("db:a", "access denied (403)", "Key Vault Secrets User", [403])
    told("db:a", "AADSTS7000215", "correct tenant, client and secret", [], **{"client.secret": "wrong-secret"})
    told("db:a", "could not be reached", "can reach it", [], **{"vault.url": "https://127.0.0.1:9"})


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"vault.url": ""}, "vault.url"),
        ({"vault.url": "http://x"}, "vault.url"),
        ({"credential.type": "Secret"}, "credential.type"),
        ({"tenant.id": ""}, "tenant.id"),
        ({"credential.type": "ClientCertificate"}, "client.certificate.path"),
        ({"credential.type": "UsernamePassword"}, "username"),
    ],
)
def test_invalid_params_are_reported_when_the_worker_starts(azure: Azure, params: dict[str, str], field: str) -> None:
    with pytest.raises(ConfigError) as raised:
        providers(azure, **params)
    assert raised.value.field == f"config.providers.az.param.{field}"
    assert raised.value.fix
