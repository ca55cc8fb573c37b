"""Compiler from an Avro schema with `arg.properties` to generators of its columns.

Owns which property exists for which type, and the values of a type without any. The properties are those of Confluent's
avro-random-generator, as its README defines them. Schemas: `connect.converters.avro_*`; columns: `columns`.

    boolean                    options, iteration {start}, odds
    int, long, float, double   options, range {min, max}, iteration {start, restart, step, initial}
    string                     options, length, regex, prefix, suffix
    bytes                      length
    enum                       options
    array                      length
    map                        length, keys {the properties of a string}
    [null, X]                  null for half of the records

Invariant: a property is honoured, or refused by its name and place; every generated value fits the Connect schema.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import msgspec

from herdmesh.connect.converters import (
    PRECISION,
    AvroOptions,
    AvroTree,
    Node,
    connect_schema,
    kind_of,
    plain_member,
    valid_default,
)
from herdmesh.connect.model import DATE, DECIMAL, TEMPORAL, TIME, TIMESTAMP, from_internal, scale_of
from herdmesh.connectors.datagen import columns
from herdmesh.connectors.datagen.columns import Maker, key_of
from herdmesh.connectors.datagen.regex_texts import PatternError, text_maker, text_weight
from herdmesh.sdk import DataError, Schema

PROPERTIES: Final = "arg.properties"
_NUMBERS = frozenset(("options", "range", "iteration"))
_BUILT: Mapping[str, frozenset[str]] = {
    "boolean": frozenset(("options", "iteration", "odds")),
    **dict.fromkeys(("int", "long", "float", "double"), _NUMBERS),
    "string": frozenset(("options", "length", "regex", "prefix", "suffix")),
    "bytes": frozenset(("length",)),
    "enum": frozenset(("options",)),
    "array": frozenset(("length",)),
    "map": frozenset(("length", "keys")),
}
_ALONE = frozenset(("options", "range", "iteration", "regex"))
"""Properties of which a type may have at most one."""
_LENGTH = (8, 15)
_LENGTH_MAX = 10_000
WEIGHT_MAX = 100_000
"""Maximum number of draws for one record."""
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"
_INTEGERS: Mapping[str, range] = {
    "INT8": range(-(1 << 7), 1 << 7),
    "INT16": range(-(1 << 15), 1 << 15),
    "INT32": range(-(1 << 31), 1 << 31),
    "INT64": range(-(1 << 63), 1 << 63),
}
_FLOAT_MAX = {"FLOAT32": 3.4028234663852886e38, "FLOAT64": 1.7976931348623157e308}
_TEMPORAL: Mapping[str | None, range] = {
    DATE: range(36_525),  # 1970 to 2069
    TIME: range(86_400_000),
    TIMESTAMP: range(4_102_444_800_000),  # 1970 to 2099
}


class SchemaError(ValueError):
    """A schema that is invalid or needs an unsupported feature."""


@dataclass(frozen=True, slots=True)
class Columns:
    """The generators of a task: one maker for each field of the schema, in the schema's order."""

    schema: Schema
    makers: tuple[Maker, ...]
    weight: int
    """Approximate number of draws for one record."""


def columns_of(text: str, *names: object) -> Columns:
    """Return the makers for a schema's JSON. `names` (seed, task) separate one stream of values from another.

    Raises SchemaError.
    """
    try:
        tree = AvroTree(text)
        root = tree.resolve(tree.root)
        if kind_of(root) != "record":
            raise SchemaError(f"the schema is of type {kind_of(root)}, but must be a record")
        _refuse_misplaced(msgspec.json.decode(text), "the schema")
        schema = connect_schema(tree, AvroOptions())
        if schema is None or schema.type != "STRUCT":
            raise SchemaError("the schema has no fields to generate")
        reading = _Reading(tree)
        fields = [
            reading.maker(field["type"], one.schema, field["name"], (*names, field["name"]))
            for field, one in zip(root["fields"], schema.fields, strict=True)
        ]
    except DataError as error:
        raise SchemaError(str(error)) from error
    if reading.weight > WEIGHT_MAX:
        raise SchemaError(
            f"a record needs {reading.weight} random values, more than the maximum of {WEIGHT_MAX}: reduce its lengths"
        )
    return Columns(schema, tuple(fields), max(1, reading.weight))


