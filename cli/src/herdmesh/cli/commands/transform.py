"""`herd transform`: a chain of converters and transformations, tried on records from a file or standard input.

Owns the command: its options, the summary, exit codes. Reading, running and showing: `herdmesh.cli.transform`.

Invariant: imports nothing of a cluster; standard output has records only, everything else goes to standard error.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, BinaryIO, Final

import typer

from herdmesh.cli.errors import EXIT_INTERNAL, EXIT_USAGE, CommandError
from herdmesh.cli.output import Format, print_error
from herdmesh.cli.transform.chain_file import Config, read_config, read_worker, without_references
from herdmesh.cli.transform.explaining import explained, measured
from herdmesh.cli.transform.reading import BadLine, Direction, Form, Given, Reader, line_batches
from herdmesh.cli.transform.running import CONVERTERS, DEFAULTS, Runner, open_runner
from herdmesh.cli.transform.writing import Output, line_of
from herdmesh.connect.redaction import redacted

_BATCH_RECORDS: Final = 1_000
_BENCH_RECORDS: Final = 100_000
#: As a shell says that a process ended because nobody reads it any more.
_EXIT_PIPE: Final = 141


def transform(
    config: Annotated[
        str, typer.Option("-c", "--config", metavar="FILE", help="A connector's config, JSON or properties.")
    ],
    files: Annotated[list[str] | None, typer.Argument(metavar="[FILE|-]...", help="Records; none = stdin.")] = None,
    worker: Annotated[
        str | None,
        typer.Option("--worker", metavar="FILE", help="Worker properties: converters the config does not name."),
    ] = None,
    direction: Annotated[
        Direction | None,
        typer.Option(
            "--direction",
            help="sink: bytes in, values out; source: values in, bytes out; values: no converters. "
            "Default: sink when converters are configured, else values.",
        ),
    ] = None,
    form: Annotated[
        Form,
        typer.Option(
            "--input",
            help="lines: each a value; records: JSON objects with key, value, topic, ...; "
            "typed: with schemas. Default: told from the first line.",
        ),
    ] = Form.AUTO,
    output: Annotated[Output, typer.Option("-o", "--output", help="A record as JSON, or its value alone.")] = (
        Output.JSON
    ),
    typed: Annotated[bool, typer.Option("--typed", help="JSON with schemas and exact types.")] = False,
    topic: Annotated[
        str | None, typer.Option("--topic", metavar="NAME", help="Of records that name none. Default: from `topics`.")
    ] = None,
    tolerance: Annotated[
        str, typer.Option("--tolerance", metavar="none|all", help="all: records that fail do not make the exit code 1.")
    ] = "none",
    fail_fast: Annotated[bool, typer.Option("--fail-fast", help="End at the first record that fails.")] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Say what is compiled for the first 1,000 records instead of running.")
    ] = False,
    bench: Annotated[
        float | None,
        typer.Option("--bench", metavar="SECONDS", min=0.1, help="Repeat the first 100,000 records; print the speed."),
    ] = None,
) -> None:
    """Try a chain: converters and transformations of a connector's config, on records from files or stdin."""
    with _ended():
        if tolerance not in ("none", "all"):
            raise CommandError("USAGE", f"--tolerance {tolerance}: it is none or all", exit_code=EXIT_USAGE)
        if fail_fast and tolerance == "all":
            raise CommandError("USAGE", "--fail-fast contradicts --tolerance all", "Leave one out.", EXIT_USAGE)
        settings = read_config(config)
        defaults = DEFAULTS if worker is None else read_worker(worker)
        settings, defaults = without_references(config, settings, defaults)
        way = direction or _direction(settings, worker)
        runner = open_runner(config, settings, defaults, way)
        session = _Session(runner, topic or _topic(settings), form, fail_fast)
        if explain or bench:
            bare = Runner(settings, defaults, way, steps=()) if bench else None
            for line in _looked(session, files, settings, bare, bench or 0.0):
                typer.echo(redacted(line))
            return
        session.run(files, output, typed=typed)
        typer.echo(session.summary(), err=True)
        if session.failed and tolerance == "none":
            raise typer.Exit(EXIT_INTERNAL)


