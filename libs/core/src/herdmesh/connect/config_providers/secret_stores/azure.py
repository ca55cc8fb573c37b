"""Azure Key Vault as config providers, through `azure-keyvault-secrets` and `azure-identity`.

Owns names, versions and logins. Two kinds of Java providers differ in the meaning of a path. In jcustenborder's and
Confluent's it is a secret, whose value is a JSON object, in the vault of `vault.url`. In Lenses' it is a vault
(`example.vault.azure.net`), whose secrets are the keys.
"""

from __future__ import annotations

import base64
import binascii
import os
import time
from collections.abc import Mapping
from typing import Any

from herdmesh.connect.config_providers.secret_stores.params import Params
from herdmesh.connect.config_providers.secret_stores.store import Secret, SecretPath, SecretStore, Trouble, one_line
from herdmesh.connect.errors import ConfigError

_TYPES = {
    "DefaultAzure": "default",
    "ClientSecret": "secret",
    "ClientCertificate": "certificate",
    "UsernamePassword": "password",
}
_CERTIFICATE = "client.certificate."
_ENCODING = "file-encoding"
_REACHES = "check that the worker's host can reach it"


class _KeyVault(SecretStore):
    """Base of both providers."""

    title = "Azure Key Vault"
    extra = "azure"
    libraries = ("azure.keyvault.secrets", "azure.identity")
    passwords = frozenset(("client.secret", "password", f"{_CERTIFICATE}pfx.password", "azure.secret.id"))

    def _client_of(self, url: str, credential: Any, timeout_s: float) -> Any:
        return self._library("azure.keyvault.secrets").SecretClient(
            vault_url=url,
            credential=credential,
            retry_total=0,
            connection_timeout=timeout_s,
            read_timeout=timeout_s,
            # Outside Azure's own domains (a proxy, a private link) a vault names the login's resource, not its own
            # host.
            verify_challenge_resource=url.rstrip("/").endswith((".azure.net", ".azure.cn", ".usgovcloudapi.net")),
        )

    def _trouble(self, error: Exception, at: SecretPath) -> Trouble:
        errors = self._library("azure.core.exceptions")
        match error:
            case errors.ResourceNotFoundError():
                where = f", version {at.version}" if at.version else ""
                return Trouble(f"the vault has no such secret{where}", "create it, or correct the reference")
            case errors.ClientAuthenticationError():
                why = one_line(error).partition(" Trace ID")[0][:300]
                if "AADSTS" in why:
                    return Trouble(f"the login was refused: {why}", "correct tenant, client and secret of its params")
                return Trouble(f"the login failed: {why}", f"{_REACHES}, and that its params are correct")
            case errors.HttpResponseError() if error.status_code == 403:
                fix = "give its login the role Key Vault Secrets User, and allow the worker in the vault's firewall"
                return Trouble("access denied (403)", fix)
            case errors.HttpResponseError() if error.status_code in (408, 429) or (error.status_code or 0) >= 500:
                return Trouble(f"it answered {error.status_code}", _REACHES, passes=True)
            case errors.ServiceRequestError() | errors.ServiceResponseError():
                return Trouble(f"it could not be reached ({one_line(error)[:200]})", _REACHES, passes=True)
            case _:
                return Trouble(f"{type(error).__name__}: {one_line(error)[:300]}", "check the params")


class KeyVaultConfigProvider(_KeyVault):
    """Provider of secrets from one vault: `${azure:db:password}`."""

    known = frozenset(
        (
            *("vault.url", "credential.type", "client.id", "client.secret", "tenant.id", "username", "password"),
            *(f"{_CERTIFICATE}{name}" for name in ("path", "type", "pfx.password", "send.certificate.chain.enabled")),
            *("secret.prefix", "prefix", "use.json"),
        )
    )

    def _configure(self, params: Params) -> None:
        url = params.needed("vault.url", why="it is the vault's address")
        if not url.startswith("https://"):
            fix = "https://example.vault.azure.net/"
            raise ConfigError.for_value("vault.url", url, "must be an https URL", fix=fix)
        self._type = params.one_of(_TYPES, "credential.type", default="DefaultAzure")
        self._as_json = params.flag("use.json", default=True)
        needed = {
            "secret": ("tenant.id", "client.id", "client.secret"),
            "certificate": ("tenant.id", "client.id", f"{_CERTIFICATE}path"),
            "password": ("client.id", "username", "password"),
        }
        kind = params.text("credential.type")
        for name in needed.get(self._type, ()):
            params.needed(name, why=f"credential.type={kind} needs it")

    def _open(self, timeout_s: float) -> Any:
        return self._client_of(self._params.text("vault.url"), self._credential(), timeout_s)

    def _credential(self) -> Any:
        identity, params = self._library("azure.identity"), self._params
        tenant, client = params.text("tenant.id"), params.text("client.id")
        match self._type:
            case "secret":
                return identity.ClientSecretCredential(tenant, client, params.text("client.secret"), **_authority())
            case "certificate":
                return identity.CertificateCredential(
                    tenant,
                    client,
                    params.text(f"{_CERTIFICATE}path"),
                    password=params.text(f"{_CERTIFICATE}pfx.password") or None,
                    send_certificate_chain=params.flag(f"{_CERTIFICATE}send.certificate.chain.enabled", default=False),
                    **_authority(),
                )
            case "password":
                user, password = params.text("username"), params.text("password")
                tenant_of_user = {"tenant_id": tenant} if tenant else {}
                return identity.UsernamePasswordCredential(client, user, password, **tenant_of_user, **_authority())
            case _:
                return identity.DefaultAzureCredential(**({"managed_identity_client_id": client} if client else {}))

    def _read(self, client: Any, at: SecretPath, keys: frozenset[str]) -> Secret:
        name = f"{self._params.text('secret.prefix', 'prefix')}{at.name}"
        found = client.get_secret(name, at.version or None)
        text = found.value or ""
        ttl_ms = _left_ms(found.properties)
        return Secret(text if self._as_json else {at.name: text}, ttl_ms)


