"""Redaction of secrets: every secret that the process knows is removed from texts that leave it.

Owns the secrets of this process, their replacement, and the detection of passwords in URLs. Every text for the outside
passes through `redacted`: failures, traces, log lines, replies, printed output. The sources of secrets are elsewhere
(`config_providers`, values of type PASSWORD in `config_def`, a run's order).

A secret that is an ordinary word (`secret`, `postgres`, `true` from a config provider) or has two or three characters
occurs in many texts that do not disclose it. It is hidden where it is a value (`password=secret`, `"secret"`,
`user:secret@`, `password secret`), and the same word in a sentence stays. A short number is hidden where no other digit
touches it.

Invariant: once `keep_secret` has returned, no text that passed through `redacted` contains the secret, apart from such
a word in a sentence. A secret of `secrets_of_one_answer` is hidden in texts of the same thread, until that block ends.
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
"""Minimum length of a secret that is hidden everywhere: shorter values occur within the words of every text."""
_SHORTEST: Final = 2
_NUMBER_LENGTH_MAX: Final = 8
_ORDINARY: Final = frozenset((
    "access", "account", "additional", "address", "admin", "administrator", "advertised", "after", "again",
    "algorithm", "alias", "aliases", "allow", "alone", "already", "alter", "always", "anew", "another", "answer",
    "apache", "application", "applied", "apply", "array", "ascii", "asked", "asks", "attempts", "audit", "auth",
    "authentication", "authorization", "auto", "avro", "away", "azure", "back", "backoff", "base", "base64",
    "basic", "batch", "bearer", "because", "before", "begin", "begins", "begun", "behavior", "behind", "below",
    "beside", "between", "bold", "bool", "boolean", "bootstrap", "both", "boundary", "broker", "brokers", "bucket",
    "buffer", "built", "byte", "bytes", "cache", "cannot", "case", "cast", "catalog", "certificate", "certificates",
    "chain", "change", "changed", "changeit", "changeme", "changes", "character", "characters", "check",
    "checkpoint", "class", "cleanup", "client", "clients", "closed", "cluster", "code", "column", "columns",
    "comma", "commit", "commits", "committed", "common", "compatible", "compression", "condition", "conditions",
    "config", "configs", "configuration", "confluent", "connect", "connection", "connector", "connectors",
    "consumer", "contains", "content", "context", "control", "convert", "converter", "converters", "correct",
    "could", "count", "create", "created", "creation", "credential", "credentials", "current", "data", "database",
    "datagen", "date", "dead", "deadletterqueue", "debezium", "decimal", "default", "delay", "delete", "deleted",
    "demo", "describe", "dict", "digits", "directory", "disabled", "does", "done", "double", "driver", "drop",
    "dropped", "duration", "each", "earlier", "earliest", "effect", "else", "elsewhere", "empty", "enable",
    "enabled", "encoding", "ended", "endpoint", "ends", "engine", "entry", "enum", "envelope", "epoch", "error",
    "errors", "escape", "event", "events", "every", "exactly", "exactly_once", "example", "exception", "exclude",
    "exist", "exit", "expected", "extract", "factor", "fail", "failed", "failure", "false", "fetch", "field",
    "fields", "file", "filename", "files", "filter", "find", "first", "fixed", "float", "flush", "folder",
    "forgotten", "format", "formats", "found", "from", "generation", "give", "given", "gives", "goes", "gone",
    "google", "green", "group", "groups", "grpc", "guest", "gzip", "hadoop", "handler", "handling", "have", "hdfs",
    "header", "headers", "heartbeat", "heartbeats", "herd", "herder", "herdmesh", "here", "hmac", "holds", "host",
    "http", "https", "identity", "idle", "ignore", "illegal", "include", "incrementing", "index", "infinity",
    "info", "initial", "input", "insert", "install", "instead", "int32", "int64", "integer", "inter", "internal",
    "interval", "into", "invalid", "isolation", "items", "iteration", "itself", "jaas", "jars", "java", "jdbc",
    "json", "kafka", "keep", "keeps", "kept", "keys", "keystore", "kill", "kind", "known", "lang", "last", "later",
    "latest", "leader", "leads", "lease", "least", "leave", "leaves", "ledger", "left", "length", "letter",
    "letters", "level", "librdkafka", "limit", "line", "list", "listeners", "lists", "local", "localhost",
    "location", "logger", "logical", "login", "long", "longer", "look", "looked", "lookup", "lost", "lower", "made",
    "main", "make", "makes", "manager", "many", "mapping", "master", "match", "maximum", "mean", "memory", "mend",
    "message", "messages", "meta", "metadata", "method", "metric", "metrics", "micro", "milliseconds", "minio",
    "mirror", "missing", "mode", "module", "moment", "more", "most", "move", "must", "mysql", "name", "named",
    "names", "namespace", "need", "needs", "neither", "never", "newer", "next", "nobody", "none", "nothing", "null",
    "number", "numeric", "oauth", "oauthbearer", "object", "objects", "offset", "offsets", "once", "only", "open",
    "operation", "operator", "optional", "options", "oracle", "order", "other", "outbox", "output", "over",
    "override", "owner", "parameters", "parquet", "part", "partition", "partitioner", "partitions", "password",
    "path", "pattern", "payload", "place", "plain", "plugin", "plugins", "policy", "poll", "port", "position",
    "postgre", "postgres", "postgresql", "precision", "predicate", "predicates", "prefix", "primary", "private",
    "process", "producer", "progress", "properties", "property", "proto", "protobuf", "protocol", "provider",
    "providers", "proxy", "public", "publication", "publish", "python", "query", "queue", "queued", "raise",
    "range", "rate", "read", "reader", "reads", "reason", "rebalance", "reconnect", "record", "records", "recovery",
    "reference", "refused", "regex", "region", "registry", "rename", "repeat", "replace", "replacement", "replayed",
    "replica", "replicas", "replication", "request", "requests", "required", "reset", "rest", "restart",
    "restarted", "restarts", "result", "retries", "retry", "return", "returned", "revision", "role", "root",
    "route", "router", "rows", "running", "runs", "same", "sasl", "says", "scale", "schema", "schemas", "scope",
    "scram", "second", "seconds", "secret", "secrets", "security", "select", "send", "sends", "sent", "separated",
    "sequence", "server", "servers", "service", "session", "setting", "settings", "share", "should", "shows",
    "simple", "since", "sink", "size", "slot", "slots", "snapshot", "socket", "some", "something", "source",
    "spark", "spec", "specified", "stage", "stand", "stands", "start", "started", "starting", "starts", "state",
    "static", "status", "stays", "still", "stop", "stopped", "stops", "storage", "store", "stored", "strategy",
    "stream", "string", "struct", "subject", "such", "suffix", "support", "supported", "surrogatepass", "symbols",
    "sync", "syncs", "system", "table", "tables", "take", "taken", "takes", "target", "task", "tasks", "test",
    "text", "texts", "than", "that", "their", "them", "then", "there", "these", "they", "this", "those", "time",
    "timeout", "times", "timestamp", "timestamps", "token", "told", "tolerance", "tombstone", "topic", "topics",
    "total", "trace", "tracing", "transaction", "transactional", "transactions", "transformation",
    "transformations", "transforms", "tried", "true", "truststore", "type", "types", "uncommitted", "under",
    "union", "units", "unix", "unknown", "unsupported", "until", "update", "upsert", "used", "user", "username",
    "users", "util", "valid", "validate", "value", "values", "vault", "version", "versions", "view", "wait",
    "waiting", "waits", "warnings", "watch", "were", "what", "when", "where", "whether", "which", "while",
    "whitelist", "whole", "whose", "will", "with", "within", "without", "work", "worker", "workers", "would",
    "write", "writer", "writes", "written", "yellow", "zone",
))  # fmt: skip
"""Words of four letters and more that occur in a dozen or more of Herdmesh's own texts, and words that are often a
password, or that a config provider gives for a setting.
"""
KEPT_MAX: Final = 20_000
#: `//user:password@` of a URL, up to the last @ before its path; no match where the password is a reference.
_URL_PASSWORD = re.compile(r"(?<=//)([^\s/?#:@]*):(?!\$\{[^{}]*\}@)([^\s/?#]+)@")
#: `password=` among a URL's parameters, as database drivers read it, up to the next parameter; no match where the value
#: is a reference.
_URL_PARAMETER = re.compile(r"([?&;]password=)(?!\$\{[^{}]*\}(?:[&;\s]|$))([^&;\s]+)", re.IGNORECASE)


def is_ordinary(value: str) -> bool:
    """True for a value that occurs in many texts that do not disclose it: it is hidden only where it is a value."""
    return len(value) < LENGTH_MIN or value.lower() in _ORDINARY or _is_short_number(value)


def _is_short_number(value: str) -> bool:
    return len(value) <= _NUMBER_LENGTH_MAX and value.isascii() and value.isdigit()


class Secrets:
    """Secrets to hide. An older secret stays, because a text with it may still be on its way. Only the last 20,000 are
    kept, so that values that change all the time do not fill the memory.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[str, frozenset[str]] = OrderedDict()
        """Each secret's possible forms in a text; no form for ordinary values."""
        self._forms: tuple[str, ...] = ()
        self._ordinary: tuple[str, ...] = ()

    def keep(self, values: Iterable[str]) -> None:
        """Add secrets to hide."""
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

    def forget(self) -> None:
        """Hide nothing any more."""
        with self._lock:
            self._known.clear()
            self._forms = self._ordinary = ()

    def values(self) -> tuple[str, ...]:
        """All secrets."""
        with self._lock:
            return tuple(self._known)

    def hidden_in(self, text: str, more: Secrets | None = None) -> str:
        """The text with `***` in place of each of these secrets and those of `more`."""
        # Many times faster than one regular expression of all forms.
        found = [form for form in chain(self._forms, more._forms if more else ()) if form in text]
        if found:
            text = re.sub(_any_of(found), HIDDEN, text)
        found = [value for value in chain(self._ordinary, more._ordinary if more else ()) if value in text]
        return _without_ordinary(text, found) if found else text


