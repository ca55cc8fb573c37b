"""Pages of connectors that are run: docs/connectors/file-sink.md, jdbc-source.md, postgres-cdc.md, postgres-sink.md and
postgres-source.md.

Each page's config runs in the tests' cluster under names of the test's own; outputs are compared under the names of the
page.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest
from confluent_kafka import Producer
from psycopg.conninfo import conninfo_to_dict
from typer.testing import CliRunner

from herdmesh.cli.app import app
from herdmesh.devstack.postgres_server import find_server
from libs.core.tests.engine.harness import Kafka
from tests.docs.blocks import ROOT, blocks
from tests.e2e.test_herd import herd
from tests.support.mesh import Mesh

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.asyncio(loop_scope="session")]

WAIT_S: Final = 60.0
#: Milliseconds since 1970: when a row was inserted.
_PLACED: Final = re.compile(r"\d{13}")
#: Time of a dead letter.
_LETTER_TIME: Final = re.compile(r"\b\d\d:\d\d:\d\d(?= )")
#: Key of the CDC source below `database.` -> member of a connection string.
_DATABASE: Final = {"hostname": "host", "port": "port", "user": "user", "dbname": "dbname"}


class Page:
    """The commands of one page, in order, each with its printed output."""

    def __init__(self, page: str, mesh: Mesh, folder: Path, names: dict[str, str], printed: dict[str, str]) -> None:
        """`names`: the page's name -> the test's, in commands; `printed`: name in outputs -> the page's name."""
        self._mesh, self._folder, self._names, self._printed = mesh, folder, names, printed
        self.environment = dict(os.environ)
        """Environment of the commands that are not `herd`."""
        self.wait_s = WAIT_S
        """Bound for a command to print the page's output."""
        self.config, *others = [block.text for block in blocks(page) if block.language == "json"]
        assert not others
        self._left: Iterator[tuple[str, str]] = iter(
            [(block.language, block.text) for block in blocks(page) if block.language in ("sh", "text")]
        )

    def here(self, text: str) -> str:
        """A text of the page under the test's names."""
        for there, here in self._names.items():
            text = text.replace(there, here)
        return text

    def there(self, text: str) -> str:
        """An output under the page's names, without parts that differ from run to run."""
        for here, there in self._printed.items():
            text = text.replace(here, there)
        lines = [" ".join(line.split()) for line in text.splitlines()]
        return "\n".join(_LETTER_TIME.sub("TIME", _PLACED.sub("TIME", line)) for line in lines if line)

    def output(self) -> str:
        """The next block, which is text."""
        language, text = next(self._left)
        assert language == "text"
        return self.there(text)

    async def compare(self) -> None:
        """Wait until the next command prints the page's output."""
        language, command = next(self._left)
        assert language == "sh"
        wanted, deadline_s = self.output(), time.monotonic() + self.wait_s
        while (printed := self.there(await self._run(self.here(command)))) != wanted:
            assert time.monotonic() < deadline_s, f"{command}printed\n{printed}\nand not\n{wanted}"
            assert not command.startswith(("herd create", "herd apply")), f"{printed}\nand not\n{wanted}"
            await asyncio.sleep(0.2)

    async def _run(self, command: str) -> str:
        """What a terminal shows of a command: both its outputs if it is `herd`."""
        if command.startswith("herd "):
            arguments = [str(self._folder / one) if one.endswith(".json") else one for one in shlex.split(command)[1:]]
            env = {"HERDMESH_HERDER": self._mesh.stack.state.herder}
            return (await asyncio.to_thread(CliRunner().invoke, app, arguments, env=env, catch_exceptions=False)).output
        shell = ["bash", "-c", command]
        done = await asyncio.to_thread(
            subprocess.run, shell, env=self.environment, capture_output=True, text=True, check=False
        )
        return done.stdout

    def write(self, file: str, config: dict[str, Any]) -> None:
        (self._folder / file).write_text(json.dumps(config))


async def test_the_file_sink_page_runs_as_printed(mesh: Mesh, tmp_path: Path, tmp_topic: Callable[..., str]) -> None:
    topic = mesh.create_topic(tmp_topic(), 2)
    folder, name = str(tmp_path / "lake"), f"sink-{topic}"
    names = {"/data/lake/orders": folder, "orders-to-files": name}
    printed = {folder: "/data/lake/orders", name: "orders-to-files", f"/{topic}+": "/orders+"}
    page = Page("docs/connectors/file-sink.md", mesh, tmp_path, names, printed)
    for partition, order in (
        (0, '{"id":0,"country":"DE","total":9.5}'),
        (0, '{"id":2,"country":"DE","total":7.25}'),
        (0, '{"id":4,"country":"DE","total":3}'),
        (1, '{"id":1,"country":"FR","total":1}'),
        (1, '{"id":3,"total":2}'),
    ):
        mesh.produce_raw(topic, partition, order.encode())
    config = json.loads(page.here(page.config))
    # sooner than after the 10 s of the page's config
    config["config"] |= {"topics": topic, "rotate.interval.ms": "500"}
    page.write("orders.json", config)
    for _command in range(3):
        await page.compare()
    await mesh.delete(name)


