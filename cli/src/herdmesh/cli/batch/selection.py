"""Selection of connectors for a command that changes several: by name, by a pattern or state, all, or those of files.

Owns the options and their rules. Invariant: every name is checked against the herder's list before the first change, so
that a typing error changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from herdmesh.cli import completion
from herdmesh.cli.batch.connector_files import read_all, trimmed
from herdmesh.cli.display import listing
from herdmesh.cli.errors import EXIT_USAGE, CommandError, from_reason
from herdmesh.cli.mesh.client import HerderClient
from herdmesh.cli.queries import fetch_connectors
from herdmesh.connect.config import closest

NamesArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="[NAME]...", help="Names of connectors.", autocompletion=completion.connectors),
]
MatchOption = Annotated[str, typer.Option("--match", metavar="GLOB", help="All with a name like this: 'orders-*'.")]
StateOption = Annotated[
    list[str] | None,
    typer.Option("--state", metavar="STATE", help="All that are in this state, or have a task in it; repeatable."),
]
AllOption = Annotated[bool, typer.Option("--all", help="All connectors.")]
FilesOption = Annotated[
    list[str] | None,
    typer.Option("-f", "--file", metavar="FILE|DIR|-", help="The connectors of files, as `herd apply` reads them."),
]


@dataclass(frozen=True, slots=True)
class ConnectorSelection:
    """What the arguments select."""

    names: Sequence[str] = ()
    match: str = ""
    states: Sequence[str] = ()
    everything: bool = False
    files: Sequence[str] = ()

    @property
    def is_one_name(self) -> bool:
        """True for exactly one name: the output is then one document, not a list."""
        return len(self.names) == 1

    @property
    def is_open(self) -> bool:
        """True when the herder's list decides which connectors are meant."""
        return bool(self.match or self.states or self.everything)

    async def resolve(self, client: HerderClient, *, allow_missing: bool = False, check_one: bool = False) -> list[str]:
        """The names of the connectors, each once. Raises CommandError for none of, or several of, the ways to select,
        and for names that no connector has.

        Args:
            allow_missing: names that no connector has are returned too.
            check_one: look a single name up too, which the change itself would do.
        """
        ways = [bool(self.names), bool(self.match or self.states), self.everything, bool(self.files)]
        if sum(ways) != 1:
            text = "name connectors, or give one of --match/--state, --all and --file"
            raise CommandError("USAGE", text, exit_code=EXIT_USAGE)
        wanted = listing.checked(listing.Filter(self.match, frozenset(one.upper() for one in self.states), "", ""))
        names = _names_in(self.files) if self.files else list(dict.fromkeys(self.names))
        if self.is_one_name and not check_one:
            return names
        known = {str(one["name"]): one for one in await fetch_connectors(client, full=False)}
        if self.is_open:
            return [name for name, one in known.items() if wanted.keeps(one)]
        missing = [name for name in names if name not in known and trimmed(name) not in known]
        if missing and not allow_missing:
            raise _missing(missing, known)
        return names


def _names_in(files: Sequence[str]) -> list[str]:
    given, bad = read_all(list(files), with_state=True)
    if bad:
        raise bad[0][1]
    return [one.stored_name for one in given]


def _missing(missing: Sequence[str], known: Iterable[str]) -> CommandError:
    similar = {name: closest(name, known) for name in missing}
    named = ", ".join(f"{name} (did you mean {meant}?)" if meant else name for name, meant in similar.items())
    return from_reason("CONNECTOR_NOT_FOUND", f"no connector {named}; nothing was changed")
