"""Tables of a sink: their columns, creating and altering them, and the statements for each shape of rows.

Owns the cache of tables within one session, and the temporary staging tables for merges. Which rows: `rows`; types of
created columns: `types`.

    insert    COPY into the table (through a staging table where PostgreSQL does not copy: views, row security)
    upsert    COPY into a staging table, INSERT ... SELECT ... ON CONFLICT DO UPDATE; or, where no key exists yet, COPY
              into the table (`direct_copy`)
    update    COPY into a staging table, UPDATE ... FROM
    delete    COPY of keys into a staging table, DELETE ... USING

Invariant: a user's table is changed only by adding columns, and only with `auto.evolve`; nothing is dropped.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import tzinfo

from psycopg import errors

from herdmesh.connect.topics import why_no_topic
from herdmesh.connectors.postgres.connection import Connection, literal, make_missing, quoted
from herdmesh.connectors.postgres.names import why_no_name
from herdmesh.connectors.postgres.sink.debezium_texts import writer
from herdmesh.connectors.postgres.sink.key_identity import KeyColumn, Keys, without_nulls
from herdmesh.connectors.postgres.sink.rows import RecordColumn, Shape
from herdmesh.connectors.postgres.sink.settings import (
    AUTO_CREATE,
    AUTO_EVOLVE,
    QUOTE,
    TABLE_NAME_FORMAT,
    InsertMode,
    SinkSettings,
    TableName,
)
from herdmesh.connectors.postgres.sink.table_catalog import Table, TableColumn, called_alike, looked_up
from herdmesh.connectors.postgres.sink.texts import Takes, TextForm, Texts, lines, texts
from herdmesh.connectors.postgres.types import sql_type
from herdmesh.sdk import ConfigError, DataError, RetriableError, Schema

STAGES_MAX = 50
SHAPES_MAX = 1_000
"""Maximum per session: records without schemas may have new columns all the time."""
_FLOATS = ("float4", "float8", "_float4", "_float8")
_TAKES = {
    **dict.fromkeys(("int2", "int4", "int8", "oid"), Takes.INTEGERS),
    **dict.fromkeys(("date", "time", "timestamp", "interval"), Takes.TIMES),
    **dict.fromkeys(("timetz", "timestamptz"), Takes.ZONED_TIMES),
    "bytea": Takes.BYTES,
}
"""By a type's name in `KeyType`."""
_SYSTEM_COLUMNS = ("tableoid", "xmin", "cmin", "xmax", "cmax", "ctid")
_SORTED_AT_ONCE = ("smallint", "integer", "bigint", "uuid")
"""Types that are compared without a collation, in one or two machine words."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Statements:
    """Statements that write rows of one shape to one table."""

    forms: tuple[TextForm, ...]
    """Form of each column's values."""
    copy: str = ""
    """Empty: there is nothing to write."""
    merge: str = ""
    """From the stage to the table; empty = `copy` writes to the table."""
    clear: str = ""
    """Empties the stage; a commit does it, too."""
    straight: str = ""
    """A COPY of the same rows to the table, with the result of `copy` and `merge` if it succeeds after `proof` in the
    same transaction; empty = not possible.
    """
    proof: str = ""
    """The merge of no row."""
    absent: str = ""
    """Query for the number of staged rows that the table lacks, if all must exist; empty = they need not."""
    keys: tuple[KeyColumn, ...] = ()
    """The shape's key columns; empty if there is no table."""
    is_strict: bool = False
    """`is_strict` of the table."""


