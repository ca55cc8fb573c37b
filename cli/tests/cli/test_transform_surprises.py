"""Tests with `herd transform` of the section "as in Java, though it surprises" of docs/reference/differences.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from herdmesh.cli.app import app

_STEP = "org.apache.kafka.connect.transforms."
_JSON = {"value.converter": "org.apache.kafka.connect.json.JsonConverter", "transforms": "c"}
_PLAIN = {**_JSON, "value.converter.schemas.enable": "false"}
_DAY_BEFORE = (
    '{"schema":{"type":"int64","name":"org.apache.kafka.connect.data.Timestamp","version":1},"payload":-86400000}'
)


@pytest.mark.parametrize(
    ("config", "value", "field", "shown"),
    [
        ({**_JSON, "transforms.c.type": f"{_STEP}Cast$Value", "transforms.c.spec": "string"}, _DAY_BEFORE, "value",
         "00:00:00.000Z"),
        ({**_PLAIN, "transforms.c.type": f"{_STEP}InsertHeader", "transforms.c.header": "v",
          "transforms.c.value.literal": "2.0"}, "{}", "headers", [{"key": "v", "value": 2}]),
        ({**_PLAIN, "transforms.c.type": f"{_STEP}InsertHeader", "transforms.c.header": "v",
          "transforms.c.value.literal": "1::2"}, "{}", "headers", [{"key": "v", "value": 1}]),
        ({**_PLAIN, "transforms.c.type": f"{_STEP}ExtractField$Value", "transforms.c.field": "a"},
         '{"a":9223372036854775808}', "value", -(1 << 63)),
    ],
)  # fmt: skip
def test_the_result_is_that_of_the_page(
    tmp_path: Path, config: dict[str, str], value: str, field: str, shown: Any
) -> None:
    chain, records = tmp_path / "chain.json", tmp_path / "records"
    chain.write_text(json.dumps({"connector.class": "FileStreamSink", "topics": "t", "file": "f", **config}))
    records.write_text(f"{value}\n")
    done = CliRunner().invoke(app, ["transform", "-c", str(chain), "--input", "lines", str(records)])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout.splitlines()[0])[field] == shown
