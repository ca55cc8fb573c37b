"""Avro schemas as trees: full names, resolved references, and the text for a registry.

Owns reading and writing of schema JSON; the mapping to Connect is in `to_connect` and `from_connect`. Source: the
Avro 1.12 specification ("Names", "Schema Declaration"). The text's order of members is that of Java's
`Schema.toString`, so that a registry finds a schema of Java's converter and one of this converter equal.

A type without a namespace inherits that of the enclosing named type, and of no array, map or union.

Invariant: in a tree every named type is defined once, under its full name, and used by that name elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

import msgspec

from herdmesh.connect.errors import DataError

PRIMITIVE = frozenset(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))
_NAMED = frozenset(("record", "error", "enum", "fixed"))
Node = Any
"""A name, a list (union), or a dict with `type`; named types have their full name in `name`."""


class AvroTree:
    """Avro schema with all referenced schemas."""

    def __init__(self, text: str, used: Mapping[str, AvroTree] | None = None) -> None:
        """`used` are the trees of referenced schemas. Raises DataError when the text is no Avro schema."""
        self.names: dict[str, dict[str, Any]] = {}
        self._awaited: set[str] = set()
        for one in (used or {}).values():
            self.names.update(one.names)
        try:
            given = msgspec.json.decode(text)
        except msgspec.MsgspecError as error:
            raise DataError(f"Not an Avro schema: {error}") from error
        try:
            self.root: Node = self._full(given, "")
        except RecursionError as error:
            raise DataError("Not an Avro schema: nested too deeply") from error
        if undefined := sorted(self._awaited - self.names.keys()):
            raise DataError(f'Not an Avro schema: undefined name "{undefined[0]}"')

    @property
    def has_forward_references(self) -> bool:
        """True when a name is used before its definition."""
        return bool(self._awaited)

    def resolve(self, node: Node) -> Node:
        """The definition of a name; any other node is returned unchanged."""
        return self.names.get(node, node) if isinstance(node, str) else node

    def _full(self, node: Any, namespace: str) -> Node:
        if isinstance(node, list):
            return self._union(cast("list[Any]", node), namespace)
        if isinstance(node, str):
            return self._used(node, namespace)
        if not isinstance(node, dict) or "type" not in node:
            raise DataError(f"Not an Avro schema: {node}")
        one = dict(cast("dict[str, Any]", node))
        kind = one["type"]
        if not isinstance(kind, str):
            return self._full(kind, namespace)
        if kind in _NAMED:
            return self._defined(one, kind, namespace)
        if kind == "array":
            one["items"] = self._full(one.get("items"), namespace)
        elif kind == "map":
            one["values"] = self._full(one.get("values"), namespace)
        elif kind not in PRIMITIVE:
            return self._used(kind, namespace)
        return one

    def _union(self, node: list[Any], namespace: str) -> list[Node]:
        made = [self._full(one, namespace) for one in node]
        seen: set[str] = set()
        for one in made:
            if isinstance(one, list):
                raise DataError(f"Not an Avro schema: a union within a union: {node}")
            name = one if isinstance(one, str) else one.get("name", one["type"]) if _is_named(one) else one["type"]
            if name in seen:
                raise DataError(f"Not an Avro schema: {name} is twice in one union")
            seen.add(name)
        return made

    def _used(self, name: str, namespace: str) -> str:
        """The full name. As in Java, a name that is not in the namespace it is used in may be one without a namespace,
        and an undefined name may be defined later.
        """
        if name in PRIMITIVE:
            return name
        full = f"{namespace}.{name}" if namespace and "." not in name else name
        if full in self.names:
            return full
        if "." not in name and name in self.names:
            return name
        self._awaited.add(full)
        return full

    def _defined(self, one: dict[str, Any], kind: str, namespace: str) -> Node:
        name = _full_name(one.get("name"), one.pop("namespace", None), kind, namespace)
        one["name"] = name
        known = self.names.get(name)
        if known is None:
            self.names[name] = one
        if kind == "fixed":
            size = one.get("size")
            if not isinstance(size, int) or isinstance(size, bool) or size < 0:
                raise DataError(f"Not an Avro schema: fixed {name} needs a size")
        elif kind == "enum":
            _check_symbols(one, name)
        elif not isinstance(one.get("fields"), list):
            raise DataError(f"Not an Avro schema: record {name} has no fields")
        else:
            one["fields"] = [self._field(field, name) for field in one["fields"]]
            if (twice := _first_twice(field["name"] for field in one["fields"])) is not None:
                raise DataError(f"Not an Avro schema: field {twice} is twice in record {name}")
        if known is None:
            return one
        if known != one:
            raise DataError(f"Not an Avro schema: can't redefine {name}")
        return name  # a second definition that equals the first, which Java accepts too

    def _field(self, field: Any, record: str) -> dict[str, Any]:
        if not isinstance(field, dict) or not isinstance(field.get("name"), str) or "type" not in field:  # pyright: ignore[reportUnknownMemberType]
            raise DataError(f"Not an Avro schema: a field of {record} needs a name and a type")
        one = cast("dict[str, Any]", field)
        _check_name(one["name"])
        return {**one, "type": self._full(one["type"], record.rpartition(".")[0])}


def _is_named(node: dict[str, Any]) -> bool:
    return node["type"] in _NAMED


def _full_name(name: Any, own: Any, kind: str, namespace: str) -> str:
    """Full name of a definition. A name with a dot is a full name, and `namespace` is ignored; a name without a dot is
    in its own namespace ("" = in none), or else in that of the enclosing type. Raises DataError.
    """
    if not isinstance(name, str) or not name:
        raise DataError(f"Not an Avro schema: a {kind} without a name")
    space, dot, simple = name.rpartition(".")
    if not dot:
        space = own if isinstance(own, str) else namespace
    for part in (*space.split("."), simple) if space else (simple,):
        _check_name(part)
    if not space and simple in PRIMITIVE:
        raise DataError(f"Not an Avro schema: a {kind} cannot have the name {simple} of a primitive type")
    return f"{space}.{simple}" if space else simple


def _check_name(name: str) -> None:
    """Check a name as Java's parser does: letters of any script, digits, and underscores. Raises DataError."""
    if not name:
        raise DataError("Not an Avro schema: an empty name, or an empty part of a namespace")
    first, *others = name
    if not (first == "_" or first.isalpha()) or not all(c == "_" or c.isalpha() or c.isdecimal() for c in others):
        raise DataError(f"Not an Avro schema: illegal character in name {name!r}: letters, digits and _ are allowed")


