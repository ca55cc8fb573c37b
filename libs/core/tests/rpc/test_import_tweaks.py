"""Imports that a service's process leaves out because only a terminal needs them, without hiding them from other
code.
"""

from __future__ import annotations

import subprocess
import sys

_PROCESS = """
import importlib, sys

from herdmesh.rpc import import_tweaks

for name in ("configstore", "statusstore", "herder", "worker"):
    assert importlib.import_module(f"herdmesh.{name}").import_tweaks is import_tweaks

import structlog.dev
import structlog.tracebacks

assert "rich" not in sys.modules
importlib.import_module("rich.table")
"""
_REVISIONS = """
import sys

import herdmesh.rpc.revisions

assert "herdmesh.topicstore.contract" in sys.modules
loaded = {"confluent_kafka", "herdmesh.topicstore.core"} & sys.modules.keys()
assert not loaded, loaded
"""


def test_structlog_in_a_service_loads_no_rich_and_the_command_line_has_it() -> None:
    subprocess.run([sys.executable, "-c", _PROCESS], check=True)


def test_importing_revisions_loads_no_store_and_no_kafka_client() -> None:
    subprocess.run([sys.executable, "-c", _REVISIONS], check=True)
