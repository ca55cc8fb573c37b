"""`herd dlq list|show|replay`: a connector's dead letters, with their causes, and their replay.

Owns the three commands. A worker reads and replays, because it has the connector's clients and converters. Invariant: a
repeated request keeps its request id, so that no dead letter is replayed twice by accident.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from herdmesh.api.herder.v1 import admin_messages_pb2 as admin
from herdmesh.cli.display import dead_letters, traces
from herdmesh.cli.display.output import Format, err, out, print_document, table
from herdmesh.cli.display.views import Json
from herdmesh.cli.errors import EXIT_CODES, EXIT_USAGE, CommandError
from herdmesh.cli.mesh.client import HerderClient
from herdmesh.cli.runner import HerderOption, NameArgument, OutputOption, VerboseOption, with_herder
from herdmesh.cli.times import moment
from herdmesh.rpc.request_ids import new_request_id

dlq_app = typer.Typer(
    no_args_is_help=True, help="Dead letters: records that a connector could not process. List, correct, replay."
)

_PAGE_SIZE = 1_000
_LABEL_WIDTH = 11
_SHOWN = 50
_LETTERS_MAX = 1_000
_REPLAY_BYTES_MAX = 8 * 1024 * 1024
_NOTE_READERS = (
    "Other consumers of the topic to which a sink's dead letters are replayed read them again, after all newer records."
)
_CUT = (
    "the record was too large for the queue, so key and value are cut or missing; the whole record is at "
    "`from`, and `herd dlq replay` reads it there"
)


@dlq_app.command("list")
def list_dead_letters(
    name: NameArgument,
    stage: Annotated[
        str,
        typer.Option(
            "--stage", metavar="STAGE", help="Only those that failed in this stage: VALUE_CONVERTER, TASK_PUT..."
        ),
    ] = "",
    error: Annotated[
        str,
        typer.Option("--error", metavar="TEXT", help="Only those with this text in the exception's class or message."),
    ] = "",
    since: Annotated[
        str,
        typer.Option("--since", metavar="TIME", help="Only records not older than: 90s, 15m, 2h, 7d, or a time (UTC)."),
    ] = "",
    replayed: Annotated[bool, typer.Option("--replayed", help="Also those that were replayed.")] = False,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=0, metavar="N", help="Maximum number to list; 0 = all.")
    ] = _SHOWN,
    herder: HerderOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """List dead letters that were not replayed, newest first. Times are those of the records: a queue has no others.

    Of a queue that connectors share, only this connector's are listed, and those that name no connector, because they
    were written without errors.deadletterqueue.context.headers.enable=true. -o wide has more columns and cuts nothing;
    the output of -o json is the input of `herd dlq replay -f`.
    """
    brief = output == Format.TABLE
    request = admin.ListDeadLettersRequest(name=name, include_replayed=replayed, stage=stage, error=error)
    request.view = admin.DEAD_LETTER_VIEW_BRIEF if brief else admin.DEAD_LETTER_VIEW_FULL

    async def work(client: HerderClient) -> None:
        if since:
            request.since.FromDatetime(moment(since, datetime.now(UTC)))
        found: list[Json] = []
        more = False
        async for queue, letter in _fetched(client, request, limit):
            if limit and len(found) == limit:
                more = True
                break
            shown = dead_letters.brief(name, queue, letter) if brief else dead_letters.document(name, queue, letter)
            found.append(shown)
        if output.is_document:
            print_document(output, found)
            return
        if not found:
            left = "" if replayed else " are left"
            out.print_sentence(f"no dead letters of [bold]{escape(name)}[/]{left}")
            return
        out.print(_listed(found, wide=not brief, replayed=replayed))
        _hint_at_headers(found)
        if more:
            err.print(f"[dim]the newest {limit}; there are more: --limit 0 shows all[/]")

    with_herder(output, herder, work)


@dlq_app.command("show")
def show(
    name: NameArgument,
    place: Annotated[str, typer.Argument(metavar="PARTITION:OFFSET", help="As `herd dlq list` shows it.")],
    herder: HerderOption = None,
    output: OutputOption = Format.TABLE,
    verbose: VerboseOption = False,
) -> None:
    """Show one dead letter in full: its error, its origin, key, value, headers, stack trace.

    The output of -o json can be edited (key, value, headers, original.topic and original.partition) and replayed with
    `herd dlq replay NAME -f FILE`.
    """

    async def work(client: HerderClient) -> None:
        request = admin.ListDeadLettersRequest(name=name, places=[dead_letters.place_of(place)])
        reply = await client.call(lambda stub: stub.ListDeadLetters, request)
        if not reply.letters:
            text = f"{reply.topic} has no dead letter {place} of {name} (any more)"
            raise CommandError("DEAD_LETTER_NOT_FOUND", text, f"`herd dlq list {name}` lists them.", 3)
        shown = dead_letters.document(name, reply.topic, reply.letters[0])
        if output.is_document:
            print_document(output, shown)
        else:
            _print_letter(shown, verbose=verbose)

    with_herder(output, herder, work)


@dlq_app.command("replay", epilog=_NOTE_READERS)
def replay(
    name: NameArgument,
    places: Annotated[
        list[str] | None, typer.Argument(metavar="PARTITION:OFFSET", help="Replay these, all or none.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Replay all that exist now.")] = False,
    files: Annotated[
        list[str] | None,
        typer.Option(
            "-f", "--file", metavar="FILE|-", help="Dead letters in the form of -o json of show or list, corrected."
        ),
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Also those that were replayed before.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would go where, and change nothing.")] = False,
    herder: HerderOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Replay dead letters, each once, oldest first, in transactions: a letter that is not replayed stays a dead letter.

    A sink's go to the topic and partition they were read from, with their key, time and headers. A source's go through
    the connector's current transformations and converters, to the topic that results.
    """
    given = [*(places or ()), *(files or ())]
    if everything == bool(given):
        raise typer.BadParameter("name dead letters (PARTITION:OFFSET, or -f FILE), or all of them with --all")

    async def work(client: HerderClient) -> None:
        named = [_named(place) for place in places or ()]
        for file in files or ():
            named += dead_letters.read(name, file, _read(file))
        named.sort(key=lambda letter: (letter.partition, letter.offset))
        base = admin.ReplayDeadLettersRequest(name=name, again=again, dry_run=dry_run)
        done: Json = {"connector": name, "dry_run": dry_run, "replayed_count": 0, "replayed": [], "refused": []}
        steps = _steps(client, base) if everything else _chunks(client, base, named)
        async for reply in steps:
            _add(done, reply)
            if reply.next_page_token and not output.is_document:
                err.print(f"[dim]{done['replayed_count']:,} replayed[/]")
        if output.is_document:
            print_document(output, done)
        else:
            _print_replayed(done)
        if done["refused"]:
            raise typer.Exit(EXIT_CODES["DEAD_LETTERS_REFUSED"])

    with_herder(output, herder, work)


