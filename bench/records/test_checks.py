"""Tests of the bench's checks: a file with a missing, repeated or wrong record is refused, in either side's text.

Both sides get the same Avro record, with a schema from the same registry.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import fastavro
import pytest
from confluent_kafka import KafkaError, KafkaException

from bench.records import jobs, moving, workload

RECORDS = 2_000


def ours(number: int) -> str:
    return json.dumps(workload.transformed(number), separators=(",", ":"))


def map_of_java(number: int) -> str:
    return "{" + ", ".join(f"{name}={value}" for name, value in workload.transformed(number).items()) + "}"


def struct_of_java(number: int) -> str:
    return "Struct{" + ",".join(f"{name}={value}" for name, value in workload.transformed(number).items()) + "}"


def written(tmp_path: Path, lines: list[str]) -> Path:
    path = tmp_path / "out.txt"
    path.write_text("".join(line + "\n" for line in lines))
    return path


@pytest.mark.parametrize("text", [ours, map_of_java, struct_of_java])
def test_a_file_must_have_every_record_once(tmp_path: Path, text: Callable[[int], str]) -> None:
    lines = [text(number) for number in range(RECORDS)]
    workload.check_file(written(tmp_path, lines), RECORDS, workload.transformed)
    for wrong in (lines[:-1], [*lines, lines[0]], [*lines[:-1], lines[0]]):
        with pytest.raises(AssertionError):
            workload.check_file(written(tmp_path, wrong), RECORDS, workload.transformed)


@pytest.mark.parametrize("text", [ours, map_of_java, struct_of_java])
def test_a_file_must_have_the_results_of_the_transformations(tmp_path: Path, text: Callable[[int], str]) -> None:
    lines = [text(number).replace("lazy", "late") for number in range(RECORDS)]
    with pytest.raises(AssertionError, match="lazy"):
        workload.check_file(written(tmp_path, lines), RECORDS, workload.transformed)


def test_a_digest_covers_all_lines_in_order(tmp_path: Path) -> None:
    path = tmp_path / "in.txt"
    workload.write_file(path, RECORDS)
    values = [workload.hoisted(workload.text(number)) for number in range(RECORDS)]
    assert workload.digest_of_file(path, workload.hoisted) == workload.digest(values)
    assert workload.digest(values) != workload.digest(values[::-1])


def test_an_avro_value_is_the_schema_id_and_the_record() -> None:
    value = workload.avro(258)(3)
    # Avro's own rules by hand: zigzag numbers, a text after its length, a double as in memory
    begin = b"\x00\x00\x00\x01\x02" + b"\x06" + b"\x0auser3" + b"\x22user3@example.com" + struct.pack("<d", 3 * 0.01)
    assert value.startswith(begin)
    assert value.endswith(b"\x56the quick brown fox jumps over the lazy dog")
    read: Callable[..., object] = cast(Any, fastavro).schemaless_reader
    assert read(io.BytesIO(value[5:]), workload.AVRO_SCHEMA, None) == workload.record(3)


def test_both_sides_read_avro_with_configs_that_differ_only_in_the_converter() -> None:
    registry = "http://127.0.0.1:1/apis/ccompat/v7"
    ours = jobs.avro(registry).config(Path("out.txt"), 2)
    java = jobs.avro(registry).config(Path("out.txt"), 2, java=True)
    assert ours.pop("value.converter.schema.registry.url") == registry
    assert java.pop("value.converter.apicurio.registry.url") == "http://127.0.0.1:1/apis/registry/v2"
    assert ours["value.converter"] != java["value.converter"]
    assert all(key.startswith("value.converter") for key, _ in set(ours.items()) ^ set(java.items()))


class Refusing:
    """An admin client whose broker answers every request with one error."""

    def __init__(self, code: int) -> None:
        self.code = code

    def list_topics(self, *_: Any, **__: Any) -> Any:
        raise KafkaException(KafkaError(self.code))


@pytest.mark.parametrize(
    "code",
    [
        KafkaError._UNKNOWN_PARTITION,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
    ],
)
def test_a_topic_that_is_being_created_has_no_records_yet(code: int) -> None:
    assert moving.ends(Refusing(code), "t", 2) == [0, 0]


@pytest.mark.parametrize("code", [KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError._TIMED_OUT])
def test_a_broker_that_does_not_return_the_end_of_a_topic_ends_the_bench(code: int) -> None:
    with pytest.raises(KafkaException):
        moving.ends(Refusing(code), "t", 2)
