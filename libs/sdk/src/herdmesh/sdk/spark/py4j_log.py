"""A log filter for Py4J: which of its lines reach the worker's log. Invariant: only log records written by Py4J's own
files are dropped; the errors that it raises still reach its caller."""

from __future__ import annotations

import logging
from pathlib import PurePath


def limit_py4j_log(level: int) -> None:
    """Drop Py4J's log records below `level`, and all that it writes to the root logger.

    `GatewayClient.send_command` logs a traceback there for each call that the end of the JVM interrupts, and raises the
    error as well. A signal to the process group, as service managers send it, ends the JVM before the worker."""
    logging.getLogger("py4j").setLevel(level)
    root = logging.getLogger()
    if _is_not_of_py4j not in root.filters:
        root.addFilter(_is_not_of_py4j)


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return PurePath(record.pathname).parent.name != "py4j"
