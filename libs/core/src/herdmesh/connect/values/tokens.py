"""Tokenizer of header text.

Owns where a token begins and ends, and going back. Which tokens make a value: `parsing`.

Invariant: the tokens in order are the text; a delimiter that no backslash escapes is a token of its own, and
backslashes stay in the tokens.
"""

from __future__ import annotations

import re

from herdmesh.connect.java import BLANKS

_TOKEN = re.compile(r'[:,{}\[\]"]|(?:\\.|[^:,{}\[\]"\\])+\\?|\\', re.DOTALL)


class Tokens:
    """A cursor over the tokens of a text, as Connect's own moves."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0
        """Behind the last token that was read, also one that was only looked at."""
        self._ahead: str | None = None

    def mark(self) -> int:
        """Where the next token begins, for `rewind`."""
        return self.position - (0 if self._ahead is None else len(self._ahead))

    def rewind(self, mark: int) -> None:
        """Go back."""
        self.position, self._ahead = mark, None

    def has_next(self) -> bool:
        """Whether there is another token."""
        return self._ahead is not None or self.position < len(self.text)

    def next(self) -> str:
        """The next token; "" behind the last."""
        token, self._ahead = self._read() if self._ahead is None else self._ahead, None
        return token

    def take(self, count: int) -> str | None:
        """The text of the next tokens; None, and no move, when there are fewer."""
        start = self.mark()
        for _ in range(count):
            if not self.has_next():
                self.rewind(start)
                return None
            self.next()
        return self.text[start : self.position]

    def consume(self, expected: str) -> bool:
        """Move past the next token if it is that one, blanks around it aside. Blank tokens before it are passed
        over, for good."""
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
