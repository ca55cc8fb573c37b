"""Connection URLs in messages, statuses and logs: the kind of system, its hosts and ports, and nothing secret.

Owns the reduction of a URL to these parts. Each driver parses the URL that it connects to.

The rules form an allow list: only parts whose meaning is certain are shown. A password can have any character, even one
that ends the part of the URL that it is in: `//user:pa/ss@host` reads as host `user`, port `pa`. The @ signs of a URL
therefore decide:

| Signs | Shown |
|---|---|
| none | the hosts and ports after `//` |
| one, before any of `?;#` | the part after it: a user is before it |
| one after a `?`, `;` or `#` | the kind alone: either side may be within a password |
| two or more | the kind alone |

Invariant: no part of a user's password is returned, wherever in the URL it is and whatever its characters are.
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
#: Oracle's thin driver after its @ sign: `host:port:SID`, `//host:port/service`, and the long form.
_AFTER_USER: Final = re.compile(rf"(?://)?({_HOST}(?::\d+)?(?:,{_HOST}(?::\d+)?)*)(?=[/\\?;:,#]|$)")
_DESCRIPTION: Final = re.compile(
    r"\(\s*HOST\s*=\s*([A-Za-z0-9_.-]+)\s*\)(?:\s*\(\s*PORT\s*=\s*(\d+)\s*\))?", re.IGNORECASE
)
_ENDS: Final = re.compile(r"[?;#]")


def kind_of(url: str) -> str:
    """Prefix `jdbc:mysql:` or `mysql:` of a URL that begins with one; "" = the beginning may be a secret."""
    url = url.strip()
    if found := _KIND.match(url):
        return f"jdbc:{found[1]}:"
    found = _SCHEME.match(url)
    return f"{found[1]}:" if found else ""


def database_place(url: str) -> str:
    """Name of the database for a wait reason: `mysql db:3306`, `oracle db:1521`; for a URL whose host is not shown
    `sqlite database`.
    """
    kind = kind_of(url).removeprefix("jdbc:").removesuffix(":")
    return f"{kind} {_hosts(url.strip()) or 'database'}" if kind else "database"


def http_place(url: str) -> str:
    """Name of the server for a wait reason: `HTTP host:port`; for a URL whose host is not shown `HTTP server`."""
    return f"HTTP {_hosts(url.strip()) or 'server'}"


def without_user(url: str) -> str:
    """An HTTP URL without user and password; `***` where an @ behind the host makes it unclear which part is the
    user."""
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
