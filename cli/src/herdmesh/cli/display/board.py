"""The live table of `herd watch`, `herd up` and the demo.

Owns the latest view of connectors, fed by the herder's watch, and its rendering. Invariant: the view is only what the
leader last sent; when no herder leads, the table says so instead of showing old data without notice.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.text import Text

from herdmesh.api.herder.v1 import config_messages_pb2 as messages
from herdmesh.cli.display import listing, views
from herdmesh.cli.display.output import TASK_COLUMNS, colored, table, task_rows
from herdmesh.cli.errors import EXIT_USAGE, CommandError
from herdmesh.cli.mesh.client import HerderClient
from herdmesh.devstack.layout import StackState

_RECONNECT_S = 0.1
#: Time for which the view may be old without notice while the client looks for a leader; the search continues after it.
_PATIENCE_S = 1.0


class Board:
    """The connectors as the leader last reported them. `follow` runs until cancelled."""

    def __init__(self, names: Sequence[str] = ()) -> None:
        self.connectors: dict[str, views.Json] = {}
        self.trouble: str | None = "waiting for the herder"
        self.updated_s = 0.0
        self._names = list(names)

    async def follow(self, addresses: str, changed: Callable[[str, views.Json | None], None] | None = None) -> None:
        """Follow the leader's watch, over any number of fail-overs. `addresses` as `HerderClient` takes them; calls
        `changed(name, connector or None)` for each event.
        """
        async with HerderClient(addresses, patience_s=_PATIENCE_S) as client:
            while True:
                try:
                    await self._follow_once(client, changed)
                except CommandError as error:
                    if error.exit_code == EXIT_USAGE:
                        raise  # an address that can never work
                    self.trouble = error.message
                await asyncio.sleep(_RECONNECT_S)

    async def _follow_once(
        self, client: HerderClient, changed: Callable[[str, views.Json | None], None] | None
    ) -> None:
        request = messages.WatchConnectorsRequest(names=self._names)
        seen: set[str] = set()
        async for event in client.stream(lambda stub: stub.WatchConnectors, request):
            self.trouble, self.updated_s = None, time.monotonic()
            kind = event.WhichOneof("event")
            if kind in ("connector", "snapshot_part"):
                told = [event.connector] if kind == "connector" else event.snapshot_part.connectors
                for connector in told:
                    seen.add(connector.name)
                    self.connectors[connector.name] = views.connector(connector)
                    if changed is not None:
                        changed(connector.name, self.connectors[connector.name])
            elif kind == "deleted":
                self.connectors.pop(event.deleted, None)
                if changed is not None:
                    changed(event.deleted, None)
            elif kind == "snapshot_complete":
                for gone in self.connectors.keys() - seen:
                    del self.connectors[gone]

    def render(self, *, tasks: bool = True) -> RenderableType:
        """A table of connectors and, under it, one of tasks per connector."""
        listed = [self.connectors[name] for name in sorted(self.connectors)]
        parts: list[RenderableType] = []
        if self.trouble:
            parts.append(Text(self.trouble, style="yellow"))
        if not listed:
            parts.append(Text("no connectors yet; `herd apply -f FILE` creates one", style="dim"))
        else:
            parts.append(table("connectors", listing.DEFAULT_COLUMNS, listing.rows(listed, listing.DEFAULT_COLUMNS)))
        parts += [
            table(f"\ntasks of {escape(one['name'])}", TASK_COLUMNS, task_rows(one))
            for one in listed
            if tasks and one["tasks"]
        ]
        return Group(*parts)


def render_services(state: StackState) -> RenderableType:
    """The processes of a development stack."""
    rows = [
        [
            one.name,
            colored(one.state),
            one.address,
            str(one.mark.pid) if one.mark else "-",
            str(one.restarts),
            escape(one.detail if one.state in ("fetching", "restarting", "failed") else ""),
        ]
        for one in state.services
    ]
    return table("services", ("SERVICE", "STATE", "ADDRESS", "PID", "RESTARTS", ""), rows)
