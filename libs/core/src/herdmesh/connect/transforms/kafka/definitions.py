"""Options of Kafka's 16 transformations, with its texts (docs/reference/connect/transforms-converters.md, section 2).

Owns the definitions; the behaviour is in the module of each class. A definition serves `$Key` and `$Value`.

Invariant: the definitions equal those that the real classes declare (golden configdef vectors).
"""

from __future__ import annotations

from collections.abc import Mapping

from herdmesh.connect.config import (
    REQUIRED,
    ConfigDef,
    ConfigKey,
    Importance,
    Type,
    cast_spec,
    distinct_values,
    non_empty_list,
    non_empty_string,
    non_null_string,
    one_of,
    one_of_ignoring_case,
    regex,
    rename_pairs,
)

_DEFAULT_FOR_NULL = ConfigKey(
    "replace.null.with.default", Type.BOOLEAN, True, Importance.MEDIUM,
    "Whether to replace fields that have a default value and that are null to the default value. When set to true, "
    "the default value is used, otherwise null is used.",
)  # fmt: skip

CAST = ConfigDef(
    ConfigKey("spec", Type.LIST, REQUIRED, Importance.HIGH,
              "List of fields and the type to cast them to of the form field1:type,field2:type to cast fields of "
              "Maps or Structs. A single type to cast the entire value. Valid types are int8, int16, int32, int64, "
              "float32, float64, boolean, and string. Note that binary fields can only be cast to string.",
              cast_spec()),
    _DEFAULT_FOR_NULL,
)  # fmt: skip

DROP_HEADERS = ConfigDef(
    ConfigKey("headers", Type.LIST, REQUIRED, Importance.HIGH,
              "The name of the headers to be removed.",
              distinct_values(empty_allowed=False)),
)  # fmt: skip

EXTRACT_FIELD = ConfigDef(
    ConfigKey("field", Type.STRING, REQUIRED, Importance.MEDIUM,
              "Field name to extract."),
    _DEFAULT_FOR_NULL,
    ConfigKey("field.syntax.version", Type.STRING, "V1", Importance.HIGH,
              "Defines the version of the syntax to access fields. If set to <code>V1</code>, then the field paths "
              "are limited to access the elements at the root level of the struct or map. If set to "
              "<code>V2</code>, the syntax will support accessing nested elements. To access nested elements, "
              "dotted notation is used. If dots are already included in the field name, then backtick pairs can be "
              "used to wrap field names containing dots. E.g. to access the subfield <code>baz</code> from a field "
              'named "foo.bar" in a struct/map the following format can be used to access its elements: '
              '"<code>foo.bar</code>.baz".',
              one_of_ignoring_case("V1", "V2")),
)  # fmt: skip

FILTER = ConfigDef()

FLATTEN = ConfigDef(
    ConfigKey("delimiter", Type.STRING, ".", Importance.MEDIUM,
              "Delimiter to insert between field names from the input record when generating field names for the "
              "output record"),
)  # fmt: skip

HEADER_FROM = ConfigDef(
    ConfigKey("fields", Type.LIST, REQUIRED, Importance.HIGH,
              "Field names in the record whose values are to be copied or moved to headers.",
              non_empty_list()),
    ConfigKey("headers", Type.LIST, REQUIRED, Importance.HIGH,
              "Header names, in the same order as the field names listed in the fields configuration property.",
              non_empty_list()),
    ConfigKey("operation", Type.STRING, REQUIRED, Importance.HIGH,
              "Either <code>move</code> if the fields are to be moved to the headers (removed from the key/value), "
              "or <code>copy</code> if the fields are to be copied to the headers (retained in the key/value).",
              one_of("move", "copy")),
    _DEFAULT_FOR_NULL,
)  # fmt: skip

HOIST_FIELD = ConfigDef(
    ConfigKey("field", Type.STRING, REQUIRED, Importance.MEDIUM,
              "Field name for the single field that will be created in the resulting Struct or Map."),
)  # fmt: skip

INSERT_FIELD = ConfigDef(
    ConfigKey("topic.field", Type.STRING, None, Importance.MEDIUM,
              "Field name for Kafka topic. Suffix with <code>!</code> to make this a required field, or "
              "<code>?</code> to keep it optional (the default)."),
    ConfigKey("partition.field", Type.STRING, None, Importance.MEDIUM,
              "Field name for Kafka partition. Suffix with <code>!</code> to make this a required field, or "
              "<code>?</code> to keep it optional (the default)."),
    ConfigKey("offset.field", Type.STRING, None, Importance.MEDIUM,
              "Field name for Kafka offset - only applicable to sink connectors.<br/>Suffix with <code>!</code> to "
              "make this a required field, or <code>?</code> to keep it optional (the default)."),
    ConfigKey("timestamp.field", Type.STRING, None, Importance.MEDIUM,
              "Field name for record timestamp. Suffix with <code>!</code> to make this a required field, or "
              "<code>?</code> to keep it optional (the default)."),
    ConfigKey("static.field", Type.STRING, None, Importance.MEDIUM,
              "Field name for static data field. Suffix with <code>!</code> to make this a required field, or "
              "<code>?</code> to keep it optional (the default)."),
    ConfigKey("static.value", Type.STRING, None, Importance.MEDIUM,
              "Static field value, if field name configured."),
    _DEFAULT_FOR_NULL,
)  # fmt: skip

