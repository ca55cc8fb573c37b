"""The public names of the SDK: adding one is a decision, and so is taking one away."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

import herdmesh.sdk
from herdmesh.sdk import SinkBatch, TaskContext

EXPORTS = """
Config ConfigData ConfigDef ConfigError ConfigKey ConfigProvider ConnectError ConnectRecord ConnectorContext DataError
ErrantRecordReporter ErrorClass FieldViolation Importance Manifest OffsetsLost PartitionId REQUIRED RecordError
RetriableError Schema SinkBatch SinkConnector SinkTask SourceBatch SourceConnector SourceTask SourceTaskContext
StagingFolder StagingSinkTask TaskContext TaskFailed Type publish
"""


def test_the_export_list_is_frozen() -> None:
    assert sorted(herdmesh.sdk.__all__) == sorted(EXPORTS.split())
    assert all(hasattr(herdmesh.sdk, name) for name in herdmesh.sdk.__all__)


def test_the_connector_of_the_readme_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    readme = (Path(__file__).parents[1] / "README.md").read_text()
    code = re.search(r"```python\n(.*?)```", readme, re.DOTALL)
    assert code is not None
    (tmp_path / "readme_example.py").write_text(code.group(1))
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    example = __import__("readme_example")
    connector = example.CountSink()
    connector.start({"file": str(tmp_path / "count")})
    (config,) = connector.task_configs(1)
    task = example.CountTask()
    task.start(config, TaskContext("c", 0, 1, "connect-c", "run"))
    task.put(SinkBatch("t", 0, 5, 6, [1, 2], [None, None], [5, 6], [None, None]))
    task.flush()
    assert (tmp_path / "count.0").read_text() == "2\n"
