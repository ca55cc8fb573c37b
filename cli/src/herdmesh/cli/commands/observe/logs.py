"""`herd logs`: the log lines of connectors, tasks, workers and services.

Owns the commands and their output. Lines of connectors, tasks and workers come from the workers, which keep the latest
of every unit; so they are found wherever a run is, or was. Lines of services come from the files of `herd up`; any
other service writes its log to standard output. Invariant: with -f no line is shown twice, and one that a
worker still had is not missed.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final, cast

import typer
from rich.markup import escape

from herdmesh.api.worker.v1 import worker_service_pb2 as pb
from herdmesh.cli import completion
from herdmesh.cli.commands.observe.worker_calls import WorkerCalls, list_workers
from herdmesh.cli.display import views
from herdmesh.cli.display.output import Format, err, out, print_document, print_line
from herdmesh.cli.errors import EXIT_USAGE, CommandError, from_reason
from herdmesh.cli.mesh.client import HerderClient
from herdmesh.cli.queries import fetch_connector, fetch_worker
from herdmesh.cli.runner import (
    DATA_DIR,
    DataOption,
    HerderOption,
    NameArgument,
    OutputOption,
    WorkerArgument,
    run,
    with_herder,
)
from herdmesh.cli.times import moment
from herdmesh.devstack.layout import StackLayout

_POLL_S: Final = 1.0
_WORKERS_S: Final = 5.0
_PAGE: Final = 1_000
_TAIL: Final = 200
_TASK: Final = re.compile(r"^(?P<connector>.+)/(?P<task>\d+)$")
_LEVELS: Final = {"warning": "yellow", "error": "red", "critical": "bold red", "debug": "dim"}
#: Fields of a logger's line that are shown in places of their own, or say which process wrote it (-o json has them).
_PLACED: Final = frozenset(("event", "level", "timestamp", "logger", "unit", "exception", "service", "instance"))
_OF_UNIT: Final = frozenset(("connector", "task"))
_MICROSECONDS: Final = re.compile(r"(?<=\.\d{3})\d+(?=Z$)")

FollowOption = Annotated[bool, typer.Option("--follow", "-f", help="Go on with new lines until Ctrl-C.")]
SinceOption = Annotated[
    str | None,
    typer.Option("--since", metavar="TIME", help="Only lines not older than: 90s, 15m, 2h, 7d, or a time (UTC)."),
]
TailOption = Annotated[int, typer.Option("--tail", "-n", min=1, max=_PAGE, help="Maximum number of earlier lines.")]

logs_app = typer.Typer(no_args_is_help=True, help="Show the log of a connector, a task, a worker or a service.")


@logs_app.command("connector")
def logs_connector(
    name: NameArgument,
    follow: FollowOption = False,
    since: SinceOption = None,
    tail: TailOption = _TAIL,
    herder: HerderOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Show the log lines of a connector and its tasks, from all workers that have run them."""

    async def work(client: HerderClient) -> None:
        await fetch_connector(client, name)
        await _show(client, pb.ListLogLinesRequest(connector=name), since, tail, output, follow=follow)

    with_herder(output, herder, work)


@logs_app.command("task")
def logs_task(
    task: Annotated[
        str, typer.Argument(metavar="CONNECTOR/TASK", help="For example orders/0.", autocompletion=completion.tasks)
    ],
    follow: FollowOption = False,
    since: SinceOption = None,
    tail: TailOption = _TAIL,
    herder: HerderOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Show the log lines of one task, from all workers that have run it."""
    named = _TASK.match(task)

    async def work(client: HerderClient) -> None:
        if named is None:
            text = f"{task} names no task"
            raise CommandError("USAGE", text, "Write CONNECTOR/TASK, for example orders/0.", EXIT_USAGE)
        found = await fetch_connector(client, named["connector"])
        number = int(named["task"])
        if not any(one["id"] == number for one in found["tasks"]):
            known = ", ".join(str(one["id"]) for one in found["tasks"]) or "none"
            raise from_reason("TASK_NOT_FOUND", f"{named['connector']} has no task {number}; its tasks: {known}")
        request = pb.ListLogLinesRequest(connector=named["connector"], task=number)
        await _show(client, request, since, tail, output, follow=follow)

    with_herder(output, herder, work)


@logs_app.command("worker")
def logs_worker(
    worker_id: WorkerArgument,
    follow: FollowOption = False,
    since: SinceOption = None,
    tail: TailOption = _TAIL,
    herder: HerderOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Show the log lines of a worker and of everything that runs on it."""

    async def work(client: HerderClient) -> None:
        await fetch_worker(client, worker_id)
        await _show(client, pb.ListLogLinesRequest(), since, tail, output, follow=follow, only=worker_id)

    with_herder(output, herder, work)


@logs_app.command("service")
def logs_service(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="config-store, status-store, herder, worker-1, broker.",
            autocompletion=completion.services,
        ),
    ],
    follow: FollowOption = False,
    since: SinceOption = None,
    tail: TailOption = _TAIL,
    data: DataOption = DATA_DIR,
    output: OutputOption = Format.TABLE,
) -> None:
    """Show the log of a process of `herd up`, from its file."""

    async def work() -> None:
        path = service_log(data, name)
        earliest = moment(since, datetime.now(UTC)) if since else None
        lines = [one for one in _tail_of(path, tail) if _is_since(one, earliest)]
        if output.is_document and not follow:
            print_document(output, lines)
            return
        show = _printer(output)
        for one in lines:
            show(one)
        if follow:
            async for one in appended_lines(path):
                show(one)

    run(output, work)


