"""Log fields that every line of a process has, whichever thread writes it, and secrets that no field shows."""

from __future__ import annotations

import os
import subprocess
import sys

import msgspec

_LINES = """
import logging, threading
import structlog
from herdmesh.rpc.process import configure_logging, log_with

configure_logging("info")
logging.getLogger("early").info("nothing known")
log_with(unit="[c|task-0]", run_id="r")
structlog.get_logger("ours").info("said", unit="[c|worker]")
with structlog.contextvars.bound_contextvars(unit="[c|task-0|offsets]"):
    logging.getLogger("engine").info("about offsets")
thread = threading.Thread(target=lambda: logging.getLogger("librdkafka.consumer").warning("FAIL [thrd]: away"))
thread.start()
thread.join()
"""


def test_lines_of_other_threads_have_the_fields_of_the_process() -> None:
    done = subprocess.run([sys.executable, "-c", _LINES], capture_output=True, check=True)
    lines = [msgspec.json.decode(line) for line in done.stderr.splitlines()]
    assert [(one["logger"], one.get("unit"), one.get("run_id")) for one in lines] == [
        ("early", None, None),
        ("ours", "[c|worker]", "r"),
        ("engine", "[c|task-0|offsets]", "r"),
        ("librdkafka.consumer", "[c|task-0]", "r"),
    ]


_WITH_SECRET = """
import structlog
from herdmesh.connect.config.redaction import keep_secret
from herdmesh.rpc.process import configure_logging

configure_logging("info")
keep_secret(["post"])
names = dict(unit="[posts-sink|task-0]", connector="posts-sink", run_id="post-1", topic="posts")
structlog.get_logger("herdmesh.post").info("post said", **names, error="login post refused", topics=["post"])
"""


def test_names_that_contain_a_password_are_logged_unmasked() -> None:
    done = subprocess.run([sys.executable, "-c", _WITH_SECRET], capture_output=True, check=True)
    line = msgspec.json.decode(done.stderr)
    del line["timestamp"]
    assert line == {
        "event": "*** said", "error": "login *** refused", "topics": ["***"], "level": "info",
        "logger": "herdmesh.post", "unit": "[posts-sink|task-0]", "connector": "posts-sink", "task": 0,
        "run_id": "post-1", "topic": "posts",
    }  # fmt: skip


_SERVICE = """
import asyncio, logging, os, sys
import structlog
from herdmesh.rpc.process import run
from herdmesh.rpc.settings import ServiceSettings

async def main(settings, stop):
    log = structlog.get_logger("herdmesh.probe")
    log.debug("hidden")
    log.info("task", unit="[a|b [x]|task-12|offsets]")
    log.info("connector", unit="[orders|worker]")
    log.info("made", unit="[orders|task-0]", connector="named", task=7)
    with structlog.contextvars.bound_contextvars(trace_id="4bf92f3577b34da6a3ce929d0e0e4736"):
        logging.getLogger("grpc").warning("traced")
    try:
        raise ValueError("two\\nlines")
    except ValueError:
        log.exception("failed")

settings = lambda: ServiceSettings.load(["--listen", "127.0.0.1:0", *sys.argv[1:]])
run("herdmesh.probe", settings, main)
"""


def _service(*arguments: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-c", _SERVICE, *arguments]
    return subprocess.run(command, capture_output=True, check=False, env={**os.environ, **environment})


def test_a_service_writes_one_json_object_a_line_to_stdout_that_says_whose_it_is() -> None:
    done = _service()
    assert (done.returncode, done.stderr) == (0, b"")
    settings, task, connector, made, traced, failed = [msgspec.json.decode(one) for one in done.stdout.splitlines()]
    lines = (settings, task, connector, made, traced, failed)
    assert {one["service"] for one in lines} == {"herdmesh.probe"}
    assert len({one["instance"] for one in lines}) == 1
    assert len(settings["instance"]) == 36
    assert settings["event"] == "settings"
    assert (task["connector"], task["task"]) == ("a|b [x]", 12)
    assert (connector["connector"], "task" in connector) == ("orders", False)
    assert (made["connector"], made["task"]) == ("named", 7), "a line's own fields stay"
    assert (traced["logger"], traced["trace_id"]) == ("grpc", "4bf92f3577b34da6a3ce929d0e0e4736")
    assert "trace_id" not in failed
    assert "two\nlines" in failed["exception"]


def test_a_service_writes_text_where_that_is_set() -> None:
    for done in (_service("--log-format", "text"), _service(HERDMESH_LOG_FORMAT="TEXT")):
        assert (done.returncode, done.stderr) == (0, b"")
        line = next(one for one in done.stdout.decode().splitlines() if "connector=orders" in one)
        assert "service=herdmesh.probe" in line
        assert not line.startswith("{")
        assert "\x1b" not in line, "colours are for terminals"


def test_the_level_of_the_flag_counts_and_a_wrong_one_is_named() -> None:
    assert b"hidden" in _service("--log-level", "debug").stdout
    quiet = _service("--log-level", "warning").stdout
    assert b"settings" not in quiet
    assert b"traced" in quiet
    wrong = _service(HERDMESH_LOG_LEVEL="loud")
    assert wrong.returncode == 2
    assert b"log_level" in wrong.stdout
