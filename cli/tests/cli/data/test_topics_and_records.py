"""Tests of `herd topics`, `herd produce` and `herd consume` on a real broker."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from herdmesh.cli.app import app
from tests.support.guarded_broker import GuardedBroker

pytestmark = pytest.mark.kafka

Topic = Callable[..., str]


class Herd:
    """`herd` for one broker."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def __call__(self, *arguments: str, given: bytes = b"", code: int = 0) -> Result:
        env = {"HERDMESH_BOOTSTRAP_SERVERS": self.bootstrap}
        result = CliRunner().invoke(app, list(arguments), input=given, env=env, catch_exceptions=False)
        assert result.exit_code == code, result.output
        return result

    def documents(self, *arguments: str) -> list[Any]:
        """The JSON lines of a command."""
        return [json.loads(line) for line in self(*arguments, "-o", "json").stdout.splitlines()]


@pytest.fixture
def herd(kafka_bootstrap: str) -> Herd:
    return Herd(kafka_bootstrap)


@pytest.fixture
def topic(herd: Herd, tmp_topic: Topic) -> str:
    """A topic with two partitions."""
    name = tmp_topic()
    herd("topics", "create", name, "--partitions", "2")
    return name


def test_a_topic_is_created_listed_described_and_deleted(herd: Herd, tmp_topic: Topic) -> None:
    name = tmp_topic()
    created = herd("topics", "create", name, "-p", "3", "--config", "cleanup.policy=compact")
    assert created.stdout == (
        f"topic {name} created: 3 partitions, replication factor 1 (fits the cluster's 1 broker)\n"
    )
    assert "a compacted topic takes no record without a key" in herd("produce", name, given=b"1\n", code=9).stderr
    herd("produce", name, "--key", "k", given=b"1\n2\n")
    listed = {one["name"]: one for one in json.loads(herd("topics", "list", "-o", "json").stdout)}
    assert listed[name] == {
        "name": name, "partitions": 3, "replication_factor": 1, "records": 2, "internal": False
    }  # fmt: skip
    assert "NAME" in herd("topics", "list").stdout
    described = json.loads(herd("topics", "describe", name, "-o", "json").stdout)
    assert described["configs"] == {"cleanup.policy": "compact"}
    assert [one["partition"] for one in described["partitions"]] == [0, 1, 2]
    assert sum(one["end_offset"] - one["first_offset"] for one in described["partitions"]) == 2
    assert "cleanup.policy=compact" in herd("topics", "describe", name).stdout
    assert herd("topics", "delete", name, "--yes").stdout == f"topic {name} deleted\n"
    assert name not in herd("topics", "list").stdout
    assert herd("topics", "delete", name, "--yes", "--allow-missing").stdout == f"topic {name} does not exist\n"


def test_refusals_say_what_fits_and_what_exists(herd: Herd, topic: str) -> None:
    refused = herd("topics", "create", "other", "--replication-factor", "3", code=5)
    assert "replication factor 3 needs 3 brokers, and this cluster has 1" in refused.output
    assert "--replication-factor 1" in refused.output
    assert "TOPIC_EXISTS" in herd("topics", "create", topic, code=4).output
    assert "exists already" in herd("topics", "create", topic, "--if-not-exists").output
    assert "Unknown topic config name" in herd("topics", "create", "other", "--config", "a.b=c", code=5).output
    misspelt = herd("consume", f"{topic}s", code=3).output
    assert f"did you mean {topic}" in misspelt.replace("\n", "")
    assert "herd topics create" in herd("produce", "absent", given=b"1\n", code=3).output
    assert "has the state of" in herd("topics", "delete", "connect-configs", "--yes", code=5).output
    assert "Give --yes" in herd("topics", "delete", topic, code=2).output


def test_records_come_back_as_they_were_sent(herd: Herd, topic: str) -> None:
    lines = (
        b'{"key": "a", "value": {"id": 1}, "headers": {"by": "x"}, "timestamp": 1000, "partition": 0}\n'
        b'{"key": "a", "value": null, "partition": 0}\n'
    )
    sent = herd("produce", topic, given=lines)
    assert sent.stdout == f"2 records in topic {topic}, each line read as a record (--input records)\n"
    first, second = herd.documents("consume", topic)
    assert first == {
        "topic": topic, "partition": 0, "offset": 0, "timestamp": 1000, "key": "a", "value": '{"id":1}',
        "headers": [{"key": "by", "value": "x"}],
    }  # fmt: skip
    assert (second["value"], second["offset"]) == (None, 1)
    table = herd("consume", topic).stdout.splitlines()
    assert table[0] == "TIME  RECORD  KEY  VALUE"
    assert table[1] == '1970-01-01T00:00:01.000Z  0:0  a  {"id":1}  [by=x]'
    assert table[2].endswith("  0:1  a  null")


def test_a_topic_is_copied_to_the_last_byte(herd: Herd, topic: str, tmp_topic: Topic, tmp_path: Path) -> None:
    copy, data = tmp_topic("copy"), tmp_path / "data"
    data.write_bytes(bytes(range(256)))
    herd("topics", "create", copy, "--partitions", "2")
    herd("produce", topic, str(data), "--whole-files", "--key", "k", "--header", "h=v")
    herd("produce", topic, "--key", "k", "--tombstone")
    copied = herd("consume", topic, "-o", "json").stdout_bytes
    herd("produce", copy, given=copied)
    parts = [{**one, "topic": ""} for one in herd.documents("consume", copy)]
    assert parts == [{**one, "topic": ""} for one in herd.documents("consume", topic)]
    assert len(parts) == 2


