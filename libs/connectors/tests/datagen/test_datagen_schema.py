"""Tests of values generated from a schema: valid for the schema and
its properties, independent of other values, and of refusals.
"""

from __future__ import annotations

import json
import re
import struct
from collections import Counter
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from herdmesh.connect.model.checks import check_value
from herdmesh.connect.model.data import JavaDate
from herdmesh.connect.model.struct_column import StructColumn
from herdmesh.connectors.datagen.avro_schema import Columns, SchemaError, columns_of
from herdmesh.connectors.datagen.columns import Numbers
from herdmesh.connectors.datagen.quickstarts import QUICKSTARTS
from herdmesh.connectors.datagen.regex_texts import PatternError, text_maker, text_weight

MANY = 2_000


def numbers(first: int = 0, count: int = MANY) -> Numbers:
    return np.arange(first, first + count, dtype=np.uint64)


def schema_of(kind: Any, name: str = "a") -> str:
    return json.dumps({"type": "record", "name": "r", "fields": [{"name": name, "type": kind}]})


def typed(kind: str, **properties: Any) -> dict[str, Any]:
    more: dict[str, Any] = properties.pop("more", {})
    return {"type": kind, **more, "arg.properties": properties}


def column(kind: Any, asked: Numbers | None = None, *names: object) -> list[Any]:
    """Return values of a field of that type, each checked against its schema."""
    columns = columns_of(schema_of(kind), *names)
    values = list(columns.makers[0](numbers() if asked is None else asked))
    field = columns.schema.fields[0].schema
    for value in values:
        check_value(field, value)
    return values


