"""Java regular expressions (`java.util.regex`, JDK 17): the syntax check with Java's error texts, and a compiled
pattern that matches as in Java.

Owns the syntax. The library `regex` does the matching, with the pattern from `regex_translation`.

Invariant: an invalid pattern is refused at the position that Java reports, for the faults seen in configs of
connectors. Some names of Unicode properties and characters are not known here.
"""

from __future__ import annotations

from functools import lru_cache

import regex

from herdmesh.connect.errors import ConfigError
from herdmesh.connect.java.regex_translation import Untranslatable, translated

_INT_MAX = 2**31 - 1
_ILLEGAL = "CEFIJKLMOTUYgijlmoqy"
_ILLEGAL_IN_CLASS = "ABGRXZbkz123456789"
_FLAGS = "idmsuxU"
_HEX = "0123456789abcdefABCDEF"
_CATEGORIES = ("L", "M", "N", "Z", "C", "P", "S", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Me", "Mc", "Nd", "Nl", "No",
               "Zs", "Zl", "Zp", "Cc", "Cf", "Co", "Cs", "Cn", "Pd", "Ps", "Pe", "Pc", "Po", "Sm", "Sc", "Sk", "So",
               "Pi", "Pf", "LC", "LD", "L1", "all", "ASCII", "Alnum", "Alpha", "Blank", "Cntrl", "Digit", "Graph",
               "Lower", "Print", "Punct", "Space", "Upper", "XDigit")  # fmt: skip
_PROPERTIES = ("Is", "In", "java", "sc=", "script=", "blk=", "block=", "gc=", "general_category=")


class _Wrong(Exception):
    def __init__(self, text: str, at: int) -> None:
        super().__init__(text)
        self.at = at


def syntax_error(pattern: str) -> str | None:
    """The message of Java's PatternSyntaxException; None when the pattern compiles."""
    try:
        _Parser(pattern).parse()
    except RecursionError:
        return None  # hundreds of nested groups; Java's own depth is bounded too
    except _Wrong as wrong:
        near = f" near index {wrong.at}" if wrong.at >= 0 else ""
        caret = "\n" + " " * wrong.at + "^" if 0 <= wrong.at < len(pattern) else ""
        return f"{wrong}{near}\n{pattern}{caret}"
    return None


REGEX_FIX = "correct the expression; \\ before a character takes it as it is"


@lru_cache(maxsize=256)
def compiled(pattern: str) -> regex.Pattern[str]:
    """The compiled expression, which matches as in Java.

    Raises:
        ConfigError: Java does not compile the pattern, or it uses a feature that only Java has; the text says which.
    """
    wrong = syntax_error(pattern)
    if wrong is not None:
        raise ConfigError(f"Invalid regex: {wrong}", fix=REGEX_FIX)
    try:
        return regex.compile(translated(pattern), regex.V1)
    except (Untranslatable, regex.error, RecursionError) as error:
        raise ConfigError(
            f"Regex {pattern} cannot be run here: {error} has no counterpart outside Java",
            fix="write the expression without it",
        ) from error


def matches(pattern: str, text: str) -> bool:
    """True when the whole text matches. Raises ConfigError as `compiled` does."""
    return compiled(pattern).fullmatch(text) is not None


