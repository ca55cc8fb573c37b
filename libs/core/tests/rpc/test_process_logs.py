"""Log fields that every line of a process has, whichever thread writes it, and secrets that no field shows."""

from __future__ import annotations

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
        "logger": "herdmesh.post", "unit": "[posts-sink|task-0]", "connector": "posts-sink", "run_id": "post-1",
        "topic": "posts",
    }  # fmt: skip
