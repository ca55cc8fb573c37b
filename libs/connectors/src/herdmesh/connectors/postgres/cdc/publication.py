"""Publication of a CDC source: creating and completing
it, and checking that it sends the captured tables.

Owns its statements and the errors when they are not possible. The choice of tables: `partition_trees`; the captured
tables that result: `catalog.published`.

Invariant: an existing publication is used or refused. It is changed only by adding tables, and only with
publication.autocreate.mode=filtered.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence
from typing import Any, assert_never, cast

from herdmesh.connectors.postgres.cdc.catalog import Published, published
from herdmesh.connectors.postgres.cdc.partition_trees import Relation, Trees, Wanted
from herdmesh.connectors.postgres.cdc.settings import AUTOCREATE, PUBLICATION, VIA_ROOT, Autocreate, CdcSettings
from herdmesh.connectors.postgres.cdc.tables import check_topics
from herdmesh.connectors.postgres.cdc.uncaptured_tables import warn_of_left_out
from herdmesh.connectors.postgres.connection import Connection, errors_translated, quoted
from herdmesh.sdk import ConfigError

_log = logging.getLogger(__name__)
_TABLES_FIELD = "table.include.list"
_RELATIONS = """
SELECT c.oid::int8, n.nspname, c.relname, c.relkind::text, (SELECT i.inhparent::int8 FROM pg_inherits i
    WHERE i.inhrelid = c.oid AND c.relispartition)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p' ORDER BY 2, 3"""
_PUBLICATION = """
SELECT puballtables, pubviaroot, array_remove(ARRAY[CASE WHEN NOT pubinsert THEN 'c' END,
    CASE WHEN NOT pubupdate THEN 'u' END, CASE WHEN NOT pubdelete THEN 'd' END,
    CASE WHEN NOT pubtruncate THEN 't' END], NULL)
FROM pg_publication WHERE pubname = %s"""
_WORDS = {"c": "insert", "u": "update", "d": "delete", "t": "truncate"}
_MEMBERS = """
SELECT r.prrelid::int8 FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid WHERE p.pubname = %(name)s
UNION SELECT c.oid::int8 FROM pg_publication_tables t JOIN pg_namespace n ON n.nspname = t.schemaname
JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = t.tablename WHERE t.pubname = %(name)s"""


def prepare_publication(connection: Connection, settings: CdcSettings) -> None:
    """Create the publication if it is missing, or complete it, according to the config.

    Raises ConfigError when there is none and none can be created, when it has no captured table, or when it sends a
    partitioned table under another name than the config has.
    """
    name = settings.publication
    with errors_translated(f"publication {name} cannot be created", field=AUTOCREATE):
        trees = Trees(Relation(*row) for row in _rows(connection, _RELATIONS))
        wanted = trees.wanted(settings.tables.has, via_root=settings.via_root)
        found = _rows(connection, _PUBLICATION, name)
        if not found:
            _make(connection, settings, wanted)
            found = _rows(connection, _PUBLICATION, name)
        of_all, via_root, left_out = found[0] if found else (False, False, ())
        _check_option(settings, wanted, via_root=via_root)
        if found and settings.autocreate is Autocreate.FILTERED and not of_all:
            _add(connection, name, wanted, via_root=via_root)
    tables = published(connection, settings)
    check_topics(((one.schema, one.name) for one in tables), settings)
    _check_names(connection, settings, trees, wanted, {one.oid for one in tables})
    if not tables and not of_all:  # a captured table may be created later
        raise ConfigError(
            f"publication {name} has no table that the config captures",
            field=_TABLES_FIELD,
            fix="name tables as schema.table that exist, or leave out the lists",
        )
    _warn_of_identities(tables)
    _warn_of_operations(settings, left_out)
    with errors_translated("the uncaptured tables cannot be listed", field=_TABLES_FIELD):
        warn_of_left_out(connection, settings, [(one.schema, one.name) for one in tables])


def _make(connection: Connection, settings: CdcSettings, wanted: Wanted) -> None:
    """Create the publication, unless the config forbids it, or there are no tables for it."""
    name = settings.publication
    via_root = settings.via_root or bool(wanted.roots)
    option = " WITH (publish_via_partition_root = true)" if via_root else ""
    members = wanted.members(via_root=via_root)
    match settings.autocreate:
        case Autocreate.DISABLED:
            raise ConfigError(
                f"{PUBLICATION}: there is no publication {name} in {settings.connection.place}",
                field=PUBLICATION,
                fix=f"CREATE PUBLICATION {quoted(name)} FOR TABLE ...{option}, or write {AUTOCREATE}=filtered",
            )
        case Autocreate.ALL_TABLES:
            if not _rows(connection, "SELECT rolsuper FROM pg_roles WHERE rolname = current_user")[0][0]:
                raise ConfigError(
                    f"{AUTOCREATE}: only a superuser can create a publication of all tables",
                    field=AUTOCREATE,
                    fix=f"write filtered, or have a superuser run: CREATE PUBLICATION {quoted(name)} FOR ALL TABLES"
                    f"{option}",
                )
            _run(connection, f"CREATE PUBLICATION {quoted(name)} FOR ALL TABLES{option}")
            _log.info("created publication %s of all tables%s", name, option)
        case Autocreate.FILTERED if members:
            tables = _sql(members)
            _run(connection, f"CREATE PUBLICATION {quoted(name)} FOR TABLE {tables}{option}")
            _log.info("created publication %s of %s%s", name, tables, option)
        case Autocreate.FILTERED:
            pass
        case _:
            assert_never(settings.autocreate)


