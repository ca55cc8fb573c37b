"""One session of `herd transform`: records from files through a chain to standard output.

Owns reading, counting and reporting. Options and exit codes belong to the command.

Invariant: standard output has only records, everything else goes to standard error.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

import typer

from herdmesh.cli.display.records import RecordPrinter
from herdmesh.cli.errors import EXIT_USAGE, CommandError
from herdmesh.cli.transform.chain_file import Config, read_worker, without_references
from herdmesh.cli.transform.explaining import explained, measured
from herdmesh.cli.transform.options import Direction, RecordForm
from herdmesh.cli.transform.reading import BadLine, Given, RecordReader, line_batches
from herdmesh.cli.transform.running import CONVERTERS, DEFAULTS, Runner, open_runner
from herdmesh.connect.config import redacted

_BATCH_RECORDS: Final = 1_000
_BENCH_RECORDS: Final = 100_000


def open_session(
    source: str,
    settings: Config,
    worker: str | None,
    direction: Direction | None,
    topic: str | None,
    form: RecordForm,
    *,
    fail_fast: bool,
) -> Session:
    """The session of a config's chain; `worker` names a file, and `source` the config for messages. Raises
    CommandError.
    """
    defaults = DEFAULTS if worker is None else read_worker(worker)
    settings, defaults = without_references(source, settings, defaults)
    runner = open_runner(source, settings, defaults, direction or _direction(settings, worker))
    return Session(settings, defaults, runner, topic or _topic(settings), form, fail_fast)


@dataclass(slots=True)
class Session:
    """Records on their way from files to standard output, counted."""

    settings: Config
    defaults: Config
    runner: Runner
    topic: str
    form: RecordForm
    fail_fast: bool
    read: int = 0
    written: int = 0
    failed: int = 0

    def looked(self, files: Sequence[str] | None, bench_s: float | None) -> Iterator[str]:
        """The output of `--bench`, with the chain without transformations for comparison, else that of `--explain`."""
        if bench_s is not None:
            bare = Runner(self.settings, self.defaults, self.runner.direction, steps=())
            return measured(self.runner, bare, self.first(files, _BENCH_RECORDS, optional=False), bench_s).lines()
        given = self.first(files, _BATCH_RECORDS, optional=True)
        failed = {one.line for one in self.runner.run(given).failures}
        self.runner.run(
            [one for one in given if one.line not in failed]
        )  # a batch with failures runs record by record, so run it again without them
        return explained(self.runner, self.settings)

    def run(self, files: Sequence[str] | None, printer: RecordPrinter) -> None:
        """Run all records of all files, a batch at a time. With `fail_fast`, stop at the first failure."""
        out = sys.stdout.buffer
        for name in files or ("-",):
            with _opened(name) as stream:
                reader = RecordReader(self.runner.direction, self.form, self.topic)
                for lines in line_batches(stream, _BATCH_RECORDS):
                    given = self._given(name, reader, lines)
                    ran = self.runner.run(given, fail_fast=self.fail_fast)
                    for failure in ran.failures:
                        self._tell(name, str(failure))
                    self.written += len(ran.records)
                    out.writelines(printer.lines(ran.records) if ran.records else ())
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
                reader = RecordReader(self.runner.direction, self.form, self.topic)
                for lines in line_batches(stream, _BATCH_RECORDS):
                    found += self._given(name, reader, lines)
                    if len(found) >= most:
                        return found[:most]
        if not found and not optional:
            raise CommandError("USAGE", "no records to measure", "Give a file of records, or pipe some in.", EXIT_USAGE)
        return found

    def summary(self) -> str:
        """Counts of the records by result."""
        left_out = self.read - self.written - self.failed
        text = (
            f"{self.read:,} read, {self.written:,} written, {left_out:,} filtered by the chain, {self.failed:,} failed"
        )
        return f"{text}; ended at the first failure" if self.fail_fast and self.failed else text

    def _given(self, name: str, reader: RecordReader, lines: Sequence[tuple[int, bytes]]) -> list[Given]:
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
