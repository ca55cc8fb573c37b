"""JSON as Connect's JsonConverter reads and writes it without schemas (docs/reference/connect/config-topic.md, sections
2.1 and 11).

Owns reading bytes into plain Python values, and writing them in Jackson's bytes. Does not interpret records. Values:
None, bool, int (64 bits), float, str (lone surrogates possible), list, dict with str keys in the order read.

Invariant: `loads` accepts and refuses the same input as Jackson under JsonConverter's settings, and `dumps(loads(b)) ==
b` for every b that Connect wrote. msgspec reads and writes where its result is known to equal Jackson's; the reference
reader `jackson_reader` decides everything else.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeVar, cast

import msgspec

from herdmesh.connect.errors import DataError
from herdmesh.connect.java import double_text, float_text, prints_shortest, wrap_int64
from herdmesh.connect.json_text import jackson_reader
from herdmesh.connect.model import LazyColumn, java_class, schema_type, type_of

INVALID_JSON = "Converting byte[] to Kafka Connect data failed due to serialization error: "


class _OfProperties(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A value of only texts and nulls, so that no number needs a check."""

    properties: dict[str, str | None]


def _within_64_bits(depth: int) -> Any:
    """The msgspec type of JSON nested at most `depth` levels deep, with whole numbers of at most 64 bits."""
    whole: Any = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
    scalar: Any = whole | str | float | bool | None
    kind: Any = scalar
    for _ in range(depth):
        kind = scalar | dict[str, kind] | list[kind]
    return kind


_DEPTH_TYPED = 6
_decode = msgspec.json.Decoder().decode
_decode_signed_zeros = msgspec.json.Decoder(float_hook=jackson_reader.java_number).decode
_decode_node = msgspec.json.Decoder(float_hook=jackson_reader.exact_number).decode
_decode_within_64_bits = msgspec.json.Decoder(_within_64_bits(_DEPTH_TYPED)).decode
_decode_properties = msgspec.json.Decoder(_OfProperties).decode
_encode = msgspec.json.Encoder().encode
# Types that msgspec writes as Jackson does. Some floats differ: Java prints 1.0E7, msgspec 10000000.0.
_SAME_TEXT = frozenset((str, int, bool, type(None)))
_TEXT_ONLY = frozenset((str,))
_CONTAINERS = frozenset((dict, list))
_DEPTH_CHECKED = 3
_SAME_TEXT_WITHIN = _SAME_TEXT | _CONTAINERS
# Supplementary characters (four bytes in UTF-8) and \\u escapes are where msgspec's strings differ from Jackson's.
_SUPPLEMENTARY = re.compile(rb"[\xf0-\xf4]")
_ESCAPED_UNIT = re.compile(rb"\\u")
_DIGITS_AS_ZERO = bytes.maketrans(b"123456789", b"000000000")
_LONG_NUMBER = b"0" * 19  # the shortest run of digits that may not fit a signed 64-bit integer
_NUMBER_LENGTH_MIN = 1_000  # shorter input cannot exceed a limit
_ENDLESS_NUMBER = b"0" * 300  # a number Jackson refuses (over 1,000 characters) has a run at least this long
# Java's numbers come from BigDecimal, which has no negative zero. The alternatives begin alike so that the search is
# for the sign alone, which is several times as fast. A letter or digit before the sign means that it is no number's:
# uuids contain `-0e`, and a batch may have many of them.
_NEGATIVE_ZERO = re.compile(rb"-(?<![0-9A-Za-z]-)(?:0\.0+(?![0-9])|0[eE])")
NAME_LENGTH_MAX = jackson_reader.NAME_LENGTH_MAX
MISSING = jackson_reader.MISSING
_DEPTH_MAX = jackson_reader.DEPTH_MAX

_ESCAPED = re.compile('["\\\\\x00-\x1f\ud800-\udfff\U00010000-\U0010ffff]')
_SHORT_ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}


_S = TypeVar("_S", bound=Sequence[Any])


class JsonValues(list[Any]):
    """Schemaless values that were read from JSON: they contain no infinite float and no NaN, and every map's keys are
    texts, so that a JSON writer need not check for values that JSON lacks. A slice of them is a plain list: `like`.
    """

    __slots__ = ()


def is_of_json(values: Sequence[Any]) -> bool:
    """True when the values are known to be `JsonValues`. A lazy column is read to find out."""
    found: object = cast("Any", values).read() if type(values) is LazyColumn else values
    return type(found) is JsonValues


def like(values: Sequence[Any], some: _S) -> _S | JsonValues:
    """Mark a selection of the values as `JsonValues` if all of them are."""
    return JsonValues(some) if is_of_json(values) else some


