"""Every house rule catches a bad sample, and lets the good one beside it pass."""

from __future__ import annotations

import pytest

from tests.tidy import rules
from tests.tidy.rules import Rule, Source

HERDER = "services/herder/src/herdmesh/herder"
WORKER = "services/worker/src/herdmesh/worker"
LONG_FUNCTION = "def f():\n" + "    x = 1\n" * 80
HOME = "/" + "home/me/kafka"
TRY = "try:\n    x()\n"
EVENTS = "from herdmesh.worker.state import events\ndef f(event):\n    match event:\n"
MARK = "# TO" + "DO later\n"

CASES: list[tuple[Rule, str, str, str]] = [
    # rule, path, bad text, good text
    (rules.file_length, "libs/a.py", "x = 1\n" * 601, "x = 1\n" * 600),
    (rules.file_length, "protos/a.proto", "//\n" * 601, "//\n"),
    (rules.function_length, f"{HERDER}/state.py", LONG_FUNCTION, "def f():\n    pass\n"),
    (rules.opens_with_docstring, f"{HERDER}/state.py", "x = 1\n", '"""Owns x."""\nx = 1\n'),
    (rules.pure_state, f"{HERDER}/state.py", "import asyncio\n", "import dataclasses\n"),
    (rules.pure_state, f"{HERDER}/state/assign.py", "from time import monotonic\n", "from math import inf\n"),
    (rules.pure_state, f"{HERDER}/state.py", "x = datetime.now()\n", "x = now\n"),
    (rules.kafka_only_in_effects, f"{HERDER}/service.py", "import confluent_kafka\n", "import grpc\n"),
    (rules.transient_asked_once, "bench/a.py", "if not error.retriable():\n    x()\n", "is_transient(error)\n"),
    (
        rules.offsets_asked_safely,
        "tests/support/a.py",
        "admin.list_offsets({partition: spec})\n",
        "list_offsets(admin, {partition: spec}, timeout_s=1)\n",
    ),
    (
        rules.offsets_asked_safely,
        f"{WORKER}/effects/a.py",
        "self._client().list_consumer_group_offsets(asked)\n",
        "group_offsets(consumer, admin, group, 1)\n",
    ),
    (
        rules.offsets_asked_safely,
        f"{WORKER}/effects/a.py",
        "self._consumer.committed(asked, timeout=1)\n",
        "committed_offsets(consumer, asked, 1)\n",
    ),
    (
        rules.offsets_asked_safely,
        f"{WORKER}/effects/a.py",
        "admin.describe_consumer_groups([group])\n",
        "describe_group(admin, group, 1)\n",
    ),
    (
        rules.producers_checked,
        f"{WORKER}/effects/a.py",
        'producer = opened(Producer, "producer", config)\n',
        'producer = opened(CheckedProducer, "producer", config)\n',
    ),
    (
        rules.clients_ready,
        "libs/core/src/herdmesh/topicstore/a.py",
        "admin = AdminClient(configs, logger=log)\n",
        "admin = AdminClient(ready(configs), logger=log)\n",
    ),
    (
        rules.servicers_only_in_service,
        f"{HERDER}/effects.py",
        "class A(pb.ConnectorServiceServicer):\n    pass\n",
        "stub = pb.ConfigReadServiceStub(channel)\n",
    ),
    (rules.servicers_only_in_service, f"{HERDER}/service.py", "s = pb.ConfigReadServiceStub(c)\n", "s = 1\n"),
    (
        rules.spark_only_in_spark,
        "services/worker/src/herdmesh/worker/effects.py",
        "import pyspark.sql\n",
        "import os\n",
    ),
    (
        rules.waits_have_reasons,
        "libs/connectors/src/herdmesh/connectors/files/a.py",
        "while not there():\n    time.sleep(1)\n",
        'with waits.on("S3", "a folder"):\n    time.sleep(1)\n',
    ),
    (
        rules.waits_have_reasons,
        "libs/core/src/herdmesh/engine/a.py",
        "with self._lock:\n    self._over.wait(3)\n",
        "self._over.wait(3)  # waits: for 3 s at most\n",
    ),
    (
        rules.waits_have_reasons,
        "libs/core/src/herdmesh/engine/a.py",
        "while producer.flush(1.0):\n    pass\n",
        'with waits.on("Kafka", "to take records"):\n    producer.flush(1.0)\nstream.flush()\n',
    ),
    (
        rules.waits_have_reasons,
        "libs/sdk/src/herdmesh/sdk/spark/task_session.py",
        "query.awaitTermination()\n",
        "# waits: the caller has said it\nquery.awaitTermination()\n",
    ),
    (
        rules.matches_are_complete,
        f"{WORKER}/loop.py",
        f"{EVENTS}        case events.Tick():\n            x()\n        case _:\n            y()\n",
        f"{EVENTS}        case events.Tick():\n            x()\n        case _:\n            assert_never(event)\n",
    ),
    (
        rules.matches_are_complete,
        f"{WORKER}/loop.py",
        "class A: ...\nmatch a:\n    case A():\n        x()\n",
        "class A: ...\nmatch a:\n    case A():\n        x()\n    case _:\n        raise AssertionError\n",
    ),
    (
        rules.matches_are_complete,
        f"{WORKER}/http.py",
        "class A(Exception): ...\nmatch a:\n    case A():\n        x()\n    case _:\n        y()\n",
        "class A(Exception): ...\nmatch a:\n    case A():\n        x()\n    case _:  # open: anything\n        y()\n",
    ),
    (rules.no_sleeping_tests, "tests/e2e/test_a.py", "import time\ntime.sleep(1)\n", "await asyncio.sleep(0)\n"),
    (rules.no_sleeping_tests, "cli/tests/test_a.py", "await asyncio.sleep(0.1)\n", "await event.wait()\n"),
    (
        rules.no_sleeping_tests,
        "cli/tests/test_a.py",
        "while not done():\n    time.sleep(5)\n",
        "while not done():\n    assert time.monotonic() < deadline_s\n    time.sleep(0.1)\n",
    ),
    (rules.no_loose_ends, "README.md", MARK, "to do it, run make\n"),
    (rules.no_loose_ends, "libs/a.py", "raise NotImplemented" + "Error\n", "except NotImplemented" + "Error:\n"),
    (
        rules.no_patched_callbacks,
        f"{WORKER}/a.py",
        "class A:\n    def f(self, b):\n        b.c.pause = self.g\n    def g(self): ...\n",
        "class A:\n    def f(self, b):\n        self.b = B(pause=self.g)\n    def g(self): ...\n",
    ),
    (
        rules.no_patched_callbacks,
        f"{WORKER}/a.py",
        "class A:\n    def f(self, b):\n        b.origin = lambda at: at\n",
        "class A:\n    def f(self, b):\n        self.origin = lambda at: at\n",
    ),
    (
        rules.no_bare_except,
        "libs/a.py",
        "try:\n    x()\nexcept:\n    pass\n",
        "try:\n    x()\nexcept OSError:\n    y()\n",
    ),
    (rules.no_machine_paths, "docs/a.md", f"run {HOME}\n", "run libs/home/me and src/work/x\n"),
    (rules.no_registry_addresses, "deploy/requirements.txt", "--index-url https" + "://x\n", "grpcio==1.85.1\n"),
    (rules.no_registry_addresses, "deploy/jars/ivy.xml", '<url href="http' + '://x"/>', "<ivy-module/>"),
    (rules.no_registry_addresses, "package-lock.json", "{}", ""),
]


@pytest.mark.parametrize(("rule", "path", "bad", "good"), CASES)
def test_rule_catches_the_bad_sample_and_passes_the_good_one(rule: Rule, path: str, bad: str, good: str) -> None:
    assert list(rule(Source(path, bad))), "the bad sample was not caught"
    if good:
        assert not list(rule(Source(path, good))), "the good sample was refused"


def test_every_rule_has_a_bad_sample() -> None:
    assert {rule for rule, *_ in CASES} == set(rules.RULES)
