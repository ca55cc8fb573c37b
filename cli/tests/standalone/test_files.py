"""Tests of the files of standalone mode: connectors, the form of a file, and the errors of a bad one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from herdmesh.cli.app import app
from herdmesh.connect.clients.client_security import PROTOCOL, client_access
from herdmesh.connect.java.properties_files import Property, parse
from herdmesh.standalone import worker_properties
from herdmesh.standalone.errors import BadFiles
from herdmesh.standalone.files import read_connector, read_connectors
from herdmesh.standalone.worker_properties import WorkerPlan, plan_worker
from tests.support import plugin_environments
from tests.support.golden import lines
from tests.support.standalone import WORKER

DOC = Path(__file__).parents[3] / "docs" / "how-to" / "standalone.md"
CLASS = "FileStreamSource"


def written(folder: Path, text: str, name: str = "c.properties") -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def test_a_properties_file_is_a_connector(tmp_path: Path) -> None:
    found = read_connector(written(tmp_path, f"name = one\nconnector.class: {CLASS}\nfile a \\\n  b\n"))
    assert (found.name, found.initial_state) == ("one", "STARTED")
    assert found.config == {"name": "one", "connector.class": CLASS, "file": "a b"}
    assert found.problem("file", "x").place.endswith("c.properties:3: file")


@pytest.mark.parametrize("name", ["c.json", "c.properties"])
def test_the_form_of_a_file_is_detected_by_its_content(tmp_path: Path, name: str) -> None:
    flat = {"name": "one", "tasks.max": 2, "big": 12345678901234567890123, "real": 1.50, "yes": True, "none": None}
    found = read_connector(written(tmp_path, json.dumps(flat).replace("1.5", "1.50"), name))
    texts = {"tasks.max": "2", "big": "12345678901234567890123", "real": "1.50", "yes": "true", "none": None}
    assert (found.name, found.config) == ("one", {"name": "one", **texts})
    request: dict[str, Any] = {"name": "one", "config": {"tasks.max": 1}, "initial_state": "stopped", "unknown": []}
    found = read_connector(written(tmp_path, json.dumps(request), name))
    assert (found.name, found.config, found.initial_state) == ("one", {"tasks.max": "1", "name": "one"}, "STOPPED")


@pytest.mark.parametrize(
    ("text", "name", "line", "key", "message"),
    [
        ("connector.class=X\n", "c.properties", 0, "", "is missing the mandatory 'name' configuration"),
        ("a=1\n\\u12=x\n", "c.properties", 2, "", r"malformed \uxxxx encoding"),
        ('{"a": 1}', "c.json", 0, "", "is missing the mandatory 'name' configuration"),
        ('{"name": "a",\n "b" 1}', "c.json", 2, "", "not JSON: Expecting ':' delimiter, column 6"),
        ("name=a", "c.json", 1, "", "not JSON"),
        ("[]", "c.json", 0, "", "expected {"),
        ('{"name": "a", "b": [1]}', "c.json", 0, "b", "a value is text"),
        ('{"name": "a", "config": {"name": "b"}}', "c.json", 0, "name", "doesn't match the one specified in 'name'"),
        ('{"name": "a", "config": {}, "initial_state": "UP"}', "c.json", 0, "initial_state", "one of RUNNING, PAUSED"),
    ],
)
def test_a_bad_file_is_reported_with_line_and_key(
    tmp_path: Path, text: str, name: str, line: int, key: str, message: str
) -> None:
    path = written(tmp_path, text, name)
    with pytest.raises(BadFiles) as bad:
        read_connector(path)
    (problem,) = bad.value.problems
    assert (problem.path, problem.line, problem.key) == (path, line, key)
    assert message in problem.message


def test_all_bad_files_are_reported_at_once_and_names_are_unique(tmp_path: Path) -> None:
    one = written(tmp_path, "name=a", "1.properties")
    paths = [one, str(tmp_path / "absent"), written(tmp_path, "\nname=a", "2.properties")]
    with pytest.raises(BadFiles) as bad:
        read_connectors(paths)
    told = [(problem.place, problem.message) for problem in bad.value.problems]
    assert told == [
        (paths[1], "cannot be read: No such file or directory"),
        (f"{paths[2]}:2: name", f"Connector a already exists: {one} has it; give one of them another name"),
    ]


def plan(text: str) -> WorkerPlan:
    return plan_worker("w.properties", parse(text.encode("iso-8859-1")))


STOCK = WORKER.format(bootstrap="b:1", folder="data")


def test_connects_own_worker_file_is_accepted_completely() -> None:
    found = plan(STOCK)
    assert found.settings == {
        "bootstrap_servers": "b:1",
        "offset_storage_file": "data/connect.offsets",
        "offset_flush_interval_ms": 10_000,
        "stop_timeout_ms": 5_000,
        "leave_timeout_ms": 10_000,
    }
    json_converter = "org.apache.kafka.connect.json.JsonConverter"
    assert found.passed == {
        "key.converter": json_converter,
        "value.converter": json_converter,
        "key.converter.schemas.enable": "true",
        "value.converter.schemas.enable": "true",
    }
    assert found.warnings == ()


def test_prefixed_properties_are_passed_on_and_the_rest_is_reported() -> None:
    more = "producer.bootstrap.servers=b:1\nconsumer.fetch.min.bytes=7\nproducer.linger.ms=1\n"
    more += "admin.x=1\ngroup.id=g\nplugin.discovery=p\nlistneers=x\nplugin.path=/a, /b\n"
    found = plan(STOCK + more)
    assert {key: value for key, value in found.passed.items() if "converter" not in key} == {
        "consumer.fetch.min.bytes": "7",
        "producer.linger.ms": "1",
        "admin.x": "1",
    }
    assert [one.key for one in found.warnings] == ["admin.x", "group.id", "plugin.discovery", "listneers"]
    assert found.settings["plugin_path"] == "/a, /b"
    assert "neither Connect nor Herdmesh knows this property" in found.warnings[-1].message


def test_a_header_converter_is_passed_on_with_its_settings() -> None:
    more = "header.converter=JsonConverter\nheader.converter.schemas.enable=false\nheader.converter.plugin.version=1\n"
    found = plan(STOCK + more)
    header = {key: value for key, value in found.passed.items() if key.startswith("header.")}
    assert header == {"header.converter": "JsonConverter", "header.converter.schemas.enable": "false"}
    assert [one.key for one in found.warnings] == ["header.converter.plugin.version"]


def test_references_are_resolved_for_checks_and_passed_on_unresolved(tmp_path: Path) -> None:
    (tmp_path / "s").write_text("password=hush-hush\nbrokers=b:7\nconverter=No-such-thing\n")
    at = f"${{f:{tmp_path}/s:"
    more = "config.providers=f\nconfig.providers.f.class=File\nsecurity.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
    more += f"sasl.username=u\nsasl.password={at}password}}\nbootstrap.servers={at}brokers}}\n"
    found = plan(STOCK + more)
    assert (found.access["sasl.password"], found.bootstrap_servers) == ("hush-hush", "b:7")
    assert found.passed["sasl.password"] == f"{at}password}}", "the worker resolves it itself"
    for line, key, says in (
        (f"key.converter={at}converter}}", "key.converter", "Class *** could not be found"),
        (f"consumer.client.rack={at}nothing}}", "consumer.client.rack", "provider f has no key nothing at"),
        ("producer.linger.ms=soon", "producer.linger.ms", "Not a number of type LONG"),
    ):
        with pytest.raises(BadFiles) as bad:
            plan(STOCK + more + line + "\n")
        (problem,) = bad.value.problems
        assert (problem.key, problem.line) == (key, (STOCK + more).count("\n") + 1)
        assert says in problem.message


LOGIN = """\
security.protocol=SASL_SSL
sasl.mechanism=SCRAM-SHA-512
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username="me" password="a,b=c";
ssl.truststore.type=PEM
ssl.truststore.location=ca.pem
ssl.protocol=TLSv1.3
consumer.sasl.mechanism=PLAIN
admin.ssl.endpoint.identification.algorithm=
"""


def test_logins_and_certificates_reach_every_client() -> None:
    from herdmesh.standalone.process import worker_settings

    found = plan(STOCK + LOGIN)
    assert [(one.key, "tunes Java" in one.message) for one in found.warnings] == [("ssl.protocol", True)]
    login = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "me",
        "sasl.password": "a,b=c",
        "ssl.ca.location": "ca.pem",
    }
    own = {**login, "ssl.endpoint.identification.algorithm": "none"}
    assert found.access == own
    settings = worker_settings(found, "", "")
    assert settings.access() == own, "nothing is lost on the way to the worker"
    assert client_access("producer", settings.worker_config()).config == login
    assert client_access("consumer", settings.worker_config()).config == {**login, "sasl.mechanism": "PLAIN"}
    assert "a,b" not in str(settings.redacted())


@pytest.mark.parametrize(
    ("brokers", "environment", "factor", "says"),
    [
        (0, "", "3", ""),
        (1, "", "1", "the cluster has 1 broker, so dead letter queues without errors.deadletterqueue.topic."),
        (2, "", "2", "have 2 replicas; Connect's default is 3"),
        (3, "", "3", ""),
        (1, "2", "2", ""),
    ],
)
def test_dead_letter_queues_fit_the_cluster(
    brokers: int, environment: str, factor: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Connect's default of three made every task with a dead letter queue fail on one broker."""
    from herdmesh.standalone.process import dead_letter_note, worker_settings

    monkeypatch.delenv("HERDMESH_DEAD_LETTER_REPLICATION_FACTOR", raising=False)
    if environment:
        monkeypatch.setenv("HERDMESH_DEAD_LETTER_REPLICATION_FACTOR", environment)
    found = replace(plan(STOCK), brokers=brokers)
    assert worker_settings(found, "", "").worker_config()["errors.deadletterqueue.topic.replication.factor"] == factor
    assert says in dead_letter_note(found) if says else dead_letter_note(found) == ""


