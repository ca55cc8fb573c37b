"""Tests of the text forms of a document: YAML, CSV, names, JSONPath templates."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from herdmesh.cli.display import documents
from herdmesh.cli.errors import CommandError

_TEXTS = st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=8)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | _TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXTS, inner, max_size=3),
    max_leaves=8,
)
ORDERS: Any = {
    "name": "orders",
    "type": "sink",
    "behind_records": None,
    "connector": {"state": "RUNNING"},
    "tasks": [{"id": 0, "state": "RUNNING"}, {"id": 1, "state": "FAILED"}],
    "config": {"tasks.max": "2", "path": "/a b"},
}
USERS: Any = {**ORDERS, "name": "users", "tasks": []}


@given(_VALUES)
def test_yaml_reads_back_as_the_same_document(document: Any) -> None:
    assert yaml.safe_load(documents.yaml_text(document)) == document


def test_yaml_keeps_the_order_of_keys_and_letters_as_they_are() -> None:
    assert documents.yaml_text({"b": 1, "a": "mitü"}) == "b: 1\na: mitü\n"


@given(st.lists(st.dictionaries(_TEXTS.filter(bool), _TEXTS, min_size=1, max_size=3), min_size=1, max_size=4))
def test_csv_reads_back_as_the_same_texts(rows: list[dict[str, str]]) -> None:
    read = list(csv.DictReader(io.StringIO(documents.csv_text(rows))))
    assert [{key: value for key, value in row.items() if value} for row in read] == [
        {key: value for key, value in row.items() if value} for row in rows
    ]


def test_csv_has_a_column_for_each_value_and_json_for_a_list() -> None:
    header, line = csv.reader(io.StringIO(documents.csv_text(ORDERS)))
    row = dict(zip(header, line, strict=True))
    assert row["name"] == "orders"
    assert row["connector.state"] == "RUNNING"
    assert row["config.tasks.max"] == "2"
    assert row["behind_records"] == ""
    assert json.loads(row["tasks"]) == ORDERS["tasks"]
    assert documents.csv_text([], headers=True) == ""
    assert documents.csv_text({"a": 1}, headers=False) == "1\n"


@pytest.mark.parametrize(
    ("document", "kind", "shown"),
    [
        ([ORDERS, USERS], "", ["connector/orders", "connector/users"]),
        ({"worker_id": "w:1"}, "", ["worker/w:1"]),
        ({"logger": "a.b", "worker_id": "w:1"}, "", ["logger/a.b"]),
        ({"class": "x.Sink"}, "", ["plugin/x.Sink"]),
        ({"name": "orders"}, "topic", ["topic/orders"]),
        (["orders", "users"], "topic", ["topic/orders", "topic/users"]),
        ({"healthy": True}, "", []),
    ],
)
def test_names(document: Any, kind: str, shown: list[str]) -> None:
    assert list(documents.names(document, kind)) == shown


@pytest.mark.parametrize(
    ("document", "template", "shown"),
    [
        (ORDERS, "{.name}", "orders"),
        (ORDERS, "{$.name}", "orders"),
        (ORDERS, ".name", "orders"),
        (ORDERS, "name", "orders"),
        (ORDERS, "{.connector.state}", "RUNNING"),
        (ORDERS, "{.config['tasks.max']}", "2"),
        (ORDERS, "{.tasks[*].id}", "0 1"),
        (ORDERS, "{.tasks[0]}", '{"id": 0, "state": "RUNNING"}'),
        (ORDERS, '{.tasks[?(@.state=="FAILED")].id}', "1"),
        (ORDERS, "{.nothing}", ""),
        (ORDERS, "{.behind_records}", ""),
        (ORDERS, '{.name}{"\\t"}{.type}', "orders\tsink"),
        (ORDERS, "name: {.name}, type: {.type}", "name: orders, type: sink"),
        ([ORDERS, USERS], "{[*].name}", "orders users"),
        ([ORDERS, USERS], "{.items[*].name}", "orders users"),
        ([ORDERS, USERS], "{[1].name}", "users"),
        ([ORDERS, USERS], '{range .items[*]}{.name}={@.type}{"\\n"}{end}', "orders=sink\nusers=sink\n"),
        ([ORDERS], "{range [*]}{.name}:{range .tasks[*]} {.id}{end};{end}", "orders: 0 1;"),
        ({"items": 3}, "{.items}", "3"),
    ],
)
def test_a_jsonpath_is_evaluated_as_kubectl_does(document: Any, template: str, shown: str) -> None:
    assert documents.jsonpath_text(document, template) == shown


@pytest.mark.parametrize("template", ["{.tasks[}", "{range .tasks[*]}{.id}", "{.name..}"])
def test_a_jsonpath_that_cannot_be_read_is_wrong_usage(template: str) -> None:
    with pytest.raises(CommandError) as error:
        documents.jsonpath_text(ORDERS, template)
    assert error.value.exit_code == 2
    assert template in error.value.message