def _check_symbols(enum: dict[str, Any], name: str) -> None:
    symbols = enum.get("symbols")
    if not isinstance(symbols, list) or not all(isinstance(s, str) for s in cast("list[Any]", symbols)):
        raise DataError(f"Not an Avro schema: enum {name} needs symbols")
    for symbol in cast("list[str]", symbols):
        _check_name(symbol)
    if (twice := _first_twice(cast("list[str]", symbols))) is not None:
        raise DataError(f"Not an Avro schema: symbol {twice} is twice in enum {name}")
    default = enum.get("default")
    if default is not None and default not in symbols:
        raise DataError(f"Not an Avro schema: the default {default} of enum {name} is none of its symbols")


def _first_twice(names: Iterable[str]) -> str | None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def text_of(node: Node) -> str:
    """The schema's JSON, in the order of Java's `Schema.toString`."""
    return msgspec.json.encode(_written(node, "")).decode()


def _written(node: Node, namespace: str) -> Any:
    if isinstance(node, list):
        return [_written(one, namespace) for one in cast("list[Any]", node)]
    if isinstance(node, str):
        space, _, simple = node.rpartition(".")
        return simple if space and space == namespace and simple not in PRIMITIVE else node
    one: dict[str, Any] = dict(node)
    kind = one.pop("type")
    written: dict[str, Any] = {"type": kind}
    if kind in _NAMED:
        space, _, written["name"] = one.pop("name").rpartition(".")
        if space != namespace:
            written["namespace"] = space  # also an empty one inside a namespace, which would be inherited
        if one.get("doc") is not None:
            written["doc"] = one["doc"]
        one.pop("doc", None)
        if "fields" in one:
            written["fields"] = [{**f, "type": _written(f["type"], space)} for f in one.pop("fields")]
    for member in ("items", "values"):
        if member in one:
            written[member] = _written(one.pop(member), namespace)
    written.update(one)
    return kind if written.keys() == {"type"} and kind in PRIMITIVE else written


def is_null(node: Node) -> bool:
    """True for the null type."""
    return node == "null" or (isinstance(node, dict) and cast("dict[str, Any]", node).get("type") == "null")


def kind_of(node: Node) -> str:
    """`union`, or the type's name, of a resolved node."""
    if isinstance(node, list):
        return "union"
    return node if isinstance(node, str) else node["type"]


def valid_default(tree_names: Mapping[str, Any], node: Node, value: Any) -> bool:
    """True when a JSON value can be a field's default (specification, "Complex Types"; a union's default is of its
    first type).
    """
    node = tree_names.get(node, node) if isinstance(node, str) else node
    kind = kind_of(node)
    match kind:
        case "union":
            return bool(node) and valid_default(tree_names, node[0], value)
        case "null":
            return value is None
        case "boolean":
            return isinstance(value, bool)
        case "int" | "long":
            bits = 31 if kind == "int" else 63
            return isinstance(value, int) and not isinstance(value, bool) and -(1 << bits) <= value < 1 << bits
        case "float" | "double":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "array":
            return isinstance(value, list) and all(
                valid_default(tree_names, node["items"], one) for one in cast("list[Any]", value)
            )
        case "map":
            return isinstance(value, dict) and all(
                valid_default(tree_names, node["values"], one) for one in cast("dict[str, Any]", value).values()
            )
        case "record" | "error":
            return isinstance(value, dict) and all(
                valid_default(tree_names, f["type"], cast("dict[str, Any]", value).get(f["name"], f.get("default")))
                for f in node["fields"]
            )
        case _:
            return isinstance(value, str)