@pytest.mark.parametrize(
    ("more", "key", "says"),
    [
        ("security.protocol=SSL\nssl.truststore.location=t.jks\n", "ssl.truststore.location", "keytool -list -rfc"),
        ("security.protocol=SASL_SSL\n", "sasl.mechanism", "means GSSAPI"),
        ("consumer.security.protocol=TLS\n", "consumer.security.protocol", "must be one of PLAINTEXT"),
    ],
)
def test_an_unusable_login_is_reported_once_with_its_line(more: str, key: str, says: str) -> None:
    with pytest.raises(BadFiles) as bad:
        plan(STOCK + more)
    (problem,) = bad.value.problems
    assert problem.key == key
    assert says in problem.message
    assert problem.line == (0 if key not in more else STOCK.count("\n") + more[: more.index(key)].count("\n") + 1)


def test_certificates_of_a_rest_server_are_reported_as_unused() -> None:
    """Connect's `listeners` use `ssl.*` without a prefix, too."""
    found = plan(STOCK + "ssl.keystore.location=rest.jks\nconsumer.security.protocol=PLAINTEXT\n")
    (warning,) = found.warnings
    assert (warning.key, "no REST server" in warning.message) == ("ssl.keystore.location", True)
    assert found.access == {}


@pytest.mark.parametrize(
    ("change", "key", "message"),
    [
        ("offset.flush.interval.ms=x", "offset.flush.interval.ms", "Not a number of type LONG"),
        ("offset.flush.interval.ms=0", "offset.flush.interval.ms", "Value must be at least 1"),
        ("topic.creation.enable=maybe", "topic.creation.enable", "either true or false"),
        ("bootstrap.servers=", "bootstrap.servers", 'Missing required configuration "bootstrap.servers"'),
        ("key.converter=Nope", "key.converter", "Class Nope could not be found. (use one of"),
        ("key.converter.schemas.enable=x", "key.converter.schemas.enable", "either true or false"),
        ("header.converter=Nope", "header.converter", "Class Nope could not be found. (use one of"),
        ("consumer.bootstrap.servers=other:1", "consumer.bootstrap.servers", "another cluster than the worker's"),
    ],
)
def test_an_unusable_value_is_reported_with_its_line(change: str, key: str, message: str) -> None:
    with pytest.raises(BadFiles) as bad:
        plan(f"{STOCK}{change}\n")
    (problem,) = bad.value.problems
    assert (problem.key, problem.line) == (key, STOCK.count("\n") + 1)
    assert message in problem.message


