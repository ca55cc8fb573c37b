"""JSON as Connect's JsonConverter without schemas reads and writes it (reference config-topic 2.1, 11).

Owns reading bytes into plain Python values and writing them back in Jackson's bytes. Does not know what a record means.
Values: None, bool, int (64 bits), float, str (lone surrogates possible), list, dict with str keys in the order read.

Invariant: `loads` accepts and refuses what Jackson does under JsonConverter's settings, and `dumps(loads(b)) == b` for
every b that Connect wrote. msgspec does the work where its answer is known to be Jackson's; the careful reader in
`_jackson_reader` decides everything else.
"""

from __future__ import annotations

import base64
import math
import re
from typing import Any, cast

import msgspec
from herdmesh.connect import _jackson_reader
from herdmesh.connect.errors import DataError
from herdmesh.connect.javanumbers import double_text, wrap_int64

INVALID_JSON = "Converting byte[] to Kafka Connect data failed due to serialization error: "

_decode = msgspec.json.Decoder().decode
_DIGITS_AS_ZERO = bytes.maketrans(b"123456789", b"000000000")
_LONG_NUMBER = b"0" * 19  # the shortest run of digits that may not fit a signed 64-bit integer

_ESCAPED = re.compile('["\\\\\x00-\x1f\ud800-\udfff\U00010000-\U0010ffff]')
_SHORT_ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}


def may_hold_long_number(data: bytes) -> bool:
    """True when some number in `data` may not fit 64 bits (a cheap test that never misses one)."""
    return _LONG_NUMBER in data.translate(_DIGITS_AS_ZERO)


def loads(data: bytes | None) -> Any:
    """Read one JSON value; null, empty and blank bytes read as None.

    Raises:
        DataError: what Jackson refuses, with Connect's text.
    """
    if not data:
        return None
    if not may_hold_long_number(data):
        try:
            return _decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            pass  # Jackson accepts more than msgspec does: let the careful reader decide.
    try:
        return _jackson_reader.read(data)
    except _jackson_reader.JsonSyntaxError as error:
        raise DataError(INVALID_JSON) from error


def dumps(value: Any) -> bytes:
    """Write a value in Jackson's bytes: no whitespace, Java's doubles, supplementary characters escaped.

    Raises:
        DataError: a value without a Connect type, with Connect's text.
    """
    parts: list[str] = []
    _write(value, parts)
    return "".join(parts).encode("utf-8")


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


def _write(value: Any, parts: list[str]) -> None:
    kind = type(value)
    if kind is str:
        parts.append(quote(value))
    elif value is None:
        parts.append("null")
    elif kind is bool:
        parts.append("true" if value else "false")
    elif kind is int:
        parts.append(str(wrap_int64(value)))
    elif kind is float:
        text = double_text(value)
        parts.append(text if math.isfinite(value) else f'"{text}"')
    elif kind is dict:
        _write_map(cast("dict[Any, Any]", value), parts)
    elif kind is list or kind is tuple:
        _write_list(cast("list[Any]", value), parts)
    elif kind in (bytes, bytearray, memoryview):
        parts.append('"' + base64.b64encode(value).decode("ascii") + '"')
    elif isinstance(value, str):
        parts.append(quote(str(value)))
    else:
        raise DataError(f"Java class {kind} does not have corresponding schema type.")


def _write_map(value: dict[Any, Any], parts: list[str]) -> None:
    """Connect writes a map whose keys are all strings as an object, any other as an array of pairs (reference 4.1)."""
    if all(isinstance(key, str) for key in value):
        separator = "{"
        for key, item in value.items():
            parts.append(f"{separator}{quote(key)}:")
            _write(item, parts)
            separator = ","
        parts.append("}" if value else "{}")
        return
    separator = "["
    for key, item in value.items():
        parts.append(f"{separator}[")
        _write(key, parts)
        parts.append(",")
        _write(item, parts)
        parts.append("]")
        separator = ","
    parts.append("]")


def _write_list(value: list[Any], parts: list[str]) -> None:
    separator = "["
    for item in value:
        parts.append(separator)
        _write(item, parts)
        separator = ","
    parts.append("]" if value else "[]")
