"""AWS Secrets Manager as a config provider, through `boto3`.

Owns names, versions and logins. Accepts the params of four Java providers (jcustenborder's, Confluent's, Lenses', and
AWS's own for MSK Connect).

Login: `aws.access.key` with `aws.secret.key`, else the credentials that boto3 finds itself (environment, profile, the
role of a pod or machine).
"""

from __future__ import annotations

from typing import Any

from herdmesh.connect.config_providers.secret_stores.params import Params
from herdmesh.connect.config_providers.secret_stores.store import Secret, SecretPath, SecretStore, Trouble, one_line
from herdmesh.connect.errors import ConfigError

_REGION = ("aws.region", "region")
_ENDPOINT = ("endpoint.override", "aws.endpoint.override", "endpoint")
_STAGES = ("AWSCURRENT", "AWSPREVIOUS", "AWSPENDING")
_AGAIN = frozenset(
    (
        *("ThrottlingException", "InternalServiceError", "ServiceUnavailable", "RequestTimeout"),
        *("RequestTimeoutException", "TooManyRequestsException", "500", "502", "503", "504"),
    )
)
_DENIED = frozenset(
    (
        *("AccessDeniedException", "UnrecognizedClientException", "InvalidClientTokenId", "ExpiredTokenException"),
        *("InvalidSignatureException", "SignatureDoesNotMatch", "ExpiredToken", "IncompleteSignature"),
    )
)


class SecretsManagerConfigProvider(SecretStore):
    """Provider of secrets from AWS Secrets Manager: `${aws:prod/db:password}`."""

    _after_prefix = ""
    title = "AWS Secrets Manager"
    extra = "aws"
    libraries = ("boto3",)
    known = frozenset(
        (
            *(*_REGION, *_ENDPOINT, "aws.access.key", "aws.secret.key", "aws.auth.method", "secret.prefix"),
            *("use.json", "secret.type", "NotFoundStrategy", "file.dir", "file.write"),
        )
    )
    passwords = frozenset(("aws.secret.key",))

    def _configure(self, params: Params) -> None:
        self._key, self._secret = params.text("aws.access.key"), params.text("aws.secret.key")
        if bool(self._key) is not bool(self._secret):
            missing = "aws.secret.key" if self._key else "aws.access.key"
            raise ConfigError("is missing: both are needed for a login", field=missing, fix="set both, or neither")
        default = {"default": "default", "credentials": "credentials"}
        if params.one_of(default, "aws.auth.method", default="default") == "default" and "aws.auth.method" in params:
            self._key = self._secret = ""
        self._as_json = params.flag("use.json", default=True)
        kinds = {"json": "json", "string": "string"}
        self._one_key = "value" if params.one_of(kinds, "secret.type", default="json") == "string" else ""
        strategy = {"fail": "fail", "ignore": "ignore"}
        self._not_found_is_empty = params.one_of(strategy, "NotFoundStrategy", default="fail") == "ignore"

    def _open(self, timeout_s: float) -> Any:
        config = self._library("botocore.config").Config(
            connect_timeout=timeout_s, read_timeout=timeout_s, retries={"total_max_attempts": 1}
        )
        session = self._library("boto3.session").Session(
            aws_access_key_id=self._key or None,
            aws_secret_access_key=self._secret or None,
            region_name=self._params.text(*_REGION) or None,
        )
        return session.client("secretsmanager", endpoint_url=self._params.text(*_ENDPOINT) or None, config=config)

    def _read(self, client: Any, at: SecretPath, keys: frozenset[str]) -> Secret:
        name = self._name(at)
        version = {"VersionStage" if at.version in _STAGES else "VersionId": at.version} if at.version else {}
        try:
            answer = client.get_secret_value(SecretId=name, **version)
        except client.exceptions.ResourceNotFoundException:
            if self._not_found_is_empty:
                return Secret(dict.fromkeys(keys, ""))
            raise
        text = answer.get("SecretString")
        if text is None:
            text = answer["SecretBinary"].decode("utf-8", "replace")
        if self._one_key or not self._as_json:
            return Secret({self._one_key or at.name: text})
        return Secret(text)

    def _name(self, at: SecretPath) -> str:
        prefix = self._params.text("secret.prefix")
        return f"{prefix}{self._after_prefix}{at.name}" if prefix else at.name

    def _trouble(self, error: Exception, at: SecretPath) -> Trouble:
        errors = self._library("botocore.exceptions")
        name = self._name(at)
        match error:
            case errors.ClientError():
                return self._answer(str(error.response.get("Error", {}).get("Code", "")), error, name)
            case errors.NoRegionError():
                return Trouble("no region is set", f"set the param {_REGION[0]}, or AWS_REGION")
            case errors.NoCredentialsError() | errors.PartialCredentialsError() | errors.CredentialRetrievalError():
                fix = "set aws.access.key and aws.secret.key, or give the worker a role, profile or environment"
                return Trouble("no credentials were found", fix)
            case errors.EndpointConnectionError() | errors.HTTPClientError() | errors.ConnectionError():
                return Trouble(one_line(error), "check that the worker's host can reach AWS there", passes=True)
            case _:
                return Trouble(f"{type(error).__name__}: {one_line(error)}", "check the params")

    def _answer(self, code: str, error: Exception, name: str) -> Trouble:
        if code == "ResourceNotFoundException":
            hint = " (an ARN is written with %3A for its colons)" if name == "arn" else ""
            return Trouble(f"no secret has that name{hint}", f"create {name} in the region, or correct the reference")
        if code in _DENIED:
            return Trouble(f"access denied ({code})", f"allow secretsmanager:GetSecretValue on {name} to its login")
        if code == "DecryptionFailure":
            return Trouble("its key cannot decrypt it", "allow kms:Decrypt on the secret's key to its login")
        again = code in _AGAIN
        return Trouble(
            f"it answered {one_line(error)}",
            "see the message of AWS; the request was retried" if again else _SEE,
            again,
        )


class FolderedSecretsManagerConfigProvider(SecretsManagerConfigProvider):
    """jcustenborder's provider, whose `secret.prefix` is a folder; in Confluent's it is the beginning of the name."""

    _after_prefix = "/"


_SEE = "see AWS's text"