class Tables:
    """The tables of one session. In a transaction only cached results may be requested."""

    def __init__(self, connection: Connection, settings: SinkSettings) -> None:
        self._connection = connection
        self._settings = settings
        self._tables: dict[str, Table] = {}
        self._statements: dict[tuple[str, Shape], Statements] = {}
        self._stages: dict[tuple[tuple[str, str], ...], str] = {}

    def trim(self) -> None:
        """Discard statements, and drop stages, when there are too many."""
        if len(self._statements) > SHAPES_MAX or len(self._stages) > STAGES_MAX:
            self._statements.clear()
            if self._stages:
                self._connection.execute(f"DROP TABLE {', '.join(self._stages.values())}".encode())
                self._stages.clear()

    def statements(self, topic: str, shape: Shape) -> Statements:
        """Return the statements that write rows of the shape to the
        topic's table; creates or evolves the table as configured.

        Raises:
            ConfigError: the table is missing, and the config forbids creating it, or it is not possible.
            DataError: columns are missing, and the config forbids adding them, or it is not possible; or a
                transformation made a topic name that cannot be a table name.
            psycopg.Error: the server's.
        """
        found = self._statements.get((topic, shape))
        if found is None:
            table = self._table(topic, shape)
            if table is None:
                return Statements(tuple(TextForm(column.schema) for column in shape.columns))
            if missing := [column for column in shape.columns if column.name not in table.columns]:
                table = self._evolved(topic, table, shape, missing)
            found = self._statements[topic, shape] = self._kept(table, self._made(table, shape), shape)
        return found

    def key_stage(self, topic: str, shape: Shape) -> str:
        """Return a temporary table for keys of the shape, in an existing table: `place`, then `k0`, `k1`, ..."""
        columns = [self._tables[topic].columns[column.name] for column in shape.keys]
        kinds = [("place", "integer"), *((f"k{at}", one.type + one.collate) for at, one in enumerate(columns))]
        return self._stage(tuple(kinds))

    def same_keys(self, stage: str, keys: Sequence[Texts]) -> Keys:
        """Find which of these keys, a column of texts each, are equal in the database. `stage`: from `key_stage`.

        Raises psycopg.Error of the server, for instance for a text that is invalid for the column's type.
        """
        names = ", ".join(f"k{at}" for at in range(len(keys)))
        places: Texts = [str(at) for at in range(len(keys[0]))]
        with self._connection.transaction(), self._connection.cursor() as cursor:
            with cursor.copy(f"COPY {stage} (place, {names}) FROM STDIN".encode()) as copy:
                copy.write(lines([places, *keys]))
            cursor.execute(
                f"SELECT min(place) OVER (PARTITION BY {names}), min(place) OVER (PARTITION BY "
                f'ROW({names})::text COLLATE "C") FROM {stage} ORDER BY place'.encode()
            )
            found = cursor.fetchall()
            cursor.execute(f"DELETE FROM {stage}".encode())
        identities, images = zip(*found, strict=True)
        return Keys(without_nulls(identities, keys), images)

    def _table(self, topic: str, shape: Shape) -> Table | None:
        """Return the table; None: it is missing, and is created for rows to write, not for rows to delete."""
        table = self._tables.get(topic)
        if table is None:
            name = self._name_of(topic)
            table = looked_up(self._connection, name)
            if table is None:
                self._refuse_creation(name, shape)
                if shape.deletes:
                    return None
                if shape.keeps:
                    raise DataError(f"table {name} is missing, and the record lacks the values of unchanged columns")
                self._create(name, shape)
                table = looked_up(self._connection, name)
            if table is None:
                raise RetriableError(f"table {name} was created and no longer exists")
            self._tables[topic] = table
        return table

    def _name_of(self, topic: str) -> TableName:
        """Return the table's name. Raises ConfigError; DataError if
        only a transformation can have made the record's topic.
        """
        try:
            return self._settings.table_of(topic)
        except ConfigError as error:
            if why := why_no_topic(topic):
                raise DataError(f"{error} (of the topic {topic[:80]!r}, which a transformation made: {why})") from error
            raise

    def _refuse_creation(self, name: TableName, shape: Shape) -> None:
        if not self._settings.auto_create:
            other = called_alike(self._connection, name)
            if other:
                raise ConfigError(
                    f"table {name} is missing; to PostgreSQL, {other} is a different table", field=TABLE_NAME_FORMAT,
                    fix=f"write {TABLE_NAME_FORMAT} in the case of the table, or {QUOTE}=never for lower case",
                )  # fmt: skip
            raise ConfigError(
                f"table {name} is missing, and {AUTO_CREATE} is false", field=AUTO_CREATE,
                fix=f"create it, or write {AUTO_CREATE}=true",
            )  # fmt: skip
        untyped = [column for column in shape.columns if column.schema is None]
        if untyped and not shape.deletes:
            names = ", ".join(column.name for column in untyped)
            is_key_alone = len(untyped) < len(shape.columns) and all(column.is_key for column in untyped)
            what = f"the records' keys have no schema ({names})" if is_key_alone else "the records have no schema"
            converter = "key.converter" if is_key_alone else "converter"
            raise ConfigError(
                f"table {name} is missing, and cannot be created: {what}", field=AUTO_CREATE,
                fix=f"create it, or use a {converter} with schemas",
            )  # fmt: skip

    def _create(self, name: TableName, shape: Shape) -> None:
        zone = self._settings.zone
        parts = [f"{quoted(column.name)} {_definition(column, zone, of_new_table=True)}" for column in shape.columns]
        if shape.keys:
            parts.append(f"PRIMARY KEY ({_names(shape.keys)})")
        self._define(f"CREATE TABLE IF NOT EXISTS {name.sql} ({', '.join(parts)})", AUTO_CREATE)
        _log.info("made table %s", name)

    def _evolved(self, topic: str, table: Table, shape: Shape, missing: Sequence[RecordColumn]) -> Table:
        """Add these columns to the table. Raises like `statements`."""
        names = ", ".join(column.name for column in missing)
        _refuse_other_case(table, shape, missing)
        if not self._settings.auto_evolve:
            raise DataError(f"table {table.sql} has no column {names}, and {AUTO_EVOLVE} is false")
        for column in missing:
            if column.schema is None:
                whose = "the record's key" if column.is_key else "the record"
                raise DataError(f"table {table.sql} has no column {column.name}, and {whose} has no schema")
            if column.is_key or not (column.schema.optional or column.schema.default is not None):
                raise DataError(
                    f"table {table.sql} has no column {column.name}, and none is added: its field is not optional and "
                    "has no default, which existing rows would need"
                )
        parts = [
            f"ADD COLUMN IF NOT EXISTS {quoted(column.name)} "
            f"{_definition(column, self._settings.zone, of_new_table=False)}"
            for column in missing
        ]
        self._define(f"ALTER TABLE {table.sql} {', '.join(parts)}", AUTO_EVOLVE)
        _log.info("added columns to %s: %s", table.sql, names)
        evolved = looked_up(self._connection, self._settings.table_of(topic))
        if evolved is None or not all(column.name in evolved.columns for column in missing):
            raise RetriableError(f"columns were added to {table.sql} and no longer exist: {names}")
        self._tables[topic] = evolved
        return evolved

    def _define(self, statement: str, key: str) -> None:
        try:
            make_missing(self._connection, statement)
        except (
            errors.InsufficientPrivilege, errors.InvalidSchemaName, errors.WrongObjectType, errors.DuplicateObject,
        ) as error:  # fmt: skip
            said = " ".join(str(error).split())
            raise ConfigError(
                f"{key}: {said}; refused: {statement}", field=key, fix="grant the right, or run the statement yourself"
            ) from error

    def _made(self, table: Table, shape: Shape) -> Statements:
        settings, columns = self._settings, _names(shape.columns)
        _refuse_computed(table, shape, settings.insert_mode)
        there = [table.columns[column.name] for column in shape.columns]
        forms = tuple(_form(column, known, settings) for column, known in zip(shape.columns, there, strict=True))
        pairs = zip(shape.columns, forms, strict=True)
        keys = tuple(KeyColumn(table.columns[one.name].key, form) for one, form in pairs if one.is_key)
        none = Statements(forms, keys=keys, is_strict=table.is_strict)
        inserts = settings.insert_mode is InsertMode.INSERT and not shape.deletes
        if inserts and table.takes_copy:
            return replace(none, copy=f"COPY {table.sql} ({columns}) FROM STDIN")
        if settings.insert_mode is InsertMode.UPDATE and not shape.deletes and shape.keys == shape.columns:
            return none
        stage = self._stage(tuple((c.name, t.type + t.collate) for c, t in zip(shape.columns, there, strict=True)))
        staged = replace(none, copy=f"COPY {stage} ({columns}) FROM STDIN", clear=f"DELETE FROM {stage}")
        if settings.insert_mode is not InsertMode.UPSERT or shape.deletes:
            return replace(staged, merge=_merge(table, f"{columns} FROM {stage}", stage, shape, settings))
        merge = _merge(table, f"{columns} FROM {stage}{_sorting(table, shape)}", stage, shape, settings)
        if not (table.takes_copy and table.is_plain):
            return replace(staged, merge=merge)
        nothing = f"{', '.join(['NULL'] * len(shape.columns))} WHERE false"
        proof = _merge(table, nothing, stage, shape, settings)
        return replace(staged, merge=merge, straight=f"COPY {table.sql} ({columns}) FROM STDIN", proof=proof)

    def _kept(self, table: Table, made: Statements, shape: Shape) -> Statements:
        """If a record marks some of its columns as unchanged, replace an upsert of the others by an update: the row
        must exist. (An INSERT is refused for a column that may not be null, even where ON CONFLICT would only update.)
        """
        if not shape.keeps or self._settings.insert_mode is not InsertMode.UPSERT:
            return made
        there = [table.columns[column.name] for column in shape.columns]
        stage = self._stage(tuple((c.name, t.type + t.collate) for c, t in zip(shape.columns, there, strict=True)))
        copy = f"COPY {stage} ({_names(shape.columns)}) FROM STDIN"
        same = _same(table, shape)
        absent = (
            f"SELECT count(*) FROM {stage} AS stage WHERE NOT EXISTS (SELECT FROM {table.sql} AS target WHERE {same})"
        )
        updates = replace(self._settings, insert_mode=InsertMode.UPDATE)
        merge = "" if shape.keys == shape.columns else _merge(table, "", stage, shape, updates)
        clear = f"DELETE FROM {stage}"
        return replace(made, copy=copy, merge=merge, clear=clear, straight="", proof="", absent=absent)

    def _stage(self, columns: tuple[tuple[str, str], ...]) -> str:
        """Return a temporary table with these columns, in this order,
        and without constraints, which the target table has.
        """
        stage = self._stages.get(columns)
        if stage is None:
            stage = f"pg_temp.herdmesh_stage_{len(self._stages)}"
            parts = ", ".join(f"{quoted(name)} {kind}" for name, kind in columns)
            self._connection.execute(f"CREATE TEMPORARY TABLE {stage} ({parts}) ON COMMIT DELETE ROWS".encode())
            self._stages[columns] = stage
        return stage


