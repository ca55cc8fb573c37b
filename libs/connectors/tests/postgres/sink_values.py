"""PostgreSQL's values of the shared sample values: `test_sink_values`
checks them on a server, docs/reference/values.md prints them.

Owns no test.
"""

from __future__ import annotations

from collections.abc import Mapping

HELD: Mapping[str, tuple[str, str | None]] = {
    "INT8 smallest": ("smallint", "-128"),
    "INT16 largest": ("smallint", "32767"),
    "INT32 smallest": ("integer", "-2147483648"),
    "INT64 largest": ("bigint", "9223372036854775807"),
    "INT64 beyond a double": ("bigint", "9007199254740993"),
    "FLOAT32": ("real", "0.1"),
    "FLOAT32 NaN": ("real", "NaN"),
    "FLOAT64": ("double precision", "0.1"),
    "FLOAT64 large": ("double precision", "1e+300"),
    "FLOAT64 NaN": ("double precision", "NaN"),
    "FLOAT64 Infinity": ("double precision", "Infinity"),
    "FLOAT64 -Infinity": ("double precision", "-Infinity"),
    "BOOLEAN": ("boolean", "true"),
    "STRING": ("text", 'say "é" 😀, twice\n\\'),
    "STRING empty": ("text", ""),
    "STRING null": ("text", None),
    "BYTES": ("bytea", "\\x00ff6162"),
    "BYTES empty": ("bytea", "\\x"),
    "Decimal": ("numeric(1000,2)", "1.50"),
    "Decimal of 20 digits": ("numeric(1000,2)", "123456789012345678.90"),
    "Decimal of 38 digits": ("numeric(1000,2)", "-999999999999999999999999999999999999.99"),
    "Decimal of 60 digits": ("numeric(1000,2)", "1111111111111111111111111111111111111111111111111111111111.25"),
    "Decimal of 90 digits": (
        "numeric(1000,2)",
        "7777777777777777777777777777777777777777777777777777777777777777777777777777777777777777.25",
    ),
    "Decimal of scale 0": ("numeric(1000,0)", "100000000000000000000"),
    "Decimal of scale 30": ("numeric(1000,30)", "0.000000000000000000000000000001"),
    "Decimal of scale -3": ("numeric", "12000"),
    "Decimal null": ("numeric(1000,2)", None),
    "Date": ("date", "2023-11-14"),
    "Date before 1970": ("date", "1969-12-31"),
    "Date BC": ("date", "4713-01-01 BC"),
    "Date of year 1": ("date", "0001-01-01"),
    "Date of year 12345": ("date", "12345-01-01"),
    "Time": ("time without time zone", "12:34:56.789"),
    "Time midnight": ("time without time zone", "00:00:00"),
    "Timestamp": ("timestamp without time zone", "2023-11-14 22:13:20.123"),
    "Timestamp before 1970": ("timestamp without time zone", "1969-12-31 23:59:59.999"),
    "Timestamp BC": ("timestamp without time zone", "4713-01-01 00:00:00.001 BC"),
    "Timestamp end of year 9999": ("timestamp without time zone", "9999-12-31 23:59:59.999"),
    "Timestamp of year 12345": ("timestamp without time zone", "12345-01-01 00:00:00.001"),
    "Timestamp null": ("timestamp without time zone", None),
    "ARRAY": ("integer[]", "{1,NULL,3}"),
    "ARRAY empty": ("text[]", "{}"),
    "ARRAY of Decimal": ("numeric(1000,2)[]", "{1.50,123456789012345678.90}"),
    "ARRAY of FLOAT64": ("double precision[]", "{0.1,NaN}"),
    "ARRAY of BYTES": ("bytea[]", '{"\\\\xff"}'),
    "ARRAY of Date": ("date[]", "{2023-11-14}"),
    "ARRAY null": ("integer[]", None),
    "null with a default STRING": ("text", "UNKNOWN"),
    "null with a default INT32": ("integer", "7"),
    "null with a default Decimal": ("numeric(1000,2)", "9.99"),
    "null with a default Date": ("date", "1970-01-02"),
    "null with a default ARRAY": ("integer[]", "{1,2}"),
    "null with a default, required": ("text", "UNKNOWN"),
    "null within an ARRAY with a default": ("text[]", "{a,UNKNOWN}"),
}
"""By a sample's name: the column's type, and its value as the server prints it."""
#: Samples for whose type auto.create has no column type; they are written to existing json columns.
AS_JSON: Mapping[str, str | None] = {
    "ARRAY of arrays": '[["a"],[]]',
    "MAP": '{"a":1,"b":2}',
    "MAP of INT32 keys": '[[1,"x"]]',
    "MAP of Decimal": '{"a":1.50}',
    "STRUCT": '{"x":1,"label":null}',
    "STRUCT in STRUCT": '{"from":{"x":1,"label":"a"},"points":[{"x":2,"label":null}]}',
    "STRUCT null": None,
    "null within a MAP with a default": '{"a":7}',
}
