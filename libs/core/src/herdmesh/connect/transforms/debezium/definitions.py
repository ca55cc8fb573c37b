"""The options of Debezium's transformations, with its texts (release 3.6.1).

Owns the definitions only. Invariant: they have every key that the real classes declare, as they declare it (golden
vectors debezium.jsonl); `OLDER_KEYS` are the ones of ours beyond those.
"""

from __future__ import annotations

from herdmesh.connect.config import ConfigDef, ConfigKey, Importance, Type
from herdmesh.connect.validators import one_of_ignoring_case, optional_one_of

_EXTRACT = ConfigDef(
    ConfigKey(
        "delete.tombstone.handling.mode", Type.STRING, "tombstone", Importance.MEDIUM,
        "How to handle delete records. Options are: drop - Remove the delete event and tombstone "
        "from the stream.tombstone (default) - For each delete event, leave only a tombstone in "
        "the stream.rewrite - Remove tombstone from the record, and add a `__deleted` field with "
        "the value `true`.rewrite-with-tombstone - Retain tombstone in record and add a "
        "`__deleted` field with the value `true`.delete-to-tombstone - Convert delete events to "
        "tombstone events and drop tombstone events.",
        validator=one_of_ignoring_case(
            "DROP", "TOMBSTONE", "REWRITE", "REWRITE-WITH-TOMBSTONE", "DELETE-TO-TOMBSTONE"
        ),
        width="MEDIUM", display_name="Handle delete and tombstone records", order=1,
    ),
    ConfigKey(
        "route.by.field", Type.STRING, "", Importance.LOW,
        "The column which determines how the events will be routed, the value will replace the "
        "topic name.",
        width="LONG", display_name="Route by field name", order=1,
    ),
    ConfigKey(
        "add.fields.prefix", Type.STRING, "__", Importance.LOW,
        "Adds this prefix to each field listed.",
        width="SHORT", display_name="Field prefix to be added to each field.", order=1,
    ),
    ConfigKey(
        "add.fields", Type.LIST, (), Importance.LOW,
        "Adds each field listed, prefixed with __ (or __<struct>_ if the struct is specified). "
        "Example: 'version,connector,source.ts_ms' would add __version, __connector and "
        "__source_ts_ms fields. Optionally one can also map new field name like "
        "version:VERSION,connector:CONNECTOR,source.ts_ms:EVENT_TIMESTAMP.Please note that the "
        "new field name is case-sensitive.",
        width="LONG", display_name="Adds the specified field(s) to the message if they exist.", order=1,
    ),
    ConfigKey(
        "add.headers.prefix", Type.STRING, "__", Importance.LOW,
        "Adds this prefix listed to each header.",
        width="SHORT", display_name="Header prefix to be added to each header.", order=1,
    ),
    ConfigKey(
        "add.headers", Type.LIST, (), Importance.LOW,
        "Adds each field listed to the header,  __ (or __<struct>_ if the struct is specified). "
        "Example: 'version,connector,source.ts_ms' would add __version, __connector and "
        "__source_ts_ms fields. Optionally one can also map new field name like "
        "version:VERSION,connector:CONNECTOR,source.ts_ms:EVENT_TIMESTAMP.Please note that the "
        "new field name is case-sensitive.",
        width="LONG", display_name="Adds the specified fields to the header if they exist.", order=1,
    ),
    ConfigKey(
        "drop.fields.header.name", Type.STRING, None, Importance.LOW,
        "Specifies the name of a header that contains a list of fields to be removed from the "
        "event value.",
        width="SHORT",
        display_name="Specifies a header that contains a list of field names to be removed",
        order=1,
    ),
    ConfigKey(
        "drop.fields.from.key", Type.BOOLEAN, False, Importance.LOW,
        "Specifies whether to apply the drop fields behavior to the event key as well as the "
        "value. Default behavior is to only remove fields from the event value, not the key.",
        width="SHORT",
        display_name="Specifies whether the fields to be dropped should also be omitted from the key",
        order=1,
    ),
    ConfigKey(
        "drop.fields.keep.schema.compatible", Type.BOOLEAN, True, Importance.LOW,
        "Controls the output event's schema compatibility when using the drop fields feature. "
        "`true`: dropped fields are removed if the schema indicates its optional leaving the "
        "schemas unchanged, `false`: dropped fields are removed from the key/value schemas, "
        "regardless of optionality.",
        width="SHORT",
        display_name="Specifies if fields are dropped, will the event's schemas be compatible",
        order=1,
    ),
)  # fmt: skip

OLDER_KEYS = (
    ConfigKey(
        "drop.tombstones", Type.BOOLEAN, None, Importance.MEDIUM,
        "Of Debezium before 3.0: whether to drop tombstones, true by default. Not with delete.tombstone.handling.mode.",
    ),
    ConfigKey(
        "delete.handling.mode", Type.STRING, None, Importance.MEDIUM,
        "Of Debezium before 3.0: drop (its default) drops a delete, rewrite keeps the last row with __deleted, none "
        "gives a record without a value. Not with delete.tombstone.handling.mode.",
        optional_one_of("drop", "rewrite", "none"),
    ),
    ConfigKey(
        "replace.null.with.default", Type.BOOLEAN, True, Importance.LOW,
        "When this option is enabled, null field values are replaced by source-defined defaults when rewriting the "
        "record.",
    ),
)  # fmt: skip
"""Keys that Debezium reads, or has read, and does not declare."""
EXTRACT = _EXTRACT.extended(*OLDER_KEYS)
