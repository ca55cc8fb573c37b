"""Checks of topic names that a config contains or that are derived from table names.

Owns the error for a name that breaks Kafka's rule (`connect.topic_name`). The source passes its tables in.

Invariant: with transformations in the config no name is refused, because a transformation may change the topic.
"""

from __future__ import annotations

from collections.abc import Iterable

from herdmesh.connect.topics import why_no_topic
from herdmesh.sdk import Config, ConfigError

PREFIX = "topic.prefix"
_NAMED_MAX = 3


def check_topics(config: Config, topics: Iterable[tuple[str, str]], fix: str) -> None:
    """Refuse topics that Kafka would refuse at the first record.

    Args:
        config: the connector's config; with transformations in it nothing is refused.
        topics: pairs of what is read and its topic.
        fix: a second fix, beside renaming the topic.

    Raises:
        ConfigError: field `topic.prefix`, naming the wrong topics, at most `_NAMED_MAX` of them.
    """
    if (config.get("transforms") or "").strip():
        return
    wrong = [f'{what} would go to topic "{topic}", and {why}' for what, topic in topics if (why := why_no_topic(topic))]
    if wrong:
        more = f"; and {len(wrong) - _NAMED_MAX} more" if len(wrong) > _NAMED_MAX else ""
        raise ConfigError(
            f"{PREFIX}: {'; '.join(wrong[:_NAMED_MAX])}{more}", field=PREFIX,
            fix=f"rename the topic with a transformation (RegexRouter), or {fix}",
        )  # fmt: skip


def topic_problems(config: Config, key: str) -> list[ConfigError]:
    """Return the error about a topic that key `key` names and Kafka
    does not accept; none with transformations in the config.
    """
    topic = (config.get(key) or "").strip()
    why = why_no_topic(topic) if topic and not (config.get("transforms") or "").strip() else ""
    return [ConfigError.for_value(key, topic, why, fix="write a name that Kafka accepts")] if why else []
