"""The key `file` of Kafka's file connectors, and the Connect version that they follow
(docs/reference/connect/data-model.md, section 8).

Owns the errors about a missing or unusable file. Standard input and
output are not supported: a task runs in whatever process Spark gives it.
"""

from __future__ import annotations

from herdmesh.sdk import Config, ConfigError

VERSION = "4.3.1"
"""The Connect version whose behaviour the two connectors have."""


def require_file(config: Config, doing: str) -> str:
    problems = missing_file(config, doing)
    if problems:
        raise problems[0]
    return (config.get("file") or "").strip()


def missing_file(config: Config, doing: str) -> list[ConfigError]:
    if (config.get("file") or "").strip():
        return []
    message = f'Missing configuration "file": a worker has no standard stream to {doing}'
    return [ConfigError(message, field="file", fix="name a file")]


def absent_file(path: str, error: OSError) -> tuple[str, str]:
    """Return the wait of a source whose file cannot be read, and the reason."""
    why = "it does not exist" if isinstance(error, FileNotFoundError) else f"it cannot be read: {error.strerror}"
    return f"file {path}", f"{why} on this worker; the task reads it as soon as it exists (file)"
