"""Conversion of a batch of records to rows: the columns
of a record, and the rows to write, in which order.

Owns `pk.mode`, `pk.fields`, `fields.whitelist`, tombstones, and the order of writes to one row. Pure: knows no
database; texts of values: `texts`; equal keys: `key_identity`; tables: `tables`.

Records with the same columns are one `Rows`. The result of a batch is as if its records had been written one by one:
if a row is written several times, the last write counts, and if that is not enough (a row that is deleted and
inserted again, records with different columns), the batch is written in several *waves*.

Invariant: after the writes of a batch every row is the result of its records in order.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from herdmesh.connect.model import INT32, INT64, STRING, StructColumn
from herdmesh.connectors.postgres.sink.key_identity import Keys
from herdmesh.connectors.postgres.sink.settings import PK_FIELDS, InsertMode, PkMode, SinkSettings
from herdmesh.connectors.postgres.sink.texts import Texts
from herdmesh.connectors.postgres.sink.unchanged_values import Found, Unchanged
from herdmesh.sdk import ConfigError, DataError, Schema, SinkBatch, Struct

_STRUCTS = frozenset((Struct,))
_COORDINATES = (STRING, INT32, INT64)


@dataclass(frozen=True, slots=True)
class RecordColumn:
    """A column in the records."""

    name: str
    schema: Schema | None
    """Schema of its values; None = schemaless."""
    is_key: bool


@dataclass(frozen=True, slots=True)
class Shape:
    """The common form of rows."""

    columns: tuple[RecordColumn, ...]
    """Key columns first; for a deletion these alone."""
    deletes: bool = False
    keeps: bool = False
    """The rows exist already, and their records mark all columns that are missing here as unchanged."""

    @property
    def keys(self) -> tuple[RecordColumn, ...]:
        """The key columns."""
        return tuple(column for column in self.columns if column.is_key)


@dataclass(frozen=True, slots=True)
class Rows:
    """Records of one shape."""

    shape: Shape
    places: Sequence[int]
    """Place of each record in its batch, ascending."""
    values: Sequence[Sequence[Any]]
    """One column of values for each column of the shape."""


@dataclass(frozen=True, slots=True)
class Write:
    """Rows for one statement; no two of them have the same key, unless duplicates must cause an error."""

    shape: Shape
    texts: Sequence[Texts]


@dataclass(frozen=True, slots=True)
class _Part:
    """Columns from a key or a value, and the function that extracts them."""

    columns: tuple[RecordColumn, ...]
    take: Callable[[Sequence[Any], Sequence[int]], list[Sequence[Any]]]
    """From the batch's column and the places of the records."""


