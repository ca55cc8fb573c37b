"""Avro schemas as trees: names made full, references looked up, and the text a registry is given.

Owns reading and writing of schema JSON; what a schema means to Connect is in `avro_to_connect` and `avro_from_connect`.
Source: the Avro 1.12 specification ("Names", "Schema Declaration"); the text's order of members is that of Java's
`Schema.toString`, so that a registry takes a schema of Java's converter and one of ours for the same.

Invariant: in a tree every named type is defined once, under its full name, and used by that name elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import msgspec

from herdmesh.connect.errors import DataError

PRIMITIVE = frozenset(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))
_NAMED = frozenset(("record", "error", "enum", "fixed"))
Node = Any
"""A name, a list (union), or a dict with `type`; named types have their full name in `name`."""


class AvroTree:
    """A schema with everything it names."""

    def __init__(self, text: str, used: Mapping[str, AvroTree] | None = None) -> None:
        """`used` are the trees of referenced schemas. Raises DataError when the text is no Avro schema."""
        self.names: dict[str, dict[str, Any]] = {}
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

    def resolve(self, node: Node) -> Node:
        """What a name stands for; anything else is itself."""
        return self.names.get(node, node) if isinstance(node, str) else node

    def _full(self, node: Any, namespace: str) -> Node:
        if isinstance(node, list):
            return [self._full(one, namespace) for one in cast("list[Any]", node)]
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

    def _used(self, name: str, namespace: str) -> str:
        if name in PRIMITIVE:
            return name
        for full in (name, f"{namespace}.{name}") if "." in name or not namespace else (f"{namespace}.{name}", name):
            if full in self.names:
                return full
        raise DataError(f'Not an Avro schema: undefined name "{name}"')

    def _defined(self, one: dict[str, Any], kind: str, namespace: str) -> dict[str, Any]:
        name, own = one.get("name"), one.pop("namespace", None)
        if not isinstance(name, str) or not name:
            raise DataError(f"Not an Avro schema: a {kind} without a name")
        if "." not in name:
            space = own if isinstance(own, str) else namespace
            name = f"{space}.{name}" if space else name
        one["name"] = name
        if name in self.names:
            raise DataError(f"Not an Avro schema: can't redefine {name}")
        self.names[name] = one
        if kind == "fixed":
            if not isinstance(one.get("size"), int) or one["size"] < 0:
                raise DataError(f"Not an Avro schema: fixed {name} needs a size")
        elif kind == "enum":
            symbols = one.get("symbols")
            if not isinstance(symbols, list) or not all(isinstance(s, str) for s in cast("list[Any]", symbols)):
                raise DataError(f"Not an Avro schema: enum {name} needs symbols")
        else:
            one["fields"] = [self._field(field, name) for field in one.get("fields") or ()]
        return one

    def _field(self, field: Any, record: str) -> dict[str, Any]:
        if not isinstance(field, dict) or not isinstance(field.get("name"), str) or "type" not in field:  # pyright: ignore[reportUnknownMemberType]
            raise DataError(f"Not an Avro schema: a field of {record} needs a name and a type")
        one = cast("dict[str, Any]", field)
        return {**one, "type": self._full(one["type"], record.rpartition(".")[0])}


def text_of(node: Node) -> str:
    """The schema's JSON, as Java's `Schema.toString` orders it."""
    return msgspec.json.encode(_written(node, "")).decode()


def _written(node: Node, namespace: str) -> Any:
    if isinstance(node, list):
        return [_written(one, namespace) for one in cast("list[Any]", node)]
    if isinstance(node, str):
        space, _, simple = node.rpartition(".")
        return simple if space and space == namespace else node
    one: dict[str, Any] = dict(node)
    kind = one.pop("type")
    written: dict[str, Any] = {"type": kind}
    if kind in _NAMED:
        space, _, written["name"] = one.pop("name").rpartition(".")
        if space and space != namespace:
            written["namespace"] = space
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
    """Whether this is the null type."""
    return node == "null" or (isinstance(node, dict) and cast("dict[str, Any]", node).get("type") == "null")


def kind_of(node: Node) -> str:
    """`union`, or the type's name; of a resolved node."""
    if isinstance(node, list):
        return "union"
    return node if isinstance(node, str) else node["type"]


def valid_default(tree_names: Mapping[str, Any], node: Node, value: Any) -> bool:
    """Whether a JSON value can be a field's default (specification, "Complex Types"; a union's is of its first)."""
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
