"""JSON as Connect's JsonConverter reads it without schemas, implemented a second time: the reader of the oracles.

Owns the rules for accepted JSON in docs/reference/connect/config-topic.md, sections 2.1 and 11, on top of Python's own
`json`. Shares nothing with `herdmesh.connect.json_text.jackson`, so that one can be checked with the other; it is
plain, and not fast. Invariant: a value or `NotJson`, whatever the bytes.
"""

from __future__ import annotations

import json
import re
import sys
from functools import lru_cache
from typing import Any

_DEPTH_MAX = 1_000
_NUMBER_MAX = 1_000
_NAME_MAX = 50_000
_SPACE = " \t\r\n"
#: A whole string, a bracket, or a whole number: from these come the depth and the leading zeros of numbers.
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]|-?[0-9][0-9.eE+-]*', re.DOTALL)
#: Stands where the first bytes are that are no text. Java never sees such bytes after the value.
_NO_TEXT = "\udcff"
_ZEROS = re.compile(r"(-?)0+(?=[0-9])")
_MAY_HAVE_ZEROS = re.compile(r"(?<![0-9A-Za-z.])-?0[0-9]")
# Once, and never lowered again: Python ends a process in which another thread is deeper than a new limit just then.
sys.setrecursionlimit(max(sys.getrecursionlimit(), 6 * _DEPTH_MAX))


class NotJson(ValueError):
    """Bytes that Connect refuses."""


@lru_cache(maxsize=4_096)
def read(data: bytes | None) -> Any:
    """The first JSON value; None for a null value, for no bytes and for white space alone. Do not change the value: the
    next reader of the same bytes gets the same object.
    """
    if not data:
        return None
    text = _text(data).lstrip(_SPACE)
    if not text:
        return None
    if len(text) >= _DEPTH_MAX or _MAY_HAVE_ZEROS.search(text):
        text = _checked(text)
    try:
        value, end = _JSON.raw_decode(text)
    except ValueError as error:
        raise NotJson(str(error)) from error
    if _NO_TEXT in text[:end]:
        raise NotJson("bytes that are no text")
    _look_behind(value, text[end : end + 1])
    return value


def _look_behind(value: Any, after: str) -> None:
    """Anything may follow a value, but a number or a word must have ended."""
    if isinstance(value, str | list | dict) or not after:
        return
    if isinstance(value, bool) or value is None:
        if after.isalnum() or after in "_$" or after == _NO_TEXT:
            raise NotJson("a longer word")
    elif after not in _SPACE:
        raise NotJson("a longer number")


def _checked(text: str) -> str:
    """`text` up to the end of its first value, without leading zeros of numbers. Raises NotJson for too deep
    nesting.
    """
    parts: list[str] = []
    depth = at = 0
    for found in _TOKEN.finditer(text):
        token = found.group()
        parts.append(text[at : found.start()])
        at = found.end()
        if token in "[{":
            depth += 1
            if depth > _DEPTH_MAX:
                raise NotJson("nested too deep")
        elif token in "]}":
            depth -= 1
        elif token[0] != '"':
            if len(token) > _NUMBER_MAX:
                raise NotJson("a number too long")
            token = _ZEROS.sub(r"\1", token)
        parts.append(token)
        if depth <= 0:
            break
    return "".join(parts) + text[at:]


def _whole(text: str) -> int:
    number = int(text) & (1 << 64) - 1
    return number - (1 << 64) if number >> 63 else number


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if any(len(name) > _NAME_MAX for name, _ in pairs):
        raise NotJson("a member name too long")
    return dict(pairs)


def _no_constant(text: str) -> Any:
    raise NotJson(f"{text} is no number")


_JSON = json.JSONDecoder(parse_int=_whole, parse_constant=_no_constant, object_pairs_hook=_members)


def _text(data: bytes) -> str:
    for mark, encoding in (
        (b"\x00\x00\xfe\xff", "utf-32-be"),
        (b"\xff\xfe\x00\x00", "utf-32-le"),
        (b"\xfe\xff", "utf-16-be"),
        (b"\xff\xfe", "utf-16-le"),
        (b"\xef\xbb\xbf", "utf-8"),
    ):
        if data == mark and encoding[:6] != "utf-32":
            raise NotJson("a mark alone")
        if data.startswith(mark):
            return _as_far_as_text(data[len(mark) :], encoding)
    # Without a byte order mark, the position of zero bytes gives the encoding: JSON begins with an ASCII character.
    shape = "".join("0" if byte == 0 else "x" for byte in data[:4])
    for zeros, encoding in (("000x", "utf-32-be"), ("x000", "utf-32-le"), ("0x", "utf-16-be"), ("x0", "utf-16-le")):
        if shape.startswith(zeros):
            return _as_far_as_text(data, encoding)
    return _as_far_as_text(data, "utf-8")


def _as_far_as_text(data: bytes, encoding: str) -> str:
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        return data[: error.start].decode(encoding) + _NO_TEXT
