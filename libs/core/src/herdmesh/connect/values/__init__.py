"""Connect's `Values`: text to values, values to text and to each other
(docs/reference/connect/transforms-converters.md, section 6).

Owns the names the rest of the library uses. `parsing` reads text, `text` writes it, `conversions` goes from type to
type, `inference` finds schemas.
"""

from __future__ import annotations

from herdmesh.connect.values.conversions import convert, to_boolean, to_double, to_integer, to_long, to_temporal
from herdmesh.connect.values.inference import infer_schema
from herdmesh.connect.values.parsing import Parsed, parse_text
from herdmesh.connect.values.temporals import temporal_text
from herdmesh.connect.values.text import bytes_text, text_of

__all__ = [
    "Parsed",
    "bytes_text",
    "convert",
    "infer_schema",
    "parse_text",
    "temporal_text",
    "text_of",
    "to_boolean",
    "to_double",
    "to_integer",
    "to_long",
    "to_temporal",
]
