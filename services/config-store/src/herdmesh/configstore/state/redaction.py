"""What of a config may go to the audit topic: everything but secrets.

Owns the judgement which property is one, by its name and by its value. Where it cannot be sure it redacts: a value
that is wrongly kept from history has to be given again at a restore, one that is wrongly kept in it has leaked.

Invariant: a value that is redacted leaves nothing of itself behind, not its length and no digest. Takes time in
proportion to a value's length, whatever is in it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, cast

from herdmesh.connect import jackson
from herdmesh.connect.config_records import Properties

REDACTED = "[redacted]"

#: `${provider:key}` or `${provider:path:key}` (Connect's ConfigTransformer): says where a secret is, and is none.
_PLACEHOLDER = re.compile(r"\$\{[^${}:]*:[^${}]*\}")
#: On a name of lower-case words with a dot between them.
_SECRET_NAME = re.compile(
    r"password|passwd|passphrase|passcode|pwd|pass$|\bpass\b|secret|token|credential|jaas|bearer|cookie|signature"
    r"|authorization|auth\.?header|user\.?info|connection\.?string|\bdsn\b|\bsas\b|\bpat\b|\bpin\b|\bpem\b|\bkeys?$"
    r"|(?:access|account|admin|api|app|auth|client|consumer|deploy|encryption|license|master|primary|private|read"
    r"|secondary|security|service|shared|signing|ssh|ssl|storage|subscription|write)\.?keys?\b"
    r"(?!\.(?:converter|serializer|deserializer|fields?|columns?|format|schema)\b)",
)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_WORDS = (
    r"password|passwd|pwd|pass|passphrase|secret|token|credentials?|sig|signature|user[-_. ]?info|authorization"
    r"|(?:access|account|api|auth|client|private|secret|shared|shared_?access|signing)[-_. ]?(?:key|secret|signature)"
)
_SECRET_VALUE = re.compile(
    # password=..., "apiKey": "...", AccountKey=...; <secret>...
    rf"(?:\b|_|(?<=[a-z]))(?:{_WORDS})[\\\"']*\s*(?:=>|[=:>]|%3[AD])\s*[\\\"']*[^\s\\\"'&;,}}]"
    r"|-----BEGIN|LoginModule|\b(?:bearer|basic)\s+\S|\beyJ[\w-]{8}|\b(?:AKIA|ASIA)[0-9A-Z]{12}|\bgh[pousr]_\w{20}"
    r"|\bxox[a-z]-\w",
    re.IGNORECASE,
)
#: What is left of `scheme://${user}:${password}@host` without its placeholders.
_EMPTY_USER_INFO = re.compile(r"([:/]):?@")


def redacted(config: Properties) -> dict[str, Any]:
    """`config` with each secret replaced by REDACTED; null stays null."""
    return {name: REDACTED if is_secret(name, value) else value for name, value in config.items()}


def redacted_names(config: Properties) -> Sequence[str]:
    """The properties of a redacted config whose values are not kept, sorted."""
    return sorted(name for name, value in config.items() if value == REDACTED)


def is_secret(name: str, value: Any) -> bool:
    """True when this property's value must not be told. Members of a JSON value are judged as properties."""
    if value is None or isinstance(value, bool):
        return False
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        return any(is_secret(f"{name}.{member}", item) for member, item in members.items())
    if isinstance(value, list):
        return any(is_secret(name, item) for item in cast("list[Any]", value))
    text = _PLACEHOLDER.sub("", value if isinstance(value, str) else jackson.dumps(value).decode())
    if _is_secret_name(name):
        return bool(text.strip(" \t\r\n\"';"))
    return _has_user_info(_EMPTY_USER_INFO.sub(r"\1", text)) or bool(_SECRET_VALUE.search(text))


@lru_cache(maxsize=4096)  # the same few names in every config
def _is_secret_name(name: str) -> bool:
    return _SECRET_NAME.search(_words(name)) is not None


def _has_user_info(text: str) -> bool:
    """`scheme://user:password@host`, `jdbc:oracle:thin:user/password@host`, `user:password@host`."""
    before_host = text[: max(text.rfind("@"), 0)]
    return ":" in before_host or "/" in before_host


def _words(name: str) -> str:
    """`sslKeystorePassword` and `SSL_KEYSTORE-PASSWORD` alike: lower case, one dot between the words."""
    return re.sub(r"[\s._\-:/]+", ".", _CAMEL.sub(".", name)).lower()