EVERYTHING = json.dumps(
    {
        "type": "record",
        "name": "r",
        "fields": [
            {"name": f"f{at}", "type": kind}
            for at, kind in enumerate(
                [
                    *("boolean", "int", "long", "float", "double", "string", "bytes", ["null", "int"], ["string"]),
                    typed("int", range={"min": -5, "max": 5}),
                    typed("long", iteration={"start": 7, "restart": 100, "step": 3}),
                    typed("double", iteration={"start": 0.5, "restart": 9.5, "step": 0.25}),
                    typed("boolean", iteration={"start": False}),
                    typed("boolean", odds=0.9),
                    typed("string", regex="[a-z]{2,5}(-[0-9]+|)"),
                    typed("string", options=["x", "y"], prefix="<", suffix=">"),
                    typed("string", length={"min": 1, "max": 3}),
                    {"type": "enum", "name": "e", "symbols": ["A", "B"]},
                    {"type": "fixed", "name": "four", "size": 4},
                    {"type": "array", "items": "int", "arg.properties": {"length": {"min": 0, "max": 4}}},
                    {"type": "map", "values": ["null", "string"], "arg.properties": {"keys": {"regex": "k[0-9]"}}},
                    {"type": "record", "name": "inner", "fields": [{"name": "x", "type": typed("int", options=[1])}]},
                    ["null", {"type": "array", "items": {"type": "record", "name": "deep", "fields": [
                        {"name": "y", "type": "inner"}]}}],
                    {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
                    {"type": "int", "logicalType": "date"},
                    {"type": "int", "logicalType": "time-millis"},
                    {"type": "long", "logicalType": "timestamp-millis"},
                ]
            )
        ],
    }
)  # fmt: skip


def as_single(value: float) -> float:
    """Return the nearest 32-bit number."""
    return struct.unpack("f", struct.pack("f", value))[0]


def rows_of(columns: Columns, asked: Numbers) -> list[list[Any]]:
    made = [list(make(asked)) for make in columns.makers]
    return [list(row) for row in zip(*made, strict=True)]


@settings(max_examples=30)
@given(st.integers(0, 2**62), st.integers(1, 20), st.integers(0, 3), st.integers(0, 2**31))
def test_record_n_is_the_same_alone_and_in_a_batch(first: int, count: int, task: int, seed: int) -> None:
    columns = columns_of(EVERYTHING, seed, task)
    whole = rows_of(columns, numbers(first, count))
    again = columns_of(EVERYTHING, seed, task)
    assert whole == [rows_of(again, numbers(first + at, 1))[0] for at in range(count)]
    for row in whole:
        for field, value in zip(columns.schema.fields, row, strict=True):
            check_value(field.schema, value)


def test_seeds_and_tasks_have_different_records() -> None:
    text = schema_of("long")
    seen = [
        tuple(columns_of(text, seed, task).makers[0](numbers(0, 50))) for seed in range(3) for task in range(3)
    ]  # fmt: skip
    assert len({value for column in seen for value in column}) == 9 * 50


@pytest.mark.parametrize("name", QUICKSTARTS)
def test_each_quickstart_generates_valid_records_with_a_key(name: str) -> None:
    columns = columns_of(QUICKSTARTS[name].schema, 1, 0)
    structs = StructColumn(columns.schema, [make(numbers()) for make in columns.makers], MANY)
    for one in structs:
        one.validate()
    assert QUICKSTARTS[name].key in columns.schema.places
    assert {type(one.get(QUICKSTARTS[name].key)) for one in structs} <= {str, int}


# --- properties


def test_integers_cover_exactly_their_range() -> None:
    assert set(column(typed("int", range={"min": -2, "max": 3}))) == {-2, -1, 0, 1, 2}
    assert all(value >= 2**62 for value in column(typed("long", range={"min": 2**62})))
    assert all(value < -(2**30) for value in column(typed("int", range={"max": -(2**30)})))
    whole = column("long")
    assert min(whole) < -(2**62)
    assert max(whole) > 2**62
    assert set(column(typed("int", more={"connect.type": "int8"}, range={"min": 126}))) == {126, 127}


def test_floats_are_below_the_end_of_their_range() -> None:
    for kind in ("float", "double"):
        values = column(typed(kind, range={"min": 0.1, "max": 0.3}))
        assert all(0.0999 < value < 0.3 for value in values)
        assert len(set(values)) > MANY // 2
        assert all(0 <= value < 1 for value in column(kind))
    assert all(as_single(value) == value for value in column(typed("float", range={"min": 0.1, "max": 0.3})))
    wide = column(typed("double", range={"max": 1.0}))
    assert all(-1.8e308 < value < 1.0 for value in wide)


@pytest.mark.parametrize(
    ("iteration", "first", "expected"),
    [
        ({"start": 5}, 0, [5, 6, 7]),
        ({"start": 5}, 2**40, [2**40 + 5, 2**40 + 6]),
        ({"start": 0, "restart": 3}, 0, [0, 1, 2, 0, 1]),
        ({"start": 0, "restart": 3}, 4, [1, 2, 0]),
        ({"start": 10, "restart": 0, "step": -4}, 0, [10, 6, 2, 8, 4]),
        ({"start": 10, "restart": 7}, 0, [10, 9, 8, 10]),
        ({"start": 0, "restart": 100, "initial": 98}, 0, [98, 99, 0]),
        ({"start": 0, "step": -1}, 0, [0, -1, -2]),
        ({"start": 2**63 - 2}, 0, [2**63 - 2, 2**63 - 1, 2**63 - 2]),
    ],
)
def test_an_iteration_counts_records(iteration: dict[str, Any], first: int, expected: list[int]) -> None:
    assert column(typed("long", iteration=iteration), numbers(first, len(expected))) == expected


def test_iterations_of_other_types() -> None:
    assert column(typed("boolean", iteration={"start": True}), numbers(0, 3)) == [True, False, True]
    asked = typed("double", iteration={"start": 0.0, "restart": 1.0, "step": 0.25, "initial": 0.5})
    assert column(asked, numbers(0, 4)) == [0.5, 0.75, 0.0, 0.25]
    asked = typed("float", iteration={"start": 0.0, "restart": 1.0, "step": 0.1})
    assert all(as_single(value) == value for value in column(asked, numbers(0, 4)))
    asked = typed("int", more={"logicalType": "date"}, iteration={"start": 1})
    assert column(asked, numbers(0, 2)) == [JavaDate(86_400_000), JavaDate(172_800_000)]


def test_odds_nulls_and_options_have_the_expected_frequencies() -> None:
    assert 0.85 < sum(column(typed("boolean", odds=0.9))) / MANY < 0.95
    assert set(column(typed("boolean", odds=1.0))) == {True}
    assert 0.45 < column(["null", "int"]).count(None) / MANY < 0.55
    counts = Counter(column(typed("string", options=["a", "b", "c", "d"])))
    assert set(counts) == set("abcd")
    assert max(counts.values()) < 1.3 * min(counts.values())


def test_lengths_are_from_min_inclusive_to_max_exclusive() -> None:
    assert {len(value) for value in column("string")} == set(range(8, 16))
    assert {len(value) for value in column(typed("bytes", length={"min": 1, "max": 3}))} == {1, 2}
    assert {len(value) for value in column(typed("string", length=4))} == {4}
    assert {len(value) for value in column(typed("string", length=0))} == {0}
    lists = column({"type": "array", "items": "int", "arg.properties": {"length": {"max": 3}}})
    assert {len(value) for value in lists} == {0, 1, 2}
    assert len({item for value in lists for item in value}) > MANY // 2, "items are drawn one by one"
    named = column({"type": "map", "values": "int", "arg.properties": {"length": 2, "keys": {"options": ["p", "q"]}}})
    assert {frozenset(value) for value in named} == {frozenset("p"), frozenset("q"), frozenset("pq")}


def test_decimals_and_times_are_connects_values() -> None:
    decimals = column({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2})
    assert all(isinstance(one, Decimal) and 0 <= one < 100 for one in decimals)
    assert {one.as_tuple().exponent for one in decimals} == {-2}
    for kind, logical in (("int", "date"), ("int", "time-millis"), ("long", "timestamp-millis")):
        assert {type(one) for one in column({"type": kind, "logicalType": logical})} == {JavaDate}


# --- what is refused


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (typed("int", odds=0.5), "a: arg.properties 'odds' is not supported for the type int"),
        (typed("int", options={"file": "f", "encoding": "json"}), "a: options must be a list"),
        (typed("int", options=[]), "a: options must be a list"),
        (typed("int", options=["x"]), "a: the option 'x' is not a valid int"),
        (typed("string", options=[1]), "a: options must be a list of strings"),
        ({"type": "array", "items": typed("string", length=900), "arg.properties": {"length": 900}}, "needs 81"),
        (typed("int", options=[2**31]), "a: the option 2147483648 is not a valid int"),
        (typed("int", options=[1], range={"min": 1}), "a: options and range cannot be combined"),
        (typed("int", range={}), "a: range needs min or max"),
        (typed("int", range={"min": 5, "max": 5}), "a: range needs min or max, and min below max"),
        (typed("int", range={"min": 0.5}), "a range: min is 0.5"),
        (typed("int", range={"least": 1}), "a range: 'least' is not supported"),
        (typed("int", range=[1, 2]), "a range must be an object"),
        (typed("int", iteration={}), "a iteration needs start"),
        (typed("int", iteration={"start": 1, "restart": 1}), "a iteration: step must lead"),
        (typed("int", iteration={"start": 1, "step": 0}), "a iteration: step must lead"),
        (typed("int", iteration={"start": 1, "restart": 9, "step": -1}), "a iteration: step must lead"),
        (typed("int", iteration={"start": 1, "restart": 9, "initial": 9}), "a iteration: initial must be"),
        (typed("int", iteration={"start": 2**31}), "a iteration: start is 2147483648"),
        (typed("boolean", odds=2), "a: odds must be a number from 0 to 1"),
        (typed("boolean", iteration={"start": 1}), "a iteration: start is 1"),
        (typed("boolean", iteration={}), "a iteration needs start"),
        (typed("string", length=-1), "a: length must be a whole number"),
        (typed("string", length={"min": 5, "max": 5}), "a: length must be a whole number"),
        (typed("string", length=10_001), "a: length must be a whole number"),
        (typed("string", length=3, regex="x"), "a: length and regex together are not supported"),
        (typed("string", regex="(?=x)"), "a: the pattern (?=x): a group that begins with (?"),
        (typed("string", iteration={"start": 1}), "a: arg.properties 'iteration' is not supported for the type string"),
        (typed("string", prefix=1), "a: prefix and suffix must be strings"),
        (["null", "int", "string"], "a: a union of more than null and one type is not supported"),
        ({"type": "array", "items": typed("int", iteration={"start": 1})}, "a[]: iteration is not supported within"),
        ({"type": "map", "values": "int", "arg.properties": {"keys": {"odds": 1}}}, "a keys: arg.properties 'odds'"),
        ({"type": {"type": "int"}, "arg.properties": {"range": {"min": 1}}}, "a: arg.properties is next to"),
        ({"type": "enum", "name": "e", "symbols": ["A"], "arg.properties": {"options": ["B"]}}, "the option 'B'"),
        ("null", "Standalone null schemas are not supported"),
        ("nothing", 'undefined name "nothing"'),
        ("r", "contains itself"),
    ],
)
def test_unsupported_properties_are_refused_by_name_and_place(kind: Any, told: str) -> None:
    with pytest.raises(SchemaError, match=re.escape(told)):
        columns_of(schema_of(kind))


