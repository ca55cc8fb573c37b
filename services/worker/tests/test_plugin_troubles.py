"""Plugin folders whose modules end, break or block the process that imports them: refused, and the rest is found."""

from __future__ import annotations

import io
import logging
import threading
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from herdmesh.worker.effects.plugins import folder_scan
from herdmesh.worker.effects.plugins.plugins import discover
from herdmesh.worker.output_limit import BURST_BYTES, BYTES_PER_SECOND, LimitedLoggers, OutputLimit
from tests.support.plugin_environments import Environment, greet

WAIT_S = 30.0
MODULES = {
    "exits": ("import sys\nsys.exit(7)\n", "importing entry point exits:Plugin raised SystemExit: 7"),
    "stops": ("raise KeyboardInterrupt\n", "importing entry point stops:Plugin raised KeyboardInterrupt"),
    "leaves": ("raise GeneratorExit\n", "importing entry point leaves:Plugin raised GeneratorExit"),
    "ends": ("import os\nos._exit(7)\n", "ended its process (exit code 7)"),
    "breaks": ("import ctypes\nctypes.string_at(0)\n", "ended its process (killed by SIGSEGV)"),
    "forks": ("import os, sys\nif os.fork() == 0:\n    sys.exit(3)\n", "module 'forks' has no attribute 'Plugin'"),
    "halves": ("raise ValueError('a\\ud83d')\n", "a\\ud83d"),
}
HANGS = "import threading\nthreading.Event().wait()\n"


def test_modules_that_end_or_break_their_process_are_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_scan, "ANSWER_S", 50.0)  # before a call times out; otherwise this machine is only busy
    for name, (text, _) in MODULES.items():
        Environment(tmp_path / name).install(name, "1", {f"{name}.py": text}, connectors=[f"P = {name}:Plugin"])
    Environment(tmp_path / "named").install("named", "1", {"named.py": ""}, connectors=["P = :::"])
    greet(tmp_path / "greet", "1.0", "1")
    with capture_logs() as logs:
        found = discover(str(tmp_path))
    found.close()
    assert found.folders is not None
    assert found.folders.being_scanned() == [], "none hung"
    assert found.registry.versions("Greet") == ["1.0"]
    why = {Path(one["folder"]).name: one["why"] for one in logs if one["event"] == "plugin_refused"}
    assert why.keys() == {*MODULES, "named"}
    for name, (_, text) in MODULES.items():
        assert text in why[name], name
    assert why["named"] == "ImportError: entry point ::: is not of the form module:Class"


def test_a_hanging_folder_delays_no_other_and_is_found_once_it_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also through a symbolic link: it is one folder. A slow folder is known once it has answered."""
    monkeypatch.setattr(folder_scan, "ANSWER_S", 3.0)
    Environment(tmp_path / "hangs").install("hangs", "1", {"hangs.py": HANGS}, connectors=["P = hangs:P"])
    (tmp_path / "same").symlink_to(tmp_path / "hangs")
    greet(tmp_path / "greet", "1.0", "1")
    slow, go = greet(tmp_path / "slow", "2.0", "2"), tmp_path / "go"
    code = (slow.packages / "greet.py").read_text()
    wait = f"import os, time\nwhile not os.path.exists({str(go)!r}):\n    time.sleep(0.05)\n"
    lines = code.split("from __future__ import annotations\n", 1)
    (slow.packages / "greet.py").write_text(
        f"{lines[0]}from __future__ import annotations\n{wait}{lines[1]}" if len(lines) == 2 else wait + code
    )
    with capture_logs() as logs:
        found = discover(str(tmp_path))
    late = [Path(one["folder"]).name for one in logs if one["event"] == "plugin_folder_late"]
    assert {"hangs", "slow"} <= {*late} <= {"hangs", "slow", "greet"}, "greet on a busy machine"
    more = threading.Event()
    found.when_changed(more.set)
    for versions in (["1.0"], ["1.0", "2.0"]):
        while found.registry.versions("Greet") != versions:
            assert more.wait(WAIT_S)
            more.clear()
        go.touch()
    found.close()


def test_plugin_output_over_the_rate_is_left_out_and_counted() -> None:
    now_s = [0.0]
    limit = OutputLimit("it", lambda: now_s[0])
    line = "x" * 1023 + "\n"
    passed = [limit.passed(line) for _ in range(BURST_BYTES // 1024 + 10)]
    assert passed == [line] * (BURST_BYTES // 1024) + [""] * 10
    now_s[0] = 0.5
    assert limit.passed(line) == "", "not line by line"
    now_s[0] = 1.1
    told = "[herdmesh] 11 lines (11264 characters) that it printed were discarded: the limit is 32 KiB per second\n"
    assert limit.passed(line) == told + line
    assert limit.rest() == ""
    assert BYTES_PER_SECOND == 32 * 1024


def test_an_authors_loggers_are_limited_and_herdmeshs_are_not() -> None:
    written = io.StringIO()
    handler = LimitedLoggers(logging.StreamHandler(written), OutputLimit("it", lambda: 0.0))

    def said(logger: str, text: object, *args: object) -> None:
        handler.handle(logging.LogRecord(logger, logging.ERROR, "x.py", 1, text, args, None))

    for _ in range(BURST_BYTES // 1024 + 10):
        said("odd.plugin", "x" * 1023)
    assert len(written.getvalue()) == BURST_BYTES
    said("herdmesh.engine.bad_records.tolerance", "a record failed")
    assert written.getvalue().endswith("a record failed\n")
