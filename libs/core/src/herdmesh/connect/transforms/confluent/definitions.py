"""Options of Confluent's transformations, from the tables of its documentation.

Owns the definitions; the behaviour is in the module of each class.
"""

from __future__ import annotations

from herdmesh.connect.config import (
    REQUIRED,
    ConfigDef,
    ConfigKey,
    Importance,
    Type,
    one_of,
    one_of_ignoring_case,
    regex,
)

DROP = ConfigDef(
    ConfigKey(
        "schema.behavior", Type.STRING, "nullify", Importance.MEDIUM,
        "Handling of a schema: nullify sets it to null, retain keeps it, validate refuses one that is not optional "
        "and force_optional makes it optional.",
        one_of("nullify", "retain", "validate", "force_optional"),
    ),
)  # fmt: skip

TOMBSTONE_HANDLER = ConfigDef(
    ConfigKey(
        "behavior", Type.STRING, "warn", Importance.MEDIUM,
        "What to do with a record without a value: ignore leaves it out, warn leaves it out with a warning in the log, "
        "fail refuses it.",
        one_of("ignore", "warn", "fail"),
    ),
)  # fmt: skip

FILTER = ConfigDef(
    ConfigKey(
        "filter.condition", Type.STRING, REQUIRED, Importance.HIGH,
        "Condition on records, as a JSONPath: $[?(@.price > 10)].",
    ),
    ConfigKey(
        "filter.type", Type.STRING, REQUIRED, Importance.HIGH,
        "What to do with matching records: include keeps them and leaves all others out, exclude leaves them out.",
        one_of("include", "exclude"),
    ),
    ConfigKey(
        "missing.or.null.behavior", Type.STRING, "fail", Importance.MEDIUM,
        "What to do with a record that lacks a field of the condition, or has null there: fail refuses it, include "
        "keeps it, exclude leaves it out.",
        one_of("fail", "include", "exclude"),
    ),
)  # fmt: skip

_SKIP = ConfigKey(
    "skip.missing.or.null", Type.BOOLEAN, False, Importance.LOW,
    "Whether a record whose topic field is missing or null keeps its topic. Otherwise it is refused.",
)  # fmt: skip

EXTRACT_TOPIC = ConfigDef(
    ConfigKey(
        "field", Type.STRING, "", Importance.MEDIUM,
        "Field with the topic's name. Empty: the whole key or value, a string, is the name.",
    ),
    ConfigKey(
        "field.format", Type.STRING, "PLAIN", Importance.MEDIUM,
        "How the field is named: PLAIN by its name, JSON_PATH by a path to one field.",
        one_of_ignoring_case("JSON_PATH", "PLAIN"),
    ),
    _SKIP,
)  # fmt: skip

EXTRACT_TOPIC_HEADER = ConfigDef(
    ConfigKey("field", Type.STRING, REQUIRED, Importance.MEDIUM, "Header with the topic's name."),
    _SKIP,
)

TOPIC_REGEX_ROUTER = ConfigDef(
    ConfigKey("regex", Type.STRING, REQUIRED, Importance.HIGH, "Regular expression to use for matching.", regex()),
    ConfigKey("replacement", Type.STRING, REQUIRED, Importance.HIGH, "Replacement string."),
)