class AzureSecretProvider(_KeyVault):
    """Lenses' provider: `${azure:example.vault.azure.net:db-password}`."""

    known = frozenset(
        ("azure.client.id", "azure.tenant.id", "azure.secret.id", "azure.auth.method", "file.dir", "file.write")
    )

    def _configure(self, params: Params) -> None:
        methods = {"credentials": "credentials", "default": "default"}
        self._method = params.one_of(methods, "azure.auth.method", default="credentials")
        if self._method == "credentials":
            for name in ("azure.client.id", "azure.tenant.id", "azure.secret.id"):
                params.needed(name, why="azure.auth.method=credentials needs it")

    def _open(self, timeout_s: float) -> Any:
        """A function from a vault's name to its client, because a path names a vault."""
        identity, text = self._library("azure.identity"), self._params.text
        if self._method == "default":
            credential = identity.DefaultAzureCredential()
        else:
            tenant, client, secret = (text(f"azure.{name}.id") for name in ("tenant", "client", "secret"))
            credential = identity.ClientSecretCredential(tenant, client, secret, **_authority())
        clients: dict[str, Any] = {}

        def of_vault(name: str) -> Any:
            if name not in clients:
                clients[name] = self._client_of(f"https://{name}", credential, timeout_s)
            return clients[name]

        return of_vault

    def _read(self, client: Any, at: SecretPath, keys: frozenset[str]) -> Secret:
        vault = client(at.name.removeprefix("https://").rstrip("/"))
        values: dict[str, str] = {}
        ttls: list[int] = []
        for key in sorted(keys):
            found = vault.get_secret(key, at.version or None)
            tags: Mapping[str, str] = found.properties.tags or {}
            values[key] = _decoded(key, found.value or "", tags.get(_ENCODING, ""))
            if (left_ms := _left_ms(found.properties)) is not None:
                ttls.append(left_ms)
        return Secret(values, min(ttls, default=None))


def _authority() -> dict[str, bool]:
    """Login options for the authority: Microsoft cannot confirm a private authority (`AZURE_AUTHORITY_HOST`)."""
    host = os.environ.get("AZURE_AUTHORITY_HOST", "").rstrip("/")
    own = bool(host) and not host.endswith((".microsoftonline.com", ".microsoftonline.us", ".chinacloudapi.cn"))
    return {"disable_instance_discovery": True} if own else {}


def _decoded(key: str, text: str, encoding: str) -> str:
    match encoding.replace("-", "").replace("_", "").lower():
        case "base64":
            try:
                return base64.b64decode(text, validate=True).decode("utf-8")
            except (binascii.Error, UnicodeDecodeError):
                raise ConfigError(
                    f"secret {key}: its tag {_ENCODING} is base64, and its value is not base64 of a string",
                    fix="encode it again, or remove the tag",
                ) from None
        case "base64file" | "utf8file":
            raise ConfigError(
                f"secret {key}: its tag {_ENCODING}={encoding} means a file, which is not supported",
                fix="remove the tag and use the value, or mount the file where the workers are",
            )
        case _:
            return text


def _left_ms(properties: Any) -> int | None:
    """Milliseconds until the secret expires; None where it does not expire, or has already expired (the store or the
    target then reports it).
    """
    if properties.expires_on is None:
        return None
    left_ms = int((properties.expires_on.timestamp() - time.time()) * 1_000)
    return left_ms if left_ms > 0 else None
