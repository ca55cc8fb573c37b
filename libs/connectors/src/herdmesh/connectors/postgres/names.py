"""Checks of names of tables, columns, slots and publications against PostgreSQL's limits.

Owns the rules. The server truncates a longer name without an error, so two names may become one, and an object is not
found again by its name.

Invariant: no name that the server would truncate is sent to it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from herdmesh.sdk import ConfigError

NAME_BYTES_MAX: Final = 63
"""Maximum bytes of a name, in UTF-8 (`NAMEDATALEN` - 1)."""


def why_no_name(name: str) -> str:
    """Return the reason why the server cannot have an object of this name; "" = it can."""
    if not name:
        return "it is empty"
    if "\0" in name or any("\ud800" <= one <= "\udfff" for one in name):
        return "a NUL, or half of a surrogate pair, cannot be part of it"
    length = len(name.encode())
    return (
        f"it has {length} bytes, and PostgreSQL's names have at most {NAME_BYTES_MAX}"
        if length > NAME_BYTES_MAX
        else ""
    )


def check_names(key: str, names: Iterable[str], fix: str) -> None:
    """Raise ConfigError of `key` for the first name that the server cannot have."""
    for name in names:
        if why := why_no_name(name):
            raise ConfigError.for_value(key, ascii(name)[1:-1] if not name.isprintable() else name, why, fix=fix)
