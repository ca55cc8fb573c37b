"""What may leave a process: texts without the secrets that it came to know.

Owns the secrets of this process and their replacement, and what a password within a URL is. Everything that speaks to
the outside asks `redacted`: failures, traces, log lines, answers, and what is printed. Does not know where a secret
comes from (`config_providers`, values of type PASSWORD in `config`, a run's order).

A secret that is an ordinary word (`secret`, `postgres`, `true` from a config provider) or has two or three characters
is in many texts that do not tell it: it is hidden where it stands as a value (`password=secret`, `"secret"`,
`user:secret@`, `password secret`), and the word in a sentence stays. A short number is hidden where it stands as a
number of its own.

Invariant: once `keep_secret` has returned, no text that went through `redacted` contains the secret, but for a word as
above in a sentence; within `secrets_of_one_answer` that holds of the texts of the same thread, and until its end.
"""

from __future__ import annotations

import json
import re
import sys
import threading
from collections import OrderedDict
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import chain
from typing import Any, Final, TextIO, cast
from urllib.parse import unquote

HIDDEN: Final = "***"
LENGTH_MIN: Final = 4
"""Shorter values are found within the words of every text."""
_SHORTEST: Final = 2
_NUMBER_LENGTH_MAX: Final = 8
_ORDINARY: Final = frozenset((
    "access", "account", "admin", "administrator", "alter", "always", "apply", "array", "authentication", "avro",
    "base64", "basic", "batch", "bearer", "boolean", "broker", "bucket", "bytes", "cache", "changeit", "changeme",
    "changes", "client", "cluster", "column", "commit", "config", "confluent", "connect", "connection", "connector",
    "consumer", "convert", "converter", "create", "data", "database", "date", "debezium", "decimal", "default",
    "delete", "demo", "directory", "disabled", "double", "drop", "earliest", "enabled", "endpoint", "engine",
    "error", "errors", "event", "events", "exactly_once", "example", "fail", "failed", "false", "field", "file",
    "files", "filter", "float", "folder", "format", "from", "group", "guest", "hadoop", "hdfs", "header", "headers",
    "herd", "herdmesh", "host", "http", "https", "identity", "incrementing", "index", "initial", "insert", "int32",
    "int64", "internal", "java", "json", "kafka", "latest", "list", "local", "localhost", "login", "long", "lookup",
    "manager", "master", "message", "minio", "mirror", "mode", "mysql", "name", "names", "never", "none", "null",
    "number", "object", "offset", "offsets", "operator", "oracle", "owner", "parquet", "partition", "password",
    "path", "plain", "postgres", "postgresql", "primary", "private", "producer", "properties", "protobuf", "public",
    "python", "query", "read", "record", "records", "region", "registry", "required", "restart", "root", "rows",
    "running", "sasl", "schema", "schemas", "scram", "secret", "secrets", "security", "select", "server", "service",
    "session", "sink", "source", "spark", "stop", "storage", "string", "struct", "system", "table", "tables",
    "task", "tasks", "test", "text", "time", "timestamp", "token", "topic", "topics", "transforms", "true", "type",
    "unknown", "update", "upsert", "user", "username", "users", "value", "values", "vault", "view", "worker",
    "write", "yes",
))  # fmt: skip
"""Words of our own texts that are somebody's password too, or what a config provider gives for a setting."""
KEPT_MAX: Final = 20_000
#: `//user:password@` of a URL, up to the last @ before its path; not where a reference is the password.
_URL_PASSWORD = re.compile(r"(?<=//)([^\s/?#:@]*):(?!\$\{[^{}]*\}@)([^\s/?#]+)@")
#: `password=` among a URL's parameters, as databases' drivers take it, up to the next one; not where it is a reference.
_URL_PARAMETER = re.compile(r"([?&;]password=)(?!\$\{[^{}]*\}(?:[&;\s]|$))([^&;\s]+)", re.IGNORECASE)


def is_ordinary(value: str) -> bool:
    """Whether the value is in many texts that do not tell it, and so is hidden only where it stands as a value."""
    return len(value) < LENGTH_MIN or value.lower() in _ORDINARY or _is_short_number(value)


def _is_short_number(value: str) -> bool:
    return len(value) <= _NUMBER_LENGTH_MAX and value.isascii() and value.isdigit()


