"""Warnings about tables that a config names, or seems to
name, and that are not captured; logged when a run begins.

Owns two warnings: about names in `table.include.list` without a table that has
changes in the log, and about tables that inherit from a captured one: a query of the
captured table finds their rows, but the log has them under the children's names.

Invariant: changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from herdmesh.connectors.postgres.cdc.settings import CdcSettings, Choice
from herdmesh.connectors.postgres.connection import Connection

_log = logging.getLogger(__name__)
_OTHERS: Final = """
SELECT n.nspname, c.relname, CASE WHEN c.relkind IN ('r', 'p') AND c.relpersistence = 'u' THEN 'an unlogged table'
    WHEN c.relkind IN ('r', 'p') AND c.relpersistence = 't' THEN 'a temporary table' ELSE CASE c.relkind
    WHEN 'v' THEN 'a view' WHEN 'm' THEN 'a materialized view' WHEN 'f' THEN 'a foreign table' ELSE 'a table' END END
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') ORDER BY 1, 2
"""
_HEIRS: Final = """
WITH RECURSIVE below (root, oid) AS (
    SELECT i.inhparent, i.inhrelid FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
    WHERE NOT c.relispartition
    UNION SELECT b.root, i.inhrelid FROM below b JOIN pg_catalog.pg_inherits i ON i.inhparent = b.oid
)
SELECT rn.nspname, r.relname, n.nspname, c.relname FROM below b
JOIN pg_catalog.pg_class r ON r.oid = b.root JOIN pg_catalog.pg_namespace rn ON rn.oid = r.relnamespace
JOIN pg_catalog.pg_class c ON c.oid = b.oid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace ORDER BY 1, 2, 3, 4
"""


def warn_of_left_out(connection: Connection, settings: CdcSettings, captured: Sequence[tuple[str, str]]) -> None:
    """Log the warnings. `captured`: tables, by schema and name. Raises psycopg.Error of the server."""
    names = [f"{schema}.{table}" for schema, table in captured]
    include = settings.tables.tables.include
    if empty := [one for one in include if not any(map(Choice((one,)).has, names))]:
        others = [(f"{schema}.{table}", kind) for schema, table, kind in connection.execute(_OTHERS).fetchall()]
        said = "; ".join(_why(one, others) for one in empty)
        _log.warning(
            "table.include.list: nothing is captured of %s: name tables as schema.table that the publication %s has",
            said, settings.publication,
        )  # fmt: skip
    heirs = [
        (f"{schema}.{table}", f"{of_root}.{root}")
        for of_root, root, schema, table in connection.execute(_HEIRS).fetchall()
        if (of_root, root) in captured and (schema, table) not in captured
    ]
    if heirs:
        _log.warning(
            "rows of %s are not captured, though a query of the other table finds them: a change belongs to the table "
            "that has the row, so add that table to table.include.list too",
            ", ".join(f"{heir} (which inherits from {root})" for heir, root in heirs),
        )


def _why(pattern: str, others: Sequence[tuple[str, str]]) -> str:
    found = [f"{name}, {kind}" for name, kind in others if Choice((pattern,)).has(name)]
    return f"{pattern} ({', '.join(found)})" if found else f"{pattern} (there is no such table)"
