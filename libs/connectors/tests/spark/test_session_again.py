"""Test of a task's JVM that does not start: the next request starts another. Runs no JVM."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from herdmesh.connect.errors import RetriableError
from herdmesh.connectors.spark.sink.settings import settings_of
from herdmesh.connectors.spark.sink.targets import SparkWriter
from herdmesh.sdk.spark import task_session


def test_a_spark_that_failed_to_start_is_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[Mapping[str, str]] = []

    def start(conf: Mapping[str, str]) -> Any:
        tries.append(conf)
        if len(tries) == 1:
            raise RuntimeError("[JAVA_GATEWAY_EXITED]")
        return "the session"

    monkeypatch.setattr(task_session, "_start", start)
    monkeypatch.setattr(task_session, "_begun", {})
    config = {"spark.format": "json", "spark.option.path": str(tmp_path), "staging.directory": str(tmp_path)}
    writer = SparkWriter(settings_of(config))
    with pytest.raises(RetriableError, match="did not start"):
        writer.session()
    assert writer.session() == "the session"
    assert len(tries) == 2