def _add(connection: Connection, name: str, wanted: Wanted, *, via_root: bool) -> None:
    there = {oid for (oid,) in connection.execute(_MEMBERS, {"name": name}).fetchall()}
    if missing := [one for one in wanted.members(via_root=via_root) if one.oid not in there]:
        tables = _sql(missing)
        _run(connection, f"ALTER PUBLICATION {quoted(name)} ADD TABLE {tables}")
        _log.warning(
            "publication %s: added %s; earlier changes of these tables are captured only by a snapshot in this run; "
            "if none is due, reset the connector's offsets to take one", name, tables,
        )  # fmt: skip


def _check_option(settings: CdcSettings, wanted: Wanted, *, via_root: bool) -> None:
    """Check that an existing publication sends partitioned tables as the config requires."""
    if settings.via_root and not via_root:
        name = settings.publication
        raise ConfigError(
            f"{VIA_ROOT}: publication {name} exists and sends partitioned tables under their partitions' names",
            field=VIA_ROOT,
            fix=_option_fix(name),
        )
    if wanted.roots and not via_root and settings.autocreate is Autocreate.FILTERED:
        raise _not_sent(settings, wanted.roots[0])


def _check_names(
    connection: Connection, settings: CdcSettings, trees: Trees, wanted: Wanted, captured: Collection[int]
) -> None:
    """Check that no partitioned table is sent under a name that
    the config does not capture while it captures another.
    """
    members = {oid for (oid,) in connection.execute(_MEMBERS, {"name": settings.publication}).fetchall()}
    for root in wanted.roots:
        if root.oid not in captured and any(leaf.oid in members for leaf in trees.leaves(root)):
            raise _not_sent(settings, root)
    for leaf in [*wanted.tables, *(leaf for _, leaves in wanted.wholes for leaf in leaves)]:
        above = [one for one in trees.ancestors(leaf) if one.oid in members]
        if above and leaf.oid not in captured and not any(one.oid in captured for one in above):
            raise ConfigError(
                f"publication {settings.publication} sends rows of {leaf} as rows of {above[-1]}, which is "
                f"partitioned, and {_TABLES_FIELD} does not name that",
                field=_TABLES_FIELD,
                fix=f"name {above[-1]} there, or ALTER PUBLICATION {quoted(settings.publication)} "
                "SET (publish_via_partition_root = false)",
            )


def _not_sent(settings: CdcSettings, root: Relation) -> ConfigError:
    return ConfigError(
        f"{root} is partitioned, and publication {settings.publication} sends its rows under the names of its "
        f"partitions, which {_TABLES_FIELD} does not name",
        field=_TABLES_FIELD,
        fix=f"name the partitions, too, or {_option_fix(settings.publication)}",
    )


def _option_fix(name: str) -> str:
    return f"ALTER PUBLICATION {quoted(name)} SET (publish_via_partition_root = true)"


def _warn_of_identities(tables: Iterable[Published]) -> None:
    bare = [one.sql for one in tables if one.replica_identity == "n" or
            (one.replica_identity == "d" and not one.has_primary_key)]  # fmt: skip
    if bare:
        _log.warning(
            "tables without a replica identity: %s; as long as they are published PostgreSQL refuses every UPDATE and "
            "DELETE of them, from anybody: add a primary key, or ALTER TABLE ... REPLICA IDENTITY FULL",
            ", ".join(bare),
        )


def _warn_of_operations(settings: CdcSettings, left_out: Sequence[str]) -> None:
    if silent := [_WORDS[one] for one in left_out if one not in settings.skipped]:
        _log.warning(
            "publication %s does not send %s, so these are not captured: ALTER PUBLICATION ... SET (publish = 'insert, "
            "update, delete, truncate'), or name them in skipped.operations", settings.publication, ", ".join(silent),
        )  # fmt: skip


def _sql(relations: Sequence[Relation]) -> str:
    return ", ".join(quoted(one.schema, one.name) for one in relations)


def _rows(connection: Connection, question: str, *values: Any) -> list[tuple[Any, ...]]:
    # The statements are constants with quoted names, which psycopg's type for literals cannot verify.
    return connection.execute(cast(Any, question), values or None).fetchall()


def _run(connection: Connection, command: str) -> None:
    connection.execute(cast(Any, command))