def test_the_start_and_the_number_of_records_are_chosen(herd: Herd, topic: str) -> None:
    lines = [{"key": "k", "value": str(at), "partition": 1, "timestamp": 1_000 + at * 1_000} for at in range(10)]
    herd("produce", topic, given="\n".join(map(json.dumps, lines)).encode())

    def values(*options: str) -> list[str]:
        return herd("consume", topic, "-o", "value", *options).stdout.splitlines()

    assert values() == [str(at) for at in range(10)]
    assert values("--from", "7") == ["7", "8", "9"]
    assert values("--from", "-2") == ["8", "9"]
    assert values("--from", "1970-01-01T00:00:06Z") == ["5", "6", "7", "8", "9"]
    assert values("-n", "3") == ["0", "1", "2"]
    assert values("--partition", "0") == []
    assert "no records in" in herd("consume", topic, "--from", "end").stderr
    assert "no partition 7" in herd("consume", topic, "--partition", "7", code=3).output


def test_converters_write_and_read_values_with_schemas(herd: Herd, topic: str, tmp_path: Path) -> None:
    (tmp_path / "schema.json").write_text('{"type": "struct", "fields": [{"field": "id", "type": "int64"}]}')
    converter = ("--value-converter", "JsonConverter")
    herd("produce", topic, *converter, "--value-schema", str(tmp_path / "schema.json"), given=b'{"id": 1}\n')
    (record,) = herd.documents("consume", topic, *converter)
    assert record["value"] == {"id": 1}
    typed = json.loads(herd("consume", topic, *converter, "-o", "typed").stdout)
    assert typed["valueSchema"]["type"].lower() == "struct"
    herd("produce", topic, given=b"no json\n")
    bad = herd("consume", topic, *converter, code=1)
    assert "not decoded" in bad.stderr
    assert "no json" in bad.stdout
    assert '{"id": 1}' in bad.stdout


def test_a_record_that_is_not_confirmed_is_counted_and_ends_with_an_error(herd: Herd, tmp_topic: Topic) -> None:
    name = tmp_topic()
    herd("topics", "create", name, "--config", "max.message.bytes=1000")
    big = json.dumps({"value": os.urandom(4_000).hex()}).encode()
    assert "no record could be made" in herd("produce", name, given=b'{"value": "ok"}\nno object\n', code=5).stderr
    failed = herd("produce", name, given=b'{"value": "ok"}\n' + big, code=9)
    assert "  line 2: " in failed.stderr
    assert "Message size too large" in failed.stderr
    assert "the broker did not confirm" in failed.stderr
    document = json.loads(herd("produce", name, "--input", "lines", "-o", "json", given=big, code=9).stdout)
    assert (document["delivered"], document["not_delivered"]) == (0, 1)


def test_an_address_without_a_broker_fails_at_once_and_names_its_origin(herd: Herd) -> None:
    begun_s = time.monotonic()
    failed = herd("topics", "list", "--bootstrap-servers", "127.0.0.1:1", code=6)
    assert time.monotonic() - begun_s < 5.0
    assert "no Kafka answers at 127.0.0.1:1 (from --bootstrap-servers)" in failed.output.replace("\n", " ")


def test_follow_prints_records_as_they_come_and_ends_on_ctrl_c(herd: Herd, topic: str) -> None:
    """On a terminal of its own: lines appear at once, and Ctrl-C ends it."""
    controller, terminal = pty.openpty()
    command = [sys.executable, "-m", "herdmesh.cli", "consume", topic, "--follow", "--from", "beginning", "-o", "value"]
    env = {**os.environ, "HERDMESH_BOOTSTRAP_SERVERS": herd.bootstrap}
    # a shell starts background jobs with SIGINT ignored, and their children inherit that
    heeds = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    process = subprocess.Popen(command, env=env, stdout=terminal, stderr=subprocess.PIPE, preexec_fn=heeds)
    os.close(terminal)
    try:
        for word in (b"first", b"second"):
            herd("produce", topic, given=word + b"\n")
            seen = b""
            while word not in seen:
                seen += os.read(controller, 1_000)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
    finally:
        process.kill()
        process.communicate()
        os.close(controller)


async def test_a_login_comes_from_a_file_as_for_kafkas_own_tools(
    guarded: GuardedBroker, tmp_path: Path, tmp_topic: Topic
) -> None:
    name = tmp_topic()
    user, config = guarded.new_user()
    open_herd, herd = Herd(guarded.bootstrap), Herd(guarded.guarded)
    open_herd("topics", "create", name)
    file = tmp_path / "client.properties"
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"

    def login(password: str) -> list[str]:
        jaas = f'{module} required username="{user}" password="{password}";'
        file.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config={jaas}\n")
        return ["--command-config", str(file)]

    assert "LOGIN_FAILED" in herd("topics", "list", *login("wrong"), code=6).output
    right = login(config["sasl.password"])
    assert "TOPIC_NOT_FOUND" in herd("produce", name, *right, given=b"1\n", code=3).output  # it may not see it
    await guarded.allow(user, f"topic:{name}", "READ", "WRITE", "DESCRIBE")
    assert f"1 record in topic {name}" in herd("produce", name, *right, given=b"1\n").stdout
    assert herd("consume", name, *right, "-o", "value").stdout == "1\n"
