"""TombstoneHandler: drops or refuses records without a value.

Owns the setting.

Invariant: a record with a value passes unchanged.
"""

from __future__ import annotations

from typing import Any

import structlog

from herdmesh.connect.errors import DataError
from herdmesh.connect.transforms.base import Code, Column, Compiled, Shape, Transformation
from herdmesh.connect.transforms.confluent import definitions

_log = structlog.get_logger()


class TombstoneHandler(Transformation):
    """`io.confluent.connect.transforms.TombstoneHandler`."""

    java_class = "io.confluent.connect.transforms.TombstoneHandler"
    config_def = definitions.TOMBSTONE_HANDLER
    keeps_json = True
    touches = frozenset[Column](("value",))

    def _set_up(self, settings: dict[str, Any]) -> None:
        self._behavior: str = settings["behavior"]

    def compile(self, shape: Shape) -> Compiled:
        def emit(code: Code) -> None:
            with code.block(f"if {code.read('value')} is None"):
                if self._behavior == "fail":
                    code.line(f"{code.bind(_refuse)}()")
                    return
                if self._behavior == "warn":
                    topic, partition, offset = (code.read(one) for one in ("topic", "partition", "offset"))
                    code.line(f"{code.bind(_warn)}({topic}, {partition}, {offset})")
                code.drop()

        return Compiled(shape, emit)


def _refuse() -> None:
    raise DataError("Tombstone record encountered and TombstoneHandler's behavior is fail")


def _warn(topic: str | None, partition: int | None, offset: int | None) -> None:
    _log.warning("a tombstone was filtered", topic=topic, partition=partition, offset=offset)