async def _fetched(
    client: HerderClient, request: admin.ListDeadLettersRequest, limit: int
) -> AsyncIterator[tuple[str, admin.DeadLetter]]:
    """Yield queue and dead letter, page by page; one more than the limit, which shows that there are more."""
    request.page_size = min(limit + 1, _PAGE_SIZE) if limit else _PAGE_SIZE
    while True:
        reply = await client.call(lambda stub: stub.ListDeadLetters, request)
        for letter in reply.letters:
            yield reply.topic, letter
        if not reply.next_page_token:
            return
        request.page_token = reply.next_page_token


async def _steps(client: HerderClient, base: admin.ReplayDeadLettersRequest) -> AsyncIterator[Any]:
    """Replay all dead letters that exist now, step by step."""
    while True:
        base.request_id = new_request_id()
        reply = await client.call(lambda stub: stub.ReplayDeadLetters, base)
        yield reply
        if not reply.next_page_token:
            return
        base.page_token = reply.next_page_token


async def _chunks(
    client: HerderClient, base: admin.ReplayDeadLettersRequest, named: list[admin.DeadLetter]
) -> AsyncIterator[Any]:
    """Replay named dead letters, in requests of as many as one transaction takes."""
    while named:
        size_bytes, count = 0, 0
        for letter in named[:_LETTERS_MAX]:
            size_bytes += letter.ByteSize()
            if count and size_bytes > _REPLAY_BYTES_MAX:
                break
            count += 1
        chunk, named = named[:count], named[count:]
        request = admin.ReplayDeadLettersRequest(request_id=new_request_id(), letters=chunk)
        request.MergeFrom(base)
        yield await client.call(lambda stub, request=request: stub.ReplayDeadLetters, request)


def _named(place: str) -> admin.DeadLetter:
    found = dead_letters.place_of(place)
    return admin.DeadLetter(partition=found.partition, offset=found.offset)


def _read(file: str) -> str:
    if file == "-":
        return sys.stdin.read()
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError("USAGE", f"{file}: {error}", exit_code=EXIT_USAGE) from None


# --- printing


def _listed(found: Iterable[Json], *, wide: bool, replayed: bool) -> Any:
    columns = ["LETTER", "TIME", "STAGE", "ERROR", "ORIGINAL", "MESSAGE"]
    if wide:
        columns[4:4] = ["TASK", "FAILED IN", "ATTEMPT"]
    if replayed:
        columns.append("PUT BACK")
    rows: list[list[str]] = []
    now = datetime.now(UTC)
    for one in found:
        error, message = one["error"], one["error"]["message"] or "-"
        exception = error["exception"] or "-"
        cells = {
            "LETTER": one["letter"],
            "TIME": _time(one["time"], now, wide=wide),
            "STAGE": error["stage"] or "-",
            "ERROR": exception if wide else exception.rpartition(".")[2],
            "TASK": "-" if one["task"] is None else str(one["task"]),
            "FAILED IN": error["class"] or "-",
            "ATTEMPT": str(dead_letters.attempts(one)) if wide else "",
            "ORIGINAL": _original(one),
            "MESSAGE": ("(cut, too large) " if one["cut"] else "") + " ".join(message.split()),
            "PUT BACK": "yes" if one["replayed"] else "",
        }
        rows.append([escape(cells[column]) for column in columns])
    drop = ("TASK", "FAILED IN", "ATTEMPT", "STAGE", "ORIGINAL", "TIME")
    return table(None, columns, rows, () if wide else ("ORIGINAL", "MESSAGE"), drop=drop)