async def test_the_postgres_source_page_runs_as_printed(
    mesh: Mesh, tmp_path: Path, tmp_database: str, tmp_topic: Callable[..., str]
) -> None:
    name, database = tmp_topic("shop"), tmp_database.rpartition("/")[2]
    page = Page("docs/connectors/postgres-source.md", mesh, tmp_path, {"shop": name}, {database: "shop", name: "shop"})
    (statements,) = [block.text for block in blocks("docs/connectors/postgres-source.md") if block.language == "sql"]
    with psycopg.connect(tmp_database, autocommit=True) as connection:
        connection.execute(statements.encode())
    for topic in ("orders", "payments"):
        mesh.create_topic(f"{name}-{topic}", 1)
    config = json.loads(page.config)
    del config["connection.user"], config["connection.password"], config["name"]
    config |= {"connection.url": tmp_database, "topic.prefix": f"{name}-", "poll.interval.ms": "100"}
    config["key.converter"] = "org.apache.kafka.connect.json.JsonConverter"
    page.write(f"{name}.json", {"name": name, "config": config})
    for _command in range(4):
        await page.compare()
    assert await _values(mesh, f"{name}-orders", 3) + await _values(mesh, f"{name}-payments", 1) == _shown(page)
    with psycopg.connect(tmp_database) as late, psycopg.connect(tmp_database, autocommit=True) as quick:
        late.execute("INSERT INTO orders (item, price) VALUES ('quince', 1.10)")
        quick.execute("INSERT INTO orders (item, price) VALUES ('grape', 2.00)")
        await page.compare()
        late.commit()
    assert (await _values(mesh, f"{name}-orders", 5))[3:] == _shown(page)
    await mesh.delete(name)


@pytest.mark.timeout(300)
async def test_the_jdbc_source_page_runs_as_printed(mesh: Mesh, tmp_path: Path, tmp_topic: Callable[..., str]) -> None:
    name, path = tmp_topic("shop"), "docs/connectors/jdbc-source.md"
    page = Page(path, mesh, tmp_path, {"shop": name, "orders.json": f"{name}.json"}, {name: "shop"})
    page.wait_s = 120.0  # the task starts a JVM with Spark
    (create,) = re.findall(r"^`(CREATE TABLE orders .*)`:$", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE)
    rows = [(number, f"customer {number % 97}", number * 0.25, 1_795_428_000_000) for number in range(1, 2001)]
    with closing(sqlite3.connect(tmp_path / "shop.db")) as database, database:
        database.execute(create)
        database.executemany("INSERT INTO orders VALUES (?, ?, ?, ?)", rows)
    topic, given = mesh.create_topic(f"{name}-orders", 1), json.loads(page.config)
    changes = {"connection.url": f"jdbc:sqlite:{tmp_path / 'shop.db'}", "topic.prefix": f"{name}-"}
    page.write(f"{name}.json", {"name": f"{name}-orders", "config": given["config"] | changes})
    for _command in range(2):
        await page.compare()
    records = [value.decode() for value in await asyncio.to_thread(mesh.consume_values, topic, len(rows))]
    assert len(records) == len(rows)
    *_, shown = [block.text for block in blocks(path) if block.language == "text"]
    assert [records[0], records[-1]] == shown.splitlines(), "with their times, which do not differ from run to run"
    await mesh.delete(f"{name}-orders")


async def test_the_postgres_sink_page_runs_as_printed(mesh: Mesh, tmp_path: Path, tmp_database: str) -> None:
    """The test's names are as long as the page's: the lines of psql's tables are as wide as the longest cell."""
    server = conninfo_to_dict(tmp_database)
    names = {"orders": "fruits", "psql shop": f"psql {server['dbname']}"}
    page = Page("docs/connectors/postgres-sink.md", mesh, tmp_path, names, {"fruits": "orders"})
    topic, programs = mesh.create_topic("fruits", 1), find_server()
    await asyncio.to_thread(_produce_fruits, mesh.bootstrap, topic)
    config = json.loads(page.here(page.config))
    del config["connection.password"]
    config |= {
        "connection.url": f"jdbc:postgresql://{server['host']}:{server['port']}/{server['dbname']}",
        "connection.user": server["user"],
    }
    page.write("fruits-db.json", config)
    page.environment |= {
        **{f"PG{key.upper()}": str(server[key]) for key in ("host", "port", "user")},
        "PATH": os.pathsep.join([str(programs.bin), os.environ["PATH"]]),
        "LD_LIBRARY_PATH": os.pathsep.join(map(str, programs.libraries)),
        "PSQLRC": os.devnull,
    }
    for _command in range(4):
        await page.compare()
    await mesh.delete("fruits-db")


