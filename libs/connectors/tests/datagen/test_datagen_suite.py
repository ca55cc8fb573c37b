"""The standard suite for authors, applied to `Datagen`, which reads
nothing: "written" means the number of records that each task generates.
"""

from __future__ import annotations

import json
from pathlib import Path

from herdmesh.connectors.datagen.connector import Datagen
from herdmesh.sdk.testing import BadConfig, SourceRunSuite, SourceSuite, SourceWorld, json_number

SCHEMA = json.dumps({
    "type": "record", "name": "made", "fields": [
        {"name": "id", "type": {"type": "long", "arg.properties": {"iteration": {"start": 0}}}},
        {"name": "name", "type": {"type": "string", "arg.properties": {"options": ["one", "two"]}}},
    ],
})  # fmt: skip


class MadeUp(SourceWorld):
    """Numbered records."""

    records_min = 1
    each_task_has_all = True

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._count = 0

    def config(self) -> dict[str, str]:
        return {
            "kafka.topic": self.name, "schema.string": SCHEMA, "max.interval": "0",
            "iterations": str(max(self._count, self.records_min)),
        }  # fmt: skip

    def bad_configs(self) -> list[BadConfig]:
        return [
            ({"schema.string": None}, "schema.string"),
            ({"quickstart": "users"}, "quickstart"),
            ({"schema.string": None, "quickstart": "inventory"}, "quickstart"),
            ({"schema.keyfield": "key"}, "schema.keyfield"),
            ({"max.interval": "-1"}, "max.interval"),
        ]

    def write(self, numbers: range) -> None:
        self._count += len(numbers)

    def number_of(self, value: bytes) -> int:
        return json_number(value, "id")

    def topics(self) -> list[str]:
        return [self.name]


class TestDatagen(SourceSuite):
    connector = Datagen
    world = MadeUp


class TestDatagenRuns(SourceRunSuite):
    connector = Datagen
    world = MadeUp