def test_every_property_of_connects_workers_is_used_or_reported_and_documented() -> None:
    """Covers the definitions of both workers in Java 4.3.1."""
    defined = {one["name"]: one["owner"] for one in lines("configdef.jsonl") if one["owner"] == "DistributedConfig"}
    defined |= {one["name"]: one["owner"] for one in lines("configdef.jsonl") if one["owner"] == "StandaloneConfig"}
    assert len(defined) > 90
    text = DOC.read_text()
    used = {*worker_properties.PASSED, *worker_properties.NUMBERS, *worker_properties.TEXTS}
    used |= {*worker_properties.REQUIRED, *worker_properties.HERDER_FLAGS, PROTOCOL}
    for name, owner in defined.items():
        if name in used:
            assert f"`{name}`" in text, f"docs/how-to/standalone.md does not tell of {name}"
            continue
        (warning,) = plan_worker("w", {**parse(STOCK.encode()), name: Property("x", 1)}).warnings
        assert "neither Connect nor Herdmesh" not in warning.message, name
        if owner == "StandaloneConfig":
            shown = f"`{name}`" in text or any(f"`{prefix}*`" in text for prefix in _prefixes(name))
            assert shown, f"docs/how-to/standalone.md does not tell of {name}"


def _prefixes(name: str) -> list[str]:
    return [prefix for prefix in (*worker_properties.UNUSED_PREFIXES, "ssl.", "sasl.") if name.startswith(prefix)]


