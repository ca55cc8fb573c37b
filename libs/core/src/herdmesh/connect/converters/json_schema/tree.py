"""JSON Schemas as parsed texts that refer to each other: references resolved, and the kind of each schema.

Does not map to Connect (`to_connect` does). Source: the JSON Schema specification (drafts 4 to 2020-12) for references;
Confluent's parser (everit's `SchemaLoader`) for the kind of a schema without `type`, and for schemas of several kinds,
which must satisfy all of them.

Invariant: a reference that leads nowhere, or to itself, is a DataError that names it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import unquote, urldefrag, urljoin

import msgspec

from herdmesh.connect.errors import DataError

_OF_KIND = {
    "object": ("properties", "additionalProperties", "required", "patternProperties", "minProperties", "maxProperties"),
    "array": ("items", "prefixItems", "minItems", "maxItems", "uniqueItems", "contains"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "string": ("minLength", "maxLength", "pattern", "format"),
}
_TYPES = frozenset(("null", "boolean", "integer", "number", "string", "array", "object"))
_CRITERIA = ("allOf", "anyOf", "oneOf")
_HOPS_MAX = 100
_VALUES = frozenset(("enum", "const", "default", "examples"))
"""Members whose content is no schema."""


@dataclass(frozen=True, slots=True)
class SchemaPlace:
    """A schema and its document."""

    document: str
    node: Any

    @property
    def members(self) -> dict[str, Any]:
        """The schema's members; none for `true` and `false`."""
        node: Any = self.node
        return cast("dict[str, Any]", node) if isinstance(node, dict) else {}

    def at(self, node: Any) -> SchemaPlace:
        """Another schema of the same document."""
        return SchemaPlace(self.document, node)


@dataclass(frozen=True, slots=True)
class Part:
    """One aspect of a schema: `kind` is a type, `enum`, `const`, a criterion (`allOf`, ...), `$ref`, `any` (everything
    is allowed) or `not`; `members` are the schemas of a criterion."""

    kind: str
    place: SchemaPlace
    members: tuple[SchemaPlace, ...] = ()


class JsonTree:
    """JSON Schema with all referenced schemas."""

    def __init__(self, text: str, used: Mapping[str, str] | None = None) -> None:
        """`used` are the texts of referenced schemas by their names in references. Raises DataError when one is no JSON
        object or boolean.
        """
        self._documents = {name: _parsed(one) for name, one in (used or {}).items()}
        self._documents[""] = _parsed(text)
        self.root = SchemaPlace("", self._documents[""])
        #: Schemas with an `$id` by its absolute form; and for each schema with a reference, the `$id` that applies to
        #: it.
        self._identified: dict[str, SchemaPlace] = {}
        self._bases: dict[int, str] = {}
        for name, document in self._documents.items():
            self._identify(name, document)

    def resolve(self, place: SchemaPlace) -> SchemaPlace:
        """The schema at the end of its chain of references; a schema without a reference is returned unchanged."""
        begun = place
        for _ in range(_HOPS_MAX):
            reference = place.members.get("$ref")
            if not isinstance(reference, str):
                return place
            place = self._followed(place, reference)
        raise DataError(f"Not a JSON Schema: the reference {begun.members['$ref']!r} leads to itself")

    def part(self, place: SchemaPlace) -> Part:
        """The schema as one part: several parts become an `allOf`."""
        members = place.members
        if "$ref" in members:
            return Part("$ref", place)
        parts = list(self._parts(place))
        if not parts:
            return Part("not" if place.node is False else "any", place)
        if len(parts) == 1:
            return parts[0]
        return Part("allOf", place, tuple(place.at(_only(one)) for one in parts))

    def _parts(self, place: SchemaPlace) -> list[Part]:
        members = place.members
        found: list[Part] = []
        if "enum" in members:
            found.append(Part("enum", place))
        if "const" in members:
            found.append(Part("const", place))
        for criterion in _CRITERIA:
            schemas = members.get(criterion)
            if schemas is not None:
                if not isinstance(schemas, list) or not schemas:
                    raise DataError(f"Not a JSON Schema: {criterion} needs schemas, not {schemas!r}")
                found.append(Part(criterion, place, tuple(map(place.at, cast("list[Any]", schemas)))))
        if "not" in members:
            found.append(Part("not", place))
        return [*found, *self._typed(place)]

    def _typed(self, place: SchemaPlace) -> list[Part]:
        kind = place.members.get("type")
        if isinstance(kind, list):
            one_each = tuple(place.at({**_plain(place.members), "type": one}) for one in cast("list[Any]", kind))
            return [Part("anyOf", place, one_each)]
        if kind is None:
            return [Part(one, place) for one, words in _OF_KIND.items() if not place.members.keys().isdisjoint(words)]
        if kind not in _TYPES:
            raise DataError(f"Not a JSON Schema: unknown type {kind!r}")
        return [Part(kind, place)]

    def _identify(self, document: str, root: Any) -> None:
        """Collect the `$id`s of a document (`id` in draft 4): each is relative to that of the enclosing schema."""
        keyword = _id_keyword(root)
        pending: list[tuple[Any, str]] = [(root, document)]
        while pending:
            node, base = pending.pop()
            if isinstance(node, list):
                pending.extend((one, base) for one in cast("list[Any]", node))
            if not isinstance(node, dict):
                continue
            members = cast("dict[str, Any]", node)
            own = members.get(keyword)
            if isinstance(own, str) and not own.startswith("#"):
                base = urldefrag(urljoin(base, own)).url
                self._identified.setdefault(base, SchemaPlace(document, members))
            if isinstance(members.get("$ref"), str):
                self._bases[id(members)] = base
            pending.extend((one, base) for name, one in members.items() if name not in _VALUES)

    def _followed(self, place: SchemaPlace, reference: str) -> SchemaPlace:
        target, fragment = urldefrag(reference)
        base = self._bases.get(id(place.node), place.document)
        roots = [self._target(place.document, base, target)] if target else [
            *([self._identified[base]] if base in self._identified else []),
            SchemaPlace(place.document, self._documents[place.document]),  # an `$id` inside may not be meant as one
        ]  # fmt: skip
        fragment = unquote(fragment)
        for root in roots:
            if not fragment or fragment == "/":
                return root
            found = _pointed(root.node, fragment) if fragment.startswith("/") else _anchored(root.node, fragment)
            if found is not None:
                return root.at(found)
        raise DataError(f"Not a JSON Schema: the reference {reference!r} leads nowhere")

    def _target(self, document: str, base: str, target: str) -> SchemaPlace:
        """The schema that a reference without its fragment names."""
        for name in (target, urljoin(base, target), urljoin(document, target)):
            if name in self._documents:
                return SchemaPlace(name, self._documents[name])
            if name in self._identified:
                return self._identified[name]
        raise DataError(
            f"Not a JSON Schema: {target!r} is not among the references registered with it "
            f"({', '.join(filter(None, self._documents)) or 'none'})"
        )