def _any_of(texts: Iterable[str]) -> str:
    return "|".join(map(re.escape, sorted(texts, key=len, reverse=True)))


def _without_ordinary(text: str, values: Sequence[str]) -> str:
    """The text with `***` in place of each of these values where it is a value."""
    numbers = [value for value in values if _is_short_number(value)]
    if numbers:
        text = re.sub(rf"(?:(?<![0-9])|(?<=%[0-9A-Fa-f]{{2}}))(?:{_any_of(numbers)})(?![0-9])", HIDDEN, text)
    words = [value for value in values if not _is_short_number(value)]
    if not words:
        return text
    word = f"(?:{_any_of(words)})"
    # In order: password=secret, "secret" (not as the name of a JSON member), user:secret@host; password: secret; the
    # password secret; alone on its line.
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
    """Hide secrets that this thread keeps inside the block in this thread's texts until the block ends, and nowhere
    else: no caller may remove words from the texts of others, or evict the secrets of running tasks.
    """
    token = _of_one_answer.set(Secrets())
    try:
        yield
    finally:
        _of_one_answer.reset(token)


def keep_secret(values: Iterable[str]) -> None:
    """Add secrets that this process hides from now on, or within `secrets_of_one_answer` those that this answer hides.
    Ordinary values are hidden only where they are values (`is_ordinary`); single characters and numbers below 1,000
    are never hidden.
    """
    (_of_one_answer.get() or _secrets).keep(values)


