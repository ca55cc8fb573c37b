"""The mesh and the Kafka that a command talks to, and the user's named meshes ("contexts", as kubectl has them).

Owns the contexts file in the user's config folder, the order in which a mesh and its Kafka are found, and which changes
are refused. Does not connect. The order: the option of an address, `--context`, the environment's address,
HERDMESH_CONTEXT, the current context, the stack in ./.herd, and for services the usual port on this machine.

Invariant: a change goes to a mesh (or a Kafka) that the user named, or to the one of the stack that runs in this very
folder while no context says otherwise. The current folder alone never moves a change from one cluster to another.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Callable, Generator
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
#: The field of contexts and of a stack's state with the addresses of brokers.
KAFKA: Final = "bootstrap_servers"
KAFKA_ENV: Final = "HERDMESH_BOOTSTRAP_SERVERS"
_NAME_IT: Final = {
    "herder": "Name it: --herder HOST:PORT, --context NAME, HERDMESH_HERDER, or `herd context use NAME`.",
    KAFKA: f"Name it: --bootstrap-servers HOST:PORT, --context NAME, {KAFKA_ENV}, or `herd context use NAME`.",
}


@dataclass(frozen=True, slots=True)
class Context:
    """A named mesh: its addresses ("" = the usual one), or the data folder of a stack of `herd up`."""

    herder: str = ""
    config_store: str = ""
    status_store: str = ""
    data: str = ""
    bootstrap_servers: str = ""
    """Its Kafka; "" = not known, or that of the stack in `data`."""
    command_config: str = ""
    """File of client properties for that Kafka; "" = none, or that of the stack in `data`."""
    of_up: bool = False
    """Made by `herd up`; `herd down` deletes it (`stack_context`)."""

    def address(self, service: str) -> str:
        """The addresses of a service, or of Kafka; "" = not known. Those of a stack are read when they are used."""
        own = str(getattr(self, service))
        if own or not self.data:
            return own
        state = StackLayout(Path(self.data)).read_state()
        return "" if state is None or _is_stale(state, service) else str(getattr(state, service))

    def kafka_config(self) -> str:
        """The file of client properties for its Kafka; "" = none."""
        if self.command_config or self.bootstrap_servers or not self.data:
            return self.command_config
        state = StackLayout(Path(self.data)).read_state()
        return state.command_config if state is not None else ""

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
            raise _unwritable(path, error) from None

    @staticmethod
    @contextlib.contextmanager
    def change() -> Generator[Contexts]:
        """The contexts, for a change that is written at the end of the block. Commands wait for each other. Raises
        CommandError.
        """
        path = contexts_file().with_suffix(".lock")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            lock = path.open("w")
        except OSError as error:
            raise _unwritable(path, error) from None
        with lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            contexts = Contexts.read()
            yield contexts
            contexts.write()

    def get(self, name: str) -> Context:
        """A context by its name. Raises CommandError that lists the existing ones."""
        if name not in self.named:
            existing = ", ".join(sorted(self.named)) or "none yet"
            text = f"no context {name}; there are: {existing}"
            raise CommandError("CONTEXT_NOT_FOUND", text, "`herd context set NAME --herder HOST:PORT` adds one.", 3)
        return self.named[name]


@dataclass(frozen=True, slots=True)
class MeshTarget:
    """The mesh, or the Kafka, of a command. `source`: option, environment, context, folder or default, of Kafka also
    file; `name` is the context's.
    """

    address: str
    source: str
    name: str = ""
    command_config: str = ""
    """Of Kafka: the context's file of client properties."""

    def text(self) -> str:
        """The target for a message: `prod (127.0.0.1:7203)`."""
        where = {"context": self.name, "folder": "./.herd"}.get(self.source, "")
        return f"{where} ({self.address})" if where else self.address


def _unwritable(path: Path, error: OSError) -> CommandError:
    text = f"{path} cannot be written: {error.strerror}"
    return CommandError("USAGE", text, "Set XDG_CONFIG_HOME to a folder of yours.", EXIT_USAGE)


class _Selected:
    """The context that `--context` names in this process."""

    name = ""


def select(name: str) -> None:
    """Use a context for this command whatever the environment and the file say; "" = none is named."""
    _Selected.name = name


def selected() -> str:
    """The context that `--context` names; "" = none."""
    return _Selected.name


def contexts_file() -> Path:
    """The file in the user's config folder (XDG)."""
    base = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(base) / "herdmesh" / "contexts.json"


def find_target(option: str | None, service: str = "herder") -> MeshTarget:
    """The mesh of a command. Raises CommandError for a context that does not exist, and when its stack, or the one in
    ./.herd, has ended.
    """
    variable, usual = SERVICES[service]
    if option:
        return MeshTarget(option, "option")
    if not _Selected.name and (address := os.environ.get(variable)):
        return MeshTarget(address, "environment")
    name, context = _chosen()
    if context is not None:
        address = context.address(service)
        if not address and context.data:
            raise _stopped(name, context)
        return MeshTarget(address or usual, "context", name)
    state = StackLayout(DEFAULT_DATA_DIR).read_state()
    if state is not None and getattr(state, service):
        if _is_stale(state, service):
            raise _ended("herder")
        return MeshTarget(str(getattr(state, service)), "folder")
    return MeshTarget(usual, "default")


