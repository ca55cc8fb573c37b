"""The surroundings of an example's commands: folder, environment, PostgreSQL server, HTTP receiver.

Owns the start and stop of both servers. A server of the user's is taken instead where PGHOST, or RECEIVER_URL, is set.

Invariant: at the end no process that was started here lives.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from herdmesh.cli.example.page import Example
from herdmesh.devstack.errors import DevstackError
from herdmesh.devstack.postgres import USER, Postgres
from herdmesh.devstack.postgres_server import find_server

_REFUSED: Final = '"qty":-'
"""The receiver refuses orders with a negative quantity."""
_STOP_S: Final = 10.0


@contextmanager
def surroundings(example: Example, folder: Path, addresses: Mapping[str, str]) -> Generator[dict[str, str]]:
    """An empty folder, and the environment of commands in it. Raises DevstackError when a server does not start.

    Args:
        addresses: variables that name the cluster.
    """
    shutil.rmtree(folder, ignore_errors=True)
    programs = folder / "bin"
    programs.mkdir(parents=True)
    environment = {
        **os.environ,
        **addresses,
        "PATH": os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
        "PSQLRC": os.devnull,
        "PGOPTIONS": "-c client_min_messages=warning",
    }
    environment.pop("COLUMNS", None)
    with ExitStack() as running:
        if "PostgreSQL" in example.needs:
            environment |= running.enter_context(_postgres(folder, programs))
        if "an HTTP receiver" in example.needs and "RECEIVER_URL" not in os.environ:
            environment["RECEIVER_URL"] = running.enter_context(_receiver(folder))
        yield environment


@contextmanager
def _postgres(folder: Path, programs: Path) -> Generator[dict[str, str]]:
    if "PGHOST" in os.environ:
        yield {"PGPORT": os.environ.get("PGPORT", "5432"), "PGDATABASE": os.environ.get("PGDATABASE", "postgres")}
        return
    server = Postgres(folder / "postgres")
    asyncio.run(server.start())
    try:
        found = find_server()
        libraries = os.pathsep.join(map(str, found.libraries))
        psql = programs / "psql"  # only this program needs the libraries of a fetched server
        psql.write_text(
            f"#!/bin/sh\n{f'LD_LIBRARY_PATH={shlex.quote(libraries)} ' if libraries else ''}"
            f'exec {shlex.quote(str(found.bin / "psql"))} "$@"\n'
        )
        psql.chmod(0o755)
        yield {"PGHOST": "127.0.0.1", "PGPORT": str(server.port), "PGUSER": USER, "PGDATABASE": "postgres"}
    finally:
        asyncio.run(server.stop())


@contextmanager
def _receiver(folder: Path) -> Generator[str]:
    command = [sys.executable, "-m", "herdmesh.cli.example.receiver", str(folder / "received.txt"), _REFUSED]
    # Ctrl-C in a terminal goes to the whole process group: the receiver is needed until the example has cleaned up.
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        if not url:
            raise DevstackError("the HTTP receiver of the example did not start")
        yield url
    finally:
        process.terminate()
        process.wait(_STOP_S)
        if process.stdout is not None:
            process.stdout.close()
