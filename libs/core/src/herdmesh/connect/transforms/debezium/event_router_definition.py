"""Options of Debezium's EventRouter, with its texts (release 3.6.1).

Owns the definition.

Invariant: the definition has every key that the real class declares, with equal attributes (golden vectors
debezium.jsonl); `ROUTER_KEYS` are the additional ones.
"""

from __future__ import annotations

from typing import Any

from herdmesh.connect.config import ConfigDef, ConfigKey, Importance, Type, Validator
from herdmesh.connect.errors import ConfigError
from herdmesh.connect.java import syntax_error
from herdmesh.connect.transforms.debezium.json_payload import NAME_ADJUSTMENTS


def _refusal(key: str, value: Any, why: str) -> ConfigError:
    return ConfigError.for_value(key, value, f"The '{key}' value is invalid: {why}")


def _one_of(*choices: str) -> Validator:
    """One of the texts, ignoring case and blanks around it. Give them in the order in which Debezium prints them."""

    def check(key: str, value: Any) -> None:
        if value is None or value.strip().lower() not in choices:
            raise _refusal(key, value, f"Value must be one of {', '.join(choices)}")

    return Validator(f"[{', '.join(choices)}]", check)


def _placements() -> Validator:
    def check(key: str, value: Any) -> None:
        for one in value or ():
            parts = one.split(":")
            if len(parts) not in (2, 3):
                found = ", ".join(value)
                why = f"A comma-separated list of valid String pairs or trios is expected but got: [{found}]"
                raise _refusal(key, ",".join(value), why)
            if parts[1].strip().lower() not in PLACES:
                raise _refusal(key, ",".join(value), f"'{one}' has to name one of {', '.join(PLACES)}")

    return Validator("column:placement or column:placement:alias, ...", check)


def _expression() -> Validator:
    def check(key: str, value: Any) -> None:
        wrong = None if value is None else syntax_error(value)
        if wrong is not None:
            raise _refusal(key, value, f"A valid regular expressions is expected, but {wrong}")

    return Validator("valid regex", check)


PLACES = ("header", "envelope", "partition")
"""Destinations of a column of the outbox table."""

