"""Tests of batches: Ctrl-C, repetition after a lost leader, the line of progress."""

from __future__ import annotations

import asyncio
import io
import os
import signal
from typing import Any

import pytest

from herdmesh.api.herder.v1 import config_messages_pb2 as messages
from herdmesh.api.worker.v1 import worker_service_pb2 as worker_service
from herdmesh.cli.__main__ import main
from herdmesh.cli.batch.sending import BatchOutcomes, ChangeBatch, send
from herdmesh.cli.display.output import OutputConsole
from herdmesh.cli.display.progress import ProgressLine
from herdmesh.cli.errors import CommandError, from_reason
from herdmesh.rpc import gc_at_import, properties
from tests.support.batch_herder import BatchHerder

NAMES: tuple[str, ...] = ("a", "b", "c")


class Herder(BatchHerder):
    """A herder during whose change of one connector somebody presses Ctrl-C, once or twice."""

    def __init__(self, interrupted_at: str = "", *, twice: bool = False, invalid: str = "") -> None:
        super().__init__()
        self.changed: list[str] = []
        self.interrupted_at = interrupted_at
        self.twice = twice
        self.invalid = invalid
        self.without_worker = ""

    async def call(self, _method: Any, request: Any) -> Any:
        if isinstance(request, messages.ValidateConfigRequest):
            name = request.config.entries["name"].text
            if name == self.without_worker:
                self.without_worker = ""
                raise from_reason("NO_WORKER", "no worker is connected")
            field = worker_service.ConfigField(name="x", errors=["is wrong"])
            found = worker_service.ConfigValidation(fields=[field] if name == self.invalid else [])
            return messages.ValidateConfigResponse(validation=found)
        if request.name == self.interrupted_at:
            os.kill(os.getpid(), signal.SIGINT)
            await self.stopped.wait()
            if self.twice:
                os.kill(os.getpid(), signal.SIGINT)
                await asyncio.Event().wait()
        self.changed.append(request.name)
        return messages.UpdateConnectorResponse(created=True)


async def _send(herder: Herder, **more: Any) -> BatchOutcomes[str, str]:
    def change_of(name: str) -> messages.UpdateConnectorRequest:
        return messages.UpdateConnectorRequest(name=name, config=properties.to_proto({"name": name}), request_id=name)

    batch = ChangeBatch(NAMES, change_of=change_of, result_of=lambda name, _: f"made {name}", verb="applied", **more)
    return await send(herder, batch)  # pyright: ignore[reportArgumentType] - stands in for HerderClient


async def test_ctrl_c_completes_what_was_begun_and_names_what_was_not(capfd: pytest.CaptureFixture[str]) -> None:
    shown: list[str] = []
    herder = Herder("b")
    before = signal.getsignal(signal.SIGINT)
    sent = await _send(herder, show=shown.append)
    assert herder.changed == ["a", "b"]
    assert shown == sent.results == ["made a", "made b"]
    assert sent.interrupted is not None
    assert sent.interrupted.message == "interrupted: 2 of 3 applied; not applied: c"
    assert sent.interrupted.exit_code == 130
    assert signal.getsignal(signal.SIGINT) is before
    assert capfd.readouterr().err == "interrupted: what was begun is completed; Ctrl-C again does not wait for it\n"


async def test_a_second_ctrl_c_does_not_wait_and_says_what_is_not_known() -> None:
    herder = Herder("b", twice=True)
    sent = await _send(herder)
    assert sent.results == ["made a"]
    assert sent.interrupted is not None
    assert sent.interrupted.message == "interrupted: 1 of 3 applied; not known: b, c"


async def test_ctrl_c_behind_the_last_change_interrupts_nothing() -> None:
    sent = await _send(Herder("c"))
    assert (sent.results, sent.interrupted) == (["made a", "made b", "made c"], None)


async def test_a_change_without_a_worker_is_sent_again() -> None:
    herder = Herder()
    herder.without_worker = "b"
    sent = await _send(herder)
    assert (sent.results, herder.changed) == (["made a", "made b", "made c"], ["a", "b", "c"])


async def test_nothing_is_made_in_a_later_round_when_a_config_is_invalid() -> None:
    herder = Herder(invalid="a")
    herder.without_worker = "b"
    sent = await _send(herder)
    assert ([name for name, _ in sent.failed], sent.results, herder.changed) == (["a"], [], [])


async def test_an_error_of_the_whole_batch_is_raised_once() -> None:
    herder = Herder()

    async def call(_method: Any, _request: Any) -> Any:
        raise from_reason("NO_WORKER", "no worker is connected")

    herder.call = call  # type: ignore[method-assign]
    with pytest.raises(CommandError, match="no worker is connected"):
        await _send(herder)


def test_ctrl_c_while_the_command_is_loaded_ends_without_a_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(gc_at_import, "begin", interrupted)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_drawn_on_a_terminal_and_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    terminal = _Terminal()
    console = OutputConsole(terminal)
    console.file = terminal
    progress = ProgressLine(4, console)
    progress.show("applied", 1)
    progress.show("applied", 2)  # too soon
    progress.clear()
    progress.clear()
    assert terminal.getvalue() == "\r\x1b[K[######------------------] applied 1 of 4\r\x1b[K"


@pytest.mark.parametrize(
    ("total", "is_shown", "stream"), [(1, True, _Terminal()), (4, False, _Terminal()), (4, True, io.StringIO())]
)
def test_no_progress_is_drawn_for_one_item_for_programs_and_in_pipes(
    total: int, is_shown: bool, stream: io.StringIO
) -> None:
    console = OutputConsole(stream)
    console.file = stream
    ProgressLine(total, console, is_shown=is_shown).show("applied", 1)
    assert stream.getvalue() == ""
