"""Reader of the golden vectors: the location of their files, a loop over many vectors in one test, and the parts of
Java's texts that Python can reproduce.

Owns no format of values: that is `herdmesh.connect.json_text.record_json`. Owns no test. `HERDMESH_GOLDEN_DIR` names
another folder of the same shape. `HERDMESH_GOLDEN_VECTOR` is the id of the only vector to try.

Invariant: every line of a file is a case; none is left out here.
"""

from __future__ import annotations

import base64
import json
import math
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from herdmesh.connect.json_text import record_json
from herdmesh.connect.model.data import Batch, ConnectRecord

Vector = dict[str, Any]

_FOLDER = Path(os.environ.get("HERDMESH_GOLDEN_DIR") or Path(__file__).parent / "golden")
_ONE = "HERDMESH_GOLDEN_VECTOR"


def vectors(name: str) -> list[Vector]:
    """Every line of a golden file."""
    with (_FOLDER / name).open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def by(name: str, found: Iterable[Vector]) -> dict[str, list[Vector]]:
    """The vectors grouped by their member `name`, for one test per group: a test per vector takes longer than the
    vectors.
    """
    groups: dict[str, list[Vector]] = {}
    for vector in found:
        groups.setdefault(vector[name], []).append(vector)
    return groups


def try_each(group: list[Vector], check: Callable[[Vector], None]) -> None:
    """Check every vector of the group, and name each failing one with the way to run it alone."""
    if (chosen := os.environ.get(_ONE)) is not None:
        group = [vector for vector in group if vector["id"] == chosen] or pytest.skip(f"{chosen} is none of these")
    wrong: list[str] = []
    right = 0
    for vector in group:
        try:
            check(vector)
            right += 1
        except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - reported below
            wrong.append(f"{_ONE}={vector['id']}: {type(error).__name__}: {error}")
    assert not wrong, "\n".join([f"{len(wrong)} of {len(group)} vectors are wrong", *wrong])
    assert right == len(group)


def unbase64(text: str | None) -> bytes | None:
    """Bytes of a `*_b64` member."""
    return None if text is None else base64.b64decode(text)


#: Texts of the JDK, not of Connect: only the family is compared (golden README).
JDK_MADE = {
    "java.lang.NullPointerException",
    "java.lang.ClassCastException",
    "java.lang.IndexOutOfBoundsException",
    "java.lang.IllegalArgumentException",
}
_CONNECTS = ("Unknown field: ",)


def is_jdk_made(error: Vector) -> bool:
    """Whether an error's text is the JDK's. Connect's own code raises IllegalArgumentException as well."""
    message: str = error["message"] or ""
    return error["class"] in JDK_MADE and not message.startswith(_CONNECTS)


def same_json(found: Any, wanted: Any) -> bool:
    """Whether two values in the tagged format are equal: numbers by value and kind, zeros by sign, maps in any order,
    a buffer like bytes.
    """
    if isinstance(wanted, dict) and isinstance(found, dict):
        left, right = _bytes_alike(cast("Vector", found)), _bytes_alike(cast("Vector", wanted))
        return left.keys() == right.keys() and all(same_json(left[key], right[key]) for key in right)
    if isinstance(wanted, list) and isinstance(found, list):
        one, other = cast("list[Any]", found), cast("list[Any]", wanted)
        return len(one) == len(other) and all(map(same_json, one, other))
    if isinstance(wanted, float) and isinstance(found, float):
        return found == wanted and math.copysign(1, found) == math.copysign(1, wanted)
    return bool(type(cast("object", found)) is type(cast("object", wanted)) and found == wanted)


def _bytes_alike(value: Vector) -> Vector:
    return {"$bytes": value["$bytebuffer"]} if value.keys() == {"$bytebuffer"} else value


def columns_of(record: ConnectRecord) -> Batch:
    """A batch of just this record."""
    return Batch(
        cast("str", record.topic), record.partition, [record.key], [record.value],
        () if record.offset is None else [record.offset], [record.timestamp_ms],
        record.key_schema, record.value_schema, [list(record.headers)],
    )  # fmt: skip


def shown(batch: Batch) -> Vector:
    """The single record of a batch in the tagged format of the vectors."""
    record = ConnectRecord(
        batch.topic, batch.partition, batch.keys[0] if batch.keys else None, batch.values[0],
        batch.timestamps_ms[0] if batch.timestamps_ms else None, list(batch.headers[0]) if batch.headers else [],
        batch.key_schema, batch.value_schema, batch.offsets[0] if batch.offsets else None,
    )  # fmt: skip
    return record_json.record_to(record)


def told(record: Mapping[str, Any]) -> Vector:
    """A vector's record without the members that no transformation can change."""
    fields = ("kind", "topic", "partition", "keySchema", "key", "valueSchema", "value", "timestamp", "headers")
    return {name: record[name] for name in (*fields, *(["kafkaOffset"] if "kafkaOffset" in record else []))}


def python_text(message: str) -> str:
    """A message with the Java class names of values replaced where they are one class in Python."""
    return message.replace("java.util.LinkedHashMap", "java.util.HashMap")