def service_log(data_dir: Path, name: str) -> Path:
    """The log file of a process of `herd up`. Raises CommandError that lists the existing ones."""
    layout = StackLayout(data_dir)
    known = {path.stem: path for path in sorted(layout.logs_dir.glob("*.log"))}
    known |= {path.stem: path for path in layout.broker_dir.glob("broker.log")}
    if name in known:
        return known[name]
    if not known:
        raise CommandError(
            "USAGE",
            f"there are no logs in {data_dir}: `herd up` has not run there",
            "A service started otherwise logs to standard output: read it where it runs (journalctl, docker logs).",
            EXIT_USAGE,
        )
    text = f"no service {name} in {data_dir}; there are: {', '.join(known)}"
    raise CommandError("USAGE", text, "`herd logs worker ID` reads the log of a worker elsewhere.", EXIT_USAGE)


async def _show(
    client: HerderClient,
    request: pb.ListLogLinesRequest,
    since: str | None,
    tail: int,
    output: Format,
    *,
    follow: bool,
    only: str = "",
) -> None:
    if since:
        request.since.FromDatetime(moment(since, datetime.now(UTC)))
    request.page_size = tail
    async with WorkerCalls() as calls:
        followed = FollowedLines(calls, request)
        workers = [one for one in await list_workers(client) if only in ("", one["worker_id"])]
        lines = (await followed.first(workers))[-tail:]
        if output.is_document and not follow:
            print_document(output, lines)
        else:
            show = _printer(output)
            for one in lines:
                show(one)
            if not lines and not follow:
                err.print("[dim]no lines are kept; -f waits for new ones[/]")
        for worker_id, why in calls.silent.items():
            err.print_sentence(f"[yellow]worker {escape(worker_id)} does not answer:[/] {escape(why)}")
        if followed.cut and not follow:
            err.print("[dim]earlier lines left out: a larger --tail, or the worker's own log, has more[/]")
        if follow:
            await _follow(followed, lambda: list_workers(client), only, _printer(output))


async def _follow(
    followed: FollowedLines,
    workers: Callable[[], Awaitable[list[views.Json]]],
    only: str,
    show: Callable[[views.Json], None],
) -> None:
    loop = asyncio.get_running_loop()
    known, at_s = await workers(), loop.time()
    while True:
        await asyncio.sleep(_POLL_S)
        if loop.time() - at_s >= _WORKERS_S:
            known, at_s = await workers(), loop.time()
        for one in await followed.more([one for one in known if only in ("", one["worker_id"])]):
            show(one)


class FollowedLines:
    """The lines of all workers: how far each was read."""

    def __init__(self, calls: WorkerCalls, request: pb.ListLogLinesRequest) -> None:
        self._calls = calls
        self._request = request
        self._read: dict[str, tuple[str, int]] = {}
        """Worker id -> incarnation of its process, and the number of the last line that was read."""
        self.cut = False

    async def first(self, workers: list[views.Json]) -> list[views.Json]:
        """The latest lines, by time."""
        found: list[views.Json] = []
        for worker, reply in await self._calls.call_all(workers, "ListLogLines", self._request):
            found += self._taken(worker, reply)
            self.cut = self.cut or reply.cut
        return sorted(found, key=_time_of)

    async def more(self, workers: list[views.Json]) -> list[views.Json]:
        """The lines since the last call, by time."""
        replies = await asyncio.gather(*(self._rest_of(one) for one in workers if one["state"] != "LOST"))
        return sorted((line for lines in replies for line in lines), key=_time_of)

    async def _rest_of(self, worker: views.Json) -> list[views.Json]:
        found: list[views.Json] = []
        incarnation, number = self._read.get(worker["worker_id"], ("", 0))
        while True:
            request = pb.ListLogLinesRequest(page_size=_PAGE)
            request.MergeFrom(self._request)
            request.page_size, request.after_number = _PAGE, number
            reply = await self._calls.call(worker, "ListLogLines", request)
            if reply is None:
                return found
            if incarnation and reply.incarnation != incarnation and number:
                incarnation, number = reply.incarnation, 0  # the worker was started again
                continue
            found += self._taken(worker, reply)
            number = reply.last_number
            if not reply.more:
                return found

    def _taken(self, worker: views.Json, reply: Any) -> Iterator[views.Json]:
        self._read[worker["worker_id"]] = (reply.incarnation, reply.last_number)
        for one in reply.lines:
            yield {"worker_id": worker["worker_id"], **views.log_line(one)}


