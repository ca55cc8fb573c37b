"""Who may still commit a row whose number is lower than one that is there already.

Owns the question for `mode=incrementing`. A serial or identity column is numbered when a row is inserted, and seen when
its transaction commits: 5 may come after 6, and a reader that has passed 6 would never see it.

An INSERT locks its table before it draws the number and until its transaction ends. So, once a highest number is
known: whoever holds such a lock then may have a lower one, and whoever does not draws a higher one (of a sequence with
CACHE 1, the default, by a column's own DEFAULT). When all those have ended, every number up to that one is decided.

Invariant: changes nothing and waits for nobody; it only asks.
"""

from __future__ import annotations

from collections.abc import Mapping

from herdmesh.worker.connectors.postgres.common import Connection, errors_translated

#: Of a partitioned table, those of its parts and of what it is a part of, too.
_WRITERS = """
SELECT l.virtualtransaction, max(l.pid) FROM pg_catalog.pg_locks l
WHERE l.locktype = 'relation' AND l.granted
  AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = current_database())
  AND l.mode IN ('RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
  AND l.relation IN (SELECT to_regclass(%(table)s)
                     UNION SELECT p.relid FROM pg_partition_tree(to_regclass(%(table)s)) p
                     UNION SELECT a.relid FROM pg_partition_ancestors(to_regclass(%(table)s)) a)
GROUP BY 1
"""
_PREPARED = "-1/"
"""What the name of a prepared transaction, which no process has any more, begins with."""

Writers = Mapping[str, int | None]
"""Transactions, with the process of each; None = it is prepared, and of none."""


def writers_of(connection: Connection, table: str) -> Writers:
    """Transactions that write to a table now. `table` as SQL names it."""
    with errors_translated(f"cannot see who writes to {table}"):
        return dict(connection.execute(_WRITERS, {"table": table}).fetchall())


def still_open(connection: Connection, table: str, writers: Writers) -> Writers:
    """Those of them that have not ended. One that was prepared since has another name: any prepared one counts."""
    if not writers:
        return {}
    now = writers_of(connection, table)
    return {one: process for one, process in now.items() if one in writers or one.startswith(_PREPARED)}
