"""Connect's rules between the keys of a connector's config, checked after each single key.

Owns the rules (docs/reference/connect/configs.md, sections 5.2 and 5.5; Java: `SinkConnectorConfig.validate`,
`DistributedHerder`), with Connect's texts. Each adds its problems to the given values.
"""

from __future__ import annotations

from collections.abc import Callable

from herdmesh.connect.config import ConfigValue, RawConfig
from herdmesh.connect.errors import ConfigError
from herdmesh.connect.java import matches, syntax_error
from herdmesh.connect.model import hash_map_order
from herdmesh.connect.spi import SourceConnector

_TOPICS, _REGEX = "topics", "topics.regex"
_DEAD_LETTERS = "errors.deadletterqueue.topic.name"
_GROUP = "consumer.override.group.id"
_SUPPORT, _BOUNDARY = "exactly.once.support", "transaction.boundary"
NULL_VALUE = "Null value can not be supplied as the configuration value."


def check_topics(config: RawConfig, values: dict[str, ConfigValue]) -> None:
    """Require one of `topics` and `topics.regex` for a sink, and refuse its own dead letter topic among them.

    Raises ConfigError when the regex has to be applied and cannot be compiled, as Connect fails then.
    """
    topics, regex, dead_letters = (_text(config, name) for name in (_TOPICS, _REGEX, _DEAD_LETTERS))
    if topics and regex:
        message = "topics and topics.regex are mutually exclusive options, but both are set."
        for name in (_TOPICS, _REGEX):
            values[name].add(message, "keep one of them")
    if not topics and not regex:
        for name in (_TOPICS, _REGEX):
            values[name].add("Must configure one of topics or topics.regex", "name the topics to consume")
    if not dead_letters:
        return
    listed = list(dict.fromkeys(name for name in map(str.strip, topics.split(",")) if name))
    if dead_letters in listed:
        values[_TOPICS].add(
            f"The DLQ topic '{dead_letters}' may not be included in the list of topics "
            f"('topics=[{', '.join(listed)}]') consumed by the connector"
        )
    if not regex:
        return
    pattern = config[_REGEX]
    wrong = syntax_error(pattern)
    if wrong is not None:
        raise ConfigError(wrong, field=_REGEX)
    try:
        own = matches(pattern, dead_letters)
    except ConfigError as error:
        raise ConfigError(str(error), field=_REGEX, fix=error.fix) from error
    if own:
        values[_REGEX].add(
            f"The DLQ topic '{dead_letters}' may not be matched by the regex for the topics "
            f"('topics.regex={pattern}') consumed by the connector"
        )


def check_group(config: RawConfig, values: dict[str, ConfigValue], worker_group: str) -> None:
    """Refuse the workers' group as a sink's consumer group."""
    if _GROUP in config:
        group = config[_GROUP]
        value = values.setdefault(_GROUP, ConfigValue(_GROUP, group))
        if group == worker_group:
            value.add(f"Consumer group {group} conflicts with Connect worker group {worker_group}")
        return
    name = values["name"]
    if worker_group == f"connect-{name.value}":
        name.add(
            f"Consumer group for sink connector named {name.value} conflicts with Connect worker group {worker_group}",
            "choose another name",
        )


def check_exactly_once(
    config: RawConfig, values: dict[str, ConfigValue], connector: SourceConnector, *, enabled: bool
) -> None:
    """Require support of the worker and the connector for `exactly.once.support=required` (KIP-618)."""
    value = values[_SUPPORT]
    if value.problems or str(value.value).lower() != "required":
        return
    if not enabled:
        value.add("This worker does not have exactly-once source support enabled.")
    supported, failed = _asked(lambda: connector.exactly_once_support(config))
    if failed is not None:
        value.add(failed)
    elif supported is None:
        value.add(
            "The connector does not implement the API required for preflight validation of exactly-once source "
            "support. Please consult the documentation for the connector to determine whether it supports exactly-once "
            'semantics, and then consider reconfiguring the connector to use the value "requested" for this property '
            "(which will disable this preflight check and allow the connector to be created).",
            "write requested",
        )
    elif not supported:
        value.add("The connector does not support exactly-once semantics with the provided configuration.")


def check_boundary(config: RawConfig, values: dict[str, ConfigValue], connector: SourceConnector) -> None:
    """Require a connector that defines its own transactions for `transaction.boundary=connector`."""
    value = values[_BOUNDARY]
    if value.problems or str(value.value).lower() != "connector":
        return
    supported, failed = _asked(lambda: connector.can_define_transaction_boundaries(config))
    if failed is not None:
        value.add(failed)
    elif supported is None:
        value.add(
            "This connector has returned a null value from its canDefineTransactionBoundaries method, which is not "
            "permitted. The connector will be treated as if it cannot define its own transaction boundaries, and "
            "cannot be configured with 'transaction.boundary' set to 'connector'."
        )
    elif not supported:
        value.add(
            "The connector does not support connector-defined transaction boundaries with the given configuration. "
            "Please reconfigure it to use a different transaction boundary definition.",
            "write poll or interval",
        )


def check_nulls(config: RawConfig, values: dict[str, ConfigValue]) -> None:
    """Refuse null as a value of any key."""
    for name in hash_map_order(config, copied=True):
        if config[name] is None:
            values.setdefault(name, ConfigValue(name)).add(NULL_VALUE, "leave the key out")


def _asked(question: Callable[[], bool | None]) -> tuple[bool | None, str | None]:
    """The result of the author's method, or the message when its code failed."""
    try:
        return question(), None
    except Exception as error:  # noqa: BLE001 - an author's code may raise anything; Connect reports it for this key
        detail = f": {text}" if (text := str(error).strip()) else "; please see the worker logs for more details."
        return None, f"An unexpected error occurred during validation{detail}"


def _text(config: RawConfig, name: str) -> str:
    value = config.get(name)
    return value.strip() if isinstance(value, str) else ""
