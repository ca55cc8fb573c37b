"""The standard suite for connectors, for an author's own tests (pytest; `herdmesh-sdk[testing]`).

An author describes the world outside of the connector, and subclasses a suite:

    class LinesWorld(SourceWorld):
        def config(self) -> dict[str, str]: ...
        def write(self, numbers: range) -> None: ...
        def number_of(self, value: bytes) -> int: ...

    class TestLines(SourceSuite):
        connector = LinesSource
        world = LinesWorld

`SourceSuite` and `SinkSuite` need nothing but Python: they drive the tasks as the record loop does, and let them die at
every point. `SourceRunSuite` and `SinkRunSuite` run the real loop against a broker (the fixture `kafka_bootstrap`),
killed by SIGKILL at every point, for the same world.

Owns nothing: re-exports. The names in `__all__` are public and frozen by a test.
"""

from __future__ import annotations

from herdmesh.sdk.testing.running import SinkRunSuite, SourceRunSuite
from herdmesh.sdk.testing.sink_suite import SinkSuite
from herdmesh.sdk.testing.source_suite import SourceSuite
from herdmesh.sdk.testing.worlds import BadConfig, RecordForm, SinkWorld, SourceWorld, json_number

__all__ = [
    "BadConfig",
    "RecordForm",
    "SinkRunSuite",
    "SinkSuite",
    "SinkWorld",
    "SourceRunSuite",
    "SourceSuite",
    "SourceWorld",
    "json_number",
]
