"""A server that speaks the part of Vault's REST API that `hvac` uses here, on 127.0.0.1, secrets in memory.

Owns KV version 1 below `kv1/`, KV version 2 below `secret/` and `team/a/`, generated logins below `database/creds/`,
tokens and logins, with the codes and shapes of Vault's API reference. It is not Vault: it lacks the parts of a real
server (policies, replication, seals).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from libs.core.tests.connect.config_providers.secret_stores.local_https import Answer, LocalServer, Request

_KV2 = ("secret", "team/a")
_LOGINS: dict[str, dict[str, Any]] = {
    "/v1/auth/approle/login": {"role_id": "role-1", "secret_id": "secret-id-1"},
    "/v1/auth/people/login/ann": {"password": "ann-password"},
    "/v1/auth/ldap/login/ann": {"password": "ann-password"},
    "/v1/auth/kubernetes/login": {"role": "connect", "jwt": "jwt-of-the-pod"},
    "/v1/auth/jwt/login": {"role": "connect", "jwt": "jwt-given"},
    "/v1/auth/github/login": {"token": "gh-token"},
}


class VaultServer:
    """`fails` = so many of the next requests are answered with 503."""

    def __init__(self, certificate: Path | None = None) -> None:
        self.kv: dict[str, list[dict[str, object] | None]] = {}
        """By mount and path; for KV version 2 all versions, None = deleted."""
        self.tokens: dict[str, int] = {"root-token": 0}
        """Lifetime of each token in seconds; 0 = for ever. Removing a token expires it."""
        self.fails = 0
        self.login_life_s = 3_600
        self.renewals = 0
        self._made = 0
        self.server = LocalServer(self._answer, certificate)
        self.url = self.server.url

    def paths(self) -> list[str]:
        """Requested paths, in order."""
        return [f"{one.method} {one.path}" for one in self.server.asked]

    def _answer(self, request: Request) -> Answer:
        if self.fails:
            self.fails -= 1
            return 503, {"errors": ["Vault is sealed"]}
        if request.path in _LOGINS:
            if any(request.json.get(name) != value for name, value in _LOGINS[request.path].items()):
                return 400, {"errors": ["invalid role or secret ID"]}
            self._made += 1
            token = f"made-token-{self._made}"
            self.tokens[token] = self.login_life_s
            return 200, {"auth": {"client_token": token, "lease_duration": self.login_life_s, "renewable": True}}
        token = request.headers.get("x-vault-token", "")
        if token not in self.tokens:
            return 403, {"errors": ["permission denied"]}
        life_s = self.tokens[token]
        if request.path == "/v1/auth/token/lookup-self":
            return 200, {"data": {"ttl": life_s, "renewable": life_s > 0}}
        if request.path == "/v1/auth/token/renew-self":
            self.renewals += 1
            return 200, {"auth": {"client_token": token, "lease_duration": life_s, "renewable": True}}
        return self._secret(request)

    def _secret(self, request: Request) -> Answer:
        path = request.path.removeprefix("/v1/")
        if path.startswith("database/creds/"):
            self._made += 1
            data = {"username": f"v-{self._made}", "password": f"made-password-{self._made}"}
            return 200, {"lease_id": f"{path}/x{self._made}", "lease_duration": 100, "renewable": True, "data": data}
        if path.startswith("kv1/"):
            found = self.kv.get(path)
            if not found:
                return 404, {"errors": []}
            return 200, {"lease_id": "", "lease_duration": 2_764_800, "renewable": False, "data": found[-1]}
        for mount in _KV2:
            if path.startswith(f"{mount}/data/"):
                return self._version(f"{mount}/{path.removeprefix(f'{mount}/data/')}", request)
        return 404, {"errors": [f'no handler for route "{path}"']}

    def _version(self, path: str, request: Request) -> Answer:
        versions = self.kv.get(path, [])
        wanted = int(request.query.get("version", ["0"])[0]) or len(versions)
        if not 0 < wanted <= len(versions):
            return 404, {"errors": []}
        found = versions[wanted - 1]
        metadata = {"version": wanted, "destroyed": False, "deletion_time": "" if found else "2026-01-01T00:00:00Z"}
        status = 200 if found else 404
        return status, {"lease_id": "", "lease_duration": 0, "data": {"data": found, "metadata": metadata}}
