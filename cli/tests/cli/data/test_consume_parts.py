"""Tests of the parts of `herd consume` that need no Kafka: `--from`, the printed line, the address, start-up."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from herdmesh.cli.display.output import Format
from herdmesh.cli.display.records import RecordPrinter, shown
from herdmesh.cli.errors import CommandError
from herdmesh.cli.kafka.access import find_kafka
from herdmesh.cli.kafka.start import StartPlace
from herdmesh.cli.mesh.contexts import KAFKA_ENV
from herdmesh.connect.model import ConnectRecord, Header
from herdmesh.devstack.layout import StackLayout, StackState

_NOW = datetime(2026, 11, 28, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("beginning", StartPlace("beginning")),
        ("latest", StartPlace("end")),
        ("17", StartPlace("offset", 17)),
        ("-10", StartPlace("last", 10)),
        ("15m", StartPlace("time", int(_NOW.timestamp() - 900) * 1_000)),
        ("2026-11-28T12:00:00Z", StartPlace("time", int(_NOW.timestamp()) * 1_000)),
    ],
)
def test_from_names_a_place(text: str, start: StartPlace) -> None:
    assert StartPlace.parse(text, _NOW) == start


def test_from_refuses_other_words_and_lists_the_forms() -> None:
    with pytest.raises(CommandError, match="yesterday: write beginning, end, an offset"):
        StartPlace.parse("yesterday")


def test_a_record_is_one_line_without_control_characters() -> None:
    record = ConnectRecord("t", 0, b"k", b'\x1b[31m"\n\xffx', 0, [Header("h", b"v"), Header("n", None)], offset=5)
    lines = list(RecordPrinter(Format.TABLE, headers=True).lines([record]))
    assert lines == [
        b"TIME  RECORD  KEY  VALUE\n",
        b'1970-01-01T00:00:00.000Z  0:5  k  \\x1b[31m"\\n\\xffx  [h=v, n=null]\n',
    ]
    assert (shown(None), shown({"a": 1})) == ("null", '{"a": 1}')


def test_columns_are_aligned_on_a_terminal_and_several_topics_are_named() -> None:
    records = [ConnectRecord(topic, 0, key, b"v", None, offset=7) for topic, key in (("a", b"k"), ("b", b"long"))]
    printer = RecordPrinter(Format.TABLE, several_topics=True, aligned=True, headers=True)
    assert b"".join(printer.lines(records)).decode().splitlines() == [
        "TIME  RECORD  KEY   VALUE",
        "-     a-0:7   k     v",
        "-     b-0:7   long  v",
    ]


def test_a_json_line_is_read_back_by_produce_as_the_same_bytes() -> None:
    record = ConnectRecord("t", 1, b"\xff", b'{"a": 1}', 12, [Header("h", b"v")], offset=3)
    (line,) = RecordPrinter(Format.JSON, headers=True).lines([record])
    assert json.loads(line) == {
        "topic": "t", "partition": 1, "offset": 3, "timestamp": 12, "key": {"base64": "/w=="}, "value": '{"a": 1}',
        "headers": [{"key": "h", "value": "v"}],
    }  # fmt: skip


def test_the_address_comes_from_option_variable_file_and_stack_in_this_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(KAFKA_ENV, raising=False)
    with pytest.raises(CommandError, match="no Kafka is known") as refused:
        find_kafka(None, None)
    assert refused.value.exit_code == 2
    layout = StackLayout(tmp_path / ".herd")
    layout.write_state(StackState(bootstrap_servers="127.0.0.1:9092"))
    assert find_kafka(None, None).bootstrap_servers == "127.0.0.1:9092"
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=file:1\nsecurity.protocol=PLAINTEXT\n")
    found = find_kafka(None, file)
    assert (found.bootstrap_servers, found.properties) == ("file:1", {"security.protocol": "PLAINTEXT"})
    monkeypatch.setenv(KAFKA_ENV, "env:1")
    assert find_kafka(None, file).origin == KAFKA_ENV
    assert find_kafka("option:1", file).bootstrap_servers == "option:1"


def test_an_unusable_client_property_names_the_file_and_the_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=TLS\n")
    with pytest.raises(CommandError, match=r"client\.properties: .*security\.protocol") as refused:
        find_kafka("a:1", file).client_config("consumer")
    assert "consumer.security" not in str(refused.value)
    file.write_text("security.protocl=SSL\n")
    config = find_kafka("a:1", file).client_config("consumer")
    assert config["bootstrap.servers"] == "a:1"
    assert "security.protocl has no effect" in capsys.readouterr().err.replace("\n", " ")


def test_herd_starts_without_kafkas_client_and_converters() -> None:
    names = ("confluent_kafka", "herdmesh.cli.kafka.", "herdmesh.connect.converters.", "herdmesh.connect.chain.")
    code = f"import sys, herdmesh.cli.app; print([one for one in sys.modules if one.startswith({names!r})])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "['herdmesh.cli.kafka.options']"
