"""What `SparkSink` refuses before it starts, and what it warns of: each by its key."""

from __future__ import annotations

from pathlib import Path

import pytest

from herdmesh.connect.errors import ConfigError
from herdmesh.worker.connectors.spark.settings import settings_of
from herdmesh.worker.connectors.spark.sink import SparkSink


def config(folder: Path, **more: str | None) -> dict[str, str | None]:
    """A config of a Parquet target; names with `_` for the dots."""
    full: dict[str, str | None] = {
        "spark.format": "parquet", "spark.option.path": str(folder / "out"), "staging.directory": str(folder / "s"),
        **{name.replace("_", "."): value for name, value in more.items()},
    }  # fmt: skip
    return {name: value for name, value in full.items() if value is not None}


@pytest.mark.parametrize(
    ("field", "value", "more"),
    [
        ("spark.option.path", None, {}),
        ("spark.option.url", None, {"spark_format": "jdbc", "spark_option_dbtable": "t"}),
        ("spark.option.dbtable", " ", {"spark_format": "jdbc", "spark_option_url": "jdbc:x:"}),
        ("staging.directory", "/data/{a,b}", {}),
        ("staging.directory", "/proc/no", {}),
        ("spark.partition.by", "a", {"spark_format": "jdbc", "spark_option_url": "u", "spark_option_dbtable": "t"}),
    ],
)
def test_what_cannot_work_is_named_by_its_field(
    tmp_path: Path, field: str, value: str | None, more: dict[str, str]
) -> None:
    (problem,) = SparkSink().validate(config(tmp_path, **more, **{field.replace(".", "_"): value}))
    assert problem.field == field
    assert problem.fix


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("spark.format", ""),
        ("spark.mode", "overwrite"),
        ("spark.memory", "lots"),
        ("spark.memory", "100m"),
        ("flush.records", "0"),
        ("staging.directory", ""),
    ],
)
def test_the_definition_refuses(tmp_path: Path, field: str, value: str) -> None:
    full = config(tmp_path) | {field: value}
    found = SparkSink.config_def().validate(full)
    assert [name for name, one in found.items() if one.problems] == [field]
    with pytest.raises(ConfigError) as raised:
        SparkSink().start(full)
    assert raised.value.field == field


def test_options_reach_spark_as_they_are_written_and_passwords_no_text(tmp_path: Path) -> None:
    full = config(tmp_path) | {"spark.option.batchSize": "5", "spark.option.password": "hunter22"}
    settings = settings_of(full)
    assert settings.options == {"path": str(tmp_path / "out"), "batchSize": "5", "password": "hunter22"}
    assert "hunter22" not in repr(settings)


def test_a_misspelt_key_is_warned_of_and_an_option_is_not(tmp_path: Path) -> None:
    full = config(tmp_path) | {"spark.option.anything": "1", "spark.fromat": "csv"}
    assert SparkSink().validate(full) == []
    assert [one.field for one in SparkSink().warnings(full)] == ["spark.fromat"]


def test_task_configs_carry_an_absolute_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    connector = SparkSink()
    connector.start(config(tmp_path) | {"staging.directory": "waiting"})
    assert [one["staging.directory"] for one in connector.task_configs(2)] == [str(tmp_path / "waiting")] * 2
