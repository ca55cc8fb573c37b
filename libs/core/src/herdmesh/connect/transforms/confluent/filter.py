"""Filter with a condition: keeps or drops records by the content of their key or value.

Owns the settings.

Invariant: a record that passes is unchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from herdmesh.connect.errors import ConfigError, DataError
from herdmesh.connect.model import Schema
from herdmesh.connect.transforms.base import Code, PartTransformation, Shape
from herdmesh.connect.transforms.confluent import definitions
from herdmesh.connect.transforms.confluent.jsonpath.condition import JsonPathCondition, Lacking
from herdmesh.connect.transforms.confluent.jsonpath.grammar import Unreadable


class ConditionalFilter(PartTransformation):
    """`io.confluent.connect.transforms.Filter`."""

    java_class = "io.confluent.connect.transforms.Filter"
    purpose = "filtering"
    null_passes = False
    config_def = definitions.FILTER
    keeps_json = True

    def _set_up(self, settings: dict[str, Any]) -> None:
        text: str = settings["filter.condition"]
        try:
            self._condition = JsonPathCondition(text)
        except Unreadable as error:
            fix = "write it as $[?(@.field == 'value')]"
            raise ConfigError.for_value("filter.condition", text, f"JSONPath: {error}", fix=fix) from None
        self._text = text
        self._includes = settings["filter.type"] == "include"
        self._missing: str = settings["missing.or.null.behavior"]

    def emit_schemaless(self, code: Code) -> None:
        with code.block(f"if not {code.bind(self._keeps)}({code.read(self.part)})"):
            code.drop()

    def for_schema(self, schema: Schema, shape: Shape) -> tuple[Schema, Callable[[Code], None]]:
        return schema, self.emit_schemaless

    def reads_struct(self, schema: Schema) -> bool:
        return False

    def _keeps(self, value: Any) -> bool:
        try:
            return self._condition.is_met(value) is self._includes
        except Lacking as error:
            if self._missing == "fail":
                raise DataError(
                    f"The {self.part} has no field that {self._text} reads, or it is null: {error}; "
                    "missing.or.null.behavior=include keeps such records, exclude leaves them out"
                ) from None
            return self._missing == "include"
