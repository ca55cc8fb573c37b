"""The three converters give what the real 4.3.1 classes gave, error texts included."""

from __future__ import annotations

import json
from typing import Any

import pytest

from herdmesh.connect.converters import CONVERTERS, Converter
from herdmesh.connect.errors import ConfigError, ConnectError
from libs.core.tests.connect.golden_vectors import Opaque, Vector, comparable, schema_of, unbase64, value_of, vectors

_JSON = "org.apache.kafka.connect.json.JsonConverter"


def excluded(vector: Vector) -> str:
    """Why a vector is not replayed; "" = it is. The one place where cases are left out.

    JsonConverter is built for schemaless JSON and, in envelopes, for primitive values: what needs other embedded
    schemas, a fixed schema, or writes values under a schema waits for the data model's schemas. A config error counts
    even then.
    """
    if vector["converter"] != _JSON:
        return ""
    config = vector["config"]
    error = vector.get("error", {})
    if error.get("phase") == "configure" and error["class"].endswith("ConfigException"):
        return ""
    if config.get("schema.content"):
        return "schema.content"
    if config.get("schemas.enable", "true").lower() != "false":
        return "" if _is_plain(vector) else "schemas.enable=true"
    given = vector["input"]
    if vector["direction"] == "fromConnectData" and given is not None and given["schema"] is not None:
        return "values under a schema"
    return ""


def _is_plain(vector: Vector) -> bool:
    """True for what the envelope is built for."""
    if "error" in vector:
        return "and may not contain additional fields" in vector["error"]["message"]
    if vector["direction"] == "fromConnectData":
        given, schema = vector["input"]["value"], vector["input"]["schema"]
        # A map stands for a struct, or for a Java buffer that Python has no counterpart of.
        return not isinstance(given, dict) and (schema is None or (schema["type"] in _WRITTEN and "name" not in schema))
    schema = vector["output"]["schema"]
    if schema is None:
        return True
    payload = json.loads(vector["input"]["text"]).get("payload")
    fits = type(payload) is _READ.get(schema["type"]) and (schema["type"] != "int32" or abs(payload) < 2**31)
    return fits and schema.keys() == {"type", "optional"}


_WRITTEN = {"int8", "int16", "int32", "int64", "boolean", "string", "double", "float", "bytes"}
_READ = {"string": str, "boolean": bool, "int32": int, "int64": int, "double": float}
_REPLAYED = [vector for vector in vectors("converters.jsonl") if not excluded(vector)]


def test_only_what_needs_schemas_is_left_out() -> None:
    reasons = {excluded(vector) for vector in vectors("converters.jsonl")}
    assert reasons == {"", "schemas.enable=true", "schema.content", "values under a schema"}
    assert len(_REPLAYED) == 529


@pytest.mark.parametrize("vector", _REPLAYED, ids=lambda vector: vector["id"])
def test_converts_as_the_java_class(vector: Vector) -> None:
    converter = CONVERTERS[vector["converter"]]()
    if "error" in vector:
        with pytest.raises(ConnectError) as caught:
            _convert(converter, vector)
        error = vector["error"]
        assert caught.value.java_class == error["class"]
        assert str(caught.value) == python_classes(error["message"])
        assert isinstance(caught.value, ConfigError) == error["class"].endswith("ConfigException")
    elif vector["direction"] == "toConnectData":
        value = _convert(converter, vector)
        output = vector["output"]
        # What JsonConverter reads from an envelope is schemaless from then on.
        enveloped = vector["converter"] == _JSON and vector["config"].get("schemas.enable", "true").lower() != "false"
        assert converter.read_schema == (None if enveloped else schema_of(output["schema"]))
        assert comparable(value) == comparable(value_of(output["value"]))
    else:
        _check_bytes(_convert(converter, vector), vector["output"])


def python_classes(message: str) -> str:
    """A message with the Java classes of values that are one class, or none, in Python."""
    opaque = f"{Opaque.__module__}.{Opaque.__qualname__}"
    return message.replace("java.util.LinkedHashMap", "java.util.HashMap").replace("[I", opaque)


def _check_bytes(written: bytes | None, output: Any) -> None:
    if output is None:
        assert written is None
    elif output.get("unstable"):
        # Java printed an identity; only the class in front of it can agree.
        assert written is not None
        assert written.split(b"@")[0] == output["text"].encode().split(b"@")[0]
    else:
        assert written == unbase64(output["b64"])


def _convert(converter: Converter, vector: Vector) -> Any:
    converter.configure(vector["config"], vector["role"] == "key")
    given = vector["input"]
    if vector["direction"] == "toConnectData":
        data = unbase64(given["b64"]) if given is not None else None
        one = converter.to_connect(data)
        assert comparable(converter.to_connect_many([data])) == comparable([one])
        return one
    schema = schema_of(given["schema"])
    return converter.from_connect(value_of(given["value"], schema), schema)
