"""JDK classes in Python: number text and parsing, regular expressions, dates, time zones, properties files.

Owns the inputs that Java's own classes accept and refuse, and their output and error texts. Has no rule of Kafka
Connect, its values or its configs; JSON as the Jackson library writes it is in `json_text`.

Invariant: imports no other room.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from herdmesh.connect.exports import lazy_exports

if TYPE_CHECKING:
    from herdmesh.connect.java.gregorian import DAY_MS as DAY_MS
    from herdmesh.connect.java.gregorian import EPOCH as EPOCH
    from herdmesh.connect.java.gregorian import day_at as day_at
    from herdmesh.connect.java.java_regex import REGEX_FIX as REGEX_FIX
    from herdmesh.connect.java.java_regex import compiled as compiled
    from herdmesh.connect.java.java_regex import matches as matches
    from herdmesh.connect.java.java_regex import syntax_error as syntax_error
    from herdmesh.connect.java.number_reading import BLANKS as BLANKS
    from herdmesh.connect.java.number_reading import decimal_to_long as decimal_to_long
    from herdmesh.connect.java.number_reading import exact_float32 as exact_float32
    from herdmesh.connect.java.number_reading import float32 as float32
    from herdmesh.connect.java.number_reading import float_to_integer as float_to_integer
    from herdmesh.connect.java.number_reading import narrow as narrow
    from herdmesh.connect.java.number_reading import read_big_integer as read_big_integer
    from herdmesh.connect.java.number_reading import read_decimal as read_decimal
    from herdmesh.connect.java.number_reading import read_double as read_double
    from herdmesh.connect.java.number_reading import read_float as read_float
    from herdmesh.connect.java.number_reading import read_integer as read_integer
    from herdmesh.connect.java.number_text import PRINTS_SHORTEST_FROM as PRINTS_SHORTEST_FROM
    from herdmesh.connect.java.number_text import double_text as double_text
    from herdmesh.connect.java.number_text import float_text as float_text
    from herdmesh.connect.java.number_text import prints_shortest as prints_shortest
    from herdmesh.connect.java.number_text import wrap_int32 as wrap_int32
    from herdmesh.connect.java.number_text import wrap_int64 as wrap_int64
    from herdmesh.connect.java.properties_files import PropertiesError as PropertiesError
    from herdmesh.connect.java.properties_files import Property as Property
    from herdmesh.connect.java.properties_files import parse as parse
    from herdmesh.connect.java.properties_files import parse_text as parse_text
    from herdmesh.connect.java.regex_replacement import Replacement as Replacement
    from herdmesh.connect.java.simple_date_format import DateFormat as DateFormat
    from herdmesh.connect.java.simple_date_format import tokens_of as tokens_of
    from herdmesh.connect.java.time_zones import UTC as UTC
    from herdmesh.connect.java.time_zones import Zone as Zone
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "gregorian": (
                "DAY_MS",
                "EPOCH",
                "day_at",
            ),
            "java_regex": (
                "REGEX_FIX",
                "compiled",
                "matches",
                "syntax_error",
            ),
            "number_reading": (
                "BLANKS",
                "decimal_to_long",
                "exact_float32",
                "float32",
                "float_to_integer",
                "narrow",
                "read_big_integer",
                "read_decimal",
                "read_double",
                "read_float",
                "read_integer",
            ),
            "number_text": (
                "PRINTS_SHORTEST_FROM",
                "double_text",
                "float_text",
                "prints_shortest",
                "wrap_int32",
                "wrap_int64",
            ),
            "properties_files": (
                "PropertiesError",
                "Property",
                "parse",
                "parse_text",
            ),
            "regex_replacement": ("Replacement",),
            "simple_date_format": (
                "DateFormat",
                "tokens_of",
            ),
            "time_zones": (
                "UTC",
                "Zone",
            ),
        },
    )
