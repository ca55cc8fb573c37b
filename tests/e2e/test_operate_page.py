"""docs/how-to/operate.md as printed: a series of faults with a real PostgreSQL, and the output of `herd` for each.

Each fault is caused, waited for by the herder's watch, shown by the page's commands, ended, and its end is shown. The
printed output of a command equals its output here, except times and counts.

    HERDMESH_WRITE_PAGES=1 pytest tests/e2e/test_operate_page.py    writes the outputs into the page
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import subprocess
import time
import warnings
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any, Final

import psutil
import psycopg
import pytest
from psycopg import pq
from typer.testing import CliRunner

from herdmesh.cli.app import app
from herdmesh.devstack.postgres import PASSWORDS_ROLE, Postgres
from herdmesh.devstack.postgres_server import find_server
from tests.support.mesh import Mesh
from tests.support.printed_pages import Shown, piped, renamed, rewrite, shown_in, without_what_varies
from tests.support.sizes import SOAKING

pytestmark = [
    *(pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)),
    pytest.mark.asyncio(loop_scope="session"),
]
PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "operate.md"
WRITES: Final = os.environ.get("HERDMESH_WRITE_PAGES", "") == "1"
SINK, SOURCE, TOPIC, SLOT = "orders-sink", "shop-cdc", "orders", "shop_cdc"
SECRETS: Final = "/etc/herdmesh/secrets.properties"
#: Within 10 s on an otherwise idle machine.
_SHOWN_S: Final = 10.0 if SOAKING else 30.0
_SAME_S: Final = 20.0
_DISK_KIB: Final = 512
_STALLED: Final = "^warning STALLED"
"""In a command that is only checked in `make soak`: a run is stuck for 30 s before it is STALLED."""


class Night:
    """The mesh, the server, and the page."""

    def __init__(self, mesh: Mesh, server: Postgres, folder: Path) -> None:
        self.mesh, self.server = mesh, server
        self.secrets = folder / "secrets.properties"
        self.written: dict[int, str] = {}
        self.took_s: dict[str, float] = {}
        self._left = shown_in(PAGE)
        self.sent = 0
        """Records in the sink's topic, numbered from 0."""

    @property
    def dsn(self) -> str:
        return self.server.dsn.removesuffix("postgres") + "shop"

    def sql(self, *statements: str) -> None:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    async def send(self, records: int) -> None:
        """Produce records to the sink's topic."""
        first, self.sent = self.sent, self.sent + records
        await asyncio.to_thread(self.mesh.produce, TOPIC, range(first, self.sent))

    async def until_shown(self, trouble: str, name: str, says: Callable[[dict[str, Any]], bool]) -> None:
        """Wait until the first task of the connector has a condition that satisfies `says`."""
        begun_s = time.monotonic()
        await self.mesh.until(
            name, lambda one: any(map(says, one["tasks"][0].get("conditions", ()))), trouble, _SHOWN_S
        )
        self.took_s[trouble] = round(time.monotonic() - begun_s, 1)

    async def until_well(self, *names: str) -> None:
        for name in names:
            await self.mesh.until(
                name,
                lambda one: one["tasks"][0]["state"] == "RUNNING" and not one["tasks"][0].get("conditions"),
                "well again",
                _SHOWN_S,
            )
        await self.mesh.until_committed(SINK, TOPIC)

    async def compare(self, section: str, commands: int) -> None:
        """Check that the next commands of the page print the page's output."""
        of_section = [one for one in self._left if one.section == section][:commands]
        assert len(of_section) == commands, f"the page shows less of {section}"
        for shown in of_section:
            self._left.remove(shown)
            if _STALLED in shown.command and not (SOAKING or WRITES):
                continue
            printed = await self._printed(shown)
            if WRITES:
                self.written[shown.at] = printed
                continue
            deadline_s = time.monotonic() + _SAME_S
            while without_what_varies(printed) != without_what_varies(shown.output):
                assert time.monotonic() < deadline_s, f"{section}: {shown.command}\n{printed}\nand not\n{shown.output}"
                await asyncio.sleep(0.25)
                printed = await self._printed(shown)

    def skip(self, section: str) -> None:
        """Skip a section without comparing it."""
        self._left = [one for one in self._left if one.section != section]

    def end(self) -> None:
        assert not self._left, f"never compared: {self._left[0]}"
        if WRITES:
            rewrite(PAGE, self.written)

    async def _printed(self, shown: Shown) -> str:
        addresses = self.mesh.stack.addresses
        found = {role: addresses(role)[0] for role in ("config-store", "status-store", "herder")}
        env = {f"HERDMESH_{role.replace('-', '_').upper()}": address for role, address in found.items()}
        names = {address: f"127.0.0.1:{7201 + number}" for number, address in enumerate(found.values())}
        workers = enumerate(addresses("worker"))
        names |= {address: f"127.0.0.1:{7204 + number}" for number, address in workers}
        names |= {f"127.0.0.1:{self.server.port}": "127.0.0.1:5432", f"port {self.server.port}": "port 5432"}
        names[str(self.secrets)] = SECRETS
        arguments = shlex.split(shown.command.partition(" | ")[0])[1:]
        done = await asyncio.to_thread(CliRunner().invoke, app, arguments, env=env, catch_exceptions=False)
        fails = arguments[0] == "doctor" and "TASK_FAILED" in done.stdout
        assert done.exit_code == (1 if fails else 0), done.output
        return piped(renamed(done.stdout, names), shown.command)


