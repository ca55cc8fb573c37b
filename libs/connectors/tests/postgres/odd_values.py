"""Odd values of every type of PostgreSQL, as the texts that the server reads, and tables of them.

Owns no test. Times have three digits of a second, the resolution of Connect's types.
"""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import strategies as st

Texts = st.SearchStrategy[str]
SETUP = (
    "CREATE EXTENSION hstore", "CREATE EXTENSION ltree", "CREATE EXTENSION citext",
    "CREATE TYPE mood AS ENUM ('sad', 'ha,ppy', 'ü \"q\"', 'NULL')", "CREATE TYPE pair AS (a int, b text)",
    "CREATE DOMAIN positive AS int CHECK (value > 0)", "CREATE DOMAIN words AS text[]",
)  # fmt: skip


def integers(bits: int) -> Texts:
    least, most = -(1 << bits - 1), (1 << bits - 1) - 1
    return st.one_of(st.sampled_from([least, most, 0, -1]), st.integers(least, most)).map(str)


def numbers(digits: int, scale: int) -> Texts:
    """Numbers with `digits` digits, `scale` of them after the point."""
    most = 10**digits - 1
    unscaled = st.one_of(st.sampled_from([0, 1, -1, most, -most]), st.integers(-most, most))

    def written(one: int) -> str:
        whole, fraction = divmod(abs(one), 10**scale)
        return ("-" if one < 0 else "") + (f"{whole}.{fraction:0{scale}d}" if scale else str(whole))

    return unscaled.map(written)


FREE_NUMBERS = st.one_of(
    st.tuples(st.integers(-(10**1000), 10**1000), st.integers(0, 400)).map(lambda one: f"{one[0]}e-{one[1]}"),
    st.sampled_from(["0", "0.0000", "1e-300", "-1e300", "1" * 1000, "0." + "0" * 300 + "1"]),
)
NOT_FINITE = st.sampled_from(["NaN", "Infinity", "-Infinity"])
FINITE = {
    bits: st.floats(width=bits, allow_nan=False, allow_infinity=False).filter(lambda one: repr(one) != "-0.0").map(repr)
    for bits in (32, 64)
}
"""Without -0, which a JSON number does not keep."""
FLOATS = {bits: st.one_of(some, NOT_FINITE, st.sampled_from(["-0", "0.1"])) for bits, some in FINITE.items()}
CHARACTERS = st.characters(exclude_characters="\0", exclude_categories=["Cs"])
TEXTS = st.one_of(
    st.text(CHARACTERS, max_size=20), st.sampled_from(["", "NULL", "\\", '"', "{}", "\\N", "\t\n\r", "'", "a,b"])
)
WORDS = st.text("abcXYZ019_", min_size=1, max_size=8)
DAYS = st.one_of(
    st.sampled_from(["infinity", "-infinity", "4713-01-01 BC", "0001-12-31 BC", "0001-01-01", "1582-10-10",
                     "9999-12-31", "10000-01-01", "5874897-12-31", "1969-12-31", "1900-02-28", "2000-02-29",
                     "0005-02-29 BC"]),
    st.dates().map(str),
)  # fmt: skip
TIMES = st.one_of(
    st.sampled_from(["00:00", "24:00:00", "23:59:59.999"]),
    st.times().map(lambda one: f"{one:%H:%M:%S}.{one.microsecond // 1000:03}"),
)
MOMENTS = st.one_of(
    st.sampled_from(["infinity", "-infinity", "4713-01-01 00:00:00.001 BC", "0001-12-31 23:59:59.999 BC",
                     "0001-01-01 00:00:00", "9999-12-31 23:59:59.999", "10000-01-01 00:00:00",
                     "1969-12-31 23:59:59.999",
                     "294276-12-31 23:59:59.999", "1582-10-10 12:00:00"]),
    st.datetimes().map(lambda one: f"{one:%Y-%m-%d %H:%M:%S}.{one.microsecond // 1000:03}".rjust(23, "0")),
)  # fmt: skip
INTERVALS = st.one_of(
    st.sampled_from(["0", "178000000 years", "-178000000 years", "1 mon -1 day", "-1 mon 1 day -00:00:00.000001",
                     "1 year 2 mons -3 days 04:05:06.7", "-2562047788:00:54.775807", "-1 year -1 mon"]),
    st.tuples(st.integers(-999, 999), st.integers(-999, 999), st.integers(-(10**12), 10**12)).map(
        lambda one: f"{one[0]} months {one[1]} days {one[2]} microseconds"),
)  # fmt: skip
COORDINATES = st.integers(-(10**6), 10**6).map(lambda one: one / 8)
POINTS = st.tuples(COORDINATES, COORDINATES).map(lambda one: f"({one[0]},{one[1]})")
JSONS = st.one_of(
    st.sampled_from(['{"a": [1, null, {"b": "\\""}]}', "null", "[]", '"x"', "1.50", '{"k" :  1}', "1e400"]),
    st.text("abc é", max_size=5).map(lambda one: f'{{"t": "{one}"}}'),
)
BITS = st.text("01", min_size=1, max_size=70)


def ranges(lows: list[str]) -> Texts:
    """Ranges of ascending values."""
    ends = st.tuples(st.integers(0, len(lows) - 1), st.integers(0, len(lows) - 1)).map(sorted)
    made = st.tuples(ends, st.sampled_from(["[", "("]), st.sampled_from(["]", ")"])).map(
        lambda one: f"{one[1]}{lows[one[0][0]]},{lows[one[0][1]]}{one[2]}"
    )
    return st.one_of(made, st.sampled_from(["empty", "(,)", f"[{lows[0]},)", f"(,{lows[-1]}]"]))


