"""Meaning of PostgreSQL's errors by SQLSTATE: the one table for all connectors and all their statements.

Owns the meanings. Connect's error for a meaning, and its key: `connection.translated`; finding the records of a batch
that caused an error: `sink.task`. Codes: PostgreSQL's documentation, appendix A.

    subject                                      a sink's write to its table     any other statement
    the connection, the server, a lost race      PASSES                          PASSES
    rights, names, syntax, unsupported           CONFIG, or RECORD of a value    CONFIG
    data, constraints, triggers, limits          RECORD                          OTHER
    the server's inner state                     OTHER, or RECORD of a value     OTHER

Some types parse their values with the codes of syntax and names (ltree, tsquery, jsonpath, regclass) or with that of an
inner error (PostGIS). If the server names the column of a COPY, the value in it is the cause, whatever the code.

Invariant: an error is attributed to a record only if a write to the user's table raised it.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import Final

import psycopg


class Meaning(Enum):
    """Meaning of an error: the reaction to it."""

    PASSES = auto()
    """Retry: the error is transient."""
    CONFIG = auto()
    """Another config, a grant or another table is needed."""
    RECORD = auto()
    """The record is refused, other records are not."""
    OTHER = auto()
    """None of these: an operator must investigate."""


_PASSING: Final = (
    "08",  # connection
    "25006", "25P03", "25P04",  # read only (a standby), session time limits
    "40001", "40003", "40P01",  # serialization, unknown completion, deadlock
    "53",  # memory, disk, connections
    "55006", "55P03", "55P04",  # in use, locked, a label of an enumeration that is not committed yet
    "57",  # the operator: cancelled, shut down, restarted, cannot connect now
    "58000", "58030",  # the system, its disk
    "72000",  # a snapshot that is too old
)  # fmt: skip
_CONFIG: Final = (
    "0A",  # not supported by the server
    "22023",  # a setting's value
    "28",  # login
    "3D", "3F",  # missing databases and schemas
    "42",  # rights, syntax, names
    "55000",  # a view that accepts no rows
)  # fmt: skip
_OF_RECORDS: Final = (
    "09", "27",  # an action of a trigger
    "21",  # two rows for one
    "22", "23",  # data, constraints
    "2F", "38", "39",  # functions
    "40002",  # a constraint at the end of the transaction
    "428C9",  # a column that accepts no values
    "44",  # a view's check
    "54",  # an index, a row or a nesting that is too large
    "P0",  # raised by a trigger
)  # fmt: skip
_STANDARD_CLASS: Final = re.compile(r"[0-4A-H]")
"""First characters of classes that the standard reserves; all other classes, except these of
PostgreSQL, are a user's.
"""
_OWN_CLASSES: Final = ("53", "54", "55", "57", "58", "72", "F0", "HV", "P0", "XX")
_WITH_CHECK: Final = "ExecWithCheckOptions"
"""The server's function that reports a row that violates a policy, with the code of a missing right."""
_OF_A_VALUE: Final = re.compile(r"COPY .+, [^,:]*\d[^,:]*, ")
"""Start of the context of an error about a column of a COPY line; it does not depend on the language."""


def meaning_of(error: psycopg.Error, *, writes: bool = False) -> Meaning:
    """Return the meaning of an error.

    Args:
        writes: a statement that writes records into their table raised it.
    """
    state = error.sqlstate or ""
    if not state:  # libpq's own error: the connection broke. Errors of wrong use of psycopg have no state either.
        return Meaning.PASSES if isinstance(error, psycopg.OperationalError) else Meaning.OTHER
    if state.startswith(_PASSING):
        return Meaning.PASSES
    if writes and (state.startswith(_OF_RECORDS) or _is_users(state) or _is_of_a_row(error)):
        return Meaning.RECORD
    return Meaning.CONFIG if state.startswith(_CONFIG) else Meaning.OTHER


def _is_users(state: str) -> bool:
    """Return whether only a user's function raises this code."""
    return not _STANDARD_CLASS.match(state) and not state.startswith(_OWN_CLASSES)


def _is_of_a_row(error: psycopg.Error) -> bool:
    return error.diag.source_function == _WITH_CHECK or _OF_A_VALUE.match(error.diag.context or "") is not None
