"""Tokenizer of header text.

Owns the boundaries of tokens, and rewinding. Values made of tokens: `parsing`.

Invariant: the tokens joined in order are the text; a delimiter that no backslash escapes is a separate token, and
backslashes stay in the tokens.
"""

from __future__ import annotations

import re

from herdmesh.connect.java import BLANKS

_TOKEN = re.compile(r'[:,{}\[\]"]|(?:\\.|[^:,{}\[\]"\\])+\\?|\\', re.DOTALL)


class Tokens:
    """Cursor over the tokens of a text that moves like Connect's own."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0
        """End of the last token that was read, including a token that was only peeked at."""
        self._ahead: str | None = None

    def mark(self) -> int:
        """Start of the next token, for `rewind`."""
        return self.position - (0 if self._ahead is None else len(self._ahead))

    def rewind(self, mark: int) -> None:
        """Move back to a mark."""
        self.position, self._ahead = mark, None

    def has_next(self) -> bool:
        """True when there is another token."""
        return self._ahead is not None or self.position < len(self.text)

    def next(self) -> str:
        """The next token; "" after the last."""
        token, self._ahead = self._read() if self._ahead is None else self._ahead, None
        return token

    def take(self, count: int) -> str | None:
        """The text of the next `count` tokens; None, without moving, when there are fewer."""
        start = self.mark()
        for _ in range(count):
            if not self.has_next():
                self.rewind(start)
                return None
            self.next()
        return self.text[start : self.position]

    def consume(self, expected: str) -> bool:
        """Move past the next token if it is `expected`, ignoring blanks around it. Blank tokens before it are skipped
        in either case.
        """
        if self._ahead is None:
            if self.position >= len(self.text):
                return False
            self._ahead = self._read()
        while not (token := self._ahead.strip(BLANKS)) and self.position < len(self.text):
            self._ahead = self._read()
        if token != expected:
            return False
        self._ahead = None
        return True

    def _read(self) -> str:
        found = _TOKEN.match(self.text, self.position)
        if found is None:
            return ""
        self.position = found.end()
        return found[0]
