"""The model of configuration definitions, equal to Java's `ConfigDef`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from herdmesh.connect.config.config_def import (
    REQUIRED,
    ConfigDef,
    ConfigKey,
    ConfigValue,
    Importance,
    Recommender,
    Type,
    parse_value,
    text_of,
)
from herdmesh.connect.config.validators import at_least, non_empty_string, non_null_string
from herdmesh.connect.errors import ConfigError


def key(name: str, kind: Type = Type.STRING, default: Any = None, **more: Any) -> ConfigKey:
    return ConfigKey(name, kind, default, more.pop("importance", Importance.LOW), "", **more)


def messages(values: Mapping[str, ConfigValue]) -> dict[str, list[str]]:
    return {name: [problem.message for problem in one.problems] for name, one in values.items() if one.problems}


def test_a_value_that_cannot_be_parsed_is_validated_again_as_null() -> None:
    definition = ConfigDef(key("n", Type.INT, 1, validator=at_least(1)))
    assert messages(definition.validate({"n": "x"})) == {
        "n": [
            "Invalid value x for configuration n: Not a number of type INT",
            "Invalid value null for configuration n: Value must be non-null",
        ]
    }


def test_a_missing_value_is_validated_too() -> None:
    definition = ConfigDef(key("h", default=REQUIRED, validator=non_null_string()))
    assert messages(definition.validate({})) == {
        "h": [
            'Missing required configuration "h" which has no default value.',
            "Invalid value null for configuration h: entry must be non null",
        ]
    }


def test_null_is_not_the_default() -> None:
    values = ConfigDef(key("n", Type.INT, 5)).validate({"n": None})
    assert (values["n"].value, values["n"].problems) == (None, [])


def test_an_invalid_value_is_echoed_when_it_can_be_parsed() -> None:
    values = ConfigDef(key("n", Type.INT, 1, validator=at_least(1))).validate({"n": " 0 "})
    assert values["n"].value == 0


def test_an_undefined_dependent_is_reported_and_hidden() -> None:
    values = ConfigDef(key("a", dependents=("b",))).validate({})
    assert messages(values) == {"b": ["b is referred in the dependents, but not defined."]}
    assert not values["b"].visible


def test_a_key_with_two_parents_is_validated_twice() -> None:
    definition = ConfigDef(key("a", dependents=("c",)), key("b", dependents=("c",)), key("c", Type.INT, 1))
    assert messages(definition.validate({"c": "x"})) == {
        "c": ["Invalid value x for configuration c: Not a number of type INT"] * 2
    }


def test_keys_that_only_depend_on_each_other_are_never_validated() -> None:
    definition = ConfigDef(key("a", Type.INT, 1, dependents=("b",)), key("b", Type.INT, 1, dependents=("a",)))
    values = definition.validate({"a": "x"})
    assert [(one.value, one.problems) for one in values.values()] == [(None, []), (None, [])]


class Offer:
    """A recommender that remembers its arguments."""

    def __init__(self, *values: Any, visible: bool = True) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self._values, self._visible = values, visible

    def made(self) -> Recommender:
        return Recommender(self._offered, lambda _name, _parsed: self._visible)

    def _offered(self, name: str, parsed: Mapping[str, Any]) -> Sequence[Any]:
        self.asked.append((name, dict(parsed)))
        return self._values


def test_recommendations_use_parsed_values_and_change_no_error() -> None:
    offer = Offer(1, 2, visible=False)
    values = ConfigDef(key("a", Type.INT, 7), key("b", recommender=offer.made())).validate({"a": "3", "b": "9"})
    assert offer.asked == [("b", {"a": 3, "b": "9"})]
    assert (list(values["b"].recommended), values["b"].visible, values["b"].problems) == ([1, 2], False, [])


def test_two_recommendations_are_intersected() -> None:
    offers = iter([[1, 2, 3], [2, 3, 4]])
    child = key("c", recommender=Recommender(lambda _name, _parsed: next(offers)))
    values = ConfigDef(key("a", dependents=("c",)), key("b", dependents=("c",)), child).validate({})
    assert list(values["c"].recommended) == [2, 3]


def test_a_recommender_that_raises_is_a_problem_of_its_key() -> None:
    def refuse(_name: str, _parsed: Mapping[str, Any]) -> Sequence[Any]:
        raise ConfigError("no idea")

    assert messages(ConfigDef(key("a", recommender=Recommender(refuse))).validate({})) == {"a": ["no idea"]}


def test_embedded_keys_are_sorted_prefixed_and_show_their_short_name() -> None:
    offer = Offer("x")
    child = ConfigDef(
        key("z", group="Late", order=1, dependents=("y",), recommender=offer.made()),
        key("y", group="Late", order=0, validator=non_empty_string()),
        key("b", importance=Importance.HIGH),
        key("a"),
        key("c", default=REQUIRED),
    )
    embedded = [one.embedded("t.", "G", order) for order, one in enumerate(child.sorted_keys(), 2)]
    assert [(one.name, one.group, one.order, one.display_name) for one in embedded] == [
        ("t.c", "G", 2, "c"),
        ("t.b", "G", 3, "b"),
        ("t.a", "G", 4, "a"),
        ("t.y", "G: Late", 5, "y"),
        ("t.z", "G: Late", 6, "z"),
    ]
    definition = ConfigDef(key("other", default="o"), *embedded)
    assert definition.keys["t.z"].dependents == ("t.y",)
    values = definition.validate({"t.y": "", "t.c": "c"})
    assert messages(values) == {"t.y": ["Invalid value  for configuration y: String must be non-empty"]}
    assert offer.asked == [("z", {"c": "c", "b": None, "a": None, "y": "", "z": None})]


class _Classes(dict[str, str]):
    def full_name(self, name: str) -> str | None:
        return self.get(name)

    def class_advice(self, field: str, name: str) -> str:
        return f"no {name} at {field}"


def test_classes_are_found_by_any_of_their_names() -> None:
    definition = ConfigDef(key("c", Type.CLASS))
    known = _Classes({"Json": "org.example.Json"})
    assert definition.validate({"c": " Json "}, known)["c"].value == "org.example.Json"
    values = definition.validate({"c": " nope "}, known)
    assert messages(values) == {"c": ["Invalid value  nope  for configuration c: Class  nope  could not be found."]}
    assert [problem.fix for problem in values["c"].problems] == ["no  nope  at c"]


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (True, Type.BOOLEAN, "true"),
        (["a", "b"], Type.LIST, "a,b"),
        ([], Type.LIST, ""),
        ("secret", Type.PASSWORD, "[hidden]"),
        (None, Type.PASSWORD, None),
        (0.00001, Type.DOUBLE, "1.0E-5"),
        (5, None, "5"),
    ],
)
def test_values_print_as_in_connect(value: Any, kind: Type | None, text: str | None) -> None:
    assert text_of(value, kind) == text


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        (" TRUE ", Type.BOOLEAN, True),
        (" a ", Type.STRING, "a"),
        ("+5", Type.INT, 5),
        ("-32768", Type.SHORT, -32768),
        ("1e3", Type.DOUBLE, 1000.0),
        ("1.5f", Type.DOUBLE, 1.5),
        ("", Type.LIST, []),
        ("a , b,", Type.LIST, ["a", "b", ""]),
        (None, Type.INT, None),
        (5, Type.LONG, 5),
        ([1], Type.LIST, [1]),
    ],
)
def test_values_are_parsed_as_in_connect(text: Any, kind: Type, value: Any) -> None:
    assert parse_value("k", text, kind) == value


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("yes", Type.BOOLEAN, "Invalid value yes for configuration k: Expected value to be either true or false"),
        ("1_0", Type.INT, "Invalid value 1_0 for configuration k: Not a number of type INT"),
        ("32768", Type.SHORT, "Invalid value 32768 for configuration k: Not a number of type SHORT"),
        ("x", Type.DOUBLE, "Invalid value x for configuration k: Not a number of type DOUBLE"),
        (5, Type.STRING, "Invalid value 5 for configuration k: Expected value to be a string, but it was a number"),
        (True, Type.INT, "Invalid value true for configuration k: Expected value to be a int, but it was a boolean"),
    ],
)
def test_invalid_values_are_refused_with_connects_messages(text: Any, kind: Type, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_value("k", text, kind)
    assert str(refused.value) == message
    assert refused.value.field == "k"