def _hint_at_headers(found: Sequence[Json]) -> None:
    """Say why the cause of a dead letter is not known, and what makes it known."""
    bare = sum(one["error"]["stage"] is None and one["original"]["topic"] is None for one in found)
    if bare:
        text = (
            f"{bare} of {len(found)} have no cause, because they were written without context headers; "
            "errors.deadletterqueue.context.headers.enable=true in the connector's config adds them to the next ones"
        )
        err.print(f"[yellow]note:[/] {text}", soft_wrap=True)


def _time(text: str | None, now: datetime, *, wide: bool) -> str:
    """`2026-11-22 08:00:00`; in a narrow list only the time if it is of today, else only the date."""
    if text is None:
        return "-"
    date, _, time = text.removesuffix("Z").partition("T")
    time = time.partition(".")[0]
    if wide:
        return f"{date} {time}"
    return time if date == now.date().isoformat() else date


def _original(one: Json) -> str:
    original = one["original"]
    if original["topic"] is None:
        return "-"
    partition, offset = original["partition"], original["offset"]
    where = "" if partition is None else f"-{partition}"
    return f"{original['topic']}{where}" + ("" if offset is None else f"@{offset}")


def _print_letter(shown: Json, *, verbose: bool) -> None:
    error = shown["error"]
    lines = {
        "letter": f"{shown['letter']} of {shown['queue']}{'; replayed before' if shown['replayed'] else ''}",
        "cut": _CUT if shown["cut"] else None,
        "time": shown["time"],
        "from": _original(shown),
        "task": shown["task"],
        "attempt": dead_letters.attempts(shown),
        "stage": error["stage"],
        "failed in": error["class"],
        "exception": error["exception"],
        "message": error["message"],
    }
    for label, value in lines.items():
        if value is not None:
            out.print_sentence(f"[bold dim]{label:<10}[/] {escape(str(value))}", hang=_LABEL_WIDTH)
    for one in shown["headers"]:
        text = _shown(one["value"], one["encoding"])
        out.print(f"[bold dim]{'header':<10}[/] {escape(one['name'])}: {escape(text)}", soft_wrap=True)
    for label in ("key", "value"):
        out.print(
            f"[bold dim]{label:<10}[/] {escape(_shown(shown[label], shown[label + '_encoding']))}", soft_wrap=True
        )
    if error["stacktrace"]:
        whole = error["stacktrace"].rstrip()
        trace, hidden = (whole, 0) if verbose else traces.shortened(whole)
        out.print(f"\n{escape(trace)}", soft_wrap=True)
        if hidden:
            out.print(f"[dim]{hidden} frames of libraries are left out; -v shows them[/]")


def _shown(text: str | None, encoding: str | None) -> str:
    """Text where a terminal can show it, else hex."""
    if text is None:
        return "null"
    if encoding == "utf-8" and dead_letters.is_plain(text):
        return text
    data = dead_letters.decoded(text, encoding)
    return f"0x{data.hex()} ({len(data)} bytes)"


def _add(done: Json, reply: Any) -> None:
    done["replayed_count"] += reply.replayed_count
    for one in reply.replayed:
        partition = one.partition if one.HasField("partition") else None
        place = dead_letters.place_text(one.place)
        done["replayed"].append({"letter": place, "topic": one.topic, "partition": partition})
    for one in reply.refused:
        done["refused"].append({"letter": dead_letters.place_text(one.place), "reason": one.reason})


def _print_replayed(done: Json) -> None:
    count, name = done["replayed_count"], escape(done["connector"])
    letters_text = "1 dead letter" if count == 1 else f"{count:,} dead letters"
    topics: dict[str, int] = {}
    for one in done["replayed"]:
        topics[one["topic"]] = topics.get(one["topic"], 0) + 1
        if done["dry_run"]:
            to = one["topic"] if one["partition"] is None else f"{one['topic']}-{one['partition']}"
            out.print(f"{one['letter']} -> {escape(to)}", soft_wrap=True)
    where = ", ".join(f"{number:,} to {escape(topic)}" for topic, number in sorted(topics.items()))
    did = "would be replayed" if done["dry_run"] else "replayed"
    out.print_sentence(f"{letters_text} of [bold]{name}[/] {did}{f': {where}' if where else ''}")
    for one in done["refused"]:
        err.print_sentence(f"  {one['letter']} not replayed: {escape(one['reason'])}")
