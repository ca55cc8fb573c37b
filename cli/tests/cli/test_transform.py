"""Tests of `herd transform` from the command line: forms of input, outputs, exit codes, imports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from herdmesh.cli.commands.transform import alone
from herdmesh.cli.display.records import plain
from herdmesh.cli.transform.reading import line_batches
from herdmesh.connect.model.data import Float32
from tests.support.plugin_environments import Environment

_JSON = {"value.converter": "org.apache.kafka.connect.json.JsonConverter", "value.converter.schemas.enable": False}
_CHAIN = {
    "topics": "orders",
    **_JSON,
    "transforms": "mask,noTests",
    "transforms.mask.type": "org.apache.kafka.connect.transforms.MaskField$Value",
    "transforms.mask.fields": "card",
    "transforms.noTests.type": "org.apache.kafka.connect.transforms.Filter",
    "transforms.noTests.predicate": "isTest",
    "predicates": "isTest",
    "predicates.isTest.type": "org.apache.kafka.connect.transforms.predicates.HasHeaderKey",
    "predicates.isTest.name": "test",
}
_GOOD = b'{"key": "a", "value": {"card": "4111", "qty": 2}}\n'
_TEST = b'{"value": {"card": "1"}, "headers": {"test": "x"}}\n'
_BAD = b'{"key": "b", "value": "no order"}\n'


def herd(folder: Path, given: bytes, *options: str, config: Any = _CHAIN) -> Result:
    """Run the command with that input on stdin."""
    file = folder / "chain.json"
    file.write_text(json.dumps(config))
    return CliRunner().invoke(alone, ["transform", "--config", str(file), *options], input=given)


def lines(result: Result) -> list[Any]:
    """The documents on standard output."""
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_a_failed_record_is_reported_with_its_line_and_the_rest_continues(tmp_path: Path) -> None:
    result = herd(tmp_path, _GOOD + _TEST + _BAD + _GOOD)
    assert result.exit_code == 1
    assert [one["offset"] for one in lines(result)] == [0, 3]
    assert lines(result)[0] == {
        "topic": "orders", "partition": 0, "offset": 0, "key": "a", "value": {"card": "", "qty": 2}
    }  # fmt: skip
    told, summary = result.stderr.splitlines()
    assert told.startswith("line 3: VALUE_CONVERTER, converter org.apache.kafka.connect.json.JsonConverter: ")
    assert "org.apache.kafka.connect.errors.DataException: Converting byte[] to Kafka Connect data failed" in told
    assert summary == "4 read, 2 written, 1 filtered by the chain, 1 failed"


def test_an_absent_key_is_read_by_its_converter_too(tmp_path: Path) -> None:
    """A sink task does the same: a null that StringConverter reads has the schema of a string."""
    config = {**_JSON, "key.converter": "String"}
    [record] = lines(herd(tmp_path, b'{"value": 1}\n', "-o", "typed", config=config))
    assert (record["key"], record["keySchema"]) == (None, {"type": "string", "optional": True})


def test_tolerance_and_fail_fast(tmp_path: Path) -> None:
    tolerated = herd(tmp_path, _GOOD + _BAD + _GOOD, "--tolerance", "all")
    assert (tolerated.exit_code, len(lines(tolerated))) == (0, 2)
    ended = herd(tmp_path, _GOOD + _BAD + _GOOD, "--fail-fast")
    assert (ended.exit_code, len(lines(ended))) == (1, 1)
    assert "ended at the first failure" in ended.stderr
    assert herd(tmp_path, _GOOD, "--fail-fast", "--tolerance", "all").exit_code == 2


def test_a_line_that_is_not_a_record_is_reported_with_the_correct_form(tmp_path: Path) -> None:
    result = herd(tmp_path, _GOOD + b'{"value": 1, "topik": "x"}\n{"value": {"base64": "*"}}\nno\n' + _GOOD)
    assert result.exit_code == 1
    assert len(lines(result)) == 2
    first, second, third, _ = result.stderr.splitlines()
    assert first.startswith("line 2: no member of a record: topik; known are headers, key, ")
    assert second.startswith("line 3: value is not Base64")
    assert third.startswith("line 4: not JSON")
    assert "--input lines" in third


def test_lines_that_are_not_records_are_values(tmp_path: Path) -> None:
    read = herd(tmp_path, b'{"card": "4111"}\n{"card": null}', "-o", "value")
    assert lines(read) == [{"card": ""}, {"card": None}]
    no_converter = {key: value for key, value in _CHAIN.items() if "converter" not in key}
    assert lines(herd(tmp_path, b'{"card": 4111}\n', "-o", "value", config=no_converter)) == [{"card": 0}]


def test_values_are_converted_to_bytes_and_back(tmp_path: Path) -> None:
    written = herd(tmp_path, b'{"value": {"n": 1.5}, "headers": {"h": true}}\n', "--direction", "source", config=_JSON)
    assert lines(written) == [
        {"topic": "records", "key": None, "value": '{"n":1.5}', "headers": [{"key": "h", "value": "true"}]}
    ]
    assert lines(herd(tmp_path, written.stdout_bytes, config=_JSON))[0]["value"] == {"n": 1.5}
    typed = lines(herd(tmp_path, _GOOD, "-o", "typed"))[0]
    assert typed["keySchema"] == {"type": "string", "optional": True}
    assert typed["value"] == {"card": "", "qty": {"$i64": 2}}


def test_a_bad_config_is_refused_with_every_key_to_change(tmp_path: Path) -> None:
    wrong = {**_CHAIN, "value.converter": "Jason", "transforms.mask.fields": "", "transforms.noTests.predicate": "x"}
    result = herd(tmp_path, _GOOD, config=wrong)
    assert result.exit_code == 5
    assert not result.stdout
    named = [line.strip().partition(":")[0] for line in result.stderr.splitlines()[1:-1]]
    assert named == ["value.converter", "transforms.mask.fields", "transforms.noTests.predicate"]
    assert herd(tmp_path, _GOOD, config=[]).exit_code == 2
    assert "nothing.json: cannot be read" in herd(tmp_path, _GOOD, str(tmp_path / "nothing.json")).stderr


def test_configs_in_every_form_and_converters_from_a_worker_file(tmp_path: Path) -> None:
    wanted = lines(herd(tmp_path, _GOOD))
    assert lines(herd(tmp_path, _GOOD, config={"name": "n", "config": _CHAIN})) == wanted
    assert lines(herd(tmp_path, _GOOD, config=[{"name": "n", "config": _CHAIN}])) == wanted
    worker, chain = tmp_path / "worker.properties", tmp_path / "chain.properties"
    text = {key: str(value).lower() if value is False else value for key, value in _CHAIN.items()}
    converters = [key for key in text if "converter" in key]
    worker.write_text("".join(f"{key}={text[key]}\n" for key in converters) + "key.converter=String\n")
    chain.write_text("".join(f"{key}={value}\n" for key, value in text.items() if key not in converters))
    options = ["transform", "--config", str(chain), "--worker-config", str(worker)]
    assert lines(CliRunner().invoke(alone, options, input=_GOOD)) == wanted


def test_explain_shows_the_compiled_loop_and_the_steps_that_need_decoding(tmp_path: Path) -> None:
    told = herd(tmp_path, _GOOD + _BAD, "--explain").stdout
    assert "value      org.apache.kafka.connect.json.JsonConverter: decoded; read or changed by mask" in told
    assert "key        org.apache.kafka.connect.storage.StringConverter: decoded for the task; no tr" in told
    assert "2. noTests: org.apache.kafka.connect.transforms.Filter, if isTest (" in told
    assert 'records of a sink, key of schema {"type": "string", "optional": true}, value without schema' in told
    assert "for value, headers, at in zip(" in told
    copied = herd(tmp_path, b"x\n", "--explain", config={"value.converter": "String"}).stdout
    assert "passed on as bytes; decoded only if the task reads it" in copied
    assert "nothing to do for these" in copied


_OWN = """
from herdmesh.sdk import RecordConverter, RecordPredicate, RecordTransformation
class Twice(RecordTransformation):
    class_name, aliases = "org.example.Twice", ("Twice",)
    def apply(self, record):
        record.value = record.value * 2
        return record
