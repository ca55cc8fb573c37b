"""Errors of an author's code that are no `Exception` (SystemExit and the like), and error texts that UTF-8 cannot
encode: both end only the run and are reported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from herdmesh.connect.config.escaping import escaped, escaped_within
from herdmesh.connect.error_class import ErrorClass
from herdmesh.connect.errors import ConfigError
from herdmesh.connect.spi.author_checks import checked_manifests, checked_offsets, checked_task_configs
from herdmesh.connect.spi.connector import SinkBatch, SinkTask, SourceBatch, SourceTask
from herdmesh.engine import TaskFailed, TaskKind
from herdmesh.engine.runtime.failure import classify
from libs.core.tests.engine.harness import Kafka, make_spec, run_here

HERE = "libs.core.tests.engine.bad_records.test_authors_exits"
RAISED: dict[str, BaseException] = {
    "SystemExit: 3": SystemExit(3),
    "KeyboardInterrupt": KeyboardInterrupt(),
    "GeneratorExit": GeneratorExit(),
    "Odd: why": type("Odd", (BaseException,), {})("why"),
}


class Exiting:
    """Raises in the method that its config names with `at`."""

    config: Any

    def _at(self, where: str) -> None:
        if self.config["at"] == where:
            raise RAISED[self.config["what"]]


class ExitingSink(Exiting, SinkTask):
    def start(self, config: Any, context: Any) -> None:
        self.config = config
        self._at("start")

    def put(self, batch: SinkBatch) -> None:
        self._at("put")

    def flush(self) -> None:
        self._at("flush")

    def stop(self) -> None:
        self._at("stop")


class ExitingSource(Exiting, SourceTask):
    def start(self, config: Any, context: Any) -> None:
        self.config = config
        self._at("start")

    def poll(self) -> SourceBatch | None:
        self._at("poll")
        return None

    def stop(self) -> None:
        self._at("stop")


@pytest.mark.kafka
@pytest.mark.parametrize(
    ("task", "at"),
    [("Sink", "start"), ("Sink", "put"), ("Sink", "flush"), ("Sink", "stop"), ("Source", "start"), ("Source", "poll")],
)
def test_author_code_that_raises_system_exit_ends_only_the_run(
    kafka_bootstrap: str, tmp_topic: Callable[..., str], task: str, at: str
) -> None:
    kafka = Kafka(kafka_bootstrap)
    topic, name = kafka.create_topic(tmp_topic(), 1), tmp_topic("task")
    kafka.produce_ids(topic, range(2))
    for what in RAISED if at in ("put", "poll") else ["SystemExit: 3"]:
        config = {"topics": topic, "at": at, "what": what}
        kind: dict[str, Any] = {} if task == "Sink" else {"kind": TaskKind.SOURCE, "offset_storage_topic": f"{name}-o"}
        with pytest.raises(TaskFailed) as failed:
            run_here(make_spec(kafka.bootstrap, name, f"{HERE}:Exiting{task}", config, **kind))
        assert classify(failed.value)[0] == what
        assert failed.value.error_class is ErrorClass.UNKNOWN


def test_error_text_that_utf_8_cannot_encode_is_escaped() -> None:
    message, trace, _ = classify(ValueError("cut \ud83d here"))
    assert message == "ValueError: cut \\ud83d here"
    assert trace.encode()
    plain = "\u00e9 \U0001f600"
    assert escaped(plain) is plain
    assert escaped_within({"\ud83d": ["\udfff", 1, None]}) == {"\\ud83d": ["\\udfff", 1, None]}


@pytest.mark.parametrize(("made", "says", "field"), [
    ([{"a": "1"}, {"port": 80}], r"the config of task 1 has 80 \(int\) for port: values are text or None", "port"),
    ([{"a": "x\ud83d"}], r"the config of task 0 has a string for a with half of a surrogate pair: x\\ud83d", "a"),
    ([{1: "x"}], r"the config of task 0 has the key 1 \(int\): keys are text", ""),
    ([{"\udc00": "x"}], r"the key '\\udc00' \(str\), which has half of a surrogate pair", ""),
    ([None], r"the config of task 0 is None \(NoneType\): return a dict of strings for each task", ""),
    ({"a": "1"}, r"task_configs returned .*: return a list with a dict for each task", ""),
    (None, r"task_configs returned None \(NoneType\)", ""),
])  # fmt: skip
def test_invalid_task_configs_are_refused_with_task_and_key(made: Any, says: str, field: str) -> None:
    with pytest.raises(ConfigError, match=says) as refused:
        checked_task_configs(made)
    assert (refused.value.field or "") == field
    assert str(refused.value).encode()


def test_valid_task_configs_are_passed_unchanged() -> None:
    assert checked_task_configs(iter([{"a": None, "b": "\u00e9"}])) == [{"a": None, "b": "\u00e9"}]


@pytest.mark.parametrize(("check", "made", "says"), [
    (checked_offsets, 5, r"T\.pre_commit returned 5 \(int\): return a dict of \(topic, partition\) to whole numbers"),
    (checked_offsets, [("t", 0, 5)], r"returned \[\('t', 0, 5\)\] \(list\)"),
    (checked_offsets, {"t": 5}, r"a dict with the key 't' \(str\)"),
    (checked_offsets, {("t", "0"): 5}, r"a dict with the key \('t', '0'\) \(tuple\)"),
    (checked_offsets, {("t", 0): None}, r"returned None \(NoneType\) for \('t', 0\)"),
    (checked_offsets, {("t", 0): "5"}, r"returned '5' \(str\) for"),
    (checked_offsets, {("t", 0): 1.5}, r"returned 1\.5 \(float\) for"),
    (checked_offsets, {("t", 0): True}, r"returned True \(bool\) for"),
    (checked_manifests, None, r"T\.pre_commit returned None \(NoneType\): return a dict of .* to strings"),
    (checked_manifests, {("t", 0): b"x"}, r"returned b'x' \(bytes\) for"),
])  # fmt: skip
def test_invalid_pre_commit_result_is_refused_with_its_value(check: Any, made: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        check("T.pre_commit", made)
    assert check("T.pre_commit", {}) == {}
