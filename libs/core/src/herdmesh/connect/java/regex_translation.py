"""Translation of Java regular expressions to the syntax of the `regex` library (its version 1).

Owns the differences: ASCII-only classes, line terminators, quoting, flags and their scope, Java's property names.
`java_regex` decides whether Java compiles a pattern.

Invariant: a translated pattern matches the same texts as in Java, apart from letters above U+FFFF and canonical
equivalence; a pattern without translation raises `Untranslatable`.
"""

from __future__ import annotations

import unicodedata

_WORD, _DIGIT, _SPACE = "a-zA-Z0-9_", "0-9", r" \t\n\x0b\f\r"
_HORIZONTAL = r" \t\xa0\u1680\u180e\u2000-\u200a\u202f\u205f\u3000"
_VERTICAL = r"\n\x0b\f\r\x85\u2028\u2029"
_CLASSES = {"w": _WORD, "d": _DIGIT, "s": _SPACE, "h": _HORIZONTAL, "v": _VERTICAL}
_CONTROLS = {"t": 9, "n": 10, "r": 13, "f": 12, "a": 7, "e": 27}
_LOWER, _UPPER = "a-z", "A-Z"
_POSIX = {
    "Lower": _LOWER, "Upper": _UPPER, "ASCII": r"\x00-\x7f", "Alpha": "a-zA-Z", "Digit": _DIGIT, "Alnum": "a-zA-Z0-9",
    "Punct": r"!-/:-@\[-`{-~", "Graph": "!-~", "Print": " -~", "Blank": r" \t", "Cntrl": r"\x00-\x1f\x7f",
    "XDigit": "0-9a-fA-F", "Space": _SPACE,
}  # fmt: skip
_UNICODE_POSIX = {"Lower": r"\p{Lowercase}", "Upper": r"\p{Uppercase}", "Alpha": r"\p{Alphabetic}",
                  "Alnum": r"\p{Alphabetic}\p{Nd}", "Digit": r"\p{Nd}", "Punct": r"\p{P}",
                  "Space": r"\p{White_Space}"}  # fmt: skip
_JAVA = {
    "javaLowerCase": r"\p{Lowercase}", "javaUpperCase": r"\p{Uppercase}", "javaTitleCase": r"\p{Lt}",
    "javaAlphabetic": r"\p{Alphabetic}", "javaLetter": r"\p{L}", "javaDigit": r"\p{Nd}",
    "javaLetterOrDigit": r"\p{L}\p{Nd}", "javaSpaceChar": r"\p{Z}", "javaISOControl": r"\x00-\x1f\x7f-\x9f",
    "javaWhitespace": r"\t-\r\x1c-\x20\u1680\u2000-\u2006\u2008-\u200a\u2028\u2029\u205f\u3000",
    "javaIdeographic": r"\p{Ideographic}", "L1": r"\x00-\xff", "LD": r"\p{L}\p{Nd}", "LC": r"\p{Lu}\p{Ll}\p{Lt}",
    "all": r"\x00-\U0010ffff",
}  # fmt: skip
_CASED = frozenset(("Lu", "Ll", "Lt", "IsLu", "IsLl", "IsLt", "javaLowerCase", "javaUpperCase", "javaTitleCase"))
_KEYS = {"script": "sc", "sc": "sc", "block": "blk", "blk": "blk", "general_category": "gc", "gc": "gc"}


class Untranslatable(Exception):
    """Feature of Java's syntax that `regex` does not have."""


def translated(pattern: str) -> str:
    """The same expression for `regex.compile(..., regex.V1)`. Java must compile the pattern.

    Raises:
        Untranslatable: names the feature that has no translation.
    """
    return _Translator(pattern).expression()


