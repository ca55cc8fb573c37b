"""The mesh that a command talks to, and the user's named meshes ("contexts", as kubectl has them).

Owns the contexts file in the user's config folder, the order in which a mesh is found, and which changes are refused.
Does not connect. The order: the option of an address, `--context`, the environment's address, HERDMESH_CONTEXT, the
current context, the stack in ./.herd, the usual port on this machine.

Invariant: a change goes to a mesh that the user named, or to the mesh that runs in this very folder while no context
says otherwise. The current folder alone never moves a change from one mesh to another.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, cast

from herdmesh.cli.errors import EXIT_UNAVAILABLE, EXIT_USAGE, CommandError
from herdmesh.devstack.layout import StackLayout, StackState

DEFAULT_DATA_DIR: Final = Path(".herd")
CONTEXT_ENV: Final = "HERDMESH_CONTEXT"
#: Service -> the environment's variable with its address, and its usual address.
SERVICES: Final = {
    "herder": ("HERDMESH_HERDER", "127.0.0.1:7203"),
    "config_store": ("HERDMESH_CONFIG_STORE", "127.0.0.1:7201"),
    "status_store": ("HERDMESH_STATUS_STORE", "127.0.0.1:7202"),
}
_NAME_THE_MESH: Final = "Name it: --herder HOST:PORT, --context NAME, HERDMESH_HERDER, or `herd context use NAME`."


@dataclass(frozen=True, slots=True)
class Context:
    """A named mesh: its addresses ("" = the usual one), or the data folder of a stack of `herd up`."""

    herder: str = ""
    config_store: str = ""
    status_store: str = ""
    data: str = ""

    def address(self, service: str) -> str:
        """The addresses of a service; "" = not known. Those of a stack are read when they are used."""
        if not self.data:
            return str(getattr(self, service))
        state = StackLayout(Path(self.data)).read_state()
        return str(getattr(state, service)) if state is not None else ""

    def text(self) -> str:
        """The mesh for a message."""
        return self.data or self.herder


@dataclass(slots=True)
class Contexts:
    """The contexts file. `current` "" = none."""

    current: str = ""
    named: dict[str, Context] = field(default_factory=lambda: {})

    @classmethod
    def read(cls) -> Contexts:
        """The contexts of this user; none where there is no file. Raises CommandError for a file that is not one."""
        path = contexts_file()
        try:
            raw = json.loads(path.read_text("utf-8"))
            named = {name: Context(**one) for name, one in raw["contexts"].items()}
            return cls(str(raw["current"]), named)
        except FileNotFoundError:
            return cls()
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            text = f"{path} cannot be read as contexts: {error}"
            raise CommandError("USAGE", text, "Correct or remove the file.", EXIT_USAGE) from None

    def write(self) -> None:
        """Replace the file. Raises CommandError."""
        path = contexts_file()
        raw = {"current": self.current, "contexts": {name: asdict(one) for name, one in sorted(self.named.items())}}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            partial = path.with_suffix(".partial")
            partial.write_text(json.dumps(raw, indent=2) + "\n", "utf-8")
            os.replace(partial, path)
        except OSError as error:
            text = f"{path} cannot be written: {error.strerror}"
            raise CommandError("USAGE", text, "Set XDG_CONFIG_HOME to a folder of yours.", EXIT_USAGE) from None

    def get(self, name: str) -> Context:
        """A context by its name. Raises CommandError that lists the existing ones."""
        if name not in self.named:
            existing = ", ".join(sorted(self.named)) or "none yet"
            text = f"no context {name}; there are: {existing}"
            raise CommandError("CONTEXT_NOT_FOUND", text, "`herd context set NAME --herder HOST:PORT` adds one.", 3)
        return self.named[name]


@dataclass(frozen=True, slots=True)
class MeshTarget:
    """The mesh of a command. `source`: option, environment, context, folder or default; `name` is the context's."""

    address: str
    source: str
    name: str = ""

    def text(self) -> str:
        """The mesh for a message: `prod (127.0.0.1:7203)`."""
        where = {"context": self.name, "folder": "./.herd"}.get(self.source, "")
        return f"{where} ({self.address})" if where else self.address


class _Selected:
    """The context that `--context` names in this process."""

    name = ""


def select(name: str) -> None:
    """Use a context for this command whatever the environment and the file say; "" = none is named."""
    _Selected.name = name


def contexts_file() -> Path:
    """The file in the user's config folder (XDG)."""
    base = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(base) / "herdmesh" / "contexts.json"


def find_target(option: str | None, service: str = "herder") -> MeshTarget:
    """The mesh of a command. Raises CommandError for a context that does not exist or does not run."""
    variable, usual = SERVICES[service]
    if option:
        return MeshTarget(option, "option")
    if not _Selected.name and (address := os.environ.get(variable)):
        return MeshTarget(address, "environment")
    name = _Selected.name or os.environ.get(CONTEXT_ENV, "")
    contexts = Contexts.read()
    name = name or contexts.current
    if name:
        context = contexts.get(name)
        address = context.address(service)
        if not address and context.data:
            text = f"nothing runs in {context.data}, the data folder of context {name}"
            raise CommandError("UNREACHABLE", text, f"`herd up --data {context.data}` starts it.", EXIT_UNAVAILABLE)
        return MeshTarget(address or usual, "context", name)
    state = StackLayout(DEFAULT_DATA_DIR).read_state()
    if state is not None and getattr(state, service):
        return MeshTarget(str(getattr(state, service)), "folder")
    return MeshTarget(usual, "default")


def guard(option: str | None, say: Callable[[str], None] = lambda text: None) -> Callable[[Any], None]:
    """A check of each request before it is sent: it raises CommandError for a change whose mesh is only a guess. Before
    the first change to the mesh of the current context it says which mesh that is.

    Every change has a request id, a query has none.
    """
    checked = False

    def check(request: Any) -> None:
        nonlocal checked
        if checked or "request_id" not in request.DESCRIPTOR.fields_by_name:
            return
        target = find_target(option)
        refuse_guess(target)
        checked = True
        if target.source == "context" and not _Selected.name:
            say(f"mesh: {target.text()}")

    return check


def refuse_guess(target: MeshTarget) -> None:
    """Raise CommandError unless a change may go to this mesh."""
    state = StackLayout(DEFAULT_DATA_DIR).read_state()
    running = state is not None and _runs(state)
    if target.source == "default":
        raise _guess(f"no mesh is named, and none runs in this folder ({target.address} is only the usual address)")
    if target.source == "folder" and not running:
        raise _guess(f"the mesh of ./.herd does not run, and {target.address} may be another one by now")
    if target.source == "context" and not (_Selected.name or os.environ.get(CONTEXT_ENV)):
        here = state.herder if state is not None else ""
        if running and here != target.address:
            raise _guess(f"the mesh of this folder is {here}, and the current context is {target.text()}")


def _guess(why: str) -> CommandError:
    return CommandError("MESH_NOT_NAMED", f"nothing was changed: {why}", _NAME_THE_MESH, EXIT_USAGE)


def _runs(state: StackState) -> bool:
    """True while a herder of this stack lives."""
    herders = [one for one in cast("list[Any]", state.services) if one.name.startswith("herder")]
    return any(one.mark is not None and one.mark.alive() is not None for one in herders)
