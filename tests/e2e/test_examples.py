"""The guided examples, run by `herd example run` on the tests' cluster: every command prints what its page shows.

The pages are docs/tutorials/examples/file-to-parquet.md, datagen-to-postgres.md, cdc-to-topic-to-table.md and
http-with-dead-letters.md.
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict
from typer.testing import CliRunner, Result

from herdmesh.cli.app import app
from herdmesh.cli.example.page import examples
from herdmesh.devstack.postgres_server import find_server
from tests.support.mesh import Mesh

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.asyncio(loop_scope="session")]

NAMES = [one.name for one in examples()]


async def run(mesh: Mesh, folder: Path, name: str, env: dict[str, str | None] | None = None) -> Result:
    """`herd example run`, in a thread, because the command has an event loop of its own."""
    addresses = {"HERDMESH_HERDER": mesh.stack.state.herder, "HERDMESH_BOOTSTRAP_SERVERS": mesh.bootstrap}
    arguments = ["example", "run", name, "--folder", str(folder)]
    return await asyncio.to_thread(
        CliRunner().invoke, app, arguments, env={**addresses, **(env or {})}, catch_exceptions=False
    )


def of_server(dsn: str) -> dict[str, str | None]:
    """The variables with which an example takes that server, and finds its `psql`."""
    server, programs = conninfo_to_dict(dsn), find_server()
    return {
        **{f"PG{key.upper()}": str(server[of]) for key, of in (("host", "host"), ("port", "port"), ("user", "user"))},
        "PGDATABASE": str(server["dbname"]),
        "PATH": os.pathsep.join([str(programs.bin), os.environ["PATH"]]),
    }


@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", NAMES)
async def test_an_example_runs_as_its_page_shows(mesh: Mesh, tmp_path: Path, tmp_database: str, name: str) -> None:
    server = of_server(tmp_database) if name.startswith(("cdc", "datagen")) else None
    done = await run(mesh, tmp_path / "example", name, server)
    assert done.exit_code == 0, done.output
    assert "\n$ " in done.stdout
    assert done.stdout.rstrip().splitlines()[-1].startswith("done; its files are in ")
    topics = await asyncio.to_thread(
        CliRunner().invoke, app, ["topics", "list", "-o", "json", "--bootstrap-servers", mesh.bootstrap]
    )
    assert not [one["name"] for one in json.loads(topics.stdout) if one["name"].startswith("example")]
