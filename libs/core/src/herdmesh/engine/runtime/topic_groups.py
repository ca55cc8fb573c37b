"""Topic creation groups of a source (KIP-158; docs/reference/connect/configs.md, section 5.4).

Owns the assignment of topics to groups and the groups' settings. Creates no topic (`topic_creation.ensure_topic`).

Invariant: every topic belongs to exactly one group; settings that a group lacks come from the default group, and those
that it lacks from the broker.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from herdmesh.connect.java import matches
from herdmesh.connect.validation import group_names, topic_creation

PREFIX = "topic.creation."
DEFAULT = "default"
_OWN = frozenset({"include", "exclude", "partitions", "replication.factor"})


@dataclass(frozen=True, slots=True)
class TopicGroup:
    """The settings with which topics of a group are created; -1 = the broker's default."""

    name: str
    include: tuple[str, ...]
    """Java regular expressions; one of them matches the whole name of each topic of the group."""
    exclude: tuple[str, ...]
    partitions: int
    replication_factor: int
    config: Mapping[str, str]

    def has(self, topic: str) -> bool:
        """True when the topic belongs to the group, unless an earlier one has it. Raises ConfigError for a regex that
        cannot be applied."""
        return not _any(self.exclude, topic) and _any(self.include, topic)


def _any(patterns: Sequence[str], topic: str) -> bool:
    # As in Connect, which joins them: without patterns, only the empty name matches, and no topic has that.
    return any(matches(pattern, topic) for pattern in patterns)


def topic_groups(config: Mapping[str, str | None]) -> tuple[TopicGroup, ...]:
    """The groups in the order in which they are tried; the default group is the last, and matches every topic.

    Raises ConfigError whose `field` is the key.
    """
    values = topic_creation(group_names(config)).parse(config)
    default = _group(DEFAULT, config, values, None)
    return (*(_group(name, config, values, default) for name in group_names(config)), default)


def _group(
    name: str, config: Mapping[str, str | None], values: Mapping[str, Any], default: TopicGroup | None
) -> TopicGroup:
    prefix = f"{PREFIX}{name}."
    own = {
        key.removeprefix(prefix): value.strip()
        for key, value in config.items()
        if key.startswith(prefix) and value is not None and key.removeprefix(prefix) not in _OWN
    }
    partitions, replicas = values[prefix + "partitions"], values[prefix + "replication.factor"]
    if default is None:
        return TopicGroup(name, (".*",), (), partitions, replicas, own)
    return TopicGroup(
        name,
        tuple(values[prefix + "include"]),
        tuple(values[prefix + "exclude"]),
        default.partitions if partitions is None else partitions,
        default.replication_factor if replicas is None else replicas,
        own,
    )
