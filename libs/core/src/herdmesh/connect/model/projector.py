"""SchemaProjector: projection of a value from the schema it was written under to another version of the schema
(docs/reference/connect/data-model.md, section 1.6).

Owns the rules for compatible schemas, and Connect's texts for incompatible ones.

Invariant: the result fits the target schema as far as the value fitted its own.
"""

from __future__ import annotations

from typing import Any, Final, cast

from herdmesh.connect.errors import SchemaProjectorError
from herdmesh.connect.java import exact_float32
from herdmesh.connect.model.data import JavaDate, Struct
from herdmesh.connect.model.java_values import java_text
from herdmesh.connect.model.schemas import INTEGERS, Schema

_WIDTHS: Final = {"INT8": 0, "INT16": 1, "INT32": 2, "INT64": 3, "FLOAT32": 4, "FLOAT64": 5}
"""Numeric types in widening order: each type widens to those after it."""


def project(source: Schema, value: Any, target: Schema) -> Any:
    """Project a value under `source` to `target`. Version and doc are ignored.

    Raises:
        SchemaProjectorError: the schemas differ in more than the rules allow; the cause of a field's error is chained.
        DataError: null in a field that needs a value.
    """
    _check(source, target)
    if source.optional and not target.optional:
        if target.default is None:
            raise SchemaProjectorError(
                "Writer schema is optional, however, target schema does not provide a default value."
            )
        if value is None:
            return target.default
    if value is None:
        return None
    match target.type:
        case "STRUCT":
            return _struct(source, value, target)
        case "ARRAY":
            of, to = cast("Schema", source.value_schema), cast("Schema", target.value_schema)
            return [project(of, item, to) for item in value]
        case "MAP":
            of_key, to_key = cast("Schema", source.key_schema), cast("Schema", target.key_schema)
            of, to = cast("Schema", source.value_schema), cast("Schema", target.value_schema)
            return {project(of_key, key, to_key): project(of, item, to) for key, item in value.items()}
        case _:
            return _primitive(source, value, target)


def _check(source: Schema, target: Schema) -> None:
    if source.type != target.type:
        before, after = _WIDTHS.get(source.type), _WIDTHS.get(target.type)
        if before is None or after is None or before > after:
            raise SchemaProjectorError(
                f"Schema type mismatch. source type: {source.type} and target type: {target.type}"
            )
    if source.name != target.name:
        raise SchemaProjectorError(
            f"Schema name mismatch. source name: {java_text(source.name)} and target name: {java_text(target.name)}"
        )
    if source.parameters != target.parameters:
        raise SchemaProjectorError(
            f"Schema parameters not equal. source parameters: {java_text(source.parameters)} "
            f"and target parameters: {java_text(target.parameters)}"
        )


def _struct(source: Schema, value: Struct, target: Schema) -> Struct:
    made = Struct(target)
    for field in target.fields:
        place = source.places.get(field.name)
        if place is not None:
            try:
                item = project(source.fields[place].schema, value.get(field.name), field.schema)
            except SchemaProjectorError as error:
                raise SchemaProjectorError(f"Error projecting {field.name}") from error
            made.put(field.name, item)
        elif field.schema.optional:
            continue
        elif field.schema.default is not None:
            made.values[field.index] = field.schema.default
        else:
            raise SchemaProjectorError(f"Required field `{field.name}` is missing from source schema: {source}")
    return made


def _primitive(source: Schema, value: Any, target: Schema) -> Any:
    if source.type == target.type or not isinstance(value, int | float) or isinstance(value, bool | JavaDate):
        return value
    # A plain number is of the class that its schema names.
    if target.type in INTEGERS:
        return int(value)
    return exact_float32(value) if target.type == "FLOAT32" and isinstance(value, int) else float(value)