class BatchReader:
    """Converter of the batches of one task."""

    def __init__(self, settings: SinkSettings) -> None:
        self._settings = settings
        self._named: Callable[[str], str] = str.lower if settings.folds_case else str
        #: parts by struct schema, reused from batch to batch.
        self._value_parts: dict[Schema, tuple[_Part, _Part]] = {}
        self._key_parts: dict[Schema, _Part] = {}
        is_kept = settings.placeholder and settings.insert_mode is not InsertMode.INSERT
        self._unchanged = Unchanged(settings.placeholder) if is_kept else None

    def read(self, batch: SinkBatch, places: Sequence[int]) -> list[Rows]:
        """Return the rows of the records at these places, ascending, at least one.

        Raises:
            DataError: a record cannot be a row; the caller finds it by calling this for one record alone.
            ConfigError: no record can be.
        """
        groups: dict[tuple[Any, Any], list[int]] = {}
        whole = len(places) == len(batch)
        schema = _schema_of_all(batch.values) if whole and not self._keys_vary(batch) else None
        if schema is not None:
            groups[self._key_form(batch, places[0]), schema] = list(places)
        else:
            for place in places:
                form = self._key_form(batch, place), self._value_form(batch, place)
                groups.setdefault(form, []).append(place)
        return [part for form, group in groups.items() for part in self._parted(self._rows(batch, group, *form))]

    def _parted(self, rows: Rows) -> list[Rows]:
        """Return rows without the columns that a placeholder marks as unchanged."""
        shape, start = rows.shape, len(rows.shape.keys)
        if self._unchanged is None or shape.deletes or start == len(shape.columns):
            return [rows]
        found = self._unchanged.found([column.schema for column in shape.columns], rows.values, start)
        if found is None:
            return [rows]
        parts: list[Rows] = []
        for unchanged, picked in _with_scales(rows, found).items():
            named = [at for at in range(len(shape.columns)) if at not in unchanged]
            columns = tuple(shape.columns[at] for at in named)
            values = [[rows.values[at][row] for row in picked] for at in named]
            parts.append(Rows(Shape(columns, keeps=bool(unchanged)), [rows.places[row] for row in picked], values))
        return parts

    def _keys_vary(self, batch: SinkBatch) -> bool:
        """Return whether records of the batch may have their key columns in keys of different forms."""
        return self._settings.pk_mode is PkMode.RECORD_KEY and (batch.key_schema is None or None in batch.keys)

    def _key_form(self, batch: SinkBatch, place: int) -> Any:
        """Return the form of the record's key: a struct's schema, a map's names, or None."""
        if self._settings.pk_mode is not PkMode.RECORD_KEY:
            return None
        key = batch.keys[place]
        if key is None:
            raise DataError("the record has no key, and pk.mode is record_key")
        if isinstance(key, Struct):
            return key.schema
        return _names(cast("Mapping[Any, Any]", key)) if isinstance(key, dict) else None

    def _value_form(self, batch: SinkBatch, place: int) -> Any:
        """Return the form of the record's value; None = a tombstone."""
        value = batch.values[place]
        if value is None:
            if not self._settings.deletes:
                raise DataError("the record has no value (a tombstone), and delete.enabled is false")
            return None
        if isinstance(value, Struct):
            return value.schema
        if isinstance(value, dict):
            return _names(cast("Mapping[Any, Any]", value))
        raise DataError(f"the record's value must be a struct or a map, but is a {type(value).__name__}")

    def _rows(self, batch: SinkBatch, places: list[int], key_form: Any, value_form: Any) -> Rows:
        key = self._key_part(batch, key_form)
        taken = list(key.take(batch.keys, places))
        if self._settings.pk_mode is PkMode.KAFKA:
            taken = _coordinates(batch, places)
        columns = key.columns
        if value_form is not None:
            keyed, rest = self._value_parts_of(value_form)
            if keyed.columns:
                columns, taken = keyed.columns, keyed.take(batch.values, places)
            names = {column.name for column in columns}
            more = rest.take(batch.values, places)
            kept = [at for at, column in enumerate(rest.columns) if column.name not in names]
            columns += tuple(rest.columns[at] for at in kept)
            taken = [*taken, *(more[at] for at in kept)]
        if not columns:
            raise DataError("the record has no field to write to a column")
        if self._settings.insert_mode is not InsertMode.INSERT and not any(column.is_key for column in columns):
            raise DataError("the record's key has no fields, so it identifies no row")
        return Rows(Shape(columns, value_form is None), places, taken)

    def _key_part(self, batch: SinkBatch, form: Any) -> _Part:
        settings = self._settings
        if settings.pk_mode is PkMode.KAFKA:
            columns = zip(settings.pk_fields, _COORDINATES, strict=True)
            return _Part(tuple(RecordColumn(self._named(name), schema, True) for name, schema in columns), _nothing)
        if settings.pk_mode is not PkMode.RECORD_KEY:
            return _Part((), _nothing)
        if isinstance(form, Schema):
            part = self._key_parts.get(form)
            if part is None:
                part = self._key_parts[form] = self._struct_part(form, self._chosen(form.places, "key"), is_key=True)
            return part
        if form is not None:
            return self._map_part(self._chosen(form, "key"), is_key=True)
        if len(settings.pk_fields) != 1:
            raise ConfigError(
                f"{PK_FIELDS} must name one column, because the records' keys are not structs", field=PK_FIELDS,
                fix="name the primary key column",
            )  # fmt: skip
        return _Part((RecordColumn(self._named(settings.pk_fields[0]), batch.key_schema, True),), _whole)

    def _value_parts_of(self, form: Any) -> tuple[_Part, _Part]:
        """Return the value's key columns, if `pk.mode` uses the value, and its other columns."""
        settings = self._settings
        if isinstance(form, Schema) and (found := self._value_parts.get(form)) is not None:
            return found
        names: Sequence[str] = list(form.places) if isinstance(form, Schema) else form
        keys = self._chosen(names, "value") if settings.pk_mode is PkMode.RECORD_VALUE else ()
        others = [
            name for name in names
            if name not in keys and (not settings.whitelist or name in settings.whitelist)
        ]  # fmt: skip
        if not isinstance(form, Schema):
            return self._map_part(keys, is_key=True), self._map_part(others, is_key=False)
        made = self._struct_part(form, keys, is_key=True), self._struct_part(form, others, is_key=False)
        self._value_parts[form] = made
        return made

    def _chosen(self, names: Mapping[str, Any] | Sequence[str], where: str) -> Sequence[str]:
        """Return the names of key fields. Raises DataError for a missing one."""
        chosen = self._settings.pk_fields or tuple(names)
        if missing := [name for name in chosen if name not in names]:
            raise DataError(f"the record's {where} has no field {', '.join(missing)}, which {PK_FIELDS} names")
        return chosen

    def _struct_part(self, schema: Schema, names: Sequence[str], *, is_key: bool) -> _Part:
        fields = [schema.fields[schema.places[name]] for name in names]
        columns = tuple(RecordColumn(self._named(one.name), one.schema, is_key) for one in fields)
        indexes = [(one.index, one.schema.default) for one in fields]

        def take(values: Sequence[Any], places: Sequence[int]) -> list[Sequence[Any]]:
            taken: list[Sequence[Any]] = []
            whole = values.fields if isinstance(values, StructColumn) else None
            for index, default in indexes:
                column: Sequence[Any]
                if whole is None:
                    column = [values[place].values[index] for place in places]
                else:
                    column = whole[index]
                    if len(places) != len(values):
                        column = [column[place] for place in places]
                if default is not None and None in column:
                    column = [default if value is None else value for value in column]
                taken.append(column)
            return taken

        return _Part(columns, take)

    def _map_part(self, names: Sequence[str], *, is_key: bool) -> _Part:
        columns = tuple(RecordColumn(self._named(name), None, is_key) for name in names)
        return _Part(columns, lambda values, places: [[values[place][name] for place in places] for name in names])


