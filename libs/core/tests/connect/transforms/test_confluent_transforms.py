"""Confluent's transformations as its documentation describes them, compiled and record by record. Its classes are not
published openly, so there are no recordings.
"""

from __future__ import annotations

from typing import Any

import pytest
import structlog

from herdmesh.connect.errors import ConfigError, DataError
from libs.core.tests.connect.golden_vectors import Vector
from libs.core.tests.connect.transforms.test_golden_transforms import results, step_of

_CONFLUENT = "io.confluent.connect.transforms"
_STRING = {"type": "string", "optional": False}
_INNER = {"type": "struct", "optional": True, "fields": [{"type": "string", "optional": True, "field": "f4"}]}
_STRUCT = {
    "type": "struct", "optional": False,
    "fields": [{"type": "string", "optional": True, "field": "f2"}, {"type": "int32", "optional": True, "field": "n"},
               {**_INNER, "field": "f3"}],
}  # fmt: skip


def _record(**changes: Any) -> Vector:
    return {
        "kind": "source", "topic": "orders", "partition": 0, "keySchema": _STRING, "key": "k", "valueSchema": _STRING,
        "value": "v", "timestamp": None, "headers": [], **changes,
    }  # fmt: skip


def _one(name: str, config: dict[str, str], given: Vector) -> Vector | None:
    """The record after the step; checks that both ways of running the step agree."""
    first, *others = results({"transform": f"{_CONFLUENT}.{name}", "config": config, "input": given})
    assert len(others) == 1, "the step was not compiled"
    assert others == [first]
    return first


@pytest.mark.parametrize(("part", "other"), [("key", "value"), ("value", "key")])
@pytest.mark.parametrize(
    ("behavior", "after"),
    [(None, None), ("nullify", None), ("retain", _STRING), ("force_optional", {**_STRING, "optional": True})],
)
def test_drop_removes_key_or_value(part: str, other: str, behavior: str | None, after: Any) -> None:
    config = {} if behavior is None else {"schema.behavior": behavior}
    found = _one(f"Drop${part.title()}", config, _record())
    assert found is not None
    assert (found[part], found[f"{part}Schema"]) == (None, after)
    assert (found[other], found[f"{other}Schema"]) == (_record()[other], _STRING)


def test_drop_validates_that_null_fits_the_schema() -> None:
    config = {"schema.behavior": "validate"}
    optional = {**_STRING, "optional": True}
    found = _one("Drop$Value", config, _record(valueSchema=optional))
    assert found is not None
    assert (found["value"], found["valueSchema"]) == (None, optional)
    with pytest.raises(DataError, match=r"value cannot be dropped.*not optional"):
        _one("Drop$Value", config, _record())
    assert _one("Drop$Value", config, _record(valueSchema=None, value="v")) is not None


@pytest.mark.parametrize("behavior", ["ignore", "warn"])
def test_tombstones_are_filtered(behavior: str) -> None:
    config = {"behavior": behavior}
    assert _one("TombstoneHandler", config, _record()) is not None
    with structlog.testing.capture_logs() as logs:
        for schema in (None, {**_STRING, "optional": True}):
            assert _one("TombstoneHandler", config, _record(valueSchema=schema, value=None)) is None
    assert {one["topic"] for one in logs} == ({"orders"} if behavior == "warn" else set())


def test_tombstones_are_refused() -> None:
    with pytest.raises(DataError, match="Tombstone"):
        _one("TombstoneHandler", {"behavior": "fail"}, _record(valueSchema=None, value=None))


_WHOLE = {"f2": "to", "n": 1, "f3": {"f4": "deep"}}


@pytest.mark.parametrize("schema", [_STRUCT, None], ids=["schema", "schemaless"])
@pytest.mark.parametrize(
    ("config", "topic"),
    [
        ({"field": "f2"}, "to"),
        ({"field": "$.f3.f4", "field.format": "JSON_PATH"}, "deep"),
        ({"field": "$[\"f3\"]['f4']", "field.format": "JSON_PATH"}, "deep"),
        ({"field": "gone", "skip.missing.or.null": "true"}, "orders"),
        ({"field": "$.gone.f4", "field.format": "JSON_PATH", "skip.missing.or.null": "true"}, "orders"),
    ],
)
def test_a_field_names_the_topic(schema: Any, config: dict[str, str], topic: str) -> None:
    found = _one("ExtractTopic$Value", config, _record(valueSchema=schema, value=_WHOLE))
    assert found is not None
    assert found["topic"] == topic


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"field": "gone"}, "value field 'gone' is missing or null.*skip.missing.or.null"),
        ({"field": "n", "skip.missing.or.null": "true"}, "value field 'n'.*must be a non-empty string.*Long"),
        ({}, "The value must be a non-empty string, because it names the topic"),
    ],
)
def test_a_value_that_cannot_name_a_topic_is_refused(config: dict[str, str], message: str) -> None:
    with pytest.raises(DataError, match=message):
        _one("ExtractTopic$Value", config, _record(valueSchema=_STRUCT, value=_WHOLE))


