"""Detection of secrets in configs: whether a property is a secret, by its name and by its value.

Owns the decision. In doubt a value is a secret: one that is wrongly hidden must be given again, or asked for by
`--show-secrets`; one that is wrongly shown has leaked. Does not own what replaces a secret: the history of the config
store and the outputs of `herd` do. Does not know the types of keys: a definition may call further keys PASSWORD.

Invariant: the time is proportional to a value's length, whatever its content.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Any, cast

#: `${provider:key}` or `${provider:path:key}` (Connect's ConfigTransformer): a reference to a secret, not a secret.
_PLACEHOLDER = re.compile(r"\$\{[^${}:]*:[^${}]*\}")
#: Matched against a name in lower-case words with a dot between them.
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
#: password=..., "apiKey": "...", AccountKey=...; <secret>...
_ASSIGNED = re.compile(
    rf"(?:\b|_|(?<=[a-z]))(?:{_WORDS})[\\\"']*\s*(?:=>|[=:>]|%3[AD])\s*[\\\"']*[^\s\\\"'&;,}}]", re.IGNORECASE
)
_ASSIGNMENTS = ("=", ":", ">", "%3")
#: Secrets with a recognizable form; searched only where their beginning, in lower case, is found.
_BEGINNINGS = (
    *("-----begin", "loginmodule", "bearer", "basic", "eyj", "akia", "asia", "xox", "glpat-", "github_pat_"),
    *("ghp_", "gho_", "ghu_", "ghs_", "ghr_"),
)
_TELLTALE = re.compile(
    r"-----BEGIN|LoginModule|\b(?:bearer|basic)\s+\S|\beyJ[\w-]{8}|\b(?:AKIA|ASIA)[0-9A-Z]{12}"
    r"|\bgh[pousr]_\w{20}|\bgithub_pat_\w|\bglpat-\w|\bxox[a-z]-\w",
    re.IGNORECASE,
)
_CACHED_CHARACTERS_MAX = 200
#: The rest of `scheme://${user}:${password}@host` without its placeholders.
_EMPTY_USER_INFO = re.compile(r"([:/]):?@")


def is_secret(name: str, value: Any) -> bool:
    """True when this property's value is a secret. Members of a JSON value are checked as properties."""
    if value is None or isinstance(value, bool):
        return False
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        return any(is_secret(f"{name}.{member}", item) for member, item in members.items())
    if isinstance(value, list):
        return any(is_secret(name, item) for item in cast("list[Any]", value))
    text = value if isinstance(value, str) else json.dumps(value)
    # The same names and values repeat: with every write of a connector, and twice in each write.
    judge = _is_secret_text if len(text) <= _CACHED_CHARACTERS_MAX else _is_secret_text.__wrapped__
    return judge(name, text)


@lru_cache(maxsize=8_192)
def _is_secret_text(name: str, text: str) -> bool:
    if "${" in text:
        text = _PLACEHOLDER.sub("", text)
    if _is_secret_name(name):
        return bool(text.strip(" \t\r\n\"';"))
    if _has_user_info(_EMPTY_USER_INFO.sub(r"\1", text)):
        return True
    if any(sign in text for sign in _ASSIGNMENTS) and _ASSIGNED.search(text):
        return True
    lower = text.lower()
    return any(beginning in lower for beginning in _BEGINNINGS) and bool(_TELLTALE.search(text))


@lru_cache(maxsize=8_192)
def _is_secret_name(name: str) -> bool:
    return bool(_SECRET_NAME.search(_words(name)))


def _has_user_info(text: str) -> bool:
    """True for `scheme://user:password@host`, `jdbc:oracle:thin:user/password@host`, `user:password@host`."""
    if "@" not in text:
        return False
    before_host = text[: text.rfind("@")]
    return ":" in before_host or "/" in before_host


def _words(name: str) -> str:
    """A name in lower case with one dot between its words: the same for `sslKeystorePassword` and
    `SSL_KEYSTORE-PASSWORD`.
    """
    return re.sub(r"[\s._\-:/]+", ".", _CAMEL.sub(".", name)).lower()
