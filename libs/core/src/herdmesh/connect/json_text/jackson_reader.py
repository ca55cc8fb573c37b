"""Reference JSON reader: Jackson's grammar under JsonConverter's settings, one character at a time.

Owns the input that `msgspec` refuses or reads differently: other encodings, leading zeros, trailing content, lone
surrogates, numbers beyond 64 bits or beyond a double, Jackson's limits. Slow, and used for such input alone. Iterative,
so that no input can exhaust the stack.

Invariant: never returns a value that Jackson refuses, and never refuses one that it accepts
(docs/reference/connect/config-topic.md, sections 2.1 and 11).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any

from herdmesh.connect.java import wrap_int64

DEPTH_MAX = 1_000
_NUMBER_LENGTH_MAX = 1_000
NAME_LENGTH_MAX = 50_000

_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")
#: Ends a text whose bytes are no characters from there on. Jackson fails only if it reads that far: after the value it
#: accepts any bytes.
_NO_TEXT = "\udcff"
_PLAIN = re.compile(f'[^"\\\\\x00-\x1f{_NO_TEXT}]*')
_WHOLE = re.compile(f'"({_PLAIN.pattern})"')
_SPACE = re.compile(r"[ \t\r\n]*")
_SURROGATE = re.compile("[\ud800-\udfff]")
_HEX4 = re.compile("[0-9a-fA-F]{4}")
_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_LITERALS: dict[str, bool | None] = {"true": True, "false": False, "null": None}


# Accepted values are compared, digested and written by functions that recurse once or twice per level, which Python's
# default limit of 1,000 calls would end in an error far from the record.
sys.setrecursionlimit(max(sys.getrecursionlimit(), 6 * DEPTH_MAX))


class JsonSyntaxError(ValueError):
    """Raised for bytes that Jackson refuses."""


class Missing:
    """Type of `MISSING`."""


MISSING = Missing()
"""The node for input without a value."""


def read(data: bytes) -> Any:
    """Read the first JSON value of `data`; None for blank input.

    Raises:
        JsonSyntaxError: Jackson would refuse it.
    """
    value = _Reader(_decode_text(data), java_number).read()
    return None if value is MISSING else value


def read_node(data: bytes) -> Any:
    """As `read`, but with exact numbers: an int of any size, a Decimal for all others; MISSING for blank input."""
    return _Reader(_decode_text(data), exact_number).read()


def java_number(text: str) -> int | float:
    """The number for a schemaless value: Java reads whole numbers as long, all others as BigDecimal and then as double,
    so that there is no negative zero.
    """
    number = exact_number(text)
    if isinstance(number, int):
        return wrap_int64(number)
    return double_of(number)


def exact_number(text: str) -> int | Decimal:
    """The exact number. Raises JsonSyntaxError where the scale is too large for BigDecimal."""
    if text.lstrip("-").isdigit():
        return int(text)
    try:
        number = Decimal(text)
    except InvalidOperation as error:
        raise JsonSyntaxError("the number's exponent is too large") from error
    exponent = number.as_tuple().exponent
    if not isinstance(exponent, int) or not -(2**31) <= -exponent < 2**31:
        raise JsonSyntaxError("the number's exponent is too large")
    return number


def double_of(number: Decimal) -> float:
    """`BigDecimal.doubleValue`: zero has no sign, too large a number is infinite."""
    return float(number) if number else 0.0


def _decode_text(data: bytes) -> str:
    """Detect the encoding as Jackson's bootstrapper does, by byte order marks and then by the positions of zero bytes,
    and decode.
    """
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            if len(data) == len(mark) and len(mark) < 4:
                raise JsonSyntaxError("a byte order mark and nothing more")
            return _decoded(data[len(mark) :], encoding)
    return _decoded(data, _encoding_by_zeros(data))


def _decoded(data: bytes, encoding: str) -> str:
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        return data[: error.start].decode(encoding) + _NO_TEXT


_MARKS = (
    (b"\x00\x00\xfe\xff", "utf-32-be"),
    (b"\xff\xfe\x00\x00", "utf-32-le"),
    (b"\xfe\xff", "utf-16-be"),
    (b"\xff\xfe", "utf-16-le"),
    (b"\xef\xbb\xbf", "utf-8"),
)


def _encoding_by_zeros(data: bytes) -> str:
    zeros = tuple(byte == 0 for byte in data[:4])
    if zeros == (True, True, True, False):
        return "utf-32-be"
    if zeros == (False, True, True, True):
        return "utf-32-le"
    if zeros[:2] == (True, False):
        return "utf-16-be"
    if zeros[:2] == (False, True):
        return "utf-16-le"
    return "utf-8"


class _Reader:
    """Parser that reads the text once. `_containers` is the stack of open arrays and objects, `_names` the pending
    member names.
    """

    def __init__(self, text: str, number_of: Callable[[str], Any]) -> None:
        self._text = text
        self._number_of = number_of
        self._at = 0

    def read(self) -> Any:
        if not self._skip_space():
            return MISSING
        value, container = self._value_start()
        if container:
            self._fill(value)
        elif isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
            self._require_separator()
        elif not isinstance(value, str):
            self._require_no_identifier()
        return value

    def _fill(self, root: list[Any] | dict[str, Any]) -> None:
        stack: list[list[Any] | dict[str, Any]] = [root]
        first = True
        while stack:
            open_container = stack[-1]
            closing = "]" if isinstance(open_container, list) else "}"
            char = self._next_char()
            if char == closing:
                self._at += 1
                stack.pop()
                first = False
                continue
            if not first:
                if char != ",":
                    raise JsonSyntaxError(f"expected ',' or '{closing}' at character {self._at}")
                self._at += 1
            name = self._member_name() if isinstance(open_container, dict) else ""
            self._next_char()
            value, container = self._value_start()
            if isinstance(open_container, dict):
                open_container[name] = value
            else:
                open_container.append(value)
            first = container
            if container:
                stack.append(value)
                if len(stack) > DEPTH_MAX:
                    raise JsonSyntaxError(f"nested deeper than {DEPTH_MAX}")
            elif value is None or isinstance(value, bool):
                self._require_no_identifier()

    def _member_name(self) -> str:
        if self._next_char() != '"':
            raise JsonSyntaxError(f"expected a member name at character {self._at}")
        name = self._string()
        if len(name) > NAME_LENGTH_MAX:
            raise JsonSyntaxError(f"member name longer than {NAME_LENGTH_MAX}")
        if self._next_char() != ":":
            raise JsonSyntaxError(f"expected ':' at character {self._at}")
        self._at += 1
        return name

    def _value_start(self) -> tuple[Any, bool]:
        """Read a whole scalar, or the start of a container that the caller fills (second part True)."""
        char = self._text[self._at]
        if char == "{":
            self._at += 1
            return {}, True
        if char == "[":
            self._at += 1
            return [], True
        if char == '"':
            return self._string(), False
        if char == "-" or "0" <= char <= "9":
            return self._number(), False
        for word, value in _LITERALS.items():
            if self._text.startswith(word, self._at):
                self._at += len(word)
                return value, False
        if self._text[self._at : self._at + 1] == _NO_TEXT:
            raise JsonSyntaxError(f"invalid UTF-8 or UTF-16 at character {self._at}")
        raise JsonSyntaxError(f"unexpected {char!r} at character {self._at}")

    def _number(self) -> Any:
        match = _NUMBER.match(self._text, self._at)
        if match is None:
            raise JsonSyntaxError(f"bad number at character {self._at}")
        text = match.group()
        if len(text) > _NUMBER_LENGTH_MAX:
            raise JsonSyntaxError(f"number longer than {_NUMBER_LENGTH_MAX} characters")
        self._at = match.end()
        if self._text[self._at : self._at + 1] in (".", "e", "E"):
            raise JsonSyntaxError(f"bad number at character {self._at}")
        return self._number_of(text)

    def _string(self) -> str:
        whole = _WHOLE.match(self._text, self._at)
        if whole is not None:  # no escape in the string, as in nearly all
            self._at = whole.end()
            return whole[1]
        self._at += 1
        parts: list[str] = []
        while True:
            match = _PLAIN.match(self._text, self._at)
            assert match is not None  # the pattern matches the empty text
            parts.append(match.group())
            self._at = match.end()
            char = self._text[self._at : self._at + 1]
            if char == '"':
                self._at += 1
                return _join_surrogates("".join(parts))
            if char == _NO_TEXT:
                raise JsonSyntaxError(f"invalid UTF-8 or UTF-16 in a string at character {self._at}")
            if not char:
                raise JsonSyntaxError(f"a string is not closed: the input ends at character {self._at}")
            if char != "\\":
                code = f"{ord(char):04x}"
                raise JsonSyntaxError(f"a string holds a control character at {self._at}: write it as \\u{code}")
            parts.append(self._escape())

    def _escape(self) -> str:
        kind = self._text[self._at + 1 : self._at + 2]
        if kind == "u":
            match = _HEX4.match(self._text, self._at + 2)
            if match is None:
                raise JsonSyntaxError(f"bad escape at character {self._at}")
            self._at += 6
            return chr(int(match.group(), 16))
        if kind not in _ESCAPES:
            raise JsonSyntaxError(f"bad escape at character {self._at}")
        self._at += 2
        return _ESCAPES[kind]

    def _skip_space(self) -> bool:
        match = _SPACE.match(self._text, self._at)
        assert match is not None  # the pattern matches the empty text
        self._at = match.end()
        return self._at < len(self._text)

    def _next_char(self) -> str:
        char = self._text[self._at : self._at + 1]
        if char not in " \t\r\n":  # "", at the end of the text, is in it
            return char
        if not self._skip_space():
            raise JsonSyntaxError("the text ends inside a value")
        return self._text[self._at]

    def _require_separator(self) -> None:
        """Require white space after a root number, as Jackson does; after any other root value it reads no further."""
        if self._at < len(self._text) and self._text[self._at] not in " \t\r\n":
            raise JsonSyntaxError(f"unexpected {self._text[self._at]!r} after the number at character {self._at}")

    def _require_no_identifier(self) -> None:
        """Refuse a longer word: to Jackson `nullx` is one unknown word, not `null` followed by another token."""
        following = self._text[self._at : self._at + 1]
        if following and (following.isidentifier() or following.isdigit() or following in ("$", _NO_TEXT)):
            raise JsonSyntaxError(f"unknown word at character {self._at}")


def _join_surrogates(text: str) -> str:
    """Two escaped halves become one character, as in Java's UTF-16; a lone half stays as it is."""
    if text.isascii() or _SURROGATE.search(text) is None:
        return text
    return text.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "surrogatepass")
