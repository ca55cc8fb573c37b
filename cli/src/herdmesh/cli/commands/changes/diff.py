"""`herd diff`: what `herd apply` of the same files would change in the configs, key by key. Changes nothing.

The exit code is that of `diff` and `kubectl diff`: 0 no difference, 1 differences, other codes for errors.
"""

from __future__ import annotations

from typing import Any

import typer
from rich.markup import escape

from herdmesh.cli.batch.connector_files import GivenConnector, read_all, to_properties
from herdmesh.cli.commands.apply import FilesOption, RecursiveOption, not_all, stored_config
from herdmesh.cli.display import views
from herdmesh.cli.display.hidden_secrets import ShowSecretsOption, hide, password_keys
from herdmesh.cli.display.output import Format, out, print_document
from herdmesh.cli.mesh import bounded
from herdmesh.cli.mesh.client import HerderClient
from herdmesh.cli.runner import HerderOption, OutputOption, with_herder

EXIT_DIFFERENT = 1


def diff(
    files: FilesOption,
    recursive: RecursiveOption = False,
    show_secrets: ShowSecretsOption = False,
    herder: HerderOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Show how the configs in files differ from those in force. Exit code 1 when any does, 0 when none does."""

    async def work(client: HerderClient) -> None:
        given, bad = read_all(files, recursive=recursive)
        outcomes = await bounded.run_all(given, lambda one: _difference(client, one, show_secrets))
        bad += [(outcome.item.source, outcome.error) for outcome in outcomes if outcome.error is not None]
        if bad:
            raise not_all(bad, "nothing was changed")
        found = [outcome.result for outcome in outcomes if outcome.result is not None]
        if output.is_document:
            print_document(output, found if len(found) != 1 else found[0])
        else:
            for one in found:
                _print(one)
        if any(one["result"] != "unchanged" for one in found):
            raise typer.Exit(EXIT_DIFFERENT)

    with_herder(output, herder, work)


async def _difference(client: HerderClient, one: GivenConnector, show_secrets: bool) -> views.Json:
    stored = await stored_config(client, one.stored_name)
    new = views.properties(to_properties({**one.config, "name": one.stored_name}))
    passwords: frozenset[str] = frozenset()
    if not show_secrets:
        class_name = str(new["connector.class"])
        passwords = (await password_keys(client, [class_name])).get(class_name, passwords)
    return difference(one.stored_name, stored, new, passwords, show_secrets=show_secrets)


def difference(
    name: str, stored: views.Json | None, new: views.Json, passwords: frozenset[str], *, show_secrets: bool
) -> views.Json:
    """The changed keys, sorted, each with its old and new value; `secret` marks a value that is hidden."""
    old = stored or {}
    shown_old = old if show_secrets else hide(old, passwords)
    shown_new = new if show_secrets else hide(new, passwords)
    changes: list[views.Json] = []
    for key in sorted({*old, *new}):
        if key in old and key in new and old[key] == new[key]:
            continue
        change: views.Json = {"key": key, "change": _kind(key, old, new)}
        if key in old:
            change["old"] = shown_old[key]
        if key in new:
            change["new"] = shown_new[key]
        change["secret"] = shown_old.get(key) != old.get(key) or shown_new.get(key) != new.get(key)
        changes.append(change)
    result = "created" if stored is None else "updated" if changes else "unchanged"
    return {"name": name, "result": result, "changes": changes}


def _kind(key: str, old: views.Json, new: views.Json) -> str:
    return "added" if key not in old else "removed" if key not in new else "changed"


def _print(found: views.Json) -> None:
    if found["result"] == "unchanged":
        out.print_sentence(f"connector [bold]{escape(found['name'])}[/]: no difference")
        return
    title = "would be created" if found["result"] == "created" else "would be updated"
    out.print_sentence(f"connector [bold]{escape(found['name'])}[/] {title}")
    for one in found["changes"]:
        hidden = " (a secret that differs)" if one["secret"] and one["change"] == "changed" else ""
        if "old" in one:
            out.print(f"[red]- {escape(_line(one['key'], one['old']))}[/]", soft_wrap=True)
        if "new" in one:
            out.print(f"[green]+ {escape(_line(one['key'], one['new']))}[/]{hidden}", soft_wrap=True)


def _line(key: str, value: Any) -> str:
    return f"{key}: {'null' if value is None else value}"