INSERT_HEADER = ConfigDef(
    ConfigKey("header", Type.STRING, REQUIRED, Importance.HIGH,
              "The name of the header.",
              non_null_string()),
    ConfigKey("value.literal", Type.STRING, REQUIRED, Importance.HIGH,
              "The literal value that is to be set as the header value on all records.",
              non_null_string()),
)  # fmt: skip

MASK_FIELD = ConfigDef(
    ConfigKey("fields", Type.LIST, REQUIRED, Importance.HIGH,
              "Names of fields to mask.",
              distinct_values(empty_allowed=False)),
    ConfigKey("replacement", Type.STRING, None, Importance.LOW,
              "Custom value replacement, that will be applied to all 'fields' values (numeric or non-empty string "
              "values only).",
              non_empty_string()),
    _DEFAULT_FOR_NULL,
)  # fmt: skip

REGEX_ROUTER = ConfigDef(
    ConfigKey("regex", Type.STRING, REQUIRED, Importance.HIGH,
              "Regular expression to use for matching.",
              regex()),
    ConfigKey("replacement", Type.STRING, REQUIRED, Importance.HIGH,
              "Replacement string."),
)  # fmt: skip

REPLACE_FIELD = ConfigDef(
    ConfigKey("exclude", Type.LIST, [], Importance.MEDIUM,
              "Fields to exclude. This takes precedence over the fields to include.",
              distinct_values(empty_allowed=True)),
    ConfigKey("include", Type.LIST, [], Importance.MEDIUM,
              "Fields to include. If specified, only these fields will be used.",
              distinct_values(empty_allowed=True)),
    ConfigKey("renames", Type.LIST, [], Importance.MEDIUM,
              "Field rename mappings.",
              rename_pairs()),
    _DEFAULT_FOR_NULL,
)  # fmt: skip

SET_SCHEMA_METADATA = ConfigDef(
    ConfigKey("schema.name", Type.STRING, None, Importance.HIGH,
              "Schema name to set."),
    ConfigKey("schema.version", Type.INT, None, Importance.HIGH,
              "Schema version to set."),
    _DEFAULT_FOR_NULL,
)  # fmt: skip

TIMESTAMP_CONVERTER = ConfigDef(
    ConfigKey("field", Type.STRING, "", Importance.HIGH,
              "The field containing the timestamp, or empty if the entire value is a timestamp"),
    ConfigKey("target.type", Type.STRING, REQUIRED, Importance.HIGH,
              "The desired timestamp representation: string, unix, Date, Time, or Timestamp",
              one_of("string", "unix", "Date", "Time", "Timestamp")),
    ConfigKey("format", Type.STRING, "", Importance.MEDIUM,
              "A SimpleDateFormat-compatible format for the timestamp. Used to generate the output when "
              "type=string or used to parse the input if the input is a string."),
    ConfigKey("unix.precision", Type.STRING, "milliseconds", Importance.LOW,
              "The desired Unix precision for the timestamp: seconds, milliseconds, microseconds, or nanoseconds. "
              "Used to generate the output when type=unix or used to parse the input if the input is a Long.Note: "
              "This SMT will cause precision loss during conversions from, and to, values with sub-millisecond "
              "components.",
              one_of("nanoseconds", "microseconds", "milliseconds", "seconds")),
    _DEFAULT_FOR_NULL,
)  # fmt: skip

TIMESTAMP_ROUTER = ConfigDef(
    ConfigKey("topic.format", Type.STRING, "${topic}-${timestamp}", Importance.HIGH,
              "Format string which can contain <code>${topic}</code> and <code>${timestamp}</code> as placeholders "
              "for the topic and timestamp, respectively."),
    ConfigKey("timestamp.format", Type.STRING, "yyyyMMdd", Importance.HIGH,
              "Format string for the timestamp that is compatible with <code>java.text.SimpleDateFormat</code>."),
)  # fmt: skip

VALUE_TO_KEY = ConfigDef(
    ConfigKey("fields", Type.LIST, REQUIRED, Importance.HIGH,
              "Field names on the record value to extract as the record key.",
              distinct_values(empty_allowed=False)),
    _DEFAULT_FOR_NULL,
)  # fmt: skip

_PACKAGE = "org.apache.kafka.connect.transforms."
DEFINITIONS: Mapping[str, ConfigDef] = {
    f"{_PACKAGE}{name}": definition
    for name, definition in {
        "Cast": CAST,
        "DropHeaders": DROP_HEADERS,
        "ExtractField": EXTRACT_FIELD,
        "Filter": FILTER,
        "Flatten": FLATTEN,
        "HeaderFrom": HEADER_FROM,
        "HoistField": HOIST_FIELD,
        "InsertField": INSERT_FIELD,
        "InsertHeader": INSERT_HEADER,
        "MaskField": MASK_FIELD,
        "RegexRouter": REGEX_ROUTER,
        "ReplaceField": REPLACE_FIELD,
        "SetSchemaMetadata": SET_SCHEMA_METADATA,
        "TimestampConverter": TIMESTAMP_CONVERTER,
        "TimestampRouter": TIMESTAMP_ROUTER,
        "ValueToKey": VALUE_TO_KEY,
    }.items()
}
"""Definitions by Java class, without the `$Key` or `$Value` that most of them have."""
WHOLE_RECORD = frozenset(
    f"{_PACKAGE}{name}"
    for name in ("DropHeaders", "Filter", "InsertHeader", "RegexRouter", "TimestampRouter", "ValueToKey")
)
"""Classes that transform neither the key nor the value alone, and so have no `$Key` and `$Value`."""
