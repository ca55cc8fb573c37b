"""ReplaceField: drops, keeps and renames fields (docs/reference/connect/transforms-converters.md, section 2.12).

Owns the three lists and their combination.

Invariant: the old name decides whether a field stays; then it is renamed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from herdmesh.connect.config import check_pairs
from herdmesh.connect.errors import DataError
from herdmesh.connect.model import LOGICAL, TEMPORAL, Field, Schema, SchemaBuilder, hash_map_order, java_class
from herdmesh.connect.transforms.base import Code, PartTransformation, Shape
from herdmesh.connect.transforms.kafka import definitions
from herdmesh.connect.transforms.structs import emit_struct, field_value


class ReplaceField(PartTransformation):
    """`org.apache.kafka.connect.transforms.ReplaceField`."""

    java_class = "org.apache.kafka.connect.transforms.ReplaceField"
    purpose = "field replacement"
    null_passes = True
    config_def = definitions.REPLACE_FIELD
    keeps_json = True

    def _set_up(self, settings: dict[str, Any]) -> None:
        self._exclude: list[str] = settings["exclude"] or []
        self._include: list[str] = settings["include"] or []
        self._renames = check_pairs("renames", settings["renames"] or [])
        self._null_to_default: bool = settings["replace.null.with.default"]

    def _keeps(self, name: str) -> bool:
        return name not in self._exclude and (not self._include or name in self._include)

    def for_schema(self, schema: Schema, shape: Shape) -> tuple[Schema, Callable[[Code], None]]:
        builder = SchemaBuilder.like(schema)
        for field in schema.fields:
            if self._keeps(field.name):
                builder.field(self._renames.get(field.name, field.name), field.schema)
        after = builder.build()
        # Java looks values up by the old name that belongs to the new name, even when another field had that new name
        # before. Of two old names of one new name the last counts, in the order of a HashMap.
        old_names = {self._renames[old]: old for old in hash_map_order(self._renames)}
        origins = [old_names.get(field.name, field.name) for field in after.fields]
        missing = next((name for name in origins if name not in schema.places), None)

        def emit(code: Code) -> None:
            self.struct_only(code, schema)
            if missing is not None:
                code.line(f"{code.bind(_refuse)}({missing!r})")
                return
            fields = [schema.fields[schema.places[name]] for name in origins]
            values: list[str] = []
            for source, target in zip(fields, after.fields, strict=True):
                same = _class_of(source.schema) == _class_of(target.schema)
                value = field_value(code, source, null_to_default=self._null_to_default, put=same)
                values.append(value if same else f"{code.bind(_fitting(source.schema, target))}({value})")
            emit_struct(code, self.part, after, values)

        return after, emit

    def emit_schemaless(self, code: Code) -> None:
        with self.map_only(code) as name:
            self._emit_map(code, name)

    def _emit_map(self, code: Code, name: str) -> None:
        if not self._renames:
            self._emit_filters(code, name)
            return
        at_once = code.bind(self._replace_at_once)
        targets = list(self._renames.values())
        if self._renames.keys() & set(targets) or len(set(targets)) < len(targets):
            code.line(f"{at_once}({name})")
            return
        # A field that has the new name already is rare: only then does the order of renaming matter.
        with code.block(f"if {' or '.join(f'{new!r} in {name}' for new in targets)}"):
            code.line(f"{at_once}({name})")
        with code.block("else"):
            self._emit_filters(code, name)
            for old, new in self._renames.items():
                code.line(f"if {old!r} in {name}:")
                code.line(f"    {name}[{new!r}] = {name}.pop({old!r})")

    def _emit_filters(self, code: Code, name: str) -> None:
        for field in self._exclude:
            code.line(f"if {field!r} in {name}:")
            code.line(f"    del {name}[{field!r}]")
        if self._include:
            kept = code.bind(frozenset(self._include))
            code.line(f"for field in [field for field in {name} if field not in {kept}]:")
            code.line(f"    del {name}[field]")

    def _replace_at_once(self, value: dict[str, Any]) -> None:
        """The whole step for two fields with the same new name: as in Java the last one wins, in the order of a
        HashMap.
        """
        fields = [(name, value[name]) for name in hash_map_order(value)]
        value.clear()
        for name, item in fields:
            if self._keeps(name):
                value[self._renames.get(name, name)] = item


def _class_of(schema: Schema) -> tuple[str, str | None]:
    """Key that is equal for schemas whose values have the same Java class; all temporal types have one class."""
    if schema.name in TEMPORAL:
        return "java.util.Date", None
    return schema.type, schema.name if schema.name in LOGICAL else None


def _fitting(source: Schema, target: Field) -> Callable[[Any], None]:
    """A check for the value of a field of another class: null passes, any other value is refused because its class is
    not the target's.
    """

    def check(value: Any) -> None:
        if value is None:
            return
        named = "" if target.schema.name is None else f' "{target.schema.name}"'
        raise DataError(
            f"Invalid Java object for schema{named} with type {target.schema.type}: class "
            f'{java_class(value, source)} for field: "{target.name}"'
        )

    return check


def _refuse(name: str) -> None:
    raise DataError(f"{name} is not a valid field name")