class _Parser:
    """Syntax checker that reads the pattern once; `_at` is the position of the next character."""

    def __init__(self, pattern: str) -> None:
        self._text = pattern
        self._at = 0
        self._names: set[str] = set()
        self._depth = 0

    def parse(self) -> None:
        self._alternatives()
        if self._at < len(self._text):
            raise _Wrong("Unmatched closing ')'", self._at - 1)

    def _peek(self, ahead: int = 0) -> str:
        return self._text[self._at + ahead : self._at + ahead + 1]

    def _alternatives(self) -> None:
        """Parse up to the closing bracket or the end."""
        while self._at < len(self._text) and self._peek() != ")":
            self._atom()

    def _atom(self) -> None:
        char = self._peek()
        if char in "*+?":
            raise _Wrong(f"Dangling meta character '{char}'", self._at)
        if char == "|":
            self._at += 1
            return
        if char == "(":
            if self._group():
                return  # flags alone cannot be repeated
        elif char == "[":
            self._class()
        elif char == "\\":
            self._escape(in_class=False)
        elif char != "{":
            self._at += 1
        self._repetition()

    def _repetition(self) -> None:
        char = self._peek()
        if char and char in "*+?":
            self._at += 1
        elif char == "{":
            self._counted()
        else:
            return
        if self._peek() and self._peek() in "?+":
            self._at += 1
        if self._peek() == "{":
            self._repetition()

    def _counted(self) -> None:
        self._at += 1
        if not self._peek().isdigit():
            raise _Wrong("Illegal repetition", self._at)
        low = high = self._number()
        if self._peek() == ",":
            self._at += 1
            high = self._number() if self._peek() != "}" else _INT_MAX
        if self._peek() != "}":
            raise _Wrong("Unclosed counted closure", self._at)
        if high < low:
            raise _Wrong("Illegal repetition range", self._at)
        self._at += 1

    def _number(self) -> int:
        number = 0
        while self._peek().isdigit():
            number = number * 10 + int(self._peek())
            if number > _INT_MAX:
                raise _Wrong("Illegal repetition range", self._at)
            self._at += 1
        return number

    def _group(self) -> bool:
        """Parse a group; returns True when it was only flags, `(?i)`."""
        self._at += 1
        if self._peek() == "?":
            self._at += 1
            after = self._peek()
            if after == "<" and self._peek(1) not in ("=", "!"):
                self._at += 1
                self._name_group()
            elif after == "<":
                self._at += 2
            elif after and after in "$@":
                raise _Wrong("Unknown group type", self._at)
            elif after and after in ":=!>":
                self._at += 1
            elif self._flags():
                return True
        self._depth += 1
        self._alternatives()
        self._depth -= 1
        if self._peek() != ")":
            raise _Wrong("Unclosed group", self._at)
        self._at += 1
        return False

    def _flags(self) -> bool:
        """Parse flags; returns True when the bracket closes after them."""
        while self._peek() and self._peek() in _FLAGS:
            self._at += 1
        if self._peek() == "-":
            self._at += 1
            while self._peek() and self._peek() in _FLAGS:
                self._at += 1
        if self._peek() not in (":", ")") or not self._peek():
            raise _Wrong("Unknown inline modifier", self._at)
        self._at += 1
        return self._text[self._at - 1] == ")"

    def _name(self) -> str:
        start = self._at
        if not (self._peek().isascii() and self._peek().isalpha()):
            raise _Wrong("capturing group name does not start with a Latin letter", self._at)
        while self._peek().isascii() and self._peek().isalnum():
            self._at += 1
        if self._peek() != ">":
            raise _Wrong("named capturing group is missing trailing '>'", self._at)
        return self._text[start : self._at]

    def _name_group(self) -> None:
        name = self._name()
        if name in self._names:
            raise _Wrong(f"Named capturing group <{name}> is already defined", self._at)
        self._names.add(name)
        self._at += 1

    def _class(self) -> None:
        """Parse a character class and the classes nested in it."""
        self._at += 1
        if self._peek() == "^":
            self._at += 1
        first = True
        while True:
            char = self._peek()
            if not char:
                raise _Wrong("Unclosed character class", len(self._text) - 1)
            if char == "]" and not first:
                self._at += 1
                return
            if char == "[":
                self._class()
            elif self._text.startswith("&&", self._at):
                self._at += 2
            else:
                self._range()
            first = False

    def _range(self) -> None:
        low = self._class_char()
        if self._peek() != "-" or self._peek(1) in ("]", "["):
            return
        self._at += 1
        if not self._peek():
            raise _Wrong("Illegal character range", self._at)
        if self._peek() == "\\" and self._peek(1) and self._peek(1) in "pP":
            raise _Wrong("Illegal/unsupported escape sequence", self._at + 1)
        high = self._class_char()
        if low is not None and (high is None or high < low):
            raise _Wrong("Illegal character range", self._at - 1)

    def _class_char(self) -> str | None:
        """Parse one character of a class; None for an escape that stands for several characters."""
        if self._peek() != "\\":
            self._at += 1
            return self._text[self._at - 1]
        if self._at + 1 == len(self._text):
            raise _Wrong("Unclosed character class", len(self._text))
        start = self._at
        self._escape(in_class=True)
        plain = self._text[start + 1 : self._at]
        return plain if len(plain) == 1 and not plain.isalnum() else None

    def _escape(self, *, in_class: bool) -> None:
        self._at += 1
        char = self._peek()
        if not char and self._depth:
            raise _Wrong("Unclosed group", self._at + 1)
        if not char:
            raise _Wrong("Unexpected internal error", self._at)
        if char == "Q":
            end = self._text.find("\\E", self._at)
            self._at = len(self._text) if end < 0 else end + 2
        elif char in _ILLEGAL or (in_class and char in _ILLEGAL_IN_CLASS):
            raise _Wrong("Illegal/unsupported escape sequence", self._at)
        elif char in "pP":
            self._property()
        elif char == "N":
            self._character_name()
        elif char == "k":
            self._back_reference()
        elif char == "x":
            self._hexadecimal()
        elif char == "u":
            self._at += 1
            for _ in range(4):
                if not self._peek() or self._peek() not in _HEX:
                    raise _Wrong("Illegal Unicode escape sequence", self._at)
                self._at += 1
        elif char == "0":
            self._at += 1
            if not self._peek() or self._peek() not in "01234567":
                raise _Wrong("Illegal octal escape sequence", self._at)
        elif char == "c":
            if self._at + 1 == len(self._text):
                raise _Wrong("Illegal control escape sequence", self._at)
            self._at += 2
        else:
            self._at += 1

    def _property(self) -> None:
        self._at += 1
        if self._peek() != "{":
            name = self._peek() or "\0"
            if name not in _CATEGORIES:
                raise _Wrong(f"Unknown character property name {{{name}}}", self._at)
            self._at += 1
            return
        end = self._text.find("}", self._at)
        if end < 0:
            raise _Wrong("Unclosed character family", len(self._text))
        name = self._text[self._at + 1 : end]
        if not name:
            raise _Wrong("Empty character family", end)
        if name not in _CATEGORIES and not name.startswith(_PROPERTIES):
            raise _Wrong(f"Unknown character property name {{{name}}}", end)
        self._at = end + 1

    def _character_name(self) -> None:
        end = self._text.find("}", self._at)
        if self._peek(1) != "{" or end < 0:
            raise _Wrong("Illegal character name escape sequence", self._at)
        name = self._text[self._at + 2 : end]
        import unicodedata  # rarely needed, and a megabyte of names

        try:
            unicodedata.lookup(name)
        except KeyError:
            raise _Wrong(f"Unknown character name [{name}]", end) from None
        self._at = end + 1

    def _back_reference(self) -> None:
        self._at += 1
        if self._peek() != "<":
            raise _Wrong("\\k is not followed by '<' for named capturing group", self._at)
        self._at += 1
        name = self._name()
        if name not in self._names:
            raise _Wrong(f"named capturing group <{name}> does not exist", self._at)
        self._at += 1

    def _hexadecimal(self) -> None:
        self._at += 1
        if self._peek() == "{":
            end = self._text.find("}", self._at)
            digits = self._text[self._at + 1 : end] if end >= 0 else ""
            if not digits or any(digit not in _HEX for digit in digits):
                raise _Wrong("Illegal hexadecimal escape sequence", self._at)
            if int(digits, 16) > 0x10FFFF:
                raise _Wrong("Hexadecimal codepoint is too big", end - 1)
            self._at = end + 1
            return
        for _ in range(2):
            if not self._peek() or self._peek() not in _HEX:
                raise _Wrong("Illegal hexadecimal escape sequence", self._at)
            self._at += 1