class Secrets:
    """Values and how to hide them. An old one is kept on, because a text about it may be on its way still: the last
    20,000, so that values that change all the time do not fill the memory."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[str, frozenset[str]] = OrderedDict()
        """By value, how it may stand in a text; nothing of those that are ordinary."""
        self._forms: tuple[str, ...] = ()
        self._ordinary: tuple[str, ...] = ()

    def keep(self, values: Iterable[str]) -> None:
        """From now on these are hidden."""
        with self._lock:
            new = False
            for value in values:
                if len(value) < (LENGTH_MIN if _is_short_number(value) else _SHORTEST):
                    continue
                new = new or value not in self._known
                if value not in self._known:
                    self._known[value] = frozenset() if is_ordinary(value) else _forms(value)
                self._known.move_to_end(value)
            while len(self._known) > KEPT_MAX:
                self._known.popitem(last=False)
            if new:
                self._forms = tuple(frozenset[str]().union(*self._known.values()))
                self._ordinary = tuple(value for value, forms in self._known.items() if not forms)

    def values(self) -> tuple[str, ...]:
        """All that is kept."""
        with self._lock:
            return tuple(self._known)

    def hidden_in(self, text: str, more: Secrets | None = None) -> str:
        """The text with `***` for each of them, and of `more`."""
        # many times faster than one pattern of all
        found = [form for form in chain(self._forms, more._forms if more else ()) if form in text]
        if found:
            text = re.sub(_any_of(found), HIDDEN, text)
        found = [value for value in chain(self._ordinary, more._ordinary if more else ()) if value in text]
        return _without_ordinary(text, found) if found else text


def _any_of(texts: Iterable[str]) -> str:
    return "|".join(map(re.escape, sorted(texts, key=len, reverse=True)))


def _without_ordinary(text: str, values: Sequence[str]) -> str:
    """The text with `***` for each of these where it stands as a value."""
    numbers = [value for value in values if _is_short_number(value)]
    if numbers:
        text = re.sub(rf"(?:(?<![0-9])|(?<=%[0-9A-Fa-f]{{2}}))(?:{_any_of(numbers)})(?![0-9])", HIDDEN, text)
    words = [value for value in values if not _is_short_number(value)]
    if not words:
        return text
    word = f"(?:{_any_of(words)})"
    # password=secret, "secret" (no member's name in JSON), user:secret@host; password: secret; the password secret;
    # a line of its own.
    pattern = re.compile(
        rf"""
        (?<=[=:"'`\[,&?;@|]){word}(?![\w/-]|\.\w)(?!\\?["'`]\s*:\s*(?:\\?["'\[{{0-9-]|true|false|null|None|True|False))
        | (?<=[=:]\ ){word}(?=[\])}}"'`,;&]|\.?\s*$)
        | (?P<before>\b(?i:pass(?:word|wd|phrase)?|pwd)\ (?:is\ |was\ )?){word}(?!\w)
        | (?P<margin>^[ \t]*){word}(?=[ \t]*$)
        """,
        re.VERBOSE | re.MULTILINE,
    )
    return pattern.sub(lambda found: f"{found['before'] or found['margin'] or ''}{HIDDEN}", text)


_secrets = Secrets()
_of_one_answer: ContextVar[Secrets | None] = ContextVar("secrets of one answer", default=None)


@contextmanager
def secrets_of_one_answer() -> Generator[None]:
    """What is kept by this thread in it is hidden in this thread's texts until its end, and nowhere else: nobody's
    question is to take words out of the texts of others, or drive out the secrets of what runs."""
    token = _of_one_answer.set(Secrets())
    try:
        yield
    finally:
        _of_one_answer.reset(token)


def keep_secret(values: Iterable[str]) -> None:
    """From now on this process hides them, or within `secrets_of_one_answer` that answer. Ordinary ones are only
    hidden where they stand as values (`is_ordinary`), single characters and numbers below 1,000 nowhere."""
    (_of_one_answer.get() or _secrets).keep(values)


def secrets_kept_for_this_answer() -> tuple[str, ...]:
    """What this thread kept within `secrets_of_one_answer`: for another process that is asked about the same."""
    found = _of_one_answer.get()
    return found.values() if found is not None else ()


def redacted(text: str) -> str:
    """The text with `***` for every secret in it."""
    return _secrets.hidden_in(text, _of_one_answer.get())


def url_passwords(text: str) -> frozenset[str]:
    """The passwords within the URLs of a text, as they are written and as they are meant (`%40` is an @): those of
    `//user:password@` and of a parameter `password=`."""
    found = {match[2] for pattern in (_URL_PASSWORD, _URL_PARAMETER) for match in pattern.finditer(text)}
    return frozenset(found | {unquote(one) for one in found})


def without_url_passwords(text: str) -> str:
    """The text with `***` for each of them, however short it is and whether it is kept or not."""
    return _URL_PARAMETER.sub(rf"\1{HIDDEN}", _URL_PASSWORD.sub(rf"\1:{HIDDEN}@", text))


def redacted_value(value: Any) -> Any:
    """A log line's value: texts in lists and dicts too; what is no text is judged by what it would be shown as."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return redacted(value)
    if isinstance(value, dict):
        return {key: redacted_value(one) for key, one in cast("dict[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [redacted_value(one) for one in cast("list[Any]", value)]
    shown = str(value)
    hidden = redacted(shown)
    return value if hidden == shown else hidden


class _Hiding:
    """A text stream that shows no secret, of what an author's code prints, or Python of a thread that died."""

    def __init__(self, to: TextIO) -> None:
        self._to = to

    def write(self, text: str, /) -> int:
        """Write it, redacted; the length of the text as given."""
        self._to.write(redacted(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._to, name)


def hide_in_output() -> None:
    """From now on standard output and standard error of this process show no secret."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if not isinstance(stream, _Hiding):
            setattr(sys, name, _Hiding(stream))


def _forms(value: str) -> frozenset[str]:
    """How a value may stand in a text: as it is, in quotes of JSON or Python, on one line, each of its long lines."""
    forms = {value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1], repr(value)[1:-1]}
    forms |= {" ".join(value.split()), value.strip()}
    if "\n" in value:
        forms |= {line.strip() for line in value.splitlines()}
    return frozenset(form for form in forms if len(form) >= LENGTH_MIN)
