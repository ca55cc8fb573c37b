"""Secrets of configs in outputs: `****` in their place, unless `--show-secrets` is given.

Owns the replacement, and the refusal of a config that was taken from such an output. A secret is a value of a key that
its plugin's definition calls PASSWORD, and what `herdmesh.connect.config.secret_values` recognises by name or value.
Of a URL only the password is hidden. A reference (`${env:PASSWORD}`) is no secret and stays readable.

Invariant: a config that was read with hidden secrets is never stored: `refuse_hidden` finds each of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import typer

from herdmesh.api.herder.v1 import admin_messages_pb2 as admin
from herdmesh.cli.errors import EXIT_CODES, CommandError
from herdmesh.cli.mesh import bounded
from herdmesh.cli.mesh.client import HerderClient
from herdmesh.connect.config import is_secret, without_url_passwords

HIDDEN = "****"
_IN_HISTORY = "[redacted]"
_CLASS = "connector.class"
_REFERENCES = re.compile(r"\$\{[^${}:]*:[^${}]*\}")
_USER_INFO = re.compile(r"//[^/@]*@")
_HIDDEN_IN_URL = (f":{HIDDEN}@", f"password={HIDDEN}")

ShowSecretsOption = Annotated[
    bool, typer.Option("--show-secrets", help="Print the values of passwords and other secrets, not ****.")
]


def hide(config: Mapping[str, Any], password_keys: Iterable[str] = ()) -> dict[str, Any]:
    """A config with `****` in place of each secret; null and references stay.

    Args:
        password_keys: keys that a plugin's definition calls PASSWORD.
    """
    passwords = frozenset(password_keys)
    return {key: _shown(key, value, key in passwords) for key, value in config.items()}


def _shown(key: str, value: Any, is_password: bool) -> Any:
    if is_password and isinstance(value, str) and _REFERENCES.sub("", value):
        return HIDDEN
    if not is_secret(key, value):
        return value
    if isinstance(value, str) and not is_secret(key, "x"):
        shown = without_url_passwords(value)
        for short, long in ((":***@", f":{HIDDEN}@"), ("password=***", f"password={HIDDEN}")):
            shown = shown.replace(short, long)
        rest = _USER_INFO.sub("//", shown).replace(f"password={HIDDEN}", "")
        if shown != value and not is_secret(key, rest):
            return shown
    return HIDDEN


def refuse_hidden(config: Mapping[str, Any]) -> None:
    """Raise CommandError with every key whose value is what an output shows in place of a secret."""
    hidden = [key for key, value in config.items() if isinstance(value, str) and _is_hidden(key, value)]
    if hidden:
        text = "its secret is hidden: write the value or a reference, or read the config with --show-secrets"
        raise CommandError(
            "CONFIG_INVALID",
            "the config comes from an output that hides secrets",
            "Correct the fields named above and apply again; `herd patch` changes some keys and keeps the others.",
            EXIT_CODES["CONFIG_INVALID"],
            tuple((key, text) for key in hidden),
        )


def _is_hidden(key: str, value: str) -> bool:
    """A mask may well be a setting of a transformation (MaskField's `replacement`), but not its secret."""
    if value in (HIDDEN, _IN_HISTORY):
        return not key.startswith("transforms.") or is_secret(key, "x")
    return any(part in value for part in _HIDDEN_IN_URL)


async def password_keys(client: HerderClient, classes: Iterable[str]) -> dict[str, frozenset[str]]:
    """The PASSWORD keys of each connector class, as the workers' plugins define them. A class that no worker has now
    has none: names and values decide alone.
    """

    async def keys_of(name: str) -> frozenset[str]:
        reply = await client.call(lambda stub: stub.GetPlugin, admin.GetPluginRequest(class_name=name), 3.0)
        return frozenset(field.name for field in reply.fields if field.type == "PASSWORD")

    outcomes = await bounded.run_all(sorted({name for name in classes if name}), keys_of)
    return {outcome.item: outcome.result for outcome in outcomes if outcome.result is not None}


async def hide_in_connectors(client: HerderClient, connectors: Iterable[dict[str, Any]]) -> None:
    """Hide the secrets of connectors in place, their tasks' configs included."""
    listed = list(connectors)
    known = await password_keys(client, (str(one["config"].get(_CLASS) or "") for one in listed))
    for one in listed:
        passwords = known.get(str(one["config"].get(_CLASS)), frozenset[str]())
        one["config"] = hide(one["config"], passwords)
        for task in one["tasks"]:
            task["config"] = hide(task["config"], passwords)