def find_kafka_target(option: str | None, in_file: str = "") -> MeshTarget:
    """The Kafka of a command. There is no usual address: Kafka may be anywhere.

    Args:
        option: `--bootstrap-servers`.
        in_file: `bootstrap.servers` in the file of `--command-config`.

    Raises CommandError when nothing names a Kafka, when two things on the command line name different ones, and for a
    context that does not exist, does not run, or has no Kafka.
    """
    if option and option.strip():
        return MeshTarget(option.strip(), "option")
    if not _Selected.name:
        if address := os.environ.get(KAFKA_ENV, "").strip():
            return MeshTarget(address, "environment")
        if in_file:
            return MeshTarget(in_file, "file")
    name, context = _chosen()
    if context is None:
        state = StackLayout(DEFAULT_DATA_DIR).read_state()
        if state is not None and state.bootstrap_servers:
            if _is_stale(state, KAFKA):
                raise _ended(KAFKA)
            return MeshTarget(state.bootstrap_servers, "folder", command_config=state.command_config)
        raise CommandError(
            "USAGE",
            f"no Kafka is known: there is no stack in {DEFAULT_DATA_DIR} of this folder, and no address was given",
            f"`herd up --detach` starts one here; --bootstrap-servers HOST:PORT or {KAFKA_ENV} names another.",
            EXIT_USAGE,
        )
    address = context.address(KAFKA)
    if in_file and in_file != address:
        text = f"--context {name} is {address or 'without a Kafka'}, and the file of --command-config names {in_file}"
        raise CommandError("USAGE", text, "Leave one out, or add --bootstrap-servers.", EXIT_USAGE)
    if not address and context.data:
        raise _stopped(name, context)
    if not address:
        fix = f"`herd context set {name} --herder {context.herder} --bootstrap-servers HOST:PORT` adds it."
        raise CommandError("USAGE", f"context {name} has no address of a Kafka", fix, EXIT_USAGE)
    return MeshTarget(address, "context", name, context.kafka_config())


def _chosen() -> tuple[str, Context | None]:
    """The context of this command, with its name; None = no context is chosen."""
    name = _Selected.name or os.environ.get(CONTEXT_ENV, "")
    contexts = Contexts.read()
    name = name or contexts.current
    return name, contexts.get(name) if name else None


def _stopped(name: str, context: Context) -> CommandError:
    text = f"nothing runs in {context.data}, the data folder of context {name}"
    return CommandError("UNREACHABLE", text, f"`herd up --data {context.data}` starts it.", EXIT_UNAVAILABLE)


def _is_stale(state: StackState, service: str) -> bool:
    """True when the stack has ended, and this address with it: its port may be another program's by now, and a call
    would wait until its timeout.
    """
    return state.has_ended and (service != KAFKA or state.has_broker)


def _ended(service: str) -> CommandError:
    kind = "Kafka" if service == KAFKA else "mesh"
    fix = f"`herd up --detach` starts it. {_NAME_IT[service]}"
    return CommandError("UNREACHABLE", f"the {kind} of ./.herd does not run", fix, EXIT_UNAVAILABLE)


def kafka_change(target: MeshTarget, say: Callable[[str], None]) -> None:
    """Raise CommandError for a change of a Kafka that is only a guess. Before a change to the Kafka of the current
    context it says which one that is.
    """
    refuse_guess(target, KAFKA)
    if target.source == "context" and not _Selected.name:
        say(f"Kafka: {target.text()}")


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


def refuse_guess(target: MeshTarget, service: str = "herder") -> None:
    """Raise CommandError unless a change may go to this mesh, or to this Kafka (`service` is then `KAFKA`)."""
    kind = "Kafka" if service == KAFKA else "mesh"
    state = StackLayout(DEFAULT_DATA_DIR).read_state()
    running = state is not None and _runs(state, service)
    why = ""
    if target.source == "default":
        why = f"no mesh is named, and none runs in this folder ({target.address} is only the usual address)"
    elif target.source == "folder" and not running:
        why = f"the {kind} of ./.herd does not run, and {target.address} may be another one by now"
    elif target.source == "context" and not (_Selected.name or os.environ.get(CONTEXT_ENV)):
        here = str(getattr(state, service)) if state is not None else ""
        if running and here != target.address:
            why = f"the {kind} of this folder is {here}, and the current context is {target.text()}"
    if why:
        start = "" if running else "`herd up --detach` starts one here. "
        raise CommandError("MESH_NOT_NAMED", f"nothing was changed: {why}", start + _NAME_IT[service], EXIT_USAGE)


def _runs(state: StackState, service: str) -> bool:
    """True while a herder of this stack lives; for its Kafka, while any of its processes does."""
    services = cast("list[Any]", state.services)
    named = [one for one in services if service == KAFKA or one.name.startswith("herder")]
    return any(one.mark is not None and one.mark.alive() is not None for one in named)
