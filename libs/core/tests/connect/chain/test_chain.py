"""Chains of converters and transformations: the compiled code, the fields left unchanged, and the error of a failing
record.
"""

from __future__ import annotations

import json
import traceback
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herdmesh.connect.chain import chain_config, step_compiler
from herdmesh.connect.chain.record_chain import SinkChain, SourceChain
from herdmesh.connect.chain.record_failure_policy import STRICT
from herdmesh.connect.chain.step_compiler import Steps
from herdmesh.connect.errors import ConfigError, DataError, RecordError
from herdmesh.connect.json_text import jackson
from herdmesh.connect.model.data import Batch, Struct
from herdmesh.connect.model.schemas import OPTIONAL_STRING, Schema
from herdmesh.connect.model.struct_column import StructColumn
from herdmesh.connect.transforms.base import Shape

JSON_SINK = {
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "JsonConverter",
    "value.converter.schemas.enable": "false",
}
THREE_STEPS = {
    **JSON_SINK,
    "transforms": "source, mask,rename",
    "transforms.source.type": "org.apache.kafka.connect.transforms.InsertField$Value",
    "transforms.source.static.field": "source",
    "transforms.source.static.value": "x",
    "transforms.mask.type": "org.apache.kafka.connect.transforms.MaskField$Value",
    "transforms.mask.fields": "email",
    "transforms.rename.type": "org.apache.kafka.connect.transforms.ReplaceField$Value",
    "transforms.rename.renames": "note:comment",
}


def batch(*values: bytes | None, **more: Any) -> Batch:
    return Batch("t", 3, [b"k"] * len(values), values, range(10, 10 + len(values)), **more)


def run(chain: SinkChain | SourceChain, given: Batch) -> Batch:
    """The single batch that the chain returns."""
    [made] = chain.run(given)
    return made


def test_three_steps_are_one_loop_of_dictionary_operations() -> None:
    chain = chain_config.sink_chain(THREE_STEPS)
    result = run(chain, batch(b'{"id":1,"email":"a@b","note":"n"}', b'{"id":2}'))
    [loop] = chain.loops.values()
    assert loop is not None
    source = loop.source
    assert source.count("for value in rest:") == 1
    assert "append" not in source  # new maps from the converter are changed in place
    assert result.values == [
        {"id": 1, "email": "", "source": "x", "comment": "n"},
        {"id": 2, "email": None, "source": "x"},
    ]
    assert result.keys == ["k", "k"]
    assert result.key_schema == OPTIONAL_STRING
    assert result.value_schema is None


def test_keys_keep_their_schema_with_and_without_columns() -> None:
    chain = chain_config.sink_chain({**THREE_STEPS, "value.converter.schemas.enable": "true"})
    fields = [{"field": name, "type": "string", "optional": False} for name in ("email", "note")]
    envelope = {"schema": {"type": "struct", "fields": fields}, "payload": {"email": "a@b", "note": "n"}}
    results = [run(chain, batch(*[json.dumps(envelope).encode()] * 10)) for _ in range(4)]
    assert not isinstance(results[0].values, StructColumn), "what is compiled for a schema is so after some records"
    assert isinstance(results[-1].values, StructColumn)
    for result in results:
        assert result.key_schema == OPTIONAL_STRING
        assert [*result.values][9].values == ["", "n", "x"]


def test_keys_stay_undecoded_when_no_step_reads_them() -> None:
    chain = chain_config.sink_chain(THREE_STEPS, keys=False)
    result = run(chain, batch(b'{"id":1,"email":5.5,"f":1e7,"s":"\\ud83d\\ude00","big":9223372036854775808}'))
    assert result.values == [{"id": 1, "email": 0.0, "f": 1e7, "s": "\U0001f600", "big": -(2**63), "source": "x"}]
    assert result.keys == [b"k"]


def test_topic_partition_offset_and_timestamp_are_inserted_where_they_exist() -> None:
    config = {
        **JSON_SINK,
        "transforms": "i",
        "transforms.i.type": "org.apache.kafka.connect.transforms.InsertField$Value",
        "transforms.i.topic.field": "topic!",
        "transforms.i.partition.field": "partition?",
        "transforms.i.offset.field": "offset",
        "transforms.i.timestamp.field": "time",
    }
    result = run(chain_config.sink_chain(config), batch(b"{}", b"{}", timestamps_ms=(5, None)))
    assert result.values == [
        {"topic": "t", "partition": 3, "offset": 10, "time": 5},
        {"topic": "t", "partition": 3, "offset": 11},
    ]
    with pytest.raises(RecordError, match="Only SinkRecord supported"):
        run(chain_config.source_chain(config), Batch("t", None, (), [{}]))


