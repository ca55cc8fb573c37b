"""Tests of connector files: YAML, properties, folders and standard input, read as texts and refused with the reason."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herdmesh.cli.batch.connector_files import read_all, read_connectors, read_documents
from herdmesh.cli.batch.yaml_text import YamlError, load_all
from herdmesh.cli.display.documents import yaml_text
from herdmesh.cli.errors import CommandError

CONFIG = {"connector.class": "X", "tasks.max": "2", "flag": "yes", "version": "1.10", "octal": "010", "empty": ""}
YAML = """
name: a
config:
  connector.class: X
  tasks.max: 2
  flag: yes
  version: 1.10
  octal: 010
  empty: ''
"""
PROPERTIES = "name=a\n# a comment\nconnector.class = X\ntasks.max=2\nflag: yes\nversion=1.\\\n  10\noctal=010\nempty="


def _stdin(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(text.encode())))


@pytest.mark.parametrize(
    ("name", "text", "own_name"),
    [
        ("a.yaml", YAML, False),
        ("a.yml", YAML.replace("config:\n  ", "").replace("\n  ", "\n"), True),
        ("a.properties", PROPERTIES, True),
        ("a.json", json.dumps({"name": "a", "config": CONFIG}), False),
        ("a.txt", YAML, False),
        ("a.conf", PROPERTIES, True),
        ("-", YAML, False),
        ("-", PROPERTIES, True),
        ("-", json.dumps([{"name": "a", **CONFIG}]), True),
    ],
)
def test_every_form_has_the_same_texts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str, own_name: bool
) -> None:
    """A YAML `yes`, `1.10` or `010` is a text as in the other forms, not a boolean or another number."""
    if name == "-":
        _stdin(text, monkeypatch)
        source = name
    else:
        (tmp_path / name).write_text(text)
        source = str(tmp_path / name)
    assert read_connectors(source) == [("a", {**CONFIG, "name": "a"} if own_name else CONFIG)]


def test_a_number_in_json_keeps_its_digits(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"name": "a", "connector.class": "X", "n": 1e3, "m": 10000000000000000000.10}')
    [(_, config)] = read_connectors(str(tmp_path / "a.json"))
    assert (config["n"], config["m"]) == ("1e3", "10000000000000000000.10")


def test_documents_and_lists_of_yaml_hold_several(tmp_path: Path) -> None:
    file = tmp_path / "many.yaml"
    file.write_text(
        "---\nname: a\nconnector.class: X\nnothing: null\n---\n- {name: b, connector.class: Y}\n"
        "- name: c\n  config: {connector.class: Z}\n---\n"
    )
    found = read_connectors(str(file))
    assert [name for name, _ in found] == ["a", "b", "c"]
    assert found[0][1]["nothing"] is None


def test_anchors_and_merge_keys_of_yaml_are_followed(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(
        "name: a\nconfig: &all\n  connector.class: X\n  topics: t\n---\nname: b\nconfig:\n  <<: *all\n  topics: u\n"
    )
    with pytest.raises(CommandError, match="undefined alias"):
        read_connectors(str(file))  # an anchor is of its document
    file.write_text(
        "- name: a\n  config: &all\n    connector.class: X\n    topics: t\n"
        "- name: b\n  config:\n    <<: *all\n    topics: u\n"
    )
    assert read_connectors(str(file)) == [
        ("a", {"connector.class": "X", "topics": "t"}),
        ("b", {"connector.class": "X", "topics": "u"}),
    ]


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.yaml", "name: a\nname: b\nconnector.class: X", "not YAML: name is there twice, line 2"),
        ("a.yaml", "name: a\nurl: b: c", "not YAML: mapping values are not allowed here, line 2"),
        ("a.yaml", "name: !!python/object/apply:os.system [x]", "not YAML: could not determine a constructor"),
        ("a.yaml", "# nothing", "no connector in it"),
        ("a.yaml", "just a text", "expected"),
        ("a.properties", "name=\\u12", "line 1"),
        ("a.properties", "name=a", 'no "connector.class"'),
        ("a.txt", "just a text", "expected JSON, YAML or properties of a connector"),
    ],
)
def test_unusable_files_are_refused_with_the_line(tmp_path: Path, name: str, text: str, says: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(CommandError) as refused:
        read_documents(str(tmp_path / name))
    assert refused.value.message.startswith(f"{tmp_path / name}: ")
    assert says in refused.value.message


def test_a_folder_gives_its_connector_files_in_order(tmp_path: Path) -> None:
    for path in ("b.json", "a.yaml", "c.yml", ".hidden.json", "deep/d.json", "deep/.git/e.json", "README.md"):
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"name": file.stem, "connector.class": "X"}))
    flat, bad = read_all([str(tmp_path)])
    assert ([one.name for one in flat], bad) == (["a", "b", "c"], [])
    deep, bad = read_all([str(tmp_path)], recursive=True)
    assert ([one.name for one in deep], bad) == (["a", "b", "c", "d"], [])
    os.remove(tmp_path / "deep/d.json")
    _, [(_, error)] = read_all([str(tmp_path / "deep")])
    assert error.message.endswith(
        "no file in it ends with .json, .yaml, .yml, .properties; -R reads the folders within it too"
    )


def test_standard_input_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    _stdin(YAML, monkeypatch)
    found, [(_, error)] = read_all(["-", "-"])
    assert [one.name for one in found] == ["a"]
    assert error.message == "standard input: can be read once: give one -"


@pytest.mark.parametrize("value", ["****", "[redacted]", "jdbc:postgresql://u:****@h/db"])
def test_a_hidden_secret_is_refused_with_its_key(tmp_path: Path, value: str) -> None:
    """The file was written from an output of `herd get`, `describe` or `history`."""
    file = tmp_path / "a.json"
    file.write_text(json.dumps({"name": "a", "connector.class": "X", "some.setting": value, "t.mask": "***"}))
    _, [(_, error)] = read_all([str(file)])
    assert (error.reason, [key for key, _ in error.fields]) == ("CONFIG_INVALID", ["some.setting"])


texts = st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=30)


@given(st.dictionaries(texts, st.none() | texts | st.sampled_from(["null", "~", "yes", "1", "a: b", "#x", "- x", ""])))
def test_yaml_is_read_back_as_it_was_written(config: dict[str, str | None]) -> None:
    assert load_all(yaml_text({"name": "a", "config": config}).encode()) == [{"name": "a", "config": config}]


def test_a_key_of_yaml_is_a_text() -> None:
    with pytest.raises(YamlError, match="a key is a list or a mapping, line 1"):
        load_all(b"{[a]: 1}")