def _produce_fruits(bootstrap: str, topic: str) -> None:
    """The six records of the page of the PostgreSQL sink."""
    fields = [{"field": "item", "type": "string"}, {"field": "price", "type": "double"}]
    sold = {"field": "sold", "type": "int64", "optional": True, "name": "org.apache.kafka.connect.data.Timestamp"}
    producer = Producer({"bootstrap.servers": bootstrap})
    for key, payload in (
        (1, {"item": "apple", "price": 0.5}),
        (2, {"item": "pear", "price": 0.75}),
        (1, {"item": "apple", "price": 0.6}),
        (2, None),
        (3, {"item": "plum", "price": 1.25, "sold": 1_709_211_600_123}),
        (4, {"item": "kiwi\0", "price": 2.0}),
    ):
        schema = {"type": "struct", "fields": [*fields, sold] if payload and "sold" in payload else fields}
        value = None if payload is None else json.dumps({"schema": schema, "payload": payload}).encode()
        producer.produce(topic, value, key=key.to_bytes(8, "big"), partition=0)
    assert producer.flush(30) == 0


def _shown(page: Page) -> list[str]:
    """The values of the next block, whose lines are key and value."""
    return [line.partition(" ")[2] for line in page.output().splitlines()]


async def _values(mesh: Mesh, topic: str, count: int) -> list[str]:
    values = await asyncio.to_thread(mesh.consume_values, topic, count)
    return [_PLACED.sub("TIME", value.decode()) for value in values]


async def test_changes(mesh: Mesh, tmp_path: Path, tmp_database: str, tmp_topic: Callable[..., str]) -> None:
    """The shown records are shortened: each shown member is compared, without positions and times."""
    page, name = "docs/connectors/postgres-cdc.md", tmp_topic("shop")
    (statements,) = [block.text for block in blocks(page) if block.language == "sql"]
    shown, shown_offset = [block.text for block in blocks(page) if block.language == "text"]
    (config,) = [json.loads(block.text) for block in blocks(page) if block.language == "json"]
    before, _, after = statements.partition("-- the connector starts\n")
    topic, server = mesh.create_topic(f"{name}.public.orders", 1), conninfo_to_dict(tmp_database)
    config |= {
        **{f"database.{key}": str(server[of]) for key, of in _DATABASE.items() if of in server},
        **{f"{part}.converter": "org.apache.kafka.connect.json.JsonConverter" for part in ("key", "value")},
        **{f"{part}.converter.schemas.enable": "false" for part in ("key", "value")},
        "topic.prefix": name,
        "slot.name": re.sub(r"\W", "_", name.lower()),
        "slot.drop.on.stop": "true",
        "decimal.handling.mode": "string",
    }
    del config["database.password"], config["name"]
    (tmp_path / "shop.json").write_text(json.dumps({"name": name, "config": config}))
    with psycopg.connect(tmp_database, autocommit=True) as connection:
        connection.execute(before.encode())
        code, _, said = await herd(mesh, "create", "-f", str(tmp_path / "shop.json"))
        assert code == 0, said
        await asyncio.to_thread(mesh.consume_values, topic, 1)
        for statement in after.splitlines():
            connection.execute(statement.encode())
    await asyncio.to_thread(mesh.consume_values, topic, 5)
    names = {name: "shop", str(server["dbname"]): "shop"}
    found = await asyncio.to_thread(Kafka(mesh.bootstrap).records, topic, 1)
    records = [
        (_without_positions(key or b"", names), _without_positions(value or b"null", names)) for key, value in found
    ]
    wanted = [re.split(r"(?<=\})  ", entry, maxsplit=1) for entry in re.split(r"\n(?=\S)", shown.rstrip())]
    assert len(wanted) == len(records)
    for (key, value), (wanted_key, wanted_value) in zip(records, wanted, strict=True):
        whole = _without_positions(re.sub(r"\n\s+", "", wanted_value).encode(), {})
        assert key == _without_positions(wanted_key.encode(), {})
        assert (value if whole is None else {one: value[one] for one in whole}) == whole
    _, told, _ = await herd(mesh, "offsets", "get", name, "-o", "json")
    (one,) = told["offsets"]
    wanted_key, wanted_offset = (json.loads(part) for part in shown_offset.rstrip().split("  "))
    assert wanted_key == ["shop", {"server": "shop"}]
    assert (one["partition"], set(one["offset"])) == ({"server": name}, set(wanted_offset))
    await mesh.delete(name)


def _without_positions(text: bytes, names: dict[str, str]) -> Any:
    """A JSON value under the page's names, without log positions and times."""
    plain = text.decode()
    for here, there in names.items():
        plain = plain.replace(here, there)
    return json.loads(re.sub(r'\d{6,}|"\d{4}-\d\d-\d\dT[^"]+"', "0", plain))
