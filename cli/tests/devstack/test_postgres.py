"""Tests of a real PostgreSQL in a folder: data after kill -9, logins, and the error where there is no server."""

from __future__ import annotations

from pathlib import Path

import psutil
import psycopg
import pytest

from herdmesh.devstack import postgres_server
from herdmesh.devstack.errors import DevstackError
from herdmesh.devstack.postgres import PASSWORDS_ROLE, Postgres


@pytest.mark.postgres
async def test_committed_rows_survive_a_kill_on_the_same_port(tmp_path: Path) -> None:
    server = Postgres(tmp_path / "server")
    with pytest.raises(DevstackError, match="was not started yet"):
        _ = server.dsn
    await server.start()
    try:
        dsn, pid = server.dsn, server.pid
        with psycopg.connect(dsn, autocommit=True) as connection:
            settings = [connection.execute(f"SHOW {name}".encode()).fetchone() for name in ("wal_level", "fsync")]
            assert settings == [("logical",), ("on",)]
            connection.execute("CREATE TABLE kept AS SELECT 1 AS one")
            of_it = psutil.Process(pid).children(recursive=True)
            assert of_it
            server.kill()
        assert not [one for one in of_it if _is_alive(one)]
        assert not server.is_running()
        await server.start()
        assert server.dsn == dsn
        assert server.pid != pid
        with psycopg.connect(dsn) as connection:
            assert connection.execute("SELECT one FROM kept").fetchall() == [(1,)]
    finally:
        await server.stop()
    await server.stop()
    assert server.pid is None
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(dsn)


def _is_alive(process: psutil.Process) -> bool:
    """True unless the process is dead; a zombie counts as dead, and its parent may reap it at any moment."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.postgres
async def test_a_folder_has_one_server(tmp_path: Path) -> None:
    server = Postgres(tmp_path)
    await server.start()
    try:
        with pytest.raises(DevstackError, match="runs already"):
            await server.start()
        with pytest.raises(DevstackError, match=r'lock file "postmaster.pid" already exists'):
            await Postgres(tmp_path).start()
        psycopg.connect(server.dsn).close()
    finally:
        await server.stop()


def test_members_of_one_role_need_a_password(tmp_database: str) -> None:
    with psycopg.connect(tmp_database, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {PASSWORDS_ROLE}".encode())
        try:
            connection.execute(f"CREATE ROLE devstack_bob LOGIN PASSWORD 'right' IN ROLE {PASSWORDS_ROLE}".encode())
            psycopg.connect(tmp_database, user="devstack_bob", password="right").close()
            with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
                psycopg.connect(tmp_database, user="devstack_bob", password="wrong")
        finally:
            connection.execute("DROP ROLE IF EXISTS devstack_bob")
            connection.execute(f"DROP ROLE {PASSWORDS_ROLE}".encode())


def test_the_error_without_server_and_apt_names_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("HERDMESH_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(postgres_server, "DEBIAN", tmp_path)
    with pytest.raises(DevstackError, match=r"no apt to fetch one with\. Install it \(Debian/Ubuntu: apt install"):
        postgres_server.find_server()


def test_the_newest_of_several_servers_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for version in ("9", "15", "17", "18"):
        folder = tmp_path / version / "bin"
        folder.mkdir(parents=True)
        for program in ("postgres", "initdb", "psql")[: 2 if version == "18" else 3]:
            (folder / program).touch()
    monkeypatch.setattr(postgres_server, "DEBIAN", tmp_path)
    assert postgres_server.find_server().bin == tmp_path / "17" / "bin"
