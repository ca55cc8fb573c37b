"""The options of Connect's predicates, with its texts (reference transforms-converters 3).

Owns the definitions only. Invariant: they equal the ones the real classes declare (golden configdef vectors).
"""

from __future__ import annotations

from collections.abc import Mapping

from herdmesh.connect.config import REQUIRED, ConfigDef, ConfigKey, Importance, Type
from herdmesh.connect.validators import all_of, non_empty_string, regex

HAS_HEADER_KEY = ConfigDef(
    ConfigKey("name", Type.STRING, REQUIRED, Importance.MEDIUM,
              "The header name.",
              non_empty_string()),
)  # fmt: skip

TOPIC_NAME_MATCHES = ConfigDef(
    ConfigKey("pattern", Type.STRING, REQUIRED, Importance.MEDIUM,
              "A Java regular expression for matching against the name of a record's topic.",
              all_of(non_empty_string(), regex())),
)  # fmt: skip

RECORD_IS_TOMBSTONE = ConfigDef()

DEFINITIONS: Mapping[str, ConfigDef] = {
    f"org.apache.kafka.connect.transforms.predicates.{name}": definition
    for name, definition in {
        "HasHeaderKey": HAS_HEADER_KEY,
        "RecordIsTombstone": RECORD_IS_TOMBSTONE,
        "TopicNameMatches": TOPIC_NAME_MATCHES,
    }.items()
}
"""By Java class."""
