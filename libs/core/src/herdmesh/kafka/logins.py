"""A login that a Kafka client cannot perform from its settings alone: Amazon MSK's by IAM (AWS_MSK_IAM).

librdkafka has no such mechanism; MSK accepts the same signed request as an OAUTHBEARER token. So a client gets that
mechanism and a function that creates tokens. The client's own thread calls it again at four fifths of a token's life,
whether the client is polled or not.

Owns the preparation of the settings, and the tokens. `aws-msk-iam-sasl-signer-python`, an extra of this distribution,
signs them. `connect.msk_iam` has the options.

Invariant: the settings of every Kafka client of a store, worker or run pass through `ready` (`tests/tidy`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException

from herdmesh.connect.clients import MECHANISM, SIGNER, MskLogin, parse_jaas
from herdmesh.connect.errors import ConfigError

_MECHANISMS: Final = ("sasl.mechanism", "sasl.mechanisms")
_JAAS: Final = "sasl.jaas.config"
_LOGIN_HANDLERS: Final = ("sasl.client.callback.handler.class", "sasl.login.callback.handler.class")
_BROKER = re.compile(r"\.kafka(?:-serverless)?\.([a-z]{2}(?:-[a-z]+)+-\d)\.(?:amazonaws\.com|api\.aws)")
_SESSION_NAME: Final = "herdmesh"
_BOUNDS: Final[Mapping[str, Any]] = {"connect_timeout": 3, "read_timeout": 3, "retries": {"total_max_attempts": 2}}
"""Limits of a request to AWS: a client waits 10 s for its first token."""

Token = tuple[str, float]
"""The token, and its expiry in epoch seconds."""


def ready(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings for a client's constructor: unchanged, or with the first token and a function for the next ones.

    May send requests to AWS (a role, an instance's credentials) and blocks meanwhile: do not call it on an event loop.

    Raises:
        KafkaException: SASL_AUTHENTICATION_FAILED for an invalid login; _TRANSPORT when AWS is unreachable.
    """
    found = dict(config)
    if all(found.get(name) != MECHANISM for name in _MECHANISMS):
        return found
    for name in (*_MECHANISMS, *_LOGIN_HANDLERS):
        found.pop(name, None)
    try:
        _, options = parse_jaas(text) if (text := found.pop(_JAAS, "")) else ("", {})
        make = _tokens(MskLogin.of(options), _region(str(found.get("bootstrap.servers", ""))))
    except (ConfigError, ValueError) as error:
        fix = f"; {error.fix}" if isinstance(error, ConfigError) else ""
        raise _refused(f"{_JAAS} {error}{fix}") from None
    first: list[Token] = [_told(make)]

    def token(_: str | None) -> Token:
        return first.pop() if first else make()

    return {**found, "sasl.mechanism": "OAUTHBEARER", "oauth_cb": token}


def _told(make: Callable[[], Token]) -> Token:
    """Create the first token, so that a failing login is reported at once with its cause. For errors of the token
    function the client reports only that it has no token.
    """
    errors: Any = import_module("botocore.exceptions")
    try:
        return make()
    except (errors.ConnectionError, errors.HTTPClientError) as error:
        text = f"{MECHANISM}: AWS was not reached for the login's credentials: {error}"
        raise KafkaException(KafkaError(KafkaError._TRANSPORT, text)) from None
    except Exception as error:  # noqa: BLE001 - a missing profile, refused role, no credentials: botocore's message has the cause
        raise _refused(f"no AWS credentials for the login: {error}; check {_JAAS} and the environment") from None


def _refused(text: str) -> KafkaException:
    return KafkaException(KafkaError(KafkaError.SASL_AUTHENTICATION_FAILED, f"{MECHANISM}: {text}"))


def _region(servers: str) -> str:
    """The region in the brokers' names, as Amazon's own library reads it, else of the environment. Raises
    ConfigError."""
    match = _BROKER.search(servers)
    if match:
        return match[1]
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if not region:
        session: Any = import_module("botocore.session").Session()
        region = session.get_config_variable("region")
    if not region:
        raise ConfigError("finds no AWS region: bootstrap.servers names none", fix="set AWS_REGION where it runs")
    return region


def _tokens(login: MskLogin, region: str) -> Callable[[], Token]:
    signer: Any = import_module(f"{SIGNER}.MSKAuthTokenProvider")
    debug = login.awsDebugCreds.lower() == "true"

    def make() -> Token:
        if login.awsRoleArn:
            token, expiry_ms = signer.generate_auth_token_from_credentials_provider(region, _role(login))
        elif login.awsProfileName:
            token, expiry_ms = signer.generate_auth_token_from_profile(region, login.awsProfileName)
        else:
            token, expiry_ms = signer.generate_auth_token(region, debug)
        return token, expiry_ms / 1_000

    return make


def _role(login: MskLogin) -> Any:
    """A botocore credential provider for a role. The role is assumed anew for each token.

    The signer's own support for roles has neither `awsStsRegion` nor an external id.
    """
    credentials: Any = import_module("botocore.credentials")
    sessions: Any = import_module("boto3.session")

    class Role(credentials.CredentialProvider):
        METHOD = "herdmesh-role"

        def load(self) -> Any:
            session = sessions.Session(
                aws_access_key_id=login.awsRoleAccessKeyId or None,
                aws_secret_access_key=login.awsRoleSecretAccessKey or None,
                aws_session_token=login.awsRoleSessionToken or None,
                profile_name=login.awsProfileName or None,
                region_name=login.awsStsRegion or None,
            )
            more = {"ExternalId": login.awsRoleExternalId} if login.awsRoleExternalId else {}
            name = login.awsRoleSessionName or _SESSION_NAME
            sts = session.client("sts", config=import_module("botocore.config").Config(**_BOUNDS))
            found = sts.assume_role(RoleArn=login.awsRoleArn, RoleSessionName=name, **more)["Credentials"]
            return credentials.Credentials(found["AccessKeyId"], found["SecretAccessKey"], found["SessionToken"])

    return Role()
