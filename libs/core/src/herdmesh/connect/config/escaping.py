"""Escaping of lone surrogates: text that a message, a JSON document or a log can carry.

Python's `str` can contain halves of surrogate pairs (from `surrogateescape`, a cut UTF-16 text, a bad JSON escape).
UTF-8, and so protobuf, JSON and Kafka, cannot. Owns the one form in which such text is shown: each half as its escape,
`\\ud83d`. Text that is stored, such as a task config, is refused instead of escaped (`spi.author_checks`).

Invariant: `escaped` never raises, and text without such halves stays the same object.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast


def escaped(text: str) -> str:
    """The text with each half of a surrogate pair as its escape."""
    return text if is_encodable(text) else text.encode("utf-8", "backslashreplace").decode()


def is_encodable(text: str) -> bool:
    """True when the text can be encoded in UTF-8."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def escaped_within(value: Any) -> Any:
    """A value of lists and dicts with all its texts escaped."""
    if isinstance(value, str):
        return escaped(value)
    if isinstance(value, Mapping):
        items = cast("Mapping[Any, Any]", value).items()
        return {escaped_within(name): escaped_within(one) for name, one in items}
    if isinstance(value, list | tuple):
        return [escaped_within(one) for one in cast("list[Any]", value)]
    return value