def _refuse_computed(table: Table, shape: Shape, mode: InsertMode) -> None:
    """Raise DataError for columns to write that do not accept values."""
    written = () if shape.deletes else shape.columns
    named = [
        column.name for column in written
        if table.columns[column.name].is_computed and not (mode is InsertMode.UPDATE and column.is_key)
    ]  # fmt: skip
    if named:
        raise DataError(
            f"table {table.sql} computes column {', '.join(named)} itself (GENERATED ALWAYS AS), so no value can be "
            "written to it: leave the field out, with fields.whitelist or ReplaceField"
        )


def _refuse_other_case(table: Table, shape: Shape, missing: Sequence[RecordColumn]) -> None:
    """Raise DataError for a column that the table has in another case: a second column would divide its values. No
    error if the record has both.
    """
    named = {column.name for column in shape.columns}
    others = {name.lower(): name for name in table.columns if name not in named}
    for column in missing:
        if (other := others.get(column.name.lower())) is not None:
            raise DataError(
                f"table {table.sql} has no column {column.name}, but {other}, which to PostgreSQL is a different "
                f"column: rename the field (ReplaceField), or write {QUOTE}=never for lower-case names"
            )


def _form(column: RecordColumn, known: TableColumn, settings: SinkSettings) -> TextForm:
    of_value = column.schema
    if known.is_array and of_value is not None and of_value.type == "ARRAY":
        of_value = of_value.value_schema
    is_float = known.key.name in _FLOATS
    write = writer(of_value, known.base)
    takes = _TAKES.get(known.key.name.removeprefix("_"), Takes.ANYTHING)
    return TextForm(column.schema, known.is_array, settings.zone, is_float, write, known.delimiter, takes)


