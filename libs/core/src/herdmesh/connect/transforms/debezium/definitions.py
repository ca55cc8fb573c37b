"""Options of Debezium's transformations, with its texts (release 3.6.1).

Owns the definitions; the behaviour is in the module of each class.

Invariant: the definitions have every key that the real classes declare, with equal attributes (golden vectors
debezium.jsonl); `OLDER_KEYS` and `ROUTER_KEYS` are the additional ones.
"""

from __future__ import annotations

from herdmesh.connect.config import (
    ConfigDef,
    ConfigKey,
    Importance,
    Type,
    one_of,
    one_of_ignoring_case,
    optional_one_of,
)

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
"""Keys that Debezium reads, or used to read, and does not declare."""
EXTRACT = _EXTRACT.extended(*OLDER_KEYS)

_ROUTER = ConfigDef(
    ConfigKey(
        "topic.regex", Type.STRING, None, Importance.LOW,
        "The regex used for extracting the name of the logical table from the original topic "
        "name.",
        width="LONG",
        display_name="Topic regex",
        order=1,
    ),
    ConfigKey(
        "topic.replacement", Type.STRING, None, Importance.LOW,
        "The replacement string used in conjunction with topic.regex. This will be used to create"
        " the new topic name.",
        width="LONG",
        display_name="Topic replacement",
        order=1,
    ),
    ConfigKey(
        "key.enforce.uniqueness", Type.BOOLEAN, True, Importance.LOW,
        "Augment each record's key with a field denoting the source topic. This field "
        "distinguishes records coming from different physical tables which may otherwise have "
        "primary/unique key conflicts. If the source tables are guaranteed to have globally "
        "unique keys then this may be set to false to disable key rewriting.",
        width="SHORT",
        display_name="Add source topic name into key",
        order=1,
    ),
    ConfigKey(
        "key.field.regex", Type.STRING, None, Importance.LOW,
        "The regex used for extracting the physical table identifier from the original topic "
        "name. Now that multiple physical tables can share a topic, the event's key may need to "
        "be augmented to include fields other than just those for the record's primary/unique "
        "key, since these are not guaranteed to be unique across tables. We need some identifier "
        "added to the key that distinguishes the different physical tables.",
        width="LONG",
        display_name="Key field regex",
        order=1,
    ),
    ConfigKey(
        "key.field.replacement", Type.STRING, None, Importance.LOW,
        "The replacement string used in conjunction with key.field.regex. This will be used to "
        "create the physical table identifier in the record's key.",
        width="LONG",
        display_name="Key field replacement",
        order=1,
    ),
    ConfigKey(
        "logical.table.cache.size", Type.INT, 16, Importance.LOW,
        "The size used for holding the max entries in LRUCache. The cache will keep the old/new "
        "schema for logical table key and value, also cache the derived key and topic regex "
        "result for improving the source record transformation.",
        width="LONG",
        display_name="Logical table cache size",
        order=1,
    ),
)  # fmt: skip

ROUTER_KEYS = (
    ConfigKey(
        "key.field.name", Type.STRING, "__dbz__physicalTableIdentifier", Importance.LOW,
        "Field of the key with the name of the row's table.",
    ),
    ConfigKey(
        "schema.name.adjustment.mode", Type.STRING, "none", Importance.LOW,
        "avro replaces characters that Avro names cannot have with underscores in schema names, none leaves them.",
        one_of("none", "avro"),
    ),
)  # fmt: skip
"""Keys that Debezium's ByLogicalTableRouter reads and does not declare."""
ROUTER = _ROUTER.extended(*ROUTER_KEYS)
