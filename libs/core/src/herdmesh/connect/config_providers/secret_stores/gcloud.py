"""Google Cloud Secret Manager as a config provider, through `google-cloud-secret-manager`.

Owns names, versions and logins. The library uses REST: it then respects `HTTPS_PROXY`, and starts no threads of its
own.
"""

from __future__ import annotations

import json
from typing import Any

from herdmesh.connect.config_providers.secret_stores.params import Params
from herdmesh.connect.config_providers.secret_stores.store import Secret, SecretPath, SecretStore, Trouble, one_line
from herdmesh.connect.errors import ConfigError

_LOCATIONS = {"ApplicationDefault": "default", "File": "file", "Inline": "inline"}
_SCOPES = ["https://www.googleapis.com/auth/cloud-platform"]


class SecretManagerConfigProvider(SecretStore):
    """Provider of secrets: `${gcp:db:password}`, with `project.id`; or the whole `projects/.../secrets/...` as the
    path.
    """

    title = "GCP Secret Manager"
    extra = "gcp"
    libraries = ("google.cloud.secretmanager", "requests")
    known = frozenset(
        (
            *("project.id", "credential.location", "credential.file", "credential.inline", "secret.prefix"),
            *("use.json", "endpoint.override"),
        )
    )
    passwords = frozenset(("credential.inline",))

    def _configure(self, params: Params) -> None:
        self._location = params.one_of(_LOCATIONS, "credential.location", default="ApplicationDefault")
        self._as_json = params.flag("use.json", default=True)
        self._project = params.text("project.id")
        if self._location == "file":
            params.needed("credential.file", why="credential.location=File")
        if self._location == "inline":
            text = params.needed("credential.inline", why="credential.location=Inline")
            try:
                self._inline = json.loads(text)
            except ValueError:
                raise ConfigError(
                    "is not JSON", field="credential.inline", fix="write the whole key file's text there"
                ) from None

    def _open(self, timeout_s: float) -> Any:
        manager = self._library("google.cloud.secretmanager")
        options: dict[str, str] = {}
        if endpoint := self._params.text("endpoint.override"):
            options["api_endpoint"] = endpoint
        return manager.SecretManagerServiceClient(
            credentials=self._credentials(), transport="rest", client_options=options
        )

    def _credentials(self) -> Any:
        if self._location == "default":
            return None
        account = self._library("google.oauth2.service_account").Credentials
        if self._location == "inline":
            return account.from_service_account_info(self._inline, scopes=_SCOPES)
        return account.from_service_account_file(self._params.text("credential.file"), scopes=_SCOPES)

    def _read(self, client: Any, at: SecretPath, keys: frozenset[str]) -> Secret:
        answer = client.access_secret_version(
            request={"name": self._name(at)}, retry=None, timeout=self._patience.timeout_s
        )
        text = answer.payload.data.decode("utf-8", "replace")
        return Secret(text) if self._as_json else Secret({at.name: text})

    def _name(self, at: SecretPath) -> str:
        version = at.version or "latest"
        if at.name.startswith("projects/"):
            return at.name if "/versions/" in at.name else f"{at.name}/versions/{version}"
        project = at.project or self._project
        if not project:
            raise ConfigError("no project is named", fix="set the param project.id, or write ?projectid=")
        return f"projects/{project}/secrets/{self._params.text('secret.prefix')}{at.name}/versions/{version}"

    def _trouble(self, error: Exception, at: SecretPath) -> Trouble:
        errors = self._library("google.api_core.exceptions")
        login = self._library("google.auth.exceptions")
        requests = self._library("requests").exceptions
        name = self._name(at)
        match error:
            case errors.NotFound():
                return Trouble(f"{name} does not exist", "create it, add a version, or correct the reference")
            case errors.Forbidden() | errors.Unauthorized():
                fix = f"give its login roles/secretmanager.secretAccessor on {name}"
                return Trouble(f"access to {name} is denied ({_said(error)})", fix)
            case errors.FailedPrecondition() | errors.BadRequest():
                return Trouble(f"{name} cannot be read ({_said(error)})", "enable that version, or name another")
            case errors.ServerError() | errors.TooManyRequests() | errors.RetryError():
                return Trouble(f"it answered {_said(error)}", _REACHES, passes=True)
            case login.DefaultCredentialsError():
                fix = "set credential.location=File and credential.file, or GOOGLE_APPLICATION_CREDENTIALS"
                return Trouble("no credentials were found", fix)
            case login.TransportError() | requests.ConnectionError() | requests.Timeout():
                return Trouble(f"it could not be reached ({type(error).__name__})", _REACHES, passes=True)
            case login.GoogleAuthError():
                return Trouble(f"the login was refused ({type(error).__name__})", "create a new key for the account")
            case OSError():
                return Trouble(f"credential.file cannot be read: {error.strerror}", "put it on every worker's host")
            case ValueError():
                return Trouble(
                    "the credentials are not the key of a service account", "download the account's key as JSON"
                )
            case _:
                return Trouble(f"{type(error).__name__}: {one_line(error)}", _REACHES)


def _said(error: Exception) -> str:
    return one_line(error)[:300]


_REACHES = "check that the worker's host can reach Google there"
