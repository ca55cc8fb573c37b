"""Vault as a config provider: `hvac` and a server that speaks Vault's REST API (`vault_server`)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from herdmesh.connect.config.redaction import redacted
from herdmesh.connect.config_providers.resolver import ConfigProviders
from herdmesh.connect.config_providers.secret_stores import vault
from herdmesh.connect.errors import ConfigError
from libs.core.tests.connect.config_providers.secret_stores.local_https import certificate
from libs.core.tests.connect.config_providers.secret_stores.vault_server import VaultServer

CUSTENBORDER = "com.github.jcustenborder.kafka.config.vault.VaultConfigProvider"
CONFLUENT = "io.confluent.csid.config.provider.vault.VaultConfigProvider"
LENSES = "io.lenses.connect.secrets.providers.VaultSecretProvider"


@pytest.fixture
def server() -> Iterator[VaultServer]:
    found = VaultServer()
    found.kv |= {
        "secret/db": [{"password": "old-password"}, {"password": "new-password", "port": 5432, "none": None}],
        "secret/gone": [{"password": "was-there"}, None],
        "team/a/db": [{"password": "team-password"}],
        "kv1/db": [{"password": "kv1-password"}],
    }
    with found.server:
        yield found


def providers(server: VaultServer, cls: str = CONFLUENT, **params: str) -> ConfigProviders:
    given = {"vault.address": server.url, "vault.auth.token": "root-token", "retry.interval.seconds": "0"}
    given |= {name.replace("__", "."): value for name, value in params.items()}
    worker = {"config.providers": "vault", "config.providers.vault.class": cls}
    return ConfigProviders.of(worker | {f"config.providers.vault.param.{name}": one for name, one in given.items()})


@pytest.mark.parametrize("cls", [CUSTENBORDER, CONFLUENT, LENSES, "Vault"])
def test_kv_2_is_found_under_every_java_class_name(server: VaultServer, cls: str) -> None:
    found = providers(server, cls).resolve({"a": "${vault:secret/db:password}", "port": "${vault:secret/db:port}"})
    assert found.config == {"a": "new-password", "port": "5432"}
    assert server.paths().count("GET /v1/secret/data/db") == 1, "one look-up for both keys"
    assert found.ttl_ms == 300_000, "looked up again after five minutes"
    assert redacted("is new-password") == "is ***"


def test_versions_ttls_and_nested_mounts_follow_params_and_path(server: VaultServer) -> None:
    resolve = providers(server).resolve
    assert resolve({"a": "${vault:secret/db?version=1&ttl=5000:password}"}).config == {"a": "old-password"}
    assert resolve({"a": "${vault:secret/db?version=1&ttl=5000:password}"}).ttl_ms == 5_000
    assert providers(server, vault__prefixpath="team/a").resolve({"a": "${vault:team/a/db:password}"}).config == {
        "a": "team-password"
    }
    lenses = providers(server, LENSES, **{"vault.prefix.depth": "2", "secret.default.ttl": "60000"})
    assert lenses.resolve({"a": "${vault:team/a/db:password}"}).ttl_ms == 60_000
    still = providers(server, **{"polling.enabled": "false"}).resolve({"a": "${vault:secret/db:password}"})
    assert still.ttl_ms is None
    own = providers(server, **{"ttl.ms": "7000"}).resolve({"a": "${vault:secret/db:password}"})
    assert own.ttl_ms == 7_000


@pytest.mark.parametrize("param", ["vault.secrets.version", "vault.engine.version"])
def test_kv_1_has_no_lease(server: VaultServer, param: str) -> None:
    found = providers(server, **{param: "1"}).resolve({"a": "${vault:kv1/db:password}"})
    assert (found.config, found.ttl_ms) == ({"a": "kv1-password"}, 300_000)


def test_a_generated_login_is_one_pair_and_expires_before_its_lease(server: VaultServer) -> None:
    config = {"user": "${vault:database/creds/app:username}", "password": "${vault:database/creds/app:password}"}
    found = providers(server).resolve(config)
    assert found.config == {"user": "v-1", "password": "made-password-1"}
    assert found.ttl_ms == 90_000, "of a lease of 100 s"


_PAIR = {"user": "${vault:database/creds/app:username}", "password": "${vault:database/creds/app:password}"}
_CREDS = "GET /v1/database/creds/app"


def test_the_tasks_of_a_connector_share_a_generated_login(server: VaultServer) -> None:
    """500 tasks, each of which resolves its connector's config and its own."""
    found = providers(server)
    with ThreadPoolExecutor(16) as pool:
        resolved = list(pool.map(found.resolve, [_PAIR] * 1_000))
    assert {one.config["user"] for one in resolved} == {"v-1"}
    assert {one.config["password"] for one in resolved} == {"made-password-1"}
    assert server.paths().count(_CREDS) == 1
    assert all(80_000 < (one.ttl_ms or 0) <= 90_000 for one in resolved)


