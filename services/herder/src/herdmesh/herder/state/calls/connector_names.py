"""Connector names and patches: the few rules about configs that the herder itself applies.

Owns these rules. Does not own any other rule about a config: workers have the plugins, so they judge it.
"""

from __future__ import annotations

from herdmesh.herder.state.memory import (
    StoreViews,
)
from herdmesh.herder.state.model import NAME_KEY
from herdmesh.rpc.errors import FieldViolation, InvalidConfig, RequestInvalid
from herdmesh.rpc.properties import PropertyValue
from herdmesh.session.model import Properties

#: The characters that `String.trim` removes from both ends; any other space belongs to the name.
_TRIMMED = "".join(map(chr, range(0x21)))
NAME_BYTES_MAX = 1_000
"""Names are part of ids of groups, clients and transactions (Kafka: 32,767 bytes), and of errors' trailing metadata
(gRPC: 8 KiB)."""


def trimmed(name: str) -> str:
    """The name of a new connector, as Connect's create reads it (docs/reference/connect/rest-api.md, section 3.2)."""
    return name.strip(_TRIMMED)


def given_name(stores: StoreViews, name: str) -> str:
    """The connector name that a request means: the given name if such a connector exists, else as a create reads it.
    (Java's PUT creates connectors with blanks around their names; only the exact name refers to them.) Raises
    RequestInvalid for an empty name.
    """
    if not name:
        raise RequestInvalid("name the connector", "name")
    entry = stores.entries.get(name)
    return name if entry is not None and entry.has_config else trimmed(name) or name


def checked_name(name: str) -> str:
    """A name that Connect accepts, and that fits into Kafka's requests. Raises InvalidConfig for a name that is empty,
    has control characters, or is too long.
    """
    if len(name.encode()) > NAME_BYTES_MAX:
        text = f"a name has at most {NAME_BYTES_MAX} bytes (UTF-8), and {name[:40]}... has {len(name.encode())}"
        raise InvalidConfig([FieldViolation(NAME_KEY, f"{text}: choose a shorter one")])
    if not trimmed(name):
        raise InvalidConfig([FieldViolation(NAME_KEY, "String may not be empty: give the connector a name")])
    codes = {ord(character) for character in name}
    control = sorted(code for code in codes if code < 0x20 or 0x7F <= code < 0xA0)
    if control:
        text = f"String may not contain control sequences but had the following ASCII chars: {control}"
        raise InvalidConfig([FieldViolation(NAME_KEY, text)])
    return name


def own_name(config: Properties, name: str) -> str:
    """The name. If the config has a name, it must be equal except for blanks around it. Raises InvalidConfig."""
    given = config.get(NAME_KEY)
    if given is not None and given != name and trimmed(str(given)) != name:
        text = f"Connector name configuration ({given}) doesn't match connector name in the request ({name})"
        raise InvalidConfig([FieldViolation(NAME_KEY, text)])
    return name


def merged(config: Properties, patch: Properties) -> Properties:
    """`config` with `patch` over it; null removes its key (KIP-477)."""
    result: dict[str, PropertyValue] = {**config, **patch}
    return {name: value for name, value in result.items() if not (value is None and name in patch)}