def _waits_with(text: str) -> Callable[[dict[str, Any]], bool]:
    return lambda one: one["type"] == "WAITING" and text in one["message"]


@pytest.fixture
def disk(tmp_path: Path) -> Any:
    """A small disk of its own, where the machine can mount one; None elsewhere."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={_DISK_KIB}k,mode=0777", "none", str(folder)],
        capture_output=True, check=False,
    )  # fmt: skip
    try:
        yield folder if mounted.returncode == 0 else None
    finally:
        if mounted.returncode == 0:
            subprocess.run(["umount", "-l", str(folder)], check=True)


@contextlib.asynccontextmanager
async def _begun(mesh: Mesh, folder: Path) -> AsyncGenerator[Night]:
    server = Postgres(folder / "postgres")
    await server.start()
    night = Night(mesh, server, folder)
    try:
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            connection.execute("CREATE DATABASE shop")
        night.sql(
            f"CREATE ROLE {PASSWORDS_ROLE}",
            f"CREATE ROLE connect LOGIN SUPERUSER PASSWORD 'first word' IN ROLE {PASSWORDS_ROLE}",
            "CREATE TABLE orders (id bigint, pad text)",
            "CREATE TABLE customers (id bigint PRIMARY KEY, name text)",
        )
        night.secrets.write_text("password=first word\n")
        mesh.create_topic(TOPIC, 1)
        password = f"${{file:{night.secrets}:password}}"
        converters = {
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter.schemas.enable": "false",
        }
        await mesh.apply(SINK, {
            "connector.class": "PostgresSink", "topics": TOPIC, "table.name.format": "orders",
            "connection.url": f"jdbc:postgresql://127.0.0.1:{server.port}/shop", "connection.user": "connect",
            "connection.password": password, "errors.retry.delay.max.ms": "2000", **converters,
        })  # fmt: skip
        await mesh.apply(SOURCE, {
            "connector.class": "PostgresCdcSource", "database.hostname": "127.0.0.1",
            "database.port": str(server.port), "database.user": "connect", "database.password": password,
            "database.dbname": "shop", "topic.prefix": "shop", "slot.name": SLOT,
            "table.include.list": "public.customers", **converters,
        })  # fmt: skip
        yield night
    finally:
        for name in (SINK, SOURCE):
            with contextlib.suppress(Exception):
                await mesh.delete(name)
        await server.stop()


async def test_every_fault_of_the_operating_page_is_shown_as_printed(
    mesh: Mesh, tmp_path: Path, disk: Path | None
) -> None:
    async with _begun(mesh, tmp_path) as night:
        await mesh.until_running(SINK, 1)
        await mesh.until_running(SOURCE, 1)
        await night.send(10)
        night.sql("INSERT INTO customers VALUES (1, 'Ada')")
        await night.until_well(SINK, SOURCE)
        await mesh.until(SOURCE, lambda one: one["tasks"][0]["progress"]["records_in"] == 1, "its row", _SHOWN_S)
        await night.compare("All is well", 2)
        await _away(night)
        await _locked_and_taken(night)
        await _full(night, disk)
        await _stands_still(night)
        await _rotated(night)
        with psycopg.connect(night.dsn) as connection:
            rows = connection.execute("SELECT id FROM orders ORDER BY id").fetchall()
        assert [row[0] for row in rows] == list(range(night.sent)), "each record once, whatever the night brought"
        night.end()
        print(night.took_s)


async def _away(night: Night) -> None:
    night.server.kill()
    await night.send(10)
    await night.until_shown("away", SINK, _waits_with("Connection refused"))
    await night.until_shown("away from changes", SOURCE, _waits_with("Connection refused"))
    shown = await night.mesh.get(SINK)
    (wait,) = [one["wait"] for one in shown["tasks"][0]["conditions"] if one["type"] == "WAITING"]
    assert all(wait[key] for key in ("waits_for", "message", "since", "tries", "next_time")), wait
    await night.compare("The server is unreachable", 3)
    await night.server.start()
    await night.until_well(SINK, SOURCE)
    await night.compare("The server is unreachable", 1)


async def _locked_and_taken(night: Night) -> None:
    """Both faults at once: one is the sink's, the other the source's."""
    await night.mesh.lifecycle("PauseConnector", SOURCE)
    await night.mesh.until(SOURCE, lambda one: one["tasks"][0]["state"] == "PAUSED", "paused", _SHOWN_S)
    with psycopg.connect(night.dsn) as other, psycopg.connect(
        night.dsn, autocommit=True, replication="database", application_name="pg_recvlogical"
    ) as taker:  # fmt: skip
        other.execute("LOCK TABLE orders IN ACCESS EXCLUSIVE MODE")
        await _take_slot(taker)
        await night.mesh.lifecycle("ResumeConnector", SOURCE)
        await night.send(10)
        await night.until_shown("locked", SINK, _waits_with("lock timeout"))
        await night.until_shown("slot taken", SOURCE, _waits_with("is in use by"))
        await night.compare("A table is locked", 3)
        await night.compare("The replication slot is taken", 3)
        other.rollback()
        taker.pgconn.finish()
    await night.until_well(SINK, SOURCE)
    await night.compare("A table is locked", 1)
    await night.compare("The replication slot is taken", 1)


async def _take_slot(taker: psycopg.Connection[Any]) -> None:
    """Take the slot once the server has noticed that the paused task released it."""
    options = b"(proto_version '1', publication_names 'dbz_publication')"
    deadline_s = time.monotonic() + _SAME_S
    while True:
        answer = taker.pgconn.exec_(b"START_REPLICATION SLOT %s LOGICAL 0/0 %s" % (SLOT.encode(), options))
        if answer.status == pq.ExecStatus.COPY_BOTH:
            return
        assert time.monotonic() < deadline_s, answer.error_message
        await asyncio.sleep(0.05)


async def _full(night: Night, disk: Path | None) -> None:
    if disk is None:
        warnings.warn("no disk can be mounted here: 'The disk is full' of the page is not tried", stacklevel=2)
        night.skip("The disk is full")
        return
    space = disk / "tablespace"
    space.mkdir()
    (await asyncio.to_thread(find_server)).hand_over(space)
    night.sql(f"CREATE TABLESPACE small LOCATION '{space}'", "ALTER TABLE orders SET TABLESPACE small")
    filler = disk / "filler"
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        while file.write(b"x" * 4096):
            pass
    await night.send(500)
    await night.until_shown("full", SINK, _waits_with("No space left"))
    await night.compare("The disk is full", 3)
    filler.unlink()
    await night.until_well(SINK)
    await night.compare("The disk is full", 1)
    night.sql("ALTER TABLE orders SET TABLESPACE pg_default", "DROP TABLESPACE small")


async def _stands_still(night: Night) -> None:
    pid = night.server.pid
    assert pid is not None
    root = psutil.Process(pid)
    stopped = [root, *root.children(recursive=True)]
    for one in stopped:
        with contextlib.suppress(psutil.NoSuchProcess):  # an autovacuum that has just ended
            one.suspend()
    try:
        await night.send(50)
        await night.until_shown("stands still", SINK, _waits_with("no response yet"))
        await night.until_shown("stands still for changes", SOURCE, _waits_with("replication stream"))
        await night.compare("The server hangs", 4)
        if SOAKING or WRITES:
            await night.mesh.until(
                SINK,
                lambda one: any(note["type"] == "STALLED" for note in one["tasks"][0].get("conditions", ())),
                "STALLED",
            )
        await night.compare("The server hangs", 1)
    finally:
        for one in stopped:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.resume()
    await night.until_well(SINK, SOURCE)
    await night.compare("The server hangs", 1)


async def _rotated(night: Night) -> None:
    night.sql(
        "ALTER ROLE connect PASSWORD 'second word'",
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'connect'",
    )
    await night.send(10)
    for name in (SINK, SOURCE):
        await night.mesh.until(name, lambda one: one["tasks"][0]["state"] == "FAILED", "FAILED", _SHOWN_S)
    await night.compare("The password was rotated", 3)
    night.secrets.write_text("password=second word\n")
    await night.until_well(SINK, SOURCE)
    await night.compare("The password was rotated", 1)