def loads(data: bytes | None) -> Any:
    """Read one JSON value; null, empty and blank bytes read as None.

    Raises:
        DataError: input that Jackson refuses, with Connect's text.
    """
    if not data:
        return None
    digits = data.translate(_DIGITS_AS_ZERO)
    # msgspec recurses once per level, and garbage may be collected at any level: the code that then runs needs stack
    # space.
    may_be_too_deep = len(data) > 2 * _DEPTH_MAX and data.count(b"[") + data.count(b"{") > _DEPTH_MAX
    if not may_be_too_deep and _ENDLESS_NUMBER not in digits:
        try:
            value = _decode_signed_zeros(data) if has_negative_zero(data) else _decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            pass  # Jackson accepts more than msgspec does: the reference reader decides
        else:
            return _tidied(value) if _LONG_NUMBER in digits or len(data) > NAME_LENGTH_MAX else value
    return _read_carefully(data)


def _read_carefully(data: bytes) -> Any:
    try:
        return jackson_reader.read(data)
    except jackson_reader.JsonSyntaxError as error:
        raise DataError(INVALID_JSON) from error


def loads_node(data: bytes) -> Any:
    """Read one JSON value in the form of Jackson's tree: as `loads`, but numbers are exact (an int of any size, a
    Decimal for all others), and blank bytes read as MISSING.

    Raises:
        DataError: input that Jackson refuses, with Connect's text.
    """
    if len(data) <= NAME_LENGTH_MAX and not beyond_limits(data):
        try:
            return _decode_node(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError):
            pass  # Jackson accepts more than msgspec does: the reference reader decides
    try:
        return jackson_reader.read_node(data)
    except jackson_reader.JsonSyntaxError as error:
        raise DataError(INVALID_JSON) from error


def beyond_limits(data: bytes) -> bool:
    """True when a number may be longer, or containers may be nested deeper, than Jackson allows. Does not check the
    lengths of member names.
    """
    if len(data) <= _NUMBER_LENGTH_MIN:
        return False
    return _ENDLESS_NUMBER in data.translate(_DIGITS_AS_ZERO) or data.count(b"[") + data.count(b"{") > _DEPTH_MAX


def has_negative_zero(data: bytes) -> bool:
    """True when the input has a negative zero that is not whole, as a number or within a text."""
    return b"-" in data and _NEGATIVE_ZERO.search(data) is not None


def loads_properties(data: bytes) -> dict[str, str | None] | None:
    """`loads(data)["properties"]` where `data` is `{"properties":{...}}` of texts and nulls, as nearly all records of
    the config topic are; None where `loads` must read the input. Twice as fast as `loads`.
    """
    if len(data) > NAME_LENGTH_MAX:
        return None
    try:
        return _decode_properties(data).properties
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _tidied(root: Any) -> Any:
    """The value that msgspec read, with integers wrapped to 64 bits in place. Raises DataError for a member name that
    Jackson refuses.
    """
    holder = [root]
    stack: list[list[Any] | dict[str, Any]] = [holder]
    while stack:
        container = stack.pop()
        items = container.items() if isinstance(container, dict) else enumerate(container)
        for at, item in list(items):
            if isinstance(at, str) and len(at) > NAME_LENGTH_MAX:
                raise DataError(INVALID_JSON)
            if type(item) is int:
                cast("dict[Any, Any]", container)[at] = wrap_int64(item)
            elif isinstance(item, dict | list):
                stack.append(cast("list[Any] | dict[str, Any]", item))
    return holder[0]


def dumps(value: Any, *, whole: bool = False) -> bytes:
    """Write a value in Jackson's bytes: no whitespace, Java's doubles, supplementary characters escaped. Integers
    beyond 64 bits are wrapped like Java's long; with `whole` they are written in full.

    Raises:
        DataError: a value without a Connect type, with Connect's text.
    """
    if _msgspec_may_write(value):
        try:
            data = _encode(value)
        except (OverflowError, UnicodeEncodeError):
            data = b"\\u"  # an integer beyond 64 bits or a lone surrogate: the reference writer supports both
        if not differs(data) and _LONG_NUMBER not in data.translate(_DIGITS_AS_ZERO):
            return data
    parts: list[str] = []
    _write(value, parts, int.__repr__ if whole else _wrapped)
    return "".join(parts).encode("utf-8")


def _msgspec_may_write(value: Any, depth: int = 0) -> bool:
    """True for maps of texts to scalars for which msgspec and Jackson write the same text, and for a few levels of
    lists and maps of such values. (Checked in C for the most part, so it costs little.)
    """
    if type(value) is dict:
        if not _TEXT_ONLY.issuperset(map(type, cast("dict[Any, Any]", value))):
            return False
        items = list(cast("dict[Any, Any]", value).values())
    elif type(value) is list:
        items = cast("list[Any]", value)
    else:
        return False
    kinds = set(map(type, items))
    if kinds <= _SAME_TEXT:
        return True
    if float in kinds:
        if not all(same_double_text(item) for item in items if type(item) is float):
            return False
        kinds.discard(float)
        if kinds <= _SAME_TEXT:
            return True
    if depth == _DEPTH_CHECKED or not kinds <= _SAME_TEXT_WITHIN:
        return False
    return all(_msgspec_may_write(item, depth + 1) for item in items if type(item) in _CONTAINERS)


