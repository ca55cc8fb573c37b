"""The three transformations give what the real 4.3.1 classes gave on schemaless records, through the compiled chain."""

from __future__ import annotations

from typing import Any, cast

import pytest

from herdmesh.connect.chain import SinkChain, SourceChain, Step
from herdmesh.connect.converters.byte_array import ByteArrayConverter
from herdmesh.connect.data import Batch, Int32
from herdmesh.connect.errors import ConfigError, ConnectError, RecordError
from herdmesh.connect.transforms import Transformation, make_transformation
from herdmesh.connect.transforms.insert_field import InsertField
from libs.core.tests.connect.golden_vectors import Opaque, Vector, comparable, value_of, vectors


class PassThrough(ByteArrayConverter):
    """A converter that changes nothing, so that a chain's result is what its transformations made."""

    read_schema = None

    def from_connect(self, value: Any, /, schema: Any = None) -> Any:
        return value


def excluded(vector: Vector) -> str:
    """Why a vector is not replayed; "" = it is. Transforming values under a schema waits for the schemas."""
    part = "keySchema" if vector["transform"].endswith("$Key") else "valueSchema"
    if vector.get("error", {}).get("phase") == "configure" or vector["input"][part] is None:
        return ""
    return "under a schema"


_REPLAYED = [vector for vector in vectors("transforms.jsonl") if not excluded(vector)]


@pytest.mark.parametrize("vector", _REPLAYED, ids=lambda vector: vector["id"])
def test_transforms_as_the_java_class(vector: Vector) -> None:
    transformation = make_transformation("type", vector["transform"])
    error = vector.get("error")
    if error is not None and error["phase"] == "configure":
        with pytest.raises(ConfigError) as refused:
            transformation.configure(vector["config"])
        assert str(refused.value) == python_text(error["message"], transformation)
        return
    transformation.configure(vector["config"])
    if error is not None:
        with pytest.raises(RecordError) as failed:
            run(vector, transformation)
        assert isinstance(failed.value.cause, ConnectError)
        assert failed.value.cause.java_class == error["class"]
        assert str(failed.value.cause) == python_text(error["message"], transformation)
        return
    record, output = run(vector, transformation), vector["output"]
    assert record.topic == output["topic"]
    assert record.partition == output["partition"]
    assert comparable(record.keys[0]) == comparable(expected(vector, output["key"]))
    assert comparable(record.values[0]) == comparable(expected(vector, output["value"]))


def run(vector: Vector, transformation: Transformation) -> Batch:
    """The vector's record through a chain of just this transformation."""
    given = vector["input"]
    converter = PassThrough()
    steps = [Step("t", transformation)]
    source = given["kind"] == "source"
    chain = (SourceChain if source else SinkChain)(converter, converter, steps)
    before = [value_of(given["key"]), value_of(given["value"])]
    kept = [comparable(value) for value in before]
    offsets = () if source else (given["kafkaOffset"],)
    batch = Batch(given["topic"], given["partition"], before[:1], before[1:], offsets, (given["timestamp"],))
    result = chain.run(batch)
    if source:
        assert [comparable(value) for value in before] == kept  # a connector's own values are never changed
    return result


def expected(vector: Vector, value: Any) -> Any:
    """The vector's output. Inserted partitions are plain integers here, where Java has an Integer among Longs."""
    result = value_of(value)
    name = vector["config"].get("partition.field")
    if name and isinstance(result, dict):
        members = cast("dict[str, Any]", result)
        inserted = members.get(name.rstrip("!?"))
        if isinstance(inserted, Int32) and int(inserted) == vector["input"]["partition"]:
            members[name.rstrip("!?")] = int(inserted)
        return members
    return result


def python_text(message: str, transformation: Transformation) -> str:
    """A message with what is Java's alone taken out: the identity of an object, classes that are one in Python."""
    if isinstance(transformation, InsertField):
        message = message.replace(f"{InsertField.java_class}$InsertionSpec@<hash>", "s")
    opaque = f"{Opaque.__module__}.{Opaque.__qualname__}"
    return message.replace("java.util.LinkedHashMap", "java.util.HashMap").replace("[I", opaque)
