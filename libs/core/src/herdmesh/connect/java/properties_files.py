"""Java's `.properties` syntax, as `java.util.Properties.load` reads it.

Owns the whole syntax: comments, blank lines, continuation lines, separators, escapes, and the rule that the last of two
equal keys wins. Gives no meaning to a property.

Invariant: for any bytes the keys and values equal Java's, UTF-16 unit for UTF-16 unit, or both sides refuse the bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

_BLANKS = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class PropertiesError(Exception):
    """Malformed input that Java would refuse. `line` is the number of the line, from 1."""

    def __init__(self, line: int, message: str) -> None:
        self.line = line
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class Property:
    """One value with the line, from 1, on which its key begins."""

    value: str
    line: int


def parse(data: bytes) -> dict[str, Property]:
    r"""All properties of a file, in its order. The bytes are ISO-8859-1, as in Java; other letters are `\uXXXX`.

    Raises:
        PropertiesError: a malformed `\uXXXX`, the only error in Java.
    """
    return parse_text(data.decode("iso-8859-1"))


def parse_text(text: str) -> dict[str, Property]:
    """As `parse`, for text that is decoded already (`Properties.load(Reader)`)."""
    found: dict[str, Property] = {}
    for number, line in _logical_lines(text):
        key, value = _split(line)
        name = _unescaped(key, number)
        found.pop(name, None)
        found[name] = Property(_unescaped(value, number), number)
    return found


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with their continuations joined, without comments and blank lines; each with the number of its first
    line."""
    lines = _natural_lines(text)
    begin, parts = 0, ""
    continued = False
    for number, raw in enumerate(lines, 1):
        line = raw.lstrip(_BLANKS)
        if not parts:
            # This also applies after a line that is only a continuation mark: no property has begun yet.
            if not line or line[0] in "#!":
                continued = False
                continue
            begin = number
        backslashes = len(line) - len(line.rstrip("\\"))
        continued = backslashes % 2 == 1
        parts += line[:-1] if continued else line
        if not continued and parts:
            yield begin, parts
            parts = ""
    if parts or _ends_open(text, lines, begin):
        yield begin, parts


def _ends_open(text: str, lines: list[str], begin: int) -> bool:
    """True when the last line, `begin`, is only a continuation mark at the end of the file: Java reads it as a property
    without name and value, unless CR LF follows.
    """
    last = len(lines) - 1 if lines[-1] == "" and not text.endswith("\r\n") else len(lines)
    return begin == last and lines[last - 1].lstrip(_BLANKS) == "\\"


def _natural_lines(text: str) -> list[str]:
    """Split at LF, CR and CR LF only (`str.splitlines` splits at more characters)."""
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def _split(line: str) -> tuple[str, str]:
    """Key and value, still escaped: the key ends at the first blank, `=` or `:` that is not escaped."""
    end, escaped = 0, False
    while end < len(line):
        char = line[end]
        if not escaped and (char in "=:" or char in _BLANKS):
            break
        escaped = char == "\\" and not escaped
        end += 1
    begin = end
    seen_separator = False
    while begin < len(line):
        char = line[begin]
        if char in "=:" and not seen_separator:
            seen_separator = True
        elif char not in _BLANKS:
            break
        begin += 1
    return line[:end], line[begin:]


def _unescaped(text: str, line: int) -> str:
    """The text with its escapes resolved; two halves of a surrogate pair become one character, as in Java."""
    if "\\" not in text:
        return text
    out: list[str] = []
    at = 0
    while at < len(text):
        char = text[at]
        at += 1
        if char != "\\":
            out.append(char)
            continue
        if at == len(text):
            break
        char = text[at]
        at += 1
        if char == "u":
            digits = text[at : at + 4]
            if len(digits) < 4 or any(digit not in "0123456789abcdefABCDEF" for digit in digits):
                raise PropertiesError(line, f"malformed \\uxxxx encoding: \\u{digits}")
            out.append(chr(int(digits, 16)))
            at += 4
        else:
            out.append(_ESCAPES.get(char, char))
    return "".join(out).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