def same_double_text(value: float) -> bool:
    """True when msgspec, Python and Java print the double alike."""
    return value == 0 or prints_shortest(value)


def differs(data: bytes) -> bool:
    """True when a text that msgspec wrote may differ from Jackson's text for the same strings."""
    # Nearly all text has no backslash, which is the fastest check.
    if b"\\" in data and _ESCAPED_UNIT.search(data) is not None:
        return True
    return not data.isascii() and _SUPPLEMENTARY.search(data) is not None


def loads_many(data: Sequence[bytes | None]) -> list[Any]:
    """Run `loads` for each: all at once, in little more than msgspec's time, when nothing needs more than msgspec."""
    values = loads_plain(data)
    return [loads(item) for item in data] if values is None else values


def loads_plain(data: Sequence[bytes | None]) -> JsonValues | None:
    """The values of texts with exactly one JSON value each that need nothing but msgspec; None where `loads` must read
    them. msgspec itself detects whole numbers that are too long, down to some depth, at no cost. Numbers beyond a
    double, which Jackson reads as infinite, are errors in msgspec.
    """
    try:
        joined = b"\n".join(cast("Sequence[bytes]", data))
        if has_negative_zero(joined):
            return None
        longest = max(map(len, cast("Sequence[bytes]", data)), default=0)
        if longest > NAME_LENGTH_MAX or (
            longest > _NUMBER_LENGTH_MIN and any(map(beyond_limits, cast("Sequence[bytes]", data)))
        ):
            return None
        try:
            return JsonValues(map(_decode_within_64_bits, cast("Sequence[bytes]", data)))
        except msgspec.ValidationError:  # a long number, or one of the values is nested deeper than the type
            long = _LONG_NUMBER in joined.translate(_DIGITS_AS_ZERO)
            return None if long else JsonValues(map(_decode, cast("Sequence[bytes]", data)))
    except (TypeError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None  # a null, or JSON that msgspec refuses


def quote(text: str) -> str:
    """A JSON string literal in Jackson's escaping."""
    return '"' + _ESCAPED.sub(_escape, text) + '"' if _ESCAPED.search(text) else f'"{text}"'


def _escape(match: re.Match[str]) -> str:
    char = match.group()
    if short := _SHORT_ESCAPES.get(char):
        return short
    code = ord(char)
    if code > 0xFFFF:
        code -= 0x10000
        return f"\\u{0xD800 + (code >> 10):04X}\\u{0xDC00 + (code & 0x3FF):04X}"
    return f"\\u{code:04X}"


def _wrapped(value: int) -> str:
    return str(wrap_int64(value))


def _write(value: Any, parts: list[str], integer: Callable[[int], str]) -> None:
    kind = type_of(value)
    if kind is str:
        parts.append(quote(value))
    elif value is None:
        parts.append("null")
    elif kind is bool:
        parts.append("true" if value else "false")
    elif kind is int:
        parts.append(integer(value))
    elif kind is float:
        text = double_text(value)
        parts.append(text if math.isfinite(value) else f'"{text}"')
    elif kind is dict:
        _write_map(cast("dict[Any, Any]", value), parts, integer)
    elif kind is list or kind is tuple:
        _write_list(cast("list[Any]", value), parts, integer)
    elif kind in (bytes, bytearray, memoryview):
        parts.append('"' + base64.b64encode(value).decode("ascii") + '"')
    elif kind is msgspec.Raw:
        parts.append(bytes(value).decode("ascii"))
    else:
        _write_marked(value, parts)


def _write_marked(value: Any, parts: list[str]) -> None:
    """Write values of the marker types, and refuse values without a JSON form."""
    connect_type = schema_type(value)
    if connect_type == "STRUCT":
        raise DataError("Mismatching schema.")
    if connect_type is None:
        raise DataError(f"Java class class {java_class(value)} does not have corresponding schema type.")
    if connect_type == "FLOAT32":
        text = float_text(value)
        parts.append(text if math.isfinite(value) else f'"{text}"')
    else:
        parts.append(int.__repr__(value))


def _write_map(value: dict[Any, Any], parts: list[str], integer: Callable[[int], str]) -> None:
    """Write a map: as in Connect, a map whose keys are all strings becomes an object, any other an array of pairs
    (docs/reference/connect/transforms-converters.md, section 4.1).
    """
    if all(isinstance(key, str) for key in value):
        separator = "{"
        for key, item in value.items():
            parts.append(f"{separator}{quote(key)}:")
            _write(item, parts, integer)
            separator = ","
        parts.append("}" if value else "{}")
        return
    separator = "["
    for key, item in value.items():
        parts.append(f"{separator}[")
        _write(key, parts, integer)
        parts.append(",")
        _write(item, parts, integer)
        parts.append("]")
        separator = ","
    parts.append("]")


def _write_list(value: list[Any], parts: list[str], integer: Callable[[int], str]) -> None:
    separator = "["
    for item in value:
        parts.append(separator)
        _write(item, parts, integer)
        separator = ","
    parts.append("]" if value else "[]")
