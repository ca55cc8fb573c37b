"""Tests of configs that `SparkSink` refuses before it starts, and of warnings, each by its key."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from herdmesh.connect.errors import ConfigError, RetriableError
from herdmesh.connectors.spark.sink.connector import SparkSink
from herdmesh.connectors.spark.sink.settings import settings_of
from herdmesh.sdk.spark import task_session


def config(folder: Path, **more: str | None) -> dict[str, str | None]:
    """Return a config of a Parquet target; names have `_` for dots."""
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
        ("spark.option.path", None, {"spark_format": "delta"}),
        ("spark.option.path", " ", {"spark_format": "iceberg"}),
        ("spark.sql.hive.metastore.jars", "maven", {}),
        ("spark.sql.catalogImplementation", "hive", {}),
        ("spark.partition.by", "a", {"spark_format": "jdbc", "spark_option_url": "u", "spark_option_dbtable": "t"}),
    ],
)
def test_invalid_configs_are_refused_by_field(
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
def test_the_key_definitions_refuse_invalid_values(tmp_path: Path, field: str, value: str) -> None:
    full = config(tmp_path) | {field: value}
    found = SparkSink.config_def().validate(full)
    assert [name for name, one in found.items() if one.problems] == [field]
    with pytest.raises(ConfigError) as raised:
        SparkSink().start(full)
    assert raised.value.field == field


def test_options_reach_spark_unchanged_and_no_text_shows_passwords(tmp_path: Path) -> None:
    full = config(tmp_path) | {"spark.option.batchSize": "5", "spark.option.password": "hunter22"}
    settings = settings_of(full)
    assert settings.options == {"path": str(tmp_path / "out"), "batchSize": "5", "password": "hunter22"}
    assert "hunter22" not in repr(settings)


def test_session_settings_are_no_options_and_not_on_a_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = {"spark.sql.catalog.lake": "org.example.Catalog", "spark.hadoop.fs.s3a.secret.key": "hunter22"}
    full = config(tmp_path) | catalog
    settings = settings_of(full)
    assert settings.session == catalog
    assert settings.options == {"path": str(tmp_path / "out")}
    assert "hunter22" not in repr(settings)
    assert SparkSink().warnings(full) == []
    launched: list[tuple[str, dict[str, str]]] = []

    def launch(conf: Any) -> None:
        launched.append((os.environ["SPARK_HOME"], dict(conf.getAll())))
        raise OSError("as far as this goes")

    monkeypatch.setattr("pyspark.java_gateway.launch_gateway", launch)
    monkeypatch.setattr(task_session, "_begun", {})  # otherwise the session of the other tests would end
    for held in ("_gateway", "_jvm"):  # pyspark's references to that session
        monkeypatch.setattr(f"pyspark.SparkContext.{held}", None)
    monkeypatch.setenv(task_session.HOME_VARIABLE, "/opt/spark-4.1")
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    with pytest.raises(RetriableError, match="as far as this goes"):
        task_session.session_of(task_session.begin(settings.memory, settings.session))
    ((home, conf),) = launched
    assert (home, os.environ["SPARK_HOME"]) == ("/opt/spark-4.1", "/opt/spark")
    assert conf["spark.driver.memory"] == "512m"
    assert not catalog.keys() & conf.keys()


def test_a_misspelt_key_has_a_warning_and_an_option_has_none(tmp_path: Path) -> None:
    full = config(tmp_path) | {"spark.option.anything": "1", "spark.fromat": "csv"}
    assert SparkSink().validate(full) == []
    assert [one.field for one in SparkSink().warnings(full)] == ["spark.fromat"]


def test_task_configs_have_an_absolute_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    connector = SparkSink()
    connector.start(config(tmp_path) | {"staging.directory": "waiting"})
    assert [one["staging.directory"] for one in connector.task_configs(2)] == [str(tmp_path / "waiting")] * 2
