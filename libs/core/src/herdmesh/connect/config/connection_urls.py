"""Connection URLs in messages, statuses and logs: the kind of system, its hosts and ports, and nothing secret.

Owns this reading of URLs. How to connect is each driver's own.

An allow list decides: only parts known for what they are get out. A password can hold any character, also one that ends
the part it stands in: `//user:pa/ss@host` reads as host `user`, port `pa`. So the @ signs of a URL decide:

| Signs | Shown |
|---|---|
| none | the hosts and ports after `//` |
| one, before any of `?;#` | the part after it: a user stands before it |
| one after a `?`, `;` or `#` | the kind alone: either side may be within a password |
| two or more | the kind alone |

Invariant: no part of a user's password is returned, wherever in the URL it stands and whatever its characters are.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit, urlunsplit

from herdmesh.connect.config.redaction import HIDDEN

_KIND: Final = re.compile(r"jdbc:([A-Za-z][A-Za-z0-9+_-]{0,30}):")
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,30})://")
_HOST: Final = r"(?:[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.%]+\])"
_HOSTS: Final = re.compile(rf"(?:jdbc:)?[A-Za-z0-9+_.:-]*//({_HOST}(?::\d+)?(?:,{_HOST}(?::\d+)?)*)(?=[/\\?;:,#]|$)")
#: Oracle's thin driver after its @: `host:port:SID`, `//host:port/service`, and the long form.
_AFTER_USER: Final = re.compile(rf"(?://)?({_HOST}(?::\d+)?(?:,{_HOST}(?::\d+)?)*)(?=[/\\?;:,#]|$)")
_DESCRIPTION: Final = re.compile(
    r"\(\s*HOST\s*=\s*([A-Za-z0-9_.-]+)\s*\)(?:\s*\(\s*PORT\s*=\s*(\d+)\s*\))?", re.IGNORECASE
)
_ENDS: Final = re.compile(r"[?;#]")


def kind_of(url: str) -> str:
    """`jdbc:mysql:` or `mysql:` of a URL that begins so; "" = its beginning may be a secret."""
    url = url.strip()
    if found := _KIND.match(url):
        return f"jdbc:{found[1]}:"
    found = _SCHEME.match(url)
    return f"{found[1]}:" if found else ""


def database_place(url: str) -> str:
    """As waits name it: `mysql db:3306`, `oracle db:1521`; of a URL that shows no host `sqlite database`."""
    kind = kind_of(url).removeprefix("jdbc:").removesuffix(":")
    return f"{kind} {_hosts(url.strip()) or 'database'}" if kind else "database"


def http_place(url: str) -> str:
    """As waits name it: `HTTP host:port`; of a URL that shows no host `HTTP server`."""
    return f"HTTP {_hosts(url.strip()) or 'server'}"


def without_user(url: str) -> str:
    """A URL of HTTP without user and password; `***` where an @ behind the host leaves open which of it is a user."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return HIDDEN
    if "@" in parts.path + parts.query + parts.fragment:
        return HIDDEN
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _hosts(url: str) -> str:
    signs = url.count("@")
    if signs == 0:
        found = _HOSTS.match(url)
        return found[1] if found else ""
    before, _, after = url.partition("@")
    if signs > 1 or _ENDS.search(before):
        return ""
    found = _AFTER_USER.match(after)
    if found:
        return found[1]
    long = _DESCRIPTION.search(after)
    return "" if long is None else ":".join(filter(None, long.groups()))
