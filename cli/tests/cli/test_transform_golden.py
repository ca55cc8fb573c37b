"""Tests that `herd transform` gives the results of the real 4.3.1 classes: all golden transformations and converters,
as a user replays them: a connector's config, a line of typed JSON or of records in, a line of typed JSON out. In one
process.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from herdmesh.cli.display.records import typed_line
from herdmesh.cli.errors import CommandError
from herdmesh.cli.transform.options import Direction, RecordForm
from herdmesh.cli.transform.reading import RecordReader
from herdmesh.cli.transform.running import open_runner
from libs.core.tests.connect.differences import wanted_bytes, wanted_message
from libs.core.tests.connect.golden_vectors import Vector, is_jdk_made, same_json, told, unbase64, vectors

_BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"


@pytest.mark.parametrize("name", ["transforms", "converters"])
def test_results_equal_those_of_the_java_classes(name: str) -> None:
    check = transformed if name == "transforms" else converted
    failed: dict[str, str] = {}
    for vector in vectors(f"{name}.jsonl"):
        try:
            check(vector)
        except Exception as error:  # noqa: BLE001 - every vector that differs is reported, with its id
            failed[vector["id"]] = repr(error)
    assert not failed


def transformed(vector: Vector) -> None:
    """Replay a transformation's vector and compare."""
    config = {"transforms": "t", "transforms.t.type": vector["transform"]}
    config |= {f"transforms.t.{key}": value for key, value in vector["config"].items()}
    if "predicate" in vector:
        config |= {"predicates": "p", "predicates.p.type": vector["predicate"], "transforms.t.predicate": "p"}
        config |= {f"predicates.p.{key}": value for key, value in vector["predicateConfig"].items()}
        config["transforms.t.negate"] = str(vector["negate"]).lower()
    found = replayed(config, Direction.VALUES, vector["input"], vector)
    if found is None or "error" in vector:
        assert "error" in vector
        return
    wanted = vector["output"]
    if wanted is None:
        assert found == []
        return
    [record] = found
    differing = {name: (record[name], item) for name, item in told(wanted).items() if not same_json(record[name], item)}
    assert not differing


def converted(vector: Vector) -> None:
    """Replay a converter's vector and compare."""
    role: str = vector["role"]
    given: Vector | None = vector["input"]
    config = {"key.converter": _BYTES, "value.converter": _BYTES, f"{role}.converter": vector["converter"]}
    config |= {f"{role}.converter.{key}": value for key, value in vector["config"].items()}
    if vector["direction"] == "toConnectData":
        content = None if given is None else {"base64": given["b64"]}
        line: Vector = {"headers": [{"key": "h", "value": content}]} if role == "header" else {role: content}
        found = replayed(config, Direction.SINK, line, vector)
    else:
        value_given: Vector = given or {}
        if role == "header":
            line = {"headers": [{"key": "h", **value_given}]}
        else:
            line = {role: value_given.get("value"), f"{role}Schema": value_given.get("schema")}
        found = replayed(config, Direction.SOURCE, {"kind": "source", **line}, vector)
    if found is None:
        assert "error" in vector
        return
    [record] = found
    if role == "header":
        [header] = record["headers"]
        schema, value = header["schema"], header["value"]
    else:
        schema, value = record[f"{role}Schema"], record[role]
    output = vector.get("output") or ({} if "error" in vector else {"schema": None, "value": None})
    if vector["direction"] == "toConnectData":
        assert not output or (schema == output["schema"] and same_json(value, output["value"]))
    else:
        same_bytes(value, vector)


def replayed(config: dict[str, Any], direction: Direction, line: Vector, vector: Vector) -> list[Vector] | None:
    """The records that the command prints, or None when it fails as Java does. Fails the test when it does not."""
    error = vector.get("error")
    text = json.dumps(line).encode()
    try:
        runner = open_runner("chain.json", config, {}, direction)
    except CommandError as refused:
        assert error is not None
        [(_, message)] = refused.fields
        if not is_jdk_made(error):
            assert message.startswith(wanted_message(vector))
        return None
    assert error is None or error["phase"] != "configure"
    reader = RecordReader(
        direction, RecordForm.TYPED if {"kind", "keySchema"} & line.keys() else RecordForm.RECORDS, "t"
    )
    given = reader.read(1, text)
    assert given is not None
    ran = runner.run([given])
    if error is not None:
        [failure] = ran.failures
        assert failure.java_class == error["class"]
        if not is_jdk_made(error):
            assert failure.message == wanted_message(vector)
        return None
    assert not ran.failures
    return [json.loads(typed_line(record)) for record in ran.records]


def same_bytes(value: Any, vector: Vector) -> None:
    """Assert that the written value is Java's; the order of a schemaless map's members does not count."""
    data = None if value is None else unbase64(value["$bytes"])
    output = vector.get("output")
    if output is None:
        assert data is None
        return
    assert data is not None
    if output.get("unstable"):
        # Java printed an object's identity; only the class name before it can agree.
        assert data.split(b"@")[0] == output["text"].encode().split(b"@")[0]
    elif data != wanted_bytes(vector):
        assert json.loads(data) == json.loads(output["text"])
        assert sorted(data) == sorted(unbase64(output["b64"]) or b"")
