"""The cases: for each a function that runs it a number of times and returns the processor time.

Owns converters, transformations, and the tasks that write files and requests; those of a database are in `databases`.
Runs in an older tree too: it imports only what both have.

Invariant: the input of a case is created before its clock starts; a batch is used once, because columns keep their
decoded values.
"""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from bench.tasks import samples
from herdmesh.connect.model.data import Batch
from herdmesh.connect.spi.connector import SinkBatch, SourceTaskContext, TaskContext
from herdmesh.connectors.file_stream.sink.task import FileStreamSinkTask
from herdmesh.connectors.file_stream.source.task import FileStreamSourceTask
from herdmesh.connectors.files.task import FileSinkTask
from herdmesh.connectors.http.requests import requests_of
from herdmesh.connectors.http.settings import settings_of
from libs.core.tests.connect.registry.fake_registry import FakeRegistry

Case = Callable[[int], float]
"""A function that returns the processor seconds of `RECORDS` records, run that many times."""
_JSON = "org.apache.kafka.connect.json.JsonConverter"
_STRING = "org.apache.kafka.connect.storage.StringConverter"
_AVRO = "io.confluent.connect.avro.AvroConverter"
#: Forms of topics, and steps, for each sink.
_GIVEN: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("texts", ()), ("quoted", ()), ("maps", ()), ("nulls", ()), ("maps", ("InsertField",)), ("nulls", ("InsertField",)),
    ("maps", ("Cast to float",)), ("nulls", ("Cast to float",)), ("maps", ("ExtractField",)), ("flat", ()),
    ("flat", ("InsertField",)), ("flat", ("ExtractField",)), ("rich", ()),
)  # fmt: skip


@contextmanager
def clock() -> Generator[Callable[[], float]]:
    """A clock of this process's processor time from here on, with garbage collection off."""
    gc.collect()
    gc.disable()
    begun_s = time.process_time()
    try:
        yield lambda: time.process_time() - begun_s
    finally:
        gc.enable()


def context() -> TaskContext:
    """The context of a single task."""
    return TaskContext("bench", 0, 1, "connect-bench", "run")


def _batches(form: str, steps: tuple[str, ...], repeats: int) -> list[SinkBatch]:
    made, raw = samples.chain(form, *steps), samples.raw(form)
    return [one for at in range(repeats) for one in samples.given(made, raw, at * samples.RECORDS)]


def _file(kind: str, form: str, steps: tuple[str, ...]) -> Case:
    def run(repeats: int) -> float:
        batches = _batches(form, steps, repeats)
        with tempfile.TemporaryDirectory() as folder:
            task = FileSinkTask()
            task.start({"directory": f"{folder}/out", "format": kind, "flush.records": "100000000"}, context())
            with clock() as used_s:
                for batch in batches:
                    task.put(batch)
                task.stage()
                return used_s()

    return run


def _file_stream(form: str, steps: tuple[str, ...]) -> Case:
    def run(repeats: int) -> float:
        batches = _batches(form, steps, repeats)
        with tempfile.TemporaryDirectory() as folder:
            task = FileStreamSinkTask()
            task.start({"file": f"{folder}/out"}, context())
            with clock() as used_s:
                for batch in batches:
                    task.put(batch)
                return used_s()

    return run


def _refuse(batch: SinkBatch, place: int, error: BaseException) -> None:
    raise error


def _http(form: str, steps: tuple[str, ...]) -> Case:
    def run(repeats: int) -> float:
        batches = _batches(form, steps, repeats)
        settings = settings_of({"http.url": "http://127.0.0.1/in", "batch.max.size": "100"})
        with clock() as used_s:
            for batch in batches:
                for request in requests_of(batch, settings, _refuse):
                    request.body(settings)
            return used_s()

    return run


def _chain(form: str, steps: tuple[str, ...]) -> Case:
    def run(repeats: int) -> float:
        made, raw = samples.chain(form, *steps), samples.raw(form)
        batches = [samples.read(raw) for _ in range(repeats)]
        with clock() as used_s:
            for batch in batches:
                made.run(batch)
            return used_s()

    return run


def _source_chain(kind: str, values: Callable[[], Sequence[Any]], schema: Any, *steps: str) -> Case:
    def run(repeats: int) -> float:
        made = samples.chain_of_source(kind, *steps)
        batches = [Batch(samples.TOPIC, None, (), values(), value_schema=schema) for _ in range(repeats)]
        with clock() as used_s:
            for batch in batches:
                made.run(batch)
            return used_s()

    return run