def _with_scales(rows: Rows, found: Found) -> Found:
    """Add the scales of unchanged numbers to the result of `Unchanged.found`, if Flatten made two columns of a number
    with its own scale (`VariableScaleDecimal`): its placeholder is bytes and the scale 0.
    """
    at_of = {column.name: at for at, column in enumerate(rows.shape.columns)}
    scales = {
        at: scale for name, at in at_of.items()
        if name.endswith("value") and (scale := at_of.get(name.removesuffix("value") + "scale")) is not None
    }  # fmt: skip
    if not scales:
        return found
    more: Found = {}
    for unchanged, picked in found.items():
        also = [scales[at] for at in unchanged if at in scales]
        for row in picked:
            zeros = [at for at in also if rows.values[at][row] == 0]
            more.setdefault(tuple(sorted({*unchanged, *zeros})), []).append(row)
    return more


def _schema_of_all(values: Sequence[Any]) -> Schema | None:
    """Return the one schema of values that are all structs; None if they are not, or need a check one by one."""
    if isinstance(values, StructColumn):
        return values.schema
    try:
        found = {value.schema for value in values}
    except AttributeError:  # a map, or no value
        return None
    return found.pop() if len(found) == 1 and _STRUCTS.issuperset(map(type, values)) else None


def _names(value: Mapping[Any, Any]) -> tuple[str, ...]:
    """Return a map's names, in one order for all maps with the same names. Raises DataError."""
    names = tuple(value)
    if not all(isinstance(name, str) for name in names):
        raise DataError("the fields of a map must have names that are strings")
    return tuple(sorted(names))


def _nothing(_values: Sequence[Any], _places: Sequence[int]) -> list[Sequence[Any]]:
    return []


