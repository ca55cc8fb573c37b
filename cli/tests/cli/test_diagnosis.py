"""Tests of the first sentence of `herd describe connector`: what is wrong, and what will happen."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from herdmesh.cli.commands import describe
from herdmesh.cli.display import traces
from herdmesh.cli.display.diagnosis import Level, diagnose
from herdmesh.cli.display.output import out

_REFUSED = "topic orders.dlq cannot be created: replication factor 3, and 1 broker"
_BAD = "failed (BAD_CONFIG): a restart does not help; correct the config and `herd restart orders --task {}`"


def connector(*tasks: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "name": "orders",
        "type": "sink",
        "target_state": "STARTED",
        "connector": {"state": "RUNNING", "worker_id": "w1", "generation": 1},
        "tasks": [{"id": number, "worker_id": "w1", "generation": 2, **task} for number, task in enumerate(tasks)],
        "behind_records": 0,
        **more,
    }


def failed(number: int, message: str = _REFUSED, **more: Any) -> dict[str, Any]:
    failure = {"state": "FAILED", "error": message, "error_class": "BAD_CONFIG", "trace": f"Traceback\n{message}"}
    return {**failure, "explanation": _BAD.format(number), **more}


def waiting(hours: int, target: str = "PostgreSQL db:5432") -> dict[str, Any]:
    since = (datetime.now(UTC) - timedelta(hours=hours, minutes=5)).isoformat()
    wait = {"waits_for": target, "message": "refused", "since": since, "tries": 7, "next_time": "2026-11-28T03:00:05Z"}
    condition = {"type": "WAITING", "message": f"waits for {target}: refused (7 tries)", "wait": wait}
    return {"state": "RUNNING", "conditions": [condition]}


@pytest.mark.parametrize(
    ("shown", "level", "sentence"),
    [
        (connector({"state": "RUNNING"}), Level.OK, "orders runs as wanted: its task is RUNNING."),
        (
            connector({"state": "RUNNING"}, {"state": "RUNNING"}, behind_records=1_234),
            Level.OK,
            "orders runs as wanted: all 2 tasks are RUNNING, 1,234 records behind.",
        ),
        (
            connector(failed(0), {"state": "RUNNING"}),
            Level.ERROR,
            f"orders: task 0 of 2 failed: {_REFUSED}. A restart does not help; correct the config and "
            "`herd restart orders --task 0`.",
        ),
        (
            connector(failed(0), failed(1)),
            Level.ERROR,
            f"orders: all 2 tasks failed: {_REFUSED}. A restart does not help; correct the config and "
            "`herd restart orders --include-tasks --only-failed`.",
        ),
        (
            connector(failed(0), failed(1, "disk full"), {"state": "RUNNING"}),
            Level.ERROR,
            f"orders: 2 of 3 tasks failed for 2 different reasons, the first: {_REFUSED}. A restart does not help; "
            "correct the config and `herd restart orders --include-tasks --only-failed`.",
        ),
        (
            connector(waiting(6)),
            Level.WARNING,
            "orders: task 0 waits for PostgreSQL db:5432 (for 6h, 7 tries); it tries again at 2026-11-28T03:00:05Z. "
            "Nothing is lost, and it continues by itself once that is there.",
        ),
        (
            connector(waiting(6), waiting(9, "a run slot")),
            Level.WARNING,
            "orders: all 2 tasks wait for a run slot (and 1 more) (for 9h, 7 tries); it tries again at "
            "2026-11-28T03:00:05Z. Nothing is lost, and it continues by itself once that is there.",
        ),
        (
            connector({"state": "UNASSIGNED", "explanation": "waits for a worker: no worker is connected"}),
            Level.WARNING,
            "orders: task 0 does not run: waits for a worker: no worker is connected.",
        ),
        (
            connector(
                {"state": "RESTARTING", "auto_restart": {"attempt": 3, "attempts_max": 10, "last_error": "broker away"}}
            ),
            Level.WARNING,
            "orders: task 0 is being restarted (3 of 10) after: broker away.",
        ),
        (
            connector({"state": "PAUSED"}, target_state="PAUSED"),
            Level.OK,
            "orders is paused: its tasks keep their positions and move no records until `herd resume orders`.",
        ),
        (
            connector(),
            Level.WARNING,
            "orders runs without tasks: its connector found no work for one, so no records move.",
        ),
    ],
)
def test_the_sentence_says_what_is_wrong_and_what_will_happen(
    shown: dict[str, Any], level: Level, sentence: str
) -> None:
    found = diagnose(shown)
    assert (found.level, found.sentence) == (level, sentence)
    assert found.to_json() == {"level": level.value, "sentence": sentence}


def described(shown: dict[str, Any], *, verbose: bool = False) -> str:
    """The printed description."""
    whole: dict[str, Any] = {"uncommitted_records": None, "config": {}, "warnings": [], **shown}
    for task in whole["tasks"]:
        task.setdefault("start_count", 1)
    whole["connector"].setdefault("start_count", 1)
    with out.capture() as printed:
        describe.print_connector(whole, diagnose(shown), verbose=verbose)
    return printed.get()


def test_a_message_and_a_trace_that_tasks_share_are_printed_once() -> None:
    trace = 'Traceback (most recent call last):\n  File "/srv/ada/shop.py", line 7, in put\n    go()\n' + _REFUSED
    text = described(connector(failed(0, trace=trace), failed(1, trace=trace), failed(2, trace=trace)))
    assert text.startswith(f"orders: all 3 tasks failed: {_REFUSED}. ")
    assert text.replace(trace, "").count(_REFUSED) == 1
    assert text.count("/srv/ada/shop.py") == 1
    assert text.count("tasks 0, 1, 2 FAILED") == 1, "one story for tasks with one problem"
    assert text.count("a restart does not help") + text.count("A restart does not help") == 1


def test_another_error_of_a_second_task_is_printed_beside_its_task() -> None:
    text = described(connector(failed(0), failed(1, "disk full")))
    assert text.splitlines()[0].count(_REFUSED) == 1
    assert text.index("disk full (bad_config)") > text.index("task 1 FAILED")


_TRACE = """\
Traceback (most recent call last):
  File "/venv/lib/python3.11/site-packages/herdmesh/engine/sink/sink_loop.py", line 10, in run
    self._put(batch)
    ^^^^^^^^^^^^^^^^
  File "/venv/lib/python3.11/site-packages/herdmesh/sdk/sink.py", line 20, in put
    return self._task.put(records)
  File "/srv/ada/herdmesh/shop.py", line 7, in put
    return json.loads(text)
  File "/usr/lib/python3.11/json/__init__.py", line 346, in loads
    return _default_decoder.decode(s)
