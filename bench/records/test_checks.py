"""The bench believes no side: a file with a record too few, twice or wrong is refused, in either side's text."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.records import workload

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
def test_a_file_must_have_what_the_transformations_make(tmp_path: Path, text: Callable[[int], str]) -> None:
    lines = [text(number).replace("lazy", "late") for number in range(RECORDS)]
    with pytest.raises(AssertionError, match="lazy"):
        workload.check_file(written(tmp_path, lines), RECORDS, workload.transformed)


def test_a_digest_is_of_all_lines_in_order(tmp_path: Path) -> None:
    path = tmp_path / "in.txt"
    workload.write_file(path, RECORDS)
    values = [workload.hoisted(workload.text(number)) for number in range(RECORDS)]
    assert workload.digest_of_file(path, workload.hoisted) == workload.digest(values)
    assert workload.digest(values) != workload.digest(values[::-1])