class Odd(RecordPredicate):
    class_name, aliases = "org.example.Odd", ("Odd",)
    def test(self, record):
        return len(record.value) % 2 == 1
class Text(RecordConverter):
    class_name, aliases = "org.example.Text", ("Text",)
    def to_connect(self, topic, data):
        return None, data.decode()
    def from_connect(self, topic, schema, value):
        return value.encode()
"""


def test_custom_steps_run_and_are_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They run as in a worker, where they are installed."""
    own = Environment(tmp_path / "plugin").install(
        "own_steps", "1", {"own_steps.py": _OWN}, transformations=["T = own_steps:Twice"],
        predicates=["O = own_steps:Odd"], converters=["C = own_steps:Text"],
    )  # fmt: skip
    monkeypatch.setattr(sys, "path", [str(own.packages), *sys.path])
    config = {
        "topics": "t", "value.converter": "Text", "transforms": "twice", "transforms.twice.type": "Twice",
        "transforms.twice.predicate": "odd", "predicates": "odd", "predicates.odd.type": "Odd",
    }  # fmt: skip
    result = herd(tmp_path, b"abc\nab\n", config=config)
    assert result.exit_code == 0, result.stderr
    assert [one["value"] for one in lines(result)] == ["abcabc", "ab"]
    told = herd(tmp_path, b"abc\n", "--explain", config=config).stdout
    for text in (
        "org.example.Text", "1. twice: org.example.Twice, if odd (org.example.Odd); touches headers, key, topic, value",
        "record by record: custom steps are not compiled (twice)",
    ):  # fmt: skip
        assert text in told


