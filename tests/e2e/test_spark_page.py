"""The commands of docs/connectors/spark.md with the page's configs, under names of the test's own.

The counts of Delta's and Iceberg's tables are compared only in the soak, because their Spark is 490 MB. In `make test`
the sink accepts their configs, and `spark-sql` has the settings of both.
"""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from herdmesh.connectors.spark.sink.settings import settings_of
from herdmesh.devstack.broker import Broker
from herdmesh.devstack.jars import ensure_jars
from herdmesh.sdk.spark import task_session
from libs.connectors.tests.spark import lake
from tests.docs.blocks import blocks
from tests.e2e.test_herd import herd
from tests.support.mesh import Mesh, running_mesh
from tests.support.sizes import SOAKING

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(900)]

PAGE: Final = "docs/connectors/spark.md"
RECORDS: Final = 2_000
#: Commands of the part about Delta and Iceberg, the last ones of the page.
_OF_LAKE: Final = 3
#: On a busy machine a JVM takes a minute to start.
_WAIT_S: Final = 180.0


def shown(language: str) -> list[str]:
    return [block.text for block in blocks(PAGE) if block.language == language]


def configs() -> list[dict[str, Any]]:
    """Return the page's connectors: of SQLite, Delta, Iceberg."""
    sqlite, delta, instead = shown("json")
    of_delta = json.loads(delta)
    common = {key: value for key, value in of_delta["config"].items() if not key.startswith("spark.")}
    iceberg = common | json.loads("{" + instead.rstrip().removesuffix(",") + "}")
    return [json.loads(sqlite), of_delta, {"name": "flights-to-iceberg", "config": iceberg}]


def commands() -> list[tuple[str, str]]:
    """Return each command and its output."""
    return list(zip(shown("sh"), shown("text"), strict=True))


class Here:
    """The page's commands in a mesh: its folders are below `folder`, its topic is `topic`."""

    def __init__(self, mesh: Mesh, folder: Path, topic: str, names: Mapping[str, str], env: Mapping[str, str]) -> None:
        """`names`: more names of the page -> the test's; `env`: environment of the commands."""
        self._mesh, self._folder, self._env = mesh, folder, env
        self._topic = topic
        self._names = {**names, "/data/": f"{folder}/", "flights-to-": f"{topic}-to-"}

    def write(self, file: str, connector: dict[str, Any]) -> None:
        """Write a config of the page that writes sooner than after the 10 s of the page."""
        written = json.loads(renamed(json.dumps(connector), self._names))
        written["config"] |= {"topics": self._topic, "rotate.interval.ms": "500"}
        (self._folder / file).write_text(json.dumps(written))

    async def compare(self, command: str, output: str) -> None:
        """Wait until the command prints the page's output."""
        wanted, deadline_s = renamed(output, self._names), time.monotonic() + _WAIT_S
        while (printed := await self._run(renamed(command, self._names))) != wanted:
            assert time.monotonic() < deadline_s, f"{command}printed\n{printed}\nand not\n{wanted}"
            assert not command.startswith("herd apply"), f"{printed}\nand not\n{wanted}"
            await asyncio.sleep(0.2)

    async def _run(self, command: str) -> str:
        if command.startswith("herd "):
            arguments = [str(self._folder / one) if one.endswith(".json") else one for one in shlex.split(command)[1:]]
            return (await herd(self._mesh, *arguments))[1]
        return await asyncio.to_thread(bash, command, self._folder, self._env)


def renamed(text: str, names: Mapping[str, str]) -> str:
    for there, here in names.items():
        text = text.replace(there, here)
    return text


def bash(command: str, folder: Path, env: Mapping[str, str]) -> str:
    """Run a command; return its output."""
    given = [f"export {name}={shlex.quote(value)}\n" for name, value in env.items()]
    shell = ["bash", "-c", "".join(given) + command]
    return subprocess.run(shell, cwd=folder, capture_output=True, text=True, check=False).stdout


@pytest.mark.asyncio(loop_scope="session")
async def test_the_spark_page_writes_into_a_database_as_printed(
    mesh: Mesh, tmp_path: Path, tmp_topic: Callable[..., str]
) -> None:
    topic = mesh.create_topic(tmp_topic(), 1)
    await asyncio.to_thread(mesh.produce, topic, range(RECORDS))
    here = Here(mesh, tmp_path, topic, {}, {})
    here.write("flights.json", configs()[0])
    for command, output in commands()[:-_OF_LAKE]:
        await here.compare(command, output)


def test_the_configs_of_the_spark_page_are_valid_and_spark_sql_has_their_settings() -> None:
    of_session = dict[str, str]()
    for connector in configs():
        settings_of(connector["config"])
        of_session |= {key: value for key, value in connector["config"].items() if key.startswith("spark.sql.")}
    assert dict(re.findall(r"--conf (\S+?)=(\S+)", commands()[-1][0])) == of_session


@pytest.mark.skipif(not SOAKING, reason="a Spark of its own, 490 MB: make soak ARGS=lakehouse")
@pytest.mark.asyncio(loop_scope="session")
async def test_the_spark_page_writes_into_delta_and_iceberg_as_printed(
    kafka: Broker, tmp_path: Path, tmp_topic: Callable[..., str]
) -> None:
    spark, jars = str(await asyncio.to_thread(lake.home)), Path(ensure_jars("lakehouse").split(":")[0]).parent
    names = {"/opt/spark-4.1/pyspark": spark, " /jars/": f" {jars}/"}
    (exports,) = shown("bash")
    exports = renamed("".join(line for line in exports.splitlines(True) if line.startswith("export ")), names)
    variables = (task_session.HOME_VARIABLE, task_session.JARS_VARIABLE)
    values = bash(f"{exports}echo ${variables[0]}; echo ${variables[1]}", tmp_path, {}).splitlines()
    env: dict[str, str] = dict(zip(variables, values, strict=True))
    async with running_mesh(tmp_path / "lakes", kafka, workers=1, ends_by_force=True, worker_env=env) as mesh:
        topic = mesh.create_topic(tmp_topic(), 1)
        await asyncio.to_thread(mesh.produce, topic, range(RECORDS))
        here = Here(mesh, tmp_path, topic, names, env)
        for file, connector in zip(("flights.json", "iceberg.json"), configs()[1:], strict=True):
            here.write(file, connector)
        *applied, count = commands()[-_OF_LAKE:]
        for command, output in applied:
            await here.compare(command, output)
        for connector in ("flights-to-delta", "flights-to-iceberg"):
            await mesh.until_committed(connector.replace("flights", topic), topic, _WAIT_S)
        await here.compare(*count)