def test_the_whole_key_or_a_header_names_the_topic() -> None:
    found = _one("ExtractTopic$Key", {}, _record())
    assert found is not None
    assert found["topic"] == "k"
    headers = [{"key": "to", "schema": _STRING, "value": text} for text in ("first", "last")]
    found = _one("ExtractTopic$Header", {"field": "to"}, _record(headers=headers))
    assert found is not None
    assert found["topic"] == "last"
    with pytest.raises(DataError, match="headers field 'other' is missing"):
        _one("ExtractTopic$Header", {"field": "other"}, _record(headers=headers))


@pytest.mark.parametrize("path", ["$.a[*]", "$..a", "a.b", "$", "$.a[?(@.b)]"])
def test_a_path_to_more_than_one_field_is_refused(path: str) -> None:
    config = {"field": path, "field.format": "JSON_PATH"}
    with pytest.raises(ConfigError, match="path to one field"):
        step_of({"transform": f"{_CONFLUENT}.ExtractTopic$Value", "config": config})


_RECORDS = [{"f2": "to", "n": 12, "f3": {"f4": "deep"}}, {"f2": "no", "n": 3, "f3": {"f4": "x"}},
            {"f2": "to", "n": None, "f3": None}]  # fmt: skip


@pytest.mark.parametrize("schema", [_STRUCT, None], ids=["schema", "schemaless"])
@pytest.mark.parametrize(
    ("config", "kept"),
    [
        ({"filter.condition": "$[?(@.n > 10)]", "filter.type": "include"}, [True, False, None]),
        ({"filter.condition": "$[?(@.n > 10)]", "filter.type": "exclude"}, [False, True, None]),
        ({"filter.condition": "$[?(@.n > 10)]", "filter.type": "include", "missing.or.null.behavior": "include"},
         [True, False, True]),
        ({"filter.condition": "$[?(@.n > 10)]", "filter.type": "exclude", "missing.or.null.behavior": "exclude"},
         [False, True, False]),
        ({"filter.condition": "$[?(@.f2 == 'to')]", "filter.type": "include"}, [True, False, True]),
        ({"filter.condition": "$.f3[?(@.f4 =~ /D.*/i)]", "filter.type": "include"}, [True, False, None]),
        ({"filter.condition": "$[?(@.f2 == 'to' && @.n == null)]", "filter.type": "include"}, [False, False, True]),
        ({"filter.condition": "$[?(@.gone != 1)]", "filter.type": "include"}, [None, None, None]),
        ({"filter.condition": "$.n", "filter.type": "include", "missing.or.null.behavior": "exclude"},
         [True, True, False]),
    ],
)  # fmt: skip
def test_a_filter_condition_includes_or_excludes_records(
    schema: Any, config: dict[str, str], kept: list[bool | None]
) -> None:
    for value, wanted in zip(_RECORDS, kept, strict=True):
        given = _record(valueSchema=schema, value=value)
        if wanted is None:
            with pytest.raises(
                DataError, match=r"has no field that .* reads, or it is null.*missing\.or\.null\.behavior"
            ):
                _one("Filter$Value", config, given)
            continue
        found = _one("Filter$Value", config, given)
        assert (found is not None) is wanted
        assert found is None or found["valueSchema"] == schema


def test_a_tombstone_has_no_field() -> None:
    config = {"filter.condition": "$[?(@.n > 10)]", "filter.type": "include"}
    with pytest.raises(DataError, match=r"missing.or.null.behavior"):
        _one("Filter$Value", config, _record(valueSchema=None, value=None))
    config["missing.or.null.behavior"] = "include"
    assert _one("Filter$Value", config, _record(valueSchema=None, value=None)) is not None


@pytest.mark.parametrize(
    ("condition", "message"),
    [("$[?(@.n > 10)", r"JSONPath: expected \)\]"), ("$..n", r"deep scans \(\.\.\) are not supported"),
     ("$[?(@.n.length() > 1)]", "functions are not supported"), ("$[?(@.n = 1)]", "expected")],
)  # fmt: skip
def test_an_invalid_condition_is_refused_with_its_position(condition: str, message: str) -> None:
    config = {"filter.condition": condition, "filter.type": "include"}
    with pytest.raises(ConfigError, match=message) as refused:
        step_of({"transform": f"{_CONFLUENT}.Filter$Value", "config": config})
    assert refused.value.field == "filter.condition"


def test_a_float_and_a_decimal_are_compared_by_their_printed_text() -> None:
    fields = [{"type": "float", "optional": True, "field": "f"},
              {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "version": 1, "field": "d",
               "parameters": {"scale": "2"}, "optional": True}]  # fmt: skip
    given = _record(valueSchema={"type": "struct", "optional": False, "fields": fields},
                    value={"f": 0.1, "d": {"$decimal": ["1010", 2]}})  # fmt: skip
    for condition in ("@.f == 0.1", "@.d == 10.1", "@.d > 10.09 && @.d < 10.11", "@.f >= 0.1"):
        config = {"filter.condition": f"$[?({condition})]", "filter.type": "include"}
        assert _one("Filter$Value", config, given) is not None, condition


@pytest.mark.parametrize("package", [_CONFLUENT, "io.confluent.connect.cloud.transforms"])
def test_topic_regex_router_renames_the_topic(package: str) -> None:
    config = {"regex": "ord(.*)", "replacement": "acme_$1"}
    for found in results({"transform": f"{package}.TopicRegexRouter", "config": config, "input": _record()}):
        assert found is not None
        assert found["topic"] == "acme_ers"