def test_bench_counts_and_measures(tmp_path: Path) -> None:
    result = herd(tmp_path, _GOOD * 10, "--bench", "0.1")
    records, per_record = result.stdout.splitlines()
    assert int(records.split()[0].replace(",", "")) % 10 == 0
    assert "us per record: converters " in per_record
    assert herd(tmp_path, b"", "--bench", "0.1").exit_code == 2


def test_transform_imports_no_client_and_a_closed_output_is_no_error(tmp_path: Path) -> None:
    file = tmp_path / "chain.json"
    file.write_text(json.dumps(_CHAIN))
    program = (
        "import sys, atexit; sys.argv = ['herd', 'transform', '--config', sys.argv[1]]; "
        "atexit.register(lambda: sys.stderr.write(','.join(sorted({name.split('.')[0] for name in sys.modules}))));"
        "from herdmesh.cli.__main__ import main; main()"
    )
    reading, writing = os.pipe()
    os.close(reading)
    ran = subprocess.run(
        [sys.executable, "-c", program, str(file)], input=_GOOD, stdout=writing, stderr=subprocess.PIPE, check=False
    )
    os.close(writing)
    assert ran.returncode == 141
    said = ran.stderr.decode()
    assert "Broken" not in said
    assert "Exception" not in said
    assert not {"grpc", "google", "confluent_kafka", "pyspark", "pyarrow"} & set(said.split(","))


def test_other_commands_do_not_import_the_chain() -> None:
    program = "import sys; from herdmesh.cli.app import app; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout.decode().split()
    assert "herdmesh.cli.commands.transform" in loaded
    assert not {"herdmesh.cli.transform.session", "herdmesh.connect.chain.record_chain"} & set(loaded)


@pytest.mark.parametrize("most", [1, 3])
def test_a_stream_is_read_line_by_line_as_it_arrives(most: int) -> None:
    reading, writing = os.pipe()
    with open(reading, "rb") as stream:
        batches = line_batches(stream, most)
        os.write(writing, b"one\ntwo\nhal")
        assert next(batches)[0] == (1, b"one")
        if most == 1:
            assert next(batches) == [(2, b"two")]
        os.write(writing, b"f\n\nlast")
        os.close(writing)
        assert [line for batch in batches for line in batch] == [(3, b"half"), (4, b""), (5, b"last")]


def test_references_are_resolved_by_the_workers_providers_and_never_shown(
    tmp_path: Path,
) -> None:
    (tmp_path / "s.properties").write_text("mask=hush-hush\nnone=hush-none\n")
    worker = tmp_path / "worker.properties"
    worker.write_text("config.providers=file\nconfig.providers.file.class=File\nkey.converter=String\n")
    config: dict[str, Any] = {
        **_CHAIN,
        "transforms.mask.replacement": f"${{file:{tmp_path}/s.properties:mask}}",
        "connection.password": "${vault:nowhere:near}",
    }
    result = herd(tmp_path, _GOOD, "--worker-config", str(worker), config=config)
    assert (result.exit_code, lines(result)[0]["value"]) == (0, {"card": "hush-hush", "qty": 2})
    assert "hush-hush" not in herd(tmp_path, _GOOD, "--worker-config", str(worker), "--explain", config=config).output
    config["transforms.mask.type"] = f"${{file:{tmp_path}/s.properties:none}}"
    refused = herd(tmp_path, _GOOD, "--worker-config", str(worker), config=config)
    assert refused.exit_code == 5
    assert "hush-none" not in refused.output + refused.stderr
    refused = herd(tmp_path, _GOOD, config=config)
    assert refused.exit_code == 5
    assert "no config provider file" in refused.stderr
    assert "--worker-config" in refused.stderr


def test_numbers_are_printed_with_their_own_digits(tmp_path: Path) -> None:
    schema = {"type": "struct", "fields": [{"field": "a", "type": "float"}, {"field": "b", "type": "double"}]}
    given = json.dumps({"value": {"schema": schema, "payload": {"a": 39.946712, "b": 0.1}}}).encode() + b"\n"
    config = {"topics": "t", "value.converter": _JSON["value.converter"]}
    (printed,) = lines(herd(tmp_path, given, config=config))
    assert printed["value"] == {"a": 39.946712, "b": 0.1}
    assert plain({"x": float("nan"), "y": float("-inf"), "z": Float32(0.10000000149011612)}) == {
        "x": "NaN", "y": "-Infinity", "z": 0.1,
    }  # fmt: skip