def forget_secrets() -> None:
    """Hide no secret in this process any more until it keeps new ones: for a process whose next run has others, in
    whose texts these may be ordinary words.
    """
    _secrets.forget()


def secrets_kept_for_this_answer() -> tuple[str, ...]:
    """The secrets that this thread kept within `secrets_of_one_answer`, for another process that serves the same
    call."""
    found = _of_one_answer.get()
    return found.values() if found is not None else ()


def redacted(text: str) -> str:
    """The text with `***` in place of every secret."""
    return _secrets.hidden_in(text, _of_one_answer.get())


def url_passwords(text: str) -> frozenset[str]:
    """The passwords within the URLs of a text, both as written and decoded (`%40` is an @): those of `//user:password@`
    and of a parameter `password=`.
    """
    found = {match[2] for pattern in (_URL_PASSWORD, _URL_PARAMETER) for match in pattern.finditer(text)}
    return frozenset(found | {unquote(one) for one in found})


def without_url_passwords(text: str) -> str:
    """The text with `***` in place of each password in a URL, however short it is, whether or not it is a known
    secret."""
    return _URL_PARAMETER.sub(rf"\1{HIDDEN}", _URL_PASSWORD.sub(rf"\1:{HIDDEN}@", text))


def redacted_value(value: Any) -> Any:
    """A log line's value without secrets: in texts, also those in lists and dicts, and in other values by their
    `str`."""
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
    """Text stream that redacts secrets, for output of an author's code, and for Python's message about a thread that
    died.
    """

    def __init__(self, to: TextIO) -> None:
        self._to = to

    def write(self, text: str, /) -> int:
        """Write the redacted text; returns the length of the original text."""
        self._to.write(redacted(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._to, name)


def hide_in_output() -> None:
    """Redact standard output and standard error of this process from now on."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if not isinstance(stream, _Hiding):
            setattr(sys, name, _Hiding(stream))


def _forms(value: str) -> frozenset[str]:
    """Possible forms of a value in a text: as it is, quoted in JSON or Python, on one line, and each of its long
    lines."""
    forms = {value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1], repr(value)[1:-1]}
    forms |= {" ".join(value.split()), value.strip()}
    if "\n" in value:
        forms |= {line.strip() for line in value.splitlines()}
    return frozenset(form for form in forms if len(form) >= LENGTH_MIN)