def _refuse_misplaced(node: Any, place: str) -> None:
    """Refuse properties at a place where they are not read: of a field, or around a nested type definition."""
    if isinstance(node, list):
        for one in cast("list[Any]", node):
            _refuse_misplaced(one, place)
    if not isinstance(node, dict):
        return
    inner = cast("dict[str, Any]", node)
    kind = inner.get("type")
    if PROPERTIES in inner and not isinstance(kind, str):
        raise SchemaError(f"{place}: {PROPERTIES} is next to the type; move it into the type object")
    for field in cast("list[Any]", inner.get("fields") or []):
        if isinstance(field, dict):
            one = cast("dict[str, Any]", field)
            name = str(one.get("name"))
            if PROPERTIES in one:
                fix = '"type":{"type":...,"arg.properties":...}'
                raise SchemaError(
                    f"{name}: {PROPERTIES} is next to the field's type; move it into the type object: {fix}"
                )
            _refuse_misplaced(one.get("type"), name)
    for member in ("items", "values", "type"):
        if not isinstance(inner.get(member), str):
            _refuse_misplaced(inner.get(member), place)


class _Reading:
    """Compiler of makers for the types of one schema. `path` is the place for error messages, `names` identify the
    stream; `times`: maximum number of values of the type in one record, None = always one.
    """

    def __init__(self, tree: AvroTree) -> None:
        self._tree = tree
        self.weight = 0

    def maker(
        self, node: Node, schema: Schema, path: str, names: Sequence[object], *, times: int | None = None
    ) -> Maker:  # fmt: skip
        """Return the maker of a type. Raises SchemaError."""
        node = self._tree.resolve(node)
        kind = kind_of(node)
        if kind == "union":
            member = plain_member(self._tree, node, AvroOptions())
            if member is None:
                raise SchemaError(f"{path}: a union of more than null and one type is not supported")
            inner = self.maker(member, schema, path, names, times=times)
            return columns.optional(inner, key_of(*names, "null")) if len(node) > 1 else inner
        properties = _properties(node, kind, path)
        if times is not None and "iteration" in properties:
            raise SchemaError(f"{path}: iteration is not supported within an array or a map: it counts records")
        made = self._plain(node, kind, schema, properties, path, names, times)
        if schema.name in TEMPORAL:
            return columns.changed(made, lambda value: from_internal(schema, value))
        return made

    def _plain(
        self, node: Node, kind: str, schema: Schema, properties: dict[str, Any], path: str, names: Sequence[object],
        times: int | None,
    ) -> Maker:  # fmt: skip
        key, many = key_of(*names), 1 if times is None else times
        self.weight += many
        if "options" in properties and kind != "string":
            return columns.choices(key, self._options(node, kind, schema, properties["options"], path))
        match kind:
            case "record":
                fields = [
                    self.maker(
                        field["type"], one.schema, f"{path}.{field['name']}", (*names, field["name"]), times=times
                    )
                    for field, one in zip(node["fields"], schema.fields, strict=True)
                ]
                return columns.structs(schema, fields)
            case "array" if schema.type == "ARRAY":
                least, most = _length(properties, path)
                inner = cast(Schema, schema.value_schema)
                item = self.maker(node["items"], inner, f"{path}[]", (*names, "items"), times=many * most)
                return columns.lists(item, key, least, most)
            case "map":
                least, most = _length(properties, path)
                keys = _checked(properties.get("keys", {}), "string", f"{path} keys")
                name = self._text(keys, f"{path} keys", (*names, "keys"), many * most)
                inner = cast(Schema, schema.value_schema)
                item = self.maker(node["values"], inner, f"{path}{{}}", (*names, "values"), times=many * most)
                return columns.maps(name, item, key, least, most)
            case "string":
                return self._text(properties, path, names, many)
            case "bytes" | "fixed" if schema.name == DECIMAL:
                if properties:
                    raise SchemaError(f"{path}: {PROPERTIES} are not supported for decimals")
                precision = int((schema.parameters or {}).get(PRECISION, "64"))
                return columns.decimals(key, precision, scale_of(schema))
            case "bytes" | "fixed":
                least, most = (node["size"], node["size"]) if kind == "fixed" else _length(properties, path)
                self.weight += many * most
                return columns.octets(key, least, most)
            case "enum":
                return columns.choices(key, node["symbols"])
            case "boolean":
                return _boolean_maker(properties, path, key)
            case "int" | "long":
                return _integer_maker(properties, schema, path, key)
            case "float" | "double":
                return _float_maker(properties, schema, path, key)
            case _:
                raise SchemaError(f"{path}: the type {kind} is not supported here")

    def _text(self, properties: dict[str, Any], path: str, names: Sequence[object], many: int) -> Maker:
        key = key_of(*names)
        if "options" in properties:
            options = properties["options"]
            if not isinstance(options, list) or not options or not all(isinstance(one, str) for one in options):  # pyright: ignore[reportUnknownVariableType]
                raise SchemaError(f"{path}: options must be a list of strings")
            made = columns.choices(key, cast("list[str]", options))
        elif "regex" in properties:
            pattern = str(properties["regex"])
            try:
                self.weight += many * text_weight(pattern)
                made = text_maker(pattern, *names)
            except PatternError as error:
                raise SchemaError(f"{path}: {error}") from error
        else:
            least, most = _length(properties, path)
            self.weight += many * most
            made = columns.texts(key, _LETTERS, least, most)
        before, after = properties.get("prefix", ""), properties.get("suffix", "")
        if not isinstance(before, str) or not isinstance(after, str):
            raise SchemaError(f"{path}: prefix and suffix must be strings")
        return columns.changed(made, lambda text: f"{before}{text}{after}") if before or after else made

    def _options(self, node: Node, kind: str, schema: Schema, options: Any, path: str) -> list[Any]:
        if not isinstance(options, list) or not options:
            raise SchemaError(f"{path}: options must be a list of values; reading values from a file is not supported")
        values = cast("list[Any]", options)
        for one in values:
            if not valid_default(self._tree.names, node, one) or (kind == "enum" and one not in node["symbols"]):
                raise SchemaError(f"{path}: the option {one!r} is not a valid {kind}")
            if kind in ("int", "long") and one not in _bounds(schema):
                raise SchemaError(f"{path}: the option {one!r} does not fit {schema.type}")
        return [float(one) for one in values] if kind in ("float", "double") else values


