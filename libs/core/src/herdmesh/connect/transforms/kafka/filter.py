"""Filter: filters every record (docs/reference/connect/transforms-converters.md, section 2.4). Useful only under a
predicate.

Invariant: no record passes.
"""

from __future__ import annotations

from typing import Any

from herdmesh.connect.transforms.base import Code, Compiled, Shape, Transformation
from herdmesh.connect.transforms.kafka import definitions


class Filter(Transformation):
    """`org.apache.kafka.connect.transforms.Filter`."""

    java_class = "org.apache.kafka.connect.transforms.Filter"
    config_def = definitions.FILTER
    keeps_json = True

    def _set_up(self, settings: dict[str, Any]) -> None:
        return

    def compile(self, shape: Shape) -> Compiled:
        return Compiled(shape, Code.drop)
