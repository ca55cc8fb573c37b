"""Column-wise steps: steps over whole columns of a struct's fields, where all they do is build one struct from
another's fields, or from a value that becomes a field.

Owns the page on which steps write this (`FieldCode`) and the function made of it. Each step writes itself once: the
expressions it gives for the fields of a record are evaluated over columns here, and record by record in
`compiled_loop.Loop`.

Invariant: the result equals that of the loop over the records. What columns alone cannot decide, a failure above all,
is left to that loop.
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
    """A step does more than to make a struct of another's fields."""


class FieldCode(Code):
    """The page on which steps write their changes to the fields of a struct. Raises NotByColumns for everything
    else."""

    def __init__(self, schema: Schema) -> None:
        super().__init__(drop="")
        self._made_count = 0
        self.names: list[str] = []
        """The variables that hold the columns of the struct as it is by now."""
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
        before, made = self.names, self.made[part]  # of the value: struct_only has refused a key
        filled: set[int] = set()
        names: list[str] = []
        for field, text in zip(after.fields, values, strict=True):
            tree = ast.parse(text, mode="eval").body
            place = _place(tree)
            names.append(self._computed(tree, before) if place is None else before[place])
            is_filled = _is_given(tree) if place is None else place in made.filled
            if not is_filled and not field.schema.optional:
                # Some may be left out, where Java says nothing: that, too, is the other loop's to know.
                self.statements.append(f"if None in {names[-1]}: return None")
                is_filled = True
            if is_filled:
                filled.add(field.index)
        self.names, self.made[part] = names, Made(after, frozenset(filled))
        return True

    def _computed(self, tree: ast.expr, before: Sequence[str]) -> str:
        """The variable of a new column: the values of an expression."""
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
    """`x[2]` becomes `x2`; the places and all other names are noted."""

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
    """Of the old struct's field that an expression is; None when it is anything else."""
    match tree:
        case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=int(place))) if name == OLD:
            return place
        case _:
            return None


def _is_given(tree: ast.expr) -> bool:
    """Whether an expression is a literal that is not null."""
    return isinstance(tree, ast.Constant) and tree.value is not None


class FieldLoop:
    """Steps done to columns of fields."""

    def __init__(self, steps: Sequence[Step], shape: Shape) -> None:
        """Raises NotByColumns where the steps need the records."""
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
        """The batch with the steps done; None where it must be gone through record by record."""
        values = batch.values
        if self._before.type != "STRUCT":
            fields = [list(values)]  # a source's may be of any kind
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
        except Exception:  # noqa: BLE001 - whatever it was: record by record it is found again, or is gone
            return None
        if made is None:
            return None
        values = StructColumn(self._after, made, count)
        return replace(batch, key_schema=self._key, value_schema=self._after, values=values)
