"""HashiCorp Vault as a config provider, through `hvac`: KV version 1 and 2, and engines that generate secrets.

Owns paths, logins and the renewal of Vault's token. Accepts the params of three Java providers (jcustenborder's,
Confluent's, Lenses'), under all their names.

A path is the engine's mount and the secret: `secret/db` is read as `secret/data/db` from KV version 2, which is the
default, and as it is from version 1. `database/creds/<role>` is never KV.

Invariant: a secret with a lease is looked up again before nine tenths of it are over; concurrent lookups get one secret
(`shared`).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import structlog

from herdmesh.connect.config import keep_secret
from herdmesh.connect.config_providers.secret_stores.params import Params
from herdmesh.connect.config_providers.secret_stores.shared import SharedLookUps
from herdmesh.connect.config_providers.secret_stores.store import (
    Secret,
    SecretPath,
    SecretStore,
    Trouble,
    one_line,
    texts_of,
)
from herdmesh.connect.errors import ConfigError
from herdmesh.connect.spi import waits

_ADDRESS = ("vault.address", "vault.addr")
_TOKEN = ("vault.token", "vault.auth.token")
_METHOD = ("vault.auth.method", "vault.login.by")
_VERSION = ("vault.secrets.version", "vault.engine.version", "secrets.version")
_PREFIX = ("vault.prefixpath", "vault.prefix")
_TRUST = ("vault.ssl.pem_trust_path", "vault.pem")
_CERTIFICATE = ("vault.ssl.pem_cert_path", "vault.client.pem")
_KEY = "vault.ssl.pem_key_path"
_JKS = ("vault.ssl.truststore.location", "vault.ssl.keystore.location", "vault.ssl.keystore.password")
_USER = ("vault.auth.username", "username", "ldap.username")
_PASSWORD = ("vault.auth.password", "password", "ldap.password")
_ROLE = ("vault.auth.role", "app.role.id", "kubernetes.role", "jwt.role", "gcp.role", "aws.role")
_SECRET_ID = ("vault.auth.secret", "app.role.secret.id")
_MOUNT = (
    *("vault.auth.mount", "app.role.path", "kubernetes.auth.path", "jwt.provider", "ldap.mount", "mount"),
    *("cert.mount", "github.mount", "aws.mount"),
)
_JWT = ("jwt", "gcp.jwt")
_TOKEN_FILE = "kubernetes.token.path"
_TOKEN_FILE_DEFAULT = "/var/run/secrets/kubernetes.io/serviceaccount/token"
_AWS = ("aws.request.url", "aws.request.body", "aws.request.headers")
_NO_EFFECT = ("vault.url.logging.enabled", "token.renewal.ms", "file.dir", "file.write")
_METHODS = {
    "Token": "token",
    "AppRole": "approle",
    "UserPass": "userpass",
    "LDAP": "ldap",
    "Certificate": "cert",
    "Cert": "cert",
    "Kubernetes": "kubernetes",
    "JWT": "jwt",
    "GitHub": "github",
    "GCP": "gcp",
    "AwsIam": "aws",
}
_KV = (1, 2)
_GENERATED = "database/creds/"
_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Login:
    """Request that returns a token."""

    path: str
    body: Callable[[], Mapping[str, object]]


class VaultConfigProvider(SecretStore):
    """Provider of secrets from Vault: `${vault:secret/db:password}`."""

    title = "Vault"
    extra = "vault"
    libraries = ("hvac",)
    known = frozenset(
        (
            *(*_ADDRESS, *_TOKEN, *_METHOD, *_VERSION, *_PREFIX, *_TRUST, *_CERTIFICATE, _KEY, *_JKS, *_USER),
            *(*_PASSWORD, *_ROLE, *_SECRET_ID, *_MOUNT, *_JWT, _TOKEN_FILE, *_AWS, *_NO_EFFECT),
            *("vault.namespace", "vault.ssl.verify.enabled", "vault.prefix.depth", "github.token"),
        )
    )
    passwords = frozenset((*_TOKEN, *_PASSWORD, *_SECRET_ID, *_JWT, "github.token", *_AWS[1:], _JKS[2]))

    def _configure(self, params: Params) -> None:
        self._address = params.text(*_ADDRESS) or os.environ.get("VAULT_ADDR", "")
        if not self._address:
            raise ConfigError(
                "is missing, and VAULT_ADDR is not set", field=_ADDRESS[0], fix="write https://vault.example.com:8200"
            )
        self._engine = params.number(*_VERSION, default=2)
        if self._engine not in _KV:
            raise ConfigError.for_value(_VERSION[0], str(self._engine), "must be 1 or 2", fix="2")
        prefix = params.text(*_PREFIX).strip("/")
        self._depth = prefix.count("/") + 1 if prefix else params.number("vault.prefix.depth", default=1, least=1)
        for name in _JKS[:2]:
            if name in params:
                raise ConfigError(
                    "certificates are read as PEM, not from Java's stores",
                    field=name,
                    fix="`keytool -list -rfc -keystore FILE > ca.pem`, then vault.ssl.pem_trust_path=ca.pem",
                )
        self._verify = params.flag("vault.ssl.verify.enabled", default=True)
        self._method = params.one_of(_METHODS, *_METHOD, default="Token")
        self._token = params.text(*_TOKEN) or os.environ.get("VAULT_TOKEN", "")
        self._login = None if self._method == "token" else self._login_of(params)
        if self._login is None and not self._token:
            raise ConfigError("is missing, and VAULT_TOKEN is not set", field=_TOKEN[0], fix="set it, or another login")
        keep_secret([self._token] if self._token else [])
        self._renew_at_s: float | None = None
        self._shared = SharedLookUps[SecretPath]()
        self._renewing = False

    def _open(self, timeout_s: float) -> Any:
        params = self._params
        certificate, key = params.text(*_CERTIFICATE), params.text(_KEY)
        client = self._library("hvac").Client(
            url=self._address,
            namespace=params.text("vault.namespace") or None,
            verify=(params.text(*_TRUST) or True) if self._verify else False,
            cert=((certificate, key) if key else certificate) or None,
            timeout=timeout_s,
        )
        client.token = self._token or None
        if self._login is not None:
            answer = client.adapter.login(f"/v1/{self._login.path}", use_token=False, json=dict(self._login.body()))
            client.token = answer["auth"]["client_token"]
            keep_secret([client.token])
            self._renew_at_s = _due(answer["auth"])
        else:
            self._keep_token(client)
        return client

    def _read(self, client: Any, at: SecretPath, keys: frozenset[str]) -> Secret:
        if self._login is not None and self._renew_at_s is not None and time.monotonic() >= self._renew_at_s:
            self._forget_client()
            client = self._opened()
        name = at.name.strip("/")
        generic = self._is_generic(name)
        answer: Mapping[str, Any] = (client.read(name) if generic else self._versioned(client, name, at)) or {}
        data: Mapping[str, object] = (answer.get("data") or {}) if generic else (answer["data"].get("data") or {})
        if not data:
            raise self._library("hvac").exceptions.InvalidPath()
        # KV version 1 returns a lease duration without a lease: its values are only read again at intervals.
        lease_s = int(answer.get("lease_duration") or 0) if answer.get("lease_id") else 0
        return Secret(texts_of(data), lease_s * 900 if lease_s > 0 else None)

    def _looked_up(self, at: SecretPath, keys: frozenset[str]) -> Secret:
        if not self._is_generic(at.name.strip("/")):
            return super()._looked_up(at, keys)
        look_up = super()._looked_up  # an engine may create a login for each lookup, and then returns a lease
        with waits.on(self.title, f"secret {at.name}"):
            return self._shared.get(replace(at, ttl_ms=None), lambda: look_up(at, keys))

    def _is_generic(self, name: str) -> bool:
        """True for a path that is read as it is written."""
        return self._engine == 1 or name.startswith(_GENERATED)

    def _versioned(self, client: Any, name: str, at: SecretPath) -> Mapping[str, Any]:
        """Read a secret of KV version 2."""
        parts = name.split("/")
        mount, secret = "/".join(parts[: self._depth]), "/".join(parts[self._depth :])
        if not secret:
            raise ConfigError(f"{at.name} is an engine without a secret", fix="write <engine>/<secret>")
        return client.secrets.kv.v2.read_secret_version(
            path=secret, mount_point=mount, version=self._version(at), raise_on_deleted_version=True
        )

    def _version(self, at: SecretPath) -> int | None:
        if at.version and not at.version.isdecimal():
            raise ConfigError(f"version={at.version} is not a KV version", fix="write a number, such as version=3")
        return int(at.version) if at.version else None

    def _trouble(self, error: Exception, at: SecretPath) -> Trouble:
        errors = self._library("hvac").exceptions
        requests = self._library("requests").exceptions
        away = f"check that {self._address} can be reached from the worker's host"
        match error:
            case errors.InvalidPath():
                where = f"{at.name} version {at.version}" if at.version else at.name
                found = f"no secret exists there ({where}, KV version {self._engine})"
                other = 3 - self._engine
                return Trouble(
                    found, f"put it there, write <engine>/<secret> without data/, or set {_VERSION[0]}={other}"
                )
            case errors.Forbidden() | errors.Unauthorized():
                self._forget_client()
                return Trouble(
                    f"permission denied to login {self._method}",
                    "grant its policy read on the path; if the token has expired, create a new one",
                    passes=self._login is not None,
                )
            case errors.InvalidRequest():
                return Trouble(f"the request was refused: {one_line(error)}", "correct the login or the path")
            case requests.SSLError():
                fix = f"name the certificate of its authority in {_TRUST[0]}"
                return Trouble(f"its certificate is not trusted at {self._address}", fix)
            case requests.Timeout() | requests.ConnectionError():
                kind = "did not answer" if isinstance(error, requests.Timeout) else "could not be connected to"
                return Trouble(f"{self._address} {kind}", away, passes=True)
            case errors.VaultDown():
                return Trouble("it is sealed or in maintenance (503)", "unseal it", passes=True)
            case errors.VaultError():
                return Trouble(f"it answered: {one_line(error)}", away, passes=True)
            case _:
                return Trouble(f"{type(error).__name__}: {one_line(error)}", away)

    def _login_of(self, params: Params) -> _Login:
        method, why = self._method, f"login {self._method} needs it"
        mount = params.text(*_MOUNT, default=method).removeprefix("auth/").strip("/")
        path = f"auth/{mount}/login"
        role = params.text(*_ROLE)
        match method:
            case "approle":
                role = params.needed("vault.auth.role", "app.role.id", why=why)
                secret = params.needed(*_SECRET_ID, why=why)
                return _Login(path, lambda: {"role_id": role, "secret_id": secret})
            case "userpass" | "ldap":
                user = params.needed(*_USER, why=why)
                password = params.needed(*_PASSWORD, why=why)
                return _Login(f"{path}/{user}", lambda: {"password": password})
            case "cert":
                params.needed(*_CERTIFICATE, why=why)
                return _Login(path, lambda: {"name": role} if role else {})
            case "kubernetes":
                role = params.needed("vault.auth.role", "kubernetes.role", why=why)
                file = Path(params.text(_TOKEN_FILE, default=_TOKEN_FILE_DEFAULT))
                return _Login(path, lambda: {"role": role, "jwt": _token_of(file)})
            case "github":
                token = params.needed("github.token", why=why)
                return _Login(path, lambda: {"token": token})
            case "aws":
                url, body, headers = (params.needed(name, why=why) for name in _AWS)
                request = {"iam_http_request_method": "POST", "iam_request_url": url, "iam_request_body": body}
                return _Login(path, lambda: {"role": role, "iam_request_headers": headers, **request})
            case _:  # jwt, gcp
                jwt = params.needed(*_JWT, why=why)
                return _Login(path, lambda: {"role": role, "jwt": jwt})

    def _keep_token(self, client: Any) -> None:
        """Renew a given token for as long as this provider is open: nothing else renews it, and it is the only
        login."""
        try:
            found = client.auth.token.lookup_self()["data"]
        except self._library("hvac").exceptions.Forbidden:
            return  # the token's policy forbids the request, or the token is invalid: the lookup reports it
        ttl_s = int(found.get("ttl") or 0)
        if self._renewing or not found.get("renewable") or ttl_s <= 0:
            return
        self._renewing = True

        def renew() -> None:
            wait_s = ttl_s / 2
            while not self._closed.wait(wait_s):  # waits: until the next renewal, in a separate thread
                try:
                    wait_s = max(1.0, client.auth.token.renew_self()["auth"]["lease_duration"] / 2)
                except Exception as error:  # noqa: BLE001 - a lookup reports the error once it matters
                    _log.warning("vault_token_not_renewed", error=one_line(error))
                    wait_s = min(30.0, max(1.0, wait_s / 2))

        threading.Thread(target=renew, name="vault token", daemon=True).start()


def _due(auth: Mapping[str, Any]) -> float | None:
    """Time of the next login on this process's clock; None = never."""
    life_s = float(auth.get("lease_duration") or 0)
    return time.monotonic() + life_s * 0.9 if life_s > 0 else None


def _token_of(file: Path) -> str:
    try:
        token = file.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ConfigError(
            f"the service account's token {file} cannot be read: {error.strerror}",
            fix=f"run in a pod that has one, or set {_TOKEN_FILE}",
        ) from None
    keep_secret([token])
    return token