def test_an_invalid_schema_is_refused() -> None:
    for text, told in (
        ("{", "Not an Avro schema"),
        ('"int"', "the schema is of type int, but must be a record"),
        ('{"type":"record","name":"r","fields":[{"name":"a","type":"int","arg.properties":{}}]}', "next to the field"),
    ):
        with pytest.raises(SchemaError, match=told):
            columns_of(text)


# --- patterns


letters = st.sampled_from("abcXYZ059_- .é/")
classes = st.sampled_from(["[a-c]", "[^a-y]", "[0-9_]", "\\d", "\\w", ".", "[-x]", "[é-ë]", "[\\]\\d]"])
atoms = letters.map(re.escape) | classes
counts = st.sampled_from(["", "", "?", "*", "+", "{3}", "{0}", "{1,}", "{2,4}"])


def _grouped(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    chains = st.lists(parts, min_size=1, max_size=4).map("".join)
    groups = st.lists(chains, min_size=1, max_size=3).map("|".join)
    few = st.sampled_from(["", "?", "{2}", "{0,2}"])  # more nesting makes matching exponentially slow
    return st.tuples(groups, few).map(lambda one: f"({one[0]}){one[1]}")


patterns = st.recursive(st.tuples(atoms, counts).map("".join), _grouped, max_leaves=6)


@settings(max_examples=60)
@given(st.lists(patterns, min_size=1, max_size=4).map("".join))
def test_every_text_matches_its_pattern(pattern: str) -> None:
    made = text_maker(pattern, "p")(numbers(0, 40))
    wrong = [text for text in made if not re.fullmatch(pattern, text)]
    assert wrong == []
    assert max(map(len, made)) <= text_weight(pattern)
    assert made[:5] == [text_maker(pattern, "p")(numbers(at, 1))[0] for at in range(5)]


def test_a_part_with_few_texts_generates_all_of_them() -> None:
    assert set(text_maker("^User_[1-9]$")(numbers())) == {f"User_{digit}" for digit in range(1, 10)}
    assert len(set(text_maker("[0-9]{2}(a|b)")(numbers()))) == 200


@pytest.mark.parametrize(
    "pattern", ["(", ")", "a)", "[", "[]", "a**", "a+?", "*", "a{2,1}", "a{x}", "a{9999}", "a^b", "\\b", "\\1", "(?i)a",
                "[a&&b]", "[[a]]", "[z-a]", "a\\", "((a{1000}){1000}){1000}", pytest.param("(" * 5_000, id="deep")],
)  # fmt: skip
def test_an_unsupported_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(PatternError, match="the pattern "):
        text_maker(pattern)


def test_generated_values_are_stable_between_versions() -> None:
    """A task that continues from an older version's offset must continue with the same data."""
    columns = columns_of(EVERYTHING, 42, 1)
    row = rows_of(columns, numbers(1_000_000, 1))[0]
    assert [str(value) for value in row[:20]] == [
        "False", "-1049115727", "-5480410081371085177", "0.05707666650414467", "0.3899891834351651", "serpardbixaj",
        "b'u\\xa8:\\xa5\\x92\\x01\\xac\\x88\\x83\\xb0'", "-1899976971", "vngwspql", "0", "13", "7.5", "False", "True",
        "ycj-1570373", "<x>", "pu", "A", "b'\\xdbP\\x19\\xcd'", "[]",
    ]  # fmt: skip
