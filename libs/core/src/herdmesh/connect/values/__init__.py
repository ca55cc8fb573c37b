"""Connect's `Values`: conversions from text to values, from values to text, and between types
(docs/reference/connect/transforms-converters.md, section 6).

Owns header text and the conversions between types; transformations and SimpleHeaderConverter use it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from herdmesh.connect.exports import lazy_exports

if TYPE_CHECKING:
    from herdmesh.connect.values.conversions import convert as convert
    from herdmesh.connect.values.conversions import to_boolean as to_boolean
    from herdmesh.connect.values.conversions import to_double as to_double
    from herdmesh.connect.values.conversions import to_integer as to_integer
    from herdmesh.connect.values.conversions import to_long as to_long
    from herdmesh.connect.values.conversions import to_temporal as to_temporal
    from herdmesh.connect.values.inference import infer_schema as infer_schema
    from herdmesh.connect.values.parsing import Parsed as Parsed
    from herdmesh.connect.values.parsing import parse_text as parse_text
    from herdmesh.connect.values.temporals import temporal_text as temporal_text
    from herdmesh.connect.values.text import bytes_text as bytes_text
    from herdmesh.connect.values.text import text_of as text_of
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "conversions": (
                "convert",
                "to_boolean",
                "to_double",
                "to_integer",
                "to_long",
                "to_temporal",
            ),
            "inference": ("infer_schema",),
            "parsing": (
                "Parsed",
                "parse_text",
            ),
            "temporals": ("temporal_text",),
            "text": (
                "bytes_text",
                "text_of",
            ),
        },
    )