def _looked(
    session: _Session, files: Sequence[str] | None, settings: Config, bare: Runner | None, seconds: float
) -> Iterator[str]:
    """What `--bench` says, with the chain without transformations to compare, else what `--explain` does."""
    if bare is not None:
        return measured(session.runner, bare, session.first(files, _BENCH_RECORDS, optional=False), seconds).lines()
    given = session.first(files, _BATCH_RECORDS, optional=True)
    failed = {one.line for one in session.runner.run(given).failures}
    session.runner.run([one for one in given if one.line not in failed])  # a batch with failures goes one by one
    return explained(session.runner, settings)


#: The command as an application of its own, as `herd transform`.
alone = typer.Typer(name="herd", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
alone.command("transform")(transform)
alone.callback()(lambda: None)


@dataclass(slots=True)
class _Session:
    """Records on their way from files to standard output, counted."""

    runner: Runner
    topic: str
    form: Form
    fail_fast: bool
    read: int = 0
    written: int = 0
    failed: int = 0

    def run(self, files: Sequence[str] | None, output: Output, *, typed: bool) -> None:
        """All records of all files, a batch at a time. Stops at the first failure if that was asked."""
        out = sys.stdout.buffer
        for name in files or ("-",):
            with _opened(name) as stream:
                reader = Reader(self.runner.direction, self.form, self.topic)
                for lines in line_batches(stream, _BATCH_RECORDS):
                    given = self._given(name, reader, lines)
                    ran = self.runner.run(given, fail_fast=self.fail_fast)
                    for failure in ran.failures:
                        self._tell(name, str(failure))
                    self.written += len(ran.records)
                    out.writelines(line_of(record, output, typed=typed) for record in ran.records)
                    out.flush()
                    if self.fail_fast and self.failed:
                        return

    def first(self, files: Sequence[str] | None, most: int, *, optional: bool) -> list[Given]:
        """The first records. Raises CommandError when there are none, unless they are optional."""
        found: list[Given] = []
        if not files and optional and sys.stdin.isatty():
            return found
        for name in files or ("-",):
            with _opened(name) as stream:
                reader = Reader(self.runner.direction, self.form, self.topic)
                for lines in line_batches(stream, _BATCH_RECORDS):
                    found += self._given(name, reader, lines)
                    if len(found) >= most:
                        return found[:most]
        if not found and not optional:
            raise CommandError("USAGE", "no records to measure", "Give a file of records, or pipe some in.", EXIT_USAGE)
        return found

    def summary(self) -> str:
        """What became of the records."""
        left_out = self.read - self.written - self.failed
        text = (
            f"{self.read:,} read, {self.written:,} written, {left_out:,} left out by the chain, {self.failed:,} failed"
        )
        return f"{text}; ended at the first failure" if self.fail_fast and self.failed else text

    def _given(self, name: str, reader: Reader, lines: Sequence[tuple[int, bytes]]) -> list[Given]:
        found: list[Given] = []
        for number, line in lines:
            try:
                one = reader.read(number, line)
            except BadLine as error:
                self.read += 1
                self._tell(name, f"line {number}: {error}")
                if self.fail_fast:
                    return found
                continue
            if one is not None:
                self.read += 1
                found.append(one)
        return found

    def _tell(self, name: str, what: str) -> None:
        self.failed += 1
        typer.echo(redacted(what if name == "-" else f"{name}: {what}"), err=True)


def _direction(settings: Config, worker: str | None) -> Direction:
    named = worker is not None or any(settings.get(name) is not None for name in CONVERTERS)
    return Direction.SINK if named else Direction.VALUES


def _topic(settings: Config) -> str:
    first = (settings.get("topics") or settings.get("topic") or "").split(",")[0].strip()
    return first or "records"


@contextmanager
def _opened(name: str) -> Generator[BinaryIO]:
    if name == "-":
        yield sys.stdin.buffer
        return
    try:
        with Path(name).open("rb") as stream:
            yield stream
    except BrokenPipeError:
        raise  # of standard output
    except OSError as error:
        raise CommandError("USAGE", f"{name}: cannot be read: {error.strerror}", exit_code=EXIT_USAGE) from None


@contextmanager
def _ended() -> Generator[None]:
    """Makes an error, Ctrl-C or a reader that went away the end of the command. Not `runner.run`, which brings the
    cluster's client."""
    try:
        yield
    except CommandError as error:
        print_error(error, Format.TABLE)
        raise typer.Exit(error.exit_code) from None
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python says so when it ends
        raise typer.Exit(_EXIT_PIPE) from None
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
