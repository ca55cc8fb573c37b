"""The context of a stack of `herd up`: the name by which commands reach it from every folder.

Owns its entry in the contexts file from the start of the stack to its end, and the data folder of commands that take
`--data`. Invariants: an entry that the user made is never replaced or deleted. The current context stays what it is,
except that a deleted one is no longer current, so no `herd up` changes the mesh of a command elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from herdmesh.cli.errors import EXIT_USAGE, CommandError
from herdmesh.cli.mesh import contexts
from herdmesh.cli.mesh.contexts import Context, Contexts
from herdmesh.devstack.layout import StackLayout

_UNNAMED: Final = "herd"


@dataclass(frozen=True, slots=True)
class StackContext:
    """The name of a stack's context, and that of the current context."""

    name: str
    current: str

    def lines(self) -> list[str]:
        """The lines that tell the user."""
        how = f"`herd --context {self.name} get connectors` reaches it from every folder"
        if self.current == self.name:
            return [f"Its context is {self.name}, the current one: commands use it in every folder."]
        lines = [f"Its context is {self.name}: {how}."]
        if self.current:
            lines.append(
                f"The current context is {self.current}, and commands use that one, also in this folder, unless "
                f"--context names another; `herd context use {self.name}` changes it."
            )
        return lines


def check(data_dir: Path, wanted: str) -> None:
    """Raise CommandError for a name that is taken by another mesh. `wanted` "" = any name."""
    named = Contexts.read().named if wanted else {}
    if wanted in named and not _is_of(named[wanted], data_dir):
        raise CommandError(
            "USAGE",
            f"context {wanted} is {named[wanted].text()} already",
            f"Choose another name, or delete it with `herd context delete {wanted}`.",
            EXIT_USAGE,
        )


def add(data_dir: Path, wanted: str = "") -> StackContext:
    """Add the context of a stack, named after its folder; an existing one of this stack is kept. Raises CommandError.

    `wanted`: a name that `check` has accepted; "" = any.
    """
    with Contexts.change() as found:
        _delete(found, lambda one: one.of_up and not StackLayout(Path(one.data)).state_file.exists())
        own = [name for name, one in found.named.items() if _is_of(one, data_dir)]
        if wanted in own or (own and not wanted):
            name = wanted or own[0]
        else:
            name = wanted or _free_name(found, data_dir)
            was_current = any(one == found.current and found.named[one].of_up for one in own)
            _delete(found, lambda one: one.of_up and _is_of(one, data_dir))
            found.named[name] = Context(data=str(data_dir.resolve()), of_up=True)
            found.current = name if was_current else found.current
        return StackContext(name, found.current)


def remove(data_dir: Path) -> str:
    """Delete the context that `herd up` added for this stack; returns its name, "" = there was none. Raises
    CommandError.
    """
    if not any(one.of_up and _is_of(one, data_dir) for one in Contexts.read().named.values()):
        return ""
    with Contexts.change() as found:
        return _delete(found, lambda one: one.of_up and _is_of(one, data_dir))


def data_folder(data: Path) -> Path:
    """The data folder of a command: that of `--data`, else that of the context which `--context` names. Raises
    CommandError for a context without a data folder, and when both are given.
    """
    name = contexts.selected()
    if not name:
        return data
    context = Contexts.read().get(name)
    if data != contexts.DEFAULT_DATA_DIR:
        raise CommandError("USAGE", "--data and --context both name a mesh", "Leave one out.", EXIT_USAGE)
    if not context.data:
        text = f"context {name} is {context.text()}, a mesh that `herd up` did not start on this machine"
        raise CommandError("USAGE", text, "Name a context with a data folder: `herd context list`.", EXIT_USAGE)
    return Path(context.data)


def running() -> list[tuple[str, str]]:
    """Names and data folders of the stacks with a context whose supervisor lives."""
    found = [(name, one.data) for name, one in sorted(Contexts.read().named.items()) if one.data]
    return [(name, data) for name, data in found if _runs(Path(data))]


def _delete(found: Contexts, which: Callable[[Context], bool]) -> str:
    """Delete these contexts; returns the name of the last one."""
    names = [name for name, one in found.named.items() if which(one)]
    for name in names:
        del found.named[name]
    if found.current in names:
        found.current = ""
    return names[-1] if names else ""


def _runs(data_dir: Path) -> bool:
    state = StackLayout(data_dir).read_state()
    return state is not None and state.is_supervised


def _is_of(context: Context, data_dir: Path) -> bool:
    return bool(context.data) and Path(context.data) == data_dir.resolve()


def _free_name(found: Contexts, data_dir: Path) -> str:
    folder = data_dir.resolve()
    named = folder.parent.name if folder.name == contexts.DEFAULT_DATA_DIR.name else folder.name
    base = "-".join(named.split()).lstrip("-.") or _UNNAMED
    candidates = (base, *(f"{base}-{number}" for number in range(2, len(found.named) + 3)))
    return next(name for name in candidates if name not in found.named)
