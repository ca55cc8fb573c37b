"""Differences between MirrorMaker and our mirror connectors in definitions and validation: the recorded ones concerned,
and the reason.

Owns the kinds, and the expected definition or answer instead of a recorded one. Owns no comparison (services/worker's
golden tests) and no page (libs/core/tests/connect/differences.py).

Invariant: a definition of no kind is expected as Java recorded it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from herdmesh.connect.validation.connector_keys import COMMON
from herdmesh.connectors.mirror.checkpoint.connector import MirrorCheckpointConnector
from herdmesh.connectors.mirror.heartbeat.connector import MirrorHeartbeatConnector
from herdmesh.connectors.mirror.source.connector import MirrorSourceConnector
from tests.support.golden import Line

CONNECTORS = (MirrorSourceConnector, MirrorCheckpointConnector, MirrorHeartbeatConnector)
NAMES = tuple(one.class_name for one in CONNECTORS)
BOOTSTRAP, TARGET = "source.cluster.bootstrap.servers", "target.cluster.bootstrap.servers"
OWN = (BOOTSTRAP, TARGET)
ANSWERS_WHY = (
    f"they have the differences above, and `{BOOTSTRAP}` is declared and required, `{TARGET}` declared: Java's mirror "
    "has no definition of them, and fails without them when it starts; but not of heartbeats, which go to the workers' "
    "cluster alone"
)


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of difference between definitions."""

    title: str
    why: str
    meets: Callable[[Line], bool]


def _is_shared(line: Line) -> bool:
    return line["name"] in COMMON.keys


def _is_of_clients(line: Line) -> bool:
    return line["name"].startswith(("ssl.", "sasl.", "security.protocol", "config.providers"))


def _is_class(line: Line) -> bool:
    return line["type"] == "CLASS" and not _is_shared(line) and not _is_of_clients(line)


KINDS = (
    Kind(
        "The mirror does not declare the keys of all connectors again",
        "Java's does, and so its answers lack the worker's converters and the available versions; here they are shown "
        "and checked as for every connector (declared again, a converter's version that does not exist would pass)",
        _is_shared,
    ),
    Kind(
        "The mirror does not declare security settings that stand alone",
        "they secure nothing, in Java either: its clients read them below `source.cluster.`, as ours do; alone each is "
        "a warning",
        _is_of_clients,
    ),
    Kind(
        "Names of Java classes are texts to the mirror",
        "a key of type CLASS is refused unless the class can be loaded, and no Java class can be; a policy is "
        "recognized by its name, and classes other than Java's defaults are refused or a warning",
        _is_class,
    ),
)


def wanted_definitions(lines: list[Line]) -> list[Line]:
    """The expected definitions of a connector from the recorded ones, without our own keys."""
    kept = [line for line in lines if not _is_shared(line) and not _is_of_clients(line)]
    return [{**line, "type": "STRING"} if _is_class(line) else line for line in kept]


def is_asked_for(vector: Line) -> bool:
    """Whether a recorded validation is of the mirror."""
    body: Any = json.loads(vector["request_body"] or "null")
    names = [name for one in CONNECTORS for name in (one.class_name, *one.aliases)]
    return isinstance(body, dict) and cast("Line", body).get("connector.class") in names


def wanted_answer(answer: Line, plain: Line, config: Mapping[str, str | None]) -> Line:
    """The expected answer for the recorded one; `plain` is ours for a connector that has no keys of its own."""
    shared: dict[str, Line] = {one["value"]["name"]: one for one in plain["configs"]}
    found: list[Line] = []
    for one in answer["configs"]:
        line = cast("Line", one["definition"] or {"name": one["value"]["name"], "type": None})
        if _is_shared(line) and line["name"] != "connector.class":
            found.append(shared[line["name"]])
        elif not _is_of_clients(line):
            found.append({**one, "definition": {**line, "type": "STRING"}} if _is_class(line) else one)
    if not own_keys(config):
        return {**answer, "configs": found}
    needed = BOOTSTRAP not in config
    errors = [f'Missing required configuration "{BOOTSTRAP}" which has no default value.'] if needed else []
    own = [{"value": _value(BOOTSTRAP, config, errors)}, {"value": _value(TARGET, config, [])}]
    return {**answer, "error_count": answer["error_count"] + len(errors), "configs": [*found, *own]}


def own_keys(config: Mapping[str, str | None]) -> tuple[str, ...]:
    """Keys that a connector declares and Java's does not, last."""
    one = config.get("connector.class")
    return () if one in (MirrorHeartbeatConnector.class_name, *MirrorHeartbeatConnector.aliases) else OWN


def _value(name: str, config: Mapping[str, str | None], errors: list[str]) -> dict[str, Any]:
    """Config value of a key that only ours has."""
    return {"name": name, "value": config.get(name), "recommended_values": [], "errors": errors, "visible": True}
