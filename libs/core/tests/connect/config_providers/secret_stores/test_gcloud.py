"""GCP Secret Manager as a config provider: Google's library against a local server of its documented REST API.

The login is Google's own as well: a service account's key, whose signature the local server checks.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from herdmesh.connect.config_providers.resolver import ConfigProviders
from herdmesh.connect.errors import ConfigError
from libs.core.tests.connect.config_providers.secret_stores.local_https import Answer, LocalServer, Request, certificate

CUSTENBORDER = "com.github.jcustenborder.kafka.config.gcloud.SecretManagerConfigProvider"
CONFLUENT = "io.confluent.csid.config.provider.gcloud.SecretManagerConfigProvider"
_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)


class Google:
    """Secrets by the name of a version; `fails` = so many requests are answered with that error."""

    def __init__(self, own: Path) -> None:
        self.secrets = {
            "projects/1234/secrets/db/versions/latest": '{"password":"new-password","port":5432}',
            "projects/1234/secrets/db/versions/1": '{"password":"old-password"}',
            "projects/4321/secrets/db/versions/latest": '{"password":"other-password"}',
            "projects/1234/secrets/prod-db/versions/latest": '{"password":"prefixed-password"}',
            "projects/1234/secrets/plain/versions/latest": "plain-password",
        }
        self.fails: list[int] = []
        self.server = LocalServer(self._answer, own)

    def key_file(self) -> dict[str, str]:
        """Key file of a service account."""
        private = _KEY.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return {
            "type": "service_account",
            "project_id": "1234",
            "private_key_id": "k1",
            "client_id": "1",
            "private_key": private.decode(),
            "client_email": "connect@x.iam.gserviceaccount.com",
            "token_uri": f"{self.server.url}/token",
        }

    def _answer(self, request: Request) -> Answer:
        if self.fails:
            status = self.fails.pop(0)
            return status, {"error": {"code": status, "message": "as the test wants"}}
        if not _signed_by_the_account(request.headers.get("authorization", "")):
            return 401, {"error": {"code": 401, "message": "no token"}}
        name = request.path.removeprefix("/v1/").removesuffix(":access")
        if name not in self.secrets:
            return 404, {"error": {"code": 404, "message": f"Secret [{name}] not found."}}
        data = base64.b64encode(self.secrets[name].encode()).decode()
        return 200, {"name": name, "payload": {"data": data}}


def _signed_by_the_account(authorization: str) -> bool:
    """Whether the token is one that the library signs itself with the account's key, as Google accepts from service
    accounts.
    """
    head, body, signature = authorization.removeprefix("Bearer ").split(".")
    signed = base64.urlsafe_b64decode(signature + "==")
    _KEY.public_key().verify(signed, f"{head}.{body}".encode(), padding.PKCS1v15(), hashes.SHA256())
    claims = json.loads(base64.urlsafe_b64decode(body + "=="))
    return claims["iss"] == "connect@x.iam.gserviceaccount.com"


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certificate(tmp_path_factory.mktemp("google"))


@pytest.fixture
def google(own: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Google]:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(own))
    found = Google(own)
    with found.server:
        yield found


def providers(google: Google, cls: str = CONFLUENT, **params: str) -> ConfigProviders:
    given = {"project.id": "1234", "endpoint.override": google.server.url.removeprefix("https://")}
    given |= {"credential.location": "Inline", "credential.inline": json.dumps(google.key_file())}
    given |= {"retry.interval.seconds": "0", **params}
    worker = {"config.providers": "gcp", "config.providers.gcp.class": cls}
    return ConfigProviders.of(worker | {f"config.providers.gcp.param.{name}": one for name, one in given.items()})


@pytest.mark.parametrize("cls", [CUSTENBORDER, CONFLUENT, "SecretManager"])
def test_a_json_secret_is_found_under_every_java_class_name(google: Google, cls: str) -> None:
    found = providers(google, cls).resolve({"a": "${gcp:db:password}", "port": "${gcp:db:port}"})
    assert (found.config, found.ttl_ms) == ({"a": "new-password", "port": "5432"}, 300_000)


@pytest.mark.parametrize(
    ("reference", "params", "value", "ttl_ms"),
    [
        ("db?version=1&ttl=30000:password", {}, "old-password", 30_000),
        ("db?projectid=4321:password", {"secret.ttl.ms": "5000"}, "other-password", 5_000),
        ("db:password", {"secret.prefix": "prod-"}, "prefixed-password", 300_000),
        ("projects/4321/secrets/db:password", {"project.id": ""}, "other-password", 300_000),
        ("projects/1234/secrets/db/versions/1:password", {"polling.enabled": "false"}, "old-password", None),
        ("plain:plain", {"use.json": "false"}, "plain-password", 300_000),
    ],
)
def test_paths_and_params_select_the_secret(
    google: Google, reference: str, params: dict[str, str], value: str, ttl_ms: int | None
) -> None:
    found = providers(google, **params).resolve({"a": f"${{gcp:{reference}}}"})
    assert (found.config, found.ttl_ms) == ({"a": value}, ttl_ms)


def test_the_key_is_read_from_a_param_a_file_or_googles_default(
    google: Google, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "key.json"
    file.write_text(json.dumps(google.key_file()))
    in_file = providers(google, **{"credential.location": "File", "credential.file": str(file)})
    assert in_file.resolve({"a": "${gcp:db:password}"}).config == {"a": "new-password"}
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
    by_itself = providers(google, **{"credential.location": "ApplicationDefault"})
    assert by_itself.resolve({"a": "${gcp:db:password}"}).config == {"a": "new-password"}


def test_only_transient_errors_are_retried(google: Google) -> None:
    found = providers(google)
    google.fails = [503, 429]
    assert found.resolve({"a": "${gcp:db:password}"}).config == {"a": "new-password"}
    google.fails = [500] * 9
    with pytest.raises(ConfigError, match=r"\(3 tries\)"):
        found.resolve({"a": "${gcp:db:password}"})
    assert len(google.fails) == 6


def test_each_error_names_the_secret_the_cause_and_the_next_step(google: Google, tmp_path: Path) -> None:
    def told(reference: str, wanted: str, fix: str, fails: list[int], **params: str) -> None:
        google.fails = fails
        with pytest.raises(ConfigError) as raised:
            providers(google, **params).resolve({"db.password": f"${{gcp:{reference}}}"})
        assert wanted in str(raised.value)
        assert f"${{gcp:{reference}}}" in str(raised.value)
        assert fix in raised.value.fix
        assert "plain-password" not in f"{raised.value} {raised.value.fix}"

    latest = "projects/1234/secrets/none/versions/latest"
    told("none:a", f"secret none: {latest} does not exist", "add a version", [])
    told("db:a", "is denied", "roles/secretmanager.secretAccessor", [403])
    told("db?version=1:a", "cannot be read", "enable that version", [400])
    told("plain:a", "its value is not a JSON object", "use.json=false", [])
    told("db:a", "no project is named", "project.id", [], **{"project.id": ""})
    broken: dict[str, Any] = {**google.key_file(), "private_key": "none"}
    told("db:a", "not the key of a service account", "download", [], **{"credential.inline": json.dumps(broken)})
    missing = {"credential.location": "File", "credential.file": str(tmp_path / "none.json")}
    told("db:a", "credential.file cannot be read: No such file", "on every worker's host", [], **missing)
    told("db:a", "could not be reached", "can reach Google", [], **{"endpoint.override": "127.0.0.1:9"})


def test_a_key_that_is_no_json_is_refused_when_the_worker_starts(google: Google) -> None:
    with pytest.raises(ConfigError, match="is not JSON") as raised:
        providers(google, **{"credential.inline": "{private"})
    assert raised.value.field == "config.providers.gcp.param.credential.inline"
    assert "private" not in str(raised.value)
