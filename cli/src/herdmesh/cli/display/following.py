"""The lines of `herd get --watch`: the table once, then a row for each change.

Owns the loop over the herder's watch (or over reads, for what has no watch), and which changes are worth a line.
Invariant: a row is printed only when one of its cells differs from its last row, counters and ages apart; else a busy
connector would print a line each second.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Final

from rich.markup import escape

from herdmesh.api.herder.v1 import config_messages_pb2 as messages
from herdmesh.api.herder.v1 import connector_pb2
from herdmesh.cli.display import listing, views
from herdmesh.cli.display.output import Format, colored, out, print_line
from herdmesh.cli.display.tables import ScreenTable
from herdmesh.cli.errors import CommandError
from herdmesh.cli.mesh.client import HerderClient

_RECONNECT_S: Final = 0.1
_READ_S: Final = 2.0
#: Reasons after which the watch is opened again: another herder takes over.
_REOPENED: Final = frozenset({"UNREACHABLE", "NO_LEADER", "NOT_LEADER", "SHUTTING_DOWN", "WATCH_OVERFLOW"})
#: Cells that change all the time.
_COUNTERS: Final = frozenset({"LAG", "UNCOMMITTED", "RECORDS", "REC/S", "AGE", "WHY", "USED", "WAITING"})


class RowPrinter:
    """Prints the first table, then rows below it in the same columns; documents in the formats for programs."""

    def __init__(self, output: Format, columns: Sequence[str], first: ScreenTable, *, kind: str = "") -> None:
        """`kind` is the noun before each name (`-o name`), "" = by the key that names the object."""
        self._output = output
        self._kind = kind
        self.columns = columns
        self._first = first
        first.is_followed = True
        states = [at for at, name in enumerate(columns) if name not in _COUNTERS]
        self._compared = states if len(states) > 1 else range(len(columns))
        self._last: dict[str, list[str]] = {}

    def begin(self, rows: dict[str, list[str]], listed: Sequence[views.Json]) -> None:
        """Print all that is there: row by name, and the documents."""
        self._last = {name: self._key(row) for name, row in rows.items()}
        if not self._output.is_document:
            out.print(self._first)
        for one in listed if self._output.is_document else ():
            print_line(self._output, one, kind=self._kind)

    def print(self, name: str, row: list[str], document: views.Json) -> None:
        """Print the new row of an object, unless it looks as before."""
        if self._last.get(name) == self._key(row):
            return
        self._last[name] = self._key(row)
        if self._output.is_document:
            print_line(self._output, document, kind=self._kind)
        else:
            made = ScreenTable(None, self._first.columns, [row])
            made.continue_after(self._first)
            out.print(made)

    def remove(self, name: str) -> None:
        """Print that an object is no longer there."""
        if self._last.pop(name, None) is None:
            return
        named = "NAME" if "NAME" in self.columns else self.columns[0]
        cells = {named: escape(name), "STATE": colored("DELETED")}
        self.print(name, [cells.get(one, "") for one in self.columns], {"name": name, "deleted": True})
        del self._last[name]

    def known(self, name: str) -> bool:
        """True when a row of this object is on the screen."""
        return name in self._last

    def _key(self, row: Sequence[str]) -> list[str]:
        return [row[at] for at in self._compared]


async def follow_connectors(
    client: HerderClient,
    names: Sequence[str],
    first: dict[str, views.Json],
    wanted: listing.Filter,
    rows: RowPrinter,
) -> None:
    """Print connectors as they change, until cancelled. One that no longer passes the filter is printed once more."""

    def row(one: views.Json) -> list[str]:
        return listing.rows([one], rows.columns)[0]

    rows.begin({name: row(one) for name, one in first.items()}, list(first.values()))
    async for event in _events(client, names):
        kind = event.WhichOneof("event")
        if kind == "deleted":
            rows.remove(event.deleted)
        for message in _connectors(event):
            one = views.connector(message)
            if wanted.keeps(one) or rows.known(one["name"]):
                rows.print(one["name"], row(one), one)


async def follow_workers(
    client: HerderClient, name: str | None, first: dict[str, views.Json], rows: RowPrinter
) -> None:
    """Print workers as they change, until cancelled."""

    def row(one: views.Json) -> list[str]:
        return listing.worker_table([one])[1][0]

    rows.begin({worker_id: row(one) for worker_id, one in first.items()}, list(first.values()))
    async for event in _events(client, ()):
        for message in _workers(event):
            one = views.worker(message)
            if name in (None, one["worker_id"]):
                rows.print(one["worker_id"], row(one), one)


#: Rows and documents by the name of the object.
Listed = Mapping[str, tuple[list[str], views.Json]]


async def follow_parts(
    client: HerderClient,
    names: Sequence[str],
    first: Listed,
    rows: RowPrinter,
    of_connector: Callable[[views.Json], Listed],
    of_worker: Callable[[views.Json], Listed] | None = None,
) -> None:
    """Print what is made of connectors (their tasks, for example) and of workers as it changes, until cancelled."""
    rows.begin({name: row for name, (row, _) in first.items()}, [one for _, one in first.values()])
    shown: dict[str, set[str]] = {}

    def show(owner: str, parts: Listed) -> None:
        for gone in sorted(shown.get(owner, set()) - parts.keys()):
            rows.remove(gone)
        shown[owner] = set(parts)
        for name, (row, one) in parts.items():
            rows.print(name, row, one)

    async for event in _events(client, names):
        if event.WhichOneof("event") == "deleted":
            show(event.deleted, {})
        for message in _connectors(event):
            one = views.connector(message)
            show(one["name"], of_connector(one))
        if of_worker is not None:
            for worker in _workers(event):
                for name, (row, one) in of_worker(views.worker(worker)).items():
                    rows.print(name, row, one)


async def follow_reads(read: Callable[[], Awaitable[Listed]], rows: RowPrinter) -> None:
    """Print objects of which the herder has no watch: read again and again, until cancelled."""
    known = await read()
    rows.begin({name: row for name, (row, _) in known.items()}, [one for _, one in known.values()])
    while True:
        await asyncio.sleep(_READ_S)
        try:
            found = await read()
        except CommandError as error:
            if error.reason not in _REOPENED:
                raise
            continue
        for gone in sorted(known.keys() - found.keys()):
            rows.remove(gone)
        for name, (row, one) in found.items():
            rows.print(name, row, one)
        known = found


def _workers(event: messages.WatchConnectorsResponse) -> Sequence[connector_pb2.Worker]:
    kind = event.WhichOneof("event")
    if kind == "worker":
        return [event.worker]
    return list(event.snapshot_part.workers) if kind == "snapshot_part" else []


def _connectors(event: messages.WatchConnectorsResponse) -> Sequence[connector_pb2.Connector]:
    kind = event.WhichOneof("event")
    if kind == "connector":
        return [event.connector]
    return list(event.snapshot_part.connectors) if kind == "snapshot_part" else []


async def _events(client: HerderClient, names: Sequence[str]) -> AsyncIterator[messages.WatchConnectorsResponse]:
    """The herder's events, over any number of fail-overs."""
    while True:
        try:
            request = messages.WatchConnectorsRequest(names=names)
            async for event in client.stream(lambda stub: stub.WatchConnectors, request):
                yield event
        except CommandError as error:
            if error.reason not in _REOPENED:
                raise
        await asyncio.sleep(_RECONNECT_S)