def multiranges(lows: list[str]) -> Texts:
    return st.lists(ranges(lows), max_size=3).map(lambda some: "{" + ",".join(some) + "}")


def arrays(elements: Texts, *, delimiter: str = ",") -> Texts:
    """One-dimensional arrays, with nulls."""

    def quoted(one: str | None) -> str:
        return "NULL" if one is None else '"' + one.replace("\\", "\\\\").replace('"', '\\"') + '"'

    return st.lists(st.one_of(st.none(), elements), max_size=4).map(
        lambda some: "{" + delimiter.join(map(quoted, some)) + "}"
    )


COMPOSITES = st.tuples(integers(32), st.sampled_from(["x", '"x,y"', '"a""b"', ""])).map(
    lambda one: f"({one[0]},{one[1]})"
)
INTS, MOMENTS_IN_ORDER = ["-5", "1", "2", "99"], ['"0044-03-15 12:00 BC"', '"2024-02-29 10:00"', '"10000-01-01"']
SCALARS: Mapping[str, Texts] = {
    "bool": st.sampled_from(["t", "f"]),
    "int2": integers(16), "int4": integers(32), "int8": integers(64),
    "oid": st.integers(0, (1 << 32) - 1).map(str), "float4": FLOATS[32], "float8": FLOATS[64],
    "numeric": FREE_NUMBERS, "numeric(9,2)": numbers(9, 2), "numeric(38,10)": numbers(38, 10),
    "numeric(1000,400)": numbers(1000, 400), "numeric(10,-2)": numbers(10, 0),
    "money": st.integers(-(10**10), 10**10).map(lambda one: f"{one / 100:.2f}"),
    "text": TEXTS, "varchar(30)": TEXTS, "char(25)": TEXTS, "citext": TEXTS, "name": WORDS,
    "bytea": st.binary(max_size=20).map(lambda one: "\\x" + one.hex()),
    "date": DAYS, "time(3)": TIMES, "timestamp(3)": MOMENTS,
    # In UTC, in which 24:00 is 00:00.
    "timetz(3)": TIMES.filter(lambda one: one != "24:00:00").map(lambda one: one + "+00"),
    "timestamptz(3)": MOMENTS, "interval": INTERVALS,
    "uuid": st.uuids().map(str), "json": JSONS.filter(lambda one: one), "jsonb": JSONS,
    "xml": st.sampled_from(["<a>1</a>", "text", "<a b='c'>&lt;</a>", "<ü/>"]),
    "inet": st.one_of(st.ip_addresses().map(str), st.sampled_from(["10.0.0.1/8", "::1/64"])),
    "cidr": st.sampled_from(["10.0.0.0/8", "::/0", "192.168.1.1/32"]),
    "macaddr": st.sampled_from(["08:00:2b:01:02:03"]),
    "macaddr8": st.sampled_from(["08:00:2b:01:02:03:04:05"]),
    "bit(1)": st.sampled_from(["0", "1"]), "bit(10)": st.text("01", min_size=10, max_size=10), "varbit": BITS,
    "varbit(70)": BITS,
    "tsvector": st.sampled_from(["'a':1A 'b,c':2", "'it''s'", ""]), "tsquery": st.sampled_from(["'a' & !'b'", "'x':*"]),
    "pg_lsn": st.sampled_from(["0/0", "16/B374D848"]), "jsonpath": st.sampled_from(['$."a"[*]', "$.a ? (@ > 1)"]),
    "point": POINTS, "line": st.sampled_from(["{1,-1,0}", "{0.5,2,3}"]),
    "lseg": st.tuples(POINTS, POINTS).map(lambda one: f"[{one[0]},{one[1]}]"),
    "box": st.tuples(POINTS, POINTS).map(lambda one: f"{one[0]},{one[1]}"),
    "path": st.lists(POINTS, min_size=1, max_size=3).map(lambda some: f"[{','.join(some)}]"),
    "polygon": st.lists(POINTS, min_size=1, max_size=3).map(lambda some: f"({','.join(some)})"),
    "circle": st.tuples(POINTS, st.integers(0, 9)).map(lambda one: f"<{one[0]},{one[1]}>"),
    "int4range": ranges(INTS), "int8range": ranges(INTS), "numrange": ranges(["-1.5", "0", "1e30"]),
    "daterange": ranges(['"0044-03-15 BC"', "2024-02-29", "10000-01-01"]), "tsrange": ranges(MOMENTS_IN_ORDER),
    "tstzrange": ranges(MOMENTS_IN_ORDER), "int4multirange": multiranges(INTS),
    "tsmultirange": multiranges(MOMENTS_IN_ORDER),
    "mood": st.sampled_from(["sad", "ha,ppy", 'ü "q"', "NULL"]), "positive": st.integers(1, 99).map(str),
    "pair": COMPOSITES, "hstore": st.sampled_from(["", '"a"=>"1"', '"a b"=>NULL, "q\\""=>"\\\\"', '"ü,"=>"{}"']),
    "ltree": st.lists(WORDS, max_size=3).map(".".join), "lquery": st.sampled_from(["a.*.b", "*{2}"]),
    "txid_snapshot": st.sampled_from(["10:20:10,14"]), '"char"': st.sampled_from(["a", " "]),
}  # fmt: skip
_DELIMITERS = {"box": ";"}


def every(scalars: Mapping[str, Texts]) -> dict[str, Texts]:
    """Return these types and arrays of them."""
    arrayed = {f"{name}[]": arrays(texts, delimiter=_DELIMITERS.get(name, ",")) for name, texts in scalars.items()}
    return {**scalars, **arrayed, "words": arrays(TEXTS)}