def _id_keyword(root: Any) -> str:
    """`id` in the drafts up to 4, `$id` in later ones."""
    version = cast("dict[str, Any]", root).get("$schema") if isinstance(root, dict) else None
    return "id" if isinstance(version, str) and ("draft-04" in version or "draft-03" in version) else "$id"


def _parsed(text: str) -> Any:
    try:
        given = msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise DataError(f"Not a JSON Schema: {error}") from error
    if not isinstance(given, dict | bool):
        raise DataError(f"Not a JSON Schema: {text[:100]}")
    return cast("Any", given)


def _pointed(node: Any, pointer: str) -> Any:
    for step in pointer[1:].split("/"):
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(node, dict):
            node = cast("dict[str, Any]", node).get(name)
        elif isinstance(node, list) and name.isdecimal() and int(name) < len(cast("list[Any]", node)):
            node = cast("list[Any]", node)[int(name)]
        else:
            return None
    return node if isinstance(node, dict | bool) else None  # pyright: ignore[reportUnknownVariableType]


def _anchored(node: Any, name: str) -> Any:
    """The schema with that `$anchor`, or with that `$id` in old drafts."""
    pending: list[Any] = [node]
    while pending:
        one = pending.pop()
        if isinstance(one, dict):
            members = cast("dict[str, Any]", one)
            if members.get("$anchor") == name or members.get("$id") == f"#{name}" or members.get("id") == f"#{name}":
                return members
            pending.extend(members.values())
        elif isinstance(one, list):
            pending.extend(cast("list[Any]", one))
    return None


_OF_OUTER = frozenset(("enum", "const", "not", "title", "description", "default", *_CRITERIA))


def _plain(members: dict[str, Any]) -> dict[str, Any]:
    """The part without members that concern no single type."""
    return {name: value for name, value in members.items() if name not in _OF_OUTER}


def _only(part: Part) -> Any:
    """A schema of this part alone."""
    members = part.place.members
    if part.kind in ("enum", "const", "not", *_CRITERIA) and part.kind in members:
        return {part.kind: members[part.kind]}
    if isinstance(members.get("type"), list):
        return {**_plain(members), "type": members["type"]}
    return {**_plain(members), "type": part.kind}
