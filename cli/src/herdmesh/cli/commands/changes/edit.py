"""`herd edit`: a connector's config in the user's editor, and the edited config applied.

Owns the file that is edited. Secrets are `****` in it, and one that stays so keeps its value. The edited config is
written only on top of the one that was opened (its revision is compared), so that nobody's change is lost. An edit that
is refused is kept in its file, which the error names.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Annotated, cast

import typer
from rich.markup import escape

from herdmesh.api.herder.v1 import config_messages_pb2 as messages
from herdmesh.cli.batch.connector_files import to_properties
from herdmesh.cli.batch.results import end_with
from herdmesh.cli.batch.waiting import Floors, TimeoutOption, WaitOption, wait_of
from herdmesh.cli.commands.apply import tell_warnings
from herdmesh.cli.display import views
from herdmesh.cli.display.hidden_secrets import ShowSecretsOption, hide, password_keys, refuse_hidden
from herdmesh.cli.display.output import Format, out
from herdmesh.cli.errors import EXIT_USAGE, CommandError
from herdmesh.cli.mesh.client import HerderClient
from herdmesh.cli.runner import HerderOption, NameArgument, OutputOption, with_herder
from herdmesh.rpc.request_ids import new_request_id

_EDITORS = ("VISUAL", "EDITOR")
_FALLBACK = "vi"


def edit(
    name: NameArgument,
    begin_with: Annotated[
        str,
        typer.Option("--from", metavar="FILE", help="Continue a refused edit from the file that it was kept in."),
    ] = "",
    show_secrets: ShowSecretsOption = False,
    wait: WaitOption = None,
    timeout: TimeoutOption = "",
    herder: HerderOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Edit a connector's config in $VISUAL or $EDITOR, and apply it. Secrets that stay **** keep their values."""

    async def work(client: HerderClient) -> None:
        waiting = wait_of(wait, timeout)
        reply = await client.call(lambda stub: stub.GetConnector, messages.GetConnectorRequest(name=name))
        stored = views.properties(reply.connector.config)
        shown = _texts(stored if show_secrets else await _hidden(client, stored))
        file = Path(begin_with) if begin_with else _write(name, shown)
        try:
            await asyncio.to_thread(_open, file)
            edited = _read(file, name)
            config = _with_secrets(edited, stored, shown)
            if config == stored:
                file.unlink()
                _report(output, {"result": "unchanged", **views.connector(reply.connector), "warnings": []})
                return
            refuse_hidden({key: value for key, value in config.items() if value != stored.get(key)})
            request = messages.UpdateConnectorRequest(
                request_id=new_request_id(),
                name=name,
                config=to_properties(config),
                expected_revision=reply.connector.config_revision,
            )
            await waiting.remember(client, [name])
            written = await client.call(lambda stub: stub.UpdateConnector, request)
        except CommandError as error:
            kept = f"The edit is kept in {file}: `herd edit {name} --from {file}` continues with it."
            if error.reason == "REVISION_MISMATCH":
                kept = f"Somebody changed it meanwhile. {kept}"
            raise replace(error, next_step=kept) from None
        file.unlink()
        tell_warnings(name, written.warnings)
        late = await waiting.until(client, {name: Floors() if written.unchanged else waiting.floors_of(name)})
        found = views.connector(written.connector)
        _report(output, {"result": "updated", **found, "warnings": views.warnings(written.warnings)}, late.get(name))

    with_herder(output, herder, work)


def _report(output: Format, document: views.Json, error: CommandError | None = None) -> None:
    if not output.is_document:
        out.print(f"connector [bold]{escape(document['name'])}[/] {document['result']}")
    end_with(output, [document], error)


def _texts(config: views.Json) -> views.Json:
    """The values as the file has them: a value of another writer that is no text, in JSON."""
    return {key: one if one is None or isinstance(one, str) else json.dumps(one) for key, one in config.items()}


async def _hidden(client: HerderClient, stored: views.Json) -> views.Json:
    class_name = str(stored.get("connector.class"))
    return hide(stored, (await password_keys(client, [class_name])).get(class_name, ()))


def _write(name: str, config: views.Json) -> Path:
    """The file to edit, which only its owner can read."""
    from herdmesh.cli.display.documents import yaml_text

    safe = re.sub(r"[^\w.-]", "_", name)[:60]
    number, path = tempfile.mkstemp(prefix=f"herd-edit-{safe}-", suffix=".yaml")
    text = (
        f"# The config of connector {' '.join(name.split())}. It is applied when the editor ends; without a change\n"
        "# nothing happens. A value that stays **** keeps its secret.\n"
    )
    inner = {key: value for key, value in config.items() if key != "name"}
    with os.fdopen(number, "w", encoding="utf-8") as file:
        file.write(text + yaml_text({"name": name, "config": inner}))
    return Path(path)


def _open(file: Path) -> None:
    """Run the editor and wait for its end. Raises CommandError when it cannot be started, or failed."""
    editor = next((text for key in _EDITORS if (text := os.environ.get(key, "").strip())), _FALLBACK)
    try:
        done = subprocess.run([*shlex.split(editor), str(file)], check=False)
    except (OSError, ValueError) as error:
        text = f"editor {editor} cannot be started: {error}"
        raise CommandError("USAGE", text, "Set EDITOR to the command of your editor.", EXIT_USAGE) from None
    if done.returncode:
        text = f"editor {editor} ended with exit code {done.returncode}; nothing was changed"
        raise CommandError("USAGE", text, exit_code=EXIT_USAGE)


def _read(file: Path, name: str) -> views.Json:
    from herdmesh.cli.batch.yaml_text import YamlError, load_all

    try:
        documents = [one for one in load_all(file.read_bytes()) if one is not None]
    except (OSError, YamlError) as error:
        raise CommandError("USAGE", f"the edited text is not YAML: {error}", exit_code=EXIT_USAGE) from None
    document = cast("views.Json", documents[0]) if len(documents) == 1 and isinstance(documents[0], dict) else {}
    config = document.get("config")
    if not isinstance(config, dict):
        raise CommandError("USAGE", 'the edited text has no "name" and "config"', exit_code=EXIT_USAGE)
    if document.get("name") != name:
        text = "the name was edited: a connector keeps its name; `herd create` makes another one"
        raise CommandError("USAGE", text, exit_code=EXIT_USAGE)
    return cast("views.Json", config)


def _with_secrets(edited: views.Json, stored: views.Json, shown: views.Json) -> views.Json:
    """The edited config, with the stored value of each secret whose hidden form was left as it was."""
    config = {key: stored[key] if key in stored and value == shown[key] else value for key, value in edited.items()}
    return {**config, **({"name": stored["name"]} if "name" in stored else {})}
