"""Amazon MSK's IAM login in configs (aws-msk-iam-auth): mechanism, classes and options of the login module.

Owns the meaning of the options, and the check that the needed library is installed. Creates no token and calls no
service: `herdmesh.kafka.logins` does both, where clients are created.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from importlib.util import find_spec

from herdmesh.connect.config import closest, keep_secret
from herdmesh.connect.errors import ConfigError

MECHANISM = "AWS_MSK_IAM"
_PACKAGE = "software.amazon.msk.auth.iam."
MODULE = f"{_PACKAGE}IAMLoginModule"
LOGIN_HANDLER = f"{_PACKAGE}IAMOAuthBearerLoginCallbackHandler"
HANDLERS = frozenset((f"{_PACKAGE}IAMClientCallbackHandler", LOGIN_HANDLER))
SIGNER = "aws_msk_iam_sasl_signer"
INSTALL = 'pip install "herdmesh-core[msk-iam]"'
_WITHOUT_EFFECT = ("awsMaxRetries", "awsMaxBackOffTimeMs")
"""Options without effect here: they configure Java's own AWS client, and botocore has its own number of attempts
(`AWS_MAX_ATTEMPTS`).
"""


@dataclass(frozen=True, slots=True)
class MskLogin:
    """The module's options, under Java's names. No option set = botocore finds the credentials itself."""

    awsProfileName: str = ""  # noqa: N815 - the option's name
    awsRoleArn: str = ""  # noqa: N815
    awsRoleSessionName: str = ""  # noqa: N815
    awsRoleExternalId: str = ""  # noqa: N815
    awsRoleAccessKeyId: str = ""  # noqa: N815
    awsRoleSecretAccessKey: str = ""  # noqa: N815
    awsRoleSessionToken: str = ""  # noqa: N815
    awsStsRegion: str = ""  # noqa: N815
    awsDebugCreds: str = ""  # noqa: N815

    @classmethod
    def of(cls, options: Mapping[str, str]) -> MskLogin:
        """Create from options. Raises ConfigError: about an option when it has a `field`, else about the login."""
        known = [one.name for one in fields(cls)]
        keep_secret(options[name] for name in ("awsRoleSecretAccessKey", "awsRoleSessionToken") if options.get(name))
        for name in options:
            if name not in known and name not in _WITHOUT_EFFECT:
                meant = closest(name, known)
                fix = f"did you mean {meant}?" if meant else f"use {', '.join(known)}"
                raise ConfigError(f"has no option {name}", field=name, fix=fix)
        found = cls(**{name: value for name, value in options.items() if name in known})
        if bool(found.awsRoleAccessKeyId) is not bool(found.awsRoleSecretAccessKey):
            missing = "awsRoleSecretAccessKey" if found.awsRoleAccessKeyId else "awsRoleAccessKeyId"
            raise ConfigError(f"has no {missing}: both are needed for a login", field=missing, fix=f"add {missing}")
        for name in known:
            role = name.startswith(("awsRole", "awsSts")) and name != "awsRoleArn"
            if role and getattr(found, name) and not found.awsRoleArn:
                raise ConfigError(f"has {name} but no role to assume", field=name, fix="add awsRoleArn")
        if find_spec(SIGNER) is None:
            raise ConfigError(
                f"{MECHANISM} needs the package aws-msk-iam-sasl-signer-python, which is not installed here",
                fix=f"{INSTALL} on every host of workers and stores, and restart them",
            )
        return found
