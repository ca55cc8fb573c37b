"""Column-wise steps: steps over whole columns of a struct's fields, for steps that only build one struct from another's
fields, or from a value that becomes a field.

Owns the `Code` for such steps (`FieldCode`) and the function compiled from it. Each step writes its code once: its
expressions for the fields of a record are evaluated over columns here, and record by record in `compiled_loop.Loop`.

Invariant: the result equals that of the loop over the records. Cases that columns alone cannot decide, above all
failures, are left to that loop.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from herdmesh.connect.model import Batch, PackedTexts, Schema, StructColumn, UnreadTexts, all_fit, fits
from herdmesh.connect.transforms import OLD, Code, Column, Made, Part, Shape

if TYPE_CHECKING:
    from herdmesh.connect.chain.compiled_loop import Step

_OF_BATCH = frozenset[Column](("topic", "partition"))
_OF_RECORDS: dict[Column, str] = {"offset": "offsets", "timestamp": "timestamps"}


class NotByColumns(Exception):
    """Raised for a step that does more than build a struct from another's fields."""


class FieldCode(Code):
    """Code of steps that change the fields of a struct. Raises NotByColumns for any other statement."""

    def __init__(self, schema: Schema) -> None:
        super().__init__(drop="")
        self._made_count = 0
        self.names: list[str] = []
        """The variables that currently hold the columns of the struct."""
        self.statements: list[str] = []
        if schema.type == "STRUCT":
            self.names = [f"f{place}" for place in range(len(schema.fields))]
            self.statements = [f"{name} = fields[{place}]" for place, name in enumerate(self.names)]
            required = frozenset(field.index for field in schema.fields if not field.schema.optional)
            self.made["value"] = Made(schema, required)

    def line(self, text: str) -> None:
        raise NotByColumns

    def read(self, column: Column) -> str:
        if column not in _OF_BATCH and column not in _OF_RECORDS:
            raise NotByColumns
        return column

    def hoist(self, part: Part, after: Schema) -> bool:
        if part != "value" or part in self.made:
            raise NotByColumns
        self.names = ["fields[0]"]
        filled: set[int] = set()
        schema = after.fields[0].schema
        if schema.type in ("ARRAY", "MAP"):
            raise NotByColumns  # every element has to fit
        known = "are_texts or " if fits(schema, "") else ""
        self.statements.append(f"if not ({known}{self.bind(all_fit)}({self.bind(schema)}, fields[0])): return None")
        if not schema.optional:
            self.statements.append("if None in fields[0]: return None")
            filled.add(0)
        self.made[part] = Made(after, frozenset(filled))
        return True

    def put_fields(self, part: Part, after: Schema, values: Sequence[str]) -> bool:
        before, made = self.names, self.made[part]  # the value's: struct_only has refused a key
        filled: set[int] = set()
        names: list[str] = []
        for field, text in zip(after.fields, values, strict=True):
            tree = ast.parse(text, mode="eval").body
            place = _place(tree)
            names.append(self._computed(tree, before) if place is None else before[place])
            is_filled = _is_given(tree) if place is None else place in made.filled
            if not is_filled and not field.schema.optional:
                # Java accepts null in a field that a step may leave out: the loop over the records decides that too.
                self.statements.append(f"if None in {names[-1]}: return None")
                is_filled = True
            if is_filled:
                filled.add(field.index)
        self.names, self.made[part] = names, Made(after, frozenset(filled))
        return True

    def _computed(self, tree: ast.expr, before: Sequence[str]) -> str:
        """Write an expression over columns; returns the variable of the new column."""
        self._made_count += 1
        name = f"g{self._made_count}"
        if isinstance(tree, ast.Constant) or (isinstance(tree, ast.Name) and tree.id not in _OF_RECORDS):
            self.statements.append(f"{name} = [{ast.unparse(tree)}] * count")
            return name
        renamed = _Renamed()
        text = ast.unparse(renamed.visit(tree))
        used = {f"{OLD}{place}": before[place] for place in renamed.places}
        used |= {column: given for column, given in _OF_RECORDS.items() if column in renamed.names}
        if len(used) != 1:
            raise NotByColumns
        ((variable, given),) = used.items()
        self.statements.append(f"{name} = [{text} for {variable} in {given}]")
        return name


class _Renamed(ast.NodeTransformer):
    """Rewriter of `x[2]` to `x2` that collects the indexes and all other names."""

    def __init__(self) -> None:
        self.places: dict[int, None] = {}
        self.names: set[str] = set()

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        place = _place(node)
        if place is None:
            return self.generic_visit(node)
        self.places[place] = None
        return ast.Name(f"{OLD}{place}", ast.Load())

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id == OLD:
            raise NotByColumns
        self.names.add(node.id)
        return node


def _place(tree: ast.AST) -> int | None:
    """Index of the old struct's field that an expression reads; None for any other expression."""
    match tree:
        case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=int(place))) if name == OLD:
            return place
        case _:
            return None


def _is_given(tree: ast.expr) -> bool:
    """True when an expression is a literal that is not null."""
    return isinstance(tree, ast.Constant) and tree.value is not None


class FieldLoop:
    """Steps compiled for columns of fields."""

    def __init__(self, steps: Sequence[Step], shape: Shape) -> None:
        """Raises NotByColumns where the steps need whole records."""
        if shape.value is None:
            raise NotByColumns
        self._before, self._key = shape.value, shape.key
        code = FieldCode(shape.value)
        for step in steps:
            if step.predicate is not None:
                raise NotByColumns
            compiled = step.transformation.compile(shape)
            compiled.emit(code)
            shape = compiled.shape
        made = code.made.get("value")
        if made is None or made.schema is not shape.value or shape.key is not self._key:
            raise NotByColumns
        self._after = made.schema
        lines = [*code.statements, f"return [{', '.join(code.names)}]"]
        head = "def steps(topic, partition, count, fields, offsets, timestamps, are_texts):"
        code.lines = [head, *(f"    {line}" for line in lines)]
        self.source, self._run = code.compiled("steps")

    def run(self, batch: Batch) -> Batch | None:
        """The batch after the steps; None where it must be processed record by record."""
        values = batch.values
        if self._before.type != "STRUCT":
            fields = [list(values)]  # a source's column may be of any kind
        elif isinstance(values, StructColumn) and values.schema is self._before:
            fields = values.fields
        else:
            fields = None
        if fields is None:
            return None
        count, are_texts = len(values), isinstance(values, PackedTexts | UnreadTexts)
        offsets = batch.offsets or (None,) * count
        timestamps = batch.timestamps_ms or (None,) * count
        try:
            made = self._run(batch.topic, batch.partition, count, fields, offsets, timestamps, are_texts)
        except Exception:  # noqa: BLE001 - record by record any error occurs again, or it was transient
            return None
        if made is None:
            return None
        values = StructColumn(self._after, made, count)
        return replace(batch, key_schema=self._key, value_schema=self._after, values=values)
