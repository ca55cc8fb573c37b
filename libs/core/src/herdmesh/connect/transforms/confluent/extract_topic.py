"""ExtractTopic: takes the topic name from a key, a value, a field of either, or a header.

Owns the search for the name.

Invariant: a topic is a text that is not empty. Anything else is refused; with `skip.missing.or.null`, a record without
a name keeps its topic.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, cast

from herdmesh.connect.errors import ConfigError, DataError
from herdmesh.connect.model import Header, Schema, Struct, java_class
from herdmesh.connect.transforms.base import Code, Column, Compiled, PartTransformation, Shape, Transformation
from herdmesh.connect.transforms.confluent import definitions

_PATH = re.compile(r"""\$((?:\.[^.\[\]'"*?@()\s]+|\[(?:'[^']*'|"[^"]*")\])+)""")
_STEP = re.compile(r"""\.([^.\[]+)|\[(?:'([^']*)'|"([^"]*)")\]""")


class ExtractTopic(PartTransformation):
    """`io.confluent.connect.transforms.ExtractTopic$Key` and `$Value`."""

    java_class = "io.confluent.connect.transforms.ExtractTopic"
    purpose = "topic extraction"
    null_passes = False
    config_def = definitions.EXTRACT_TOPIC
    keeps_json = True
    touches = frozenset[Column](("topic",))

    def _set_up(self, settings: dict[str, Any]) -> None:
        field: str = settings["field"]
        path = settings["field.format"].upper() == "JSON_PATH" and field
        self._steps = _steps_of(field) if path else (field,) if field else ()
        self._skip: bool = settings["skip.missing.or.null"]

    def emit_schemaless(self, code: Code) -> None:
        found = f"{code.bind(self._found)}({code.read(self.part)})"
        _emit(code, found, f"The {self.part}", self._steps, skip=self._skip)

    def for_schema(self, schema: Schema, shape: Shape) -> tuple[Schema, Callable[[Code], None]]:
        return schema, self.emit_schemaless

    def _found(self, value: Any) -> Any:
        for step in self._steps:
            if value is None:
                return None
            if type(value) is Struct:
                value = value.get(step) if step in value.schema.places else None
            elif isinstance(value, dict):
                value = cast("dict[str, Any]", value).get(step)
            else:
                kind = java_class(value)
                raise DataError(f"Only Struct or Map objects supported for [{self.purpose}], found: {kind}")
        return value


class ExtractTopicFromHeader(Transformation):
    """`io.confluent.connect.transforms.ExtractTopic$Header`: reads the last header of a name."""

    java_class = "io.confluent.connect.transforms.ExtractTopic$Header"
    config_def = definitions.EXTRACT_TOPIC_HEADER
    touches = frozenset[Column](("topic", "headers"))

    def _set_up(self, settings: dict[str, Any]) -> None:
        self._name: str = settings["field"]
        self._skip: bool = settings["skip.missing.or.null"]

    def compile(self, shape: Shape) -> Compiled:
        def emit(code: Code) -> None:
            found = f"{code.bind(self._found)}({code.read('headers')})"
            _emit(code, found, "The headers", (self._name,), skip=self._skip)

        return Compiled(shape, emit)

    def _found(self, headers: Sequence[Header]) -> Any:
        return next((one.value for one in reversed(headers) if one.key == self._name), None)


def _emit(code: Code, found: str, of: str, steps: Sequence[str], *, skip: bool) -> None:
    """Write the statements that set the topic to the value of this expression."""
    what = f"{of} field '{'.'.join(steps)}'" if steps else of

    def refuse(value: Any) -> None:
        if value is None:
            raise DataError(
                f"{what} is missing or null, but must name the topic; skip.missing.or.null=true keeps the record's "
                "topic"
            )
        raise DataError(f"{what} must be a non-empty string, because it names the topic: {java_class(value)}")

    code.line(f"to = {found}")
    unfit = "type(to) is not str or not to"
    with code.block(f"if to is not None and ({unfit})" if skip else f"if {unfit}"):
        code.line(f"{code.bind(refuse)}(to)")
    code.write("topic", f"{code.read('topic')} if to is None else to" if skip else "to")


def _steps_of(path: str) -> tuple[str, ...]:
    """The names in a path to one field."""
    if _PATH.fullmatch(path) is None:
        message = "Only a path to one field can name a topic"
        fix = "write it as $.name.name or $['name']['name']"
        raise ConfigError.for_value("field", path, message, fix=fix)
    return tuple(next(one for one in step if one) for step in _STEP.findall(path))