json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/venv/lib/python3.11/site-packages/herdmesh/engine/runtime/run.py", line 5, in run
    raise TaskFailed("orders: bad record") from error
herdmesh.engine.runtime.errors.TaskFailed: orders: bad record"""


def test_a_trace_is_shortened_to_the_frames_of_the_user() -> None:
    shown, hidden = traces.shortened(_TRACE)
    assert hidden == 4
    assert shown.splitlines() == [
        "Traceback (most recent call last):",
        "  ... 2 frames of libraries",
        '  File "/srv/ada/herdmesh/shop.py", line 7, in put',
        "    return json.loads(text)",
        "  ... 1 frame of libraries",
        "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)",
        "",
        "The above exception was the direct cause of the following exception:",
        "",
        "herdmesh.engine.runtime.errors.TaskFailed: orders: bad record",
    ]


def test_frames_of_packages_that_our_connectors_call_are_left_out_and_those_of_a_plugin_beside_them_stay() -> None:
    packages = "/venv/lib/python3.11/site-packages"
    lines = [
        "Traceback (most recent call last):",
        f'  File "{packages}/httpcore/_sync/connection.py", line 101, in handle_request',
        "    raise exc",
        "httpcore.ConnectError: [Errno 111] Connection refused",
        "",
        f'  File "{packages}/shop_sink/task.py", line 7, in put',
        "    post()",
        f'  File "{packages}/httpx/_client.py", line 868, in stream',
        "    response = self.send(",
        "OSError: away",
    ]
    shown, hidden = traces.shortened("\n".join(lines))
    assert hidden == 2
    assert "shop_sink" in shown
    assert not any(name in shown for name in ("httpx/", "_sync"))


def test_a_whole_trace_is_shown_on_request() -> None:
    task = {"state": "FAILED", "error": "x", "error_class": "UNKNOWN", "trace": _TRACE}
    text = described(connector(task))
    assert "sink_loop.py" not in text
    assert "4 frames of libraries are left out; -v shows them" in text
    assert _TRACE in described(connector(task), verbose=True)


def test_a_trace_without_frames_of_libraries_is_not_changed() -> None:
    text = 'Traceback (most recent call last):\n  File "/srv/ada/shop.py", line 7, in put\n    go()\nOSError: x'
    assert traces.shortened(text) == (text, 0)


def test_frames_of_java_libraries_are_left_out_too() -> None:
    user, more = "\tat com.shop.Udf.call(Udf.java:7)", "  ... 1 frame of libraries"
    lines = [
        "java.lang.X: no",
        "\tat org.apache.spark.A.b(A.java:1)",
        user,
        "\tat java.base/B.c(B.java:2)",
        "Caused by: y",
    ]
    shown, hidden = traces.shortened("\n".join(lines))
    assert (shown.splitlines(), hidden) == (["java.lang.X: no", more, user, more, "Caused by: y"], 2)
