"""The public names of the SDK: adding or removing one is a deliberate decision."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from herdmesh import sdk
from herdmesh.sdk import SinkBatch, TaskContext, arrow, spark, testing, validators

EXPORTS = """
AsyncRecordSinkTask AsyncSinkTask AsyncSourceTask Config ConfigData ConfigDef ConfigError ConfigKey ConfigProvider
ConnectError ConnectRecord ConnectorContext DataError ErrantRecordReporter ErrorClass FieldViolation Files Header
Headers Importance JavaDate LedgerSinkTask LedgerTaken LocalFiles Manifest OffsetMap OffsetsLost OpenFiles
PartitionId REQUIRED Recommender RecordConverter RecordError RecordMetadata RecordPredicate RecordSinkTask
RecordSourceTask RecordTransactions RecordTransformation RetriableError Schema SchemaBuilder ScratchFolder Secret
Settings SinkBatch SinkConnector SinkReading SinkTask SourceBatch SourceConnector SourceOffset SourceRecord
SourceTask SourceTaskContext SqlLedger StagingFolder StagingSinkTask Struct TaskContext TaskFailed
TransactionContext Type UnreachableError Validator date_schema decimal_schema group_partitions publish setting
time_schema timestamp_schema waits
"""
SPARK = """
ERRORS HOME_VARIABLE JARS_VARIABLE arrow_of begin cause_of end environment errors_translated has_failed jars_folder
java_class session_of
"""
ARROW = "arrow_schema arrow_source_batch connect_schema to_arrow"
VALIDATORS = """
all_of at_least distinct_values non_empty_list non_empty_string one_of one_of_ignoring_case optional_at_least
optional_between optional_one_of regex
"""
TESTING = "BadConfig RecordForm SinkRunSuite SinkSuite SinkWorld SourceRunSuite SourceSuite SourceWorld json_number"


@pytest.mark.parametrize(
    ("module", "names"), [(sdk, EXPORTS), (arrow, ARROW), (spark, SPARK), (validators, VALIDATORS), (testing, TESTING)]
)
def test_export_lists_are_frozen(module: ModuleType, names: str) -> None:
    listed: list[str] = module.__all__
    assert sorted(listed) == sorted(names.split())
    assert all(hasattr(module, name) for name in listed)


def test_importing_the_sdk_loads_neither_pyarrow_nor_pytest_nor_spark() -> None:
    """The SDK is installed with `herdmesh-core` alone, and every import of a run delays its start."""
    unwanted = {"herdmesh.worker", "pyarrow", "pyspark", "pytest"}
    code = f"import sys, herdmesh.sdk; print(sorted({unwanted!r} & sys.modules.keys()))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


def test_readme_connector_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
