"""The output of `herd up` while it runs: a live picture on a terminal, lines everywhere else, one document with `-o
json`.

Owns the pictures and lines. Starts and stops nothing.

Invariant: each line is written when its event happens, also into a file or a pipe, and the last line says how it ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from typing import Protocol

from rich.console import Group
from rich.live import Live
from rich.markup import escape
from rich.text import Text

from herdmesh.cli.display import views
from herdmesh.cli.display.board import Board, render_services
from herdmesh.cli.display.connector_lines import ConnectorLines
from herdmesh.cli.display.output import Format, err, out, print_line
from herdmesh.cli.mesh.stack_context import StackContext
from herdmesh.devstack.layout import StackState
from herdmesh.devstack.stack import Stack
from herdmesh.devstack.supervision.state_lines import StateLines

#: Lines of the picture around services and connectors.
_OWN_LINES = 9
_HINTS = {
    "starting": "starting; Ctrl-C stops",
    "running": "Ctrl-C stops all in order",
    "stopping": "stopping in order; Ctrl-C again ends all at once",
}


def where_lines(state: StackState, data_dir: object, named: Sequence[str]) -> list[str]:
    """The lines that follow the table of services: addresses, folder, notices. Markup.

    `named`: the lines about the stack's context.
    """
    lines = [f"Kafka serves at {state.bootstrap_servers}, the herder at {state.herder}."]
    lines.append(escape(f"Data and logs are in {data_dir}; `herd paths` lists what is where."))
    lines += map(escape, named)
    return [*lines, *(f"[yellow]note[/] {escape(one)}" for one in state.notices)]


class StartProgress:
    """The line that says what `herd up --detach` waits for. On a terminal it is drawn again; elsewhere it is printed
    only when jars are fetched, which takes a minute or more.
    """

    def __init__(self) -> None:
        self._status = err.status("starting")
        self._text = ""

    def __enter__(self) -> StartProgress:
        self._status.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._status.stop()

    def show(self, state: StackState) -> None:
        """Show what the start waits for now."""
        fetching = next((one.detail for one in state.services if one.state == "fetching"), "")
        waiting = ", ".join(one.name for one in state.services if one.state != "serving")
        text = f"fetching {fetching}" if fetching else f"starting {waiting or 'services'}"
        if text == self._text:
            return
        self._text = text
        if err.is_terminal:
            self._status.update(escape(text))
        elif fetching:
            err.print(escape(text), soft_wrap=True)


class StackView(Protocol):
    """Output of a stack that starts, runs and stops."""

    def __enter__(self) -> StackView: ...

    def __exit__(self, *exception: object) -> None: ...

    def refresh(self) -> None:
        """Show the present state."""

    def enter(self, phase: str) -> None:
        """Show that a phase begins: starting, running, stopping; then stopped or failed."""

    def name(self, context: StackContext) -> None:
        """Set the context of the stack, which is shown from the phase `running` on."""


def view_of(stack: Stack, output: Format) -> StackView:
    """The view for this output."""
    if output.is_document:
        return _Document(stack, output)
    return _Picture(stack) if out.is_terminal else _Lines(stack)


class _Picture:
    """A picture that is drawn again in place."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._board = Board()
        self._following: asyncio.Task[None] | None = None
        self._phase = "starting"
        self._named: Sequence[str] = ()
        self._live = Live(self._drawn(), console=out, auto_refresh=False)

    def __enter__(self) -> StackView:
        self._live.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._following is not None:
            self._following.cancel()
        self._live.stop()

    def refresh(self) -> None:
        self._live.update(self._drawn(), refresh=True)

    def enter(self, phase: str) -> None:
        self._phase = phase
        if phase == "running":
            self._following = asyncio.create_task(self._board.follow(self._stack.state.herder))
        elif self._following is not None:
            self._following.cancel()
        self.refresh()

    def name(self, context: StackContext) -> None:
        self._named = context.lines()

    def _drawn(self) -> Group:
        state = self._stack.state
        parts = [render_services(state), Text()]
        if self._phase == "running":
            where = "\n".join(where_lines(state, self._stack.layout.data_dir, self._named))
            parts += [
                Text.from_markup(where),
                Text(),
                self._board.render(height=max(out.height - len(state.services) - _OWN_LINES, 1)),
                Text(),
            ]
        return Group(*parts, Text(_HINTS.get(self._phase, self._phase), style="dim"))


class _Lines:
    """A line for each change of a service or a connector."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._services = StateLines()
        self._connectors = ConnectorLines()
        self._named: Sequence[str] = ()
        self._waiting: list[str] = []
        """Lines of connectors. Printed by `refresh`: its caller handles a closed output, the watch could not."""
        self._following: asyncio.Task[None] | None = None

    def __enter__(self) -> StackView:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._following is not None:
            self._following.cancel()

    def refresh(self) -> None:
        lines = [*map(escape, self._services.changes(self._stack.state)), *self._waiting]
        self._waiting.clear()
        for line in lines:
            out.print(line, soft_wrap=True)

    def enter(self, phase: str) -> None:
        self.refresh()
        if phase == "running":
            state = self._stack.state
            where = (f"Kafka serves at {state.bootstrap_servers}", f"the herder at {state.herder}")
            out.print(f"running: {', '.join(where)}; data and logs are in {escape(str(self._stack.layout.data_dir))}")
            for line in self._named:
                out.print(escape(line), soft_wrap=True)
            self._following = asyncio.create_task(Board().follow(state.herder, self._on_change))
        else:
            if self._following is not None:
                self._following.cancel()
            out.print(phase)

    def name(self, context: StackContext) -> None:
        self._named = context.lines()

    def _on_change(self, name: str, connector: views.Json | None) -> None:
        change = self._connectors.change(name, connector)
        if change is not None:
            self._waiting.append(change[0])


class _Document:
    """One JSON document, when the stack is ready."""

    def __init__(self, stack: Stack, output: Format) -> None:
        self._stack = stack
        self._output = output
        self._context: str | None = None

    def __enter__(self) -> StackView:
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def refresh(self) -> None:
        pass

    def enter(self, phase: str) -> None:
        if phase == "running":
            print_line(self._output, {**asdict(self._stack.state), "context": self._context})

    def name(self, context: StackContext) -> None:
        self._context = context.name
