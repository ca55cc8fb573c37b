"""Every converter, equal to the real 4.3.1 class: all golden vectors, one by one and as columns."""

from __future__ import annotations

import json
from typing import Any

import pytest

from herdmesh.connect.converters import Converter, HeaderConverter, make_converter, make_header_converter
from herdmesh.connect.errors import ConnectError
from herdmesh.connect.json_text import record_json
from herdmesh.connect.model.data import Header
from herdmesh.connect.model.schemas import Schema
from libs.core.tests.connect.differences import wanted_bytes, wanted_message
from libs.core.tests.connect.golden_vectors import Vector, by, is_jdk_made, same_json, try_each, unbase64, vectors

_GROUPS = by("converter", vectors("converters.jsonl"))


@pytest.mark.parametrize("converter", _GROUPS)
def test_results_equal_the_java_class(converter: str) -> None:
    try_each(_GROUPS[converter], as_the_java_class)


def as_the_java_class(vector: Vector) -> None:
    error = vector.get("error")
    run = written if vector["direction"] == "fromConnectData" else read
    if error is not None:
        if error["phase"] != "configure":
            made(vector)
        with pytest.raises(ConnectError) as failed:
            run(vector)
        assert failed.value.java_class == error["class"]
        if not is_jdk_made(error):
            assert str(failed.value) == wanted_message(vector)
        return
    run(vector)


def made(vector: Vector) -> HeaderConverter:
    """The vector's converter, configured."""
    field = f"{vector['role']}.converter"
    config = {field: vector["converter"], **{f"{field}.{key}": value for key, value in vector["config"].items()}}
    if vector["role"] == "header":
        return make_header_converter(field, config)
    return make_converter(field, config, role=vector["role"])


def read(vector: Vector) -> None:
    """Read the vector's bytes and compare."""
    converter, given = made(vector), vector["input"]
    data = unbase64(given["b64"]) if given is not None else None
    if vector["role"] == "header":
        header = converter.read_header("h", data)
        schema, value = header.schema, header.value
    else:
        assert isinstance(converter, Converter)
        schema, value = converter.read(data)
        many_schemas, many = converter.read_many([data, data])
        assert not isinstance(many_schemas, list)
        assert many_schemas is schema
        for item in many:
            assert same_json(record_json.value_to(item, schema), record_json.value_to(value, schema))
    output = vector.get("output") or ({} if "error" in vector else {"schema": None, "value": None})
    if output:
        assert record_json.schema_to(schema) == output["schema"]
        assert same_json(record_json.value_to(value, schema), output["value"])


def written(vector: Vector) -> None:
    """Write the vector's value and compare."""
    converter, given = made(vector), vector["input"]
    schema = record_json.schema_of(given["schema"])
    value = record_json.value_of(given["value"], schema)
    data = write(converter, vector["role"], value, schema)
    if vector["role"] != "header":
        assert isinstance(converter, Converter)
        assert converter.write_many([value, value], schema) == [data, data]
    output = vector.get("output")
    if output is None:
        assert data is None or "error" in vector
    elif output.get("unstable"):
        # Java printed an object's identity; only the class before it can agree.
        # The text is the bytes read as UTF-8, whatever `converter.encoding` is.
        assert data is not None
        assert data.decode(errors="replace").split("@")[0] == output["text"].split("@")[0]
    elif data != wanted_bytes(vector):
        # The order of a schemaless map's members is Java's hash order: only the order may differ.
        assert data is not None
        assert json.loads(data) == json.loads(output["text"])
        assert sorted(data) == sorted(unbase64(output["b64"]) or b"")


def write(converter: HeaderConverter, role: str, value: Any, schema: Schema | None) -> bytes | None:
    """The bytes of one value in that role."""
    if role == "header":
        return converter.write_header(Header("h", value, schema))
    assert isinstance(converter, Converter)
    return converter.write(value, schema)