def _sorting(table: Table, shape: Shape) -> str:
    """Return an ORDER BY for the merge. Rows merged in their index's order find it in the server's cache, which saves a
    fifth of its time for updates of random keys. Only if sorting is cheap, and nothing depends on the order of inserts.
    """
    named = {column.name for column in shape.columns}
    tells = not table.is_plain or any(
        column.has_default for name, column in table.columns.items() if name not in named
    )  # fmt: skip
    if tells or not all(table.columns[column.name].type in _SORTED_AT_ONCE for column in shape.keys):
        return ""
    return f" ORDER BY {_names(shape.keys)}"


def _merge(table: Table, rows: str, stage: str, shape: Shape, settings: SinkSettings) -> str:
    """`rows`: the columns and source of the INSERT's SELECT."""
    columns, keys = _names(shape.columns), _names(shape.keys)
    same = _same(table, shape)
    others = [_name(column) for column in shape.columns if not column.is_key]
    if shape.deletes:
        return f"DELETE FROM {table.sql} AS target USING {stage} AS stage WHERE {same}"
    if settings.insert_mode is InsertMode.UPDATE:
        values = ", ".join(f"{name} = stage.{name}" for name in others)
        return f"UPDATE {table.sql} AS target SET {values} FROM {stage} AS stage WHERE {same}"
    overriding = (
        " OVERRIDING SYSTEM VALUE" if any(table.columns[c.name].is_always_generated for c in shape.columns) else ""
    )
    insert = f"INSERT INTO {table.sql} ({columns}){overriding} SELECT {rows}"
    if settings.insert_mode is InsertMode.INSERT:
        return insert
    values = ", ".join(f"{name} = EXCLUDED.{name}" for name in others)
    return f"{insert} ON CONFLICT ({keys}) DO {f'UPDATE SET {values}' if others else 'NOTHING'}"


