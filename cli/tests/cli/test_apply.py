"""Tests of the files of `herd apply`: Connect's own files are understood; others are refused with the file and the
reason.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from herdmesh.cli.batch.connector_files import read_connectors, to_properties
from herdmesh.cli.display import views
from herdmesh.cli.errors import EXIT_USAGE, CommandError


def _file(tmp_path: Path, document: Any) -> str:
    path = tmp_path / "connector.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return str(path)


@pytest.mark.parametrize(
    "document",
    [
        {"name": "a", "config": {"connector.class": "X"}},
        {"config": {"connector.class": "X", "name": "a"}},
    ],
    ids=["beside", "inside"],
)
def test_create_request_of_connects_rest_api(tmp_path: Path, document: Any) -> None:
    [(name, config)] = read_connectors(_file(tmp_path, document))
    assert name == "a"
    assert config["connector.class"] == "X"


def test_flat_config(tmp_path: Path) -> None:
    flat = {"name": "a", "connector.class": "X", "config": "a key of that name is just a key"}
    assert read_connectors(_file(tmp_path, flat)) == [("a", flat)]


def test_a_list_holds_several(tmp_path: Path) -> None:
    documents = [{"name": name, "config": {"connector.class": "X"}} for name in "ab"]
    assert [name for name, _ in read_connectors(_file(tmp_path, documents))] == ["a", "b"]


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ("{", "not JSON"),
        ("3", "expected"),
        ({"config": {"connector.class": "X"}}, 'no "name"'),
        ({"name": " ", "config": {"connector.class": "X"}}, 'no "name"'),
        ({"name": "a", "config": {}}, 'no "connector.class"'),
    ],
)
def test_unusable_files_are_refused_with_the_reason(tmp_path: Path, document: Any, says: str) -> None:
    with pytest.raises(CommandError, match=says) as refused:
        read_connectors(_file(tmp_path, document))
    assert refused.value.exit_code == EXIT_USAGE
    assert "connector.json" in refused.value.message


def test_config_values_are_sent_as_connect_has_them() -> None:
    """Numbers and booleans become text; null stays null, which removes a key in a patch."""
    sent = to_properties({"a": "text", "b": 3, "c": True, "d": None})
    assert views.properties(sent) == {"a": "text", "b": "3", "c": "true", "d": None}
    with pytest.raises(CommandError, match="nested"):
        to_properties({"nested": {"x": 1}})