def _properties(node: Node, kind: str, path: str) -> dict[str, Any]:
    if not isinstance(node, dict):
        return {}
    return _checked(cast("dict[str, Any]", node).get(PROPERTIES, {}), kind, path)


def _checked(given: Any, kind: str, path: str) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise SchemaError(f"{path}: {PROPERTIES} must be an object")
    properties = cast("dict[str, Any]", given)
    built = _BUILT.get(kind, frozenset[str]())
    for name in properties:
        if name not in built:
            there = f"; supported: {', '.join(sorted(built))}" if built else ""
            raise SchemaError(f"{path}: {PROPERTIES} '{name}' is not supported for the type {kind}{there}")
    several = sorted(_ALONE & properties.keys())
    if len(several) > 1:
        raise SchemaError(f"{path}: {' and '.join(several)} cannot be combined")
    if "length" in properties and several:
        raise SchemaError(f"{path}: length and {several[0]} together are not supported")
    return properties


def _length(properties: dict[str, Any], path: str) -> tuple[int, int]:
    """Return the minimum and maximum, both inclusive. The property `max` is exclusive, as in Confluent's generator."""
    given = properties.get("length")
    if given is None:
        return _LENGTH
    if isinstance(given, dict):
        found = cast("dict[str, Any]", given)
        least = found.get("min", 0)
        beyond = found.get("max", None)
        if not found or found.keys() - {"min", "max"}:
            raise SchemaError(f"{path}: length must be a number, or have min or max or both")
        if beyond is None and _is_int(least):
            beyond = least + _LENGTH[1] - _LENGTH[0] + 1
    else:
        least = given
        beyond = given + 1 if _is_int(given) else None
    if not _is_int(least) or beyond is None or not _is_int(beyond) or not 0 <= least < beyond <= _LENGTH_MAX + 1:
        raise SchemaError(f"{path}: length must be a whole number from 0 to {_LENGTH_MAX}, min below max")
    return least, beyond - 1


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _boolean_maker(properties: dict[str, Any], path: str, key: int) -> Maker:
    if "iteration" in properties:
        found = _numbers_of(properties["iteration"], f"{path} iteration", ("start",), _is_bool)
        if not found:
            raise SchemaError(f"{path} iteration needs start")
        return columns.alternating(found["start"])
    odds = properties.get("odds", 0.5)
    if not _is_number(odds) or not 0 <= odds <= 1:
        raise SchemaError(f"{path}: odds must be a number from 0 to 1")
    return columns.booleans(key, odds)