class _Translator:
    def __init__(self, pattern: str) -> None:
        self._text = pattern
        self._at = 0
        self._flags: frozenset[str] = frozenset()
        self._groups = 0

    def expression(self) -> str:
        """Translate up to the bracket that closes the group, or the end."""
        outer, out = self._flags, list[str]()
        while self._at < len(self._text) and self._peek() != ")":
            atom = self._atom()
            if atom is not None:
                out.append(atom if atom == "|" else self._repeated(atom))
        self._flags = outer
        return "".join(out)

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self, count: int = 1) -> str:
        taken = self._text[self._at : self._at + count]
        self._at += count
        return taken

    def _skip_comments(self) -> None:
        while "x" in self._flags and self._peek():
            if self._peek() == "#":
                end = min((at for at in map(self._find, "\n\r\x85\u2028\u2029") if at >= 0), default=len(self._text))
                self._at = end
            elif self._peek() in " \t\n\x0b\f\r":
                self._at += 1
            else:
                return

    def _find(self, text: str) -> int:
        return self._text.find(text, self._at)

    def _repeated(self, atom: str) -> str:
        self._skip_comments()
        while self._peek() and self._peek() in "*+?{":
            if self._peek() == "{":
                end = self._find("}") + 1
                counted = self._text[self._at : end]
                self._at = end
            else:
                counted = self._take()
            if self._peek() and self._peek() in "?+":
                counted += self._take()
            atom = f"(?:{atom}){counted}"
            self._skip_comments()
        return atom

    def _atom(self) -> str | None:
        self._skip_comments()
        char = self._take()
        match char:
            case "" | ")":
                self._at -= bool(char)
                return None
            case "(":
                return self._group()
            case "[":
                return self._set()
            case "\\":
                return self._escape()
            case ".":
                if "s" in self._flags:
                    return r"[\x00-\U0010ffff]"
                return r"[^\n]" if "d" in self._flags else r"[^\n\r\x85\u2028\u2029]"
            case "^":
                return self._line_start()
            case "$":
                return self._line_end(multiline="m" in self._flags)
            case "|":
                return "|"
            case "{":  # a count without an expression before it, which Java accepts
                self._at -= 1
                return "(?:)"
            case _:
                return self._literal(char)

    def _line_start(self) -> str:
        if "m" not in self._flags:
            return r"\A"
        after = r"(?<=\n)" if "d" in self._flags else r"(?<=[\n\x85\u2028\u2029])|(?<=\r)(?!\n)"
        return rf"(?:(?!\Z)(?:\A|{after}))"

    def _line_end(self, *, multiline: bool) -> str:
        last = "" if multiline else r"\Z"
        if "d" in self._flags:
            return rf"(?:\Z|(?=\n{last}))"
        pair = "" if multiline else r"|(?=\r\n\Z)"
        return rf"(?:\Z{pair}|(?<!\r)(?=\n{last})|(?=[\r\x85\u2028\u2029]{last}))"

    def _literal(self, char: str) -> str:
        plain = _escaped(char)
        if "i" not in self._flags:
            return plain
        if "u" in self._flags or "U" in self._flags:
            others = {char.lower(), char.upper(), char.upper().lower(), char.lower().upper()}
            return f"[{''.join(sorted(_escaped(one) for one in {char, *others} if len(one) == 1))}]"
        return f"[{char.lower()}{char.upper()}]" if char.isascii() and char.isalpha() else plain

    def _group(self) -> str | None:
        if self._peek() != "?":
            self._groups += 1
            return self._closed("(")
        self._at += 1
        for head in ("<=", "<!", "=", "!", ">", ":"):
            if self._text.startswith(head, self._at):
                self._at += len(head)
                return self._closed(f"(?{head}")
        if self._peek() == "<":
            end = self._find(">") + 1
            name = self._text[self._at + 1 : end - 1]
            self._at = end
            self._groups += 1
            return self._closed(f"(?P<{name}>")
        before = self._flags
        off = False
        while (flag := self._take()) not in ":)":
            if flag == "-":
                off = True
            else:
                self._flags = self._flags - {flag} if off else self._flags | {flag}
        if flag == ")":
            return None
        made = self._closed("(?:")
        self._flags = before
        return made

    def _closed(self, head: str) -> str:
        inner = self.expression()
        self._at += 1
        return f"{head}{inner})"

    def _escape(self) -> str:
        char = self._peek()
        simple = {"A": r"\A", "z": r"\Z", "Z": self._line_end(multiline=False), "G": r"\G", "B": r"\B", "X": r"\X",
                  "R": rf"(?:\r\n|[{_VERTICAL}])"}  # fmt: skip
        if char in simple and char:
            self._at += 1
            return simple[char]
        if char == "b":
            self._at += 1
            if self._text.startswith("{g}", self._at):
                raise Untranslatable("\\b{g}")
            return r"\b"
        if char == "Q":
            return self._quoted()
        if char == "k":
            end = self._find(">")
            name = self._text[self._at + 2 : end]
            self._at = end + 1
            return self._referring(f"(?P={name})")
        if char in "123456789":
            return self._back_reference()
        found = self._class_escape()
        return f"[{found}]" if found is not None else self._literal(self._character())

    def _quoted(self) -> str:
        """Translate a quoted text. A repetition after it applies only to its last character."""
        end = self._find("\\E")
        stop = len(self._text) if end < 0 else end
        quoted = self._text[self._at + 1 : stop]
        self._at = stop if end < 0 else stop + 2
        if not quoted:
            return "(?:)"
        *first, last = quoted
        return "".join(map(self._literal, first)) + self._repeated(self._literal(last))

    def _back_reference(self) -> str:
        number = int(self._take())
        if number > self._groups:
            return "(?!)"
        while self._peek().isdigit() and number * 10 + int(self._peek()) <= self._groups:
            number = number * 10 + int(self._take())
        return self._referring(f"(?:\\{number})")

    def _referring(self, reference: str) -> str:
        return f"(?i:{reference})" if "i" in self._flags else reference

    def _class_escape(self) -> str | None:
        """Translate an escape for several characters to the inside of a set; None = the escape is for one character."""
        char = self._peek()
        small = char.lower()
        if char and small in "pP":
            self._at += 1
            return self._property(negated=char == "P")
        if not char or small not in _CLASSES:
            return None
        self._at += 1
        unicode = small in "wds" and "U" in self._flags
        return f"\\{char}" if unicode else _CLASSES[small] if char == small else f"[^{_CLASSES[small]}]"

    def _property(self, *, negated: bool) -> str:
        name = self._take()
        if name == "{":
            end = self._find("}")
            name = self._text[self._at : end]
            self._at = end + 1
        found = self._named(name)
        return f"[^{found}]" if negated else found

    def _named(self, name: str) -> str:
        if "i" in self._flags and name in ("Lower", "Upper") and "U" not in self._flags:
            return "a-zA-Z"
        if "i" in self._flags and name in _CASED:
            return _JAVA["LC"]
        if name in _POSIX:
            return _UNICODE_POSIX.get(name, _POSIX[name]) if "U" in self._flags else _POSIX[name]
        if name in _JAVA:
            return _JAVA[name]
        if name.startswith("java"):
            raise Untranslatable(f"\\p{{{name}}}")
        key, equals, value = name.partition("=")
        if equals:
            return f"\\p{{{_KEYS.get(key.lower(), key)}={value}}}"
        if name.startswith("In"):
            return f"\\p{{blk={name[2:]}}}"
        return f"\\p{{{name.removeprefix('Is')}}}"

    def _character(self) -> str:
        """Parse an escape for one character."""
        char = self._take()
        if char in _CONTROLS:
            return chr(_CONTROLS[char])
        match char:
            case "0":
                start = self._at
                while self._at - start < (3 if self._text[start] in "0123" else 2) and self._peek() in tuple(
                    "01234567"
                ):
                    self._at += 1
                return chr(int(self._text[start : self._at], 8))
            case "x" if self._peek() == "{":
                end = self._find("}")
                digits = self._text[self._at + 1 : end]
                self._at = end + 1
                return chr(int(digits, 16))
            case "x":
                return chr(int(self._take(2), 16))
            case "u":
                return self._unit()
            case "c":
                return chr(ord(self._take()) ^ 64)
            case "N":
                end = self._find("}")
                name = self._text[self._at + 1 : end]
                self._at = end + 1
                return unicodedata.lookup(name)
            case _:
                return char

    def _unit(self) -> str:
        high = int(self._take(4), 16)
        following = self._text[self._at : self._at + 6]
        if 0xD800 <= high < 0xDC00 and following.startswith("\\u"):
            low = int(following, 0)
            if 0xDC00 <= low < 0xE000:
                self._at += 6
                return chr(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))
        return chr(high)

    def _set(self) -> str:
        """Translate a set, from after its `[`; an intersection becomes one of sets."""
        negated = self._peek() == "^"
        self._at += negated
        operands: list[list[str]] = [[]]
        first = True
        while True:
            self._skip_comments()
            if self._peek() == "]" and not first:
                self._at += 1
                break
            if self._text.startswith("&&", self._at):
                self._at += 2
                operands.append([])
            elif self._peek() == "[":
                self._at += 1
                operands[-1].append(self._set())
            else:
                operands[-1].append(self._item())
            first = False
        while not operands[0]:
            operands.pop(0)
        if not all(operands):
            raise Untranslatable("&& with nothing on one side of it")
        sets = [f"[{''.join(operand)}]" for operand in operands]
        return f"[{'^' if negated else ''}{'&&'.join(sets)}]"

    def _item(self) -> str:
        if self._text.startswith("\\Q", self._at):
            end = self._find("\\E")
            stop = len(self._text) if end < 0 else end
            quoted = self._text[self._at + 2 : stop]
            self._at = stop + 2
            return "".join(self._range(char, char) for char in quoted)
        if self._peek() == "\\":
            self._at += 1
            several = self._class_escape()
            if several is not None:
                return several
            low = self._character()
        else:
            low = self._take()
        if self._peek() != "-" or self._text[self._at + 1 : self._at + 2] in ("]", "[", ""):
            return self._range(low, low)
        self._at += 1
        if self._peek() == "\\":
            self._at += 1
            return self._range(low, self._character())
        return self._range(low, self._take())

    def _range(self, low: str, high: str) -> str:
        made = _escaped(low) if low == high else f"{_escaped(low)}-{_escaped(high)}"
        if "i" not in self._flags:
            return made
        if "u" in self._flags or "U" in self._flags:
            if not (low.isascii() and high.isascii()) and low != high:
                raise Untranslatable("a range of letters beyond ASCII, ignoring case")
            if low == high:
                return made + self._literal(low)
        for start, stop, more in (("a", "z", -32), ("A", "Z", 32)):
            begin, end = max(low, start), min(high, stop)
            if begin <= end:
                made += f"{chr(ord(begin) + more)}-{chr(ord(end) + more)}"
        return made


def _escaped(char: str) -> str:
    if char.isascii() and char.isalnum():
        return char
    return f"\\x{ord(char):02x}" if ord(char) < 256 else f"\\U{ord(char):08x}"
