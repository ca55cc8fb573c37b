"""Plan notes: sentences about a planned config besides its units: target state, failures, restart policy, offsets.

Owns the sentences and when each is given. Reads configs only and does not query Kafka, so the notes name the offsets
that would be used, not their values.

Offsets (docs/reference/connect/offsets-topic.md, sections 8 and 9): a sink's are its consumer group's, by topic and
partition; a source's are kept by source partitions, whose names the connector chooses.
tests/e2e/test_planned_offsets.py checks that these sentences come true.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import assert_never

from herdmesh.connect.clients import AUTO_OFFSET_RESET, Start, read_offset_reset
from herdmesh.connect.errors import ConfigError
from herdmesh.herder.state.memory import (
    Fleet,
    Step,
)
from herdmesh.herder.state.model import ConnectorEntry, ConnectorType
from herdmesh.herder.state.model.restart_policy import policy_of, span_text
from herdmesh.herder.state.workers import plugin_catalog
from herdmesh.session.model import Failure, Properties, TargetState

_SHOWN_MAX = 10
_GROUP_KEY = "consumer.override.group.id"
_RESET_KEY = f"consumer.override.{AUTO_OFFSET_RESET}"
_OFFSETS_TOPIC_KEY = "offsets.storage.topic"
_FILE_SOURCES = (
    "org.apache.kafka.connect.file.FileStreamSourceConnector", "FileStreamSourceConnector", "FileStreamSource",
)  # fmt: skip
#: keys of a source's config by which no connector names its source partitions (Connect's own, and Herdmesh's).
_NOT_ITS_OWN = (
    "name", "tasks.max", "tasks.max.enforce", "connector.class", "connector.plugin.version", "key.converter",
    "value.converter", "header.converter", "transforms", "predicates", "config.action.reload", "errors.",
    "topic.creation.", "exactly.once.support", "transaction.boundary", "offsets.storage.topic", "producer.override.",
    "consumer.override.", "admin.override.", "herdmesh.", "topic",
)  # fmt: skip


def notes(
    step: Step,
    fleet: Fleet,
    before: ConnectorEntry | None,
    entry: ConnectorEntry,
    made: tuple[Properties, ...] | None,
    failure: Failure | None,
    *,
    runs: bool,
    others: Sequence[str],
) -> list[str]:
    """Sentences, the most important first. `made` None = no task configs are created; `runs` = a worker could run the
    connector; `others` = units of other connectors that move.
    """
    old = before if before is not None and before.has_config else None
    found: list[str] = []
    if not runs:
        found.append(
            f"No worker that takes work has {entry.class_name}: nothing starts until one does "
            "(a draining worker takes no work)."
        )
    if failure is not None:
        found.append(f"No task configs can be made, so the task set stays as it is: {failure.message}")
    found += _target(entry)
    if others:
        shown = ", ".join([*others[:_SHOWN_MAX], *(["..."] if len(others) > _SHOWN_MAX else [])])
        found.append(f"For balance {len(others)} units of other connectors would move, and restart: {shown}.")
    if made == () and failure is None:
        found.append("The connector makes no task configs: nothing moves records.")
    found += _policy(step, old, entry)
    found += _offsets(fleet, old, entry, made if failure is None else None)
    return found


def _target(entry: ConnectorEntry) -> Iterator[str]:
    match entry.wanted_state:
        case TargetState.PAUSED:
            yield (
                "It is PAUSED: only the connector itself restarts, and stays paused. Its tasks keep the old config and "
                "move nothing; they restart with the new one when it is resumed."
            )
        case TargetState.STOPPED:
            yield "It is STOPPED: it has no tasks, and the config takes effect when it is resumed."
        case TargetState.STARTED:
            return
        case _:
            assert_never(entry.wanted_state)


def _policy(step: Step, old: ConnectorEntry | None, entry: ConnectorEntry) -> Iterator[str]:
    policy = policy_of(step.rules.restart, entry.config)
    if not policy.enabled:
        yield "Restart policy: off (herdmesh.restart.enabled): a task that fails stays FAILED until it is restarted."
    else:
        yield (
            f"Restart policy: at most {policy.attempts_max} restarts of a task within {span_text(policy.window_ms)}, "
            f"each {span_text(policy.backoff_ms)} to {span_text(policy.backoff_max_ms)} after the failure."
        )
    if old is not None and old.config != entry.config:
        yield "The changed config gives its units a new restart budget."


def _offsets(
    fleet: Fleet, old: ConnectorEntry | None, entry: ConnectorEntry, made: tuple[Properties, ...] | None
) -> Iterator[str]:
    kind = plugin_catalog.type_of(fleet, entry)
    if old is None:
        yield (
            "Offsets: it continues from those that an earlier connector of this name left, if there are any; initial "
            "offsets can be given with the create."
        )
        return
    was = plugin_catalog.type_of(fleet, old)
    if ConnectorType.UNKNOWN not in (was, kind) and was is not kind:
        yield "Offsets: a sink's and a source's are kept apart, so the old ones are not used and stay where they are."
    elif kind is ConnectorType.SINK:
        yield from _sink_offsets(old.config, entry.config, entry.name)
        yield from _division(old, made)
    elif kind is ConnectorType.SOURCE:
        yield from _source_offsets(old, entry)


def _sink_offsets(old: Properties, new: Properties, name: str) -> Iterator[str]:
    group, was = (_text(config, _GROUP_KEY) or f"connect-{name}" for config in (new, old))
    begins = _begins(_text(new, _RESET_KEY))
    if group != was:
        yield (
            f"Offsets: another consumer group, {group}: it begins from that group's offsets, where it has none from "
            f"{begins}; the offsets of group {was} stay."
        )
    if _text(old, "topics.regex") != _text(new, "topics.regex"):
        yield (
            f"Offsets: topics.regex changed: topics that match newly begin at their committed offsets, else at "
            f"{begins}; offsets of topics that match no longer stay in group {was}."
        )
    before, after = _topics(old), _topics(new)
    if gone := sorted(before - after):
        yield f"Offsets: {', '.join(gone)} would no longer be read; the committed offsets stay in group {was}."
    if come := sorted(after - before):
        yield f"Offsets: {', '.join(come)} would be read from the offsets in group {group}, else from {begins}."


def _begins(text: str) -> str:
    try:
        return read_offset_reset(text or Start.EARLIEST.value).words()
    except ConfigError:  # reported as an error of the config
        return Start.EARLIEST.value


def _division(old: ConnectorEntry, made: tuple[Properties, ...] | None) -> Iterator[str]:
    if made is not None and old.tasks and made and len(made) != len(old.tasks):
        yield (
            f"Offsets: partitions are divided again among {len(made)} tasks instead of {len(old.tasks)}; each "
            "continues from its committed offset."
        )


def _source_offsets(old: ConnectorEntry, entry: ConnectorEntry) -> Iterator[str]:
    topic = _text(entry.config, _OFFSETS_TOPIC_KEY)
    if _text(old.config, _OFFSETS_TOPIC_KEY) != topic:
        yield (
            f"Offsets: another offsets topic, {topic}: a source partition continues from its offset there, if it has "
            "one, else from its offset in the worker's topic, where every commit is written too."
            if topic
            else "Offsets: the worker's offsets topic instead of its own: it continues, as it has every commit too."
        )
    if old.class_name in _FILE_SOURCES and entry.class_name in _FILE_SOURCES:
        if _text(old.config, "file") != _text(entry.config, "file"):
            yield (
                f"Offsets: they are kept by file name: {_text(entry.config, 'file')} begins at its own offset, else at "
                f"its beginning; the offset of {_text(old.config, 'file')} stays."
            )
        return
    changed = sorted(
        key
        for key in {*old.config, *entry.config}
        if old.config.get(key) != entry.config.get(key) and not key.startswith(_NOT_ITS_OWN)
    )
    if changed:
        yield (
            "Offsets: a source keeps them by the partitions it names itself; where "
            f"{', '.join(changed)} name other ones, those begin again and the offsets of the old ones stay."
        )


def _topics(config: Properties) -> set[str]:
    return {topic for part in _text(config, "topics").split(",") if (topic := part.strip())}


def _text(config: Properties, key: str) -> str:
    value = config.get(key)
    return value.strip() if isinstance(value, str) else ""
