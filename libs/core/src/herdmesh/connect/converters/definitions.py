"""Options of Connect's converters, with its texts (docs/reference/connect/transforms-converters.md, sections 4 and 5).

Owns the definitions; the behaviour is in the module of each class.

Invariant: the definitions equal those that the real classes declare (golden configdef vectors).
"""

from __future__ import annotations

from collections.abc import Mapping

from herdmesh.connect.config import REQUIRED, ConfigDef, ConfigKey, Importance, Type, one_of, one_of_ignoring_case
from herdmesh.connect.converters.avro.options import AVRO_KEYS
from herdmesh.connect.converters.json_schema.options import JSON_SCHEMA_KEYS
from herdmesh.connect.converters.protobuf.options import PROTOBUF_KEYS
from herdmesh.connect.registry import REGISTRY_KEYS

CONVERTER_TYPE = ConfigKey(
    "converter.type", Type.STRING, REQUIRED, Importance.LOW,
    "How this converter will be used.", one_of("key", "value", "header"),
)  # fmt: skip

JSON_CONVERTER = ConfigDef(
    CONVERTER_TYPE,
    ConfigKey("schemas.enable", Type.BOOLEAN, True, Importance.HIGH,
              "Include schemas within each of the serialized values and keys.",
              group="Schemas", order=0, width="MEDIUM", display_name="Enable Schemas"),
    ConfigKey("schemas.cache.size", Type.INT, 1000, Importance.HIGH,
              "The maximum number of schemas that can be cached in this converter instance.",
              group="Schemas", order=1, width="MEDIUM", display_name="Schema Cache Size"),
    ConfigKey("schema.content", Type.STRING, None, Importance.HIGH,
              "When set, this is used as the schema for all messages, and the schemas within each of the message "
              "will be ignored.Otherwise, the schema will be included in the content of each message. This "
              "configuration applies only 'schemas.enable' is true, and it exclusively affects the sink connector.",
              group="Schemas", order=2, width="MEDIUM", display_name="Schema Content"),
    ConfigKey("decimal.format", Type.STRING, "BASE64", Importance.LOW,
              "Controls which format this converter will serialize decimals in. This value is case insensitive and "
              "can be either 'BASE64' (default) or 'NUMERIC'",
              one_of_ignoring_case("NUMERIC", "BASE64"),
              group="Serialization", order=0, width="MEDIUM", display_name="Decimal Format"),
    ConfigKey("replace.null.with.default", Type.BOOLEAN, True, Importance.LOW,
              "Whether to replace fields that have a default value and that are null to the default value. When "
              "set to true, the default value is used, otherwise null is used.",
              group="Serialization", order=1, width="MEDIUM", display_name="Replace null with default"),
)  # fmt: skip

STRING_CONVERTER = ConfigDef(
    CONVERTER_TYPE,
    ConfigKey("converter.encoding", Type.STRING, "UTF-8", Importance.HIGH,
              "The name of the Java character set to use for encoding strings as byte arrays.",
              width="MEDIUM", display_name="Encoding"),
)  # fmt: skip

ONLY_TYPE = ConfigDef(CONVERTER_TYPE)
"""Options of ByteArrayConverter and the converters of numbers and booleans."""

_PACKAGE = "org.apache.kafka.connect."
DEFINITIONS: Mapping[str, ConfigDef] = {
    f"{_PACKAGE}json.JsonConverter": JSON_CONVERTER,
    f"{_PACKAGE}storage.StringConverter": STRING_CONVERTER,
    **{
        f"{_PACKAGE}converters.{kind}Converter": ONLY_TYPE
        for kind in ("Boolean", "ByteArray", "Double", "Float", "Integer", "Long", "Short")
    },
}
"""Options by Java class; all of these classes convert keys, values and headers."""

AVRO_CONVERTER = ConfigDef(CONVERTER_TYPE, *REGISTRY_KEYS, *AVRO_KEYS)
JSON_SCHEMA_CONVERTER = ConfigDef(CONVERTER_TYPE, *REGISTRY_KEYS, *JSON_SCHEMA_KEYS)
PROTOBUF_CONVERTER = ConfigDef(CONVERTER_TYPE, *REGISTRY_KEYS, *PROTOBUF_KEYS)
REGISTERED: Mapping[str, ConfigDef] = {
    "io.confluent.connect.avro.AvroConverter": AVRO_CONVERTER,
    "io.confluent.connect.json.JsonSchemaConverter": JSON_SCHEMA_CONVERTER,
    "io.confluent.connect.protobuf.ProtobufConverter": PROTOBUF_CONVERTER,
}
"""Options of the converters with a schema registry by Java class. They are Confluent's, not Connect's own: the texts
are Herdmesh's.
"""
SIMPLE_HEADER_CONVERTER = f"{_PACKAGE}storage.SimpleHeaderConverter"
"""The default converter of headers; it has no options."""
