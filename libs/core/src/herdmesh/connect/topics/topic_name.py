"""Topic name check: the names that Kafka accepts for a topic.

Owns the rule (Java: `org.apache.kafka.common.internals.Topic.validate`) and its texts. A record's connector chooses its
topic.
"""

from __future__ import annotations

import re
from typing import Final

LENGTH_MAX: Final = 249
"""Kafka's limit (`Topic.MAX_NAME_LENGTH`): a partition's folder adds five digits and more to the name."""
_OTHERS: Final = re.compile(r"[^a-zA-Z0-9._-]")


def why_no_topic(name: str) -> str:
    """The reason why Kafka cannot have a topic of this name, as `no topic's name has ...`; "" = the name is valid."""
    if others := "".join(dict.fromkeys(_OTHERS.findall(name))):
        return f"a topic name cannot contain {others!r}: allowed are a-z, A-Z, 0-9, '.', '_' and '-'"
    if len(name) > LENGTH_MAX:
        return f"a topic name has at most {LENGTH_MAX} characters: this has {len(name)}"
    return "it is not a valid topic name" if name in ("", ".", "..") else ""
