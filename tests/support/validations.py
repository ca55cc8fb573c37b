"""Connectors' configs for comparing validation with a real Connect worker, and our answer in the REST API's form.

Owns the generator (a seed gives a config) and the rendering. Owns no worker: ours is `herdmesh.connect` itself, with
the plugins both sides have.

Invariant: configs name only classes that exist on both sides or on neither.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Mapping
from typing import Any

from herdmesh.connect.clients.client_overrides import override_policy
from herdmesh.connect.config.config_def import ConfigKey, text_of
from herdmesh.connect.errors import ConfigError
from herdmesh.connect.plugins.builtin import builtin_classes
from herdmesh.connect.plugins.plugin_registry import PluginRegistry, describe
from herdmesh.connect.validation.connector_config import ValidatedField, Validation, validate_connector
from herdmesh.connect.validation.connector_keys import SINK, SOURCE
from herdmesh.connect.validation.framework_keys import WorkerFacts
from herdmesh.connectors.file_stream.sink.connector import FileStreamSink
from herdmesh.connectors.file_stream.source.connector import FileStreamSource

Json = dict[str, Any]
Config = dict[str, str | None]

PLUGINS = PluginRegistry([describe(FileStreamSource), describe(FileStreamSink)])
STRING_KEYS = {"key.converter": "org.apache.kafka.connect.storage.StringConverter"}
POLICY = "connector.client.config.override.policy"
WORKERS: Mapping[str, tuple[dict[str, str], WorkerFacts]] = {
    "plain": (
        STRING_KEYS,
        WorkerFacts({**WorkerFacts().converters, **STRING_KEYS}, "val-plain", exactly_once=False),
    ),
    "eos": (
        {**STRING_KEYS, "exactly.once.source.support": "enabled", POLICY: "Principal"},
        WorkerFacts({**WorkerFacts().converters, **STRING_KEYS}, "val-eos", overrides=override_policy("Principal")),
    ),
    "alt": (
        {POLICY: "None"},
        WorkerFacts(group_id="val-alt", exactly_once=False, overrides=override_policy("None")),
    ),
    "allow": (
        {POLICY: "Allowlist", "connector.client.config.override.allowlist": "linger.ms,acks"},
        WorkerFacts(
            group_id="val-allow", exactly_once=False, overrides=override_policy("Allowlist", ["linger.ms", "acks"])
        ),
    ),
}
"""Settings of a Java worker, and the same worker's facts for ours. The name is the group's too, after `val-`."""

_PACKAGE = "org.apache.kafka.connect."
_TEXTS = ("", "x", "-1", "0", "1", " 2 ", "true", "FALSE", "none", "all", "a,b", "a,a", "a:b", "a:", "int8", "f:int32",
          "f:bytes", "[", "(a", ".*", "a**", "4.3.1", "1.0", "[4,5)", "latest", "[x", "restart", "required", "poll",
          "Interval", "connector", "1.5", "99999999999", "move", "string", "Date", "seconds", "V1", "v2", "base64",
          "key", None, "\u00e9", "a\u0001b", "it's", "b , a", "32768", "2147483648")  # fmt: skip
_CONVERTERS = (f"{_PACKAGE}json.JsonConverter", "Json", "String", "LongConverter", "Simple", "nosuch", "",
               f"{_PACKAGE}transforms.Filter", f"{_PACKAGE}storage.Converter", " Json", None)  # fmt: skip
_OPTIONS = ("acks", "linger.ms", "retries", "max.poll.records", "bogus", "sasl.mechanism", "ssl.key.password",
            "bootstrap.servers", "client.id", "group.id", "metadata.max.age.ms", "enable.auto.commit")  # fmt: skip
_CLASSES = {one.name: [*one.definition.keys] for one in builtin_classes() if ".transforms." in one.name}


def config_of(seed: int) -> Config:
    """A config with a few settings, valid and invalid."""
    dice = random.Random(seed)
    source = dice.random() < 0.5
    config: Config = {"name": "v", "connector.class": "FileStreamSource" if source else "FileStreamSink", "file": "f"}
    if dice.random() < 0.9:
        config["topic" if source else "topics"] = "t"
    keys = [name for name in (SOURCE if source else SINK).keys if name != "connector.class"]
    for name in dice.sample(keys, dice.choice([0, 1, 1, 2, 3])):
        config[name] = dice.choice(_TEXTS)
    for part in ("key", "value", "header"):
        if dice.random() < 0.25:
            config[f"{part}.converter"] = dice.choice(_CONVERTERS)
            options = ("schemas.enable", "schemas.cache.size", "decimal.format", "converter.type", "converter.encoding")
            config[f"{part}.converter.{dice.choice(options)}"] = dice.choice(_TEXTS)
    for family, letters in (("transforms", "abcd"), ("predicates", "pq")):
        _add_family(config, family, dice.sample(letters, dice.choice([0, 0, 1, 2])), dice)
    for _ in range(dice.choice([0, 0, 1, 2, 4])):
        client = dice.choice(["producer", "consumer", "admin"])
        config[f"{client}.override.{dice.choice(_OPTIONS)}"] = dice.choice(["1", "5", "5", "x", "", None])
    shuffled = list(config.items())
    dice.shuffle(shuffled)
    return dict(shuffled)


def _add_family(config: Config, family: str, aliases: list[str], dice: random.Random) -> None:
    if aliases:
        config[family] = ",".join(aliases)
    names = [name for name in _CLASSES if (".predicates." in name) == (family == "predicates") or dice.random() < 0.05]
    for alias in aliases:
        name = dice.choice([*names, "nosuch", "Filter", "RecordIsTombstone"])
        if dice.random() < 0.95:
            config[f"{family}.{alias}.type"] = name
        for option in [*_CLASSES.get(name, ()), "negate", "predicate"]:
            if dice.random() < 0.5:
                config[f"{family}.{alias}.{option}"] = dice.choice(_TEXTS)
        if dice.random() < 0.1:
            config[f"{family}.{alias}.plugin.version"] = dice.choice(["4.3.1", "1.0", "latest", "[x", "", None])


def our_answer(config: Config, worker: WorkerFacts) -> Json | ConfigError:
    """The REST API's body, or the error that Connect would fail with."""
    try:
        return body_of(validate_connector(config, PLUGINS, worker))
    except ConfigError as error:
        return error