def test_tombstones_pass_where_connect_lets_them_pass() -> None:
    config = {
        **JSON_SINK,
        "transforms": "r",
        "transforms.r.type": "org.apache.kafka.connect.transforms.ReplaceField$Value",
        "transforms.r.exclude": "a",
    }
    assert run(chain_config.sink_chain(config), batch(None, b"null", b'{"a":1,"b":2}')).values == [None, None, {"b": 2}]
    with pytest.raises(RecordError, match=r"absence of schema for \[mask fields\], found: null"):
        run(chain_config.sink_chain(THREE_STEPS), batch(None))


def test_a_failing_record_is_named_with_stage_step_and_offset() -> None:
    chain = chain_config.sink_chain(THREE_STEPS)
    with pytest.raises(RecordError) as failed:
        run(chain, batch(b"{}", b"{}", b"5"))
    error = failed.value
    assert (error.stage, error.topic, error.partition, error.offset) == ("TRANSFORMATION", "t", 3, 12)
    assert str(error) == (
        "Error in stage TRANSFORMATION (transformation 'source' "
        "(org.apache.kafka.connect.transforms.InsertField$Value)) for the record at topic 't', partition 3, offset 12: "
        "Only Map objects supported in absence of schema for [field insertion], found: java.lang.Long"
    )
    with pytest.raises(RecordError) as unreadable:
        run(chain, batch(b"{}", b"{bad"))
    assert unreadable.value.stage == "VALUE_CONVERTER"
    assert unreadable.value.offset == 11
    assert isinstance(unreadable.value.cause, DataError)
    assert str(unreadable.value).endswith("due to serialization error: expected a member name at character 1")


def test_the_trace_of_a_record_that_the_task_reads_first_has_its_error_once() -> None:
    (lazy,) = chain_config.sink_chain(JSON_SINK).run(batch(b"{}", b"{bad"))
    with pytest.raises(RecordError) as unreadable:
        list(lazy.values)
    trace = "".join(traceback.format_exception(unreadable.value))
    assert trace.count("JsonSyntaxError: expected a member name") == 1
    assert "During handling" not in trace


def test_a_source_chain_writes_connects_bytes_and_changes_no_input_value() -> None:
    chain = chain_config.source_chain(THREE_STEPS)
    given = [{"email": "a@b", "price": 1e7}, {"note": "n"}]
    result = run(chain, Batch("t", None, ["a", None], given))
    assert result.values == [
        b'{"email":"","price":1.0E7,"source":"x"}',
        b'{"source":"x","email":null,"comment":"n"}',
    ]
    assert result.keys == [b"a", None]
    assert given == [{"email": "a@b", "price": 1e7}, {"note": "n"}]


def test_a_schema_that_is_no_struct_is_refused_with_connects_message() -> None:
    config = {**JSON_SINK, "value.converter": "StringConverter"}
    lines = Batch("t", None, (), ["one", "two"], value_schema=OPTIONAL_STRING)
    assert run(chain_config.source_chain(config), lines).values == [b"one", b"two"]
    assert run(chain_config.source_chain(JSON_SINK), lines).values == [b'"one"', b'"two"']
    with pytest.raises(RecordError, match=r"Only Struct objects supported for \[field insertion\], found: java"):
        run(chain_config.source_chain(THREE_STEPS), lines)


def test_steps_on_keys_and_values_work_together() -> None:
    config = {
        **JSON_SINK,
        "key.converter": "JsonConverter",
        "key.converter.schemas.enable": "false",
        "transforms": "k,v",
        "transforms.k.type": "org.apache.kafka.connect.transforms.ReplaceField$Key",
        "transforms.k.renames": "a:b,b:a",
        "transforms.v.type": "org.apache.kafka.connect.transforms.InsertField$Value",
        "transforms.v.offset.field": "o",
    }
    chain = chain_config.sink_chain(config, keys=False)
    result = run(chain, Batch("t", 0, [b'{"a":1,"b":2}', None], [b"{}", b"{}"], (5, 6)))
    assert result.keys == [{"b": 1, "a": 2}, None]
    assert result.values == [{"o": 5}, {"o": 6}]


def test_field_names_cannot_break_out_of_the_generated_code() -> None:
    name = "a'] = 1\nimport os #\\"
    config = {
        **JSON_SINK,
        "transforms": "m",
        "transforms.m.type": "org.apache.kafka.connect.transforms.MaskField$Value",
        "transforms.m.fields": name,
    }
    result = run(chain_config.sink_chain(config), batch(jackson.dumps({name: "secret"})))
    assert result.values == [{name: ""}]


_maps = st.dictionaries(
    st.sampled_from(["id", "email", "note", "comment", "source"]),
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=4) | st.floats(allow_nan=False),
    max_size=5,
)