def _time_of(line: views.Json) -> str:
    # seconds without a fraction sort before those with one
    return str(line["time"]).replace("Z", "")


def _printer(output: Format) -> Callable[[views.Json], None]:
    if output.is_document:
        return lambda line: print_line(output, line)
    return lambda line: out.print(readable(line), soft_wrap=True)


def readable(line: views.Json) -> str:
    """One line for people, as markup: time, level, unit, event, fields. A line of no logger is shown as written."""
    fields = _fields(line["text"])
    unit = _unit(line)
    if fields is None:
        time = f"[dim]{line['time']}[/] " if line["time"] else ""
        return f"{time}{unit}{escape(line['text'])}"
    level = str(fields.get("level", "info"))
    style = _LEVELS.get(level)
    time = _MICROSECONDS.sub("", str(fields.get("timestamp") or line["time"] or ""))
    head = f"[dim]{escape(time)}[/] " if time else ""
    shown_level = f"[{style}]{level:<7}[/]" if style else f"{level:<7}"
    hidden = _PLACED | _OF_UNIT if unit else _PLACED
    shown = {key: value for key, value in fields.items() if key not in hidden and value is not None}
    rest = " ".join(f"[dim]{escape(key)}=[/]{escape(_text(value))}" for key, value in shown.items())
    trace = f"\n{escape(str(fields['exception']))}" if fields.get("exception") else ""
    return f"{head}{shown_level} {unit}{escape(str(fields.get('event', '')))}{' ' if rest else ''}{rest}{trace}"


def _unit(line: views.Json) -> str:
    if not line.get("connector"):
        return ""
    task = "" if line["task"] is None else f"/{line['task']}"
    return f"[bold]{escape(line['connector'])}{task}[/] "


def _text(value: Any) -> str:
    is_word = isinstance(value, str) and value and not re.search(r"[\s\"=]", value)
    return value if is_word else json.dumps(value, ensure_ascii=False)


def _fields(text: str) -> dict[str, Any] | None:
    if not text.startswith("{"):
        return None
    try:
        found: Any = json.loads(text)
    except ValueError:
        return None
    return cast("dict[str, Any]", found) if isinstance(found, dict) and "event" in found else None


def _tail_of(path: Path, lines: int) -> list[views.Json]:
    """The last lines of a file; of a large file only its end is read."""
    with path.open("rb") as file:
        size = path.stat().st_size
        file.seek(max(0, size - lines * 2_000))
        texts = file.read().decode("utf-8", "replace").splitlines()
    if size > lines * 2_000:
        texts = texts[1:]
    return [_of_file(one) for one in texts[-lines:]]


def _of_file(text: str) -> views.Json:
    fields = _fields(text)
    return {"time": fields.get("timestamp") if fields else None, "text": text}


def _is_since(line: views.Json, earliest: datetime | None) -> bool:
    if earliest is None:
        return True
    if not line["time"]:
        return False
    return datetime.fromisoformat(line["time"]).astimezone(UTC) >= earliest.astimezone(UTC)


async def appended_lines(path: Path) -> AsyncIterator[views.Json]:
    """Lines as they are appended; a file that was rotated is read from its beginning."""
    position, rest = _size_of(path), b""
    while True:
        await asyncio.sleep(_POLL_S / 4)
        if (size := _size_of(path)) < position:
            position, rest = 0, b""
        if size == position:
            continue
        read = _read(path, position, size - position)
        position += len(read)
        *lines, rest = (rest + read).split(b"\n")
        for one in lines:
            yield _of_file(one.decode("utf-8", "replace"))


def _size_of(path: Path) -> int:
    """Bytes of a file; 0 while it is being replaced."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _read(path: Path, position: int, size: int) -> bytes:
    with path.open("rb") as file:
        file.seek(position)
        return file.read(size)