def _lines(repeats: int) -> float:
    with tempfile.NamedTemporaryFile("w") as file:
        file.write("".join(f"{one}\n" for one in samples.texts()) * repeats)
        file.flush()
        task = FileStreamSourceTask()
        task.start(
            {"file": file.name, "topic": samples.TOPIC}, SourceTaskContext("bench", 0, 1, "run", lambda _: None)
        )  # fmt: skip
        with clock() as used_s:
            while task.poll() is not None:
                pass
            return used_s()


def _sources() -> Iterator[tuple[str, Case]]:
    yield "FileStreamSource reads lines", _lines
    yield "source chain: texts, StringConverter", _source_chain("string", samples.texts, samples.STRING)
    yield (
        "source chain: texts, HoistField, InsertField, JsonConverter",
        _source_chain("plain", samples.texts, samples.STRING, "HoistField", "InsertField"),
    )
    yield "source chain: maps, InsertField, JsonConverter", _source_chain("plain", samples.maps, None, "InsertField")
    for form, schema in (("flat", samples.FLAT), ("rich", samples.RICH)):
        yield (
            f"source chain: {form} structs, InsertField, JsonConverter",
            _source_chain("json", partial(samples.structs, schema), schema, "InsertField"),
        )


def _reading(made: Any, raw: list[bytes]) -> Case:
    def run(repeats: int) -> float:
        with clock() as used_s:
            for _ in range(repeats):
                for _value in made.read_many(raw)[1]:
                    pass
            return used_s()

    return run


def _writing(made: Any, values: list[Any], schema: Any) -> Case:
    def run(repeats: int) -> float:
        with clock() as used_s:
            for _ in range(repeats):
                made.write_many(values, schema)
            return used_s()

    return run


def _converters(registry: str) -> Iterator[tuple[str, Case]]:
    string, plain, schemas = (
        samples.converter(_STRING), samples.converter(_JSON, schemas_enable="false"), samples.converter(_JSON),
    )  # fmt: skip
    yield "StringConverter reads", _reading(string, samples.raw("texts"))
    yield "StringConverter writes", _writing(string, samples.texts(), samples.STRING)
    for form in ("maps", "nulls"):
        yield f"JsonConverter reads {form}", _reading(plain, samples.raw(form))
        yield f"JsonConverter writes {form}", _writing(plain, samples.maps(nulls=form == "nulls"), None)
    for form, schema in (("flat", samples.FLAT), ("rich", samples.RICH)):
        yield f"JsonConverter reads {form} structs", _reading(schemas, samples.raw(form))
        yield f"JsonConverter writes {form} structs", _writing(schemas, samples.structs(schema), schema)
        avro = samples.converter(_AVRO, schema_registry_url=registry, auto_register_schemas="true").for_topic(form)
        values = samples.structs(schema)
        raw = [avro.write(one, schema) for one in values]
        yield f"AvroConverter reads {form} structs", _reading(avro, raw)
        yield f"AvroConverter writes {form} structs", _writing(avro, values, schema)


def _name(form: str, steps: tuple[str, ...]) -> str:
    what = {"flat": "flat structs", "rich": "rich structs", "nulls": "maps with nulls", "quoted": "texts with quotes"}
    return ", ".join((what.get(form, form), *steps))


@contextmanager
def cases() -> Generator[dict[str, Case]]:
    """The cases by name, valid until the context ends."""
    registry = FakeRegistry()
    try:
        found = dict(_converters(registry.url))
        found |= dict(_sources())
        for step in samples.STEPS:
            for form in ("maps", "flat"):
                found[f"chain: {_name(form, (step,))}"] = _chain(form, (step,))
        for form, steps in _GIVEN:
            found[f"FileStreamSink: {_name(form, steps)}"] = _file_stream(form, steps)
        for kind in ("json", "text", "csv", "parquet"):
            for form, steps in _GIVEN:
                found[f"FileSink {kind}: {_name(form, steps)}"] = _file(kind, form, steps)
        for form, steps in _GIVEN:
            found[f"HttpSink: {_name(form, steps)}"] = _http(form, steps)
        yield found
    finally:
        registry.stop()
