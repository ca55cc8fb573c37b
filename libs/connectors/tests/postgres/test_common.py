"""Tests of connections to a real server: refusals with their key, and transient errors."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import replace

import psycopg
import pytest

from herdmesh.connect.error_class import ErrorClass
from herdmesh.connect.errors import ConfigError, ConnectError, RetriableError, UnreachableError
from herdmesh.connectors.postgres.connection import (
    ConnectionSettings,
    connect,
    connection_settings,
    errors_translated,
    literal,
    quoted,
)
from herdmesh.devstack.postgres import PASSWORDS_ROLE
from herdmesh.engine.runtime import failure


@pytest.fixture
def settings(tmp_database: str) -> ConnectionSettings:
    return connection_settings({"connection.url": tmp_database})


@pytest.fixture
def bob(settings: ConnectionSettings) -> Iterator[ConnectionSettings]:
    """Yield settings of a user who needs a password, and has it."""
    with connect(settings) as connection:
        connection.execute(f"CREATE ROLE {PASSWORDS_ROLE}".encode())
        connection.execute(f"CREATE ROLE common_bob LOGIN PASSWORD 'right-one' IN ROLE {PASSWORDS_ROLE}".encode())
    yield replace(settings, user="common_bob", password="right-one")
    with connect(settings) as connection:
        connection.execute(f"DROP ROLE common_bob, {PASSWORDS_ROLE}".encode())


def test_a_connection_uses_utf8_and_has_an_application_name(settings: ConnectionSettings) -> None:
    with connect(settings) as connection:
        row = connection.execute("SELECT current_setting('application_name'), 'é'::text").fetchone()
        assert row == ("herdmesh", "é")
    with connect(replace(settings, parameters={"application_name": "mine"})) as connection:
        assert connection.execute("SELECT current_setting('application_name')").fetchone() == ("mine",)


def test_a_refused_login_is_reported_with_the_key(settings: ConnectionSettings, bob: ConnectionSettings) -> None:
    connect(bob).close()
    refused = {
        "connection.password": replace(bob, password="wrong-one"),
        "connection.user": replace(settings, user="nobody_such"),
        "connection.url": replace(settings, database="no_such"),
    }
    for field, tried in {**refused, "": replace(bob, password="")}.items():
        with pytest.raises(ConfigError) as caught:
            connect(tried)
        assert caught.value.field == (field or "connection.password")
        assert caught.value.fix
        assert "wrong-one" not in str(caught.value)


def test_tls_that_the_server_lacks_is_an_error_of_the_url(settings: ConnectionSettings) -> None:
    with pytest.raises(ConfigError, match="server does not support SSL") as caught:
        connect(replace(settings, parameters={"sslmode": "require"}))
    assert caught.value.field == "connection.url"
    with pytest.raises(ConfigError, match="sslmode"):
        connect(replace(settings, parameters={"sslmode": "odd"}))


def test_a_server_without_a_listener_is_unreachable(settings: ConnectionSettings) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # bound, and not listening
        with pytest.raises(UnreachableError, match="accepts no connections now") as caught:
            connect(replace(settings, port=str(nobody.getsockname()[1])))
        assert failure.error_class(caught.value) is ErrorClass.UNREACHABLE


def test_a_broken_connection_is_retriable(settings: ConnectionSettings) -> None:
    with connect(settings) as admin, connect(settings) as cut:
        admin.execute("SELECT pg_terminate_backend(%s)", (cut.info.backend_pid,))
        with pytest.raises(RetriableError, match="looking"), errors_translated("looking"):
            cut.execute("SELECT 1")
        with pytest.raises(RetriableError, match="looking"), errors_translated("looking"):
            cut.execute("SELECT 1")


@pytest.mark.parametrize(
    ("statement", "kind"),
    [
        ("SELECT * FROM no_such_table", ConfigError),
        ("SELECT no_such_column FROM pg_class", ConfigError),
        ("SELEKT", ConfigError),
        ("SELECT 1/0", ConnectError),
        ("SET statement_timeout = 1; SELECT pg_sleep(9)", RetriableError),
    ],
)
def test_the_servers_errors_are_translated_by_meaning(
    settings: ConnectionSettings, statement: str, kind: type[Exception]
) -> None:
    with (
        connect(settings) as connection,
        pytest.raises(ConnectError, match="looking: ") as caught,
        errors_translated("looking", field="query"),
    ):
        connection.execute(statement.encode())
    assert type(caught.value) is kind
    assert isinstance(caught.value.__cause__, psycopg.Error)


def test_names_and_texts_in_sql(settings: ConnectionSettings) -> None:
    with connect(settings) as connection:
        for odd in ('a"b', "a'b", "a\\b", "Ä %s"):
            row = connection.execute(f"SELECT {literal(odd)} AS {quoted(odd)}".encode())
            assert row.description is not None
            assert row.description[0].name == odd
            assert row.fetchone() == (odd,)
