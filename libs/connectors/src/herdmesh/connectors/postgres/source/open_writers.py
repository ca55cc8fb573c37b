"""Open transactions that may still commit a row with a lower number than an existing row.

Owns the queries for `mode=incrementing`. A serial or identity column gets its number when a row is inserted, and the
row becomes visible when its transaction commits: 5 may come after 6, and a reader that has passed 6 would never see it.

An INSERT locks its table before it draws the number and until its transaction ends; a transaction that first draws a
number (`nextval`) locks its sequence in the same way. So, once a highest number is known: a transaction that holds such
a lock at that time may have a lower number, and one that does not draws a higher one. When all those have ended, every
number up to the highest is decided.

The server reports which tables are read: a running statement holds locks on all its relations, those under views, in
subqueries and in functions, and on partitions and children. Some relations hide their writers (`hidden`): a
materialized view shows the rows committed at its refresh, a foreign table is written elsewhere, with a sequence with
CACHE a session keeps numbers for later transactions, and a table filled by a subscription receives rows in the order in
which they were committed elsewhere.

Invariant: changes nothing and never waits for a lock.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import psycopg

from herdmesh.connectors.postgres.connection import Connection, errors_translated

_FIRST_OF_USERS = 16_384
"""Lower oids are the system's own relations."""
_READ = f"""
SELECT l.relation::int8, c.relkind::text, c.oid::pg_catalog.regclass::text,
    EXISTS (SELECT FROM pg_catalog.pg_subscription_rel s WHERE s.srrelid = c.oid)
FROM pg_catalog.pg_locks l JOIN pg_catalog.pg_class c ON c.oid = l.relation
WHERE l.pid = pg_catalog.pg_backend_pid() AND l.locktype = 'relation' AND c.oid >= {_FIRST_OF_USERS}
  AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = current_database())
  AND c.relkind IN ('r', 'p', 'v', 'm', 'f') ORDER BY 1
"""
_SEQUENCES = """
SELECT s.seqrelid::int8, s.seqrelid::pg_catalog.regclass::text, s.seqcache FROM pg_catalog.pg_sequence s
WHERE s.seqrelid IN (
    SELECT d.objid FROM pg_catalog.pg_depend d
    WHERE d.classid = 'pg_catalog.pg_class'::regclass AND d.refclassid = 'pg_catalog.pg_class'::regclass
        AND d.refobjid = ANY (%(oids)s::oid[]) AND d.deptype IN ('a', 'i')
    UNION SELECT d.refobjid FROM pg_catalog.pg_attrdef f
    JOIN pg_catalog.pg_depend d ON d.classid = 'pg_catalog.pg_attrdef'::regclass AND d.objid = f.oid
    WHERE f.adrelid = ANY (%(oids)s::oid[]) AND d.refclassid = 'pg_catalog.pg_class'::regclass
) ORDER BY 1
"""
"""Sequences that number rows of a table: its own, and those of its column defaults."""
#: An insert through a partitioned table draws the number before the partition is found, so the parents' locks count.
_WRITERS = """
SELECT l.virtualtransaction, max(l.pid) FROM pg_catalog.pg_locks l
WHERE l.locktype = 'relation' AND l.granted
  AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = current_database())
  AND l.mode IN ('RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
  AND l.relation IN (SELECT r.oid FROM unnest(%(oids)s::oid[]) r (oid)
                     UNION SELECT a.relid FROM unnest(%(oids)s::oid[]) r (oid), pg_partition_ancestors(r.oid) a)
GROUP BY 1
"""
_PREPARED = "-1/"
"""Prefix of the name of a prepared transaction, which has no process any more."""
_HIDDEN = {"m": "materialized view", "f": "foreign table"}

Writers = Mapping[str, int | None]
"""Transactions, with the process of each; None = prepared, without a process."""


@dataclass(frozen=True, slots=True)
class Read:
    """The relations that a table, a view or a query reads, and the sequences that number their rows."""

    oids: Sequence[int]
    hidden: Sequence[str]
    """Relations and sequences with invisible writers, as named in messages."""


def highest_and_read(connection: Connection, highest: str, source: str, label: str) -> tuple[int, Read] | None:
    """Return the highest new number, from the query `highest`, and the relations read by a
    SELECT from `source`, a text for FROM; None = there is no new number. Raises
    RetriableError when the server is unreachable, ConfigError when it refuses a statement.
    """
    with errors_translated(f"cannot read {label}"):
        try:
            cursor = connection.execute(f"BEGIN READ ONLY; {highest}".encode(), prepare=False)
            cursor.nextset()
            row = cursor.fetchone()
            if row is None or row[0] is None:
                return None
            # A function's relations are in the first statement's locks, because it ran there; relations that the plan
            # leaves out, in the second's.
            connection.execute(f"SELECT FROM {source} AS herdmesh_read LIMIT 0".encode(), prepare=False)
            relations = connection.execute(_READ.encode()).fetchall()
            oids = [oid for oid, *_ in relations]
            sequences = connection.execute(_SEQUENCES, {"oids": oids}).fetchall()
        finally:
            with contextlib.suppress(psycopg.Error):
                connection.execute("ROLLBACK")
    hidden = [f"{_HIDDEN[kind]} {name}" for _, kind, name, _ in relations if kind in _HIDDEN]
    hidden += [f"table {name}, which a subscription fills" for _, _, name, is_copy in relations if is_copy]
    hidden += [f"numbers of sequence {name}, which has CACHE {cache}" for _, name, cache in sequences if cache > 1]
    return row[0], Read([*oids, *(oid for oid, _, _ in sequences)], hidden)


def writers_of(connection: Connection, read: Read) -> Writers:
    """Return the transactions that write to one of these relations now."""
    with errors_translated("cannot list the open transactions that write to the tables"):
        return dict(connection.execute(_WRITERS, {"oids": read.oids}).fetchall())


def still_open(connection: Connection, read: Read, writers: Writers) -> Writers:
    """Return those of the writers that have not ended. A transaction that
    was prepared since has another name, so all prepared ones count.
    """
    if not writers:
        return {}
    now = writers_of(connection, read)
    return {one: process for one, process in now.items() if one in writers or one.startswith(_PREPARED)}