@given(st.lists(_maps, min_size=1, max_size=4))
def test_a_batch_gives_the_results_of_its_single_records(maps: list[dict[str, Any]]) -> None:
    raw = [json.dumps(item).replace("Infinity", "1e999").encode() for item in maps]
    values = run(chain_config.sink_chain(THREE_STEPS), batch(*raw)).values
    singles = [run(chain_config.sink_chain(THREE_STEPS), batch(item)).values[0] for item in raw]
    assert values == singles


@pytest.mark.parametrize(
    ("change", "field", "message"),
    [
        ({"value.converter": "Nope"}, "value.converter", "Class Nope could not be found."),
        ({"value.converter": None}, "value.converter", "Missing required configuration"),
        ({"value.converter.schemas.enable": "x"}, "value.converter.schemas.enable", "either true or false"),
        ({"transforms": "a"}, "transforms.a.type", 'Missing required configuration "transforms.a.type"'),
        ({"transforms": "mask,mask"}, "transforms", "Duplicate alias provided."),
        ({"transforms.mask.type": "Nope"}, "transforms.mask.type", "Class Nope could not be found."),
        ({"transforms.mask.fields": ""}, "transforms.mask.fields", "must not be empty"),
        ({"transforms.mask.predicate": "p"}, "transforms.mask.predicate", "no predicate of that name in predicates"),
        ({"predicates": "p"}, "predicates.p.type", 'Missing required configuration "predicates.p.type"'),
        ({"transforms.mask.negate": "true"}, "transforms.mask.negate", "defining a predicate to be negated"),
        ({"transforms.rename.renames": "a"}, "transforms.rename.renames", "Invalid rename mapping: a"),
        ({"transforms.source.static.value": None}, "transforms.source.static.value", "No value specified for static"),
    ],
)
def test_an_invalid_config_names_its_key(change: dict[str, str | None], field: str, message: str) -> None:
    config = {**THREE_STEPS, **change}
    with pytest.raises(ConfigError) as refused:
        chain_config.sink_chain(config)
    found = chain_config.violations(config)
    assert refused.value.field == field
    assert message in str(refused.value)
    assert [violation.field for violation in found] == [field]
    assert message in found[0].message


def test_a_valid_config_has_no_violations_and_the_workers_converters_fill_in() -> None:
    assert chain_config.violations(THREE_STEPS) == []
    assert chain_config.violations({}, worker=JSON_SINK) == []
    found = chain_config.converters({"value.converter": "ByteArray"}, worker=JSON_SINK)
    assert [type(one).__name__ for one in found] == ["StringConverter", "ByteArrayConverter", "SimpleHeaderConverter"]


def test_settings_of_a_converter_count_only_where_its_class_is_named() -> None:
    """docs/reference/connect/configs.md, section 4.1."""
    worker = {"key.converter": "String", "value.converter": "Json", "value.converter.schemas.enable": "true"}
    own = {"value.converter.schemas.enable": "false"}
    data = b'{"schema":{"type":"int32"},"payload":1}'
    _, of_worker, _ = chain_config.converters(own, worker=worker)
    assert of_worker.read(data)[1] == 1, "the worker's class with the worker's settings"
    _, of_connector, _ = chain_config.converters({**own, "value.converter": "Json"}, worker=worker)
    assert of_connector.read(data)[1] == {"schema": {"type": "int32"}, "payload": 1}
    _, bare, _ = chain_config.converters({"value.converter": "Json"}, worker={**worker, **own})
    assert bare.read(data)[1] == 1, "the connector's class with nothing of the worker's"


def test_the_number_of_compiled_loops_is_bounded_for_any_number_of_schemas(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic may have a schema for each record: the oldest compiled loops are evicted, and compiled again when
    needed.
    """
    monkeypatch.setattr(step_compiler, "SHAPES_MAX", 3)
    steps = Steps(chain_config.transformations({**THREE_STEPS, "transforms": "mask,rename"}), owned=True)
    found: list[int | None] = []
    for number in (*range(9), 0):
        schema = Schema("STRUCT", version=number, fields=[("email", OPTIONAL_STRING)])
        shape, struct = Shape(None, schema), Struct(schema, ["x"])
        steps.loop(shape)
        after = steps.one((None, struct, "t", [], None, None), shape, batch(None), 0, STRICT)
        assert after is not None
        assert after[0][1].get("email") == ""
        found.append(after[0][1].schema.version)
    assert found == [*range(9), 0]
    kept = [steps.loops, *steps._singles]  # pyright: ignore[reportPrivateUsage]
    versions = [[shape.value.version for shape in one if shape.value is not None] for one in kept]
    assert versions == [[7, 8, 0]] * 3
