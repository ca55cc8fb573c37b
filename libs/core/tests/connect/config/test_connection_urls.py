"""The displayed part of a connection URL: enough to recognise the system, and never a part of a password."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from herdmesh.connect.config.connection_urls import database_place, http_place, kind_of, without_user
from tests.support.sizes import soak_or

SHOWN = {
    "jdbc:mysql://db:3306/shop": "mysql db:3306",
    "jdbc:mysql://db:3306/shop?user=me&password=hunter2": "mysql db:3306",
    "jdbc:mysql://me:hunter2@db:3306/shop": "mysql db:3306",
    "jdbc:mysql:loadbalance://a:1,b:2/shop": "mysql a:1,b:2",
    "jdbc:mysql://address=(host=db)(port=1)(password=hunter2)/shop": "mysql database",
    "jdbc:mysql://db/shop?password=hun@ter2": "mysql database",
    "jdbc:mysql://me:hun/ter2@db:3306/shop": "mysql db:3306",
    "jdbc:mysql://me:hun@ter2@db:3306/shop": "mysql database",
    "jdbc:mysql://me:1234?x@db:3306/shop": "mysql database",
    "jdbc:sqlserver://db\\instance:1433;user=me;password=hunter2": "sqlserver db",
    "jdbc:sqlserver://db:1433;user=me;password=hunter2": "sqlserver db:1433",
    "jdbc:oracle:thin:@db:1521:ORCL": "oracle db:1521",
    "jdbc:oracle:thin:me/hunter2@db:1521:ORCL": "oracle db:1521",
    "jdbc:oracle:thin:@//db:1521/service": "oracle db:1521",
    "jdbc:oracle:thin:me/hunter2@//db:1521/service": "oracle db:1521",
    "jdbc:oracle:thin:@(DESCRIPTION=(ADDRESS=(PROTOCOL=tcp)(HOST=db)(PORT=1521))(CONNECT_DATA=(SID=X)))": (
        "oracle db:1521"
    ),
    "jdbc:oracle:thin:@tns_name": "oracle tns_name",
    "jdbc:db2://db:50000/SHOP:user=me;password=hunter2;": "db2 db:50000",
    "jdbc:postgresql://[::1]:5432/shop": "postgresql [::1]:5432",
    "jdbc:sqlite:/var/shop.db": "sqlite database",
    "jdbc:h2:file:/var/shop;PASSWORD=hunter2": "h2 database",
    "hunter2": "database",
    "hunter2:more": "database",
    "": "database",
}  # fmt: skip


@pytest.mark.parametrize("url", SHOWN)
def test_the_system_and_its_hosts_are_shown(url: str) -> None:
    assert database_place(url) == SHOWN[url]
    assert "hunter" not in kind_of(url)


_MARK = "SECRET"
#: A part of a password between any other characters, which may be the delimiters of a URL.
_passwords = st.lists(st.sampled_from([*"@/?:;&#%=,()[]\\ .x1-", "//"]), max_size=6).flatmap(
    lambda around: st.integers(0, len(around)).map(lambda at: "".join([*around[:at], _MARK, *around[at:]]))
)
_forms = st.sampled_from((
    "jdbc:mysql://me:{}@db:3306/shop",
    "jdbc:mysql://me:{}@db/shop?x=y",
    "jdbc:mysql://db:3306/shop?user=me&password={}",
    "jdbc:mysql://db:3306/shop?password={}&user=me@here",
    "jdbc:sqlserver://db:1433;user=me;password={};encrypt=true",
    "jdbc:oracle:thin:me/{}@db:1521:ORCL",
    "jdbc:oracle:thin:me/{}@//db:1521/service",
    "jdbc:db2://db:50000/SHOP:user=me;password={};",
    "jdbc:h2:mem:x;PASSWORD={}",
    "me:{}@db:3306",
    "//{}@db",
))  # fmt: skip


@settings(max_examples=soak_or(300, 5_000))
@given(_forms, _passwords)
def test_no_part_of_a_password_is_shown(form: str, password: str) -> None:
    url = form.format(password)
    assert _MARK not in database_place(url)
    assert _MARK not in kind_of(url)


@settings(max_examples=soak_or(200, 5_000))
@given(st.sampled_from(("http://me:{}@registry:8081/x", "https://{}@registry")), _passwords)
def test_an_http_address_shows_no_part_of_a_password(form: str, password: str) -> None:
    assert _MARK not in without_user(form.format(password))
    assert _MARK not in http_place(form.format(password))


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("https://receiver:8443/${topic}?k=${key}", "HTTP receiver:8443"),
        ("http://[::1]:80", "HTTP [::1]:80"),
        ("http://me:pa@receiver/x", "HTTP receiver"),
        ("http://me:pa@ss@receiver/x", "HTTP server"),
    ],
)
def test_an_http_receiver_is_named_by_its_host(url: str, place: str) -> None:
    assert http_place(url) == place
