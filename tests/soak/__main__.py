"""Runner of the long tests at full size, part by part; writes their results to `docs/internals/soak.md`.

    python -m tests.soak                       every part
    python -m tests.soak sim real              these parts; the rows of the others stay as they were

Owns the list of parts and the report. The tests are the same as in `make test`, switched by HERDMESH_SOAK=1 to their
full sizes (`tests.support.sizes`); they note their results in a file (`tests.support.tally`).

Invariant: a part that fails is written down as failed, the rest still runs, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.support.tally import VARIABLE

_ROOT = Path(__file__).parents[2]
_REPORT = _ROOT / "docs" / "internals" / "soak.md"
_PART_S_MAX = 3 * 3_600
_DATA = re.compile(r"<!-- soak: (.*) -->")


@dataclass(frozen=True)
class Part:
    """Some test files, run by one pytest, `rounds` times over. `what` is for the reader of the report."""

    what: str
    paths: tuple[str, ...]
    rounds: int = 1


PARTS = {
    "sim": Part(
        "both stores in the simulator, 500 seeds each; the four builds without one safety; the checkers themselves",
        ("tests/sim/stores", "tests/sim/test_linearizability.py"),
    ),
    "mesh": Part(
        "the whole mesh in the simulator, 10,000 seeds; every build without one safety; the seeds that found a bug",
        ("tests/sim/mesh",),
    ),
    "real": Part(
        "two stores of a kind on a real broker, kills and stops at every stage: 20 runs of config stores, 10 of status "
        "stores; take-over and watches",
        ("tests/faults/test_store_failpoints.py", "tests/faults/test_replicas.py", "tests/faults/test_two_writers.py"),
    ),
    "compaction": Part(
        "random histories and legal compactions of both topics",
        (
            "tests/replay/test_compaction_*.py",
            "tests/replay/test_java_rules.py",
            "tests/replay/test_real_cleaner.py",
            "tests/replay/test_cleaner_model.py",
        ),
    ),
    "fuzz": Part("random raw records into both topics", ("tests/replay/test_fuzz*.py",)),
    "records": Part(
        "100,000 random byte strings, and as many random values, through every converter; 3,000 random chains by the "
        "compiled loop and step by step; a poison record of each stage among a million",
        (
            "tests/replay/test_records_fuzz.py",
            "libs/core/tests/engine/bad_records/test_dead_letters.py",
            "libs/core/tests/connect/registry/test_registry_fuzz.py",
            "libs/core/tests/connect/chain/test_chain_properties.py",
        ),
    ),
    "night": Part(
        "the operator's night with PostgreSQL (docs/how-to/operate.md), with a stall of 30 s, and the bound of 10 s "
        "for statuses",
        ("tests/e2e/test_operate_page.py",),
    ),
    "java": Part(
        "a live Java Connect worker on the same topics, in both directions, also with a mirror between two clusters; "
        "20,000 properties files read by both",
        ("tests/integration/test_java_*.py", "cli/tests/standalone/test_java_agrees.py"),
    ),
    "stores": Part(
        "all other tests of the stores that have a full size",
        (
            "libs/core/tests/topicstore",
            "libs/core/tests/connect",
            "services/config-store/tests",
            "services/status-store/tests",
            "tests/integration/test_status_order.py",
        ),
    ),
    "herder": Part(
        "1,000 connectors of four tasks on 20 workers, by the state machine alone and over real gRPC; 3,000 plans "
        "compared with their execution; plugins that only one of two workers has",
        (
            "services/herder/tests/units/test_scale.py",
            "tests/integration/test_scale.py",
            "services/herder/tests/calls/test_plans.py",
            "tests/e2e/test_plugin_versions.py",
        ),
    ),
    "chaos": Part(
        "15 minutes of kill -9, SIGTERM and SIGSTOP of any process of a mesh, including its broker: every task RUNNING "
        "again within 10 s, no other restarted, no acknowledged change lost",
        ("tests/faults/test_chaos.py",),
    ),
    "data": Part(
        "tasks under load while every process in turn is killed or frozen, ten times over",
        ("tests/faults/test_kills.py", "tests/faults/test_failpoints.py"),
        rounds=10,
    ),
    "native": Part(
        "native.c under AddressSanitizer and UBSan, and a build with a memory error that they must find",
        ("tests/faults/test_native_sanitized.py",),
    ),
    "values": Part(
        "random schemas with random values, ten times as many: written and read by every converter, through every sink "
        "of files and requests, read back; a thousand rows of odd values of every type of PostgreSQL from source and "
        "CDC source to sink; random batches of keys of every type",
        (
            "libs/connectors/tests/values/test_values_property.py",
            "libs/connectors/tests/postgres/test_odd_values.py",
            "libs/connectors/tests/postgres/test_sink_keys.py",
        ),
    ),
    "files": Part(
        "files in HDFS: the standard suite, tasks killed and frozen at every point",
        (
            "libs/connectors/tests/files/test_files_suite.py",
            "libs/connectors/tests/files/test_file_sink.py",
        ),
    ),
    "exactly-once": Part(
        "1,000,000 records file to topic, PostgreSQL to topic, topic to topic, to PostgreSQL and to Parquet, each path "
        "exactly once and beside it at least once, under 20 kill -9 of workers, herders, stores and broker",
        ("tests/exactly_once",),
    ),
    "lakehouse": Part(
        "records into Delta and Iceberg tables with their own jars and Spark 4.1; Delta exactly once, killed after its "
        "commits; Iceberg tables and Kafka's records through that Spark into topics, killed at every point",
        (
            "libs/connectors/tests/spark/test_spark_lakehouse.py",
            "libs/connectors/tests/spark/test_stream_source_suite.py",
            "tests/e2e/test_spark_stream.py",
            "tests/e2e/test_spark_page.py",
            "libs/connectors/tests/spark/test_scratch.py",
        ),
    ),
    "databases": Part(
        "rows into and out of MariaDB (and H2) by Spark's JDBC: the standard suite, owners killed in the middle of a "
        "write, names, types and zones",
        (
            "libs/connectors/tests/spark/test_mariadb_suite.py",
            "libs/connectors/tests/spark/test_other_databases.py",
        ),
    ),
    "tasks": Part(
        "20,000 records per partition through sinks; rate limits over ten seconds; fair slots for 300 mixes of tasks",
        (
            "libs/core/tests/engine/delivery/test_delivery.py",
            "services/worker/tests/test_slots.py",
            "tests/e2e/test_rate_limit.py",
        ),
    ),
}


@dataclass
class Result:
    """The result of a part."""

    part: str
    date: str
    commit: str
    machine: str
    seconds: float = 0.0
    passed: int = 0
    failed: list[str] = field(default_factory=lambda: list[str]())
    lines: list[dict[str, Any]] = field(default_factory=lambda: list[dict[str, Any]]())


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description="Run the long tests at full size.")
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], help="what to run; nothing = every part")
    wanted: list[str] = parser.parse_args().parts or list(PARTS)
    results = _earlier()
    failed = False
    for name in wanted:
        print(f"soak: {name}: {PARTS[name].what}", flush=True)
        result = _run(name)
        results[name] = result
        failed = failed or bool(result.failed)
        _REPORT.write_text(_report([results[part] for part in PARTS if part in results]), encoding="utf-8")
        print(f"soak: {name}: {_verdict(result)}, {result.seconds:.0f} s", flush=True)
    return 1 if failed else 0


def _run(name: str) -> Result:
    result = Result(name, datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"), _commit(), _machine())
    paths = [str(path) for pattern in PARTS[name].paths for path in sorted(_ROOT.glob(pattern))]
    if not paths:
        result.failed.append(f"no file matches {' '.join(PARTS[name].paths)}")
        return result
    with tempfile.TemporaryDirectory(prefix="herdmesh-soak-") as folder:
        tally = Path(folder, "tally")
        environment = {**os.environ, "HERDMESH_SOAK": "1", VARIABLE: str(tally)}
        begun_s = time.monotonic()
        for number in range(PARTS[name].rounds):
            junit = Path(folder, f"junit-{number}.xml")
            command = [sys.executable, "-m", "pytest", "-q", "-s", "-o", "timeout=1800", f"--junitxml={junit}", *paths]
            try:
                subprocess.run(command, cwd=_ROOT, env=environment, timeout=_PART_S_MAX, check=False)
            except subprocess.TimeoutExpired:
                result.failed.append(f"it took over {_PART_S_MAX} s")
            _count(result, junit)
        result.seconds = time.monotonic() - begun_s
        if tally.exists():
            result.lines = [json.loads(line) for line in tally.read_text(encoding="utf-8").splitlines()]
    return result


def _count(result: Result, junit: Path) -> None:
    if not junit.exists():
        result.failed.append("pytest did not end")
        return
    for case in ElementTree.parse(junit).iter("testcase"):
        name = f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}"
        if case.find("failure") is not None or case.find("error") is not None:
            result.failed.append(name)
        elif case.find("skipped") is None:
            result.passed += 1


def _report(results: list[Result]) -> str:
    lines = [
        "# Soak",
        "",
        "The long tests at full size, in the last run of `make soak` (`python -m tests.soak`), which writes this page.",
        "",
        "| Part | What | Date | Commit | Machine | Tests | Violations | Duration |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {result.part} | {PARTS[result.part].what} | {result.date} | {result.commit} | {result.machine} "
        f"| {result.passed} passed, {len(result.failed)} failed | {_verdict(result)} | {result.seconds:.0f} s |"
        for result in results
    ]
    for result in results:
        if result.lines or result.failed:
            lines += ["", f"## {result.part}", "", *_details(result)]
    lines += ["", *(f"<!-- soak: {json.dumps(asdict(result), sort_keys=True)} -->" for result in results), ""]
    return "\n".join(lines)


def _details(result: Result) -> list[str]:
    lines = [f"- FAILED: `{name}`" for name in result.failed]
    for line in result.lines:
        if "mutant" in line:
            checks = "; ".join(line["checks"])
            lines.append(f"- the mutant `{line['mutant']}` was caught at seed {line['seed']} by: {checks}")
            continue
        faults = Counter[str](line["faults"])
        lines.append(
            f"- {line['part']}: {line['runs']} runs, {line['operations']} operations, {faults.total()} faults, "
            f"{line['violations']} violations"
        )
        lines += [f"  - {kind}: {times}" for kind, times in sorted(faults.items())]
    return lines


def _verdict(result: Result) -> str:
    return "0" if not result.failed else f"FAILED: {len(result.failed)}"


def _earlier() -> dict[str, Result]:
    """The results of parts that are not run now, as the report keeps them."""
    if not _REPORT.exists():
        return {}
    found = [Result(**json.loads(data)) for data in _DATA.findall(_REPORT.read_text(encoding="utf-8"))]
    return {result.part: result for result in found if result.part in PARTS}


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    return subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=True).stdout.strip()


def _machine() -> str:
    memory_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1024**3
    return f"{os.cpu_count()} cores, {memory_gb:.0f} GB, Python {platform.python_version()}"


if __name__ == "__main__":
    sys.exit(main())
