"""Topics that are named for the tables that are read into them: whether Kafka has such names.

Owns the rule of names, and what to do about one that breaks it. Which tables there are is each source's.

Invariant: nothing is refused that a transformation may yet give another topic.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from herdmesh.connect.connector import Config
from herdmesh.connect.errors import ConfigError

PREFIX = "topic.prefix"
LENGTH_MAX = 249
"""Kafka's (`Topic.MAX_NAME_LENGTH`): a partition's folder has five digits and more behind it."""
_OTHERS = re.compile(r"[^a-zA-Z0-9._-]")
_NAMED_MAX = 3


def check_topics(config: Config, topics: Iterable[tuple[str, str]], fix: str) -> None:
    """Refuse topics that Kafka would refuse when the first record comes.

    Args:
        config: the connector's; with transformations in it nothing is refused.
        topics: what is read, and its topic.
        fix: besides renaming the topic.

    Raises:
        ConfigError: of `topic.prefix`, with each that is wrong, or the first few.
    """
    if (config.get("transforms") or "").strip():
        return
    wrong = [f'{what} would go to topic "{topic}", {why}' for what, topic in topics if (why := _why_not(topic))]
    if wrong:
        more = f"; and {len(wrong) - _NAMED_MAX} more" if len(wrong) > _NAMED_MAX else ""
        raise ConfigError(
            f"{PREFIX}: {'; '.join(wrong[:_NAMED_MAX])}{more}", field=PREFIX,
            fix=f"rename the topic by a transformation (RegexRouter), or {fix}",
        )  # fmt: skip


def _why_not(topic: str) -> str:
    """Why Kafka has no topic of this name; "" = it may have."""
    if others := "".join(dict.fromkeys(_OTHERS.findall(topic))):
        return f"and no topic's name has {others!r}: it is made of a-z, A-Z, 0-9, '.', '_' and '-'"
    if len(topic) > LENGTH_MAX:
        return f"and no topic's name has more than {LENGTH_MAX} characters: this has {len(topic)}"
    return "and no topic can be called so" if topic in ("", ".", "..") else ""
