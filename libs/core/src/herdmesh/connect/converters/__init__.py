"""Converters between bytes and Connect values: one folder for each format, with the same file names in each.

Owns the converters, their options and their names in configs (`lookup`). `base` is the interface; the formats with a
schema registry share `registered`.

Invariant: a config names a converter by its short name or its Java class name, and by no other name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from herdmesh.connect.exports import lazy_exports

if TYPE_CHECKING:
    from herdmesh.connect.converters.avro.options import AvroOptions as AvroOptions
    from herdmesh.connect.converters.avro.schemas import AvroTree as AvroTree
    from herdmesh.connect.converters.avro.schemas import Node as Node
    from herdmesh.connect.converters.avro.schemas import kind_of as kind_of
    from herdmesh.connect.converters.avro.schemas import valid_default as valid_default
    from herdmesh.connect.converters.avro.to_connect import connect_schema as connect_schema
    from herdmesh.connect.converters.avro.to_connect import plain_member as plain_member
    from herdmesh.connect.converters.base import Converter as Converter
    from herdmesh.connect.converters.base import HeaderConverter as HeaderConverter
    from herdmesh.connect.converters.base import Role as Role
    from herdmesh.connect.converters.base import Schemas as Schemas
    from herdmesh.connect.converters.definitions import REGISTERED as REGISTERED
    from herdmesh.connect.converters.json.converter import JsonConverter as JsonConverter
    from herdmesh.connect.converters.json.texts import Texts as Texts
    from herdmesh.connect.converters.lookup import CONVERTERS as CONVERTERS
    from herdmesh.connect.converters.lookup import converter_class as converter_class
    from herdmesh.connect.converters.lookup import converter_names as converter_names
    from herdmesh.connect.converters.lookup import make_converter as make_converter
    from herdmesh.connect.converters.lookup import make_header_converter as make_header_converter
    from herdmesh.connect.converters.lookup import settings_source as settings_source
    from herdmesh.connect.converters.registered_options import PRECISION as PRECISION
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "avro.options": ("AvroOptions",),
            "avro.schemas": (
                "AvroTree",
                "Node",
                "kind_of",
                "valid_default",
            ),
            "avro.to_connect": (
                "connect_schema",
                "plain_member",
            ),
            "base": (
                "Converter",
                "HeaderConverter",
                "Role",
                "Schemas",
            ),
            "definitions": ("REGISTERED",),
            "json.converter": ("JsonConverter",),
            "json.texts": ("Texts",),
            "lookup": (
                "CONVERTERS",
                "converter_class",
                "converter_names",
                "make_converter",
                "make_header_converter",
                "settings_source",
            ),
            "registered_options": ("PRECISION",),
        },
    )