def _same(table: Table, shape: Shape) -> str:
    """Return the condition that a row of the table has the key of a row in the stage."""
    columns = [(_name(one), table.columns[one.name]) for one in shape.keys]
    return " AND ".join(
        f"target.{name}{known.compared_as} {known.equals} stage.{name}{known.compared_as}" for name, known in columns
    )


def _definition(column: RecordColumn, zone: tzinfo, *, of_new_table: bool) -> str:
    """Return type, default and constraint of a column to create. An added column is nullable, because
    existing rows have null.
    """
    schema = column.schema
    assert schema is not None
    _refuse_name(column)
    made = sql_type(schema)
    if schema.default is not None and not column.is_key:
        return f"{made} DEFAULT {_default(schema, zone)}"
    return f"{made} NOT NULL" if of_new_table and (column.is_key or not schema.optional) else made


def _refuse_name(column: RecordColumn) -> None:
    why = "PostgreSQL reserves the name in every table" if column.name in _SYSTEM_COLUMNS else why_no_name(column.name)
    if why:
        raise DataError(f"column {column.name} cannot be created: {why}; rename the field (ReplaceField)")


def _default(schema: Schema, zone: tzinfo) -> str:
    (text,) = texts([schema.default], TextForm(schema, is_array=schema.type == "ARRAY", zone=zone))
    assert text is not None
    return literal(text)


def _name(column: RecordColumn) -> str:
    return quoted(column.name)


def _names(columns: Sequence[RecordColumn]) -> str:
    return ", ".join(map(_name, columns))
