"""The process's resource attributes in telemetry, in a process of its own, started as a module."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

CODE = """
import json, os, sys
from herdmesh.rpc.monitoring.resource import identity, name_process, resource
told = [dict(resource().attributes), identity()]
name_process("herdmesh.worker.run")
told += [dict(resource().attributes), identity()]
reading, writing = os.pipe()
if os.fork() == 0:
    os.write(writing, resource().attributes["service.instance.id"].encode())
    os._exit(0)
print(json.dumps([*told, os.read(reading, 100).decode(), os.getpid()]))
"""


def told(tmp_path: Path, **environment: str) -> list[Any]:
    """Resource attributes of `python -m herdmesh.probe.__main__`, a package beside ours."""
    package = tmp_path / "herdmesh" / "probe"
    package.mkdir(parents=True, exist_ok=True)
    (package / "__main__.py").write_text(CODE)
    start = (
        "import herdmesh, runpy, sys; herdmesh.__path__ = [*herdmesh.__path__, sys.argv[1]]; "
        "runpy.run_module('herdmesh.probe', run_name='__main__', alter_sys=True)"
    )
    command = [sys.executable, "-c", start, str(tmp_path / "herdmesh")]
    done = subprocess.run(command, env={**os.environ, **environment}, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def test_a_process_reports_its_name_and_a_unique_instance_id(tmp_path: Path) -> None:
    service, of_service, run, of_run, forked, pid = told(tmp_path)
    assert service["service.name"] == "herdmesh.probe"
    assert run["service.name"] == "herdmesh.worker.run"
    for shown, of_lines in ((service, of_service), (run, of_run)):
        assert [shown["service.name"], shown["service.instance.id"]] == of_lines, "log lines have the same"
    assert service["service.instance.id"] == run["service.instance.id"] != forked
    assert service["process.pid"] == pid
    assert len(service["service.instance.id"]) == 36
    again, *_ = told(tmp_path)
    assert again["service.instance.id"] != service["service.instance.id"]


def test_environment_variables_override_the_resource_attributes(tmp_path: Path) -> None:
    attributes = "service.instance.id=mine,team=data"
    service, of_lines, *_ = told(tmp_path, OTEL_SERVICE_NAME="ours", OTEL_RESOURCE_ATTRIBUTES=attributes)
    assert of_lines == ["ours", "mine"]
    assert (service["service.name"], service["service.instance.id"], service["team"]) == ("ours", "mine", "data")
