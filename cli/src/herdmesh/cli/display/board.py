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

from herdmesh.api.herder.v1 import config_messages_pb2 as messages
from herdmesh.cli.display import listing, views
from herdmesh.cli.display.diagnosis import Level
from herdmesh.cli.display.output import TASK_COLUMNS, colored, table, task_rows
from herdmesh.cli.display.sentences import Sentence
from herdmesh.cli.display.urgency import by_urgency, summary, summary_line
from herdmesh.cli.errors import EXIT_USAGE, CommandError
from herdmesh.cli.mesh.client import HerderClient
from herdmesh.devstack.layout import StackState

_RECONNECT_S = 0.1
#: Time for which the view may be old without notice while the client looks for a leader; the search continues after it.
_PATIENCE_S = 1.0
#: Lines of a table that are no rows: blank, title, header.
_FRAME_LINES = 3
#: Lines of the summary and of the trouble above it.
_HEAD_LINES = 2


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

    def render(self, *, height: int | None = None) -> RenderableType:
        """The summary, a table of connectors and, under it, one of tasks per connector; those that need attention
        first. With a height, in lines, all that does not fit is left out and counted: a live picture cannot scroll.
        """
        judged = by_urgency(self.connectors.values())
        parts: list[RenderableType] = []
        if self.trouble:
            old = f"; the picture is {time.monotonic() - self.updated_s:.0f} s old" if self.updated_s else ""
            parts.append(Sentence(f"[yellow]{escape(self.trouble)}{old}[/]"))
        if not judged:
            parts.append(Sentence("[dim]no connectors yet; `herd apply -f FILE` creates one[/]"))
            return Group(*parts)
        listed = [one for _, one in judged]
        parts.append(Sentence(summary_line(summary(listed))))
        room = None if height is None else height - _HEAD_LINES * len(parts) - _FRAME_LINES
        shown = listed if room is None else listed[: _fitting(judged, room)]
        parts.append(table("\nconnectors", listing.DEFAULT_COLUMNS, listing.rows(shown, listing.DEFAULT_COLUMNS)))
        if len(shown) < len(listed):
            parts.append(Sentence(f"[dim]and {len(listed) - len(shown)} more; `herd get connectors` lists all[/]"))
            return Group(*parts)
        left = None if room is None else room - sum(map(_lines_of, judged))
        for one in (one for one in listed if one["tasks"]):
            if left is not None:
                left -= len(one["tasks"]) + _FRAME_LINES
                if left < 0:
                    break
            parts.append(table(f"\ntasks of {escape(one['name'])}", TASK_COLUMNS, task_rows(one)))
        return Group(*parts)


def _fitting(judged: Sequence[tuple[Level, views.Json]], lines: int) -> int:
    """How many connectors fit into so many lines, at least one."""
    total = sum(map(_lines_of, judged))
    if total <= lines:
        return len(judged)
    lines -= 1  # the line that counts the others
    for number, one in enumerate(judged):
        lines -= _lines_of(one)
        if lines < 0:
            return max(number, 1)
    return len(judged)


def _lines_of(judged: tuple[Level, views.Json]) -> int:
    """A connector that needs attention may have its reason below it."""
    return 1 if judged[0] is Level.OK else 2


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
