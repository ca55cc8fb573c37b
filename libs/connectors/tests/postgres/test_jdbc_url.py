"""Tests of translating database URLs, read like by the Java driver, to libpq's settings."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from herdmesh.connect.errors import ConfigError
from herdmesh.connectors.postgres import jdbc_url
from herdmesh.connectors.postgres.connection import connection_settings, warnings_of_connection
from tests.support.sizes import soak_or

KEY = "connection.url"


@pytest.mark.parametrize(
    ("url", "settings"),
    [
        ("jdbc:postgresql://h/db", {"host": "h", "port": "5432", "dbname": "db"}),
        ("jdbc:postgresql://h:1,[::1]:2/db", {"host": "h,::1", "port": "1,2", "dbname": "db"}),
        ("jdbc:postgresql:db", {"dbname": "db"}),
        ("jdbc:postgresql://h/a%2Fb%20c", {"host": "h", "port": "5432", "dbname": "a/b c"}),
        ("jdbc:postgresql://h/", {"host": "h", "port": "5432", "dbname": ""}),
        ("postgresql://u:p%40@h:1/db?sslmode=require",
         {"host": "h", "port": "1", "dbname": "db", "user": "u", "password": "p@", "sslmode": "require"}),
    ],
)  # fmt: skip
def test_hosts_ports_and_databases(url: str, settings: dict[str, str]) -> None:
    assert jdbc_url.read(KEY, url) == settings


@pytest.mark.parametrize(
    ("query", "settings"),
    [
        ("user=u&password=p%26q", {"user": "u", "password": "p&q"}),
        ("ssl=true", {"sslmode": "verify-full"}),
        ("ssl=true&sslmode=require", {"sslmode": "require"}),
        ("ssl=false", {}),
        ("sslmode=verify-ca&sslrootcert=/ca.pem&sslcert=/c.pem&sslkey=/k.pem",
         {"sslmode": "verify-ca", "sslrootcert": "/ca.pem", "sslcert": "/c.pem", "sslkey": "/k.pem"}),
        ("currentSchema=a,b", {"options": "-c search_path=a,b"}),
        ("currentSchema=a&options=-c%20x%3D1", {"options": "-c x=1 -c search_path=a"}),
        ("options=-c%20x%3D1&currentSchema=a", {"options": "-c x=1 -c search_path=a"}),
        ("connectTimeout=3&ApplicationName=me", {"connect_timeout": "3", "application_name": "me"}),
        ("targetServerType=preferSecondary", {"target_session_attrs": "prefer-standby"}),
        ("tcpKeepAlive=true&loadBalanceHosts=true", {"keepalives": "1", "load_balance_hosts": "random"}),
        ("reWriteBatchedInserts=true&prepareThreshold=0", {}),
    ],
)  # fmt: skip
def test_parameters_with_the_same_meaning(query: str, settings: dict[str, str]) -> None:
    found = jdbc_url.read(KEY, f"jdbc:postgresql://h/db?{query}")
    assert {name: value for name, value in found.items() if name not in ("host", "port", "dbname")} == settings


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("jdbc:mysql://h/db", "supports PostgreSQL only, not jdbc:mysql:"),
        ("mysql://h/db", "supports PostgreSQL only, not mysql:"),
        ("jdbc:postgresql://h/db?sslfactory=org.X", "sslfactory is not supported"),
        ("jdbc:postgresql://h/db?targetServerType=odd", "targetServerType=odd is not supported"),
        ("jdbc:postgresql://h/db?sslkey=/k.pk8", "this connector reads PEM"),
        ("jdbc:postgresql://h:x/db", "the part before the database is not host:port"),
        ("postgresql://h/db?nonsense=1", "cannot be parsed"),
    ],
)
def test_unsupported_parameters_are_refused_with_the_key_and_a_fix(url: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        jdbc_url.read(KEY, url)
    assert caught.value.field == KEY
    assert caught.value.fix


@pytest.mark.parametrize(
    "url", ["postgresql://u:gehe%im@h/db", "postgresql://u:geheim@[::1]x/db", "jdbc:postgresql://u:geheim@h/db"]
)
def test_errors_do_not_show_an_unreadable_url(url: str) -> None:
    with pytest.raises(ConfigError) as told:
        jdbc_url.read(KEY, url)
    assert "gehe" not in f"{told.value} {told.value.fix}"


_passwords = st.lists(st.sampled_from([*"@/?:;&#%=,1x", "%40", "//"]), max_size=6).flatmap(
    lambda around: st.integers(0, len(around)).map(lambda at: "".join([*around[:at], "SECRET", *around[at:]]))
)


@settings(max_examples=soak_or(300, 5_000))
@given(
    st.sampled_from((
        "postgresql://me:{}@h:5432/db",
        "postgresql://me:{}@h/db?sslmode=disable",
        "postgresql://h/db?user=me&password={}",
        "jdbc:postgresql://me:{}@h:5432/db",
        "jdbc:postgresql://h:5432/db?user=me&password={}",
        "jdbc:postgresql://h/db?password={}&user=me&sslmode=disable",
        "jdbc:mysql://me:{}@h/db",
    )),
    _passwords,
)  # fmt: skip
def test_no_part_of_a_password_is_shown_of_a_url_with_special_characters(form: str, password: str) -> None:
    """Neither in refusals, nor in the server's name in waits."""
    try:
        shown = connection_settings({KEY: form.format(password), "connection.user": "me"}).place
    except ConfigError as error:
        shown = f"{error} {error.fix}"
    assert "SECRET" not in shown


def test_the_keys_of_user_and_password_win_over_the_url() -> None:
    url = {KEY: "jdbc:postgresql://h/db?user=u&password=secret-of-url"}
    assert connection_settings(url).libpq() == {
        "host": "h", "port": "5432", "dbname": "db", "user": "u", "password": "secret-of-url",
    }  # fmt: skip
    settings = connection_settings({**url, "connection.user": "v", "connection.password": "secret-of-key"})
    assert (settings.user, settings.password) == ("v", "secret-of-key")
    assert "secret" not in repr(settings)
    assert settings.place == "h:5432/db"
    assert connection_settings({KEY: "jdbc:postgresql://a:1,b:2/db?user=u"}).place == "a:1,b:2/db"


@pytest.mark.parametrize(("config", "field"), [({}, KEY), ({KEY: "jdbc:postgresql://h/db"}, "connection.user")])
def test_required_settings_of_a_connection(config: dict[str, str], field: str) -> None:
    with pytest.raises(ConfigError) as caught:
        connection_settings(config)
    assert caught.value.field == field


def test_settings_without_effect_are_named() -> None:
    url = "jdbc:postgresql://h/db?user=u&loggerLevel=DEBUG&ssl=true"
    found = warnings_of_connection({KEY: url, "connection.attempts": "3"})
    assert [(one.field, one.message.split(" has no effect")[0]) for one in found] == [
        ("connection.attempts", "connection.attempts"),
        (KEY, f"{KEY}: loggerLevel"),
    ]