def herd(*arguments: str) -> tuple[int, list[Any]]:
    done = CliRunner().invoke(app, ["run", *arguments, "-o", "json"], env={"HERDMESH_LOG_LEVEL": "warning"})
    decoder = json.JSONDecoder()
    text, found = done.stdout.strip(), list[Any]()
    while text:
        document, end = decoder.raw_decode(text)
        found.append(document)
        text = text[end:].strip()
    return done.exit_code, found


def test_a_bad_connector_is_reported_before_anything_starts(tmp_path: Path) -> None:
    worker = written(tmp_path, STOCK + "listeners=http://:8083\n", "w.properties")
    good = written(tmp_path, f"name=good\nconnector.class={CLASS}\nfile=a\ntopic=t\n", "good.properties")
    bad = written(
        tmp_path,
        f"name=bad\nconnector.class={CLASS}\nfile=a\ntasks.max=0\ntopic=t\nexactly.once.support=required\n",
        "bad.properties",
    )
    code, (warning, failure) = herd(worker, good, bad)
    assert code == 5
    assert warning["place"] == f"{worker}:{STOCK.count(chr(10)) + 1}: listeners"
    fields = {one["field"]: one["message"] for one in failure["error"]["fields"]}
    assert f"{bad}:4: tasks.max" in fields
    assert "does not have exactly-once source support enabled" in fields[f"{bad}:6: exactly.once.support"]
    assert all(field.startswith(bad) for field in fields)
    code, (failure,) = herd(str(tmp_path / "absent.properties"))
    assert (code, failure["error"]["reason"]) == (2, "USAGE")


def test_a_setting_without_effect_in_standalone_mode_is_not_refused(tmp_path: Path) -> None:
    from herdmesh.standalone.process import invalid_connectors

    text = f"name=c\nconnector.class={CLASS}\nfile=a\ntopic=t\noffsets.storage.topic=x\n"
    assert invalid_connectors(plan(STOCK), [read_connector(written(tmp_path, text))]) == []


def test_a_connector_of_a_plugin_folder_is_found_before_anything_starts(tmp_path: Path) -> None:
    from herdmesh.standalone.process import invalid_connectors

    plugin_environments.greet(tmp_path / "plugins" / "greet", "1.0", "1")
    worker = plan(f"{STOCK}plugin.path={tmp_path / 'plugins'}\n")
    text = "name=c\nconnector.class=Greet\ntopics=t\nword=HELLO\n"
    assert invalid_connectors(worker, [read_connector(written(tmp_path, text))]) == []
    (problem,) = invalid_connectors(worker, [read_connector(written(tmp_path, text.replace("HELLO", "hello")))])
    assert "hello is not loud enough for tinylib 1" in problem.message


def test_settings_named_in_the_table_exist() -> None:
    from herdmesh.herder.settings import HerderSettings
    from herdmesh.worker.settings import WorkerSettings

    found = plan(f"{STOCK}topic.tracking.enable=false\ntopic.tracking.allow.reset=true\n")
    assert set(found.settings) <= set(WorkerSettings.model_fields)
    assert found.herder == {"topic_tracking_enable": False, "topic_tracking_allow_reset": True}
    assert set(found.herder) <= set(HerderSettings.model_fields)