def body_of(result: Validation) -> Json:
    """The answer of the REST API."""
    return {
        "name": result.name,
        "error_count": result.error_count,
        "groups": result.groups,
        "configs": [_line_of(one) for one in result.fields],
    }


def definition_of(key: ConfigKey, name: str) -> Json:
    """A definition as the REST API shows it."""
    return {
        "name": name,
        "type": key.type.value,
        "required": key.required,
        "default_value": None if key.required else text_of(key.default, key.type),
        "importance": key.importance.value,
        "documentation": key.doc,
        "group": key.group,
        "width": key.width,
        "display_name": key.display_name or key.name,
        "dependents": list(key.dependents),
        "order_in_group": key.order,
    }


def _line_of(one: ValidatedField) -> Json:
    kind = None if one.key is None else one.key.type
    return {
        "definition": None if one.key is None else definition_of(one.key, one.name),
        "value": {
            "name": one.name,
            "value": text_of(one.value.value, kind),
            "recommended_values": [text_of(value, kind) for value in one.value.recommended],
            "errors": [problem.message for problem in one.value.problems],
            "visible": one.value.visible,
        },
    }


def errors_of(body: Json) -> list[tuple[str, list[str]]]:
    """The keys that have errors, in the order of the result."""
    values = [one["value"] for one in body["configs"]]
    return [(value["name"], value["errors"]) for value in values if value["errors"]]


def digest(body: Json) -> str:
    """A digest of a whole answer, definitions included."""
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:16]


def comparable(message: str) -> str:
    """An error's text without the list of connectors, which Connect prints as Java objects."""
    return message.partition(", available connectors are")[0]