def test_a_shared_login_has_its_remaining_ttl_and_then_a_new_one_is_generated(
    server: VaultServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 1_000.0
    monkeypatch.setattr(vault.time, "monotonic", lambda: now_s)
    resolve = providers(server).resolve
    assert resolve(_PAIR).ttl_ms == 90_000
    now_s += 8.9  # of the 9 s that are a tenth of its 90 s
    assert (resolve(_PAIR).config["user"], resolve(_PAIR).ttl_ms) == ("v-1", 81_100)
    assert resolve({"a": "${vault:database/creds/other:username}"}).config == {"a": "v-2"}
    now_s += 0.2
    assert (resolve(_PAIR).config["user"], resolve(_PAIR).ttl_ms) == ("v-3", 90_000)


def test_a_failed_look_up_is_not_cached(server: VaultServer) -> None:
    resolve = providers(server, **{"retry.attempts": "0"}).resolve
    server.fails = 10
    with pytest.raises(ConfigError, match="sealed"):
        resolve(_PAIR)
    server.fails = 0
    assert resolve(_PAIR).config["user"] == "v-1"


@pytest.mark.parametrize(
    "params",
    [
        {"vault.auth.method": "AppRole", "vault.auth.role": "role-1", "vault.auth.secret": "secret-id-1"},
        {"vault.auth.method": "approle", "app.role.id": "role-1", "app.role.secret.id": "secret-id-1"},
        {
            "vault.auth.method": "UserPass",
            "vault.auth.mount": "people",
            "vault.auth.username": "ann",
            "vault.auth.password": "ann-password",
        },
        {"vault.auth.method": "LDAP", "ldap.username": "ann", "ldap.password": "ann-password"},
        {"vault.auth.method": "jwt", "jwt.role": "connect", "jwt": "jwt-given"},
        {"vault.auth.method": "github", "github.token": "gh-token"},
    ],
)
def test_a_login_gives_a_token_and_is_repeated_once_it_has_expired(server: VaultServer, params: dict[str, str]) -> None:
    found = providers(server, **{"vault.auth.token": "", **params})
    assert found.resolve({"a": "${vault:secret/db:password}"}).config == {"a": "new-password"}
    found.resolve({"a": "${vault:secret/db:password}"})
    assert sum("/login" in one for one in server.paths()) == 1, "a login is kept"
    server.tokens = {}
    assert found.resolve({"a": "${vault:secret/db:password}"}).config == {"a": "new-password"}
    assert sum("/login" in one for one in server.paths()) == 2
    server.tokens = {}
    for secret in ("root-token", "secret-id-1", "ann-password", "made-token-1"):
        assert redacted(f"x {secret}") == "x ***" or secret not in str(params)


def test_a_login_is_repeated_before_its_token_expires(server: VaultServer, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 1_000.0
    monkeypatch.setattr(vault.time, "monotonic", lambda: now_s)
    login = {"vault.auth.method": "AppRole", "vault.auth.role": "role-1", "vault.auth.secret": "secret-id-1"}
    found = providers(server, **{"vault.auth.token": "", **login})
    config = {"a": "${vault:secret/db:password}"}
    found.resolve(config)
    now_s += server.login_life_s * 0.89
    found.resolve(config)
    assert sum("/login" in one for one in server.paths()) == 1
    now_s += server.login_life_s * 0.02
    found.resolve(config)
    assert sum("/login" in one for one in server.paths()) == 2
    assert not any("403" in one for one in server.paths())


def test_a_pods_token_is_read_from_its_file(server: VaultServer, tmp_path: Path) -> None:
    file = tmp_path / "token"
    login = {"vault.auth.method": "kubernetes", "kubernetes.role": "connect", "kubernetes.token.path": str(file)}
    login["kubernetes.auth.path"] = "auth/kubernetes"
    found = providers(server, LENSES, **{"vault.token": "", **login})
    with pytest.raises(ConfigError, match=f"the service account's token {file} cannot be read"):
        found.resolve({"a": "${vault:secret/db:password}"})
    file.write_text("jwt-of-the-pod\n")
    assert found.resolve({"a": "${vault:secret/db:password}"}).config == {"a": "new-password"}


def test_a_given_token_is_renewed_while_the_provider_is_open(
    server: VaultServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits_s: list[float] = []
    waited = threading.Event()

    class Closed(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waits_s.append(timeout or 0)
            if len(waits_s) == 4:
                waited.set()
                return True
            return False

    monkeypatch.setattr(threading, "Event", Closed)
    server.tokens["short-token"] = 40
    found = providers(server, **{"vault.auth.token": "short-token"})
    monkeypatch.undo()
    found.resolve({"a": "${vault:secret/db:password}"})
    assert waited.wait(10)
    assert (waits_s, server.renewals) == ([20, 20, 20, 20], 3)


def test_a_sealed_vault_is_retried_and_reported_after_the_last_try(server: VaultServer) -> None:
    server.fails = 2
    assert providers(server).resolve({"a": "${vault:secret/db:password}"}).config == {"a": "new-password"}
    server.fails = 99
    with pytest.raises(ConfigError) as raised:
        providers(server, **{"retry.count": "2"}).resolve({"a": "${vault:secret/db:password}"})
    assert str(raised.value).endswith("Vault, secret secret/db: it is sealed or in maintenance (503) (2 tries)")
    assert raised.value.fix == "unseal it"


def test_each_error_names_the_secret_the_cause_and_the_next_step(server: VaultServer, tmp_path: Path) -> None:
    silent = VaultServer()
    silent.server.__exit__()
    for found, path, why, fix in (
        (
            providers(server),
            "secret/none",
            "no secret exists there (secret/none, KV version 2)",
            "vault.secrets.version=1",
        ),
        (providers(server), "secret/gone", "no secret exists there (secret/gone, KV version 2)", "put it there"),
        (providers(server), "secret/db?version=9", "no secret exists there (secret/db version 9", "put it there"),
        (providers(server), "secret/db?version=x", "version=x is not a KV version", "version=3"),
        (providers(server), "secret/db?versoin=1", "unknown option versoin", "version"),
        (providers(server), "secret", "secret is an engine without a secret", "write <engine>/<secret>"),
        (
            providers(server, **{"vault.auth.token": "not-a-token"}),
            *("secret/db", "permission denied to login token", "create a new one"),
        ),
        (
            providers(
                server,
                **{"vault.auth.method": "AppRole", "vault.auth.role": "other", "vault.auth.secret": "wrong-secret-id"},
            ),
            *("secret/db", "the request was refused: invalid role or secret ID", "correct the login"),
        ),
        (
            providers(silent, **{"retry.count": "1"}),
            *("secret/db", f"{silent.url} could not be connected to", "check that"),
        ),
    ):
        with pytest.raises(ConfigError) as raised:
            found.resolve({"db.password": f"${{vault:{path}:password}}"})
        assert f"db.password: ${{vault:{path}:password}} cannot be resolved: " in str(raised.value)
        assert why in str(raised.value)
        assert fix in raised.value.fix
        assert "new-password" not in f"{raised.value} {raised.value.fix}"


def test_an_unknown_certificate_is_reported_and_can_be_trusted(tmp_path: Path) -> None:
    own = certificate(tmp_path)
    server = VaultServer(own)
    server.kv["secret/db"] = [{"password": "tls-password"}]
    with server.server:
        with pytest.raises(ConfigError, match="its certificate is not trusted") as raised:
            providers(server).resolve({"a": "${vault:secret/db:password}"})
        assert "vault.ssl.pem_trust_path" in raised.value.fix
        for param, value in (("vault.ssl.pem_trust_path", str(own)), ("vault.pem", str(own))):
            found = providers(server, **{param: value}).resolve({"a": "${vault:secret/db:password}"})
            assert found.config == {"a": "tls-password"}


@pytest.mark.parametrize(
    ("params", "field", "why"),
    [
        ({"vault.auth.token": ""}, "vault.token", "VAULT_TOKEN is not set"),
        ({"vault.address": ""}, "vault.address", "VAULT_ADDR is not set"),
        ({"vault.auth.method": "Kerberos"}, "vault.auth.method", "must be one of Token, AppRole"),
        ({"vault.auth.method": "AppRole", "vault.auth.role": "r"}, "vault.auth.secret", "login approle needs it"),
        ({"vault.secrets.version": "3"}, "vault.secrets.version", "must be 1 or 2"),
        ({"vault.ssl.truststore.location": "/x.jks"}, "vault.ssl.truststore.location", "read as PEM"),
        ({"retry.count": "many"}, "retry.count", "must be a whole number"),
        ({"polling.enabled": "yes"}, "polling.enabled", "must be true or false"),
    ],
)
def test_invalid_params_are_reported_when_the_worker_starts(
    server: VaultServer, monkeypatch: pytest.MonkeyPatch, params: dict[str, str], field: str, why: str
) -> None:
    monkeypatch.delenv("VAULT_TOKEN", raising=False)
    monkeypatch.delenv("VAULT_ADDR", raising=False)
    with pytest.raises(ConfigError, match=why) as raised:
        providers(server, **params)
    assert raised.value.field == f"config.providers.vault.param.{field}"
    assert raised.value.fix


def test_address_and_token_may_come_from_the_environment(server: VaultServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VAULT_ADDR", server.url)
    monkeypatch.setenv("VAULT_TOKEN", "root-token")
    found = providers(server, **{"vault.address": "", "vault.auth.token": ""})
    assert found.resolve({"a": "${vault:secret/db:password}"}).config == {"a": "new-password"}
