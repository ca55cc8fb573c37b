"""Evaluation of a JSONPath condition on a key or value.

Owns the steps along the path.

Invariant: the value is not changed, whatever it is: structs, maps, lists, single values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from herdmesh.connect.java import float_text
from herdmesh.connect.model import Struct
from herdmesh.connect.transforms.confluent.jsonpath.comparing import MISSING
from herdmesh.connect.transforms.confluent.jsonpath.grammar import ConditionParser, Filter, Steps


class Lacking(Exception):
    """The record has no value, or null, for a field that the condition reads; the text names the field."""


class JsonPathCondition:
    """One compiled condition. Raises `grammar.Unreadable`."""

    def __init__(self, text: str) -> None:
        self._steps = [_compiled(step) if isinstance(step, Filter) else step for step in ConditionParser(text).path()]
        only = self._steps[0] if len(self._steps) == 1 else None
        self._quick = only.quick if isinstance(only, _Compiled) else None

    def is_met(self, value: Any) -> bool:
        """True when the condition finds any value. Raises Lacking."""
        if self._quick is not None and type(value) in _OBJECTS:
            return self._quick(value)
        nodes: list[Any] = [value]
        many = False
        for step in self._steps:
            nodes, many = _next(nodes, step, value, many=many)
        return bool(nodes)

    def count(self, value: Any) -> int:
        """The number of values that the condition finds, as Jayway counts them. Raises Lacking where Jayway raises."""
        nodes: list[Any] = [value]
        many = False
        for step in self._steps:
            nodes, many = _next(nodes, step, value, many=many, strict=False)
        return len(nodes)


@dataclass(frozen=True, slots=True)
class _Compiled:
    """A filter, compiled to functions."""

    fields: list[tuple[bool, Steps]]
    needed: list[int]
    test: Callable[..., bool]
    """Tests the values of the fields."""
    quick: Callable[[Any], bool]
    """Tests a struct or map. Raises Lacking."""


_OBJECTS = frozenset((dict, Struct))


def _compiled(given: Filter) -> _Compiled:
    """Compile a filter. Texts enter the generated code as constants only."""
    names = [f"v{place}" for place in range(len(given.fields))]
    constants = {**given.constants, "child": _child, "reach": _reach, "MISSING": MISSING, "lack": _lack}
    lines = [f"def test({', '.join(names)}):", f"    return {given.expression}", "def quick(value):"]
    maps, structs = ["    if type(value) is dict:", "        pass"], ["    else:", "        pass"]
    for place, (_, steps) in enumerate(given.fields):
        constants[f"steps{place}"] = steps
        if len(steps) == 1 and isinstance(steps[0], str):
            constants[f"name{place}"] = steps[0]
            maps.append(f"        v{place} = value.get(name{place}, MISSING)")
            structs.append(f"        v{place} = child(value, name{place})")
        else:
            lines.append(f"    v{place} = reach(value, steps{place})")
    lines += [*maps, *structs]
    lines += [f"    if v{place} is None or v{place} is MISSING: lack(steps{place})" for place in sorted(given.needed)]
    lines.append(f"    return {given.expression}")
    namespace: dict[str, Any] = constants
    exec(compile("\n".join(lines) + "\n", "<condition>", "exec"), namespace)
    return _Compiled(given.fields, sorted(given.needed), namespace["test"], namespace["quick"])


def _lack(steps: Steps) -> None:
    raise Lacking(".".join(map(str, steps)) or "the value itself")


_Step = str | int | _Compiled | None


def _next(nodes: list[Any], step: _Step, root: Any, *, many: bool, strict: bool = True) -> tuple[list[Any], bool]:
    """Values after one more step, and whether several values are possible now. `strict`: null counts as missing."""
    if isinstance(step, _Compiled) or step is None:
        found: list[Any] = []
        for node in nodes:
            inner = _elements(node, step)
            if inner is None and not many and step is not None:
                raise Lacking("the value is not an object or list")
            found += inner or ()
        return (_filtered(found, step, root, strict=strict) if step is not None else found), True
    reached = [one for one in (_child(node, step) for node in nodes) if one is not MISSING]
    if not many and (not reached or (strict and reached[0] is None)):
        raise Lacking(str(step))
    return reached, many


def _elements(node: Any, step: _Compiled | None) -> Sequence[Any] | None:
    if isinstance(node, list):
        return cast("list[Any]", node)
    if step is not None:  # Jayway tests the object itself, not its members
        return [node] if isinstance(node, dict | Struct) else None
    if isinstance(node, dict):
        return list(cast("dict[Any, Any]", node).values())
    return node.values if isinstance(node, Struct) else None


def _filtered(nodes: list[Any], step: _Compiled, root: Any, *, strict: bool = True) -> list[Any]:
    """The nodes that the filter accepts. Raises Lacking when none of them has a field that the filter needs."""
    rows = [[_reach(root if absolute else node, steps) for absolute, steps in step.fields] for node in nodes]
    if strict and rows:
        for place in step.needed:
            if all(row[place] is None or row[place] is MISSING for row in rows):
                _lack(step.fields[place][1])
    return [node for node, row in zip(nodes, rows, strict=True) if step.test(*row)]


def _reach(node: Any, steps: Steps) -> Any:
    for step in steps:
        node = _child(node, step)
        if node is MISSING:
            return MISSING
    return node


def _child(node: Any, step: str | int) -> Any:
    if type(node) is dict:
        return cast("dict[Any, Any]", node).get(step, MISSING) if isinstance(step, str) else MISSING
    if type(node) is Struct:
        place = node.schema.places.get(step) if isinstance(step, str) else None
        if place is None:
            return MISSING
        value = node.values[place]
        if type(value) is float and node.schema.fields[place].schema.type == "FLOAT32":
            return float(float_text(value))  # parsed from its printed text, not widened
        return node.schema.fields[place].schema.default if value is None else value
    if isinstance(node, list) and isinstance(step, int):
        items = cast("list[Any]", node)
        return items[step] if -len(items) <= step < len(items) else MISSING
    return MISSING