def _numbers_of(given: Any, path: str, known: tuple[str, ...], fits: Any) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise SchemaError(f"{path} must be an object")
    found = cast("dict[str, Any]", given)
    for name, value in found.items():
        if name not in known:
            raise SchemaError(f"{path}: '{name}' is not supported; supported: {', '.join(known)}")
        if not fits(value):
            raise SchemaError(f"{path}: {name} is {value!r}, which does not fit the type")
    return found


def _bounds(schema: Schema) -> range:
    return _TEMPORAL[TIME] if schema.name == TIME else _INTEGERS[schema.type]


def _range_of(properties: dict[str, Any], path: str, fits: Any, least: Any, beyond: Any) -> tuple[Any, Any]:
    """Return the inclusive minimum and the exclusive maximum."""
    if "range" not in properties:
        return least, beyond
    found = _numbers_of(properties["range"], f"{path} range", ("min", "max"), fits)
    low, high = found.get("min", least), found.get("max", beyond)
    if not found or not low < high:
        raise SchemaError(f"{path}: range needs min or max, and min below max")
    return low, high


def _iteration_of(
    properties: dict[str, Any], path: str, fits: Any, bounds: tuple[Any, Any]
) -> tuple[Any, Any, Any, Any]:  # fmt: skip
    """Return the start, the exclusive end, the step and the first value."""
    what = f"{path} iteration"
    found = _numbers_of(properties["iteration"], what, ("start", "restart", "step", "initial"), fits)
    if "start" not in found:
        raise SchemaError(f"{what} needs start")
    start = found["start"]
    step = found.get("step", -1 if found.get("restart", start) < start else 1)
    restart = found.get("restart", bounds[1] if step > 0 else bounds[0])
    initial = found.get("initial", start)
    low, high = min(start, restart), max(start, restart)
    if not step or restart == start or (restart > start) != (step > 0):
        raise SchemaError(f"{what}: step must lead from start to restart, and the two must differ")
    if not low <= initial <= high or initial == restart:
        raise SchemaError(f"{what}: initial must be from start to before restart")
    return start, restart, step, initial


def _integer_maker(properties: dict[str, Any], schema: Schema, path: str, key: int) -> Maker:
    bounds = _bounds(schema)

    def fits(value: Any) -> bool:
        return _is_int(value) and value in bounds

    if "iteration" in properties:
        return columns.counted(*_iteration_of(properties, path, fits, (bounds.start - 1, bounds.stop)))
    usual = bounds if "range" in properties else _TEMPORAL.get(schema.name, bounds)
    return columns.integers(key, *_range_of(properties, path, fits, usual.start, usual.stop))


def _float_maker(properties: dict[str, Any], schema: Schema, path: str, key: int) -> Maker:
    most = _FLOAT_MAX[schema.type]

    def fits(value: Any) -> bool:
        return _is_number(value) and -most <= value <= most

    if "iteration" in properties:
        made = columns.counted_floats(*_iteration_of(properties, path, fits, (-most, most)))
        return made if schema.type == "FLOAT64" else columns.single(made)
    least, beyond = (-most, most) if "range" in properties else (0.0, 1.0)
    low, high = _range_of(properties, path, fits, least, beyond)
    return columns.floats(key, float(low), float(high), single=schema.type == "FLOAT32")
