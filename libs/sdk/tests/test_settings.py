"""Typed declarations of settings: the config definition they produce, the object a config becomes, and invalid
declarations.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import pytest

from herdmesh.sdk import ConfigError, Importance, Recommender, Secret, Settings, Type, setting
from herdmesh.sdk.validators import at_least, non_empty_string


class Mode(StrEnum):
    APPEND = "append"
    REPLACE = "replace"


class JobSettings(Settings):
    """One setting of every kind."""

    url: str = setting("Where.", importance=Importance.HIGH, validator=non_empty_string(), group="Connection")
    password: Secret = setting("The password.", group="Connection", default=Secret("none"))
    mode: Mode = setting("How.", default=Mode.APPEND, dependents=("batch_size",))
    batch_size: int = setting(
        "How many.",
        default=100,
        type=Type.INT,
        validator=at_least(1),
        recommender=Recommender(lambda _name, parsed: [1] if parsed["mode"] == "replace" else [100, 1_000]),
    )
    wait: float = setting("How long.", name="wait.s", default=1.5)
    tables: list[str] = setting("Which.", default=["a", "b"])
    verbose: bool = setting("Loud.", default=False)
    until: int | None = setting("The last one.", default=None)
    fallback: Mode | None = setting("If that fails.", default=None)


def test_declarations_become_connects_config_definition() -> None:
    keys = JobSettings.config_def().keys
    assert [(key.name, key.type) for key in keys.values()] == [
        ("url", Type.STRING), ("password", Type.PASSWORD), ("mode", Type.STRING), ("batch.size", Type.INT),
        ("wait.s", Type.DOUBLE), ("tables", Type.LIST), ("verbose", Type.BOOLEAN), ("until", Type.LONG),
        ("fallback", Type.STRING),
    ]  # fmt: skip
    assert [name for name, key in keys.items() if key.required] == ["url"]
    assert keys["mode"].dependents == ("batch.size",)
    assert keys["mode"].default == "append"
    assert JobSettings.config_def().groups == ["Connection"]
    assert [key.name for key in JobSettings.config_def().sorted_keys()][-2:] == ["url", "password"]
    assert JobSettings.config_def() is JobSettings.config_def()


def test_a_config_becomes_an_object_of_the_annotated_types() -> None:
    found = JobSettings.parse({
        "url": " http://x ", "mode": "replace", "batch.size": "7", "wait.s": "2", "tables": "c, d", "verbose": "TRUE",
        "password": "hush", "unknown": "is ignored",
    })  # fmt: skip
    assert found == JobSettings(
        url="http://x", password=Secret("hush"), mode=Mode.REPLACE, batch_size=7, wait=2.0, tables=["c", "d"],
        verbose=True,
    )  # fmt: skip
    assert isinstance(found.mode, Mode)
    assert found.password.reveal() == "hush"
    assert "hush" not in f"{found} {found!r} {found.password}"
    least = JobSettings.parse({"url": "x"})
    assert (least.mode, least.tables, least.until, least.password.reveal()) == (Mode.APPEND, ["a", "b"], None, "none")
    assert JobSettings.parse({"url": "x", "until": None, "fallback": "append"}).fallback is Mode.APPEND


@pytest.mark.parametrize(
    ("config", "field", "says"),
    [
        ({}, "url", "Missing required configuration"),
        ({"url": ""}, "url", "String must be non-empty"),
        ({"url": None}, "url", "Value must be non-null"),
        ({"url": "x", "mode": "truncate"}, "mode", "String must be one of: append, replace"),
        ({"url": "x", "mode": None}, "mode", "String must be one of"),
        ({"url": "x", "fallback": "truncate"}, "fallback", "String must be one of: append, replace"),
        ({"url": "x", "batch.size": "0"}, "batch.size", "at least 1"),
        ({"url": "x", "batch.size": "3000000000"}, "batch.size", "Not a number of type INT"),
        ({"url": "x", "verbose": None}, "verbose", "Value must be non-null"),
    ],
)
def test_invalid_values_name_their_key(config: dict[str, str | None], field: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as refused:
        JobSettings.parse(config)
    assert refused.value.field == field


def test_recommenders_see_the_keys_they_depend_on() -> None:
    values = JobSettings.config_def().validate({"url": "x", "mode": "replace"})
    assert values["batch.size"].recommended == [1]
    assert JobSettings.config_def().validate({"url": "x"})["batch.size"].recommended == [100, 1_000]


def test_settings_can_extend_settings() -> None:
    class More(JobSettings):
        depth: int = setting("How deep.", default=1)

    assert list(More.config_def().keys) == [*JobSettings.config_def().keys, "depth"]
    assert More.parse({"url": "x", "depth": "3"}).depth == 3


def test_invalid_declarations_are_rejected() -> None:
    class Undeclared(Settings):
        url: str = "x"

    class NoSuchType(Settings):
        urls: dict[str, str] = setting("Which.")

    class WrongType(Settings):
        url: str = setting("Where.", type=Type.INT)

    class NoSuchDependent(Settings):
        url: str = setting("Where.", dependents=("port",))

    cases: list[tuple[Any, str]] = [
        (Undeclared, r"Undeclared\.url: declare it with setting"),
        (NoSuchType, r"NoSuchType\.urls: no key has the type"),
        (WrongType, r"WrongType\.url: an attribute of type .*str.* cannot be read from a key of type INT"),
        (NoSuchDependent, r"NoSuchDependent\.url: dependents that are not attributes: port"),
    ]
    for declared, says in cases:
        with pytest.raises(TypeError, match=says):
            declared.config_def()