_EVENT_ROUTER = ConfigDef(
    ConfigKey(
        "table.field.event.id", Type.STRING, "id", Importance.LOW,
        "The column which contains the event ID within the outbox table",
        width="MEDIUM", display_name="Event ID Field", group="Table", order=1,
    ),
    ConfigKey(
        "table.field.event.key", Type.STRING, "aggregateid", Importance.LOW,
        "The column which contains the event key within the outbox table",
        width="MEDIUM", display_name="Event Key Field", group="Table", order=2,
    ),
    ConfigKey(
        "table.field.event.type", Type.STRING, "type", Importance.LOW,
        "The column which contains the event type within the outbox table",
        width="MEDIUM", display_name="Event Type Field", group="Table", order=3,
    ),
    ConfigKey(
        "table.field.event.payload", Type.STRING, "payload", Importance.LOW,
        "The column which contains the event payload within the outbox table",
        width="MEDIUM", display_name="Event Payload Field", group="Table", order=4,
    ),
    ConfigKey(
        "table.field.event.timestamp", Type.STRING, None, Importance.MEDIUM,
        "Optionally you can override the Kafka message timestamp with a value from a chosen column, "
        "otherwise it'll be the Debezium event processed timestamp.",
        width="MEDIUM", display_name="Event Timestamp Field", group="Table", order=5,
    ),
    ConfigKey(
        "table.fields.additional.placement", Type.LIST, None, Importance.HIGH,
        "Extra fields can be added as part of the event envelope or a message header, format is a list of"
        " colon-delimited pairs or trios when you desire to have aliases, e.g. "
        "<code>id:header,field_name:envelope:alias,field_name:partition</code> ",
        validator=_placements(),
        width="MEDIUM", display_name="Settings for each additional column in the outbox table", group="Table", order=6,
    ),
    ConfigKey(
        "table.field.additional.missing", Type.STRING, "error", Importance.MEDIUM,
        "When transforming the 'table.fields.additional.placement' fields, defines the behavior when one "
        "of the configured fields is missing in the change data. 'error' (default) will throw an "
        "exception; 'ignore' will silently skip the missing field.",
        validator=_one_of("ignore", "error"),
        width="MEDIUM", display_name="Behavior when an additional field is missing in the change data",
        group="Table", order=7,
    ),
    ConfigKey(
        "table.field.event.schema.version", Type.STRING, None, Importance.LOW,
        "The column which contains the event schema version within the outbox table",
        width="MEDIUM", display_name="Event Schema Version Field", group="Table", order=8,
    ),
    ConfigKey(
        "table.op.invalid.behavior", Type.STRING, "warn", Importance.MEDIUM,
        "While Debezium is capturing changes from the outbox table, it is expecting only to process "
        "'create' or 'delete' row events; in case something else is processed this transform can log it "
        "as warning, error or stop the process.",
        validator=_one_of("warn", "error", "fatal"),
        width="MEDIUM", display_name="Behavior when capturing an unexpected outbox event", group="Table", order=9,
    ),
    ConfigKey(
        "table.expand.json.payload", Type.BOOLEAN, False, Importance.MEDIUM,
        "Whether or not to try unescaping a JSON string and make it real JSON. It will infer schema "
        "information from payload and update the record schema accordingly. If content is not JSON, it "
        "just produces a warning and emits the record unchanged",
        width="MEDIUM", display_name="Expand Payload escaped string as real JSON", group="Table", order=10,
    ),
    ConfigKey(
        "table.json.payload.null.behavior", Type.STRING, "ignore", Importance.MEDIUM,
        "Behavior when json payload including null value, the default will ignore null, optional_bytes "
        "will keep the null value, and treat null as optional bytes of connect.",
        validator=_one_of("ignore", "optional_bytes"),
        width="MEDIUM", display_name="Behavior when json payload including null value", group="Table", order=11,
    ),
    ConfigKey(
        "route.by.field", Type.STRING, "aggregatetype", Importance.HIGH,
        "The column which determines how the events will be routed, the value will become part of the "
        "topic name",
        width="MEDIUM", display_name="Field to route events by", group="Router", order=1,
    ),
    ConfigKey(
        "route.topic.regex", Type.STRING, "(?<routedByValue>.*)", Importance.LOW,
        "The default regex to use within the RegexRouter, the default capture will allow to replace the "
        "routed field into a new topic name defined in 'route.topic.replacement'",
        validator=_expression(),
        width="MEDIUM", display_name="The name of the routed topic", group="Router", order=2,
    ),
    ConfigKey(
        "route.topic.replacement", Type.STRING, "outbox.event.${routedByValue}", Importance.HIGH,
        "The name of the topic in which the events will be routed, a replacement '${routedByValue}' is "
        "available which is the value of The column configured via 'route.by.field'",
        width="MEDIUM", display_name="The name of the routed topic", group="Router", order=3,
    ),
    ConfigKey(
        "route.tombstone.on.empty.payload", Type.BOOLEAN, False, Importance.HIGH,
        "Whether or not an empty payload should cause a tombstone event.",
        width="MEDIUM", display_name="Empty payloads cause a tombstone message", group="Router", order=4,
    ),
    ConfigKey(
        "tracing.span.context.field", Type.STRING, "tracingspancontext", Importance.HIGH,
        "The name of the field containing java.util.Properties representation of serialized span context."
        " Defaults to 'tracingspancontext'",
        width="MEDIUM", display_name="Serialized tracing span context field", group="Tracing", order=1,
    ),
    ConfigKey(
        "tracing.operation.name", Type.STRING, "debezium-read", Importance.HIGH,
        "The operation name representing Debezium processing span. Default is 'debezium-read'",
        width="MEDIUM", display_name="Tracing operation name", group="Tracing", order=2,
    ),
    ConfigKey(
        "tracing.with.context.field.only", Type.BOOLEAN, False, Importance.HIGH,
        "Set to `true` when only events that have serialized context field should be traced.",
        width="MEDIUM", display_name="Trace only events with context field present", group="Tracing", order=3,
    ),
)  # fmt: skip

ROUTER_KEYS = (
    ConfigKey(
        "field.name.adjustment.mode", Type.STRING, "none", Importance.LOW,
        "Names of the fields of an expanded payload: none leaves them unchanged, avro replaces characters that Avro "
        "names cannot have with underscores, avro_unicode with their code.",
        validator=_one_of(*NAME_ADJUSTMENTS),
    ),
)  # fmt: skip
"""Keys that Debezium's EventRouter reads and does not declare."""
EVENT_ROUTER = _EVENT_ROUTER.extended(*ROUTER_KEYS)
