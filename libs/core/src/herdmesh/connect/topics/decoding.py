"""Outcomes of decoding a record, shared by the topics, and the parsing of task numbers in keys.

Has no rules of a single topic.

Invariant: decoding never raises. An unreadable record becomes `Undecodable`, which names the object that it belongs to,
so that a store can count it, list it, and still do what Connect does for that object.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from herdmesh.connect.model import utf8_text

_INT_TEXT = re.compile("[+-]?[0-9]+")
_INT32_MAX = 2**31 - 1
_INT32_MIN = -(2**31)


@dataclass(frozen=True, slots=True)
class Tombstone:
    """A null value where Connect gives it a meaning. `kind` is the kind of record it removes."""

    kind: str
    connector: str
    task: int | None = None
    topic: str | None = None


@dataclass(frozen=True, slots=True)
class Undecodable:
    """A record that Connect would log and ignore. `kind` is "" when the key itself cannot be read."""

    reason: str
    kind: str = ""
    connector: str = ""
    task: int | None = None


@dataclass(frozen=True, slots=True)
class Unknown:
    """A key of an unknown kind; a newer Connect or another tool may have written it."""

    key: str


def key_text(key: bytes) -> str:
    """A key as Java's StringDeserializer reads it: UTF-8, malformed bytes replaced."""
    return utf8_text(key)


def key_bytes(text: str) -> bytes:
    """A key as Java's StringSerializer writes it: UTF-8, a lone surrogate becomes `?`."""
    return text.encode("utf-8", "replace")


def parse_int32(text: str) -> int | None:
    """`Integer.parseInt`: optional sign, decimal digits of any script in the basic plane, 32 bits; None for a text that
    it refuses.
    """
    if not text.isascii():
        digits = "".join(str(int(char)) if char.isdecimal() and char <= "\uffff" else char for char in text)
        if not digits.isascii():
            return None
        text = digits
    if not _INT_TEXT.fullmatch(text):
        return None
    value = int(text)
    return value if _INT32_MIN <= value <= _INT32_MAX else None


def parse_task_key(key: str, leading_parts: int) -> tuple[str, int] | None:
    """Connector and task number of `<leading>-<connector>-<task>` (docs/reference/connect/config-topic.md, sections 4.3
    and 11).

    Java splits on `-` and drops trailing empty parts, so `task-x-1-` is task 1 of x and `task-x--1` task 1 of `x-`.
    """
    head, _, last = key.rpartition("-")
    if last.isdecimal() and last.isascii() and len(last) < 10:  # nearly every key, and unambiguous
        words = head.split("-", leading_parts)
        return (words[-1], int(last)) if len(words) > leading_parts else None
    parts = key.split("-")
    while parts and not parts[-1]:
        parts.pop()
    if len(parts) < leading_parts + 2:
        return None
    task = parse_int32(parts[-1])
    return None if task is None else ("-".join(parts[leading_parts:-1]), task)