def _whole(values: Sequence[Any], places: Sequence[int]) -> list[Sequence[Any]]:
    return [[values[place] for place in places]]


def _coordinates(batch: SinkBatch, places: Sequence[int]) -> list[Sequence[Any]]:
    """Return topic, partition and offset of the records in Kafka."""
    count = len(places)
    return [[batch.original_topic] * count, [batch.partition] * count, [batch.offsets[place] for place in places]]


@dataclass(slots=True)
class _Wave:
    """Writes in any order: no row is in two of them."""

    key_names: tuple[str, ...] = ()
    group: int = -1
    """Group of the latest write."""
    #: by key identity: the group and the row in it of the key's last write.
    last: dict[Hashable, tuple[int, int]] = field(default_factory=dict[Hashable, tuple[int, int]])


def needs_keys(groups: Sequence[tuple[Rows, Sequence[Texts]]], *, inserts: bool) -> bool:
    """Return whether the order of the writes depends on equal keys."""
    return sum(len(rows.places) for rows, _ in groups) > 1 and (
        not inserts or any(rows.shape.deletes for rows, _ in groups)
    )


def ordered(
    groups: Sequence[tuple[Rows, Sequence[Texts]]], keys: Sequence[Keys], *, inserts: bool, strictly: bool = False
) -> list[Write]:
    """Return the writes whose result is that of the batch's records, in order.

    A key that was written in two forms (1.0 and 1.00) is written in both, one after the other: the row keeps the first.

    Args:
        groups: rows, each with the texts of its columns.
        keys: of each group; empty if `needs_keys` returns False.
        inserts: two records with the same key cause an error, as with `insert.mode=insert`; else the last one counts.
        strictly: rows may be equal although their keys differ: do not reorder writes.
    """
    if not needs_keys(groups, inserts=inserts):
        return [Write(rows.shape, texts) for rows, texts in groups]
    if len(groups) == 1:
        rows, texts = groups[0]
        # In most batches no key occurs twice; a set shows that in half the time of a dict.
        if len(set(keys[0].identities)) == len(rows.places):
            return [Write(rows.shape, texts)]
        last = dict(zip(keys[0].identities, range(len(rows.places)), strict=True))
        images = keys[0].images
        if images is keys[0].identities or rows.shape.deletes or len(set(images)) == len(last):
            return [_picked(groups[0], list(last.values()))]
    waves = _waves(groups, keys, inserts=inserts, strictly=strictly)
    return [write for wave in waves for write in _writes(groups, wave)]


def _waves(
    groups: Sequence[tuple[Rows, Sequence[Texts]]], keys: Sequence[Keys], *, inserts: bool, strictly: bool
) -> list[_Wave]:
    in_order = sorted(
        (place, group, row) for group, (rows, _) in enumerate(groups) for row, place in enumerate(rows.places)
    )
    waves = [_Wave()]
    for _, group, row in in_order:
        shape, wave, key = groups[group][0].shape, waves[-1], keys[group].identities[row]
        names = tuple(column.name for column in shape.keys)
        before = wave.last.get(key)
        if wave.last and (wave.key_names != names or (strictly and wave.group != group)):
            fits = False
        elif before is None:
            fits = True
        else:  # a deletion discards all earlier writes; a write of the same columns overwrites all their values
            is_rewritten = before[0] == group and keys[group].images[before[1]] == keys[group].images[row]
            fits = not inserts and (shape.deletes or is_rewritten)
        if not fits:
            wave = _Wave()
            waves.append(wave)
        wave.key_names, wave.group = names, group
        wave.last[key] = group, row
    return waves


def _writes(groups: Sequence[tuple[Rows, Sequence[Texts]]], wave: _Wave) -> list[Write]:
    picked: dict[int, list[int]] = {}
    for group, row in wave.last.values():
        picked.setdefault(group, []).append(row)
    return [_picked(groups[group], rows) for group, rows in picked.items()]


def _picked(group: tuple[Rows, Sequence[Texts]], picked: list[int]) -> Write:
    rows, texts = group
    if len(picked) == len(rows.places):
        return Write(rows.shape, texts)
    return Write(rows.shape, [[text[row] for row in picked] for text in texts])
